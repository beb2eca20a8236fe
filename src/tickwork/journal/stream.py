"""A journal as one stream of bytes: for files, exports and the wire.

Each row is framed with its length and two checksums, one of the frame's head and one of the rest, so that
a torn tail is recognised and cut, and never read as something else. The head has its own because a damaged length
would make all that follows look like a torn tail. The reader takes chunks of any size.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

from tickwork.core.base.errors import Corrupt
from tickwork.journal.record import HASH_BYTES, ROW_BYTES_MAX, SealedRow

_HEAD = struct.Struct(">IQQI")  # length of the data, seq, tick, checksum of the rest
_CHECK = struct.Struct(">I")  # checksum of the head, behind it
_FRAME_BYTES_MAX = ROW_BYTES_MAX + 1024  # what does not compress grows a little


def write(rows: Iterable[SealedRow]) -> Iterator[bytes]:
    for row in rows:
        rest = row.hash + row.data
        head = _HEAD.pack(len(row.data), row.seq, row.tick, zlib.crc32(rest))
        yield head + _CHECK.pack(zlib.crc32(head)) + rest


class RowReader:
    """Feed it bytes as they come; it gives whole rows. `torn` is what an unfinished last row left over."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._seq = 0  # of the last whole row, for messages

    @property
    def torn(self) -> int:
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[SealedRow]:
        self._buffer += chunk
        rows: list[SealedRow] = []
        at = 0
        while (framed := self._frame(at)) is not None:
            row, at = framed
            self._seq = row.seq
            rows.append(row)
        del self._buffer[:at]
        return rows

    def _frame(self, at: int) -> tuple[SealedRow, int] | None:
        """The row that begins here and where it ends; None while it is not whole."""
        buffer, begin = self._buffer, at + _HEAD.size + _CHECK.size
        if len(buffer) < begin:
            return None
        length, seq, tick, checksum = _HEAD.unpack_from(buffer, at)
        (head_checksum,) = _CHECK.unpack_from(buffer, at + _HEAD.size)
        if zlib.crc32(buffer[at : at + _HEAD.size]) != head_checksum or length > _FRAME_BYTES_MAX:
            raise Corrupt(f"what follows seq {self._seq or '?'} is not a row: the stream is damaged")
        end = begin + HASH_BYTES + length
        if len(buffer) < end:
            return None
        rest = bytes(buffer[begin:end])
        if zlib.crc32(rest) != checksum:
            raise Corrupt(f"seq {seq}: the checksum does not match: the stream is damaged")
        return SealedRow(seq, tick, rest[:HASH_BYTES], rest[HASH_BYTES:]), end
