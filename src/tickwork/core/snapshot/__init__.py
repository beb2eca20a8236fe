"""State to rows and back, the rows that changed, and the invariants of the state."""
