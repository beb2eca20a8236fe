"""Ended runs in blocks: how a store keeps rows that come in thousands and are read by the page.

Numbers are cut into stretches of 256. A block holds runs of one stretch that were written together, compressed: they
are nearly alike, and a row with indexes of its own would cost several times as much. A block is named after its first
run, so that the blocks of a stretch are neighbours, and whoever has a number knows where to look. Groups tell what
runs there are in a stretch, so that a list opens only those that have something for it. Whatever changes a block
takes it away and puts what is left of it in its place.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from tickwork.core.errors import Corrupt
from tickwork.ports.store import RunFilter, RunRow

STRETCH_BITS = 8
BLOCK_BYTES = 256 * 1024  # before it is compressed: one run of a block is never far from the others
NUMBER_MAX = 2**63 - 1
STRETCHES_AT_ONCE, STRETCHES_AT_ONCE_MAX = 2, 64  # that a list opens in one go

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[RunRow]).decode
_number = attrgetter("number")

Group = tuple[str, int, int, str, str]  # tenant, stretch, state, workflow and schedule: what lists ask for


class Block(NamedTuple):
    first: int
    last: int
    data: bytes


def stretch_of(number: int) -> int:
    return number >> STRETCH_BITS


def reach_of(stretch: int) -> tuple[int, int]:
    """The first and the last number of a stretch."""
    return stretch << STRETCH_BITS, (stretch + 1 << STRETCH_BITS) - 1


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
        end, last = min(at + (1 << STRETCH_BITS), len(runs)), reach_of(stretch_of(runs[at].number))[1]
        while runs[end - 1].number > last:
            end -= 1
        yield runs[at:end]
        at = end


def _packed(rows: Sequence[RunRow]) -> list[Block]:
    data = _encode(rows)
    if len(data) > BLOCK_BYTES and len(rows) > 1:
        half = len(rows) // 2
        return _packed(rows[:half]) + _packed(rows[half:])
    return [Block(rows[0].number, rows[-1].number, zlib.compress(data, 1))]


def rows_of(data: bytes) -> list[RunRow]:
    """By number."""
    try:
        return _decode(zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError):
        raise Corrupt("a block of runs was damaged on disk: stop, and bring back a backup") from None


def groups_of(runs: Iterable[RunRow]) -> set[Group]:
    bits = STRETCH_BITS
    return {(run.tenant, run.number >> bits, run.state, run.workflow, run.schedule) for run in runs}


def fits(run: RunRow, wanted: RunFilter) -> bool:
    return (
        run.tenant == wanted.tenant
        and (not wanted.before or run.number < wanted.before)
        and (not wanted.states or run.state in wanted.states)
        and (not wanted.workflow or run.workflow == wanted.workflow)
        and (not wanted.schedule or run.schedule == wanted.schedule)
    )
