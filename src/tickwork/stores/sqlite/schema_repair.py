"""Older stores whose migrations were edited after they had been used.

A store of version N has the shape that migrations 1 to N make, or that of a text which one of them had before. What
was renamed since is renamed here. Tables that are otherwise, and empty, are made again. The rest is refused: nothing is
guessed, and nothing is lost.
"""

import re
from pathlib import Path
from typing import Any

import apsw

from tickwork.ports.store import StoreUnusable
from tickwork.stores.sqlite.statements import migrations

_COMMENT = re.compile("--.*")
# By version: the table that tells, and what makes it today's.
_RENAMED = {
    5: ("run_hints", "alter table run_hints rename to run_clues; alter table run_clues rename column hint to clue")
}

Shape = dict[str, list[Any]]


def mend(connection: apsw.Connection, path: Path, version: int) -> None:
    """Before migrations behind `version`, in their transaction."""
    if (
        version in _RENAMED
        and _RENAMED[version][0] in shape(connection)
        and _RENAMED[version][0] not in _shape_of(version)
    ):
        connection.execute(_RENAMED[version][1])
    expected, present = _shape_of(version), shape(connection)
    different = {
        str((expected.get(name) or present[name])[0])
        for name in expected.keys() | present.keys()
        if expected.get(name) != present.get(name)
    }
    full = [name for name in sorted(different) if name in present and _has_rows(connection, name)]
    if full:
        raise StoreUnusable(
            f"{path} has schema {version} in a form of before its release, with rows in {', '.join(full)}: "
            "make a backup with the program that made it, and restore it with this one"
        )
    for name in different & present.keys():
        connection.execute(f'drop table "{name}"')
    for table in sorted(different & expected.keys()):
        for (sql,) in (
            _made(version)
            .execute(
                "select sql from sqlite_schema where tbl_name = ? and sql is not null order by type = 'index'", (table,)
            )
            .fetchall()
        ):
            connection.execute(str(sql))


def _has_rows(connection: apsw.Connection, table: str) -> bool:
    return bool(connection.execute(f'select 1 from "{table}" limit 1').fetchall())  # noqa: S608 - from the schema


def _made(version: int) -> apsw.Connection:
    fresh = apsw.Connection(":memory:")
    for migration in migrations()[:version]:
        fresh.execute(migration.sql)
    return fresh


def _shape_of(version: int) -> Shape:
    fresh = _made(version)
    try:
        return shape(fresh)
    finally:
        fresh.close()


def shape(connection: apsw.Connection) -> Shape:
    """Tables with their columns and keys, indexes with their columns and conditions; not how the SQL is spelled."""
    tables: Shape = {}
    for name, table, sql in connection.execute(
        "select name, tbl_name, coalesce(sql, '') from sqlite_schema where name not like 'sqlite_stat%'"
    ).fetchall():
        pragma = "table_xinfo" if name == table else "index_xinfo"
        columns = connection.execute(f'pragma {pragma}("{name}")').fetchall()
        tables[str(name)] = [table, columns, _COMMENT.sub("", str(sql)).partition(" where ")[2]]
    for name, *flags in connection.execute("select name, wr, strict from pragma_table_list where schema = 'main'"):
        tables.setdefault(str(name), []).append(flags)
    return tables
