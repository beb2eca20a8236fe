"""Cron: from sets of small numbers to readings of a clock.

Each set is an integer used as a bitset, so that "the next one" is a shift and a look at the lowest bit,
and no search visits a minute. Days are found month by month; the longest search is for 29 February on
one weekday, 40 months of February. An expression that no month of any year can fulfil is refused.
"""

from dataclasses import dataclass, field, replace
from typing import Self

from tickwork.core.calendar.cron_parser import FieldText, ParsedField, parse_field, split_fields
from tickwork.core.calendar.dates import (
    DAY_MAX,
    DAY_MIN,
    DAY_S,
    NO_TIME,
    YEAR_MAX,
    YEAR_MIN,
    civil,
    day_number,
    highest_until,
    lowest_from,
    members,
    month_length,
    time_from,
    time_until,
    weekday,
)
from tickwork.core.calendar.recurrence import Calendar, LocalRecurrence, on_weekdays

EVERY_HOUR, EVERY_MINUTE = (1 << 24) - 1, (1 << 60) - 1
KEPT_MAX = 16
KINDS_OF_YEAR = range(2001, 2029)  # 28 years in a row have every first weekday, with and without a leap day


@dataclass(frozen=True, slots=True, kw_only=True)
class Days:
    """Which days fit: what the fields for day, month and weekday say, and the dates that count."""

    day: ParsedField
    months: int
    weekday: ParsedField
    either: bool  # both day fields are restricted, and a day need only fit one of them
    special: bool  # there is more to ask than plain numbers
    calendar: Calendar | None = None
    # All schedules ask for the same few days, those around the present.
    _days_memo: dict[int, int | None] = field(default_factory=dict, init=False, compare=False, repr=False)
    _months_memo: dict[int, int] = field(default_factory=dict, init=False, compare=False, repr=False)

    @classmethod
    def of(cls, day: ParsedField, months: int, weekday: ParsedField, *, either: bool) -> Self:
        special = any((day.from_end, day.nearest, day.last_workday, weekday.last, weekday.nth))
        return cls(day=day, months=months, weekday=weekday, either=either, special=special)

    def possible(self) -> bool:
        """Is there such a day at all? Every year is like one of those that are tried."""
        weekly = replace(self, calendar=Calendar(business=True) if self.calendar and self.calendar.business else None)
        months = members(self.months)
        return any(weekly.in_month(year, month) for year in KINDS_OF_YEAR for month in months)

    def in_month(self, year: int, month: int) -> int:
        """The days of this month that fit, as a bitset."""
        key, memo = year * 12 + month, self._months_memo
        days = memo.get(key)
        if days is None:
            if len(memo) >= KEPT_MAX:
                memo.clear()
            days = memo[key] = self._decided(year, month)
        return days

    def _decided(self, year: int, month: int) -> int:
        fitting = 0
        if self.months >> month & 1:
            days, weekdays = self.day.plain, on_weekdays(year, month, self.weekday.plain)
            if self.special:
                days |= special_days(self.day, year, month)
                weekdays |= special_weekdays(self.weekday, year, month)
            fitting = days | weekdays if self.either else days & weekdays
            fitting &= (2 << month_length(year, month)) - 2
        return fitting if self.calendar is None else self.calendar.counted(year, month, fitting)

    def first_from(self, day: int) -> int | None:
        """The first day that fits, from this one on."""
        memo = self._days_memo
        if day in memo:
            return memo[day]
        if len(memo) >= KEPT_MAX:
            memo.clear()
        match = memo[day] = self._search_from(day) if day <= DAY_MAX else None
        if match is not None:
            memo[match] = match
        return match

    def last_until(self, day: int) -> int | None:
        """The last day that fits, up to this one."""
        if day < DAY_MIN:
            return None
        months = self._months()
        year, month, day_of_month = civil(min(day, DAY_MAX))
        while year >= YEAR_MIN:
            if months >> month & 1 and (match := highest_until(self.in_month(year, month), day_of_month)) >= 0:
                return day_number(year, month, match)
            day_of_month, month = 31, highest_until(months, month - 1)
            if month < 0:
                year, month = year - 1, highest_until(months, 12)
        return None

    def _search_from(self, day: int) -> int | None:
        months = self._months()
        year, month, day_of_month = civil(max(day, DAY_MIN))
        while year <= YEAR_MAX:
            if months >> month & 1 and (match := lowest_from(self.in_month(year, month), day_of_month)) >= 0:
                return day_number(year, month, match)
            day_of_month, month = 1, lowest_from(months, month + 1)
            if month < 0:
                year, month = year + 1, lowest_from(months, 1)
        return None

    def _months(self) -> int:
        return self.months | self.calendar.included_months if self.calendar is not None else self.months


