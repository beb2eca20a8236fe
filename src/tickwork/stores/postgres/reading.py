"""From what PostgreSQL answers to the values of the port."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tickwork.core.errors import Corrupt
from tickwork.core.schedule import Range
from tickwork.journal.record import GENESIS, Sealed
from tickwork.ports.store import Head, Loaded
from tickwork.stores.postgres.lines import Talk

NUMBER_BITS = 44  # of a number below its partition
NUMBER_MAX = 2**63 - 1
NOBODY = Head(0)
decode_range = msgspec.msgpack.Decoder(Range).decode


def head_of(found: list[Any]) -> Head:
    return Head(*tuple(found[0])[:5]) if found else NOBODY


def journal_of(partition: int, after: int, found: Iterable[Any]) -> list[Sealed]:
    rows = [Sealed(*row) for row in found]
    if rows and (rows[0].seq != after + 1 or rows[-1].seq != after + len(rows)):
        raise Corrupt(f"the journal of partition {partition} has a gap behind seq {after}: bring back a backup")
    return rows


async def load(talk: Talk, partition: int) -> Loaded:
    """Inside one snapshot."""
    found = await talk.fetch("read_head", partition)
    if not found:
        return Loaded(NOBODY, b"", b"", GENESIS, [], [], [], [], [])
    head, watermark_hash = head_of(found), found[0]["watermark_hash"]
    settings, header = (await talk.fetch("read_machine", partition))[0]
    tail = journal_of(
        partition, head.watermark, await talk.fetch("read_journal", partition, head.watermark, NUMBER_MAX)
    )
    if len(tail) != head.seq - head.watermark or (not tail and watermark_hash != head.hash):
        raise Corrupt(f"the watermark of partition {partition} and its journal do not meet: bring back a backup")
    first, last = partition << NUMBER_BITS, (partition + 1 << NUMBER_BITS) - 1
    runs, tasks, schedules = [
        [data for (data,) in await talk.fetch(name, first, last)]
        for name in ("read_live_runs", "read_live_tasks", "read_schedules")
    ]
    documents = [(digest, document) for digest, document in await talk.fetch("read_documents", partition)]
    return Loaded(head, settings, header, watermark_hash, documents, runs, tasks, schedules, tail)
