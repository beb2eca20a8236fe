"""Schedules, fates and backfills as the models of the API."""

from typing import Any

import msgspec

from tickwork.core.base.values import Value, unpack
from tickwork.core.calendar.durations import duration_text
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.evolve.schedules import is_held
from tickwork.core.explain.catch_up_preview import late_ones
from tickwork.core.explain.schedule_preview import describe
from tickwork.core.snapshot.schedule_rows import LiveBackfill, backfill_row
from tickwork.core.state.schedule import Fate, FateRange, GovernorLimits
from tickwork.core.state.state import BackfillState, Schedule, Tenant
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.text import instant, instant_or_none

FATES = {int(fate): fate.name.lower() for fate in Fate}
BACKFILL_STATES = {int(state): state.name.lower() for state in BackfillState}

row_of = backfill_row


def schedule(one: Schedule) -> wire.Schedule:
    terms, next_ms = one.terms, 0 if is_held(one) else one.next_ms
    return wire.Schedule(
        name=one.name,
        workflow=one.workflow,
        expression=expression(one.when),
        timezone=one.when.zone,
        says="" if one.rhythm is None else describe(one.when, seed=f"{one.tenant.id}/{one.name}", rhythm=one.rhythm),
        description=one.description,
        owner=one.owner,
        queue=terms.queue,
        overlap=terms.overlap,
        catch_up=terms.catch_up,
        automatic_backfill=terms.automatic_backfill,
        jitter=terms.jitter,
        group=terms.group,
        paused=one.paused or is_held(one),
        archived=one.archived,
        pause_reason=one.pause_reason or _group_reason(one),
        paused_until=instant_or_none(one.paused_until_ms),
        next_at=instant_or_none(next_ms),
        starts_at=instant_or_none(next_ms and one.wait_ms and next_ms + one.wait_ms),
        last_fired_at=instant_or_none(one.last_fired_ms),
        last_success_at=instant_or_none(one.last_success_ms),
        fired=one.fired,
        failures=one.failures,
        active=len(one.active),
        buffered=len(one.buffer),
        fates=wire.Fates(**dict(zip((FATES[fate] for fate in sorted(FATES)), one.fates, strict=True))),
        governed=_governed(one),
        broken=one.broken,
    )


def whole_schedule(one: Schedule) -> wire.Schedule:
    return msgspec.structs.replace(schedule(one), request=request(one))


def request(one: Schedule) -> wire.ScheduleRequest:
    """What would put it just so: times and lengths are written in one way, whatever way they came in."""
    when, terms = one.when, one.terms
    return wire.ScheduleRequest(
        workflow=one.workflow,
        cron=when.cron or "",
        every=_length(when.every_ms),
        at=_instant(when.at_ms),
        rrule=when.rrule or "",
        anchor=_instant(when.anchor_ms),
        timezone=when.zone,
        dst_gap=when.gap,
        dst_overlap=when.overlap,
        include=when.include,
        exclude=when.exclude,
        business_days=when.business_days,
        holidays=when.holidays,
        start=_instant(when.start_ms),
        end=_instant(when.end_ms),
        max_runs=terms.runs_max,
        inputs=_value(one.inputs, "inputs") or {},
        context=_value(one.context, "context"),
        time_input=terms.time_input,
        context_input=terms.context_input,
        queue=terms.queue,
        priority=None if terms.priority == -1 else terms.priority,
        overlap=terms.overlap,
        buffer=terms.buffer_max,
        catch_up=terms.catch_up,
        catch_up_window=_length(terms.catch_up_ms or None),
        catch_up_cap=terms.catch_up_cap,
        grace=_length(terms.grace_ms or None),
        automatic_backfill=terms.automatic_backfill,
        jitter=terms.jitter,
        pause_after=terms.pause_after,
        group=terms.group,
        description=one.description,
        governor=_limits(one.governing),
    )


def _limits(governing: GovernorLimits | None) -> wire.GovernorRequest | None:
    if governing is None:
        return None
    return wire.GovernorRequest(min=_length(governing.min_ms), max=_length(governing.max_ms))


def _length(length_ms: int | None) -> str:
    return "" if length_ms is None else duration_text(length_ms)


def _instant(at_ms: int | None) -> str:
    return "" if at_ms is None else instant(at_ms)


def _value(value: Value, what: str) -> Any:
    return unpack(value, what=what) if isinstance(value, bytes) else None


def expression(when: ScheduleSpec) -> str:
    if when.cron is not None:
        return when.cron
    if when.every_ms is not None:
        return f"every {duration_text(when.every_ms)}"
    return instant(when.at_ms) if when.at_ms is not None else when.rrule or ""


def _group_reason(one: Schedule) -> str:
    group = one.tenant.groups.get(one.terms.group) if one.terms.group else None
    if group is None or not group.paused:
        return ""
    return f"group {group.name} is paused" + (f": {group.reason}" if group.reason else "")


def _governed(one: Schedule) -> wire.Governed | None:
    if one.governing is None:
        return None
    held, course, advice = is_held(one), one.course, one.advice
    decision = None if held else one.decision  # what stood before binds nobody: the Governor is asked again afterwards
    hints = None
    if course is not None and course.hint_expires_ms:
        hints = wire.Hints(
            interval=duration_text(course.hint_interval_ms) if course.hint_interval_ms is not None else "",
            at=instant(course.hint_at_ms) if course.hint_at_ms is not None else None,
            expires_at=instant(course.hint_expires_ms),
            reason=advice.reason if advice is not None else "",
            by=advice.by if advice is not None else "",
            cost=advice.cost if advice is not None else 0,
        )
    return wire.Governed(
        source=str(decision.source) if decision is not None else "paused" if held and not one.archived else "",
        candidates=tuple((str(each.source), instant(each.at_ms)) for each in decision.candidates) if decision else (),
        min=duration_text(one.governing.min_ms) if one.governing.min_ms is not None else "",
        max=duration_text(one.governing.max_ms) if one.governing.max_ms is not None else "",
        failures=one.failures,
        hints=hints,
    )


def occurrence(span: FateRange) -> wire.Occurrence:
    return wire.Occurrence(
        schedule=span.name,
        from_at=instant(span.from_ms),
        to_at=instant(span.to_ms),
        count=span.count,
        fate=FATES[span.fate],
        cause=span.cause,
        backfill=span.backfill or None,
    )


def backfill(schedule_name: str, row: LiveBackfill) -> wire.Backfill:
    return wire.Backfill(
        number=row.number,
        schedule=schedule_name,
        state=BACKFILL_STATES[row.state],
        start=instant(row.from_ms),
        end=instant(row.to_ms),
        by=row.by,
        forced=row.forced,
        newest_first=row.newest_first,
        concurrency=row.concurrency,
        started=row.started,
        running=len(row.running),
        succeeded=row.succeeded,
        failed=row.failed,
        known=row.known,
        position=instant_or_none(row.cursor_ms),
    )


def catch_ups(tenant: Tenant, now_ms: int, policy: str = "") -> list[wire.CatchUp]:
    """What is late, and what would become of it; the state may be of a server that does not run."""
    return [
        wire.CatchUp(
            schedule=one.schedule.name,
            policy=one.policy,
            late_since=instant(one.from_ms),
            late=one.late,
            runs=one.runs,
            passed=one.late - one.runs,
            fate=FATES[one.plan.fate],
            cause=one.plan.cause,
            first_run_at=instant(one.first_ms) if one.runs else None,
            spread=duration_text(one.plan.spread_ms) if one.plan.spread_ms else "",
            limit=one.limit,
            paused=one.paused,
        )
        for one in late_ones(tenant, now_ms, policy)
    ]
