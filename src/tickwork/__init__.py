"""tickwork: a deterministic scheduler whose every decision is recorded and can be replayed."""
