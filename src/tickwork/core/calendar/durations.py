"""Durations and instants: text to integer milliseconds, and back.

A duration has one exact length, so months and years are refused by name. An instant carries its
zone, so they are never ambiguous. Everything is integer arithmetic.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tickwork.core.base.errors import Refused

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
DURATION_MS_MAX = 36_525 * DAY_MS  # a hundred years: far from overflow when added to any instant
INTERVAL_MS_MIN = SECOND_MS
OFFSET_MINUTES_MIN, OFFSET_MINUTES_MAX = -12 * 60, 14 * 60

_UNITS = (("w", WEEK_MS), ("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS), ("ms", 1))
_N = r"([0-9]{1,18})"
_COMPACT = re.compile(rf"(?:{_N}w)?(?:{_N}d)?(?:{_N}h)?(?:{_N}m(?!s))?(?:{_N}s)?(?:{_N}ms)?")
_ISO = re.compile(rf"P(?:{_N}W)?(?:{_N}D)?(?:T(?=[0-9])(?:{_N}H)?(?:{_N}M)?(?:{_N}S)?)?")
_ISO_MONTHS = re.compile(r"P[^T]*[0-9][YM].*", re.DOTALL)
_COMPACT_MONTHS = re.compile(r"[0-9]+ ?(?:mo|mon|months?|y|years?)\b.*", re.DOTALL | re.IGNORECASE)
_DURATION_CHARACTERS_MAX = 100

_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
INSTANT_MS_MIN = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
INSTANT_MS_MAX = (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC) - _EPOCH) // _MILLISECOND


def duration_ms(value: object, *, path: str, minimum_ms: int = 0, maximum_ms: int = DURATION_MS_MAX) -> int:
    """`5m`, `1h30m`, `250ms`, `PT5M`, `P1DT2H`, or an integer that already is milliseconds."""
    match value:
        case bool() | float():
            message = f"a duration is text such as '5m' or whole milliseconds, not {value!r}"
            raise Refused("duration_type", message, path=path)
        case int():
            length_ms = value
        case str():
            length_ms = _duration_of_text(value, path)
        case _:
            message = f"a duration is text such as '5m' or whole milliseconds, not {type(value).__name__}"
            raise Refused("duration_type", message, path=path)
    return _within(length_ms, path, minimum_ms, maximum_ms)


def interval_ms(value: object, *, path: str) -> int:
    """A duration between two occurrences of a schedule: at least a second."""
    return duration_ms(value, path=path, minimum_ms=INTERVAL_MS_MIN)


def duration_text(length_ms: int) -> str:
    """The shortest text that `duration_ms` reads back: `1h30m`, `0s`."""
    assert length_ms >= 0, "a duration is never negative"
    parts = []
    for unit, unit_ms in _UNITS[1:]:  # days are clearer than weeks
        count, length_ms = divmod(length_ms, unit_ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def instant_ms(value: object, *, path: str) -> int:
    """RFC 3339 with its zone, as milliseconds since 1970 in UTC. Digits below a millisecond are cut off."""
    if not isinstance(value, str) or value.strip().lstrip("+-").replace(".", "", 1).isdigit():
        message = "a plain number may be seconds or milliseconds; write it like 2026-01-02T03:04:05Z"
        raise Refused("instant_number" if _numeric(value) else "wrong_type", message, path=path)
    match = _INSTANT.fullmatch(value)
    if match is None:
        message = f"{value[:60]!a} is not an instant; write it like 2026-01-02T03:04:05Z"
        raise Refused("instant_syntax", message, path=path)
    *digits, fraction, zone = match.groups()
    offset_minutes = _offset_minutes(zone, path)
    local = _local(*(int(part) for part in digits), path=path)
    result = (local - _EPOCH) // _MILLISECOND + int((fraction or "0").ljust(3, "0")[:3])
    return _in_calendar(result - offset_minutes * MINUTE_MS, path)


@lru_cache(256)  # what is due is due at the same few instants
def instant_text(at_ms: int) -> str:
    """UTC, with a fraction only where there is one: `2026-01-02T03:04:05Z`."""
    _in_calendar(at_ms, "")
    at_s, ms = divmod(at_ms, 1_000)
    text = (_EPOCH + timedelta(seconds=at_s)).replace(tzinfo=None).isoformat()
    return f"{text}.{ms:03}Z" if ms else f"{text}Z"


def _duration_of_text(text: str, path: str) -> int:
    if len(text) <= _DURATION_CHARACTERS_MAX:
        if compact := _COMPACT.fullmatch(text):
            units_ms = [unit_ms for _, unit_ms in _UNITS]
            return _sum_ms(compact, units_ms, text, path)
        if iso := _ISO.fullmatch(text):
            return _sum_ms(iso, [WEEK_MS, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS], text, path)
    raise _duration_refusal(text[:_DURATION_CHARACTERS_MAX], path)


def _sum_ms(match: re.Match[str], units_ms: list[int], text: str, path: str) -> int:
    pairs = [(int(count), unit_ms) for count, unit_ms in zip(match.groups(), units_ms, strict=True) if count]
    if not pairs:
        raise _duration_refusal(text, path)
    return sum(count * unit_ms for count, unit_ms in pairs)


def _duration_refusal(text: str, path: str) -> Refused:
    if not text.strip():
        return Refused("duration_empty", "the duration is empty; write it like '5m'", path=path)
    if text.startswith(("-", "P-", "PT-")):
        return Refused("duration_negative", f"{text!a} is negative; a duration is zero or more", path=path)
    if _ISO_MONTHS.fullmatch(text) or _COMPACT_MONTHS.fullmatch(text):
        message = f"{text!a} has months or years, which have no fixed length; use weeks, days or a cron schedule"
        return Refused("duration_months", message, path=path)
    if "." in text or "," in text:
        message = f"{text!a} has a fraction; use a smaller unit, such as '90s' for one and a half minutes"
        return Refused("duration_fraction", message, path=path)
    message = f"{text!a} is not a duration; write it like '5m', '1h30m', '250ms' or 'PT5M', largest unit first"
    return Refused("duration_syntax", message, path=path)


def _within(length_ms: int, path: str, minimum_ms: int, maximum_ms: int) -> int:
    if length_ms < 0:
        raise Refused("duration_negative", "the duration is negative; it must be zero or more", path=path)
    if length_ms < minimum_ms:
        raise Refused("duration_too_short", f"the duration is shorter than {duration_text(minimum_ms)}", path=path)
    if length_ms > maximum_ms:
        raise Refused("duration_too_long", f"the duration is longer than {duration_text(maximum_ms)}", path=path)
    return length_ms


def _numeric(value: object) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _offset_minutes(zone: str | None, path: str) -> int:
    if zone is None:
        raise Refused("instant_zone", "the instant has no zone; end it with Z or an offset such as +02:00", path=path)
    if zone in "Zz":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    offset_minutes = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    if minutes > 59 or not OFFSET_MINUTES_MIN <= offset_minutes <= OFFSET_MINUTES_MAX:
        raise Refused("instant_offset", f"the offset {zone} does not exist; use -12:00 to +14:00", path=path)
    return offset_minutes


def _local(year: int, month: int, day: int, hour: int, minute: int, second: int, *, path: str) -> datetime:
    if hour == 24:
        raise Refused("instant_hour_24", "24:00 is not a time of day; write 00:00 of the next day", path=path)
    if second == 60:
        raise Refused("instant_leap_second", "leap seconds are not kept; write second 59 or the next minute", path=path)
    try:
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise Refused("instant_range", f"no such date or time: {error}", path=path) from None


def _in_calendar(at_ms: int, path: str) -> int:
    if not INSTANT_MS_MIN <= at_ms <= INSTANT_MS_MAX:
        raise Refused("instant_range", "the instant is outside the years 0001 to 9999 in UTC", path=path)
    return at_ms
