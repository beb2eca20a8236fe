"""A journal as one stream of bytes: for files, exports and the wire.

Each row is framed with its length and a checksum, so that a torn tail is recognised and cut, and never
read as something else. The reader takes chunks of any size.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator

from tickwork.core.errors import Corrupt
from tickwork.journal.record import HASH_BYTES, Sealed

_HEAD = struct.Struct(">IIQQ")  # length of the data, checksum of the rest, seq, tick
_FRAME_BYTES_MAX = 256 * 1024 * 1024


def write(rows: Iterable[Sealed]) -> Iterator[bytes]:
    for row in rows:
        rest = row.hash + row.data
        yield _HEAD.pack(len(row.data), zlib.crc32(rest), row.seq, row.tick) + rest


class Reader:
    """Feed it bytes as they come; it gives whole rows. `torn` is what an unfinished last row left over."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def torn(self) -> int:
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[Sealed]:
        self._buffer += chunk
        rows: list[Sealed] = []
        at = 0
        while len(self._buffer) - at >= _HEAD.size:
            length, checksum, seq, tick = _HEAD.unpack_from(self._buffer, at)
            if length > _FRAME_BYTES_MAX:
                raise Corrupt(
                    f"a row after seq {rows[-1].seq if rows else '?'} has no sane length: the stream is damaged"
                )
            end = at + _HEAD.size + HASH_BYTES + length
            if len(self._buffer) < end:
                break
            rest = bytes(self._buffer[at + _HEAD.size : end])
            if zlib.crc32(rest) != checksum:
                raise Corrupt(f"seq {seq}: the checksum does not match: the stream is damaged")
            rows.append(Sealed(seq, tick, rest[:HASH_BYTES], rest[HASH_BYTES:]))
            at = end
        del self._buffer[:at]
        return rows
