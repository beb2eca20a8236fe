"""What a run does by itself, one visit at a time."""
