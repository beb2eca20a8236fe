"""Checksums of what a database cannot vouch for: the bytes inside its rows.

They are over the bytes as they were given, and over the key that they belong to, so that a row that ended up in
another's place does not verify either. Payloads are named by their digest, journal rows by their chain; everything
else has a checksum.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any
from zlib import crc32

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.ports.store import CacheRow, InboxRow
from tickwork.ports.store_maintenance import ArchiveObject
from tickwork.stores.run_blocks import BlockHeader

_encode = msgspec.msgpack.Encoder().encode
Row = tuple[Any, ...]


def of_bytes(number: int, data: bytes) -> int:
    return crc32(data, (number ^ number >> 32) & 0xFFFFFFFF)  # every bit of a number counts


def of_row(row: CacheRow | InboxRow | ArchiveObject) -> int:
    return crc32(_encode(row))


def of_fields(*fields: Any) -> int:
    """Of a whole row, in the order of `ports.upkeep.COLUMNS`."""
    return crc32(_encode(fields))


def of_epoch(partition: int, epoch: int, owner: str) -> int:
    return crc32(b"%d %d " % (partition, epoch) + owner.encode())


def of_outline(outline: BlockHeader) -> int:
    return of_bytes(of_bytes(outline.first, outline.held), outline.marks)


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Corrupt(f"{what} was damaged on disk: stop, and restore a backup")


def _of_all(row: Row) -> int:
    return crc32(_encode(row))


# Of rows with the columns of `ports.upkeep.COLUMNS`, by table.
SUMS: Mapping[str, Callable[[Row], int]] = MappingProxyType({
    "founded": _of_all,
    "routes": _of_all,
    "live_runs": lambda row: of_bytes(*row),
    "live_tasks": lambda row: of_bytes(*row),
    "schedules": lambda row: of_bytes(*row),
    "definitions": _of_all,
    "attempts": lambda row: of_bytes(*row),
    "children": _of_all,
    "cache": lambda row: of_row(CacheRow(*row)),
    "fates": _of_all,
    "backfills": _of_all,
    "log_chunks": _of_all,
    "archives": lambda row: of_row(ArchiveObject(*row)),
    "archived": _of_all,
    "journal_index": _of_all,
    "inbox": lambda row: of_row(InboxRow(row[1], row[0], row[2], row[3], row[4])),
})  # fmt: skip


def checked(table: str, row: Row, checksum: int) -> Row:
    """The row, where it is as it was written."""
    if SUMS[table](tuple(row)) != checksum:
        require(False, f"a row of {table} ({row[0]!r})")
    return row
