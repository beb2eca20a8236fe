"""A request for a schedule, as the machine says it."""

from tickwork.core import inputs as ask
from tickwork.core.errors import Refused
from tickwork.core.schedule import Governing, Terms
from tickwork.core.timetext import duration_ms, instant_ms
from tickwork.core.when import When
from tickwork.ports import wire
from tickwork.runtime.checks import packed


def put_of(
    name: str, wanted: wire.ScheduleRequest, *, by: str, tenant: str, owner: str = "", path: str = ""
) -> ask.PutSchedule:
    at = f"{path}." if path else ""
    governor = wanted.governor
    return ask.PutSchedule(
        by,
        tenant,
        name,
        wanted.workflow,
        when_of(wanted, at),
        _terms(wanted, at),
        packed(wanted.inputs, f"{at}inputs") if wanted.inputs else None,
        packed(wanted.context, f"{at}context") if wanted.context is not None else None,
        None if governor is None else Governing(_length(governor.min, f"{at}min"), _length(governor.max, f"{at}max")),
        owner,
        wanted.description,
    )


def when_of(wanted: wire.ScheduleRequest, at: str = "") -> When:
    said = [name for name in ("cron", "every", "at", "rrule") if getattr(wanted, name)]
    if len(said) != 1:
        found = " and ".join(said) if said else "none of them"
        raise Refused("bad_schedule", f"say one of cron, every, at and rrule; there is {found}", path=f"{at}cron")
    return When(
        cron=wanted.cron or None,
        every_ms=_length(wanted.every, f"{at}every"),
        at_ms=_instant(wanted.at, f"{at}at"),
        rrule=wanted.rrule or None,
        anchor_ms=_instant(wanted.anchor, f"{at}anchor"),
        zone=wanted.timezone,
        gap=wanted.dst_gap,
        overlap=wanted.dst_overlap,
        include=wanted.include,
        exclude=wanted.exclude,
        business_days=wanted.business_days,
        holidays=wanted.holidays,
        start_ms=_instant(wanted.start, f"{at}start"),
        end_ms=_instant(wanted.end, f"{at}end"),
    )


def _terms(wanted: wire.ScheduleRequest, at: str) -> Terms:
    return Terms(
        queue=wanted.queue,
        overlap=wanted.overlap,
        catch_up=wanted.catch_up,
        catch_up_ms=_length(wanted.catch_up_window, f"{at}catch_up_window") or 0,
        catch_up_cap=wanted.catch_up_cap,
        grace_ms=_length(wanted.grace, f"{at}grace") or 0,
        jitter=wanted.jitter,
        pause_after=wanted.pause_after,
        priority=-1 if wanted.priority is None else wanted.priority,
        automatic_backfill=wanted.automatic_backfill,
        runs_max=wanted.max_runs,
        buffer_max=wanted.buffer,
        group=wanted.group,
        time_input=wanted.time_input,
        context_input=wanted.context_input,
    )


def _length(text: str, path: str) -> int | None:
    return duration_ms(text, path=path) if text else None


def _instant(text: str, path: str) -> int | None:
    return instant_ms(text, path=path) if text else None
