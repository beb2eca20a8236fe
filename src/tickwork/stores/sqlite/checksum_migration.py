"""Rows of before migration `checksums` get theirs.

Where there was one that covered less, it is compared first: damage is not signed.
"""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any
from zlib import crc32

import apsw
import msgspec

from tickwork.ports.store import DefinitionRow
from tickwork.ports.store_maintenance import COLUMNS
from tickwork.stores import checksums

NAME = "checksums"  # of the migration
_encode = msgspec.msgpack.Encoder().encode
Row = tuple[Any, ...]
Sum = Callable[[Row], int]
_OTHERS = {"renewals": ("partition_id", "day"), "partitions": ("id", "epoch", "owner")}  # not exported like this
_NOW: "MappingProxyType[str, Sum]" = MappingProxyType({
    **checksums.SUMS,
    "renewals": lambda row: checksums.of_fields(*row),
    "partitions": lambda row: checksums.of_epoch(*row),
})  # fmt: skip
# By table, the checksum that it had; None: none.
_BEFORE: "MappingProxyType[str, Sum | None]" = MappingProxyType({
    "founded": None,
    "routes": None,
    "renewals": None,
    "log_chunks": None,
    "archived": None,
    "partitions": lambda row: crc32(b"%d %d" % row[:2]),
    "definitions": lambda row: crc32(_encode(DefinitionRow(row[1], row[0], row[3], row[4], row[5]))),
    "children": lambda row: checksums.of_bytes(row[2], row[3]),
    "fates": lambda row: checksums.of_bytes(0, row[6]),
    "backfills": lambda row: checksums.of_bytes(row[0], row[3]),
})  # fmt: skip


def sign(connection: apsw.Connection) -> None:
    for table, before in _BEFORE.items():

        def signed(*given: Any, table: str = table, before: Sum | None = before) -> int:
            checksum, *fields = given
            row = tuple(fields)
            checksums.require(before is None or before(row) == checksum, f"a row of {table} ({row[0]!r})")
            return _NOW[table](row)

        names = ", ".join(_OTHERS.get(table) or COLUMNS[table])
        connection.create_scalar_function("signed", signed)
        connection.execute(f"update {table} set checksum = signed(checksum, {names})")  # noqa: S608 - names of our own
    connection.create_scalar_function("signed", None)
