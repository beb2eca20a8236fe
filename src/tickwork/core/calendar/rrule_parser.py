"""Reading a recurrence rule of RFC 5545: `FREQ=MONTHLY;BYDAY=-1FR`, alone or after a line with DTSTART.

Every part is either understood or refused by name; nothing is ignored.
"""

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.dates import DAY_S, HOUR_S, MINUTE_S, YEAR_MIN, day_number, month_length
from tickwork.core.calendar.zones import Zone

TEXT_MAX = 4_000
INTERVAL_MAX = 10_000
COUNT_MAX = 10_000
SECONDLY, MINUTELY, HOURLY, DAILY, WEEKLY, MONTHLY, YEARLY = range(7)
FREQUENCIES = ("SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY")
WEEKDAYS = ("SU", "MO", "TU", "WE", "TH", "FR", "SA")
# Which numbers a part may have; those that count from the end may be negative.
NUMBERS = MappingProxyType({
    "BYSECOND": (0, 59, False), "BYMINUTE": (0, 59, False), "BYHOUR": (0, 23, False), "BYMONTH": (1, 12, False),
    "BYMONTHDAY": (1, 31, True), "BYYEARDAY": (1, 366, True), "BYWEEKNO": (1, 53, True), "BYSETPOS": (1, 366, True),
})  # fmt: skip
PARTS = frozenset(["FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *NUMBERS])
_MOMENT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})(?:T([0-9]{2})([0-9]{2})([0-9]{2})(Z?))?")
_BYDAY = re.compile(r"([+-]?[0-9]{1,2})?(SU|MO|TU|WE|TH|FR|SA)")


class InvalidRule(Refused):
    def __init__(self, message: str, *, path: str) -> None:
        super().__init__("invalid_rrule", message, path=path)


class Moment(NamedTuple):
    """A reading on the zone's clock, and the instant where it is known: where it was written in UTC."""

    local_s: int
    at_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """A rule's parts as they were written, and its first reading. All readings are on the zone's clock; the instants
    are those of DTSTART, and of an UNTIL that is in UTC."""

    frequency: int
    start_s: int
    start_at_s: int
    from_s: int  # the first reading that counts, which may be shown again, or moved, to behind the start
    until_at_s: int | None
    interval: int
    count: int | None
    until_s: int | None
    week_start: int
    weekdays: tuple[tuple[int, int], ...]  # nth (0: every one) and weekday
    numbers: dict[str, tuple[int, ...]]


def read_rule(text: str, *, zone: Zone, start_ms: int | None, path: str) -> RuleText:
    try:
        return _read(text, zone, start_ms)
    except ValueError as problem:
        raise InvalidRule(str(problem), path=path) from None


def _read(text: str, zone: Zone, start_ms: int | None) -> RuleText:
    if len(text) > TEXT_MAX:
        raise ValueError(f"longer than {TEXT_MAX} characters")
    start, rule = _lines(text, zone)
    if start is None and start_ms is not None:
        start = Moment(start_ms // 1000 + zone.offset_s(start_ms // 1000), start_ms // 1000)
    if start is None:
        raise ValueError("the rule has no DTSTART; write one before it, or set anchor_ms")
    parts = _parts(rule)
    frequency = _frequency(parts)
    numbers = {name: _numbers(name, parts[name]) for name in NUMBERS if name in parts}
    weekdays = tuple(_weekday(word) for word in parts["BYDAY"].split(",")) if "BYDAY" in parts else ()
    _check_together(frequency, parts, weekdays)
    until = _until(parts["UNTIL"], zone) if "UNTIL" in parts else None
    start_at_s = zone.first_s(start.local_s) if start.at_s is None else start.at_s
    return RuleText(
        frequency=frequency,
        start_s=start.local_s,
        start_at_s=start_at_s,
        from_s=_from_s(start.local_s, start_at_s, zone),
        until_at_s=None if until is None else until.at_s,
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), INTERVAL_MAX),
        count=_number("COUNT", parts["COUNT"], COUNT_MAX) if "COUNT" in parts else None,
        until_s=None if until is None else until.local_s,
        week_start=_week_start(parts.get("WKST", "MO")),
        weekdays=weekdays,
        numbers=numbers,
    )


def _lines(text: str, zone: Zone) -> tuple[Moment | None, str]:
    start, rule = None, None
    for line in text.upper().replace("\r\n", "\n").strip().split("\n"):
        name, colon, body = line.partition(":")
        name, _, options = name.partition(";") if colon else ("RRULE", "", "")
        if name == "DTSTART" and start is None:
            start = _start(body, options, zone)
        elif name == "RRULE" and rule is None:
            rule = body if colon else line
        elif name in ("EXDATE", "RDATE", "EXRULE"):
            raise ValueError(f"{name} is not supported; use include and exclude for single dates")
        else:
            raise ValueError(f"{name[:20]!a} is not supported, or there is more than one")
    if rule is None:
        raise ValueError("there is no RRULE")
    return start, rule


def _start(body: str, options: str, zone: Zone) -> Moment:
    for option in filter(None, options.split(";")):
        key, _, value = option.partition("=")
        if key == "TZID" and value != zone.name.upper():
            raise ValueError("TZID names another zone than the schedule has; set the schedule's zone")
        if key not in ("TZID", "VALUE"):
            raise ValueError(f"DTSTART has the unknown option {key[:20]!a}")
    return _moment(body, "DTSTART", zone)[0]


