"""Ended runs in blocks: how a store keeps rows that are written in thousands and read by the page.

Run numbers are divided into ranges of 256. A block holds runs of one range that were written together, compressed:
they are nearly alike, and a row with indexes of its own would cost several times as much. A block is named after its
first run, so the blocks of a range are neighbours and a run number leads to them. To change a block, a store removes it
and adds what is left of it.

The indexes are per range, not per run. Groups say which kinds of runs a range has, so a list opens only ranges with
runs that it shows. Id prefixes (`clues`) lead from an id to candidate ranges: ids of version 7 that were made within
16 ms share a prefix, and so do neighbours among names that end in a number. Prefixes grow with time, so an index of
them is written in few places. The same index leads from tags, searchable inputs, words of errors and times to ranges
(`run_terms`). Among the candidates, id checksums (`marks`) say which block to open.
"""

import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import accumulate, groupby
from operator import attrgetter
from typing import NamedTuple

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.journal.record import packed
from tickwork.ports.store import RunFilter, RunPage, RunRow
from tickwork.stores.run_terms import terms_of

STRETCH_BITS = 8
STRETCH = 1 << STRETCH_BITS
BLOCK_BYTES = 256 * 1024  # before it is compressed: one run of a block is never far from the others
SMALL_BYTES = 4 * 1024  # as it is stored
SMALL_MAX = 8  # such blocks in a stretch: where runs end one by one, they are put together now and then
CLUE_BITS = 4  # of the milliseconds in an id that a clue leaves out
NAMED_BITS = 2  # of the number at the end of a name that it leaves out: names may come in any order, and then lie apart
NAMED_BITS_KEPT = 30  # of a longer number: its first ones
DIGITS_MAX = 640  # of the number at the end of a name: more than any id has, and int() refuses far longer ones
MARK_BITS = 22  # of the name before a time
DIGITS = "0123456789"
NUMBER_MAX = 2**63 - 1

Group = tuple[str, int, int, str, str]  # tenant, stretch, state, workflow and schedule: what lists ask for
IdPrefix = tuple[int, int]  # and its stretch

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[RunRow]).decode
_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_one = msgspec.msgpack.Decoder(RunRow).decode
_number = attrgetter("number")
_is_seven = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7").match
_is_timed = re.compile(r"(.*)-([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2})[0-9:.]*Z", re.DOTALL).fullmatch


class RowHead(msgspec.Struct, array_like=True, gc=False):
    """The first fields of a `RunRow`: enough to pass most rows over."""

    number: int
    id: str
    tenant: str
    workflow: str
    definition: str
    state: int


_decode_heads = msgspec.msgpack.Decoder(list[RowHead]).decode


class BlockHeader(NamedTuple):
    """What is to be known of a block without opening it."""

    first: int  # number of its first run
    held: bytes  # a bit for each number of its stretch
    marks: bytes  # of ids, 4 bytes each
    size: int  # of its data

    def places_of(self, numbers: Iterable[int]) -> list[int]:
        """Where these are among its runs."""
        held, stretch = int.from_bytes(self.held, "little"), stretch_of(self.first)
        bits = sorted(number % STRETCH for number in numbers if stretch_of(number) == stretch)
        return [(held & (1 << bit) - 1).bit_count() for bit in bits if held >> bit & 1]

    def places_like(self, marks: Set[int]) -> list[int]:
        """Where those are whose ids have such marks."""
        return [index for index, mark in enumerate(marks_of(self.marks)) if mark in marks]


class Block(NamedTuple):
    outline: BlockHeader
    data: bytes
    clues: set[IdPrefix]
    terms: set[IdPrefix]
    groups: set[Group]


def stretch_of(number: int) -> int:
    return number >> STRETCH_BITS


def reach_of(stretch: int) -> tuple[int, int]:
    """The first and the last number of a stretch."""
    return stretch << STRETCH_BITS, (stretch + 1 << STRETCH_BITS) - 1


