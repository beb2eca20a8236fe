"""The tree of a checked CEL expression: read, questioned and, in two points, changed.

The library hands out its tree as bytes (the `CheckedExpr` message of the CEL specification).
We read them ourselves because the answers decide what may run: which values an expression
reads, what it may cost, and whether it asks for something that differs between machines.

Two things are changed. The library walks a map in an order that differs from call to call, so
every loop over a value that may be a map goes over `ORDERED(value)` instead. And optional access
(`value.?key`) to null is an error of the library, so it goes to `SOME(value)`, which is an empty map for null.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Self

ORDERED = "@ordered"  # no expression can spell it: `@` is not part of the grammar
ORDERED_OVERLOADS = ("ordered_list", "ordered_map")
SOME = "@some"
SOME_OVERLOADS = ("some_list", "some_map", "some_null")
_OPTIONAL_ACCESS = ("_?._", "_[?_]")
_TREE_TYPE = b"type.googleapis.com/cel.expr.CheckedExpr"
_VARINT, _FIXED64, _BYTES = 0, 1, 2

# Which fields of a message are messages themselves. What is not named here stays bytes.
_SHAPES: Mapping[str, Mapping[int, str]] = MappingProxyType(
    {
        "any": {2: "checked"},
        "checked": {2: "reference", 3: "type", 4: "expr"},
        "reference": {},
        "type": {2: "kind"},
        "kind": {},
        "expr": {3: "constant", 4: "name", 5: "select", 6: "call", 7: "list", 8: "struct", 9: "loop"},
        "constant": {},
        "name": {},
        "select": {1: "expr"},
        "call": {1: "expr", 3: "expr"},
        "list": {1: "expr"},
        "struct": {2: "entry"},
        "entry": {3: "expr", 4: "expr"},
        "loop": {2: "expr", 4: "expr", 5: "expr", 6: "expr", 7: "expr"},
    }
)
_LIST_KIND = 6  # of a type
_STRING_CONSTANT = 6


class Message:
    """One message: its fields in their order, so that writing it again gives the same bytes."""

    __slots__ = ("fields", "shape")

    def __init__(self, shape: str, fields: list[tuple[int, "int | bytes | Message"]]) -> None:
        self.shape = shape
        self.fields = fields

    @classmethod
    def read(cls, data: bytes, shape: str) -> Self:
        inner = _SHAPES[shape]
        return cls(
            shape,
            [
                (number, cls.read(value, inner[number]) if isinstance(value, bytes) and number in inner else value)
                for number, value in _raw_fields(data)
            ],
        )

    def write(self) -> bytes:
        return b"".join(_raw_field(number, value) for number, value in self.fields)

    def number(self, field: int) -> int:
        return next((value for key, value in self.fields if key == field and isinstance(value, int)), 0)

    def text(self, field: int) -> str:
        return next((value.decode() for key, value in self.fields if key == field and isinstance(value, bytes)), "")

    def has(self, field: int) -> bool:
        return any(key == field for key, _ in self.fields)

    def messages(self, field: int | None = None) -> list["Message"]:
        return [value for key, value in self.fields if isinstance(value, Message) and field in (None, key)]

    def message(self, field: int) -> "Message | None":
        return next(iter(self.messages(field)), None)


class Tree:
    """One expression."""

    def __init__(self, serialized: bytes) -> None:
        self._any = Message.read(serialized, "any")
        assert self._any.fields[0] == (1, _TREE_TYPE), "the CEL library changed the form of its trees"
        checked = self._any.message(2)
        root = checked.message(4) if checked else None
        assert checked is not None
        assert root is not None
        self._checked = checked
        self._fresh = 0
        self.root = root

    def overloads(self) -> dict[int, tuple[str, ...]]:
        """What a function may mean at each call, by the number of the expression."""
        table: dict[int, tuple[str, ...]] = {}
        for entry in self._checked.messages(2):
            data = next((value for key, value in entry.fields if key == 2 and isinstance(value, bytes)), b"")
            names = [value.decode() for key, value in _raw_fields(data) if key == 3 and isinstance(value, bytes)]
            table[entry.number(1)] = tuple(names)
        return table

    def prepared(self) -> bytes:
        """The same expression with every loop in a stated order and every optional access safe, for the library."""
        lists = [entry.number(1) for entry in self._checked.messages(3) if _is_list(entry)]
        self._fresh = 1 + max((message.number(2) for message in walk(self.root)), default=0)
        for message in list(walk(self.root)):
            if message.shape == "loop":
                spot, source = _first_at(message, 2)
                if source.number(2) not in lists:
                    message.fields[spot] = (2, self._called(ORDERED, ORDERED_OVERLOADS, source))
            elif message.shape == "call" and message.text(2) in _OPTIONAL_ACCESS:
                spot, operand = _first_at(message, 3)
                message.fields[spot] = (3, self._safe(operand))
        return self._any.write()

    def _safe(self, operand: Message) -> Message:
        call = operand.message(6)
        if call is not None and call.text(2).startswith("optional."):
            return operand
        if call is not None and call.text(2) in _OPTIONAL_ACCESS:
            null = Message("expr", [(2, self._number()), (3, Message("constant", [(1, 0)]))])
            value = Message("call", [(1, operand), (2, b"orValue"), (3, null)])
            operand = self._referred(value, ("optional_orValue_value",))
        return self._called(SOME, SOME_OVERLOADS, operand)

    def _called(self, function: str, overloads: tuple[str, ...], argument: Message) -> Message:
        return self._referred(Message("call", [(2, function.encode()), (3, argument)]), overloads)

    def _referred(self, call: Message, overloads: tuple[str, ...]) -> Message:
        number = self._number()
        reference = Message("reference", [(3, overload.encode()) for overload in overloads])
        self._checked.fields.insert(0, (2, Message("reference", [(1, number), (2, reference)])))
        return Message("expr", [(2, number), (6, call)])

    def _number(self) -> int:
        self._fresh += 1
        return self._fresh - 1


def walk(message: Message) -> Iterator[Message]:
    yield message
    for inner in message.messages():
        yield from walk(inner)


def free_names(message: Message, bound: tuple[str, ...] = ()) -> Iterator[tuple[Message, str]]:
    """Every mention of a name that no loop around it declares."""
    if message.shape == "name" and message.text(1) not in bound:
        yield message, message.text(1)
    for key, inner in message.fields:
        if isinstance(inner, Message):
            yield from free_names(inner, (*bound, *_declared(message, key)))


def read_keys(message: Message) -> Iterator[tuple[Message, str]]:
    """Every mention of a name of which one key is read, and that key: `a.k`, `a["k"]`, `a.?k`, `"k" in a`."""
    for inner in walk(message):
        if inner.shape == "select":
            operand, key = inner.message(1), inner.text(2)
        elif inner.shape == "call" and inner.text(2) in ("_[_]", "@in", *_OPTIONAL_ACCESS):
            operand, key = _indexed(inner)
        else:
            continue
        name = operand.message(4) if operand else None
        if name is not None and key:
            yield name, key


def _declared(message: Message, field: int) -> tuple[str, ...]:
    """A loop's own names hold inside its condition, its step and its result, not in what it goes over."""
    if message.shape != "loop" or field in (2, 4):
        return ()
    return (message.text(1), message.text(8), message.text(3))


