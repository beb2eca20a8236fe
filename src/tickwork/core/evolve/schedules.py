"""The part of `evolve` that moves schedules on: their next time, their pauses, their fates.

`arm` is the one place that says when a schedule wants to be looked at; every handler here ends with it.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.core.evolve.backfills import leave_backfill
from tickwork.core.evolve.indexes import clear_timer, move_timer, set_timer
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.schedule import CatchUp, CatchUpChoice, CatchUpPlan, Fate, HintOrigin
from tickwork.core.state.state import BackfillState, Group, Run, Schedule, State, Tenant, Timer
from tickwork.core.state.updates import UPDATE, ScheduleUpdates

PAUSE_BOOKED_MS = 86_400_000  # what falls into a pause is written down at least once a day
COMPLETED, FAILED, CANCELLED = int(RunState.COMPLETED), int(RunState.FAILED), int(RunState.CANCELLED)
RAN = int(Fate.RAN)


# ---- when it wants to be looked at


def arm(state: State, schedule: Schedule, *, looked: bool = False) -> None:
    """A timer that has come and waits for its turn in this tick stays: only the look itself (`looked`) ends it.
    Otherwise a schedule that changes in every tick would never be visited."""
    _arm_at(state, schedule, _next_tick(state, schedule) if schedule.is_plain else _due_tick(state, schedule), looked)


def _arm_at(state: State, schedule: Schedule, tick: int, looked: bool) -> None:
    due = schedule.due
    if 0 < tick <= state.tick:
        if not looked and 0 < due <= state.tick:
            return
        tick = state.tick + 1
    if due and tick and tick != due:
        schedule.due = move_timer(state, Timer.SCHEDULE, schedule.number, due, tick)
    elif tick:
        schedule.due = due or set_timer(state, Timer.SCHEDULE, schedule.number, tick)
    elif due:
        clear_timer(state, Timer.SCHEDULE, schedule.number, due)
        schedule.due = 0


def _due_tick(state: State, schedule: Schedule) -> int:
    """The tick that has to decide about this schedule: the current one if it is due now, 0 if none is known."""
    if is_held(schedule):
        if updates_ready(schedule):
            return state.tick
        until_ms = held_until_ms(schedule)
        wake_ms = until_ms
        if schedule.next_ms and schedule.governing is None and not schedule.terms.automatic_backfill:
            booked_ms = schedule.next_ms + PAUSE_BOOKED_MS
            wake_ms = min(until_ms, booked_ms) if until_ms else booked_ms
        return max(state.settings.clock.tick_at(wake_ms), 1) if wake_ms else 0
    if must_pause(schedule):
        return state.tick
    if updates_ready(schedule):
        return state.tick
    if schedule.governing is not None:
        if schedule.active or schedule.broken:
            return 0
        if schedule.decision is None or schedule.ended:
            return state.tick
    elif schedule.late is not None or may_unbuffer(schedule):
        return state.tick
    return _next_tick(state, schedule)


def _next_tick(state: State, schedule: Schedule) -> int:
    """When its next occurrence starts; 0: there is none."""
    next_ms = schedule.next_ms
    if not next_ms:
        return 0
    tick = state.settings.clock.tick_at(next_ms + schedule.wait_ms)
    return tick if tick > 1 else 1


def is_held(schedule: Schedule) -> bool:
    """Paused, by itself or with its group. A governed pause with an end is the Governor's business."""
    if schedule.archived or (schedule.terms.group and group_paused(schedule)):
        return True
    return schedule.paused and (schedule.governing is None or not schedule.paused_until_ms)


def held_until_ms(schedule: Schedule) -> int:
    """When it goes on by itself; 0: only by a command."""
    if schedule.archived or group_paused(schedule) or not schedule.paused:
        return 0
    return schedule.paused_until_ms


def group_paused(schedule: Schedule) -> bool:
    group = schedule.tenant.groups.get(schedule.terms.group) if schedule.terms.group else None
    return group is not None and group.paused


def must_pause(schedule: Schedule) -> bool:
    limit = schedule.terms.pause_after
    return bool(limit) and schedule.failures >= limit and not schedule.paused


def may_unbuffer(schedule: Schedule) -> bool:
    return bool(schedule.buffer) and not schedule.active and not waits_for_past(schedule)


