"""A schedule as one row, and back into memory; a backfill as a part of the header.

As with runs: a fixed order of fields, equal schedules are equal bytes, and nothing is kept that can be found
again. Add fields at the end only.
"""

from collections.abc import Iterable

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.evolve.indexes import set_timer
from tickwork.core.evolve.schedules import join, set_rhythm
from tickwork.core.state.governor import Decision, GovernorState
from tickwork.core.state.schedule import CatchUpPlan, FateRange, GovernorLimits, HintOrigin, SchedulePolicy
from tickwork.core.state.state import Backfill, Schedule, State, Timer
from tickwork.core.state.timing_wheel import mark_of
from tickwork.core.state.updates import Firing, ScheduleUpdates, Update


class LiveUpdates(msgspec.Struct, array_like=True, gc=False):
    """Of a schedule that listens to updates."""

    last_ms: int
    count: int
    heard: tuple[Update, ...]
    waiting: tuple[Firing, ...]


class ScheduleExtras(msgspec.Struct, array_like=True, gc=False):
    """What few schedules have."""

    paused: bool
    archived: bool
    pause_reason: str
    paused_until_ms: int
    resumed_ms: int
    buffer: tuple[int, ...]
    late: CatchUpPlan | None
    governing: GovernorLimits | None
    course: GovernorState | None
    decision: Decision | None
    advice: HintOrigin | None
    ended: int
    broken: str
    updates: LiveUpdates | None = None


class LiveSchedule(msgspec.Struct, array_like=True, gc=False):
    number: int
    tenant: str
    name: str
    workflow: str
    when: ScheduleSpec
    terms: SchedulePolicy
    inputs: Value
    context: Value
    by: str
    owner: str
    description: str
    made_ms: int
    version: int
    next_ms: int
    wait_ms: int
    due: int
    fired: int
    last_fired_ms: int
    last_success_ms: int
    failures: int
    active: tuple[int, ...]
    span: FateRange | None
    joins_ms: int
    fates: tuple[int, ...]
    begun_ms: int
    more: ScheduleExtras | None


class LiveBackfill(msgspec.Struct, array_like=True, gc=False):
    number: int
    schedule: int
    by: str
    from_ms: int
    to_ms: int
    concurrency: int
    priority: int
    newest_first: bool
    forced: bool
    begun_ms: int
    cursor_ms: int
    state: int
    exhausted: bool
    lookups: tuple[int, ...]
    ready: tuple[int, ...]
    running: tuple[int, ...]
    started: int
    known: int
    succeeded: int
    failed: int
    due: int
    span: FateRange | None


_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode = msgspec.msgpack.Decoder(LiveSchedule).decode


def encode_schedule(schedule: Schedule) -> bytes:
    return _encode(
        LiveSchedule(
            schedule.number, schedule.tenant.id, schedule.name, schedule.workflow, schedule.when, schedule.terms,
            schedule.inputs, schedule.context, schedule.by,
            schedule.owner, schedule.description, schedule.made_ms, schedule.version, schedule.next_ms,
            schedule.wait_ms, schedule.due, schedule.fired,
            schedule.last_fired_ms, schedule.last_success_ms, schedule.failures, schedule.active, schedule.span,
            schedule.joins_ms, schedule.fates,
            schedule.begun_ms, _more(schedule),
        )
    )  # fmt: skip


def _more(schedule: Schedule) -> ScheduleExtras | None:
    if not (
        schedule.paused or schedule.archived or schedule.resumed_ms or schedule.buffer or schedule.late is not None
        or schedule.governing is not None or schedule.broken or schedule.updates is not None
    ):  # fmt: skip
        return None
    return ScheduleExtras(
        schedule.paused, schedule.archived, schedule.pause_reason, schedule.paused_until_ms, schedule.resumed_ms,
        schedule.buffer, schedule.late,
        schedule.governing, schedule.course, schedule.decision, schedule.advice, schedule.ended, schedule.broken,
        _updates_row(schedule.updates),
    )  # fmt: skip


def _updates_row(updates: ScheduleUpdates | None) -> LiveUpdates | None:
    if updates is None:
        return None
    return LiveUpdates(updates.last_ms, updates.count, updates.heard, updates.waiting)


def add_schedules(state: State, rows: Iterable[bytes], timers: list[int]) -> None:
    """Tenants and their holidays are there already. Their timers are set with those of all other rows."""
    for data in rows:
        _add(state, _decode(data), timers)


def _add(state: State, row: LiveSchedule, timers: list[int]) -> None:
    tenant = state.tenants[row.tenant]
    terms = state.terms.setdefault(row.terms, row.terms)
    parts = state.parts
    schedule = Schedule(
        row.number, tenant, row.name, parts.shared(row.workflow), parts.when(row.when), None, terms, row.inputs,
        row.context, parts.shared(row.by), parts.shared(row.owner), row.description, row.made_ms, row.version,
        row.next_ms, row.wait_ms, row.due, row.fired, row.last_fired_ms, row.last_success_ms, row.failures,
    )  # fmt: skip
    schedule.active, schedule.joins_ms, schedule.fates, schedule.begun_ms = (
        row.active,
        row.joins_ms,
        row.fates,
        row.begun_ms,
    )
    if (span := row.span) is not None:
        schedule.span_from_ms, schedule.span_to_ms, schedule.span_count = span.from_ms, span.to_ms, span.count
        schedule.span_fate, schedule.span_cause = span.fate, span.cause
    more = row.more
    if more is not None:
        schedule.paused, schedule.archived, schedule.pause_reason = more.paused, more.archived, more.pause_reason
        schedule.paused_until_ms, schedule.resumed_ms, schedule.buffer, schedule.late = (
            more.paused_until_ms, more.resumed_ms, more.buffer, more.late,
        )  # fmt: skip
        schedule.governing, schedule.course, schedule.decision, schedule.advice = (
            more.governing,
            more.course,
            more.decision,
            more.advice,
        )
        schedule.ended = more.ended
        if (kept := more.updates) is not None:
            schedule.updates = ScheduleUpdates(kept.last_ms, kept.count, kept.heard, kept.waiting)
    set_rhythm(state, schedule)
    tenant.schedules.add(schedule.name, schedule)
    state.schedules.add(schedule.number, schedule)
    join(state, schedule)
    if schedule.due:
        timers.append(mark_of(schedule.due, Timer.SCHEDULE, schedule.number))


def backfill_row(backfill: Backfill) -> LiveBackfill:
    return LiveBackfill(
        backfill.number, backfill.schedule.number, backfill.by, backfill.from_ms, backfill.to_ms,
        backfill.concurrency, backfill.priority,
        backfill.newest_first, backfill.forced, backfill.begun_ms, backfill.cursor_ms, backfill.state,
        backfill.exhausted, backfill.lookups, backfill.ready,
        backfill.running, backfill.started, backfill.known, backfill.succeeded, backfill.failed, backfill.due,
        backfill.span,
    )  # fmt: skip


def add_backfill(state: State, row: LiveBackfill) -> None:
    """Schedules are there already."""
    backfill = Backfill(
        row.number, state.schedules[row.schedule], row.by, row.from_ms, row.to_ms, row.concurrency, row.priority,
        row.newest_first, row.forced, row.begun_ms, row.cursor_ms, row.state, row.exhausted, row.lookups, row.ready,
        row.running, row.started, row.known, row.succeeded, row.failed, row.due, row.span,
    )  # fmt: skip
    state.backfills[backfill.number] = backfill
    if backfill.due:
        set_timer(state, Timer.BACKFILL, backfill.number, backfill.due)
