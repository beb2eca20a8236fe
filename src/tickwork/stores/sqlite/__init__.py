"""The store in one SQLite file: the default, for one machine."""

from tickwork.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
