"""When a cron expression is due in a zone, found the slow way: every minute is looked at.

Knows nothing of the core. Clocks are those of the standard library over the tzdata package, fields are sets, and
what a change of the clocks does is read off a table of which minute showed what.
"""

from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

MINUTE, DAY = 60, 86_400
EPOCH = datetime(1970, 1, 1)


@cache
def zone_info(name):
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with file.open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def reading(name, utc_s):
    """What the clock on the wall shows, as seconds since its own 1970."""
    shown = (EPOCH + timedelta(seconds=utc_s)).replace(tzinfo=UTC).astimezone(zone_info(name))
    return (shown.replace(tzinfo=None) - EPOCH) // timedelta(seconds=1)


@cache
def changes(name, year):
    """The hours of a year in which clocks are changed, in UTC."""
    start = (datetime(year, 1, 1) - EPOCH) // timedelta(seconds=1)
    offsets = [reading(name, at) - at for at in range(start, start + 366 * DAY, 3_600)]
    return [start + 3_600 * i for i in range(1, len(offsets)) if offsets[i] != offsets[i - 1]]


@cache
def table(name, start_s, end_s):
    """Each reading of these minutes, with the instants at which it was shown."""
    found = {}
    for at in range(start_s, end_s, MINUTE):
        found.setdefault(reading(name, at), []).append(at)
    return found


def due(name, fits, start_s, end_s, gap, overlap):
    """The instants from start to end, in seconds. `fits` says whether a reading is meant."""
    shown = table(name, start_s - 2 * DAY, end_s + 2 * DAY)
    found = set()
    for local in range(min(shown), max(shown) + 1, MINUTE):
        if fits(EPOCH + timedelta(seconds=local)):
            found.update(instants(shown, local, gap, overlap))
    return sorted(at for at in found if start_s <= at < end_s)


def instants(shown, local, gap, overlap):
    if local in shown:
        times = shown[local]
        return {"first": times[:1], "second": times[-1:], "both": times}[overlap]
    if gap == "skip":
        return []
    first = last = local
    while first - MINUTE not in shown:
        first -= MINUTE
    while last not in shown:
        last += MINUTE
    if gap == "end":
        return shown[last][:1]
    return shown[local + last - first][:1]
