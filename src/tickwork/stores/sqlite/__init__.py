"""The store in one SQLite file: the default, for one machine. `store` has it; the writer process needs less."""
