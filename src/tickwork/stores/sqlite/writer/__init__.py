"""The writer of a SQLite store: in a process of its own, in a thread, or inline."""
