"""When a workflow runs by itself."""

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tickwork.core.timetext import interval_ms
from tickwork.sdk.options import duration
from tickwork.sdk.places import at_place

if TYPE_CHECKING:
    from tickwork.ports.exchange import Timetable


@dataclass(frozen=True, slots=True)
class Schedule:
    """Cron times in a zone, or a fixed interval."""

    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"

    def timetable(self, *, name: str, workflow: str) -> "Timetable":
        from tickwork.ports.exchange import Timetable

        return Timetable(name, workflow, self.cron, self.every_ms, self.timezone)


def cron(expression: str, /, *, tz: str = "UTC") -> Schedule:
    """Five fields, or six with seconds first: `tw.cron("0 9 * * 1-5", tz="America/New_York")`."""
    at_place(_check_cron, expression, tz)
    return Schedule(cron=expression, timezone=tz)


def every(interval: str | timedelta, /) -> Schedule:
    """At a fixed interval: `tw.every("5m")`."""
    length_ms = at_place(duration, interval, path="every")
    return Schedule(every_ms=at_place(interval_ms, length_ms, path="every"))


def _check_cron(expression: str, tz: str) -> None:
    from zoneinfo import ZoneInfo

    from tickwork.core.cron import Cron
    from tickwork.core.errors import Refused

    Cron.parse(expression, path="cron")
    try:
        ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise Refused(
            "unknown_zone", f"there is no time zone {tz!r}; use a name like Europe/Berlin", path="tz"
        ) from None
