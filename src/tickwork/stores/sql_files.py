"""SQL as text beside the code that uses it.

`queries.sql` has one name and one sentence per query; `schema.sql` is today's database, and the numbered files
in `migrations/` lead to it from any earlier one. A store records the digest of each migration that made it, so that
one which was edited after its use is noticed, not guessed at.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any, NamedTuple

from tickwork.ports.store import StoreUnusable

DIGESTS = "digests"  # the migration since which they are recorded
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile("--.*")
_MIGRATION = re.compile(r"^(\d{4})_(pre|post)_(\w+)\.sql$")


class Migration(NamedTuple):
    number: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """Of its statements: comments and line breaks may change."""
        return hashlib.sha256(" ".join(_COMMENT.sub("", self.sql).split()).encode()).hexdigest()[:32]


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
        migrations = sorted(self._migrations())
        assert [migration.number for migration in migrations] == list(range(1, len(migrations) + 1)), (
            "migrations are numbered from 1"
        )
        return migrations

    def unrecorded(self, recorded: Iterable[Sequence[Any]], version: int, where: str) -> list[Migration]:
        """Migrations that a store of this version has no record of. `recorded` are numbers, names and digests; stores
        of before the first digest have none, or empty ones. Raises `StoreUnusable` where another migration made it."""
        rows = {number: (name, digest) for number, name, digest in recorded}
        since = next(migration.number for migration in self.migrations if migration.name == DIGESTS)
        if version >= since and sorted(rows) != list(range(1, version + 1)):
            raise StoreUnusable(f"{where} is damaged (its migrations): restore a backup; keep this copy for analysis")
        for migration in self.migrations:
            name, digest = rows.get(migration.number, ("", ""))
            if digest and (name, digest) != (migration.name, migration.digest):
                raise StoreUnusable(
                    f"{where}: migration {migration.number} ({name}) that made this store is not migration "
                    f"{migration.number} ({migration.name}) of this program, or its record is damaged: make a backup "
                    "with the program that made the store, and restore it with this one"
                )
        return [migration for migration in self.migrations if not rows.get(migration.number, ("", ""))[1]]

    def _migrations(self) -> Iterator[Migration]:
        for entry in self._folder.joinpath("migrations").iterdir():
            if match := _MIGRATION.match(entry.name):
                yield Migration(int(match[1]), match[3], entry.read_text())

    def _read(self, name: str) -> str:
        return self._folder.joinpath(name).read_text()


def _plain(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
