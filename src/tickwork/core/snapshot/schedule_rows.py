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
    asked: tuple[int, ...]
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


def encode_schedule(one: Schedule) -> bytes:
    return _encode(
        LiveSchedule(
            one.number, one.tenant.id, one.name, one.workflow, one.when, one.terms, one.inputs, one.context, one.by,
            one.owner, one.description, one.made_ms, one.version, one.next_ms, one.wait_ms, one.due, one.fired,
            one.last_fired_ms, one.last_success_ms, one.failures, one.active, one.span, one.joins_ms, one.fates,
            one.begun_ms, _more(one),
        )
    )  # fmt: skip


def _more(one: Schedule) -> ScheduleExtras | None:
    if not (
        one.paused or one.archived or one.resumed_ms or one.buffer or one.late is not None
        or one.governing is not None or one.broken
    ):  # fmt: skip
        return None
    return ScheduleExtras(
        one.paused, one.archived, one.pause_reason, one.paused_until_ms, one.resumed_ms, one.buffer, one.late,
        one.governing, one.course, one.decision, one.advice, one.ended, one.broken,
    )  # fmt: skip


def add_schedules(state: State, rows: Iterable[bytes], timers: list[int]) -> None:
    """Tenants and their holidays are there already. Their timers are set with those of all other rows."""
    for data in rows:
        _add(state, _decode(data), timers)


def _add(state: State, row: LiveSchedule, timers: list[int]) -> None:
    tenant = state.tenants[row.tenant]
    terms = state.terms.setdefault(row.terms, row.terms)
    parts = state.parts
    one = Schedule(
        row.number, tenant, row.name, parts.one(row.workflow), parts.when(row.when), None, terms, row.inputs,
        row.context, parts.one(row.by), parts.one(row.owner), row.description, row.made_ms, row.version, row.next_ms,
        row.wait_ms, row.due, row.fired, row.last_fired_ms, row.last_success_ms, row.failures,
    )  # fmt: skip
    one.active, one.joins_ms, one.fates, one.begun_ms = row.active, row.joins_ms, row.fates, row.begun_ms
    if (span := row.span) is not None:
        one.span_from_ms, one.span_to_ms, one.span_count = span.from_ms, span.to_ms, span.count
        one.span_fate, one.span_cause = span.fate, span.cause
    more = row.more
    if more is not None:
        one.paused, one.archived, one.pause_reason = more.paused, more.archived, more.pause_reason
        one.paused_until_ms, one.resumed_ms, one.buffer, one.late = (
            more.paused_until_ms, more.resumed_ms, more.buffer, more.late,
        )  # fmt: skip
        one.governing, one.course, one.decision, one.advice = more.governing, more.course, more.decision, more.advice
        one.ended = more.ended
    set_rhythm(state, one)
    tenant.schedules.add(one.name, one)
    state.schedules.add(one.number, one)
    join(one)
    if one.due:
        timers.append(mark_of(one.due, Timer.SCHEDULE, one.number))


def backfill_row(one: Backfill) -> LiveBackfill:
    return LiveBackfill(
        one.number, one.schedule.number, one.by, one.from_ms, one.to_ms, one.concurrency, one.priority,
        one.newest_first, one.forced, one.begun_ms, one.cursor_ms, one.state, one.exhausted, one.asked, one.ready,
        one.running, one.started, one.known, one.succeeded, one.failed, one.due, one.span,
    )  # fmt: skip


def add_backfill(state: State, row: LiveBackfill) -> None:
    """Schedules are there already."""
    one = Backfill(
        row.number, state.schedules[row.schedule], row.by, row.from_ms, row.to_ms, row.concurrency, row.priority,
        row.newest_first, row.forced, row.begun_ms, row.cursor_ms, row.state, row.exhausted, row.asked, row.ready,
        row.running, row.started, row.known, row.succeeded, row.failed, row.due, row.span,
    )  # fmt: skip
    state.backfills[one.number] = one
    if one.due:
        set_timer(state, Timer.BACKFILL, one.number, one.due)
