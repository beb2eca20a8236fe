"""SQL as text beside the code that uses it.

`queries.sql` has one name and one sentence per query; `schema.sql` is today's database, and the numbered files
in `migrations/` lead to it from any earlier one.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_MIGRATION = re.compile(r"^(\d{4})_(pre|post)_(\w+)\.sql$")


class Migration(NamedTuple):
    number: int
    name: str
    sql: str


class SqlFiles:
    def __init__(self, package: str) -> None:
        self._folder = files(package)

    @cached_property
    def queries(self) -> dict[str, str]:
        _, *parts = _NAME.split(self._read("queries.sql"))
        named = dict(zip(parts[::2], map(_plain, parts[1::2]), strict=True))
        assert len(named) == len(parts) // 2, "a query's name is used once"
        return named

    @cached_property
    def schema(self) -> str:
        return self._read("schema.sql")

    @cached_property
    def migrations(self) -> list[Migration]:
        found = sorted(self._migrations())
        assert [one.number for one in found] == list(range(1, len(found) + 1)), "migrations are numbered from 1"
        return found

    def _migrations(self) -> Iterator[Migration]:
        for entry in self._folder.joinpath("migrations").iterdir():
            if match := _MIGRATION.match(entry.name):
                yield Migration(int(match[1]), match[3], entry.read_text())

    def _read(self, name: str) -> str:
        return self._folder.joinpath(name).read_text()


def _plain(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
