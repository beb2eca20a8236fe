"""Rows as PostgreSQL takes them: arrays for the functions `write_rows`, `put_runs` and `write_rest` of the schema.

A thing that is written twice in one go counts as it was written last: PostgreSQL refuses to change a row twice
in one statement.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import astuple

from tickwork.core.state.schedule import FateRange
from tickwork.ports.store import BackfillRow, CacheRow, ChildRow, DefinitionRow, IndexEntry, Rows
from tickwork.stores.checksums import of_bytes, of_fields, of_row
from tickwork.stores.postgres.run_blocks import arguments, columns
from tickwork.stores.run_blocks import PendingRuns

_encode = msgspec.msgpack.Encoder().encode
WRITTEN = 1  # what `write_rows` answers


def statement(rows: Rows, fence: list[Any], portion: PendingRuns) -> tuple[str, list[Any]]:
    """Which query writes these rows with these ended runs, and its arguments."""
    if rows.index:
        every = [*fence, *_hot(rows), *arguments(portion), *_rest(rows, fence[0])]
        return "write_indexed_rows", [*every, *columns(_index(rows.index, fence[0]), 5)]
    if rows.fates or rows.backfills or rows.definitions or rows.children or rows.cache:
        return "write_all_rows", [*fence, *_hot(rows), *arguments(portion), *_rest(rows, fence[0])]
    if rows.runs:
        return "write_rows_and_runs", [*fence, *_hot(rows), *arguments(portion)]
    return "write_rows", [*fence, *_hot(rows)]


def _hot(rows: Rows) -> list[Any]:
    return [
        rows.header,
        of_bytes(0, rows.header),
        rows.gone_runs,
        *columns(_latest(rows.live_runs), 3),
        rows.gone_tasks,
        *columns(_latest(rows.live_tasks), 3),
        rows.gone_schedules,
        *columns(_latest(rows.schedules), 3),
        *columns(summed(rows.attempts), 3),
    ]


def _rest(rows: Rows, partition: int) -> list[Any]:
    return [
        *columns(_fates(rows.fates), 8),
        *columns(_backfills(rows.backfills), 5),
        *columns(_definitions(rows.definitions, partition), 6),
        *columns(_children(rows.children), 5),
        *columns(_cache(rows.cache), 4),
    ]


def summed(rows: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes, int]]:
    return [(number, data, of_bytes(number, data)) for number, data in rows]


def _latest(rows: list[tuple[int, bytes]]) -> Iterable[tuple[int, bytes, int]]:
    latest = dict(rows)
    return summed(rows if len(latest) == len(rows) else latest.items())


def _fates(spans: list[FateRange]) -> Iterable[tuple[Any, ...]]:
    latest = {(span.tenant, span.name, span.from_ms, span.schedule, span.backfill): span for span in spans}
    return map(_signed, [(*key, latest_span.to_ms, _encode(latest_span)) for key, latest_span in latest.items()])


def _backfills(rows: list[BackfillRow]) -> Iterable[tuple[Any, ...]]:
    return map(_signed, map(astuple, {row.number: row for row in rows}.values()))


def _definitions(rows: list[DefinitionRow], partition: int) -> Iterable[tuple[Any, ...]]:
    latest = {(row.tenant, row.hash): row for row in rows}.values()
    return [
        (*astuple(row), of_fields(row.tenant, row.hash, partition, row.name, row.document, row.put_ms))
        for row in latest
    ]


def _children(rows: list[ChildRow]) -> Iterable[tuple[Any, ...]]:
    return map(_signed, map(astuple, {(row.run, row.step, row.child): row for row in rows}.values()))


def _index(rows: list[IndexEntry], partition: int) -> Iterable[tuple[Any, ...]]:
    latest = {(row.kind, row.subject, row.seq): astuple(row) for row in rows}.values()
    return [(*row, of_fields(partition, *row)) for row in latest]


def _cache(rows: list[CacheRow]) -> Iterable[tuple[Any, ...]]:
    """By key: other partitions may write the same ones."""
    latest = {row.key: row for row in rows}
    return ((*astuple(latest[key]), of_row(latest[key])) for key in sorted(latest))


def _signed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row, of_fields(*row))
