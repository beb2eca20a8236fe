"""Ended runs on one connection: blocks, and the indexes that lead to them.

Id prefixes, keys and groups change in the same transaction as their blocks.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import apsw

from tickwork.ports.store import RunFilter, RunPage, RunRow
from tickwork.stores import checksums, run_terms
from tickwork.stores import run_blocks as blocks
from tickwork.stores.run_blocks import NUMBER_MAX, Block, BlockHeader, PendingRuns
from tickwork.stores.run_terms import SCAN_MAX
from tickwork.stores.sqlite.statements import queries

STRETCHES, STRETCHES_MAX = 2, 64  # that a list opens in one go


class RunBlocks:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = queries()

    # ---- reading

    def numbered(self, numbers: Iterable[int]) -> dict[int, RunRow]:
        """Those that are there."""
        requested = set(numbers)
        positions = {
            outline.first: outline.places_of(requested) for outline in self._outlines(map(blocks.stretch_of, requested))
        }
        return {row.number: row for row in self._picked(positions)}

    def find(self, tenant: str, ids: Sequence[str], keys: Sequence[str]) -> list[RunRow]:
        requested, marks = set(ids), {blocks.mark_of(run_id) for run_id in ids}
        stretches = [stretch for run_id in requested for (stretch,) in self._rows("read_clue", blocks.clue_of(run_id))]
        rows = self._picked({outline.first: outline.places_like(marks) for outline in self._outlines(stretches)})
        matches = {row.number: row for row in rows if row.tenant == tenant and row.id in requested}
        return list((matches | self._under(tenant, keys)).values())

    def _under(self, tenant: str, keys: Sequence[str]) -> dict[int, RunRow]:
        numbers = [number for key in keys for (number,) in self._rows("read_run_key", tenant, key)]
        runs = self.numbered(numbers) if numbers else {}
        for number in numbers:
            checksums.require(number in runs, f"the index entry of run {number}")
        return runs

    def listed(self, criteria: RunFilter) -> RunPage:
        """Newest first."""
        matches: list[RunRow] = []
        for stretch, more in self._candidates(criteria):
            if len(matches) > criteria.limit:
                break
            if stretch < 0:
                return blocks.page_of(matches, criteria.limit, before=more)
            some, past = blocks.fitting((data for _, data in self._read(*blocks.reach_of(stretch))), criteria)
            matches += some
            if past:
                break
        return blocks.page_of(matches, criteria.limit)

    def _candidates(self, criteria: RunFilter) -> Iterator[tuple[int, int]]:
        """Yield the stretches that may hold a matching run, newest first. At last, where only some of them were
        listed, yield -1 with the number below which the others are."""
        groups, low = run_terms.groups_of(criteria), blocks.stretch_of(criteria.after)
        stretch, count = blocks.stretch_of((criteria.before or NUMBER_MAX) - 1), STRETCHES
        if groups:
            stretches = self._named("list_stretches_by_clues", _clue_fields(criteria, groups, low, stretch))
            yield from ((number, 0) for number in stretches[:SCAN_MAX])
            if len(stretches) > SCAN_MAX:
                yield -1, blocks.reach_of(stretches[SCAN_MAX - 1])[0]
            return
        while stretch >= low:
            stretches = self._stretches(criteria, stretch, count)
            yield from ((number, 0) for number in stretches if number >= low)
            if len(stretches) < count:
                break
            stretch, count = stretches[-1] - 1, min(count * 4, STRETCHES_MAX)

    def _stretches(self, criteria: RunFilter, stretch: int, count: int) -> list[int]:
        """List the stretches, from this one down, that hold a matching run."""
        fields: dict[str, str | int] = {"tenant": criteria.tenant, "stretch": stretch, "limit": count}
        words: dict[str, str | int] = {"workflow": criteria.workflow, "schedule": criteria.schedule}
        if criteria.states:
            # SQLite would sort all of several states; merged here, each gives no more than the limit.
            each = [
                self._named("list_stretches_by_state", fields | words | {"state": state})
                for state in dict.fromkeys(criteria.states)
            ]
            return sorted(set(chain(*each)), reverse=True)[:count]
        if criteria.schedule:
            return self._named("list_stretches_by_schedule", fields | words)
        if criteria.workflow:
            return self._named("list_stretches_by_workflow", fields | {"workflow": criteria.workflow})
        return self._named("list_stretches", fields)

    def walk(self, first: int, last: int) -> Iterator[RunRow]:
        """Runs with these numbers, in order."""
        reach = self._blocks(blocks.reach_of(blocks.stretch_of(first))[0], last)
        return (row for row in blocks.in_order(reach) if first <= row.number <= last)

    def checked(self, first: int, last: int) -> Iterator[tuple[BlockHeader, list[RunRow]]]:
        """Blocks with their outlines, in order; each is compared with its checksum."""
        sql = "select first, held, marks, outline_checksum, data, checksum from run_blocks where first between ? and ?"
        for name, held, marks, outline_checksum, data, checksum in self._connection.execute(
            f"{sql} order by first", (first, last)
        ):
            outline = BlockHeader(name, held, marks, len(data))
            checksums.require(outline_checksum == checksums.of_outline(outline), f"the outline of block {name}")
            checksums.require(checksum == checksums.of_bytes(name, data), f"a row of runs (block {name})")
            yield outline, blocks.rows_of(data)

    def leads(self, rows: Sequence[RunRow]) -> bool:
        """Whether the clues, groups and keys of these runs, all of one stretch, are there."""
        keys = [(row.tenant, row.key, row.number) for row in rows if row.key]
        return (
            all((stretch,) in self._rows("read_clue", clue) for clue, stretch in blocks.entries_of(rows))
            and all(self._rows("has_group", *group) for group in blocks.groups_of(rows))
            and all(self._rows("has_run_key", *key) for key in keys)
        )

    # ---- writing

    def put(self, runs: Sequence[RunRow]) -> None:
        """Runs that end are nearly always new. After a crash some are there already: then they go first."""
        portion = PendingRuns(runs)
        near = self._near(portion)
        if not portion.is_new(near):
            portion.refuse_mixed(self._picked({outline.first: portion.suspects(outline) for outline in near}))
            numbers = {row.number for row in portion.rows}
            self.take_out(numbers, lambda row: row.number in numbers)
            near = self._near(portion)
        for firsts in portion.crowded(near):
            self._merge(firsts)
        self._add_blocks(portion.blocks)
        self._many("add_clue", portion.clues | portion.terms)
        self._many("add_group", portion.groups)
        self._many("add_run_key", portion.keys)

    def take_out(self, numbers: Iterable[int], leaves: Callable[[RunRow], bool]) -> list[RunRow]:
        """Those that leave are the answer."""
        stretches = sorted({blocks.stretch_of(number) for number in numbers})
        leaving = blocks.leaving(
            [block for some in stretches for block in self._blocks(*blocks.reach_of(some))], leaves
        )
        self._many("drop_block", [(first,) for first in leaving.blocks])
        self._many("drop_group", leaving.groups)
        self._many("drop_clue", leaving.clues)
        self._many("drop_run_key", [(row.tenant, row.key, row.number) for row in leaving.taken if row.key])
        self._add_blocks(leaving.rest)
        return leaving.taken

    def _merge(self, firsts: Sequence[int]) -> None:
        rows = [row for first in firsts for _, rows in self._blocks(first, first) for row in rows]
        self._many("drop_block", [(first,) for first in firsts])
        self._add_blocks(blocks.blocks_of(blocks.latest_of(rows)))

    def _near(self, portion: PendingRuns) -> list[BlockHeader]:
        """Where these runs or their ids could be already."""
        stretches = portion.stretches
        for clue in {clue for clue, _ in portion.clues}:
            stretches.update(stretch for (stretch,) in self._rows("read_clue", clue))
        return self._outlines(stretches)

    def _add_blocks(self, packed: Iterable[Block]) -> None:
        of = checksums.of_bytes
        self._many(
            "add_block",
            [
                (*outline[:3], checksums.of_outline(outline), data, of(outline.first, data))
                for outline, data, *_ in packed
            ],
        )

    # ---- statements

    def _outlines(self, stretches: Iterable[int]) -> list[BlockHeader]:
        outlines = []
        reaches = [blocks.reach_of(stretch) for stretch in set(stretches)]
        for *row, checksum in (row for reach in reaches for row in self._rows("read_outlines", *reach)):
            outline = BlockHeader(*row)
            checksums.require(checksum == checksums.of_outline(outline), f"the outline of block {outline.first}")
            outlines.append(outline)
        return outlines

    def _picked(self, places: dict[int, list[int]]) -> Iterator[RunRow]:
        """Runs by their places in blocks."""
        for first, index in places.items():
            for _, data in self._read(first, first) if index else ():
                yield from blocks.some_of(data, index)

    def _blocks(self, first: int, last: int) -> Iterator[tuple[int, list[RunRow]]]:
        return ((name, blocks.rows_of(data)) for name, data in self._read(first, last))

    def _read(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        of = checksums.of_bytes
        for name, data, checksum in self._connection.execute(self._sql["read_blocks"], (first, last)):
            checksums.require(checksum == of(name, data), f"a row of runs (block {name})")
            yield name, data

    def _rows(self, name: str, *bindings: Any) -> list[Any]:
        return self._connection.execute(self._sql[name], bindings).fetchall()

    def _named(self, name: str, fields: dict[str, Any]) -> list[int]:
        rows: list[Any] = self._connection.execute(self._sql[name], fields).fetchall()
        return [stretch for (stretch,) in rows]

    def _many(self, name: str, bindings: Iterable[tuple[Any, ...]]) -> None:
        self._connection.executemany(self._sql[name], bindings)


def _clue_fields(criteria: RunFilter, groups: list[list[int]], low: int, high: int) -> dict[str, Any]:
    return {
        "tenant": criteria.tenant,
        "groups": json.dumps(groups),
        "count": len(groups),
        "low": low,
        "high": high,
        "workflow": criteria.workflow,
        "schedule": criteria.schedule,
        "states": json.dumps(criteria.states),
        "limit": SCAN_MAX + 1,
    }