def updates_ready(schedule: Schedule) -> bool:
    """Whether there is something to decide about the updates that wait for their run."""
    updates, terms = schedule.updates, schedule.terms
    if updates is None or not updates.waiting:
        return False
    if is_held(schedule):
        return not terms.automatic_backfill or len(updates.waiting) > terms.catch_up_cap
    if terms.overlap not in ("buffer_one", "buffer_all") or not (schedule.active or waits_for_past(schedule)):
        return True
    return len(updates.waiting) > (1 if terms.overlap == "buffer_one" else terms.buffer_max)


def waits_for_past(schedule: Schedule) -> bool:
    """The latest run failed, and no other may run before it is resolved or the failures are reset."""
    return schedule.terms.depends_on_past and schedule.failures > 0


def in_its_run(state: State, schedule: Schedule) -> bool:
    """Whether a run that was due goes on: what comes after it is decided when it has ended. A run by hand is beside the
    times, so whatever changes meanwhile counts at once."""
    return any(state.runs[number].source == "schedule" for number in schedule.active)


# ---- set up


def _on_put(state: State, event: ev.SchedulePut) -> None:
    request = put_of(state.inputs[event.input], event.item)
    tenant = state.tenants[request.tenant]
    state.next_number = max(state.next_number, event.schedule + 1)
    terms = state.terms.setdefault(request.terms, request.terms)
    schedule = tenant.schedules.get(request.schedule)
    parts = state.parts
    when = parts.when(anchored(request.when, schedule, state.now_ms))
    workflow, by, owner = parts.shared(request.workflow), parts.shared(request.by), parts.shared(request.owner)
    if schedule is None:
        schedule = Schedule(
            event.schedule, tenant, request.schedule, workflow, when, None, terms, request.inputs,
            request.context, by, owner, request.description, state.now_ms,
        )  # fmt: skip
        tenant.schedules.add(schedule.name, schedule)
        state.schedules.add(schedule.number, schedule)
    else:
        _leave(state, schedule)
        close_span(state, schedule)
        schedule.version += 1
        if schedule.when.on != when.on and schedule.updates is not None:  # what it had heard has its fate
            schedule.updates = ScheduleUpdates(schedule.updates.last_ms) if when.on is not None else None
        schedule.workflow, schedule.when, schedule.terms = workflow, when, terms
        schedule.inputs, schedule.context = request.inputs, request.context
        schedule.by, schedule.owner, schedule.description = by, owner, request.description
    if when.on is not None and schedule.updates is None:
        schedule.updates = ScheduleUpdates()
    set_rhythm(state, schedule)
    join(state, schedule)
    schedule.next_ms, schedule.wait_ms = event.next_ms, event.wait_ms
    schedule.governing = request.governing
    if request.governing is None:
        schedule.course = schedule.decision = schedule.advice = None
    arm(state, schedule)


def put_of(command: Any, item: int) -> inp.PutSchedule:
    request: inp.PutSchedule = command.puts[item] if item >= 0 else command
    return request


def set_rhythm(state: State, schedule: Schedule) -> None:
    """A schedule that was fine under other zone data must not stop a partition: it stands still and says so."""
    try:
        schedule.rhythm = rhythm_of(state, schedule.tenant, schedule.name, schedule.when)
        schedule.broken = ""
    except Refused as refused:
        schedule.rhythm, schedule.broken = None, str(refused)


def rhythm_of(state: State, tenant: Tenant, name: str, when: ScheduleSpec) -> Recurrence:
    return compile_when(when, state.zones, tenant.holidays, f"{tenant.id}/{name}", path="when", parts=state.parts)


def anchored(when: ScheduleSpec, old: Schedule | None, now_ms: int) -> ScheduleSpec:
    """An interval counts from when it was set, unless the request says from where; an edit of other things keeps it.
    So does a recurrence rule."""
    counts = when.every_ms is not None or (when.rrule is not None and "DTSTART" not in when.rrule.upper())
    if not counts or when.anchor_ms is not None or when.start_ms is not None:
        return when
    if old is not None and (old.when.every_ms, old.when.rrule) == (when.every_ms, when.rrule):
        return msgspec.structs.replace(when, anchor_ms=old.when.anchor_ms)
    return msgspec.structs.replace(when, anchor_ms=now_ms)


