"""What clients and tasks request: each command is checked and becomes events, or is refused."""
