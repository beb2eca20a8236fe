"""Durable functions: what they call, and the driver that runs them from a recorded history."""