def join(state: State, schedule: Schedule) -> None:
    """Its group, what else its owner has, and those who listen to the same updates."""
    name, owner, on = schedule.terms.group, schedule.owner, schedule.when.on
    if on is not None:
        listeners = schedule.tenant.listeners
        for index, source in enumerate(on.sources):
            of_subject = listeners.setdefault(source.subject, {})
            of_subject[schedule.number] = (*of_subject.get(schedule.number, ()), index)
        state.listening += _hears_ends(schedule)
    if name:
        schedule.tenant.groups.setdefault(name, Group(name)).members[schedule.number] = None
    if owner:
        schedule.tenant.owned.setdefault(owner, {})[schedule.name] = schedule


def _hears_ends(schedule: Schedule) -> bool:
    on = schedule.when.on
    return on is not None and any(source.ended for source in on.sources)


def _leave(state: State, schedule: Schedule) -> None:
    name, owner, on = schedule.terms.group, schedule.owner, schedule.when.on
    if on is not None:
        listeners = schedule.tenant.listeners
        for subject in dict.fromkeys(source.subject for source in on.sources):
            del listeners[subject][schedule.number]
            if not listeners[subject]:
                del listeners[subject]
        state.listening -= _hears_ends(schedule)
    if owner:
        owned = schedule.tenant.owned[owner]
        del owned[schedule.name]
        if not owned:
            del schedule.tenant.owned[owner]
    if name:
        group = schedule.tenant.groups[name]
        del group.members[schedule.number]
        if not group.members and not group.paused:
            del schedule.tenant.groups[name]


def _on_removed(state: State, event: ev.ScheduleRemoved) -> None:
    schedule = state.schedules[event.schedule]
    if schedule.due:
        clear_timer(state, Timer.SCHEDULE, schedule.number, schedule.due)
        schedule.due = 0
    for backfill in [backfill for backfill in state.backfills.values() if backfill.schedule is schedule]:
        leave_backfill(state, backfill, BackfillState.CANCELLED)
    close_span(state, schedule)
    _leave(state, schedule)
    state.schedules.remove(schedule.number)
    schedule.tenant.schedules.remove(schedule.name)


def _on_holidays(state: State, event: ev.HolidaysPut) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.PutHolidays)
    tenant = state.tenants[request.tenant]
    if request.dates is None:
        del tenant.holidays[request.name]
        return
    tenant.holidays[request.name] = frozenset(request.dates)
    for schedule in tenant.schedules.values():
        if request.name in schedule.when.holidays:  # even if only later times change
            set_rhythm(state, schedule)


def _on_chosen(state: State, event: ev.CatchUpChosen) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.ChooseCatchUp)
    state.choice = CatchUpChoice(cast("CatchUp", request.policy), request.length_ms, state.now_ms)


def _on_zones(state: State, event: ev.ZonesChanged) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.NewZones)
    state.zones_version = request.version


def _on_moved(state: State, event: ev.ScheduleMoved) -> None:
    schedule = state.schedules[event.schedule]
    close_span(state, schedule)
    set_rhythm(state, schedule)
    schedule.next_ms, schedule.wait_ms = event.next_ms, event.wait_ms
    arm(state, schedule)


# ---- pauses


def _on_paused(state: State, event: ev.SchedulePaused) -> None:
    schedule = state.schedules[event.schedule]
    schedule.paused, schedule.pause_reason, schedule.paused_until_ms = True, event.reason, event.until_ms
    arm(state, schedule, looked=event.input < 0)


def _on_resumed(state: State, event: ev.ScheduleResumed) -> None:
    schedule = state.schedules[event.schedule]
    # A pause that ends late by itself still ended at the moment that was set.
    at_ms = schedule.paused_until_ms if event.input < 0 and schedule.paused_until_ms else state.now_ms
    schedule.paused, schedule.pause_reason, schedule.paused_until_ms = False, "", 0
    if must_pause(schedule):
        schedule.failures = 0  # otherwise it would pause itself again at once; only a success ends a backoff
    if event.input < 0 and schedule.governing is not None:
        arm(state, schedule, looked=True)  # the Governor meant it to run at the end of the pause
    else:
        go_on(state, schedule, at_ms, looked=event.input < 0)


def go_on(state: State, schedule: Schedule, at_ms: int, *, looked: bool = False) -> None:
    """A pause is over. Occurrences that were due in it are distinguished from those that are late for other reasons."""
    schedule.resumed_ms = at_ms
    if schedule.governing is not None:
        schedule.decision, schedule.next_ms = None, 0
    arm(state, schedule, looked=looked)


def pause_group(state: State, tenant: Tenant, name: str, reason: str) -> None:
    group = tenant.groups[name]
    group.paused, group.reason = True, reason
    for number in group.members:
        arm(state, state.schedules[number])


