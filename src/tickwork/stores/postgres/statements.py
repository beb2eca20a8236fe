"""The SQL of this store."""

from tickwork.stores.sql_files import SqlFiles

FILES = SqlFiles(__package__)
