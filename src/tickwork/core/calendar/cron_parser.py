"""Reading a cron expression: five fields, or six with the seconds first, to sets of small numbers.

Each set is an integer used as a bitset. A refusal names the field and the character where it is wrong.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.stable_hash import spread

CRON_LENGTH_MAX = 1_000
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MACROS = MappingProxyType({
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
})  # fmt: skip
_HASHED = re.compile(r"H(?:\(([0-9]{1,4})-([0-9]{1,4})\))?(?:/([0-9]{1,4}))?")
_LAST_DAY = re.compile(r"L(?:-([0-9]{1,4}))?")
_NEAREST = re.compile(r"([0-9]{1,4})W")
_LAST_WEEKDAY = re.compile(r"([0-9]{1,4}|[A-Z]{3})L")
_NTH_WEEKDAY = re.compile(r"([0-9A-Z]{1,4})#([0-9]{1,4})")


class InvalidCron(Refused):
    """Which field is wrong, and at which character of the whole text, counted from 1."""

    def __init__(self, message: str, *, path: str, field: str, position: int) -> None:
        super().__init__("invalid_cron", f"{field}, character {position}: {message}", path=path)
        self.field = field
        self.position = position


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    alias_of_low: bool = False  # one more value after the last means the first: Sunday is 0 and 7
    hashed_high: int = 0  # H stays below what not every month has

    @property
    def writable_high(self) -> int:
        return self.high + self.alias_of_low


DAY = Field("day of month", 1, 31, hashed_high=28)
WEEKDAY = Field("day of week", 0, 6, WEEKDAYS, alias_of_low=True)
FIELDS = (
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    DAY,
    Field("month", 1, 12, MONTHS),
    WEEKDAY,
)


@dataclass(frozen=True, slots=True)
class ParsedField:
    """What one field allows. All but `plain` are for the two day fields."""

    plain: int = 0
    from_end: int = 0  # L-n: so many days before the last of the month
    nearest: int = 0  # nW: the working day nearest to day n
    last_workday: bool = False  # LW
    last: int = 0  # 5L: the last such weekday of the month
    nth: int = 0  # 5#3: bit 7 * (3 - 1) + 5

    def __or__(self, other: "ParsedField") -> "ParsedField":
        return ParsedField(
            self.plain | other.plain, self.from_end | other.from_end, self.nearest | other.nearest,
            self.last_workday or other.last_workday, self.last | other.last, self.nth | other.nth,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FieldText:
    """The text of one field, and where it starts."""

    field: Field
    text: str
    position: int

    @property
    def unrestricted(self) -> bool:
        """Starts with a star, even with a step: so has cron always read it."""
        return self.text.startswith(("*", "?"))

    @property
    def repeated(self) -> bool:
        """Every so many, not a list of values: a star, or a step."""
        return self.unrestricted or "/" in self.text

    def refusal(self, message: str, *, path: str, shift: int = 0) -> InvalidCron:
        return InvalidCron(message, path=path, field=self.field.name, position=self.position + shift)


def split_fields(text: str, *, path: str) -> list[FieldText]:
    """Each field with its text. A macro is read as what it stands for."""
    if len(text) > CRON_LENGTH_MAX:
        message = f"longer than {CRON_LENGTH_MAX} characters"
        raise InvalidCron(message, path=path, field="expression", position=CRON_LENGTH_MAX + 1)
    words = [(match.group(), match.start() + 1) for match in re.finditer(r"[^ \t]+", text)]
    if words and words[0][0].startswith("@"):
        return _split_macro(words, path=path)
    if len(words) not in (5, 6):
        message = f"five fields are needed, or six with the seconds first; there are {len(words)}"
        raise InvalidCron(message, path=path, field="expression", position=1)
    return [FieldText(field, *word) for field, word in zip(FIELDS[-len(words) :], words, strict=True)]


def _split_macro(words: list[tuple[str, int]], *, path: str) -> list[FieldText]:
    (macro, position), *others = words
    if macro.lower() == "@reboot":
        message = "@reboot has no time; start the workflow when your program starts"
        raise InvalidCron(message, path=path, field="expression", position=position)
    if macro.lower() in MACROS and others:
        word, position = others[0]
        message = f"{shortened(word, 20)!r} stands behind {macro}; a macro is the whole expression"
        raise InvalidCron(message, path=path, field="expression", position=position)
    if macro.lower() not in MACROS:
        message = f"unknown macro; known are {', '.join(MACROS)}"
        raise InvalidCron(message, path=path, field="expression", position=position)
    return split_fields(MACROS[macro.lower()], path=path)


def parse_field(word: FieldText, *, seed: str, path: str) -> ParsedField:
    """The values that a field allows. `H` is a number made of the seed and the field's name."""
    field, at = ParsedField(), 0
    for item in word.text.split(","):
        try:
            field |= _parse_item(word, item.upper(), seed)
        except ValueError as problem:
            raise word.refusal(str(problem), path=path, shift=at) from None
        at += len(item) + 1
    return field


