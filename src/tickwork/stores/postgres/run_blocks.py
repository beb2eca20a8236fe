"""Ended runs in PostgreSQL: blocks, and the indexes that lead to them.

A transaction that takes runs out of blocks locks the row of `watermarks` before it reads them, so that no other changes
blocks of the partition meanwhile.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Protocol

from tickwork.ports.store import RunFilter, RunPage, RunRow
from tickwork.stores import checksums, run_terms
from tickwork.stores import run_blocks as blocks
from tickwork.stores.run_blocks import NUMBER_MAX, Block, BlockHeader, PendingRuns
from tickwork.stores.run_terms import SCAN_MAX

STRETCHES, STRETCHES_MAX = 2, 64  # that a list opens in one go
BLOCKS = 16  # that a walk reads in one go

Fetch = Callable[..., Awaitable[Sequence[Any]]]  # the name of a query, and its arguments


class Connection(Protocol):
    async def fetch(self, name: str, *args: Any) -> list[Any]: ...


# ---- reading


async def numbered(fetch: Fetch, numbers: Iterable[int]) -> list[RunRow]:
    """Those that are there."""
    requested = set(numbers)
    outlines = await _outlines(fetch, [], {blocks.stretch_of(number) for number in requested})
    return await _picked(fetch, {outline.first: outline.places_of(requested) for outline in outlines})


async def find(fetch: Fetch, tenant: str, ids: Sequence[str], keys: Sequence[str]) -> list[RunRow]:
    requested, marks, matches = set(ids), {blocks.mark_of(run_id) for run_id in ids}, list[RunRow]()
    if requested:
        outlines = await _outlines(fetch, {blocks.clue_of(run_id) for run_id in requested}, [])
        rows = await _picked(fetch, {outline.first: outline.places_like(marks) for outline in outlines})
        matches = [row for row in rows if row.tenant == tenant and row.id in requested]
    if keys and (numbers := [number for (number,) in await fetch("find_keys", tenant, list(keys))]):
        matches += await numbered(fetch, numbers)
    return list({row.number: row for row in matches}.values())


async def listed(fetch: Fetch, criteria: RunFilter) -> RunPage:
    """Newest first."""
    groups, low = run_terms.groups_of(criteria), blocks.stretch_of(criteria.after)
    stretch, count = blocks.stretch_of((criteria.before or NUMBER_MAX) - 1), STRETCHES
    if groups:
        return await _listed_by_clues(fetch, criteria, groups, low, stretch)
    matches: list[RunRow] = []
    while stretch >= low and len(matches) <= criteria.limit:
        name, more = _way(criteria)
        stretches = [number for (number,) in await fetch(name, criteria.tenant, stretch, count, *more)]
        if not stretches:
            break
        some, past = _fitting(await fetch("open_stretches", stretches), criteria)
        matches += some
        if past or len(stretches) < count:
            break
        stretch, count = stretches[-1] - 1, min(count * 4, STRETCHES_MAX)
    return blocks.page_of(matches, criteria.limit)


async def _listed_by_clues(fetch: Fetch, criteria: RunFilter, groups: list[list[int]], low: int, high: int) -> RunPage:
    """Open the candidates in growing portions."""
    numbers = [index for index, group in enumerate(groups) for _ in group]
    clues = [clue for group in groups for clue in group]
    kinds = (criteria.workflow, criteria.schedule, list(criteria.states))
    rows = await fetch(
        "list_stretches_by_clues", criteria.tenant, numbers, clues, low, high, len(groups), *kinds, SCAN_MAX + 1
    )
    stretches = [number for (number,) in rows]
    matches: list[RunRow] = []
    at, count = 0, STRETCHES
    candidates = stretches[:SCAN_MAX]
    while at < len(candidates) and len(matches) <= criteria.limit:
        portion = candidates[at : at + count]
        some, past = _fitting(await fetch("open_stretches", portion), criteria)
        matches += some
        if past:
            return blocks.page_of(matches, criteria.limit)
        at, count = at + count, min(count * 4, STRETCHES_MAX)
    more = len(stretches) > SCAN_MAX
    return blocks.page_of(matches, criteria.limit, before=blocks.reach_of(candidates[-1])[0] if more else 0)


def _fitting(rows: Sequence[Any], criteria: RunFilter) -> tuple[list[RunRow], bool]:
    """As `blocks.fitting`, of several stretches in the order of their numbers."""
    matches: list[RunRow] = []
    past = False
    read = [_checked(row) for row in rows]
    for _, some in groupby(reversed(read), key=lambda block: blocks.stretch_of(block[0])):
        fitting, past = blocks.fitting((data for _, data in some), criteria)
        matches += fitting
        if past:
            break
    return matches, past


def _way(criteria: RunFilter) -> tuple[str, list[Any]]:
    """Choose the statement that lists the stretches of matching runs, and its further arguments."""
    if criteria.states:
        return "list_stretches_by_state", [list(criteria.states), criteria.workflow, criteria.schedule]
    if criteria.schedule:
        return "list_stretches_by_schedule", [criteria.schedule, criteria.workflow]
    if criteria.workflow:
        return "list_stretches_by_workflow", [criteria.workflow]
    return "list_stretches", []


async def walk(fetch: Fetch, first: int, last: int) -> AsyncIterator[RunRow]:
    """Runs with these numbers, in order."""
    at, waiting = blocks.reach_of(blocks.stretch_of(first))[0], list[tuple[int, list[RunRow]]]()
    while batch := _unpacked(await fetch("blocks_after", at, last, BLOCKS)):
        at, waiting = batch[-1][0] + 1, waiting + batch
        whole = [block for block in waiting if blocks.stretch_of(block[0]) < blocks.stretch_of(at - 1)]
        for row in blocks.in_order(whole):
            if first <= row.number <= last:
                yield row
        waiting = waiting[len(whole) :]
    for row in blocks.in_order(waiting):
        if first <= row.number <= last:
            yield row


async def checked(talk: Connection) -> AsyncIterator[list[RunRow]]:
    """All runs, a stretch at a time; blocks, outlines and what leads to them are compared with each other."""
    at, waiting, counts = 0, list[tuple[BlockHeader, list[RunRow]]](), blocks.Counts()
    while batch := await talk.fetch("whole_blocks_after", at, NUMBER_MAX, BLOCKS):
        for first, held, marks, outline_checksum, data, checksum in batch:
            outline = BlockHeader(first, held, marks, len(data))
            checksums.require(outline_checksum == checksums.of_outline(outline), f"the outline of block {first}")
            _, data = _checked((first, data, checksum))
            rows = blocks.rows_of(data)
            blocks.require_outline(outline, rows)
            if waiting and blocks.stretch_of(waiting[-1][0].first) != blocks.stretch_of(first):
                yield await _led_to(talk, waiting, counts)
                waiting = []
            waiting.append((outline, rows))
        at = batch[-1][0] + 1
    if waiting:
        yield await _led_to(talk, waiting, counts)
    [there] = await talk.fetch("count_all_leading")
    checksums.require(list(there) == list(counts.expected().values()), "the index of runs")


async def _led_to(
    talk: Connection, headerses: list[tuple[BlockHeader, list[RunRow]]], counts: blocks.Counts
) -> list[RunRow]:
    rows = sorted((row for _, rows in headerses for row in rows), key=lambda row: row.number)
    clues, groups = blocks.entries_of(rows), blocks.groups_of(rows)
    keys = [(row.tenant, row.key, row.number) for row in rows if row.key]
    leading = [*columns(clues, 2), *columns(groups, 5), *columns(keys, 3)]
    [(count,)] = await talk.fetch("count_leading", *leading)
    checksums.require(
        count == len(clues) + len(groups) + len(keys), f"the index entry of run {rows[0].id} and its neighbours"
    )
    counts.add(rows)
    return rows


# ---- writing


async def near(fetch: Fetch, portion: PendingRuns) -> list[BlockHeader]:
    """Where these runs or their ids could be already."""
    return await _outlines(fetch, {clue for clue, _ in portion.clues}, portion.stretches)


async def put(talk: Connection, portion: PendingRuns) -> None:
    """Inside a transaction. Runs that end are nearly always new; where some are there already, they go first."""
    outlines = await near(talk.fetch, portion)
    if not portion.is_new(outlines):
        portion.refuse_mixed(
            await _picked(talk.fetch, {outline.first: portion.suspects(outline) for outline in outlines})
        )
        numbers = {row.number for row in portion.rows}
        await take_out(talk, numbers, lambda row: row.number in numbers)
        outlines = await near(talk.fetch, portion)
    for firsts in portion.crowded(outlines):
        await _merge(talk, firsts)
    await talk.fetch("put_runs", *arguments(portion))


async def _merge(talk: Connection, firsts: Sequence[int]) -> None:
    rows = [row for _, rows in _unpacked(await talk.fetch("open_blocks", firsts)) for row in rows]
    await talk.fetch("drop_blocks", firsts)
    await talk.fetch("add_blocks", *_columns_of(blocks.blocks_of(blocks.latest_of(rows))))


async def take_out(talk: Connection, numbers: Iterable[int], leaves: Callable[[RunRow], bool]) -> list[RunRow]:
    """Inside a transaction. Those that leave are the answer."""
    stretches = sorted({blocks.stretch_of(number) for number in numbers})
    leaving = blocks.leaving(_unpacked(await talk.fetch("open_stretches", stretches)), leaves)
    if leaving.taken:
        await talk.fetch("drop_blocks", leaving.blocks)
        await talk.fetch("drop_groups", *columns(leaving.groups, 5))
        await talk.fetch("drop_clues", *columns(leaving.clues, 2))
        keys = [(row.tenant, row.key, row.number) for row in leaving.taken if row.key]
        await talk.fetch("drop_run_keys", *columns(keys, 3))
        await talk.fetch("add_blocks", *_columns_of(leaving.rest))
    return leaving.taken


def arguments(portion: PendingRuns) -> list[Any]:
    """Of the function `put_runs`."""
    return [
        *_columns_of(portion.blocks),
        *columns(portion.clues | portion.terms, 2),
        *columns(portion.groups, 5),
        *columns(portion.keys, 3),
    ]


def _columns_of(packed: Iterable[Block]) -> Sequence[Sequence[Any]]:
    of, of_outline = checksums.of_bytes, checksums.of_outline
    rows = [(*outline[:3], data, of_outline(outline), of(outline.first, data)) for outline, data, *_ in packed]
    return columns(rows, 6)


def columns(rows: Iterable[tuple[Any, ...]], width: int) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width


async def _outlines(fetch: Fetch, clues: Iterable[int], stretches: Iterable[int]) -> list[BlockHeader]:
    outlines = []
    for *row, checksum in await fetch("find_blocks", list(clues), list(stretches)):
        outline = BlockHeader(*row)
        checksums.require(checksum == checksums.of_outline(outline), f"the outline of block {outline.first}")
        outlines.append(outline)
    return outlines


async def _picked(fetch: Fetch, places: dict[int, list[int]]) -> list[RunRow]:
    """Read runs by their positions in blocks."""
    names = [first for first, index in places.items() if index]
    rows = await fetch("open_blocks", names) if names else []
    return [row for first, data in map(_checked, rows) for row in blocks.some_of(data, places[first])]


def _unpacked(rows: Sequence[Any]) -> list[tuple[int, list[RunRow]]]:
    return [(first, blocks.rows_of(data)) for first, data in map(_checked, rows)]


def _checked(row: Any) -> tuple[int, bytes]:
    first, data, checksum = row
    checksums.require(checksum == checksums.of_bytes(first, data), f"a row of runs (block {first})")
    return first, data
