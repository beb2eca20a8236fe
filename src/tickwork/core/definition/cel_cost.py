"""What a condition may cost, computed before it is evaluated.

The library has a budget for rounds of loops and none for memory: `["x"].map(s, s + s)` thirty times in a row asks
for a gigabyte. So the tree is walked with sizes in place of values: how large each value can become and how much work
leads there, for the data at hand. Where data is known it is followed exactly; where it is not, the largest part counts.
The answer depends on the expression and the data alone, so every replay refuses what was refused before.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tickwork.core.definition.cel_tree import ORDERED, SOME, Message

SIZE_MAX = 4 * 1024 * 1024  # bytes of one value on the way to the answer
WORK_MAX = 2_000_000  # steps, of which the slowest take 0.2 microseconds
ROUNDS_MAX = 10_000  # the library's own budget for all loops of one evaluation

_ENTRY = 16  # bytes that an entry of a list or map takes beside its value
_BYTES_A_STEP = 16
_NUMBER_CHARACTERS = 32  # of a number or an instant, written out
_SIZED_SUMS = ("add_string", "add_bytes", "add_list")
_STRING, _BYTES = 6, 7  # fields of a constant


class TooCostly(Exception):
    """The reason, as the end of a sentence about the condition."""


class Weight:
    """How large a value can be. `items` are its entries or characters, `inner` is the largest of the entries."""

    __slots__ = ("inner", "items", "size", "sized")

    def __init__(self, size: int = 8, items: int = 0, inner: "Weight | None" = None, *, sized: bool = False) -> None:
        self.size = size
        self.items = items
        self.inner = inner
        self.sized = sized  # a text, list or map: `+` makes it longer


class KnownValue:
    """A value that is at hand."""

    __slots__ = ("_weight", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self._weight: Weight | None = None

    @property
    def weight(self) -> Weight:
        if self._weight is None:
            self._weight = weight_of(self.value)
        return self._weight


Sort = Weight | KnownValue
SCALAR = Weight()
ANYTHING = Weight(1, 1, None, sized=True)  # the least that a text, list or map can be
ANYTHING.inner = ANYTHING


def weight_of(value: Any) -> Weight:
    if isinstance(value, str):
        return _text(len(value) if value.isascii() else 4 * len(value))
    if isinstance(value, bytes):
        return _text(len(value))
    if not isinstance(value, dict | list):
        return SCALAR
    inner: Weight | None = None
    size = 0
    for entry in [*value.keys(), *value.values()] if isinstance(value, dict) else value:
        weight = weight_of(entry)
        size += weight.size + _ENTRY
        inner = weight if inner is None else _either(inner, weight)
    return Weight(size, len(value), inner, sized=True)


def check_cost(root: Message, references: Mapping[int, tuple[str, ...]], data: Mapping[str, Any] | None) -> None:
    """Raises `TooCostly`. Without data, it does so only for what is too costly whatever it is given."""
    estimate = _Estimate(references, data)
    estimate.weigh(root, {}, 1)


class _Estimate:
    def __init__(self, references: Mapping[int, tuple[str, ...]], data: Mapping[str, Any] | None) -> None:
        self.references = references
        self.data = data
        self.work = 0

    def spend(self, steps: int, times: int) -> None:
        self.work += steps * times
        if self.work > WORK_MAX:
            raise TooCostly(f"reads too much data: more than {WORK_MAX} steps of work")

    def made(self, weight: Weight, times: int) -> Weight:
        if weight.size > SIZE_MAX:
            raise TooCostly(f"makes too much data: a value of more than {SIZE_MAX} bytes on the way to its answer")
        self.spend(1 + weight.size // _BYTES_A_STEP, times)
        return weight

    def weigh(self, expr: Message, names: Mapping[str, Sort], times: int) -> Sort:
        """`times` is how often the loops around it evaluate it at most."""
        self.spend(1, times)
        for inner in expr.messages():
            match inner.shape:
                case "constant":
                    return _literal(inner)
                case "name":
                    return self._name(inner.text(1), names)
                case "select":
                    operand = self.weigh(_part(inner, 1), names, times)
                    return SCALAR if inner.number(3) else _entry(operand, inner.text(2))
                case "call":
                    return self._call(expr.number(2), inner, names, times)
                case "list":
                    entries = [_weight(self.weigh(message, names, times)) for message in inner.messages(1)]
                    return self.made(_gathered(entries), times)
                case "struct":
                    parts = [part for entry in inner.messages(2) for part in entry.messages()]
                    return self.made(_gathered([_weight(self.weigh(part, names, times)) for part in parts]), times)
                case "loop":
                    return self._loop(inner, names, times)
        return SCALAR

    def _name(self, name: str, names: Mapping[str, Sort]) -> Sort:
        if name in names:
            return names[name]
        if self.data is None or name not in self.data:
            return ANYTHING
        return KnownValue(self.data[name])

    def _call(self, number: int, call: Message, names: Mapping[str, Sort], times: int) -> Sort:
        name = call.text(2)
        parts = [*call.messages(1), *call.messages(3)]
        given = [self.weigh(part, names, times) for part in parts]
        if name == "_+_":
            return self._sum(number, _weight(given[0]), _weight(given[1]), times)
        if name in ("_[_]", "_[?_]", "_?._"):
            return _entry(given[0], _constant(parts[1]))
        if name == "_?_:_":
            return _either(_weight(given[1]), _weight(given[2]))
        if name in _COPIED:  # through Python, entry by entry
            self.spend(_COPIED_STEPS * _weight(given[0]).items, times)
        if name in _SAME:
            return given[0]
        rule = _RULES.get(name)
        if rule is None:
            return SCALAR
        work, result = rule([_weight(sort) for sort in given], given)
        self.spend(work, times)
        if isinstance(result, KnownValue):
            self.made(result.weight, times)
            return result
        return self.made(result, times)

    def _sum(self, number: int, left: Weight, right: Weight, times: int) -> Weight:
        overloads = self.references.get(number, _SIZED_SUMS)
        if not any(overload in _SIZED_SUMS for overload in overloads) or not (left.sized or right.sized):
            return SCALAR
        return self.made(_joined(left, right), times)

    def _loop(self, loop: Message, names: Mapping[str, Sort], times: int) -> Sort:
        over = self.weigh(_part(loop, 2), names, times)
        source = _weight(over)
        begun = _weight(self.weigh(_part(loop, 4), names, times))
        rounds = min(source.items, ROUNDS_MAX)
        repeated = min(times * rounds, ROUNDS_MAX)
        held, ended = loop.text(3), begun
        if rounds:
            element = source.inner or SCALAR
            gathers = bool(_part(loop, 4).messages(7))
            inside = {**names, loop.text(1): element, held: Weight(0, 0, None, sized=True) if gathers else begun}
            self.weigh(_part(loop, 5), inside, repeated)
            step = _weight(self.weigh(_part(loop, 6), inside, repeated))
            if gathers:  # each round adds to a copy of what the rounds before it have gathered
                added = Weight(rounds * step.size, rounds * step.items, step.inner, sized=True)
                ended = self.made(_joined(begun, added), times)
                self.spend(added.items // 2, repeated)
            else:
                ended = _either(begun, step)
        return self.weigh(_part(loop, 7), {**names, held: ended}, times)


# ---- sizes of results


def _weight(sort: Sort) -> Weight:
    return sort.weight if isinstance(sort, KnownValue) else sort


def _text(size: int) -> Weight:
    return Weight(size, size, None, sized=True)


def _either(weight: Weight, other: Weight) -> Weight:
    """At least as large as both."""
    if weight is other or other is SCALAR:
        return weight if weight.sized else SCALAR
    if weight is SCALAR:
        return other
    inner = (
        weight.inner
        if other.inner is None
        else other.inner
        if weight.inner is None
        else _inner(weight.inner, other.inner)
    )
    return Weight(
        max(weight.size, other.size), max(weight.items, other.items), inner, sized=weight.sized or other.sized
    )


def _inner(weight: Weight, other: Weight) -> Weight:
    return ANYTHING if weight is ANYTHING or other is ANYTHING else _either(weight, other)


def _joined(weight: Weight, other: Weight) -> Weight:
    larger = _either(weight, other)
    return Weight(weight.size + other.size, weight.items + other.items, larger.inner, sized=True)


def _gathered(entries: list[Weight]) -> Weight:
    inner: Weight | None = None
    for entry in entries:
        inner = entry if inner is None else _inner(inner, entry)
    return Weight(sum(entry.size + _ENTRY for entry in entries), len(entries), inner, sized=True)


def _entry(sort: Sort, key: Any) -> Sort:
    if not isinstance(sort, KnownValue):
        return sort.inner or SCALAR
    value = sort.value
    if isinstance(value, dict) and isinstance(key, str):
        return KnownValue(value[key]) if key in value else SCALAR
    if isinstance(value, list) and isinstance(key, int):
        return KnownValue(value[key]) if 0 <= key < len(value) else SCALAR
    return sort.weight.inner or SCALAR


def _constant(expr: Message) -> Any:
    constant = expr.message(3)
    if constant is None:
        return None
    return constant.text(6) if constant.has(6) else constant.number(3) if constant.has(3) else None


def _literal(constant: Message) -> Sort:
    for field, value in constant.fields:
        if field in (_STRING, _BYTES) and isinstance(value, bytes):
            return KnownValue(value.decode()) if field == _STRING else _text(len(value))
    return SCALAR


def _part(message: Message, field: int) -> Message:
    part = message.message(field)
    assert part is not None, "a checked tree is complete"
    return part


# ---- functions: how much work, and how large the answer

Rule = Callable[[list[Weight], list[Sort]], tuple[int, Sort]]


def _steps(size: int) -> int:
    return 1 + size // _BYTES_A_STEP


def _compare(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    smaller = min(given, key=lambda weight: weight.size)
    return 1 + smaller.items + _steps(smaller.size), SCALAR


def _search(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return sum(_steps(weight.size) for weight in given), SCALAR


def _member(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return given[1].items + _steps(given[1].size), SCALAR


def _match(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return _steps(given[0].size) + 100 * given[-1].size, SCALAR


def _written(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return _steps(given[0].size), _text(max(given[0].size, _NUMBER_CHARACTERS))


def _position(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return given[0].size * _steps(given[1].size), SCALAR


def _character(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return given[0].size, _text(4)


def _same_text(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return given[0].size, _text(given[0].size)


def _joined_text(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    separator = given[1].size if len(given) > 1 else 0
    return given[0].items, _text(given[0].size + given[0].items * separator)


def _replaced(given: list[Weight], sorts: list[Sort]) -> tuple[int, Sort]:
    old = sorts[1].value if isinstance(sorts[1], KnownValue) else None
    length = max(1, len(old)) if isinstance(old, str) else 1
    times = given[0].items // length + 1
    return given[0].size, _text(given[0].size + times * given[2].size)


def _split(given: list[Weight], sorts: list[Sort]) -> tuple[int, Sort]:
    text = sorts[0].value if isinstance(sorts[0], KnownValue) else None
    separator = sorts[1].value if isinstance(sorts[1], KnownValue) else None
    if isinstance(text, str) and isinstance(separator, str) and len(text) < SIZE_MAX // _ENTRY:
        parts = text.split(separator) if separator else list(text)
        return given[0].size, KnownValue(parts)
    items = given[0].items + 1
    return given[0].size, Weight(given[0].size + items * _ENTRY, items, _text(given[0].size), sized=True)


def _default(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return 1, _either(given[0], given[1])


def _first(given: list[Weight], _: list[Sort]) -> tuple[int, Sort]:
    return 1, given[0].inner or SCALAR


# What gives its first argument as it is.
_COPIED, _COPIED_STEPS = (ORDERED, SOME), 4
_SAME = (*_COPIED, "@not_strictly_false", "dyn", "optional.of", "optional.ofNonZeroValue", "value")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"), _compare),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "size"), _search),
    "@in": _member,
    "matches": _match,
    **dict.fromkeys(("string", "bytes"), _written),
    **dict.fromkeys(("indexOf", "lastIndexOf"), _position),
    "charAt": _character,
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "substring", "reverse"), _same_text),
    "join": _joined_text,
    "replace": _replaced,
    "split": _split,
    **dict.fromkeys(("orValue", "or"), _default),
    **dict.fromkeys(("first", "last"), _first),
}
_SCALARS = (
    "_&&_", "_||_", "!_", "-_", "_-_", "_*_", "_/_", "_%_", "bool", "double", "duration", "int", "timestamp", "type",
    "uint", "hasValue", "optional.none",
)  # fmt: skip
KNOWN_FUNCTIONS = frozenset((*_SAME, *_RULES, *_SCALARS, "_+_", "_[_]", "_[?_]", "_?._", "_?_:_"))
"""What this page can weigh. Functions of a time (`getHours`) have answers of one number."""
