"""Commands for schedules: put them, pause them, advise their Governor, trigger one by hand.

As in `run_commands`, a rule raises `Refused` before it emits anything. A schedule is only changed when everything
that was due under its old terms has its fate: so no edit can lose an occurrence.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.dates import parse_date
from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.decide.runs.run_end import replace_run
from tickwork.core.decide.schedules.governor_input import cron_of, first_course, governor_state_of
from tickwork.core.decide.schedules.schedule_firing import book_pause, govern, start_delay_ms, take_one
from tickwork.core.decide.schedules.updates import cancel_updates, check_trigger_of, inputs_apart
from tickwork.core.decide.tick_context import TickContext, answer, check_room, earlier_run, tenant_of
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.plan import Plan
from tickwork.core.evolve.run_creation import trigger_body
from tickwork.core.evolve.schedules import anchored, in_its_run, is_held, rhythm_of
from tickwork.core.evolve.versions import pinned, plan_of_run, version_of_run
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import (
    CatchUpChosen,
    Duplicate,
    HintsChanged,
    HolidaysPut,
    OccurrencesCancelled,
    OccurrencesSettled,
    RunScheduled,
    ScheduleDecided,
    ScheduleMoved,
    SchedulePaused,
    SchedulePut,
    ScheduleRemoved,
    ScheduleResumed,
    ScheduleStateChanged,
    ScopePaused,
    ScopeResumed,
    ZonesChanged,
)
from tickwork.core.state.governor import HINTED, GovernorState, arrives, check_course, cleared, decide, sooner
from tickwork.core.state.schedule import CATCH_UPS, SPAN_MS_MAX, Fate, check_terms
from tickwork.core.state.state import Schedule, State

TEXT_CHARACTERS_MAX = 1_000
HOLIDAYS_MAX = 10_000
HINT_TTL_MS_MAX = 366 * 86_400_000


def schedule_of(state: State, tenant: str, name: str) -> Schedule:
    schedule = tenant_of(state, tenant).schedules.get(name)
    if schedule is None:
        raise Refused("unknown_schedule", f"there is no schedule {shortened(name, 128)!r}", path="schedule")
    return schedule


# ---- put and remove


def _put(turn: TickContext, position: int, request: inp.PutSchedule) -> None:
    rhythm = check_put(turn.state, request)
    _emit_put(turn, position, request, rhythm)


def _apply(turn: TickContext, position: int, request: inp.ApplySchedules) -> None:
    state = turn.state
    tenant = tenant_of(state, request.tenant)
    rhythms = check_set(state, request.tenant, request.owner, request.puts, tenant.plans)
    apply_set(turn, position, request.tenant, request.owner, request.puts, rhythms)
    answer(turn, position, "")


def check_set(
    state: State, tenant: str, owner: str, puts: list[inp.PutSchedule], plans: Mapping[str, Plan]
) -> list[Recurrence]:
    """Raises `Refused` for a set that cannot be applied as a whole."""
    if len({put.schedule for put in puts}) < len(puts):
        raise Refused("bad_schedule", "a set names each schedule once", path="schedules")
    if any(put.tenant != tenant or put.owner != owner for put in puts):
        raise Refused("bad_schedule", "a set has one tenant and one owner", path="schedules")
    return [check_put(state, put, plans=plans) for put in puts]


def apply_set(
    turn: TickContext, position: int, tenant_id: str, owner: str, puts: list[inp.PutSchedule], rhythms: list[Recurrence]
) -> None:
    """Remove the schedules of the owner that the set lacks, and leave the unchanged ones alone."""
    tenant = turn.state.tenants[tenant_id]
    kept = frozenset(put.schedule for put in puts)
    every = tenant.owned.get(owner, {}) if owner else dict(tenant.schedules.items())
    gone = [schedule for name, schedule in every.items() if schedule.owner == owner and name not in kept]
    for schedule in sorted(gone, key=attrgetter("name")):
        _emit_removed(turn, position, schedule)
    for item, (put, rhythm) in enumerate(zip(puts, rhythms, strict=True)):
        if not is_same(tenant.schedules.get(put.schedule), put):
            _emit_put(turn, position, put, rhythm, item)


def is_same(schedule: Schedule | None, put: inp.PutSchedule) -> bool:
    """Applying an unchanged set again must not move its schedules."""
    return schedule is not None and (
        schedule.workflow == put.workflow
        and schedule.when == anchored(put.when, schedule, 0)
        and schedule.terms == put.terms
        and schedule.inputs == put.inputs
        and schedule.context == put.context
        and schedule.governing == put.governing
        and schedule.owner == put.owner
        and schedule.description == put.description
    )


def check_put(
    state: State,
    request: inp.PutSchedule,
    *,
    plans: Mapping[str, Plan] | None = None,
    queues: frozenset[str] = frozenset(),
) -> Recurrence:
    """Raises `Refused` for what cannot be put. `plans` and `queues` are those that the same publication adds."""
    tenant = tenant_of(state, request.tenant)
    check_name(request.schedule, path="schedule", kind="schedule")
    plan = (tenant.plans if plans is None else plans).get(request.workflow)
    if plan is None:
        raise Refused("unknown_workflow", f"there is no workflow {shortened(request.workflow, 128)!r}", path="workflow")
    if request.terms.version:
        pin, pinned_hash = pinned(tenant, request.workflow, request.terms.version)
        if pin != request.terms.version:
            raise Refused("which_version", f"say {pin}", path="version")
        plan = tenant.versions[pinned_hash]
    if len(request.description) > TEXT_CHARACTERS_MAX:
        raise Refused("too_long", f"a description has at most {TEXT_CHARACTERS_MAX} characters", path="description")
    queue = request.terms.queue
    if queue and not state.has_queue(queue) and queue not in queues:
        message = (
            f"there is no queue {shortened(queue, 128)!r}; declare it first: `tickwork queues put`, or PUT /v1/queues"
        )
        raise Refused("unknown_queue", message, path="queue")
    check_terms(request.terms)
    old = tenant.schedules.get(request.schedule)
    if old is not None and request.new:
        raise Refused("exists", f"there is a schedule {request.schedule} already", path="schedule")
    rhythm = rhythm_of(state, tenant, request.schedule, anchored(request.when, old, state.now_ms))
    if request.governing is not None:
        if request.when.cron is None and request.when.every_ms is None:
            raise Refused("bad_schedule", "a governed schedule has a cron expression or an interval", path="when")
        check_course(first_course(request.when, request.governing), path="governing")
    check_trigger_of(request, plan.definition)
    definition = plan.definition if request.when.on is None else inputs_apart(plan.definition, request.inputs)
    require_inputs(definition, request.inputs, scheduled=(request.terms, request.context))
    if old is not None and not is_same(old, request):
        _check_settled(state, old)
    return rhythm


def _check_settled(state: State, schedule: Schedule) -> None:
    """Its old terms still have work to do: a change would have to guess what becomes of it."""
    now_ms, next_ms = state.now_ms, schedule.next_ms
    if schedule.governing is not None or not next_ms or next_ms > now_ms:
        return
    if is_held(schedule):
        if schedule.terms.automatic_backfill:
            message = "it is paused and has occurrences to make up for; resume it first"
            raise Refused("resume_first", message, path="schedule")
        return
    after_ms = schedule.rhythm.next_ms(next_ms) if schedule.rhythm is not None else None
    if schedule.late is not None or (after_ms is not None and after_ms <= now_ms):
        raise Refused("catching_up", "it is catching up with what is late; try again in a moment", path="schedule")


def _settle(turn: TickContext, schedule: Schedule) -> None:
    if schedule.governing is not None:
        return
    if is_held(schedule):
        book_pause(turn, schedule, with_now=True)
        return
    while take_one(turn, schedule, hurried=True):
        pass  # one occurrence, and at most its catch-up


def _emit_put(turn: TickContext, position: int, request: inp.PutSchedule, rhythm: Recurrence, item: int = -1) -> None:
    state = turn.state
    old = state.tenants[request.tenant].schedules.get(request.schedule)
    if old is not None:
        _settle(turn, old)
        if old.buffer and request.terms.overlap not in ("buffer_one", "buffer_all"):
            turn.emit(OccurrencesCancelled(old.number, old.buffer, "edited"))
        if old.when.on != request.when.on:
            cancel_updates(turn, old, "edited")
    number = state.next_number if old is None else old.number
    if request.governing is not None:
        next_ms = wait = 0
    else:
        after_ms = max(state.now_ms, old.last_fired_ms) if old is not None else state.now_ms
        next_ms = rhythm.next_ms(after_ms) or 0
        wait = start_delay_ms(rhythm, f"{request.tenant}/{request.schedule}", next_ms) if request.terms.jitter else 0
        if old is not None and request.terms.runs_max and old.fired + len(old.buffer) >= request.terms.runs_max:
            next_ms = wait = 0
    turn.emit(SchedulePut(position, number, next_ms, item, wait))
    schedule = state.schedules[number]
    if schedule.governing is not None and not in_its_run(state, schedule) and not is_held(schedule):
        govern(turn, schedule)


def _remove(turn: TickContext, position: int, request: inp.RemoveSchedule) -> None:
    _emit_removed(turn, position, schedule_of(turn.state, request.tenant, request.schedule))


def _emit_removed(turn: TickContext, position: int, schedule: Schedule) -> None:
    now_ms, number = turn.state.now_ms, schedule.number
    if is_held(schedule):
        if schedule.governing is None:  # a held decision of the Governor has no effect
            book_pause(turn, schedule, with_now=True)
    elif 0 < schedule.next_ms <= now_ms:
        due_ms = last_ms = schedule.next_ms
        count, rhythm = 1, schedule.rhythm if schedule.governing is None else None
        for time_ms in rhythm.between(due_ms + 1, now_ms + 1) if rhythm is not None else ():
            last_ms, count = time_ms, count + 1
        turn.emit(OccurrencesSettled(number, due_ms, last_ms, count, Fate.CANCELLED, "removed", 0))
    if schedule.buffer:
        turn.emit(OccurrencesCancelled(number, schedule.buffer, "removed"))
    cancel_updates(turn, schedule, "removed")
    turn.emit(ScheduleRemoved(position, number))


# ---- pause and resume


def pause(turn: TickContext, position: int, request: inp.Pause) -> None:
    state = turn.state
    until_ms = request.until_ms or 0
    if request.until_ms is not None and request.until_ms <= state.now_ms:
        raise Refused("bad_time", "a pause must end in the future", path="until_ms")
    if request.scope == "group":
        if request.until_ms is not None:
            raise Refused("bad_time", "the pause of a group ends when it is resumed", path="until_ms")
        _check_group(state, request, paused=False)
        turn.emit(ScopePaused(position))
        return
    schedule = schedule_of(state, request.tenant, request.name)
    if schedule.paused and until_ms == schedule.paused_until_ms:
        raise Refused("illegal_move", f"schedule {schedule.name} is paused", path="name")
    turn.emit(SchedulePaused(schedule.number, position, request.reason or "paused", until_ms))
    if schedule.governing is not None and not is_held(schedule) and not in_its_run(state, schedule):
        govern(turn, schedule)


def resume(turn: TickContext, position: int, request: inp.Resume) -> None:
    state = turn.state
    if request.scope == "group":
        _check_group(state, request, paused=True)
        turn.emit(ScopeResumed(position))
        return
    schedule = schedule_of(state, request.tenant, request.name)
    if not schedule.paused:
        raise Refused("illegal_move", f"schedule {schedule.name} is not paused", path="name")
    turn.emit(ScheduleResumed(schedule.number, position))


def _check_group(state: State, request: inp.Pause | inp.Resume, *, paused: bool) -> None:
    group = tenant_of(state, request.tenant).groups.get(request.name)
    if group is None:
        raise Refused("unknown_group", f"there is no group {shortened(request.name, 128)!r}", path="name")
    if group.paused is not paused:
        raise Refused("illegal_move", f"group {request.name} is {'' if group.paused else 'not '}paused", path="name")


def _steer(turn: TickContext, position: int, request: inp.SteerSchedule) -> None:
    schedule = schedule_of(turn.state, request.tenant, request.schedule)
    match request.action:
        case "archive" | "restore":
            if schedule.archived is (request.action == "archive"):
                message = f"schedule {schedule.name} is {'' if schedule.archived else 'not '}archived"
                raise Refused("illegal_move", message, path="schedule")
        case "reset_failures":
            pass
        case _:
            raise Refused("bad_deed", "a deed is archive, restore or reset_failures", path="deed")
    standing, failures = schedule.decision, schedule.failures
    turn.emit(ScheduleStateChanged(position, schedule.number))
    if request.action == "reset_failures" and standing is not None and failures:
        after = governor_state_of(schedule)
        decision = sooner(standing, decide(turn.state.now_ms, after, cron_of(schedule)))
        turn.emit(ScheduleDecided(schedule.number, after, decision))


# ---- advice and triggers


def _advise(turn: TickContext, position: int, request: inp.Advise) -> None:
    state = turn.state
    schedule = check_advice(state, request, now_ms=state.now_ms)
    turn.emit(HintsChanged(position, schedule.number))
    if schedule.ended and not is_held(schedule):
        govern(turn, schedule)  # the Governor has to see the ended run first
    before, standing, rhythm = governor_state_of(schedule), schedule.decision, cron_of(schedule)
    after = _advised(before, request, state.now_ms)
    if standing is None or (request.clear and standing.chosen in HINTED):
        decision = decide(state.now_ms, after, rhythm)  # the cleared hint caused the current time
    else:
        decision = arrives(state.now_ms, before, standing, after, rhythm)
    turn.emit(ScheduleDecided(schedule.number, after, decision))


def check_advice(state: State, request: inp.Advise, *, now_ms: int) -> Schedule:
    """Whom it is for. Raises `Refused` for advice that could never count."""
    schedule = schedule_of(state, request.tenant, request.schedule)
    if schedule.governing is None:
        raise Refused("not_governed", "only an endpoint takes hints; a schedule keeps its times", path="schedule")
    hinted = request.interval_ms is not None or request.at_ms is not None
    if not hinted and not request.clear:
        raise Refused("empty_hint", "a hint has an interval or a time, or clears those before it", path="interval_ms")
    if hinted and not 1_000 <= request.ttl_ms <= HINT_TTL_MS_MAX:
        raise Refused("bad_ttl", "a hint counts for a second at least and a year at most", path="ttl_ms")
    if request.at_ms is not None and request.at_ms > now_ms + request.ttl_ms:
        message = f"it would expire before its time, {instant_text(request.at_ms)}; let it count for longer"
        raise Refused("hint_expires_first", message, path="ttl_ms")
    if len(request.reason) > TEXT_CHARACTERS_MAX:
        raise Refused("too_long", f"a reason has at most {TEXT_CHARACTERS_MAX} characters", path="reason")
    if request.cost < 0:
        raise Refused("bad_cost", "what advice did cost is not negative", path="cost")
    check_course(_advised(governor_state_of(schedule), request, now_ms))
    return schedule


def _advised(course: GovernorState, request: inp.Advise, now_ms: int) -> GovernorState:
    """Given hints replace those of their kind. What has expired stays over: the new end is not for it."""
    if request.clear or course.hint_expires_ms <= now_ms:
        course = cleared(course)
    interval_ms = course.hint_interval_ms if request.interval_ms is None else request.interval_ms
    at_ms = course.hint_at_ms if request.at_ms is None else request.at_ms
    expires_ms = (
        course.hint_expires_ms if request.interval_ms is None and request.at_ms is None else now_ms + request.ttl_ms
    )
    return msgspec.structs.replace(course, hint_interval_ms=interval_ms, hint_at_ms=at_ms, hint_expires_ms=expires_ms)


def _trigger(turn: TickContext, position: int, request: inp.Trigger) -> None:
    state = turn.state
    schedule = schedule_of(state, request.tenant, request.schedule)
    tenant, way = schedule.tenant, "test" if request.test else "trigger"
    if request.key and (
        begun := earlier_run(state, tenant, request.key, trigger_body(schedule.name, way), request.known)
    ):
        turn.emit(Duplicate(position, begun))
        answer(turn, position, begun)
        return
    if plan_of_run(tenant, schedule) is None:
        raise Refused(
            "unknown_workflow", f"there is no workflow {shortened(schedule.workflow, 128)!r}", path="schedule"
        )
    check_room(state, tenant, 1)
    if schedule.active and not request.test:
        if schedule.terms.overlap == "replace":
            for number in schedule.active:
                replace_run(turn, state.runs[number], "replaced by a trigger")
        elif schedule.terms.overlap != "allow" or schedule.governing is not None:
            message = "a run of this schedule still goes on, and its terms allow one at a time"
            raise Refused("still_running", message, path="schedule")
    number = state.next_number
    version = version_of_run(tenant, schedule)
    turn.emit(RunScheduled(number, schedule.number, state.now_ms, way=way, input=position, version=version))
    answer(turn, position, state.runs[number].id)


# ---- calendars and zones


def _put_holidays(turn: TickContext, position: int, request: inp.PutHolidays) -> None:
    state = turn.state
    tenant = tenant_of(state, request.tenant)
    check_name(request.name, path="name", kind="list of holidays")
    users = [schedule for _, schedule in tenant.schedules.items() if request.name in schedule.when.holidays]
    if request.dates is None:
        if request.name not in tenant.holidays:
            raise Refused("unknown_holidays", f"there is no list {shortened(request.name, 128)!r}", path="name")
        if users:
            raise Refused("in_use", f"schedule {users[0].name} names this list", path="name")
    else:
        if len(request.dates) > HOLIDAYS_MAX:
            raise Refused("too_many", f"a list has at most {HOLIDAYS_MAX} dates", path="dates")
        for index, date in enumerate(request.dates):
            parse_date(date, path=f"dates[{index}]")
    for schedule in users:
        _check_settled(state, schedule)
    for schedule in users:
        _settle(turn, schedule)
    turn.emit(HolidaysPut(position))
    for schedule in users:
        _tell_anew(turn, schedule)


def _new_zones(turn: TickContext, position: int, _request: inp.NewZones) -> None:
    turn.emit(ZonesChanged(position))
    for schedule in turn.state.schedules.values():
        if schedule.when.zone != "UTC" and schedule.governing is None and schedule.late is None:
            _tell_anew(turn, schedule)


def _choose_catch_up(turn: TickContext, position: int, request: inp.ChooseCatchUp) -> None:
    if request.policy not in CATCH_UPS:
        raise Refused("bad_catch_up", f"policy is one of {', '.join(CATCH_UPS)}", path="policy")
    if (request.policy in ("window", "spread")) != (0 < request.length_ms <= SPAN_MS_MAX):
        message = "window and spread need a length of at most a year, and no other policy has one"
        raise Refused("bad_catch_up", message, path="length_ms")
    turn.emit(CatchUpChosen(position))


def _tell_anew(turn: TickContext, schedule: Schedule) -> None:
    """Compute the next time by the new settings; an occurrence that is already due stays."""
    state, terms = turn.state, schedule.terms
    if 0 < schedule.next_ms <= state.now_ms:
        return
    try:
        rhythm = rhythm_of(state, schedule.tenant, schedule.name, schedule.when)
    except Refused as refused:
        if schedule.next_ms:
            turn.emit(ScheduleMoved(schedule.number, 0))
            turn.effects.append(Alert("schedule_broken", schedule.tenant.id, schedule.name, str(refused)))
        return
    next_ms = rhythm.next_ms(max(state.now_ms, schedule.last_fired_ms)) or 0
    if terms.runs_max and schedule.fired + len(schedule.buffer) >= terms.runs_max:
        next_ms = 0
    if next_ms != schedule.next_ms:
        wait = (
            start_delay_ms(rhythm, f"{schedule.tenant.id}/{schedule.name}", next_ms) if terms.jitter and next_ms else 0
        )
        turn.emit(ScheduleMoved(schedule.number, next_ms, wait))


SCHEDULE_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inp.PutSchedule: _put,
    inp.ApplySchedules: _apply,
    inp.RemoveSchedule: _remove,
    inp.SteerSchedule: _steer,
    inp.Advise: _advise,
    inp.Trigger: _trigger,
    inp.PutHolidays: _put_holidays,
    inp.NewZones: _new_zones,
    inp.ChooseCatchUp: _choose_catch_up,
}
