"""Values of users to plain data, and to MessagePack.

Plain means what JSON can say: null, booleans, 64-bit integers, finite floats, text, lists, and objects with
text as keys. So a value looks the same to a condition, to the page and to the next task, whatever the
store. A value that cannot travel is refused here, at the call that made it, and never pickled.
"""

import math
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import fields as dataclass_fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any
from uuid import UUID

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.strict_json import DEPTH_MAX as DOCUMENT_DEPTH_MAX
from tickwork.core.base.strict_json import INTEGER_MAX, INTEGER_MIN
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX

DEPTH_MAX = DOCUMENT_DEPTH_MAX - 4  # room for what a document wraps around a value
MIB = 1024 * 1024
NULL = b"\xc0"
EMPTY_MAP = b"\x80"

_encoder = msgspec.msgpack.Encoder(order="sorted")
_STRUCT_LEAVES = (bytes, bytearray, memoryview, datetime, date, time, timedelta, Decimal, UUID)


class Unsendable(Refused):
    """A value that cannot travel between processes. `path` leads to the part that cannot."""

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__("unsendable", message, path=path)


class _Stuck(Exception):
    """On its way up it gathers where in the value it happened; nothing is built where all goes well."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps: list[str] = []


def encode(value: Any, *, what: str = "result") -> bytes:
    """MessagePack of `value`, keys sorted. Raises `Unsendable`; `what` begins the path it names."""
    if value is None:
        return NULL
    return sized(_encoder.encode(plain(value, what=what)), what=what)


def sized(data: bytes, *, what: str) -> bytes:
    """The same. Raises `Unsendable` for more than can be put into the artifact store."""
    if len(data) > ARTIFACT_BYTES_MAX:
        size, most = len(data) // MIB, ARTIFACT_BYTES_MAX // MIB
        message = (
            f"{size} MiB cannot travel, at most {most}; put them where the next task can read them, and send the name"
        )
        raise Unsendable(message, path=what)
    return data


def plain(value: Any, *, what: str = "result") -> Any:
    """The same as plain data."""
    try:
        return _plain(value, 0)
    except _Stuck as stuck:
        path = what + "".join(reversed(stuck.steps))
        raise Unsendable(stuck.reason, path=path) from None


def _plain(value: Any, depth: int) -> Any:
    rule = _EXACT.get(type(value)) or _rule_for(value)
    return rule(value, depth)


def _rule_for(value: Any) -> "_Rule":
    """For everything whose type is not in the table itself: subclasses, users' classes."""
    kind = type(value)
    if isinstance(value, Enum):  # before text and numbers: many enums are those too
        return _enum
    for base, rule in _SUBCLASSES:
        if isinstance(value, base):
            return rule
    if isinstance(value, msgspec.Struct):
        return _struct
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass
    if hasattr(kind, "__attrs_attrs__"):
        return _attrs
    if hasattr(kind, "model_validate") and hasattr(kind, "model_dump"):
        return _pydantic
    return _refuse


_Rule = Callable[[Any, int], Any]


def _as_is(value: Any, _depth: int) -> Any:
    return value


def _integer(value: Any, _depth: int) -> int:
    if not INTEGER_MIN <= value <= INTEGER_MAX:
        raise _Stuck("an integer of more than 64 bits cannot travel; send it as text")
    return int(value)


def _number(value: Any, _depth: int) -> float:
    if not math.isfinite(value):
        raise _Stuck(f"the float {value} cannot travel, because JSON has no such number; use None or text")
    return float(value)


def _text(value: Any, _depth: int) -> str:
    text = str.__str__(value)
    if "\x00" in text:
        raise _Stuck("a text with a NUL character cannot travel; remove it, or send bytes")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            reason = f"a text with half of a surrogate pair (character {error.start}) cannot travel"
            raise _Stuck(f"{reason}; decode it with errors='replace', or send bytes") from None
    return text


def _list(value: Any, depth: int) -> list[Any]:
    items = list(value)
    if depth >= DEPTH_MAX:
        raise _too_deep()
    kinds = set(map(type, items))
    if kinds <= _FREE or (kinds == {float} and all(map(math.isfinite, items))):
        return items
    depth += 1
    position = 0
    try:
        for position, item in enumerate(items):
            items[position] = _plain(item, depth)
    except _Stuck as stuck:
        stuck.steps.append(f"[{position}]")
        raise
    return items


def _set(value: Any, depth: int) -> list[Any]:
    """In the order of its encoded items, so that equal sets are equal bytes."""
    return sorted(_list(value, depth), key=_encoder.encode)