def _from_s(start_s: int, start_at_s: int, zone: Zone) -> int:
    period = zone.period(start_at_s)
    if start_at_s + period.offset_s != start_s:
        return start_s  # in a gap: no instant shows it, and the reading itself is the bound
    # Set back soon after the start, the clock shows earlier readings again. Set forward just before it, those of
    # the gap are moved to behind it.
    moved_s = start_at_s + period.before_s
    in_gap = moved_s < period.start_s + period.offset_s
    return min(start_s, period.end_s + period.after_s, moved_s if in_gap else start_s)


def _until(body: str, zone: Zone) -> Moment:
    moment, whole_day = _moment(body, "UNTIL", zone)
    if whole_day:
        return Moment(moment.local_s + DAY_S - 1, None)
    if moment.at_s is None:
        return moment
    # Later readings than this one have been shown before, where the clock has just been set back.
    period = zone.period(moment.at_s)
    return Moment(max(moment.local_s, period.start_s + period.before_s - 1), moment.at_s)


def _moment(body: str, name: str, zone: Zone) -> tuple[Moment, bool]:
    """Parse a moment; the second value says whether it is only a date."""
    match = _MOMENT.fullmatch(body)
    if match is None:
        raise ValueError(f"{name} is a moment like 20260131T090000, not {body[:30]!a}")
    year, month, day = (int(group) for group in match.groups()[:3])
    hour, minute, second = (int(group or 0) for group in match.groups()[3:6])
    fits = year >= YEAR_MIN and 1 <= month <= 12 and 1 <= day <= month_length(year, month)
    if not fits or hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{name} has a date or time that does not exist")
    moment_s = day_number(year, month, day) * DAY_S + hour * HOUR_S + minute * MINUTE_S + second
    if match[7]:
        return Moment(moment_s + zone.offset_s(moment_s), moment_s), False
    return Moment(moment_s, None), match[4] is None


def _parts(rule: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in rule.strip().removesuffix(";").split(";"):
        name, _, value = part.partition("=")
        if name not in PARTS:
            raise ValueError(f"{name[:20]!a} is not supported in a rule")
        if name in parts or not value:
            raise ValueError(f"{name} is given twice" if value else f"{name} has no value")
        parts[name] = value
    return parts


def _frequency(parts: dict[str, str]) -> int:
    if parts.get("FREQ") not in FREQUENCIES:
        raise ValueError(f"FREQ is one of {', '.join(FREQUENCIES)}")
    return FREQUENCIES.index(parts["FREQ"])


def _check_together(frequency: int, parts: dict[str, str], weekdays: tuple[tuple[int, int], ...]) -> None:
    name = FREQUENCIES[frequency]
    if "COUNT" in parts and "UNTIL" in parts:
        raise ValueError("a rule has COUNT or UNTIL, not both")
    if "BYWEEKNO" in parts and frequency != YEARLY:
        raise ValueError(f"BYWEEKNO goes with FREQ=YEARLY, not with {name}")
    if "BYYEARDAY" in parts and frequency in (DAILY, WEEKLY, MONTHLY):
        raise ValueError(f"BYYEARDAY does not go with FREQ={name}")
    if "BYMONTHDAY" in parts and frequency == WEEKLY:
        raise ValueError("BYMONTHDAY does not go with FREQ=WEEKLY")
    if any(nth for nth, _ in weekdays) and (frequency not in (MONTHLY, YEARLY) or "BYWEEKNO" in parts):
        raise ValueError("a numbered weekday goes with FREQ=MONTHLY or YEARLY, and not with BYWEEKNO")
    if "BYSETPOS" in parts and frequency < DAILY:
        raise ValueError(f"BYSETPOS is not supported with FREQ={name}; write the times with BYHOUR and BYMINUTE")
    if "BYSETPOS" in parts and len([part for part in parts if part.startswith("BY")]) == 1:
        raise ValueError("BYSETPOS chooses among others; it needs another BY part")


def _numbers(name: str, text: str) -> tuple[int, ...]:
    low, high, from_end = NUMBERS[name]
    numbers = []
    for word in text.split(","):
        if not re.fullmatch(r"[+-]?[0-9]{1,3}", word) or not low <= abs(int(word)) <= high:
            raise ValueError(f"{name} has numbers from {low} to {high}, not {word[:20]!a}")
        if word[0] == "-" and not from_end:
            raise ValueError(f"{name} has no negative numbers")
        numbers.append(int(word))
    return tuple(numbers)


def _weekday(text: str) -> tuple[int, int]:
    match = _BYDAY.fullmatch(text)
    nth = int(match[1]) if match and match[1] else 0
    if match is None or abs(nth) > 53 or (match[1] and nth == 0):
        raise ValueError(f"BYDAY has days like MO, 2TU or -1FR, not {text[:20]!a}")
    return nth, WEEKDAYS.index(match[2])


def _week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise ValueError(f"WKST is one of {', '.join(WEEKDAYS)}")
    return WEEKDAYS.index(text)


def _number(name: str, text: str, high: int) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= high:
        raise ValueError(f"{name} is a number from 1 to {high}")
    return int(text)
