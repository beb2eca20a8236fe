"""Recurrence rules: from the parts of a rule to readings of a clock, without walking from its start.

The days of a rule are decided a month at a time, as bits; whether a day's period is one of those that
INTERVAL keeps is a remainder. So any moment is as near as any other. COUNT is turned into the
last reading when the rule is set. Every search ends: a rule that is not due within 200 years, 120 periods
of BYSETPOS or 3,000 tries of a time of day counts as never due.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

from tickwork.core.calendar.dates import (
    DAY_MAX,
    DAY_S,
    HOUR_S,
    MINUTE_S,
    NO_TIME,
    YEAR_MAX,
    bits_of,
    civil,
    day_number,
    highest_until,
    is_leap,
    lowest_from,
    members,
    month_length,
    time_from,
    time_until,
    weekday,
)
from tickwork.core.calendar.recurrence import LocalRecurrence, on_weekdays
from tickwork.core.calendar.rrule_parser import (
    DAILY,
    HOURLY,
    MINUTELY,
    MONTHLY,
    SECONDLY,
    WEEKLY,
    YEARLY,
    InvalidRule,
    RuleText,
    read_rule,
)
from tickwork.core.calendar.zones import FOREVER_S, Zone

MONTHS_TRIED_MAX = 200 * 12
DAYS_AHEAD_MAX = 200 * 366
PERIODS_TRIED_MAX = 120
TIMES_TRIED_MAX = 3_000
UNIT_S = {SECONDLY: 1, MINUTELY: MINUTE_S, HOURLY: HOUR_S}
EVERY_MONTH = (1 << 13) - 2
EVERY_HOUR = (1 << 24) - 1


def parse_rrule(text: str, *, zone: Zone, start_ms: int | None = None, path: str) -> "Rule":
    """Parse a rule with its DTSTART, or with `start_ms` instead of one."""
    rule = compiled(read_rule(text, zone=zone, start_ms=start_ms, path=path))
    count = rule.count
    last_s = rule.from_s - 1
    for number in range(count or 1):
        time_s = rule.next_s(last_s)
        if time_s is None and number == 0:
            raise InvalidRule("the rule is never due", path=path)
        if time_s is None:
            break
        last_s = time_s
    return replace(rule, until_s=last_s) if count else rule


class NthWeekday(NamedTuple):
    """A weekday, and the how-manieth it is; 0: every one."""

    nth: int
    weekday: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(LocalRecurrence):
    frequency: int
    start_s: int
    from_s: int  # the first reading that counts
    start_at_s: int  # the instant of the start
    until_at_s: int  # the instant after which nothing is due
    interval: int
    count: int | None
    until_s: int
    week_start: int
    months: int
    days_of_month: tuple[int, ...]
    days_of_year: tuple[int, ...]
    weeks: tuple[int, ...]
    weekdays: int
    numbered: tuple[NthWeekday, ...]
    of_year: bool  # numbered weekdays are counted in the year, else in the month
    positions: tuple[int, ...]
    hours: int
    minutes: int
    seconds: int

    @property
    def steady(self) -> bool:
        return self.frequency <= HOURLY

    @property
    def any_hour(self) -> bool:
        return self.frequency <= HOURLY and self.hours == EVERY_HOUR

    def next_s(self, after_s: int) -> int | None:
        after_s = max(after_s, self.from_s - 1)
        time_s = self._next_position(after_s) if self.positions else self._next_time(after_s)
        return time_s if time_s is not None and time_s <= self.until_s else None

    def prev_s(self, before_s: int) -> int | None:
        before_s = min(before_s, self.until_s + 1)
        time_s = self._prev_position(before_s) if self.positions else self._prev_time(before_s)
        return time_s if time_s is not None and time_s >= self.from_s else None

    # ---- without BYSETPOS: day by day

    def _next_time(self, after_s: int) -> int | None:
        day, second = divmod(after_s + 1, DAY_S)
        tries = SearchBudget(TIMES_TRIED_MAX)
        found_day = self._day_from(day)
        while found_day is not None and tries.left > 0 and found_day - day < DAYS_AHEAD_MAX:
            time = self._time_from(found_day, second if found_day == day else 0, tries)
            if time != NO_TIME:
                return found_day * DAY_S + time
            found_day = self._day_from(found_day + self._days_to_block(found_day))
        return None

    def _prev_time(self, before_s: int) -> int | None:
        day, second = divmod(before_s - 1, DAY_S)
        tries = SearchBudget(TIMES_TRIED_MAX)
        found_day = self._day_until(day)
        while found_day is not None and tries.left > 0:
            time = self._time_until(found_day, second if found_day == day else DAY_S - 1, tries)
            if time != NO_TIME:
                return found_day * DAY_S + time
            found_day = self._day_until(found_day - self._days_since_block(found_day))
        return None

    def _day_from(self, day: int) -> int | None:
        year, month, day_of_month = civil(max(day, self.from_s // DAY_S))
        for _ in range(MONTHS_TRIED_MAX):
            if self.months >> month & 1 and (match := lowest_from(self._kept(year, month), day_of_month)) >= 0:
                return day_number(year, month, match) if year <= YEAR_MAX else None
            year, month, day_of_month = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def _day_until(self, day: int) -> int | None:
        first = self.from_s // DAY_S
        year, month, day_of_month = civil(min(day, DAY_MAX))
        for _ in range(MONTHS_TRIED_MAX):
            if day_number(year, month, day_of_month) < first:
                return None
            if self.months >> month & 1 and (match := highest_until(self._kept(year, month), day_of_month)) >= 0:
                return day_number(year, month, match)
            year, month = (year, month - 1) if month > 1 else (year - 1, 12)
            day_of_month = month_length(year, month)
        return None

    def _kept(self, year: int, month: int) -> int:
        """The days of a month that fit, in periods that INTERVAL keeps."""
        if self.interval == 1 or self.frequency < DAILY:
            return self._days_in(year, month)
        if self.frequency >= MONTHLY:
            return self._days_in(year, month) if self._keeps(day_number(year, month, 1)) else 0
        first = day_number(year, month, 1) - 1
        kept = 0
        for day in members(self._days_in(year, month)):
            kept |= 1 << day if self._keeps(first + day) else 0
        return kept

    def _keeps(self, day: int) -> bool:
        return (self._period(day) - self._period(self.start_s // DAY_S)) % self.interval == 0

    def _period(self, day: int) -> int:
        match self.frequency:
            case frequency if frequency <= DAILY:
                return day
            case frequency if frequency == WEEKLY:
                return (day + 4 - self.week_start) // 7
        year, month, _ = civil(day)
        return year if self.frequency == YEARLY else year * 12 + month

    def _days_in(self, year: int, month: int) -> int:
        length = month_length(year, month)
        bits = (2 << length) - 2
        if self.days_of_month:
            bits &= bits_of(day if day > 0 else length + 1 + day for day in self.days_of_month)
        if self.weekdays or self.numbered:
            on = on_weekdays(year, month, self.weekdays) if self.weekdays else 0
            bits &= on | self._numbered_days(year, month)
        if self.days_of_year:
            before = day_number(year, month, 1) - day_number(year, 1, 1)
            days = 365 + is_leap(year)
            bits &= bits_of((day if day > 0 else days + 1 + day) - before for day in self.days_of_year)
        return bits & self._in_weeks(year, month) if self.weeks else bits

    def _numbered_days(self, year: int, month: int) -> int:
        first = day_number(year, month, 1)
        if self.of_year:
            start, end = day_number(year, 1, 1), day_number(year + 1, 1, 1)
        else:
            start, end = first, first + month_length(year, month)
        return bits_of(nth_weekday(start, end, entry) - first + 1 for entry in self.numbered)

    def _in_weeks(self, year: int, month: int) -> int:
        """The days that lie in one of the weeks; a week belongs to the year that has four of its days."""
        first = day_number(year, month, 1)
        bits = 0
        start = first - (weekday(first) - self.week_start) % 7
        for week in range(start, first + month_length(year, month), 7):
            of_year, _, _ = civil(week + 3)
            begin = self._first_week(of_year)
            number = (week - begin) // 7 + 1
            count = (self._first_week(of_year + 1) - begin) // 7
            if number in self.weeks or number - count - 1 in self.weeks:
                bits |= bits_of(day - first + 1 for day in range(week, week + 7))
        return bits

    def _first_week(self, year: int) -> int:
        fourth = day_number(year, 1, 4)
        return fourth - (weekday(fourth) - self.week_start) % 7

    # ---- times of a day

    def _time_from(self, day: int, second: int, tries: "SearchBudget") -> int:
        tries.left -= 1
        if self.frequency >= DAILY:
            return time_from(self.hours, self.minutes, self.seconds, second)
        unit = UNIT_S[self.frequency]
        at = self._aligned_up(day, second - second % unit)
        while at < DAY_S and tries.left > 0:
            tries.left -= 1
            later = self._allowed_block(at)
            if later > at:
                at = self._aligned_up(day, later)
                continue
            hours, minutes, seconds = self._block(at)
            time = time_from(hours, minutes, seconds, max(second, at))
            if time != NO_TIME:
                return time
            at += unit * self.interval
        return NO_TIME

    def _time_until(self, day: int, second: int, tries: "SearchBudget") -> int:
        tries.left -= 1
        if self.frequency >= DAILY:
            return time_until(self.hours, self.minutes, self.seconds, second)
        unit = UNIT_S[self.frequency]
        at = self._aligned_down(day, second - second % unit)
        while at >= 0 and tries.left > 0:
            tries.left -= 1
            earlier = self._allowed_block_before(at)
            if earlier < at:
                at = self._aligned_down(day, earlier)
                continue
            hours, minutes, seconds = self._block(at)
            time = time_until(hours, minutes, seconds, min(second, at + unit - 1))
            if time != NO_TIME:
                return time
            at -= unit * self.interval
        return NO_TIME

    def _days_to_block(self, day: int) -> int:
        """How many days on is the next one with a block that INTERVAL keeps."""
        return 1 if self.frequency >= DAILY else self._aligned_up(day, DAY_S) // DAY_S

    def _days_since_block(self, day: int) -> int:
        return 1 if self.frequency >= DAILY else -(self._aligned_down(day, -UNIT_S[self.frequency]) // DAY_S)

    def _aligned_up(self, day: int, at: int) -> int:
        """The first block of the day, from this second on, that INTERVAL keeps."""
        step = UNIT_S[self.frequency] * self.interval
        return at + (self._origin_s() - day * DAY_S - at) % step

    def _aligned_down(self, day: int, at: int) -> int:
        step = UNIT_S[self.frequency] * self.interval
        return at - (day * DAY_S + at - self._origin_s()) % step

    def _origin_s(self) -> int:
        return self.start_s - self.start_s % UNIT_S[self.frequency]

    def _block(self, at: int) -> tuple[int, int, int]:
        """What a block of one hour, minute or second allows."""
        minutes = self.minutes if self.frequency == HOURLY else self.minutes & 1 << at // MINUTE_S % 60
        seconds = self.seconds if self.frequency >= MINUTELY else self.seconds & 1 << at % 60
        return 1 << at // HOUR_S, minutes, seconds

    def _allowed_block(self, at: int) -> int:
        """This block, or the start of the next hour or minute that is allowed."""
        hour, minute = at // HOUR_S, at // MINUTE_S % 60
        if not self.hours >> hour & 1:
            following = lowest_from(self.hours, hour + 1)
            return following * HOUR_S if following >= 0 else DAY_S
        if self.frequency < HOURLY and not self.minutes >> minute & 1:
            following = lowest_from(self.minutes, minute + 1)
            return hour * HOUR_S + following * MINUTE_S if following >= 0 else (hour + 1) * HOUR_S
        return at

    def _allowed_block_before(self, at: int) -> int:
        unit = UNIT_S[self.frequency]
        hour, minute = at // HOUR_S, at // MINUTE_S % 60
        if not self.hours >> hour & 1:
            return (highest_until(self.hours, hour - 1) + 1) * HOUR_S - unit
        if self.frequency < HOURLY and not self.minutes >> minute & 1:
            return hour * HOUR_S + (highest_until(self.minutes, minute - 1) + 1) * MINUTE_S - unit
        return at

    # ---- with BYSETPOS: period by period

    def _next_position(self, after_s: int) -> int | None:
        day = self._period_start(max(after_s, self.from_s) // DAY_S)
        for _ in range(PERIODS_TRIED_MAX):
            following = self._day_from(day)
            if following is None:
                return None
            start = self._period_start(following)
            for time_s in self._chosen(start):
                if time_s > after_s:
                    return time_s
            day = self._period_end(start)
        return None

    def _prev_position(self, before_s: int) -> int | None:
        day = self._period_end(self._period_start(min((before_s - 1) // DAY_S, DAY_MAX))) - 1
        for _ in range(PERIODS_TRIED_MAX):
            earlier = self._day_until(day)
            if earlier is None:
                return None
            start = self._period_start(earlier)
            for time_s in reversed(self._chosen(start)):
                if time_s < before_s:
                    return time_s
            day = start - 1
        return None

    def _period_start(self, day: int) -> int:
        if self.frequency == DAILY:
            return day
        if self.frequency == WEEKLY:
            return day - (weekday(day) - self.week_start) % 7
        year, month, _ = civil(day)
        return day_number(year, 1 if self.frequency == YEARLY else month, 1)

    def _period_end(self, start: int) -> int:
        if self.frequency <= WEEKLY:
            return start + (1 if self.frequency == DAILY else 7)
        year, month, _ = civil(start)
        return day_number(year + 1, 1, 1) if self.frequency == YEARLY else start + month_length(year, month)

    def _chosen(self, start: int) -> list[int]:
        """The readings of one period that BYSETPOS takes, in order."""
        days = self._days_between(start, self._period_end(start))
        hours, minutes, seconds = members(self.hours), members(self.minutes), members(self.seconds)
        times = len(hours) * len(minutes) * len(seconds)
        count = len(days) * times
        chosen = []
        for index in sorted({position - 1 if position > 0 else count + position for position in self.positions}):
            if 0 <= index < count:
                minute_of_day, second = divmod(index % times, len(seconds))
                hour, minute = divmod(minute_of_day, len(minutes))
                time = hours[hour] * HOUR_S + minutes[minute] * MINUTE_S + seconds[second]
                chosen.append(days[index // times] * DAY_S + time)
        return chosen

    def _days_between(self, start: int, end: int) -> list[int]:
        days: list[int] = []
        while start < end:
            year, month, day = civil(start)
            first = start - day
            if self.months >> month & 1:
                days += [
                    first + member for member in members(self._days_in(year, month)) if start <= first + member < end
                ]
            start = first + 1 + month_length(year, month)
        return days


def nth_weekday(start: int, end: int, rule: NthWeekday) -> int:
    """The day number of the nth weekday. A number outside the range means that there is no such day."""
    if rule.nth > 0:
        day = start + (rule.weekday - weekday(start)) % 7 + 7 * (rule.nth - 1)
        return day if day < end else start - 1
    day = end - 1 - (weekday(end - 1) - rule.weekday) % 7 + 7 * (rule.nth + 1)
    return day if day >= start else start - 1


class SearchBudget:
    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def compiled(text: RuleText) -> Rule:
    """The rule takes the day and the time of day from its start if the text does not set them."""
    day, second = divmod(text.start_s, DAY_S)
    _, month, day_of_month = civil(day)
    numbers = text.numbers
    weekdays = bits_of(weekday_number for nth, weekday_number in text.weekdays if not nth)
    days_of_month = numbers.get("BYMONTHDAY", ())
    months = bits_of(iter(numbers["BYMONTH"])) if "BYMONTH" in numbers else EVERY_MONTH
    if not (text.weekdays or days_of_month or "BYYEARDAY" in numbers):
        if text.frequency == WEEKLY or "BYWEEKNO" in numbers:
            weekdays = 1 << weekday(day)
        elif text.frequency >= MONTHLY:
            days_of_month = (day_of_month,)
            if text.frequency == YEARLY and "BYMONTH" not in numbers:
                months = 1 << month
    return Rule(
        frequency=text.frequency,
        start_s=text.start_s,
        from_s=text.from_s,
        start_at_s=text.start_at_s,
        until_at_s=FOREVER_S if text.until_at_s is None else text.until_at_s,
        interval=text.interval,
        count=text.count,
        until_s=FOREVER_S if text.until_s is None else text.until_s,
        week_start=text.week_start,
        months=months,
        days_of_month=days_of_month,
        days_of_year=numbers.get("BYYEARDAY", ()),
        weeks=numbers.get("BYWEEKNO", ()),
        weekdays=weekdays,
        numbered=tuple(NthWeekday(nth, weekday_number) for nth, weekday_number in text.weekdays if nth),
        of_year=text.frequency == YEARLY and "BYMONTH" not in numbers,
        positions=numbers.get("BYSETPOS", ()),
        hours=_times(text, "BYHOUR", HOURLY, second // HOUR_S, 24),
        minutes=_times(text, "BYMINUTE", MINUTELY, second // MINUTE_S % 60, 60),
        seconds=_times(text, "BYSECOND", SECONDLY, second % 60, 60),
    )


def _times(text: RuleText, name: str, frequency: int, of_start: int, count: int) -> int:
    if name in text.numbers:
        return bits_of(iter(text.numbers[name]))
    return 1 << of_start if text.frequency > frequency else (1 << count) - 1
