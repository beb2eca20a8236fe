"""Days and times in words."""

from collections.abc import Callable
from itertools import pairwise

from tickwork.core.calendar.cron import Days
from tickwork.core.calendar.dates import members

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth")
EVERY_DAY, EVERY_WEEKDAY, EVERY_MONTH = (1 << 32) - 2, 127, (1 << 13) - 2


def day_words(days: Days) -> str:
    """The days in words, with a leading blank; empty if the field allows every day."""
    of_month, of_week = _days_of_month(days), _days_of_week(days)
    fits = [words for words in (of_month, of_week) if words]
    text = f" on {(' or on ' if days.either else ' that is also ').join(fits)}" if fits else ""
    if days.months == EVERY_MONTH:
        return text
    return f"{text} in {joined([MONTHS[member - 1] for member in members(days.months)])}"


def _days_of_month(days: Days) -> str:
    field = days.day
    if field.plain == EVERY_DAY:
        return ""
    plain = members(field.plain)
    words = [f"day{'s' * (len(plain) > 1)} {joined(runs(plain, str))}"] if plain else []
    words += [_from_end(before) for before in members(field.from_end)]
    words += [f"the working day nearest to day {day}" for day in members(field.nearest)]
    words += ["the last working day of the month"] if field.last_workday else []
    return joined(words)


def _from_end(before: int) -> str:
    return f"day {before} before the last of the month" if before else "the last day of the month"


def _days_of_week(days: Days) -> str:
    weekday = days.weekday
    if weekday.plain == EVERY_WEEKDAY:
        return ""
    words = weekday_words(weekday.plain)
    words += [f"the last {weekday_name(member)} of the month" for member in members(weekday.last)]
    words += [f"the {ORDINALS[member // 7]} {weekday_name(member % 7)} of the month" for member in members(weekday.nth)]
    return joined(words)


def weekday_words(weekdays: int) -> list[str]:
    """The names of the weekdays, starting with Monday."""
    from_monday = sorted((member - 1) % 7 for member in members(weekdays))
    return runs(from_monday, lambda day: weekday_name(day + 1))


def weekday_name(number: int) -> str:
    return WEEKDAYS[number % 7]


def runs(values: list[int], name: Callable[[int], str]) -> list[str]:
    """Three or more in a row as `first to last`."""
    words: list[str] = []
    at = 0
    while at < len(values):
        end = at
        while end + 1 < len(values) and values[end + 1] == values[end] + 1:
            end += 1
        if end - at >= 2:
            words.append(f"{name(values[at])} to {name(values[end])}")
        else:
            words += [name(value) for value in values[at : end + 1]]
        at = end + 1
    return words


def joined(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


# ---- times of a day


def time_words(hours: int, minutes: int, seconds: int) -> str:
    """Each a bitset: `at 09:00 and 17:00`, `every 5 minutes`, `minutes 0 and 30 in hours 8 to 18`."""
    in_hours, in_minutes, in_seconds = members(hours), members(minutes), members(seconds)
    if len(in_hours) * len(in_minutes) * len(in_seconds) <= 6:
        return f"at {joined([clock_words(h, m, s) for h in in_hours for m in in_minutes for s in in_seconds])}"
    of_hours = "" if len(in_hours) == 24 else f" in {number_words('hour', in_hours, 24)}"
    if len(in_seconds) > 1:
        of_minutes = "" if len(in_minutes) == 60 else f" of {number_words('minute', in_minutes, 60)}"
        return f"{number_words('second', in_seconds, 60)}{of_minutes}{of_hours}"
    at_second = f" and {in_seconds[0]} seconds" if in_seconds[0] else ""
    if len(in_hours) == 24 and len(in_minutes) == 1:
        return f"every hour at {in_minutes[0]} minutes{at_second}"
    return f"{number_words('minute', in_minutes, 60)}{at_second}{of_hours}"


def clock_words(hour: int, minute: int, second: int) -> str:
    return f"{hour:02}:{minute:02}:{second:02}" if second else f"{hour:02}:{minute:02}"


def number_words(unit: str, values: list[int], count: int) -> str:
    if len(values) == count:
        return f"every {unit}"
    steps = {later - earlier for earlier, later in pairwise(values)}
    if len(values) > 2 and len(steps) == 1:
        step = values[1] - values[0]
        if values[0] == 0 and values[-1] + step == count:
            return f"every {step} {unit}s"
        spread = f" to {values[-1]}" if step == 1 else f", {values[1]} … {values[-1]}"
        return f"{unit}s {values[0]}{spread}"
    return f"{unit}{'s' if len(values) > 1 else ''} {joined(runs(values, str))}"
