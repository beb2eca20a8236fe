"""Values of users as the machine sees them: small ones inline, everything else by reference.

The journal never holds a large or private value. Up to `INLINE_BYTES_MAX` a value travels as
its MessagePack bytes, unread by the machine unless a condition asks for it; above that, and
for the gathered results of a map, a `Ref` stands for it. Data of a subject is `EncryptedValue` under
that subject's key before it becomes an input, so destroying the key erases it.
"""

from typing import Any

import msgspec

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused

INLINE_BYTES_MAX = 1_024
TASK_COMMANDS_MAX = 1_000  # runs and events that one task may ask for


class Ref(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A value kept elsewhere. `items` is its length where it is a list, so that a map can fan out."""

    digest: str
    size: int
    items: int | None = None
    place: str = "payload"  # payload table, artifact store, or gather: the results of a map's children
    keys: tuple[str, ...] | None = None  # of the object that the gathered results make; None: they make a list


class EncryptedValue(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A subject's data, encrypted under the key `key_id` of that subject."""

    subject: str
    key_id: str
    data: bytes


Value = bytes | Ref | EncryptedValue | None

_encoder = msgspec.msgpack.Encoder(order="sorted")


def pack(value: Any) -> bytes:
    """The canonical inline form: keys sorted, so that equal values are equal bytes."""
    return _encoder.encode(value)


def unpack(value: Value, *, what: str) -> Any:
    """The plain value, for a rule that must look inside; refused where only a reference is here, or no plain data."""
    plain = decode(value, what=what)
    strictjson.check(plain)
    return plain


def decode(value: Value, *, what: str) -> Any:
    """Like `unpack`, for callers that check the plain value. The bytes come from outside and may be anything."""
    if value is None:
        return None
    if isinstance(value, bytes):
        try:
            return msgspec.msgpack.decode(value)
        except (ValueError, TypeError, RecursionError) as error:
            raise Refused("bad_value", f"{what} is not MessagePack: {error}") from error
    kind = "sealed" if isinstance(value, EncryptedValue) else f"larger than {INLINE_BYTES_MAX} bytes"
    raise Refused("value_not_inline", f"{what} is {kind}, so no rule can read it: return the deciding fields apart")


def too_large(value: Value) -> bool:
    return isinstance(value, bytes) and len(value) > INLINE_BYTES_MAX
