"""A journal on its way out: one head that says what the rows need to be decided again, then the rows.

The head has the settings under which the machine began and the place where the rows begin: everything that a replay
needs, so an export is read without the store it came from. It also names the last row with its hash: one that was cut
off is refused, also where it was cut between two rows.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.state.state import Settings
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.journal.stream import RowReader

MAGIC = b"TWJ1"
_SIZE = struct.Struct(">II")  # length, checksum
HEAD_BYTES_MAX = 64 * 1024


class ExportHead(msgspec.Struct, frozen=True):
    settings: Settings
    after: int = 0  # the rows begin behind this seq
    hash: bytes = GENESIS  # of that row
    last: int = 0  # seq of the last row, `after` where there is none
    last_hash: bytes = b""  # empty: an earlier version wrote it, which did not name the end


_decoder = msgspec.msgpack.Decoder(ExportHead)


def write_head(head: ExportHead) -> bytes:
    body = msgspec.msgpack.encode(head)
    return MAGIC + _SIZE.pack(len(body), zlib.crc32(body)) + body


def read(chunks: Iterable[bytes]) -> tuple[ExportHead, Iterator[SealedRow]]:
    """Read the head at once and the rows lazily. A torn last row raises `Corrupt` when it is reached."""
    source = iter(chunks)
    buffer = b""
    begin = len(MAGIC) + _SIZE.size
    while (end := _end(buffer, begin)) is None or len(buffer) < end:
        piece = next(source, None)
        if piece is None:
            raise Corrupt("this is not an exported journal, or it is truncated")
        buffer += piece
    body = buffer[begin:end]
    if zlib.crc32(body) != _SIZE.unpack_from(buffer, len(MAGIC))[1]:
        raise Corrupt("the head of the journal is damaged: its checksum does not match")
    try:
        head = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the head of the journal cannot be read: {error}") from None
    return head, _rows(buffer[end:], source, head)


def _end(buffer: bytes, begin: int) -> int | None:
    """Return the end of the head, as soon as it is known."""
    if not MAGIC.startswith(buffer[: len(MAGIC)]):
        raise Corrupt("this is not an exported journal: its first bytes are wrong")
    if len(buffer) < begin:
        return None
    length: int = _SIZE.unpack_from(buffer, len(MAGIC))[0]
    if length > HEAD_BYTES_MAX:
        raise Corrupt("the head of the journal is damaged: it cannot be that long")
    return begin + length


def _rows(first: bytes, rest: Iterator[bytes], head: ExportHead) -> Iterator[SealedRow]:
    reader, seq, hash_ = RowReader(), head.after, head.hash
    for piece in chain([first], rest):
        for row in reader.feed(piece):
            seq, hash_ = row.seq, row.hash
            yield row
    if reader.torn:
        raise Corrupt("the journal ends in the middle of a row; the rows before it are intact")
    if head.last_hash and (seq, hash_) != (head.last, head.last_hash):
        raise Corrupt(
            f"this export is incomplete: it names seq {head.last} as its last row, and ends with seq {seq}, or with "
            "another row: export it again"
        )
