"""From rows and the journal's tail to the machine that never died.

Rows are restored as they stood at the watermark, then the recorded events behind it are folded in, every hash
verified on the way. The last hash must be the head's: nobody goes on with anything else.
"""

import asyncio
import re
from typing import NamedTuple

import msgspec

from tickwork.core.errors import Corrupt, Newer
from tickwork.core.machine import MACHINE, Machine
from tickwork.core.model import Settings
from tickwork.core.snapshot import restore
from tickwork.core.zones import UTC_ONLY, Zones
from tickwork.journal.record import GENESIS, rules_in, unseal
from tickwork.ports.store import Loaded, Store
from tickwork.runtime.books import Books

ROWS_BEFORE_PAUSE = 64  # others may want the loop
_RULES = re.compile(r"machine (\d+)")


class Recovered(NamedTuple):
    machine: Machine
    books: Books
    watermark_head: bytes  # hash of the row as of which the stored rows are true


async def check_rules(store: Store, partition: int, *, known: int | None = None) -> None:
    """Raises `Newer` where rules decided the last tick that are not `known` here. Whoever asks before it claims the
    partition does not fence an owner that knows them."""
    head = await store.read_head(partition)
    for sealed in await store.journal(partition, after=head.seq - 1, limit=1) if head.seq else ():
        _check_rules(rules_in(sealed), sealed.seq, known)


async def recover(store: Store, partition: int, zones: Zones = UTC_ONLY, *, known: int | None = None) -> Recovered:
    """`known`: the latest rules of this program, where it is not the one that everybody runs."""
    loaded = await store.load(partition)
    if not loaded.tail:
        await check_rules(store, partition, known=known)
    machine = _at_watermark(loaded, zones)
    books = Books(machine.state)
    seq, head = loaded.head.watermark, loaded.watermark_hash if loaded.header else GENESIS
    for place, sealed in enumerate(loaded.tail):
        if sealed.seq != seq + 1:
            raise Corrupt(f"seq {sealed.seq} follows {seq}: the journal has a gap")
        row = unseal(sealed, head)
        _check_rules(row.rules, sealed.seq, known)
        machine.fold(row.tick, row.inputs, row.events)
        books.observe(row.inputs, row.events)
        seq, head = sealed.seq, sealed.hash
        if place % ROWS_BEFORE_PAUSE == ROWS_BEFORE_PAUSE - 1:
            await asyncio.sleep(0)
    if (seq, head) != (loaded.head.seq, loaded.head.hash):
        raise Corrupt(f"the journal ends at seq {seq}, the head says {loaded.head.seq}, or their hashes differ")
    return Recovered(machine, books, loaded.watermark_hash)


def _at_watermark(loaded: Loaded, zones: Zones) -> Machine:
    if not loaded.header:
        return Machine(settings=settings_of(loaded.settings), zones=zones)
    rows = (loaded.documents, loaded.live_runs, loaded.live_tasks, loaded.schedules)
    return Machine(restore(loaded.header, *rows, zones=zones))


def settings_of(data: bytes) -> Settings:
    return msgspec.msgpack.decode(data, type=Settings)


def _check_rules(rules: str, seq: int, known: int | None) -> None:
    named = _RULES.match(rules)
    if named is None or int(named[1]) > (MACHINE if known is None else known):
        raise Newer(f"seq {seq} was decided by newer rules ({rules}); run a version that knows them")
