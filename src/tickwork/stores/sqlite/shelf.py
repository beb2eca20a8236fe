"""Ended runs on one connection: blocks, and what leads to them.

Ids, keys and groups change with their blocks, in the transaction of whoever asks.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import apsw

from tickwork.core.errors import Corrupt
from tickwork.ports.store import RunFilter, RunRow
from tickwork.stores import blocks
from tickwork.stores.blocks import NUMBER_MAX, STRETCHES_AT_ONCE, STRETCHES_AT_ONCE_MAX
from tickwork.stores.sqlite import checksums
from tickwork.stores.sqlite.statements import queries

IDS_AT_ONCE = 64  # rows in one statement; more make it longer to bind than it saves
_VALUES = re.compile(r"values (\([?, ]+\))")


class Shelf:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = queries()
        self._add_many_ids = _repeated(self._sql["add_run_id"], IDS_AT_ONCE)

    # ---- reading

    def numbered(self, numbers: Iterable[int]) -> dict[int, RunRow]:
        """Those that are there."""
        found: dict[int, RunRow] = {}
        wanted = sorted(set(numbers))
        for stretch, some in groupby(wanted, key=blocks.stretch_of):
            near: dict[int, RunRow] = {}
            first, _ = blocks.reach_of(stretch)
            for number in some:
                if number not in near:
                    for _, rows in self._blocks("read_blocks_of", first, number, number):
                        near |= {row.number: row for row in rows}
                if number in near:
                    found[number] = near[number]
        return found

    def find(self, tenant: str, ids: Sequence[str], keys: Sequence[str]) -> list[RunRow]:
        numbers = [number for one in ids for (number,) in self._rows("read_run_id", one, tenant)]
        numbers += [number for key in keys for (number,) in self._rows("read_run_key", tenant, key)]
        found = self.numbered(numbers)
        for number in numbers:
            checksums.require(number in found, f"what leads to run {number}")
        return list(found.values())

    def listed(self, wanted: RunFilter) -> list[RunRow]:
        """Newest first."""
        found: list[RunRow] = []
        stretch, count = blocks.stretch_of((wanted.before or NUMBER_MAX) - 1), STRETCHES_AT_ONCE
        while stretch >= 0 and len(found) < wanted.limit:
            stretches = self._stretches(wanted, stretch, count)
            for one in stretches:
                found += [row for row in reversed(self._in_stretch(one)) if blocks.fits(row, wanted)]
                if len(found) >= wanted.limit:
                    break
            if len(stretches) < count:
                break
            stretch, count = stretches[-1] - 1, min(count * 4, STRETCHES_AT_ONCE_MAX)
        return found[: max(wanted.limit, 0)]

    def _stretches(self, wanted: RunFilter, stretch: int, count: int) -> list[int]:
        """Those from this one down that hold something that is wanted."""
        fields: dict[str, str | int] = {"tenant": wanted.tenant, "stretch": stretch, "limit": count}
        words: dict[str, str | int] = {"workflow": wanted.workflow, "schedule": wanted.schedule}
        if wanted.states:
            # SQLite would sort all of several states; merged here, each gives no more than is wanted.
            each = [
                self._named("list_stretches_by_state", fields | words | {"state": state})
                for state in dict.fromkeys(wanted.states)
            ]
            return sorted({one for (one,) in chain(*each)}, reverse=True)[:count]
        if wanted.schedule:
            return [one for (one,) in self._named("list_stretches_by_schedule", fields | words)]
        if wanted.workflow:
            return [one for (one,) in self._named("list_stretches_by_workflow", fields | {"workflow": wanted.workflow})]
        return [one for (one,) in self._named("list_stretches", fields)]

    def walk(self, first: int, last: int) -> Iterator[RunRow]:
        """Runs with these numbers, in order. Runs of a stretch may lie in several of its blocks, in any order."""
        found = self._blocks("read_blocks", blocks.reach_of(blocks.stretch_of(first))[0], last)
        for _, some in groupby(found, key=lambda one: blocks.stretch_of(one[0])):
            rows = sorted(chain.from_iterable(rows for _, rows in some), key=attrgetter("number"))
            yield from (row for row in rows if first <= row.number <= last)

    def number_of(self, run_id: str, tenant: str) -> int | None:
        found = self._rows("read_run_id", run_id, tenant)
        return int(found[0][0]) if found else None

    def count_ids(self) -> int:
        return int(self._rows("count_run_ids")[0][0])

    # ---- writing

    def put(self, runs: Sequence[RunRow]) -> None:
        """Runs that end are nearly always new. After a crash some are there already: then the longer way is taken."""
        rows = blocks.latest_of(runs)
        if self._add_ids(rows) < len(rows):
            self._refuse_others(rows)
            numbers = {row.number for row in rows}
            self.take_out(numbers, lambda row: row.number in numbers)
            self._add_ids(rows)
        self._many("add_run_key", [(row.tenant, row.key, row.number) for row in rows if row.key])
        self._add_blocks(rows)
        self._many("add_group", blocks.groups_of(rows))

    def take_out(self, numbers: Iterable[int], leaves: Callable[[RunRow], bool]) -> list[RunRow]:
        """Those that leave are the answer."""
        taken: list[RunRow] = []
        for stretch in sorted({blocks.stretch_of(number) for number in numbers}):
            taken += self._take_out(stretch, leaves)
        self._many("drop_run_id", [(row.id, row.tenant) for row in taken])
        self._many("drop_run_key", [(row.tenant, row.key, row.number) for row in taken if row.key])
        return taken

    def _take_out(self, stretch: int, leaves: Callable[[RunRow], bool]) -> list[RunRow]:
        taken: list[RunRow] = []
        left: list[RunRow] = []
        for first, rows in list(self._blocks("read_blocks", *blocks.reach_of(stretch))):
            gone = [row for row in rows if leaves(row)]
            rest = [row for row in rows if not leaves(row)]
            if gone:
                self._many("drop_block", [(first,)])
                self._add_blocks(rest)
            taken += gone
            left += rest
        self._many("drop_group", blocks.groups_of(taken) - blocks.groups_of(left))
        return taken

    def _add_ids(self, rows: list[RunRow]) -> int:
        """How many of them were not there."""
        before, full = self._connection.total_changes(), len(rows) - len(rows) % IDS_AT_ONCE
        bindings = [(row.id, row.tenant, row.number) for row in rows]
        for at in range(0, full, IDS_AT_ONCE):
            self._connection.execute(self._add_many_ids, tuple(chain.from_iterable(bindings[at : at + IDS_AT_ONCE])))
        self._many("add_run_id", bindings[full:])
        return self._connection.total_changes() - before

    def _refuse_others(self, rows: list[RunRow]) -> None:
        for row in rows:
            if self.number_of(row.id, row.tenant) not in (None, row.number):
                raise Corrupt(f"run {row.id} has two numbers: two histories were mixed")

    def _add_blocks(self, rows: list[RunRow]) -> None:
        of = checksums.of_bytes
        self._many("add_block", [(first, last, data, of(first, data)) for first, last, data in blocks.blocks_of(rows)])

    # ---- statements

    def _in_stretch(self, stretch: int) -> list[RunRow]:
        return list(self.walk(*blocks.reach_of(stretch)))

    def _blocks(self, name: str, *bindings: int) -> Iterator[tuple[int, list[RunRow]]]:
        for first, data, checksum in self._connection.execute(self._sql[name], bindings):
            checksums.require(checksum == checksums.of_bytes(first, data), f"a row of runs (block {first})")
            yield first, blocks.rows_of(data)

    def _rows(self, name: str, *bindings: Any) -> list[Any]:
        return self._connection.execute(self._sql[name], bindings).fetchall()

    def _named(self, name: str, fields: dict[str, str | int]) -> list[Any]:
        return self._connection.execute(self._sql[name], fields).fetchall()

    def _many(self, name: str, bindings: Iterable[tuple[Any, ...]]) -> None:
        self._connection.executemany(self._sql[name], bindings)


def _repeated(insert: str, times: int) -> str:
    head, values, tail = _VALUES.split(insert)
    return head + "values " + ", ".join([values] * times) + tail