def resume_group(state: State, tenant: Tenant, name: str) -> None:
    group = tenant.groups[name]
    group.paused, group.reason = False, ""
    for number in group.members:
        go_on(state, state.schedules[number], state.now_ms)
    if not group.members:
        del tenant.groups[name]


def _on_steered(state: State, event: ev.ScheduleStateChanged) -> None:
    schedule = state.schedules[event.schedule]
    request = state.inputs[event.input]
    assert isinstance(request, inp.SteerSchedule)
    if request.action == "archive":
        schedule.archived = True
        arm(state, schedule)
    elif request.action == "restore":
        schedule.archived = False
        go_on(state, schedule, state.now_ms)
    else:
        schedule.failures = 0
        if schedule.ended == FAILED:
            schedule.ended = CANCELLED  # it failed before the reset, and the Governor does not know of it yet
        if schedule.course is not None:
            schedule.course = msgspec.structs.replace(schedule.course, failures=0)
        arm(state, schedule)


# ---- the Governor


def _on_advised(state: State, event: ev.HintsChanged) -> None:
    schedule = state.schedules[event.schedule]
    request = state.inputs[event.input]
    assert isinstance(request, inp.Advise)
    schedule.advice = HintOrigin(request.by, request.reason, request.cost)


def _on_decided(state: State, event: ev.ScheduleDecided) -> None:
    schedule = state.schedules[event.schedule]
    schedule.course, schedule.failures = event.course, event.course.failures
    if not in_its_run(state, schedule) and not is_held(schedule):  # otherwise it decides again when that is over
        schedule.decision, schedule.ended = event.decision, 0
        schedule.next_ms = event.decision.next_ms or 0
    else:
        schedule.decision, schedule.next_ms = None, 0
    if not event.course.hint_expires_ms:
        schedule.advice = None
    arm(state, schedule, looked=True)


# ---- occurrences


def _on_catch_up(state: State, event: ev.CatchUpDecided) -> None:
    schedule = state.schedules[event.schedule]
    schedule.late = CatchUpPlan(
        event.to_ms, event.run_from_ms, event.fate, event.cause, state.now_ms, event.spread_ms, event.runs
    )
    arm(state, schedule, looked=True)


def _on_passed(state: State, event: ev.OccurrencesSettled) -> None:
    schedule = state.schedules[event.schedule]
    record(state, schedule, event.fate, event.cause, event.from_ms, event.to_ms, event.count, event.next_ms)
    move_on(state, schedule, event.next_ms, event.wait_ms)


def _on_buffered(state: State, event: ev.OccurrenceBuffered) -> None:
    schedule = state.schedules[event.schedule]
    schedule.buffer = (*schedule.buffer, event.due_ms)
    move_on(state, schedule, event.next_ms, event.wait_ms)


def _on_cancelled(state: State, event: ev.OccurrencesCancelled) -> None:
    schedule = state.schedules[event.schedule]
    gone = event.dues_ms
    schedule.buffer = tuple(due_ms for due_ms in schedule.buffer if due_ms not in gone)
    for due_ms in gone:
        record(state, schedule, Fate.CANCELLED, event.cause, due_ms, due_ms, 1)
    arm(state, schedule)


def move_on(state: State, schedule: Schedule, next_ms: int, wait_ms: int) -> None:
    """One occurrence more has been dealt with."""
    schedule.next_ms, schedule.wait_ms = next_ms, wait_ms
    late = schedule.late
    if late is not None and (not next_ms or next_ms > late.to_ms):
        schedule.late = None
    if schedule.governing is not None:
        schedule.decision = None
    arm(state, schedule, looked=True)


def record(
    state: State, schedule: Schedule, fate: int, cause: str, from_ms: int, to_ms: int, count: int, next_ms: int = 0
) -> None:
    """A fate is written once. Neighbours with the same one are a range; `next_ms` is the neighbour after these."""
    fates = schedule.fates
    if fate == RAN:
        schedule.fates = (fates[0] + count, *fates[1:])
    else:
        schedule.fates = (*fates[: fate - 1], fates[fate - 1] + count, *fates[fate:])
    # What the Governor decided has no neighbours but what it decided before and after, and so it is with updates.
    apart = schedule.governing is not None or cause == UPDATE
    joins = schedule.span_to_ms < from_ms if apart else schedule.joins_ms == from_ms
    schedule.joins_ms = next_ms
    if not (joins and schedule.span_count and schedule.span_fate == fate and schedule.span_cause == cause):
        close_span(state, schedule)
        schedule.span_from_ms, schedule.span_fate, schedule.span_cause = from_ms, fate, cause
    schedule.span_to_ms = to_ms
    schedule.span_count += count


