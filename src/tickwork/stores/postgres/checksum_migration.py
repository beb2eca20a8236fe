"""Rows of before migration `checksums` get theirs, in its transaction."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tickwork.ports.store_maintenance import COLUMNS
from tickwork.stores import checksums
from tickwork.stores.run_blocks import BlockHeader

if TYPE_CHECKING:
    import asyncpg

NAME = "checksums"  # of the migration
ROWS = 1_000  # of a portion
Row = tuple[Any, ...]
# By table: the columns, and what each column of checksums is made of.
_OTHERS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Callable[[Row], int]]]] = MappingProxyType({
    "partitions": (("id", "epoch", "owner"), {"checksum": lambda row: checksums.of_epoch(*row)}),
    "renewals": (("partition_id", "day"), {"checksum": lambda row: checksums.of_fields(*row)}),
    "machines": (
        ("settings", "header"),
        {
            "settings_checksum": lambda row: checksums.of_bytes(0, row[0]),
            "header_checksum": lambda row: checksums.of_bytes(0, row[1]),
        },
    ),
    "run_blocks": (
        ("first", "held", "marks", "data"),
        {
            "outline_checksum": lambda row: checksums.of_outline(BlockHeader(row[0], row[1], row[2], 0)),
            "checksum": lambda row: checksums.of_bytes(row[0], row[3]),
        },
    ),
})  # fmt: skip


async def sign(connection: "asyncpg.Connection[Any]") -> None:
    for table, sum_of in checksums.SUMS.items():
        if table not in ("inbox", "journal_index"):  # what came by SQL has none either; the other is of a later schema
            await _sign(connection, table, COLUMNS[table], {"checksum": sum_of})
    for table, (columns, sums) in _OTHERS.items():
        await _sign(connection, table, columns, sums)


async def _sign(
    connection: "asyncpg.Connection[Any]",
    table: str,
    columns: tuple[str, ...],
    sums: Mapping[str, Callable[[Row], int]],
) -> None:
    for name, sum_of in sums.items():
        rows = await connection.cursor(f"select ctid::text, {', '.join(columns)} from {table}")  # noqa: S608
        while batch := await rows.fetch(ROWS):
            places, values = zip(*[(row[0], sum_of(tuple(row)[1:])) for row in batch], strict=True)
            await connection.execute(
                f"update {table} t set {name} = given.value "  # noqa: S608 - names of our own
                "from unnest($1::text[], $2::bigint[]) as given (place, value) where t.ctid = given.place::tid",
                places,
                values,
            )
