"""The SQL of this store."""

from tickwork.stores.sqlfiles import SqlFiles

FILES = SqlFiles(__package__)