def _parse_item(word: FieldText, item: str, seed: str) -> ParsedField:
    field, special = word.field, None
    if item == "?":
        if field not in (DAY, WEEKDAY) or word.text != "?":
            raise ValueError("'?' stands alone, and only in a day field")
        return ParsedField(_range_bits(field, field.low, field.high, 1))
    if match := _HASHED.fullmatch(item):
        return ParsedField(_hashed_bits(field, seed, *match.groups()))
    if field is DAY:
        special = _special_day(item)
    elif field is WEEKDAY:
        special = _special_weekday(item)
    return special or ParsedField(_item_bits(field, item))


def _special_day(item: str) -> ParsedField | None:
    if item == "LW":
        return ParsedField(last_workday=True)
    if match := _LAST_DAY.fullmatch(item):
        before = _number(match[1], 1, 30, "number of days before the last") if match[1] else 0
        return ParsedField(from_end=1 << before)
    if match := _NEAREST.fullmatch(item):
        return ParsedField(nearest=1 << _number(match[1], 1, 31, "number"))
    return None


def _special_weekday(item: str) -> ParsedField | None:
    if item == "L":
        raise ValueError("'L' needs a weekday here: '5L' is the last Friday of a month")
    if match := _LAST_WEEKDAY.fullmatch(item):
        return ParsedField(last=1 << _value(WEEKDAY, match[1]) % 7)
    if match := _NTH_WEEKDAY.fullmatch(item):
        nth = _number(match[2], 1, 5, "number of a week")
        return ParsedField(nth=1 << 7 * (nth - 1) + _value(WEEKDAY, match[1]) % 7)
    return None


def _hashed_bits(field: Field, seed: str, low: str | None, high: str | None, step: str | None) -> int:
    start, end = field.low, field.hashed_high or field.high
    if low is not None and high is not None:
        start, end = (_number(bound, field.low, field.high, "number") for bound in (low, high))
        if start > end:
            raise ValueError("the range of 'H' starts after its end")
    every = _number(step, 1, end - start + 1, "step") if step else 0
    start += spread((every or end - start + 1) - 1, seed, field.name)
    return _range_bits(field, start, end, every) if every else 1 << start


def _item_bits(field: Field, item: str) -> int:
    """One item of a list: `*`, `5`, `5-10` or `22-2`, each also with `/step`."""
    body, slash, step_text = item.partition("/")
    start_text, dash, end_text = body.partition("-")
    step = _number(step_text, 1, field.high - field.low + 1, "step") if slash else 1
    if body == "*":
        start, end = field.low, field.high
    else:
        start = _value(field, start_text)
        end = _value(field, end_text) if dash else field.high if slash else start
    count = field.high - field.low + 1
    if start > end:  # around the end: 22-2, FRI-MON
        start, end = (start - field.low) % count + field.low, (end - field.low) % count + field.low
        end += count if start > end else 0
    return _range_bits(field, start, end, step)


def _range_bits(field: Field, start: int, end: int, step: int) -> int:
    count = field.high - field.low + 1
    bits = 0
    for at in range(start, end + 1, step):
        bits |= 1 << (at - field.low) % count + field.low
    return bits


def _value(field: Field, text: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    return _number(text, field.low, field.writable_high, "name or number" if field.names else "number")


def _number(text: str, low: int, high: int, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValueError(f"a {what} is missing" if not text else f"{shortened(text, 20)!r} is not a {what}")
    if not low <= int(text) <= high:
        prefix = "a step of " if what == "step" else ""
        raise ValueError(f"{prefix}{int(text)} is not between {low} and {high}")
    return int(text)
