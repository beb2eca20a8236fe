"""Adapters of the store port: in memory for tests and simulation, SQLite for one machine."""
