"""Checksums of what SQLite cannot vouch for: the bytes inside its rows.

They are over the bytes as they were given, and begin with the number they belong to, so that a row that
ended up in another's place does not verify either.
"""

from zlib import crc32

import msgspec

from tickwork.core.errors import Corrupt
from tickwork.ports.store import CacheRow, DefinitionRow, InboxRow
from tickwork.ports.upkeep import Archive

_encode = msgspec.msgpack.Encoder().encode


def of_bytes(number: int, data: bytes) -> int:
    return crc32(data, number & 0xFFFFFFFF)


def of_row(row: DefinitionRow | CacheRow | InboxRow | Archive) -> int:
    return crc32(_encode(row))


def of_epoch(partition: int, epoch: int) -> int:
    return crc32(b"%d %d" % (partition, epoch))


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Corrupt(f"{what} was damaged on disk: stop, and bring back a backup")
