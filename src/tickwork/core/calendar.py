"""Cron and intervals to due times: instants in milliseconds since 1970, UTC.

A cron expression is six sets of small numbers, each one an integer used as a bitset, so that
"the next one" is a shift and a look at the lowest bit, and no search visits a minute. Days are
found month by month; the longest search is for 29 February on one weekday, 40 months of February.
Dates are counted in days since 1970 by the proleptic Gregorian calendar; no library is asked.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

from tickwork.core.errors import Refused

CRON_LENGTH_MAX = 1_000
YEAR_MIN, YEAR_MAX = 1, 9999
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
EVERY_MS_MIN = 1_000
EVERY_MS_MAX = 100 * 366 * DAY_S * 1_000

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
DAYS_OF_MONTH = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
EVERY_SEVENTH = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28 | 1 << 35


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

    @property
    def writable_high(self) -> int:
        return self.high + self.alias_of_low


FIELDS = (
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, MONTHS),
    Field("day of week", 0, 6, WEEKDAYS, alias_of_low=True),
)


class Rhythm(ABC):
    """Anything with due times."""

    __slots__ = ()

    @abstractmethod
    def next_ms(self, after_ms: int) -> int | None:
        """The first due time strictly after. None: there is none before the year 10000."""

    @abstractmethod
    def prev_ms(self, before_ms: int) -> int | None:
        """The last due time strictly before. None: there is none since the year 1."""

    def between(self, start_ms: int, end_ms: int) -> Iterator[int]:
        """Every due time from `start_ms` on, and before `end_ms`."""
        due_ms = self.next_ms(start_ms - 1)
        while due_ms is not None and due_ms < end_ms:
            yield due_ms
            due_ms = self.next_ms(due_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(Rhythm):
    """Every so often, counted from the anchor in both directions."""

    every_ms: int
    anchor_ms: int = 0

    @classmethod
    def parse(cls, every_ms: object, *, anchor_ms: int = 0, path: str) -> Self:
        if type(every_ms) is not int:  # a bool is no number of milliseconds either
            raise Refused("invalid_interval", "an interval is a whole number of milliseconds", path=path)
        if not EVERY_MS_MIN <= every_ms <= EVERY_MS_MAX:
            message = f"an interval is at least {EVERY_MS_MIN} ms and at most {EVERY_MS_MAX} ms"
            raise Refused("invalid_interval", message, path=path)
        return cls(every_ms=every_ms, anchor_ms=anchor_ms)

    def next_ms(self, after_ms: int) -> int | None:
        due_ms = after_ms + self.every_ms - (after_ms - self.anchor_ms) % self.every_ms
        return due_ms if due_ms < MS_END else None

    def prev_ms(self, before_ms: int) -> int | None:
        due_ms = before_ms - 1 - (before_ms - 1 - self.anchor_ms) % self.every_ms
        return due_ms if due_ms >= MS_START else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(Rhythm):
    text: str
    seconds: int
    minutes: int
    hours: int
    days: int
    months: int
    weekdays: int
    either_day: bool  # both day fields are restricted, and a day need only fit one of them

    @classmethod
    def parse(cls, text: str, *, path: str) -> Self:
        """Five fields, or six with the seconds first, or a macro such as @daily."""
        parts = split_fields(text, path=path)
        sets = [parse_field(*part, path=path) for part in parts]
        *_, (_, day_text, _), _, (_, weekday_text, _) = parts
        seconds, minutes, hours, days, months, weekdays = sets if len(sets) == 6 else [1, *sets]
        # A field that starts with a star is unrestricted, even with a step: so has cron always read it.
        either_day = not day_text.startswith("*") and not weekday_text.startswith("*")
        if not either_day and not any_day_exists(days, months):
            field, _, position = parts[-3]
            raise InvalidCron("no such day in any of these months", path=path, field=field.name, position=position)
        return cls(
            text=text, seconds=seconds, minutes=minutes, hours=hours, days=days, months=months, weekdays=weekdays,
            either_day=either_day,
        )  # fmt: skip

    def next_ms(self, after_ms: int) -> int | None:
        day, second = divmod(max(after_ms // 1000 + 1, DAY_MIN * DAY_S), DAY_S)
        if self._has_day(day) and (time := self._time_from(second)) >= 0:
            return (day * DAY_S + time) * 1000
        found = self._day_from(day + 1)
        return None if found is None else (found * DAY_S + self._time_from(0)) * 1000

    def prev_ms(self, before_ms: int) -> int | None:
        day, second = divmod(min(-(-before_ms // 1000) - 1, DAY_MAX * DAY_S + DAY_S - 1), DAY_S)
        if self._has_day(day) and (time := self._time_until(second)) >= 0:
            return (day * DAY_S + time) * 1000
        found = self._day_until(day - 1)
        return None if found is None else (found * DAY_S + self._time_until(DAY_S - 1)) * 1000

    def _time_from(self, second: int) -> int:
        """The first second of a day that fits, from this one on; -1 if there is none."""
        hour, minute, second = second // HOUR_S, second // MINUTE_S % 60, second % 60
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := lowest_from(self.seconds, second)) >= 0:
                return hour * HOUR_S + minute * MINUTE_S + found
            if (found := lowest_from(self.minutes, minute + 1)) >= 0:
                return hour * HOUR_S + found * MINUTE_S + lowest_from(self.seconds, 0)
        if (found := lowest_from(self.hours, hour + 1)) >= 0:
            return found * HOUR_S + lowest_from(self.minutes, 0) * MINUTE_S + lowest_from(self.seconds, 0)
        return -1

    def _time_until(self, second: int) -> int:
        """The last second of a day that fits, up to this one; -1 if there is none."""
        hour, minute, second = second // HOUR_S, second // MINUTE_S % 60, second % 60
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := highest_until(self.seconds, second)) >= 0:
                return hour * HOUR_S + minute * MINUTE_S + found
            if (found := highest_until(self.minutes, minute - 1)) >= 0:
                return hour * HOUR_S + found * MINUTE_S + highest_until(self.seconds, 59)
        if (found := highest_until(self.hours, hour - 1)) >= 0:
            return found * HOUR_S + highest_until(self.minutes, 59) * MINUTE_S + highest_until(self.seconds, 59)
        return -1

    def _has_day(self, day: int) -> bool:
        if not DAY_MIN <= day <= DAY_MAX:
            return False
        year, month, day_of_month = civil(day)
        return bool(self.months >> month & 1 and self._days_in(year, month) >> day_of_month & 1)

    def _day_from(self, day: int) -> int | None:
        if day > DAY_MAX:
            return None
        year, month, day_of_month = civil(max(day, DAY_MIN))
        while year <= YEAR_MAX:
            if self.months >> month & 1 and (found := lowest_from(self._days_in(year, month), day_of_month)) >= 0:
                return day_number(year, month, found)
            day_of_month, month = 1, lowest_from(self.months, month + 1)
            if month < 0:
                year, month = year + 1, lowest_from(self.months, 1)
        return None

    def _day_until(self, day: int) -> int | None:
        if day < DAY_MIN:
            return None
        year, month, day_of_month = civil(min(day, DAY_MAX))
        while year >= YEAR_MIN:
            if self.months >> month & 1 and (found := highest_until(self._days_in(year, month), day_of_month)) >= 0:
                return day_number(year, month, found)
            day_of_month, month = 31, highest_until(self.months, month - 1)
            if month < 0:
                year, month = year - 1, highest_until(self.months, 12)
        return None

    def _days_in(self, year: int, month: int) -> int:
        """The days of this month that fit, as a bitset."""
        first = weekday(day_number(year, month, 1))
        # Weekday w falls on day 1 + (w - first) mod 7, and on every seventh after it.
        turned = (self.weekdays >> first | self.weekdays << 7 - first) & 127
        on_weekdays = turned * EVERY_SEVENTH << 1
        fitting = self.days | on_weekdays if self.either_day else self.days & on_weekdays
        return fitting & (2 << month_length(year, month)) - 2


def split_fields(text: str, *, path: str) -> list[tuple[Field, str, int]]:
    """Each field with its text and where it starts. A macro is read as what it stands for."""
    if len(text) > CRON_LENGTH_MAX:
        message = f"longer than {CRON_LENGTH_MAX} characters"
        raise InvalidCron(message, path=path, field="expression", position=CRON_LENGTH_MAX + 1)
    words = [(match.group(), match.start() + 1) for match in re.finditer(r"[^ \t]+", text)]
    if words and words[0][0].startswith("@"):
        return split_macro(words, path=path)
    if len(words) not in (5, 6):
        message = f"five fields are needed, or six with the seconds first; there are {len(words)}"
        raise InvalidCron(message, path=path, field="expression", position=1)
    return [(field, *word) for field, word in zip(FIELDS[-len(words) :], words, strict=True)]


def split_macro(words: list[tuple[str, int]], *, path: str) -> list[tuple[Field, str, int]]:
    (macro, position), *others = words
    if macro.lower() not in MACROS or others:
        message = f"unknown macro; known are {', '.join(MACROS)}"
        raise InvalidCron(message, path=path, field="expression", position=position)
    return split_fields(MACROS[macro.lower()], path=path)


def parse_field(field: Field, text: str, position: int, *, path: str) -> int:
    """The values that a field allows, as a bitset."""
    bits = 0
    for item in text.split(","):
        try:
            bits |= item_bits(field, item)
        except ValueError as problem:
            raise InvalidCron(str(problem), path=path, field=field.name, position=position) from None
        position += len(item) + 1
    return bits


def item_bits(field: Field, item: str) -> int:
    """One item of a list: `*`, `5`, `5-10` or `22-2`, each also with `/step`."""
    body, slash, step_text = item.partition("/")
    start_text, dash, end_text = body.partition("-")
    step = number(step_text, 1, field.high - field.low + 1, "step") if slash else 1
    if body == "*":
        start, end = field.low, field.high
    else:
        start = value(field, start_text)
        end = value(field, end_text) if dash else field.high if slash else start
    count = field.high - field.low + 1
    if start > end:  # around the end: 22-2, FRI-MON
        start, end = (start - field.low) % count + field.low, (end - field.low) % count + field.low
        end += count if start > end else 0
    return sum_bits((at - field.low) % count + field.low for at in range(start, end + 1, step))


def value(field: Field, text: str) -> int:
    if text.upper() in field.names:
        return field.names.index(text.upper()) + field.low
    return number(text, field.low, field.writable_high, "name or number" if field.names else "number")


def number(text: str, low: int, high: int, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValueError(f"a {what} is missing" if not text else f"{text[:20]!r} is not a {what}")
    if not low <= int(text) <= high:
        raise ValueError(f"{int(text)} is not between {low} and {high}")
    return int(text)


def sum_bits(values: Iterator[int]) -> int:
    bits = 0
    for at in values:
        bits |= 1 << at
    return bits


def any_day_exists(days: int, months: int) -> bool:
    """29 February falls on every weekday sooner or later, so weekdays rule nothing out."""
    first = lowest_from(days, 1)
    return any(months >> month & 1 and first <= month_length(4, month) for month in range(1, 13))


def lowest_from(bits: int, low: int) -> int:
    """The lowest member not below `low`, or -1."""
    bits = bits >> low << low
    return (bits & -bits).bit_length() - 1


def highest_until(bits: int, high: int) -> int:
    """The highest member not above `high`, or -1."""
    return (bits & (2 << high) - 1).bit_length() - 1 if high >= 0 else -1


def month_length(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):
        return 29
    return DAYS_OF_MONTH[month]


def weekday(day: int) -> int:
    return (day + 4) % 7  # 1970 began on a Thursday; Sunday is 0


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1970. A year is taken to begin in March, so that the leap day is its last."""
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of month: `day_number` backwards."""
    era, day_of_era = divmod(day + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


DAY_MIN, DAY_MAX = day_number(YEAR_MIN, 1, 1), day_number(YEAR_MAX, 12, 31)
MS_START, MS_END = DAY_MIN * DAY_S * 1000, (DAY_MAX + 1) * DAY_S * 1000
