"""Schedules, fates and backfills as the models of the API."""

from typing import Any

import msgspec

from tickwork.core.base.values import Value, unpack
from tickwork.core.calendar.durations import duration_text
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.evolve.schedules import is_held, waits_for_past
from tickwork.core.explain.catch_up_preview import late_ones
from tickwork.core.explain.schedule_preview import describe
from tickwork.core.explain.update_text import missing_updates
from tickwork.core.snapshot.schedule_rows import LiveBackfill, backfill_row
from tickwork.core.state.schedule import Fate, FateRange, GovernorLimits
from tickwork.core.state.state import BackfillState, Schedule, State, Tenant
from tickwork.protocol import http_models as wire
from tickwork.protocol.schedule_requests import fields_of
from tickwork.runtime.views.text import instant, instant_or_none

FATES = {int(fate): fate.name.lower() for fate in Fate}
BACKFILL_STATES = {int(state): state.name.lower() for state in BackfillState}

row_of = backfill_row


def schedule(schedule: Schedule) -> wire.Schedule:
    terms, next_ms = schedule.terms, 0 if is_held(schedule) else schedule.next_ms
    return wire.Schedule(
        name=schedule.name,
        workflow=schedule.workflow,
        expression=expression(schedule.when),
        timezone=schedule.when.zone,
        says=""
        if schedule.rhythm is None
        else describe(schedule.when, seed=f"{schedule.tenant.id}/{schedule.name}", rhythm=schedule.rhythm),
        description=schedule.description,
        owner=schedule.owner,
        queue=terms.queue,
        overlap=terms.overlap,
        catch_up=terms.catch_up,
        automatic_backfill=terms.automatic_backfill,
        jitter=terms.jitter,
        group=terms.group,
        paused=schedule.paused or is_held(schedule),
        archived=schedule.archived,
        pause_reason=schedule.pause_reason or _group_reason(schedule),
        paused_until=instant_or_none(schedule.paused_until_ms),
        next_at=instant_or_none(next_ms),
        starts_at=instant_or_none(next_ms and schedule.wait_ms and next_ms + schedule.wait_ms),
        last_fired_at=instant_or_none(schedule.last_fired_ms),
        last_success_at=instant_or_none(schedule.last_success_ms),
        fired=schedule.fired,
        failures=schedule.failures,
        active=len(schedule.active),
        buffered=len(schedule.buffer),
        fates=wire.Fates(**dict(zip((FATES[fate] for fate in sorted(FATES)), schedule.fates, strict=True))),
        governed=_governed(schedule),
        broken=schedule.broken,
        held=_held(schedule),
        updates=_updates(schedule),
    )


def _updates(schedule: Schedule) -> wire.ScheduleUpdates | None:
    updates = schedule.updates
    if updates is None:
        return None
    return wire.ScheduleUpdates(
        count=updates.count,
        waiting=updates.open,
        missing=missing_updates(schedule),
        last_at=instant_or_none(updates.last_ms),
    )


def _held(schedule: Schedule) -> str:
    if not waits_for_past(schedule):
        return ""
    advice = f"retry it, or let the next one run: tickwork schedules reset-failures {schedule.name}"
    return f"the run before failed, and this schedule depends on its past: {advice}"


def whole_schedule(source: Schedule) -> wire.Schedule:
    return msgspec.structs.replace(schedule(source), request=request(source))


def request(schedule: Schedule) -> wire.ScheduleRequest:
    """Return the request that would put this schedule as it is, with times and durations in canonical form."""
    return wire.ScheduleRequest(
        workflow=schedule.workflow,
        inputs=_value(schedule.inputs, "inputs") or {},
        context=_value(schedule.context, "context"),
        description=schedule.description,
        governor=_limits(schedule.governing),
        **fields_of(schedule.when, schedule.terms),
    )


def edited(state: State, tenant: str, name: str) -> bytes | None:
    """What was put of a schedule, or of an endpoint with the call that its workflow makes; None: there is none."""
    owner = state.tenants.get(tenant)
    schedule = owner.schedules.get(name) if owner is not None else None
    if owner is None or schedule is None:
        return None
    plan = owner.plans.get(schedule.workflow) if schedule.governing is not None else None
    call = "" if plan is None else plan.hash
    return msgspec.json.encode((request(schedule), schedule.archived, call), order="deterministic")


def _limits(governing: GovernorLimits | None) -> wire.GovernorRequest | None:
    if governing is None:
        return None
    return wire.GovernorRequest(min=_length(governing.min_ms), max=_length(governing.max_ms))


def _length(length_ms: int | None) -> str:
    return "" if length_ms is None else duration_text(length_ms)


def _value(value: Value, what: str) -> Any:
    return unpack(value, what=what) if isinstance(value, bytes) else None


def expression(when: ScheduleSpec) -> str:
    if when.on is not None:
        times = expression(msgspec.structs.replace(when, on=None)) if when.has_time else ""
        return f"{times}; or {when.on.words}" if times else when.on.words
    if when.cron is not None:
        return when.cron
    if when.every_ms is not None:
        return f"every {duration_text(when.every_ms)}"
    return instant(when.at_ms) if when.at_ms is not None else when.rrule or ""


def _group_reason(schedule: Schedule) -> str:
    group = schedule.tenant.groups.get(schedule.terms.group) if schedule.terms.group else None
    if group is None or not group.paused:
        return ""
    return f"group {group.name} is paused" + (f": {group.reason}" if group.reason else "")


def _governed(schedule: Schedule) -> wire.Governed | None:
    if schedule.governing is None:
        return None
    held, course, advice = is_held(schedule), schedule.course, schedule.advice
    # A decision from before a pause no longer applies: the Governor decides again afterwards.
    decision = None if held else schedule.decision
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
        source=str(decision.source) if decision is not None else "paused" if held and not schedule.archived else "",
        candidates=tuple((str(each.source), instant(each.at_ms)) for each in decision.candidates) if decision else (),
        min=duration_text(schedule.governing.min_ms) if schedule.governing.min_ms is not None else "",
        max=duration_text(schedule.governing.max_ms) if schedule.governing.max_ms is not None else "",
        failures=schedule.failures,
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
    """Return what is late and the outcome; the server of this state need not run."""
    return [
        wire.CatchUp(
            schedule=catch_up.schedule.name,
            policy=catch_up.policy,
            late_since=instant(catch_up.from_ms),
            late=catch_up.late,
            runs=catch_up.runs,
            passed=catch_up.late - catch_up.runs,
            fate=FATES[catch_up.plan.fate],
            cause=catch_up.plan.cause,
            first_run_at=instant(catch_up.first_ms) if catch_up.runs else None,
            spread=duration_text(catch_up.plan.spread_ms) if catch_up.plan.spread_ms else "",
            limit=catch_up.limit,
            paused=catch_up.paused,
        )
        for catch_up in late_ones(tenant, now_ms, policy)
    ]
