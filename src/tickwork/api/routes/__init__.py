"""One file per resource; each ends with the part of the route table that it answers."""
