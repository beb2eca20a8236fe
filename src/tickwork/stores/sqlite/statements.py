"""The SQL of this store."""

from tickwork.stores.sql_files import Migration, SqlFiles

_files = SqlFiles(__package__)
unrecorded = _files.unrecorded


def queries() -> dict[str, str]:
    return _files.queries


def schema() -> str:
    return _files.schema


def migrations() -> list[Migration]:
    return _files.migrations
