"""Days of a cron expression in words."""

from collections.abc import Callable

from tickwork.core.cron import Days
from tickwork.core.dates import members

WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth")
EVERY_DAY, EVERY_WEEKDAY, EVERY_MONTH = (1 << 32) - 2, 127, (1 << 13) - 2


def day_words(days: Days) -> str:
    """With a blank before it, or nothing where every day is meant."""
    of_month, of_week = _days_of_month(days), _days_of_week(days)
    fits = [one for one in (of_month, of_week) if one]
    said = f" on {(' or on ' if days.either else ' that is also ').join(fits)}" if fits else ""
    if days.months == EVERY_MONTH:
        return said
    return f"{said} in {joined([MONTHS[one - 1] for one in members(days.months)])}"


def _days_of_month(days: Days) -> str:
    found = days.day
    if found.plain == EVERY_DAY:
        return ""
    plain = members(found.plain)
    words = [f"day{'s' * (len(plain) > 1)} {joined(runs(plain, str))}"] if plain else []
    words += [_from_end(before) for before in members(found.from_end)]
    words += [f"the working day nearest to day {day}" for day in members(found.nearest)]
    words += ["the last working day of the month"] if found.last_workday else []
    return joined(words)


def _from_end(before: int) -> str:
    return f"day {before} before the last of the month" if before else "the last day of the month"


def _days_of_week(days: Days) -> str:
    found = days.weekday
    if found.plain == EVERY_WEEKDAY:
        return ""
    from_monday = sorted(members(found.plain), key=lambda one: (one - 1) % 7)
    words = runs([(one - 1) % 7 for one in from_monday], lambda one: weekday_name(one + 1))
    words += [f"the last {weekday_name(one)} of the month" for one in members(found.last)]
    words += [f"the {ORDINALS[one // 7]} {weekday_name(one % 7)} of the month" for one in members(found.nth)]
    return joined(words)


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
            words += [name(one) for one in values[at : end + 1]]
        at = end + 1
    return words


def joined(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)