def _mapping(value: Any, depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        raise _too_deep()
    depth += 1
    result: dict[str, Any] = {}
    key: Any = None
    try:
        for key, item in value.items():
            result[key if type(key) is str and key.isascii() and "\x00" not in key else _key(key)] = _plain(item, depth)
    except _Stuck as stuck:
        stuck.steps.append(f"[{key!a:.80}]")
        raise
    return result


def _key(key: Any) -> str:
    if isinstance(key, Enum) and isinstance(key.value, str):
        key = key.value
    if not isinstance(key, str):
        raise _Stuck(f"the key is {_a(key)}, and only text can be a key; use str(key), or a list of pairs")
    return _text(key, 0)


def _enum(value: Any, depth: int) -> Any:
    return _plain(value.value, depth)


def _bytes(value: Any, _depth: int) -> str:
    return b64encode(value).decode()


def _instant(value: datetime, _depth: int) -> str:
    offset = value.utcoffset()
    if offset is None:
        raise _Stuck("a datetime without a zone cannot be sent; use datetime.now(UTC), or .replace(tzinfo=...)")
    text = value.isoformat()
    if not offset:
        return text.removesuffix("+00:00") + "Z"
    return text if offset.seconds % 60 == 0 and not offset.microseconds else _in_utc(value)


def _in_utc(value: datetime) -> str:
    """For zones whose offset has seconds, which RFC 3339 cannot say."""
    assert value.utcoffset() is not None
    bare = value.replace(tzinfo=None) - (value.utcoffset() or timedelta())
    return f"{bare.isoformat()}Z"


def _iso(value: Any, _depth: int) -> str:
    return str(value.isoformat())


def _timedelta(value: Any, _depth: int) -> str:
    return str(msgspec.to_builtins(value))


def _as_text(value: Any, depth: int) -> str:
    return _text(str(value), depth)


def _struct(value: Any, depth: int) -> Any:
    """msgspec knows its names, tags and layout; what is inside comes back here."""
    return _plain(
        msgspec.to_builtins(value, builtin_types=_STRUCT_LEAVES, enc_hook=lambda part: _plain(part, 0)), depth
    )


def _dataclass(value: Any, depth: int) -> dict[str, Any]:
    if isinstance(value, type):
        raise _Stuck(f"{_a(value)} cannot travel; {_advice(value)}")
    return _attributes(value, [field.name for field in dataclass_fields(value)], depth)


def _attrs(value: Any, depth: int) -> dict[str, Any]:
    return _attributes(value, [attribute.name for attribute in type(value).__attrs_attrs__], depth)


def _attributes(value: Any, names: list[str], depth: int) -> dict[str, Any]:
    if depth >= DEPTH_MAX:
        raise _too_deep()
    name = ""
    result = {}
    try:
        for name in names:
            result[name] = _plain(getattr(value, name), depth + 1)
    except _Stuck as stuck:
        stuck.steps.append(f".{name}")
        raise
    return result


def _pydantic(value: Any, depth: int) -> Any:
    try:
        dumped = value.model_dump(mode="json")
    except Exception as error:
        raise _Stuck(f"the model {type(value).__name__} cannot be written as JSON: {error}") from None
    return _plain(dumped, depth)


def _refuse(value: Any, _depth: int) -> Any:
    raise _Stuck(f"{_a(value)} cannot travel; {_advice(value)}")


def _advice(value: Any) -> str:
    if hasattr(type(value), "_tw_root"):
        return "pass it as an argument of its own, or inside a list or dict"
    if hasattr(type(value), "_tw_question"):
        return "compare in a task, or ask it in tw.branch(...) or .using(when=...)"
    if isinstance(value, CoroutineType):
        return "it was never awaited: put await before the call"
    if isinstance(value, GeneratorType | AsyncGeneratorType):
        return "make it a list first"
    if hasattr(value, "tolist"):
        return "use its .tolist()"
    if hasattr(value, "to_dict"):
        return "use its .to_dict()"
    if hasattr(value, "read") and hasattr(value, "close"):
        return "send its path or its content"
    return "send plain data, a dataclass, a msgspec.Struct, a pydantic model or an attrs class"


def _a(value: Any) -> str:
    kind = type(value)
    if hasattr(kind, "_tw_root"):
        return "the result of a node, which is not known while the workflow is built,"
    if hasattr(kind, "_tw_question"):
        return "a condition, which the server asks when the workflow runs,"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _too_deep() -> _Stuck:
    return _Stuck(f"the value nests deeper than {DEPTH_MAX} levels, or contains itself; make it flatter")


_FREE = frozenset((bool, type(None)))
_EXACT: dict[type, _Rule] = {
    type(None): _as_is,
    bool: _as_is,
    int: _integer,
    float: _number,
    str: _text,
    list: _list,
    tuple: _list,
    dict: _mapping,
    set: _set,
    frozenset: _set,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    datetime: _instant,
    date: _iso,
    time: _iso,
    timedelta: _timedelta,
    Decimal: _as_text,
    UUID: _as_text,
}
_SUBCLASSES: tuple[tuple[Any, _Rule], ...] = (
    (str, _text),
    (int, _integer),
    (float, _number),
    (datetime, _instant),
    (date, _iso),
    (PurePath, _as_text),
    (Mapping, _mapping),
    (list | tuple | deque | range, _list),
    (Set, _set),
    (bytes | bytearray, _bytes),
    (Decimal | UUID, _as_text),
    (time, _iso),
    (timedelta, _timedelta),
)
