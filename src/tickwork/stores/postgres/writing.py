"""Rows as PostgreSQL takes them: arrays for the functions `write_rows` and `write_rest` of the schema, and tuples for
a COPY of ended runs, which costs a third of the arrays.

A thing that is written twice in one go counts as it was written last: PostgreSQL refuses to change a row twice
in one statement.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple, replace

from tickwork.core.schedule import Range
from tickwork.ports.store import BackfillRow, CacheRow, ChildRow, DefinitionRow, Rows, RunRow

_encode = msgspec.msgpack.Encoder().encode
WRITTEN = 1  # what `write_rows` answers
RUN_COLUMNS = RunRow.__struct_fields__


def statement(rows: Rows, fence: list[Any], *, runs: bool) -> tuple[str, list[Any]]:
    """Which query writes these rows, with the ended runs or without, and its arguments."""
    if rows.fates or rows.backfills or rows.definitions or rows.children or rows.cache:
        return "write_all_rows", [*fence, *_hot(rows, runs=runs), *_rest(rows)]
    return "write_rows", [*fence, *_hot(rows, runs=runs)]


def _hot(rows: Rows, *, runs: bool) -> list[Any]:
    return [
        rows.header,
        rows.gone_runs,
        *_columns(_latest(rows.live_runs), 2),
        rows.gone_tasks,
        *_columns(_latest(rows.live_tasks), 2),
        rows.gone_schedules,
        *_columns(_latest(rows.schedules), 2),
        rows.reopened,
        *(_columns(records(rows.runs), len(RUN_COLUMNS)) if runs else [()] * len(RUN_COLUMNS)),
        *_columns(rows.attempts, 2),
    ]


def _rest(rows: Rows) -> list[Any]:
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


def records(runs: list[RunRow]) -> list[tuple[Any, ...]]:
    latest = {row.number: row for row in runs}
    return [astuple(row if "\0" not in row.error else _without_zero(row)) for row in latest.values()]


def _without_zero(row: RunRow) -> RunRow:
    """No text of PostgreSQL has the character zero."""
    return replace(row, error=row.error.replace("\0", "\u2400"))


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
