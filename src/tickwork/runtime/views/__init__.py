"""State and rows to HTTP models."""
