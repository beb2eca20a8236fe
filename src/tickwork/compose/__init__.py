"""Settings in, wired application out: the only place that knows every adapter."""
