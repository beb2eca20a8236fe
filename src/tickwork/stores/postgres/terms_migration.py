"""Ended runs of before migration `terms` get the entries by which they are found, in its transaction."""

from typing import TYPE_CHECKING, Any

from tickwork.ports.store import RunRow
from tickwork.stores import checksums
from tickwork.stores.run_blocks import entries_of, rows_of, stretch_of

if TYPE_CHECKING:
    import asyncpg

NAME = "terms"  # of the migration
BLOCKS = 64  # of a portion


async def add_terms(connection: "asyncpg.Connection[Any]") -> None:
    rows = await connection.cursor("select first, data, checksum from run_blocks order by first")
    stretch, runs = -1, list[RunRow]()
    while batch := await rows.fetch(BLOCKS):
        for first, data, checksum in batch:
            checksums.require(checksum == checksums.of_bytes(first, data), f"a row of runs (block {first})")
            if stretch_of(first) != stretch:
                await _add(connection, runs)
                stretch, runs = stretch_of(first), []
            runs += rows_of(data)
    await _add(connection, runs)


async def _add(connection: "asyncpg.Connection[Any]", runs: list[RunRow]) -> None:
    if runs:
        entries = sorted(entries_of(sorted(runs, key=lambda row: row.number)))
        await connection.execute(
            "insert into run_clues (clue, stretch) select * from unnest($1::bigint[], $2::bigint[]) "
            "on conflict do nothing",
            [clue for clue, _ in entries],
            [stretch for _, stretch in entries],
        )
