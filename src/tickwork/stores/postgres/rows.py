"""From what PostgreSQL answers to the values of the port."""

from collections.abc import Iterable
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.store import Head, LoadedPartition
from tickwork.stores import checksums
from tickwork.stores.postgres.connections import Transaction

NUMBER_BITS = 44  # of a number below its partition
NUMBER_MAX = 2**63 - 1
NOBODY = Head(0)
decode_range = msgspec.msgpack.Decoder(FateRange).decode


def head_of(partition: int, rows: list[Any]) -> Head:
    if not rows:
        return NOBODY
    row = rows[0]
    known = checksums.of_epoch(partition, row["epoch"], row["owner"])
    checksums.require(row["checksum"] == known, f"the epoch of partition {partition}")
    return Head(*tuple(row)[:5])


def journal_of(partition: int, after: int, records: Iterable[Any]) -> list[SealedRow]:
    rows = [SealedRow(*row) for row in records]
    if rows and (rows[0].seq != after + 1 or rows[-1].seq != after + len(rows)):
        raise Corrupt(f"the journal of partition {partition} has a gap after seq {after}: restore a backup")
    return rows


async def load(talk: Transaction, partition: int) -> LoadedPartition:
    """Inside one snapshot."""
    heads = await talk.fetch("read_head", partition)
    if not heads:
        return LoadedPartition(NOBODY, b"", b"", GENESIS, [], [], [], [], [])
    head, watermark_hash = head_of(partition, heads), heads[0]["watermark_hash"]
    settings, settings_checksum, header, header_checksum = (await talk.fetch("read_machine", partition))[0]
    of = checksums.of_bytes
    checksums.require(settings_checksum == of(0, settings), f"the settings of partition {partition}")
    checksums.require(header_checksum == of(0, header), f"the header of partition {partition}")
    checksums.require(heads[0]["rows_epoch"] == head.epoch, f"the watermark of partition {partition}")
    tail = journal_of(
        partition, head.watermark, await talk.fetch("read_journal", partition, head.watermark, NUMBER_MAX)
    )
    if len(tail) != head.seq - head.watermark or (not tail and watermark_hash != head.hash):
        raise Corrupt(f"the watermark of partition {partition} and its journal do not match: restore a backup")
    first, last = partition << NUMBER_BITS, (partition + 1 << NUMBER_BITS) - 1
    runs, tasks, schedules = [
        [_live(table, *row) for row in await talk.fetch(f"read_{table}", first, last)]
        for table in ("live_runs", "live_tasks", "schedules")
    ]
    rows = [checked("definitions", row) for row in await talk.fetch("read_documents", partition)]
    documents = [(row[1], row[4]) for row in rows]
    return LoadedPartition(head, settings, header, watermark_hash, documents, runs, tasks, schedules, tail)


def _live(table: str, number: int, data: bytes, checksum: int) -> bytes:
    if checksums.of_bytes(number, data) != checksum:  # a message for each of millions would cost more than the check
        checksums.require(False, f"number {number} of {table}")
    return data


def checked(table: str, row: Any) -> tuple[Any, ...]:
    """What a query found, its checksum last; without it, where it is right."""
    *fields, checksum = row
    return checksums.checked(table, tuple(fields), checksum)
