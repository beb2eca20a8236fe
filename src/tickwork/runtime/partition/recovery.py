"""Recovery: rebuild the machine from stored rows and the end of the journal.

Rows are restored as of the watermark, then the recorded events after it are folded, with every hash verified. The last
hash must equal the head's; otherwise the partition does not start. The next owner of a partition loads in advance while
another node still owns it, so that only the last ticks remain to be folded.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from tickwork.core.base.errors import Corrupt, Newer
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.machine import Machine
from tickwork.core.rules import MACHINE
from tickwork.core.snapshot.snapshot import restoring
from tickwork.core.state.state import Settings
from tickwork.journal.record import GENESIS, SealedRow, rules_in, unseal
from tickwork.ports.store import Head, LoadedPartition, Store
from tickwork.runtime.partition.write_behind import WriteBehind

ROWS_BEFORE_PAUSE = 64  # others may want the loop
ROWS_AT_ONCE = 1_000
NEAR, LAPS = 32, 8  # so close to the head is near enough, and so often is caught up with an owner that goes on
_RULES = re.compile(r"machine (\d+)")


class RecoveredPartition(NamedTuple):
    machine: Machine
    write_behind: WriteBehind
    watermark_head: bytes  # hash of the row as of which the stored rows are true


async def check_rules(store: Store, partition: int, *, known: int | None = None) -> None:
    """Raise `Newer` if the last tick was decided by rules that are not `known` here. Checking this before the claim
    avoids fencing an owner that knows them."""
    head = await store.read_head(partition)
    for sealed in await store.journal(partition, after=head.seq - 1, limit=1) if head.seq else ():
        _check_rules(rules_in(sealed), sealed.seq, known)


async def recover(
    store: Store, partition: int, zones: Zones = UTC_ONLY, *, known: int | None = None
) -> RecoveredPartition:
    """`known`: the latest rules that this program knows."""
    follower, head = await _loaded(store, partition, zones, known)
    return follower.at(head)


async def read_ahead(
    store: Store, partition: int, zones: Zones = UTC_ONLY, *, known: int | None = None
) -> "JournalFollower":
    """Nearly as far as the owner is by now."""
    follower, head = await _loaded(store, partition, zones, known)
    for _ in range(LAPS):
        await follower.follow(store, head.seq)
        head = await store.read_head(partition)
        if head.seq - follower.seq <= NEAR:
            break
    return follower


async def _loaded(store: Store, partition: int, zones: Zones, known: int | None) -> "tuple[JournalFollower, Head]":
    loaded = await store.load(partition)
    if not loaded.tail:
        await check_rules(store, partition, known=known)
    follower = JournalFollower(partition, loaded, await at_watermark(loaded, zones), known=known)
    await follower.fold(loaded.tail)
    return follower, loaded.head


class JournalFollower:
    """The machine of a partition as far as its journal was read, and the rows that the store does not have by then."""

    def __init__(self, partition: int, loaded: LoadedPartition, machine: Machine, *, known: int | None) -> None:
        self.watermark = loaded.head.watermark
        self.seq = loaded.head.watermark
        self._partition = partition
        self._known = known
        self._machine = machine
        self._write_behind = WriteBehind(machine.state, self.seq)
        self._watermark_hash = loaded.watermark_hash
        self._hash = loaded.watermark_hash if loaded.header else GENESIS

    async def follow(self, store: Store, seq: int) -> None:
        """At least to `seq`, which is committed."""
        while self.seq < seq:
            rows = await store.journal(self._partition, after=self.seq, limit=ROWS_AT_ONCE)
            if not rows:
                raise Corrupt(f"the journal ends at seq {self.seq}, the head says {seq}")
            await self.fold(rows)

    async def fold(self, rows: Sequence[SealedRow]) -> None:
        for index, sealed in enumerate(rows):
            if sealed.seq != self.seq + 1:
                raise Corrupt(f"seq {sealed.seq} follows {self.seq}: the journal has a gap")
            row = unseal(sealed, self._hash)
            _check_rules(row.rules, sealed.seq, self._known)
            self._machine.fold(row.tick, row.inputs, row.events)
            self._write_behind.observe(row.inputs, row.events)
            self.seq, self._hash = sealed.seq, sealed.hash
            if index % ROWS_BEFORE_PAUSE == ROWS_BEFORE_PAUSE - 1:
                await asyncio.sleep(0)

    def at(self, head: Head) -> RecoveredPartition:
        """Return the machine, after comparing it with the head."""
        if (self.seq, self._hash) != (head.seq, head.hash):
            raise Corrupt(f"the journal ends at seq {self.seq}, the head says {head.seq}, or their hashes differ")
        return RecoveredPartition(self._machine, self._write_behind, self._watermark_hash)


async def at_watermark(loaded: LoadedPartition, zones: Zones) -> Machine:
    """In steps: leases are renewed and other partitions go on meanwhile."""
    if not loaded.header:
        return Machine(settings=settings_of(loaded.settings), zones=zones)
    rows = (loaded.documents, loaded.live_runs, loaded.live_tasks, loaded.schedules)
    steps = restoring(loaded.header, *rows, zones=zones)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return Machine(done.value)
        await asyncio.sleep(0)


def settings_of(data: bytes) -> Settings:
    return msgspec.msgpack.decode(data, type=Settings)


def _check_rules(rules: str, seq: int, known: int | None) -> None:
    named = _RULES.match(rules)
    if named is None or int(named[1]) > (MACHINE if known is None else known):
        raise Newer(f"seq {seq} was decided by newer rules ({rules}); run a version that knows them")
