"""Rows as arrays: what the functions `write_rows` and `write_rest` of the schema take.

A thing that is written twice in one go counts as it was written last: PostgreSQL refuses to change a row twice
in one statement.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from tickwork.core.schedule import Range
from tickwork.ports.store import BackfillRow, CacheRow, ChildRow, DefinitionRow, Rows, RunRow

_encode = msgspec.msgpack.Encoder().encode
_RUN_FIELDS = len(RunRow.__struct_fields__)
_ERROR = RunRow.__struct_fields__.index("error")


def hot(rows: Rows) -> list[Any]:
    """The arguments of `write_rows` behind the fence's."""
    return [
        rows.header,
        rows.gone_runs,
        *_columns(_latest(rows.live_runs), 2),
        rows.gone_tasks,
        *_columns(_latest(rows.live_tasks), 2),
        rows.gone_schedules,
        *_columns(_latest(rows.schedules), 2),
        rows.reopened,
        *_runs(rows.runs),
        *_columns(rows.attempts, 2),
    ]


def has_rest(rows: Rows) -> bool:
    return bool(rows.fates or rows.backfills or rows.definitions or rows.children or rows.cache)


def rest(rows: Rows) -> list[Any]:
    """The arguments of `write_rest` behind the partition."""
    return [
        *_columns(_fates(rows.fates), 7),
        *_columns(_backfills(rows.backfills), 4),
        *_columns(_definitions(rows.definitions), 5),
        *_columns(_children(rows.children), 4),
        *_columns(_cache(rows.cache), 3),
    ]


def _columns(rows: Iterable[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width


def _latest(rows: list[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
    latest = dict(rows)
    return rows if len(latest) == len(rows) else latest.items()


def _runs(runs: list[RunRow]) -> Sequence[Sequence[Any]]:
    latest = {row.number: row for row in runs}
    columns = list(_columns(map(astuple, latest.values()), _RUN_FIELDS))
    if any("\0" in error for error in columns[_ERROR]):
        columns[_ERROR] = [error.replace("\0", "\u2400") for error in columns[_ERROR]]  # no text of PostgreSQL has it
    return columns


def _fates(spans: list[Range]) -> Iterable[tuple[Any, ...]]:
    latest = {(one.tenant, one.name, one.from_ms, one.schedule, one.backfill): one for one in spans}
    return [(*place, one.to_ms, _encode(one)) for place, one in latest.items()]


def _backfills(rows: list[BackfillRow]) -> Iterable[tuple[Any, ...]]:
    return map(astuple, {row.number: row for row in rows}.values())


def _definitions(rows: list[DefinitionRow]) -> Iterable[tuple[Any, ...]]:
    return map(astuple, {(row.tenant, row.hash): row for row in rows}.values())


def _children(rows: list[ChildRow]) -> Iterable[tuple[Any, ...]]:
    return map(astuple, {(row.run, row.step, row.child): row for row in rows}.values())


def _cache(rows: list[CacheRow]) -> Iterable[tuple[Any, ...]]:
    """By key: other partitions may write the same ones."""
    latest = {row.key: row for row in rows}
    return (astuple(latest[key]) for key in sorted(latest))