def _indexed(call: Message) -> tuple[Message | None, str]:
    first, second = call.messages(3)
    operand, index = (second, first) if call.text(2) == "@in" else (first, second)
    constant = index.message(3)
    return operand, constant.text(_STRING_CONSTANT) if constant else ""


def _first_at(message: Message, field: int) -> tuple[int, Message]:
    spot, part = next((at, value) for at, (key, value) in enumerate(message.fields) if key == field)
    assert isinstance(part, Message)
    return spot, part


def _is_list(entry: Message) -> bool:
    kind = entry.message(2)
    return kind is not None and kind.has(_LIST_KIND)


def _raw_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        assert wire in (_BYTES, _FIXED64), f"unknown wire type {wire}"
        size, at = (8, at) if wire == _FIXED64 else _varint(data, at)
        yield (number if wire == _BYTES else -number), data[at : at + size]
        at += size


def _raw_field(number: int, value: "int | bytes | Message") -> bytes:
    if isinstance(value, int):
        return _as_varint(number << 3 | _VARINT) + _as_varint(value)
    if number < 0:  # a double: eight bytes without a length
        assert isinstance(value, bytes)
        return _as_varint(-number << 3 | _FIXED64) + value
    data = value.write() if isinstance(value, Message) else value
    return _as_varint(number << 3 | _BYTES) + _as_varint(len(data)) + data


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
