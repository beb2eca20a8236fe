"""Inputs and due timers to events. Nothing here changes the state."""