def special_days(field: ParsedField, year: int, month: int) -> int:
    length = month_length(year, month)
    bits = 0
    for before in members(field.from_end):
        bits |= 1 << length - before if before < length else 0
    for day in members(field.nearest):
        bits |= 1 << nearest_workday(year, month, day) if day <= length else 0
    if field.last_workday:
        bits |= 1 << nearest_workday(year, month, length)
    return bits


def nearest_workday(year: int, month: int, day: int) -> int:
    """Monday to Friday, and never in another month."""
    match weekday(day_number(year, month, day)):
        case 6:
            return day - 1 if day > 1 else 3
        case 0:
            return day + 1 if day < month_length(year, month) else day - 2
    return day


def special_weekdays(field: ParsedField, year: int, month: int) -> int:
    length = month_length(year, month)
    first = weekday(day_number(year, month, 1))
    bits = 0
    for target in members(field.last):
        day = 1 + (target - first) % 7 + 28
        bits |= 1 << (day if day <= length else day - 7)
    for member in members(field.nth):
        nth, target = divmod(member, 7)
        bits |= 1 << 1 + (target - first) % 7 + 7 * nth
    return bits


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron(LocalRecurrence):
    text: str
    seconds: int
    minutes: int
    hours: int
    days: Days
    by_elapsed_time: bool
    in_any_hour: bool

    @classmethod
    def parse(cls, text: str, *, path: str, seed: str = "") -> Self:
        """Five fields, or six with the seconds first, or a macro such as @daily."""
        words = split_fields(text, path=path)
        fields = [parse_field(word, seed=seed, path=path) for word in words]
        *times, day, month, of_week = fields
        seconds, minutes, hours = [t.plain for t in times] if len(times) == 3 else [1, *(t.plain for t in times)]
        either = not words[-3].unrestricted and not words[-1].unrestricted
        days = Days.of(day, month.plain, of_week, either=either)
        if not days.possible():
            raise _hopeless(words, days).refusal("no such day in any of these months", path=path)
        any_hour = words[-4].unrestricted or hours == EVERY_HOUR
        return cls(
            text=text, seconds=seconds, minutes=minutes, hours=hours, days=days, in_any_hour=any_hour,
            by_elapsed_time=any_hour or words[-5].repeated or minutes == EVERY_MINUTE,
        )  # fmt: skip

    @property
    def steady(self) -> bool:
        return self.by_elapsed_time

    @property
    def any_hour(self) -> bool:
        return self.in_any_hour

    def on(self, calendar: Calendar) -> Self:
        """The same times on those of its days that count, and on included dates."""
        return replace(self, days=replace(self.days, calendar=calendar))

    def next_s(self, after_s: int) -> int | None:
        day, second = divmod(max(after_s + 1, DAY_MIN * DAY_S), DAY_S)
        match = self.days.first_from(day)
        if match == day:
            time = time_from(self.hours, self.minutes, self.seconds, second)
            if time != NO_TIME:
                return day * DAY_S + time
            match = self.days.first_from(day + 1)
        return None if match is None else match * DAY_S + time_from(self.hours, self.minutes, self.seconds, 0)

    def prev_s(self, before_s: int) -> int | None:
        day, second = divmod(min(before_s - 1, DAY_MAX * DAY_S + DAY_S - 1), DAY_S)
        match = self.days.last_until(day)
        if match == day:
            time = time_until(self.hours, self.minutes, self.seconds, second)
            if time != NO_TIME:
                return day * DAY_S + time
            match = self.days.last_until(day - 1)
        last = DAY_S - 1
        return None if match is None else match * DAY_S + time_until(self.hours, self.minutes, self.seconds, last)


def _hopeless(words: list[FieldText], days: Days) -> FieldText:
    """The field to name when no day fits: the weekdays only where the other two leave days over."""
    anyday = replace(days, weekday=ParsedField(plain=127), either=False)
    return words[-1] if anyday.possible() else words[-3]
