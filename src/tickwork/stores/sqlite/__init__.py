"""The store in one SQLite file: the default, for one machine. `store` has it; the scribe's process needs less."""
