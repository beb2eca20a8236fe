"""The SQL of this store, read from the files beside this module.

`queries.sql` has one name and one sentence per query; `schema.sql` is today's database, and the numbered files
in `migrations/` lead to it from any earlier one.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_(pre|post)_(\w+)\.sql$")


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


@cache
def queries() -> dict[str, str]:
    _, *parts = _NAME.split(_read("queries.sql"))
    named = dict(zip(parts[::2], map(_plain, parts[1::2]), strict=True))
    assert len(named) == len(parts) // 2, "a query's name is used once"
    return named


def schema() -> str:
    return _read("schema.sql")


def migrations() -> list[Migration]:
    found = sorted(_migrations())
    assert [one.number for one in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1"
    return found


def _migrations() -> Iterator[Migration]:
    for entry in files(__package__).joinpath("migrations").iterdir():
        if match := _MIGRATION.match(entry.name):
            yield Migration(int(match[1]), match[3], entry.read_text())


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text()


def _plain(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
