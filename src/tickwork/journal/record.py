"""One row of the journal: what a tick took in, what it decided, and its place in the chain.

The hash of a row is over its format, the canonical bytes of everything in it and the hash before, so no
row can be changed, dropped or moved without every later hash telling. Bytes are canonical because
every struct is an array of integers, texts and bytes in a fixed order, and because the only maps
inside are written with sorted keys. Compression comes after hashing and is of no consequence to it; few bytes
are stored as they are.
"""

import zlib
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt, Newer
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import Input

# ---- Rows of earlier formats, brought to today's.


FORMAT = 1

Step = Callable[[list[Any]], list[Any]]
STEPS: dict[int, Step] = {}  # nothing older than format 1 was ever written


def upcast(version: int, row: list[Any], *, steps: dict[int, Step] = STEPS, to: int = FORMAT) -> list[Any]:
    if version > to:
        raise Newer(f"the journal is of format {version}, this version of tickwork reads up to {to}: upgrade it")
    while version < to:
        if version not in steps:
            raise Corrupt(f"format {version} of the journal is not supported")
        row = steps[version](row)
        version += 1
    return row


HASH_BYTES = 32
GENESIS = bytes(HASH_BYTES)
FEW_BYTES_MAX, SMALL_BYTES_MAX = 512, 2_048
WINDOW, SMALL_WINDOW = (13, 6), (10, 2)  # as zlib counts them: bits of the window, level of memory
ROW_BYTES_MAX = 256 * 1024 * 1024  # unpacked; a tick has a few megabytes, so more than this is damage or an attack


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A tick as the journal holds it. `rules` names what decided it; only the same rules decide it again."""

    seq: int
    tick: int
    rules: str
    inputs: list[Input]
    events: list[Event]


class SealedRow(msgspec.Struct, frozen=True):
    """A row as it is stored: its hash, and its bytes, compressed where they are many."""

    seq: int
    tick: int
    hash: bytes
    data: bytes


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Row)
_plain_decoder = msgspec.msgpack.Decoder(list[Any])


def chain(before: bytes, version: bytes, body: bytes) -> bytes:
    """The version is in it: the same bytes under another format would be another row."""
    return blake2b(before + version + body, digest_size=HASH_BYTES).digest()


def seal(row: Row, before: bytes) -> SealedRow:
    """The stored form of a row that follows the hash `before`."""
    body = _encoder.encode(row)
    assert len(body) <= ROW_BYTES_MAX, "this row could not be read back"
    data = body if len(body) <= FEW_BYTES_MAX else packed(body)
    return SealedRow(row.seq, row.tick, chain(before, FORMAT_BYTE, body), FORMAT_BYTE + data)


def packed(data: bytes) -> bytes:
    """In a window of 8 KiB: room for a larger one is fetched from the system each time, and that would cost more than
    the rest of sealing a small row, for nothing."""
    packer = zlib.compressobj(1, zlib.DEFLATED, *(SMALL_WINDOW if len(data) <= SMALL_BYTES_MAX else WINDOW))
    return packer.compress(data) + packer.flush()


def hash_of(row: Row, before: bytes) -> bytes:
    """What `seal` would give it, without the bytes."""
    return chain(before, FORMAT_BYTE, _encoder.encode(row))


def unseal(sealed: SealedRow, before: bytes) -> Row:
    """The row, once its hash and its place in the chain are verified."""
    body = _body(sealed)
    if chain(before, sealed.data[:1], body) != sealed.hash:
        raise Corrupt(f"seq {sealed.seq}: the row does not follow the one before it, or was changed")
    row = _decode(sealed.data[0], body, sealed.seq)
    if (row.seq, row.tick) != (sealed.seq, sealed.tick):
        raise Corrupt(f"seq {sealed.seq}: the row holds seq {row.seq}, tick {row.tick}")
    return row


def rules_in(sealed: SealedRow) -> str:
    """What decided a row, without its place in the chain."""
    return _decode(sealed.data[0], _body(sealed), sealed.seq).rules


FORMAT_BYTE = bytes([FORMAT])
PLAIN_BYTE = b"\x95"  # how an array of five begins; nothing that zlib makes begins so


def _body(sealed: SealedRow) -> bytes:
    if sealed.data[1:2] == PLAIN_BYTE:
        return sealed.data[1:]
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(sealed.data[1:], ROW_BYTES_MAX + 1)
    except zlib.error as error:
        raise Corrupt(f"seq {sealed.seq}: the row cannot be unpacked: {error}") from None
    if len(body) > ROW_BYTES_MAX:
        raise Corrupt(f"seq {sealed.seq}: the row has more than {ROW_BYTES_MAX} bytes")
    if not unpacker.eof or unpacker.unused_data:
        raise Corrupt(f"seq {sealed.seq}: the row is truncated, or has trailing bytes")
    return body


def _decode(version: int, body: bytes, seq: int) -> Row:
    try:
        if version == FORMAT:
            return _decoder.decode(body)
        return msgspec.convert(upcast(version, _plain_decoder.decode(body)), Row)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"seq {seq}: the row cannot be read: {error}") from None
