"""Which parts of a value an expression reads, and how they are taken out of it.

The machine holds large values by reference. Where a condition reads one, the shell loads it and takes out what the
condition names: `results.f.total` of a megabyte is one number, `results.f.all(x, x.ok)` is one truth value per item.
That extract is journalled, so a replay reads the same. What is not named stays out: it stands as an empty value of
its kind, so that a comparison with null, `has` and errors of type answer as they would with the whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel_tree import ORDERED, SOME, Message

EXTRACT_BYTES_MAX = 64 * 1024
_LENGTH_ONLY = 1  # extension type of a list of which only the length is read
_OPTIONAL = ("_?._", "_[?_]")
_SAME = (ORDERED, SOME, "dyn", "optional.of", "value")
_STRING, _INTEGER, _NULL = 6, 3, 1  # fields of a constant

_maps = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_lists = msgspec.msgpack.Decoder(list[msgspec.Raw])
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Need:
    """What is read of a value. A need without any mark reads whether it is there, and whether it is null."""

    __slots__ = ("_each", "keys", "length", "members", "whole")

    def __init__(self) -> None:
        self.whole = False
        self.length = False  # how many entries
        self.members = False  # whether something is among them: keys of a map, items of a list
        self._each: Need | None = None
        self.keys: dict[str | int, Need] = {}

    @property
    def every(self) -> "Need | None":
        return self._each

    @property
    def light(self) -> bool:
        """The length of a list answers it."""
        return not (self.whole or self.members or self._each is not None or self.keys)

    # ---- noted while an expression is read

    def key(self, name: str | int) -> "Need":
        return self.keys.setdefault(name, Need())

    def each(self) -> "Need":
        if self._each is None:
            self._each = Need()
        return self._each

    def mark_whole(self) -> None:
        self.whole = True

    def mark_length(self) -> None:
        self.length = True

    def mark_members(self) -> None:
        self.members = True

    def join(self, other: "Need") -> None:
        self.whole, self.length = self.whole or other.whole, self.length or other.length
        self.members = self.members or other.members
        if other._each is not None:
            self.each().join(other._each)
        for name, inner in other.keys.items():
            self.key(name).join(inner)


class _Made:
    """A list that the expression makes itself, of these."""

    def __init__(self, items: "list[_Read]") -> None:
        self.items = items

    def key(self, _name: str | int) -> "_Read":
        return _Union(self.items)

    def each(self) -> "_Read":
        return _Union(self.items)

    def mark_whole(self) -> None:
        for item in self.items:
            item.mark_whole()

    def mark_length(self) -> None:
        pass

    mark_members = mark_whole


class _Union(_Made):
    """One of these."""

    def key(self, name: str | int) -> "_Read":
        return _Union([item.key(name) for item in self.items])

    def each(self) -> "_Read":
        return _Union([item.each() for item in self.items])

    def mark_length(self) -> None:
        for item in self.items:
            item.mark_length()

    def mark_members(self) -> None:
        for item in self.items:
            item.mark_members()


_Read = Need | _Made


def needs_of(root: Message, variables: Sequence[str]) -> dict[str, Need]:
    """For each variable, what is read of it."""
    needs = {name: Need() for name in variables}
    _read(root, dict(needs)).mark_whole()
    return needs


def _read(expr: Message, names: Mapping[str, _Read]) -> _Read:
    """What an expression stands for. Its users mark the parts that they read."""
    for inner in expr.messages():
        match inner.shape:
            case "name":
                return names.get(inner.text(1), _Union([]))
            case "select":
                part = _read(inner.messages(1)[0], names).key(inner.text(2))
                return _Union([]) if inner.number(3) else part
            case "call":
                return _call(inner, names)
            case "list":
                return _Made([_read(message, names) for message in inner.messages(1)])
            case "struct":
                for entry in inner.messages(2):
                    for part_of_entry in entry.messages():
                        _read(part_of_entry, names).mark_whole()
            case "loop":
                return _loop(inner, names)
    return _Union([])


def _call(call: Message, names: Mapping[str, _Read]) -> _Read:
    name, parts = call.text(2), [*call.messages(1), *call.messages(3)]
    if name == "_[_]" or name in _OPTIONAL:
        operand, key = _read(parts[0], names), _constant(parts[1])
        if key is None:
            _read(parts[1], names).mark_whole()
        return operand.each() if key is None else operand.key(key)
    read = [_read(part, names) for part in parts]
    if name in ("_==_", "_!=_") and any(_is_null(part) for part in parts):
        return _Union([])
    if name == "size":
        read[0].mark_length()
        return _Union([])
    if name == "@in":
        read[0].mark_whole()
        read[1].mark_members()
        return _Union([])
    if name in ("hasValue", "@not_strictly_false"):
        return _Union([])
    if name in _SAME:
        return read[0]
    if name in ("orValue", "or"):
        return _Union(read)
    if name == "_?_:_":
        read[0].mark_whole()
        return _Union(read[1:])
    if name == "_+_" and all(type(value) is _Made for value in read):
        return _Made([item for value in read for item in value.items])  # type: ignore[union-attr]
    for value in read:
        value.mark_whole()
    return _Union([])


def _loop(loop: Message, names: Mapping[str, _Read]) -> _Read:
    over = _read(loop.messages(2)[0], names)
    begun = _read(loop.messages(4)[0], names)
    inside = {**names, loop.text(1): over.each(), loop.text(3): begun}
    _read(loop.messages(5)[0], inside).mark_whole()
    step = _read(loop.messages(6)[0], inside)
    ended = _gathered(step) if type(begun) is _Made and loop.messages(4)[0].messages(7) else _Union([begun, step])
    return _read(loop.messages(7)[0], {**names, loop.text(3): ended})


def _gathered(step: _Read) -> _Read:
    """`map` and `filter` add a list to a list, or keep the list as it is."""
    lists = step.items if type(step) is _Union else [step]
    return _Made([item for part in lists if type(part) is _Made for item in part.items])


def _constant(expr: Message) -> str | int | None:
    constant = expr.message(3)
    if constant is None:
        return None
    return constant.text(_STRING) if constant.has(_STRING) else constant.number(3) if constant.has(3) else None


def _is_null(expr: Message) -> bool:
    constant = expr.message(3)
    return constant is not None and constant.has(_NULL)


# ---- taking out


def whole_at(walk: Sequence[str]) -> Need:
    """The need of a reference: everything at the end of this way."""
    need = here = Need()
    for step in walk:
        here = here.key(step)
    here.mark_whole()
    return need


def length_at(walk: Sequence[str]) -> Need:
    need = here = Need()
    for step in walk:
        here = here.key(step)
    here.mark_length()
    return need


def extract(data: bytes, need: Need, *, what: str) -> bytes:
    """What is needed of a MessagePack value, packed. Raises `Refused`."""
    try:
        packed = _encode(_taken(data, need))
        plain = read_extract(packed)
    except (ValueError, TypeError, RecursionError) as error:
        raise Refused("bad_value", f"{what} is not MessagePack: {error}") from error
    if len(packed) > EXTRACT_BYTES_MAX:
        message = f"conditions read {len(packed)} bytes of {what}, at most {EXTRACT_BYTES_MAX}"
        raise Refused("extract_too_large", f"{message}; name the parts that decide, or return them apart")
    strictjson.check(plain)
    return packed


def read_extract(packed: bytes) -> Any:
    return msgspec.msgpack.decode(packed, ext_hook=_expanded)


def _expanded(code: int, data: memoryview) -> Any:
    assert code == _LENGTH_ONLY, "no other extension is written"
    return [None] * int.from_bytes(data)


def _taken(data: bytes | msgspec.Raw, need: Need) -> Any:
    if need.whole:
        return msgspec.Raw(data)
    first = memoryview(data)[0]
    if 0x80 <= first <= 0x8F or first in (0xDE, 0xDF):
        return _taken_of_map(_maps.decode(data), need)
    if 0x90 <= first <= 0x9F or first in (0xDC, 0xDD):
        return _taken_of_list(data, need)
    if 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB:
        return msgspec.Raw(data) if need.length or need.members else ""
    return msgspec.Raw(data)


def _taken_of_map(entries: dict[str, msgspec.Raw], need: Need) -> dict[str, Any]:
    every, keys = need.every, need.keys
    if every is not None:
        return {name: _taken(value, _both(every, keys.get(name))) for name, value in entries.items()}
    taken: dict[str, Any] = dict.fromkeys(entries) if need.members or need.length else {}
    for name, inner in keys.items():
        if isinstance(name, str) and name in entries:
            taken[name] = _taken(entries[name], inner)
    return taken


def _taken_of_list(data: bytes | msgspec.Raw, need: Need) -> Any:
    if need.members:
        return msgspec.Raw(data)
    items, every = _lists.decode(data), need.every
    keys = {int(key): inner for key, inner in need.keys.items() if isinstance(key, int) or key.isdecimal()}
    if every is not None:
        return [_taken(item, _both(every, keys.get(index))) for index, item in enumerate(items)]
    inside = {item_index: inner for item_index, inner in keys.items() if item_index < len(items)}
    if inside:
        return [_taken(item, inside[index]) if index in inside else None for index, item in enumerate(items)]
    return msgspec.msgpack.Ext(_LENGTH_ONLY, len(items).to_bytes(4))


def _both(need: Need, other: Need | None) -> Need:
    if other is None:
        return need
    both = Need()
    both.join(need)
    both.join(other)
    return both
