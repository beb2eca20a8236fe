"""Schedules between request and rule: what the request says, as values of the core; and what the rules refuse, in the
words of the request. Whoever declares a schedule and whoever puts it read it alike.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import duration_ms, instant_ms
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.zones import Zone
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.protocol import http_models as wire

_READING = re.compile(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?P<seconds>:\d\d(?:\.\d+)?)?)?", re.ASCII)
_WORDS = {
    "at_ms": "at",
    "buffer_max": "buffer",
    "catch_up_ms": "catch_up_window",
    "governing.interval_ms": "every",
    "governing.max_ms": "governor.max",
    "governing.min_ms": "governor.min",
    "grace_ms": "grace",
    "hint_interval_ms": "interval",
    "interval_ms": "interval",
    "runs_max": "max_runs",
    "ttl_ms": "ttl",
    "when": "cron",
    "when.anchor_ms": "anchor",
    "when.at_ms": "at",
    "when.end_ms": "end",
    "when.every_ms": "every",
    "when.gap": "dst_gap",
    "when.overlap": "dst_overlap",
    "when.start_ms": "start",
    "when.zone": "timezone",
}


@contextmanager
def in_words(at: str = "") -> Iterator[None]:
    """A refusal inside names the field as the request has it; `at` is where the request itself is."""
    try:
        yield
    except Refused as refused:
        path = f"{at}.{word_of(refused.path)}".strip(".")
        raise Refused(refused.code, refused.message, path=path) from None


def word_of(path: str) -> str:
    """A field of the core, as the request has it."""
    return _WORDS.get(path, path.removeprefix("when."))


def when_of(request: wire.ScheduleRequest, at: str = "") -> ScheduleSpec:
    given = [name for name in ("cron", "every", "at", "rrule") if getattr(request, name)]
    if len(given) != 1:
        listed = " and ".join(given) if given else "none of them"
        raise Refused("bad_schedule", f"give exactly one of cron, every, at and rrule, not {listed}", path=f"{at}cron")
    return ScheduleSpec(
        cron=request.cron or None,
        every_ms=length_ms(request.every, f"{at}every"),
        at_ms=_instant(request.at, f"{at}at"),
        rrule=request.rrule or None,
        anchor_ms=_instant(request.anchor, f"{at}anchor"),
        zone=request.timezone,
        gap=request.dst_gap,
        overlap=request.dst_overlap,
        include=request.include,
        exclude=request.exclude,
        business_days=request.business_days,
        holidays=request.holidays,
        start_ms=_instant(request.start, f"{at}start"),
        end_ms=_instant(request.end, f"{at}end"),
    )


def terms_of(request: wire.ScheduleRequest, at: str = "") -> SchedulePolicy:
    return SchedulePolicy(
        queue=request.queue,
        overlap=request.overlap,
        catch_up=request.catch_up,
        catch_up_ms=length_ms(request.catch_up_window, f"{at}catch_up_window") or 0,
        catch_up_cap=request.catch_up_cap,
        grace_ms=length_ms(request.grace, f"{at}grace") or 0,
        jitter=request.jitter,
        pause_after=request.pause_after,
        priority=-1 if request.priority is None else request.priority,
        automatic_backfill=request.automatic_backfill,
        runs_max=request.max_runs,
        buffer_max=request.buffer,
        group=request.group,
        time_input=request.time_input,
        context_input=request.context_input,
    )


def length_ms(text: str, path: str) -> int | None:
    return duration_ms(text, path=path) if text else None


def _instant(text: str, path: str) -> int | None:
    return instant_ms(text, path=path) if text else None


def reading_ms(text: str, zone: Zone, *, path: str) -> int:
    """An instant; or a date, or a date and time without a zone, as the zone's own clock shows it."""
    match = _READING.fullmatch(text)
    if match is None:
        return instant_ms(text, path=path)
    whole = text if "T" in text else f"{text}T00:00:00"
    whole += "" if "T" not in text or match["seconds"] else ":00"
    local_s, ms = divmod(instant_ms(f"{whole}Z", path=path), 1_000)
    return zone.first_s(local_s) * 1_000 + ms