def close_span(state: State, schedule: Schedule) -> None:
    span = schedule.span
    if span is not None:
        state.spans.append(span)
        schedule.span_count = 0


# ---- its runs


def run_begun(state: State, schedule: Schedule, run: Run, event: ev.RunScheduled) -> None:
    """The schedule's side of a run that it began."""
    way, due_ms = event.way, event.due_ms
    if way != "test":
        schedule.active = (*schedule.active, run.number) if schedule.active else (run.number,)
    if way == "trigger" or way == "test":
        arm(state, schedule)
        return
    schedule.fired += 1
    if due_ms > schedule.last_fired_ms:
        schedule.last_fired_ms = due_ms
    schedule.begun_ms = state.now_ms
    if way == UPDATE:
        updates = schedule.updates
        assert updates is not None
        updates.waiting = tuple(firing for firing in updates.waiting if firing.due_ms != due_ms)
        record(state, schedule, RAN, UPDATE, due_ms, due_ms, 1)
        arm(state, schedule, looked=True)
        return
    record(state, schedule, RAN, "", due_ms, due_ms, 1, event.next_ms)
    if way == "due":
        if event.start_at and schedule.late is not None:
            schedule.late = msgspec.structs.replace(schedule.late, run=schedule.late.run + 1)
        move_on(state, schedule, event.next_ms, event.wait_ms)
    else:
        schedule.buffer = tuple(other_ms for other_ms in schedule.buffer if other_ms != due_ms)
        arm(state, schedule, looked=True)


def fired_on_time(state: State, schedule: Schedule, event: ev.RunScheduled) -> None:
    """`run_begun` of what was due, where nothing but its rhythm moves the schedule on."""
    active, due_ms, next_ms = schedule.active, event.due_ms, event.next_ms
    schedule.active = (*active, event.run) if active else (event.run,)
    schedule.fired += 1
    if due_ms > schedule.last_fired_ms:
        schedule.last_fired_ms = due_ms
    schedule.begun_ms = state.now_ms
    record(state, schedule, RAN, "", due_ms, due_ms, 1, next_ms)
    schedule.next_ms, schedule.wait_ms = next_ms, 0
    _arm_at(state, schedule, _next_tick(state, schedule), looked=True)


def run_returned(run: Run) -> None:
    """One of its failed runs was resolved."""
    schedule = run.tenant.schedules.get(run.schedule)
    if schedule is not None and schedule.governing is None and run.source == "schedule":
        schedule.active = (*schedule.active, run.number)


def run_ended(state: State, run: Run) -> None:
    """One of its runs has left memory. A test, and a run of an earlier schedule of this name, is none of its."""
    schedule = run.tenant.schedules.get(run.schedule)
    if schedule is None or run.number not in schedule.active:
        return
    schedule.active = tuple(number for number in schedule.active if number != run.number)
    if run.source == "schedule":
        _count_outcome(schedule, run)
    if not schedule.is_plain:
        arm(state, schedule)


def _count_outcome(schedule: Schedule, run: Run) -> None:
    if run.state == COMPLETED:
        schedule.last_success_ms = max(schedule.last_success_ms, run.scheduled_ms)
    if schedule.governing is not None:
        schedule.ended = run.state  # the Governor counts failures itself
    elif run.state == COMPLETED:
        schedule.failures = 0
    elif run.state == FAILED:
        schedule.failures += 1


SCHEDULE_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.SchedulePut: _on_put,
    ev.ScheduleRemoved: _on_removed,
    ev.SchedulePaused: _on_paused,
    ev.ScheduleResumed: _on_resumed,
    ev.ScheduleDecided: _on_decided,
    ev.HintsChanged: _on_advised,
    ev.ScheduleStateChanged: _on_steered,
    ev.CatchUpDecided: _on_catch_up,
    ev.OccurrencesSettled: _on_passed,
    ev.OccurrenceBuffered: _on_buffered,
    ev.OccurrencesCancelled: _on_cancelled,
    ev.ScheduleMoved: _on_moved,
    ev.HolidaysPut: _on_holidays,
    ev.CatchUpChosen: _on_chosen,
    ev.ZonesChanged: _on_zones,
}
