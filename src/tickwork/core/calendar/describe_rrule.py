"""A recurrence rule in words: `every 2 weeks on Monday and Wednesday at 09:00, 10 times`.

What the rule itself leaves open is said as its start fills it in.
"""

from types import MappingProxyType

from tickwork.core.calendar.dates import DAY_S, local_text, members
from tickwork.core.calendar.describe import (
    MONTHS,
    ORDINALS,
    joined,
    number_words,
    runs,
    time_words,
    weekday_name,
    weekday_words,
)
from tickwork.core.calendar.rrule import EVERY_MONTH, NthWeekday, Rule
from tickwork.core.calendar.rrule_parser import DAILY, HOURLY, MINUTELY
from tickwork.core.calendar.zones import FOREVER_S

ENDINGS = MappingProxyType({1: "st", 2: "nd", 3: "rd"})
UNITS = ("second", "minute", "hour", "day", "week", "month", "year")


def rule_words(rule: Rule) -> str:
    unit = UNITS[rule.frequency]
    every = f"every {unit}" if rule.interval == 1 else f"every {rule.interval} {unit}s"
    words = [f"{every}{_days(rule)}{_months(rule)} {_times(rule)}".strip()]
    if rule.positions:
        words.append(f"of these only the {joined([_ordinal(position) for position in rule.positions])} in each {unit}")
    if rule.interval > 1:
        start = local_text(rule.start_s)
        words.append(f"counted from {start[:10] if rule.frequency >= DAILY else start}")
    if rule.count is not None:
        words.append("once" if rule.count == 1 else f"{rule.count} times")
    elif rule.until_s != FOREVER_S:
        words.append(f"until {_moment(rule.until_s)}")
    return ", ".join(words)


def _days(rule: Rule) -> str:
    """A day must match every part, so each part narrows the parts before it."""
    of = "year" if rule.of_year else "month"
    weekdays = weekday_words(rule.weekdays) if rule.weekdays else []
    weekdays += [f"the {_nth(part)} of the {of}" for part in rule.numbered]
    parts = [joined(weekdays), _numbered(rule.days_of_month, "month"), _numbered(rule.days_of_year, "year")]
    text = " that is also ".join(part for part in parts if part)
    weeks = [str(week) if week > 0 else f"{-week} from the end" for week in rule.weeks]
    in_weeks = f" in week{'s' * (len(weeks) > 1)} {joined(weeks)}" if weeks else ""
    return (f" on {text}" if text else "") + in_weeks


def _nth(weekday: NthWeekday) -> str:
    return f"{_ordinal(weekday.nth)} {weekday_name(weekday.weekday)}"


def _ordinal(number: int) -> str:
    """1 is the first, -1 the last, -2 the second to last."""
    if number == -1:
        return "last"
    rank = abs(number)
    ending = "th" if rank // 10 % 10 == 1 else ENDINGS.get(rank % 10, "th")
    text = ORDINALS[rank - 1] if rank <= len(ORDINALS) else f"{rank}{ending}"
    return text if number > 0 else f"{text} to last"


def _numbered(days: tuple[int, ...], of: str) -> str:
    plain = sorted(day for day in days if day > 0)
    of_year = f" of the {of}" if of == "year" else ""
    words = [f"day{'s' * (len(plain) > 1)} {joined(runs(plain, str))}{of_year}"] if plain else []
    return joined(words + [f"the {_ordinal(day)} day of the {of}" for day in sorted(days, reverse=True) if day < 0])


def _months(rule: Rule) -> str:
    return (
        "" if rule.months == EVERY_MONTH else f" in {joined([MONTHS[member - 1] for member in members(rule.months)])}"
    )


def _times(rule: Rule) -> str:
    if rule.frequency >= DAILY:
        return time_words(rule.hours, rule.minutes, rule.seconds)
    hours, minutes, seconds = members(rule.hours), members(rule.minutes), members(rule.seconds)
    words = []
    if rule.frequency == HOURLY:
        words.append(f"at {number_words('minute', minutes, 60)}")
    if rule.frequency >= MINUTELY and seconds != [0]:
        words.append(f"at {number_words('second', seconds, 60)}")
    if rule.frequency < MINUTELY and len(seconds) < 60:
        words.append(f"in {number_words('second', seconds, 60)}")
    if rule.frequency < HOURLY and len(minutes) < 60:
        words.append(f"in {number_words('minute', minutes, 60)}")
    if len(hours) < 24:
        words.append(f"in {number_words('hour', hours, 24)}")
    return " ".join(words)


def _moment(at_s: int) -> str:
    """A date alone where it is the end of a day."""
    return local_text(at_s)[:10] if at_s % DAY_S == DAY_S - 1 else local_text(at_s)