# ---- to blocks


def latest_of(runs: Sequence[RunRow]) -> list[RunRow]:
    """By number, each once: as it came last."""
    ordered = sorted(runs, key=_number)
    latest = {row.number: row for row in ordered}
    return ordered if len(latest) == len(ordered) else list(latest.values())


def blocks_of(runs: Sequence[RunRow]) -> list[Block]:
    """Of runs in the order of their numbers."""
    blocks: list[Block] = []
    for rows in _stretches(runs):
        blocks += _packed(rows)
    return blocks


def _stretches(runs: Sequence[RunRow]) -> Iterator[Sequence[RunRow]]:
    at = 0
    while at < len(runs):
        end, last = min(at + STRETCH, len(runs)), reach_of(stretch_of(runs[at].number))[1]
        while runs[end - 1].number > last:
            end -= 1
        yield runs[at:end]
        at = end


def _packed(rows: Sequence[RunRow]) -> list[Block]:
    data = _encode(rows)
    if len(data) > BLOCK_BYTES and len(rows) > 1:
        half = len(rows) // 2
        return _packed(rows[:half]) + _packed(rows[half:])
    small = packed(data)
    return [Block(_outline(rows, len(small)), small, clues_of(rows), _terms(rows), groups_of(rows))]


def _outline(rows: Sequence[RunRow], size: int) -> BlockHeader:
    crc32, first, count = zlib.crc32, rows[0].number, len(rows)
    if rows[-1].number - first == count - 1:  # most are neighbours, so they are not checked one by one
        held = (1 << count) - 1 << first % STRETCH
    else:
        held = sum([1 << row.number % STRETCH for row in rows])
    marks = struct.pack(f"<{count}I", *[crc32(row.id.encode()) for row in rows])
    return BlockHeader(first, held.to_bytes(STRETCH // 8, "little"), marks, size)


def groups_of(runs: Sequence[RunRow]) -> set[Group]:
    """Of runs of one stretch."""
    stretch = stretch_of(runs[0].number) if runs else 0
    kinds = {(run.tenant, run.state, run.workflow, run.schedule) for run in runs}
    return {(tenant, stretch, state, workflow, schedule) for tenant, state, workflow, schedule in kinds}


def clues_of(runs: Sequence[RunRow]) -> set[IdPrefix]:
    """Of runs of one stretch."""
    stretch = stretch_of(runs[0].number) if runs else 0
    beginnings = {run.id[:15] for run in runs}
    if all(map(_is_seven, beginnings)):
        return {(clue_of(beginning), stretch) for beginning in beginnings}
    return {(clue_of(run.id), stretch) for run in runs}


def entries_of(runs: Sequence[RunRow]) -> set[IdPrefix]:
    """Everything that leads to a range with runs like these, apart from groups and keys."""
    return clues_of(runs) | _terms(runs)


def _terms(runs: Sequence[RunRow]) -> set[IdPrefix]:
    stretch = stretch_of(runs[0].number) if runs else 0
    return {(term, stretch) for term in terms_of(runs)}


def clue_of(run_id: str) -> int:
    """Of an id of version 7, its beginning is enough."""
    if _is_seven(run_id):
        return int(run_id[:8] + run_id[9:13], 16) >> CLUE_BITS
    if run_id.endswith("Z") and (timed := _is_timed(run_id)):
        name, *time = timed.groups()
        return (int("".join(time)) << MARK_BITS | mark_of(name) >> 32 - MARK_BITS) - (1 << 63)
    stem = run_id.rstrip(DIGITS)
    number = int(run_id[len(stem) : len(stem) + DIGITS_MAX] or 0)
    near = number >> max(NAMED_BITS, number.bit_length() - NAMED_BITS_KEPT)
    return (mark_of(stem) << NAMED_BITS_KEPT | near) - (1 << 62)  # between the others


def mark_of(text: str) -> int:
    return zlib.crc32(text.encode())


def marks_of(marks: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(marks) // 4}I", marks)


def page_of(matches: list[RunRow], limit: int, *, before: int = 0) -> RunPage:
    """The page that these matches make. `before`: below this number nothing was compared."""
    if limit <= 0:
        return RunPage([])
    if limit < len(matches):
        return RunPage(matches[:limit], matches[limit - 1].number)
    return RunPage(matches, before)


# ---- beside those that are there


class PendingRuns:
    """Runs to be put."""

    def __init__(self, runs: Sequence[RunRow]) -> None:
        self.rows = latest_of(runs)
        self.blocks = blocks_of(self.rows)
        self.clues = {clue for block in self.blocks for clue in block.clues}
        self.terms = {term for block in self.blocks for term in block.terms}
        self.groups = {group for block in self.blocks for group in block.groups}
        self.keys = [(row.tenant, row.key, row.number) for row in self.rows if row.key]
        self._marks = {mark for block in self.blocks for mark in marks_of(block.outline.marks)}

    @property
    def stretches(self) -> set[int]:
        return {stretch_of(block.outline.first) for block in self.blocks}

    def is_new(self, near: Sequence[BlockHeader]) -> bool:
        """Certainly none of these runs is there, and none of their ids has another number."""
        return not (self.meets(near) or len(self._marks) < len(self.rows) or any(map(self.suspects, near)))

    def meets(self, near: Iterable[BlockHeader]) -> bool:
        """Whether some of these runs are there already."""
        held: dict[int, int] = {}
        for outline in near:
            stretch = stretch_of(outline.first)
            held[stretch] = held.get(stretch, 0) | int.from_bytes(outline.held, "little")
        ours = [(stretch_of(outline.first), outline.held) for outline, *_ in self.blocks]
        return any(held.get(stretch, 0) & int.from_bytes(bits, "little") for stretch, bits in ours)

    def suspects(self, outline: BlockHeader) -> list[int]:
        """Places where the id may be one of these: only who looks there knows."""
        return [] if self._marks.isdisjoint(marks_of(outline.marks)) else outline.places_like(self._marks)

    def crowded(self, near: Iterable[BlockHeader]) -> list[list[int]]:
        """Small blocks of one stretch that should be one."""
        small: dict[int, list[int]] = {}
        for outline in near:
            if outline.size < SMALL_BYTES:
                small.setdefault(stretch_of(outline.first), []).append(outline.first)
        return [small[stretch] for stretch in self.stretches & small.keys() if len(small[stretch]) >= SMALL_MAX]

    def refuse_mixed(self, others: Iterable[RunRow]) -> None:
        """An id has one number."""
        numbers: dict[tuple[str, str], int] = {}
        for row in (*self.rows, *others):
            if numbers.setdefault((row.tenant, row.id), row.number) != row.number:
                raise Corrupt(f"run {row.id} has two numbers: two histories are mixed")


# ---- from blocks


def rows_of(data: bytes) -> list[RunRow]:
    """By number."""
    try:
        return _decode(zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        raise _damaged() from None


def some_of(data: bytes, places: Iterable[int]) -> list[RunRow]:
    """The others are not looked at."""
    try:
        rows = _decode_raw(zlib.decompress(data))
        return [_decode_one(rows[index]) for index in places]
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, IndexError):
        raise _damaged() from None


def fitting(blocks: Iterable[bytes], criteria: RunFilter) -> tuple[list[RunRow], bool]:
    """Of all blocks of a stretch, the runs that fit, newest first; and whether everything below the stretch was
    submitted before the time that is asked for."""
    matches: list[RunRow] = []
    past = False
    try:
        for plain in map(zlib.decompress, blocks):
            rows = _decode_raw(plain)
            some = map(_decode_one, [rows[index] for index in _candidates(plain, rows, criteria)])
            matches += [row for row in some if criteria.fits(row)]
            past = past or _decode_one(rows[0]).submitted_ms < criteria.submitted.from_ms
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, IndexError):
        raise _damaged() from None
    return sorted(matches, key=_number, reverse=True), past


def _candidates(plain: bytes, rows: Sequence[msgspec.Raw], criteria: RunFilter) -> Iterable[int]:
    """Places of rows that may fit. A tag, an input or a version that is asked for stands in the bytes of its row, and
    to find it there is many times faster than to decode the rows."""
    needles = [*criteria.tags, *(value for _, value in criteria.fields), criteria.version]
    sets = [_places_with(plain, rows, needle.encode()) for needle in needles if needle]
    if sets:
        return sorted(set.intersection(*sets))
    if criteria.states or criteria.workflow:
        heads = enumerate(_decode_heads(plain))
        states, workflow = criteria.states, criteria.workflow
        return [
            index
            for index, head in heads
            if (not states or head.state in states) and (not workflow or head.workflow == workflow)
        ]
    return range(len(rows))


def _places_with(plain: bytes, rows: Sequence[msgspec.Raw], needle: bytes) -> set[int]:
    ends = list(accumulate(map(len, rows), initial=len(plain) - sum(map(len, rows))))[1:]
    places: set[int] = set()
    at = plain.find(needle)
    while at >= 0:
        place = bisect_right(ends, at)
        places.add(place)
        at = plain.find(needle, ends[place]) if place < len(ends) else -1
    return places


def _damaged() -> Corrupt:
    return Corrupt("a block of runs was damaged on disk: stop, and restore a backup")


def in_order(blocks: Iterable[tuple[int, Sequence[RunRow]]]) -> Iterator[RunRow]:
    """Runs of blocks that come in the order of their names. Those of a stretch may lie in any of its blocks."""
    for _, some in groupby(blocks, key=lambda block: stretch_of(block[0])):
        yield from sorted((row for _, rows in some for row in rows), key=_number)


# ---- whether they are what they were


def require_outline(outline: BlockHeader, rows: Sequence[RunRow]) -> None:
    """Of a block and the runs in it."""
    if not rows or _outline(rows, outline.size) != outline:
        raise Corrupt(f"the outline of block {outline.first} was damaged on disk: stop, and restore a backup")


class Counts:
    """How many rows lead to runs, where each that is expected is there: others would be too many."""

    def __init__(self) -> None:
        self._clues = self._groups = self._keys = 0

    def add(self, rows: Sequence[RunRow]) -> None:
        """All runs of one stretch."""
        self._clues += len(entries_of(rows))
        self._groups += len(groups_of(rows))
        self._keys += sum(1 for row in rows if row.key)

    def expected(self) -> dict[str, int]:
        return {"run_clues": self._clues, "run_groups": self._groups, "run_keys": self._keys}


# ---- what leaves


class RemovedRuns(NamedTuple):
    """What goes with runs that leave their blocks, and what stays."""

    taken: list[RunRow]
    blocks: list[int]
    groups: set[Group]
    clues: set[IdPrefix]
    rest: list[Block]  # in place of those blocks


def leaving(blocks: Iterable[tuple[int, Sequence[RunRow]]], leaves: Callable[[RunRow], bool]) -> RemovedRuns:
    """Of all blocks of some stretches, in order."""
    leaving = RemovedRuns([], [], set(), set(), [])
    for _, some in groupby(blocks, key=lambda block: stretch_of(block[0])):
        taken: list[RunRow] = []
        left: list[RunRow] = []
        for first, rows in some:
            gone = [row for row in rows if leaves(row)]
            rest = [row for row in rows if not leaves(row)]
            if gone:
                leaving.blocks.append(first)
                leaving.rest.extend(blocks_of(rest))
            taken += gone
            left += rest
        leaving.taken.extend(taken)
        leaving.groups.update(groups_of(taken) - groups_of(left))
        leaving.clues.update(entries_of(taken) - entries_of(left))
    return leaving
