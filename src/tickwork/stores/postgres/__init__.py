"""The store of a cluster: PostgreSQL, shared by any number of nodes. Needs the extra `postgres`."""
