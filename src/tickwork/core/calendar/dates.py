"""Days as numbers: since 1970, by the proleptic Gregorian calendar, and small sets as bits of an integer.

No library is used. A weekday is a number from 0 for Sunday, as cron counts; a time of day is in seconds.
"""

import re
from collections.abc import Iterable

from tickwork.core.base.errors import Refused

YEAR_MIN, YEAR_MAX = 1, 9999
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
CYCLE_DAYS = 146_097  # 400 years: whole weeks, so everything about dates repeats
DAYS_OF_MONTH = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
NO_TIME = -1
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    return 29 if month == 2 and is_leap(year) else DAYS_OF_MONTH[month]


def weekday(day: int) -> int:
    return (day + 4) % 7  # 1970 began on a Thursday; Sunday is 0


def day_number(year: int, month: int, day: int) -> int:
    """Days since 1970. A year is taken to begin in March, so that the leap day is its last."""
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719_468


def civil(day: int) -> tuple[int, int, int]:
    """Year, month and day of month: `day_number` backwards."""
    era, day_of_era = divmod(day + 719_468, CYCLE_DAYS)
    year = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return era * 400 + year + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1


def parse_date(text: str, *, path: str) -> int:
    """`2026-12-24` as a day number."""
    match = _DATE.fullmatch(text)
    if match is not None:
        year, month, day = (int(part) for part in match.groups())
        if year >= YEAR_MIN and 1 <= month <= 12 and 1 <= day <= month_length(year, month):
            return day_number(year, month, day)
    raise Refused("invalid_date", f"{text[:40]!a} is not a date; write it like 2026-12-24", path=path)


def local_text(local_s: int) -> str:
    """A reading of a clock on the wall: `2026-12-24T18:00:00`."""
    day, second = divmod(local_s, DAY_S)
    year, month, day_of_month = civil(day)
    hour, minute, second = second // HOUR_S, second // MINUTE_S % 60, second % 60
    return f"{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}"


def lowest_from(bits: int, low: int) -> int:
    """The lowest member not below `low`, or -1."""
    bits = bits >> low << low
    return (bits & -bits).bit_length() - 1


def highest_until(bits: int, high: int) -> int:
    """The highest member not above `high`, or -1."""
    return (bits & (2 << high) - 1).bit_length() - 1 if high >= 0 else -1


def bits_of(numbers: Iterable[int]) -> int:
    """The set of the numbers that are days of a month, or times; others are left out."""
    bits = 0
    for number in numbers:
        bits |= 1 << number if 0 <= number < 64 else 0
    return bits


def members(bits: int) -> list[int]:
    """The members of a bitset, in ascending order."""
    numbers = []
    while bits:
        lowest = bits & -bits
        numbers.append(lowest.bit_length() - 1)
        bits ^= lowest
    return numbers


def time_from(hours: int, minutes: int, seconds: int, second: int) -> int:
    """The first second of a day whose hour, minute and second are in these sets, from this one on; or -1."""
    hour, minute, second = second // HOUR_S, second // MINUTE_S % 60, second % 60
    if hours >> hour & 1:
        if minutes >> minute & 1 and (unit := lowest_from(seconds, second)) >= 0:
            return hour * HOUR_S + minute * MINUTE_S + unit
        if (unit := lowest_from(minutes, minute + 1)) >= 0:
            return hour * HOUR_S + unit * MINUTE_S + lowest_from(seconds, 0)
    if (unit := lowest_from(hours, hour + 1)) >= 0:
        return unit * HOUR_S + lowest_from(minutes, 0) * MINUTE_S + lowest_from(seconds, 0)
    return NO_TIME


def time_until(hours: int, minutes: int, seconds: int, second: int) -> int:
    """The last second of a day whose hour, minute and second are in these sets, up to this one; or -1."""
    hour, minute, second = second // HOUR_S, second // MINUTE_S % 60, second % 60
    if hours >> hour & 1:
        if minutes >> minute & 1 and (unit := highest_until(seconds, second)) >= 0:
            return hour * HOUR_S + minute * MINUTE_S + unit
        if (unit := highest_until(minutes, minute - 1)) >= 0:
            return hour * HOUR_S + unit * MINUTE_S + highest_until(seconds, 59)
    if (unit := highest_until(hours, hour - 1)) >= 0:
        return unit * HOUR_S + highest_until(minutes, 59) * MINUTE_S + highest_until(seconds, 59)
    return NO_TIME


DAY_MIN, DAY_MAX = day_number(YEAR_MIN, 1, 1), day_number(YEAR_MAX, 12, 31)
S_START, S_END = DAY_MIN * DAY_S, (DAY_MAX + 1) * DAY_S
MS_START, MS_END = S_START * 1000, S_END * 1000
