"""Due times: what a rhythm is, the plain ones, and the dates that count for all of them.

A rhythm answers with instants in milliseconds since 1970, UTC. A pattern is a rhythm of readings of a
clock on the wall, in seconds; which instants those are is for a zone to say (`local_time`), and without
one the clock shows UTC.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.dates import (
    DAY_MAX,
    DAY_MIN,
    DAY_S,
    MS_END,
    MS_START,
    civil,
    day_number,
    highest_until,
    lowest_from,
    month_length,
    weekday,
)
from tickwork.core.calendar.zones import FOREVER_S, Zone

EVERY_MS_MIN = 1_000
EVERY_MS_MAX = 100 * 366 * DAY_S * 1_000
EVERY_SEVENTH = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28 | 1 << 35
WORKDAYS = 0b0111110  # Monday to Friday; Sunday is bit 0
ALL_DAYS = (1 << 32) - 2
FAR_S = 2 * DAY_S  # more than clocks were ever changed at once: Samoa left out a day
DATES_TRIED_MAX = 5_000  # in a row that do not count: then a rhythm is taken to have ended


class Recurrence(ABC):
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

    def back_between(self, start_ms: int, end_ms: int) -> Iterator[int]:
        """The same times, the last one first."""
        due_ms = self.prev_ms(end_ms)
        while due_ms is not None and due_ms >= start_ms:
            yield due_ms
            due_ms = self.prev_ms(due_ms)


class LocalRecurrence(Recurrence):
    """Readings of a clock: seconds since 1970 as that clock counts them. Without a zone, the clock is UTC's."""

    __slots__ = ()

    @property
    @abstractmethod
    def steady(self) -> bool:
        """Does it go on by elapsed time when clocks are changed, as every hour does and 02:30 does not?"""

    @property
    @abstractmethod
    def any_hour(self) -> bool:
        """Is no hour of the day left out by name? Then nothing is lost with an hour that does not exist."""

    @abstractmethod
    def next_s(self, after_s: int) -> int | None:
        """The first reading strictly after."""

    @abstractmethod
    def prev_s(self, before_s: int) -> int | None:
        """The last reading strictly before."""

    def next_ms(self, after_ms: int) -> int | None:
        time_s = self.next_s(after_ms // 1000)
        return None if time_s is None else time_s * 1000

    def prev_ms(self, before_ms: int) -> int | None:
        time_s = self.prev_s(-(-before_ms // 1000))
        return None if time_s is None else time_s * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(Recurrence):
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


@dataclass(frozen=True, slots=True)
class Once(Recurrence):
    at_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        return self.at_ms if after_ms < self.at_ms else None

    def prev_ms(self, before_ms: int) -> int | None:
        return self.at_ms if before_ms > self.at_ms else None


@dataclass(frozen=True, slots=True)
class Never(Recurrence):
    """No due times: something else than the clock fires."""

    def next_ms(self, after_ms: int) -> int | None:  # noqa: ARG002 - the signature of all recurrences
        return None

    def prev_ms(self, before_ms: int) -> int | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class BoundedRecurrence(Recurrence):
    """Only from `start_ms` on, and before `end_ms`."""

    rhythm: Recurrence
    start_ms: int
    end_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        due_ms = self.rhythm.next_ms(max(after_ms, self.start_ms - 1))
        return due_ms if due_ms is not None and due_ms < self.end_ms else None

    def prev_ms(self, before_ms: int) -> int | None:
        due_ms = self.rhythm.prev_ms(min(before_ms, self.end_ms))
        return due_ms if due_ms is not None and due_ms >= self.start_ms else None


# ---- dates that count


class Calendar:
    """Which dates count. Excluded: never. Included: always. Else no holiday, and a business day if required.

    Dates are kept month by month as bits, so that a whole month is decided at once.
    """

    __slots__ = ("business", "excluded", "holidays", "included", "included_months")

    def __init__(
        self, *, business: bool = False, included: Iterable[int] = (), excluded: Iterable[int] = (),
        holidays: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self.business = business
        self.included = by_month(included)
        self.excluded = by_month(excluded)
        self.holidays = by_month(holidays)
        self.included_months = 0
        for key in self.included:
            self.included_months |= 1 << key % 12 + 1

    def counted(self, year: int, month: int, days: int) -> int:
        """Of these days of a month those that count, and those that are included in any case."""
        key = year * 12 + month - 1
        if self.business:
            days &= on_weekdays(year, month, WORKDAYS)
        if self.holidays:
            days &= ~self.holidays.get(key, 0)
        if self.included:
            days |= self.included.get(key, 0)
        return days & ~self.excluded.get(key, 0)

    def has(self, day: int) -> bool:
        year, month, day_of_month = civil(day)
        return bool(self.counted(year, month, 1 << day_of_month) >> day_of_month & 1)

    def day_from(self, day: int) -> int | None:
        """The first date that counts, from this one on."""
        year, month, day_of_month = civil(max(day, DAY_MIN))
        while day <= DAY_MAX:
            days = self.counted(year, month, (2 << month_length(year, month)) - 2)
            if (match := lowest_from(days, day_of_month)) >= 0:
                return day_number(year, month, match)
            year, month, day_of_month = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
            day = day_number(year, month, 1)
        return None

    def day_until(self, day: int) -> int | None:
        """The last date that counts, up to this one."""
        year, month, day_of_month = civil(min(day, DAY_MAX))
        while day >= DAY_MIN:
            days = self.counted(year, month, (2 << month_length(year, month)) - 2)
            if (match := highest_until(days, day_of_month)) >= 0:
                return day_number(year, month, match)
            year, month, day_of_month = (year, month - 1, 31) if month > 1 else (year - 1, 12, 31)
            day = day_number(year, month, 1)
        return None


def by_month(days: Iterable[int]) -> Mapping[int, int]:
    months: dict[int, int] = {}
    for day in days:
        year, month, day_of_month = civil(day)
        key = year * 12 + month - 1
        months[key] = months.get(key, 0) | 1 << day_of_month
    return months


def on_weekdays(year: int, month: int, weekdays: int) -> int:
    """The days of a month that are one of these weekdays; days past its end may be set as well."""
    # Weekday w falls on day 1 + (w - first) mod 7, and on every seventh after it.
    first = weekday(day_number(year, month, 1))
    turned = (weekdays >> first | weekdays << 7 - first) & 127
    return turned * EVERY_SEVENTH << 1 & ALL_DAYS


@dataclass(frozen=True, slots=True)
class LocalDateFilter(LocalRecurrence):
    """The readings of a pattern on dates that count."""

    pattern: LocalRecurrence
    calendar: Calendar

    @property
    def steady(self) -> bool:
        return self.pattern.steady

    @property
    def any_hour(self) -> bool:
        return self.pattern.any_hour

    def next_s(self, after_s: int) -> int | None:
        for _ in range(DATES_TRIED_MAX):
            time_s = self.pattern.next_s(after_s)
            if time_s is None or self.calendar.has(time_s // DAY_S):
                return time_s
            if (day := self.calendar.day_from(time_s // DAY_S + 1)) is None:
                return None
            after_s = day * DAY_S - 1
        return None

    def prev_s(self, before_s: int) -> int | None:
        for _ in range(DATES_TRIED_MAX):
            time_s = self.pattern.prev_s(before_s)
            if time_s is None or self.calendar.has(time_s // DAY_S):
                return time_s
            if (day := self.calendar.day_until(time_s // DAY_S - 1)) is None:
                return None
            before_s = (day + 1) * DAY_S
        return None


@dataclass(frozen=True, slots=True)
class DateFilter(Recurrence):
    """The instants of a rhythm whose date in a zone counts."""

    rhythm: Recurrence
    calendar: Calendar
    zone: Zone

    def next_ms(self, after_ms: int) -> int | None:
        for _ in range(DATES_TRIED_MAX):
            time_s = self.rhythm.next_ms(after_ms)
            if time_s is None or self.calendar.has(date := self._date(time_s)):
                return time_s
            day = self.calendar.day_from(date + 1)
            first_s = FOREVER_S if day is None else self.zone.first_s(day * DAY_S)
            # The clock may be set back over midnight before that, to a date that counts.
            period = self.zone.period(time_s // 1000)
            if period.after_s < period.offset_s and period.end_s - time_s // 1000 <= FAR_S:
                first_s = min(first_s, period.end_s)
            after_ms = max(time_s, first_s * 1000 - 1)
        return None

    def prev_ms(self, before_ms: int) -> int | None:
        for _ in range(DATES_TRIED_MAX):
            time_s = self.rhythm.prev_ms(before_ms)
            if time_s is None or self.calendar.has(date := self._date(time_s)):
                return time_s
            day = self.calendar.day_until(date - 1)
            last_s = -FOREVER_S if day is None else self.zone.last_s((day + 1) * DAY_S)
            period = self.zone.period(time_s // 1000)
            if period.before_s > period.offset_s and time_s // 1000 - period.start_s <= FAR_S:
                last_s = max(last_s, period.start_s)
            before_ms = min(time_s, last_s * 1000)
        return None

    def _date(self, at_ms: int) -> int:
        at_s = at_ms // 1000
        return (at_s + self.zone.offset_s(at_s)) // DAY_S
