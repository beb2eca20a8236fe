"""When a cron or a rule is due in a zone, worked out from the documentation alone, over any number of years.

Nothing of the core is imported. Clocks are those of the standard library over the package `tzdata`: for a reading,
PEP 495 gives the offset before a change (`fold=0`) and behind it (`fold=1`). Days are tried one after the other.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1)
DAY_S = 86_400
SCAN_S = 3 * DAY_S  # no zone changes its clocks twice within these
NEAR_DAYS = 3  # a reading is further from its instant in no zone
NEAR = timedelta(days=NEAR_DAYS)
TRIED_DAYS = 366 * 41  # 29 February on one weekday, across a year 1900 or 2100


@cache
def zone_info(name):
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def local(name, at_s):
    """What the clock on the wall shows."""
    shown = (EPOCH + timedelta(seconds=at_s)).replace(tzinfo=UTC).astimezone(zone_info(name))
    return shown.replace(tzinfo=None)


def offset_s(name, at_s):
    return seconds(local(name, at_s)) - at_s


def seconds(shown):
    return (shown - EPOCH) // timedelta(seconds=1)


@cache
def changes(name, first_year, last_year):
    """Every change of the clocks in these years: the first instant with the new offset."""
    found = []
    start = seconds(datetime(first_year, 1, 1))
    before = offset_s(name, start)
    for at in range(start, seconds(datetime(last_year + 1, 1, 1)), SCAN_S):
        after = offset_s(name, at + SCAN_S)
        if after != before:
            found.append(change_between(name, at, at + SCAN_S))
            before = after
    return found


def change_between(name, low, high):
    """The offset is the old one at `low` and the new one at `high`."""
    old = offset_s(name, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset_s(name, middle) == old else (low, middle)
    return high


def instants(name, shown, gap, overlap):
    """The instants in seconds at which a reading is due."""
    zone = zone_info(name)
    old = shown.replace(tzinfo=zone).utcoffset() // timedelta(seconds=1)
    new = shown.replace(tzinfo=zone, fold=1).utcoffset() // timedelta(seconds=1)
    at = seconds(shown)
    by_old, by_new = at - old, at - new
    if old == new:
        return [by_old]
    if old > new:
        return {"first": [by_old], "second": [by_new], "both": [by_old, by_new]}[overlap]
    if gap == "skip":
        return []
    # By the old offset the reading is the instant that lies as far behind the change as the reading in the gap.
    return [by_old] if gap == "shift" else [change_between(name, by_new - 1, by_old)]


@dataclass
class Due:
    """Times of day on days that fit, with the policies made plain."""

    zone: str
    minutes: set[int]
    hours: set[int]
    days: set[int]
    months: set[int]
    weekdays: set[int]
    either: bool = False  # a day need only fit one of the two day fields
    gap: str = "shift"
    overlap: str = "first"
    start_s: int | None = None  # an instant
    until_s: int | None = None
    _kept: dict = field(default_factory=dict)

    def fits(self, day):
        if day.month not in self.months:
            return False
        on_day, on_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return on_day or on_weekday if self.either else on_day and on_weekday

    def of_day(self, day):
        """The instants of one date, in no order."""
        if day not in self._kept:
            found = set()
            if self.fits(day):
                start = datetime(day.year, day.month, day.day)
                for hour in self.hours:
                    for minute in self.minutes:
                        shown = start + timedelta(hours=hour, minutes=minute)
                        found.update(instants(self.zone, shown, self.gap, self.overlap))
            self._kept[day] = found
        return self._kept[day]

    def next_s(self, after_s):
        return self._nearest(after_s, 1)

    def prev_s(self, before_s):
        return self._nearest(before_s, -1)

    def _nearest(self, at_s, step):
        if step > 0 and self.start_s is not None:
            at_s = max(at_s, self.start_s - 1)
        if step < 0 and self.until_s is not None:
            at_s = min(at_s, self.until_s + 1)
        best, day = None, local(self.zone, at_s).date() - step * NEAR
        left = TRIED_DAYS
        while left:
            left -= 1
            for found in self.of_day(day):
                closer = best is None or (best - found) * step > 0
                if (found - at_s) * step > 0 and closer and self._within(found):
                    best, left = found, min(left, 2 * NEAR_DAYS)
            if not date.min + timedelta(days=9) < day < date.max - timedelta(days=9):
                break
            if step > 0 and self.until_s is not None and day > local(self.zone, self.until_s).date() + NEAR:
                break
            if step < 0 and self.start_s is not None and day < local(self.zone, self.start_s).date() - NEAR:
                break
            day += step * timedelta(days=1)
        return best

    def counted(self, count):
        """The same, up to and including so many from the start on."""
        last_s = self.start_s - 1
        for _ in range(count):
            found = self.next_s(last_s)
            if found is None:
                break
            last_s = found
        return replace(self, until_s=last_s)

    def _within(self, found):
        return (self.start_s is None or found >= self.start_s) and (self.until_s is None or found <= self.until_s)
