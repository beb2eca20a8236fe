"""Several equal nodes over one store: who owns what, and how everybody reaches the owner."""
