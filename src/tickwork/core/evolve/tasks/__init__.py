"""The part of `evolve` by which the nodes and tasks of a run move."""
