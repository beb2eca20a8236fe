"""The last line of a zone's file: in which way its clocks change every year from then on.

`CET-1CEST,M3.5.0,M10.5.0/3` says: one hour east of Greenwich, two in summer, which begins on the last
Sunday of March at 02:00 and ends on the last one of October at 03:00, each by the clock before it.
"""

import re
from dataclasses import dataclass

from tickwork.core.calendar.dates import DAY_S, HOUR_S, MINUTE_S, day_number, is_leap, month_length, weekday

_NAME = r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)"
_OFFSET = r"([+-]?[0-9]{1,3}(?::[0-9]{1,2}){0,2})"
_DAY = r"(J[0-9]{1,3}|[0-9]{1,3}|M[0-9]{1,2}\.[1-5]\.[0-6])"
_RULE = re.compile(rf"{_NAME}{_OFFSET}(?:{_NAME}{_OFFSET}?,{_DAY}(?:/{_OFFSET})?,{_DAY}(?:/{_OFFSET})?)?")


@dataclass(frozen=True, slots=True)
class Transition:
    """On which day of a year, and how many seconds after its midnight."""

    day: str
    time_s: int

    def local_s(self, year: int) -> int:
        return self._day_in(year) * DAY_S + self.time_s

    def _day_in(self, year: int) -> int:
        if self.day[0] == "M":
            month, week, day_of_week = (int(part) for part in self.day[1:].split("."))
            first = day_number(year, month, 1)
            day = 1 + (day_of_week - weekday(first)) % 7 + (week - 1) * 7
            return first + (day if day <= month_length(year, month) else day - 7) - 1
        start = day_number(year, 1, 1)
        if self.day[0] == "J":  # 29 February is never counted
            day = int(self.day[1:])
            return start + day - 1 + (is_leap(year) and day >= 60)
        return start + int(self.day)


@dataclass(frozen=True, slots=True)
class PosixRule:
    standard_s: int
    summer_s: int = 0
    begins: Transition | None = None
    ends: Transition | None = None

    def changes(self, year: int) -> list[tuple[int, int]]:
        """When the clocks change in this year, in UTC, and the offset from then on."""
        if self.begins is None or self.ends is None:
            return []
        begins = (self.begins.local_s(year) - self.standard_s, self.summer_s)
        ends = (self.ends.local_s(year) - self.summer_s, self.standard_s)
        return [begins, ends] if begins[0] < ends[0] else [ends, begins]


def parse_rule(text: str) -> PosixRule:
    """Parse a POSIX TZ rule. Raises ValueError if the text is not one."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a rule for a zone")
    standard, summer, begins, begins_time, ends, ends_time = match.groups()
    standard_s = -_seconds(standard)  # POSIX counts towards the west
    if begins is None:
        return PosixRule(standard_s)
    summer_s = -_seconds(summer) if summer else standard_s + HOUR_S
    return PosixRule(
        standard_s, summer_s, Transition(begins, _time_s(begins_time)), Transition(ends, _time_s(ends_time))
    )


def _time_s(text: str | None) -> int:
    return _seconds(text) if text else 2 * HOUR_S


def _seconds(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")]
    return sign * sum(part * unit for part, unit in zip(parts, (HOUR_S, MINUTE_S, 1), strict=False))
