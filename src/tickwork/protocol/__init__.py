"""Messages between processes: HTTP models, worker and child messages. No behaviour."""
