"""A look at one schedule: what is due becomes runs, or gets the fate that its policies name.

A schedule asks for a look by its one timer (`evolve.schedules.arm`). What is on time runs, subject to the
overlap policy. What is late is decided upon once, by the catch-up policy, and then dealt with in portions, so that no
schedule, however late, stops its partition. A governed schedule has one occurrence at a time, and asks the Governor
for the next when its run has ended.
"""

from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.decide.runs.run_end import replace_run
from tickwork.core.decide.schedules.governor_input import next_decision
from tickwork.core.decide.schedules.updates import take_firing, take_firings
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.evolve.run_creation import begun_on_time, on_scheduled
from tickwork.core.evolve.schedules import is_held, may_unbuffer, must_pause, waits_for_past
from tickwork.core.evolve.versions import plan_of_run, version_of_run
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import (
    CatchUpDecided,
    OccurrenceBuffered,
    OccurrencesSettled,
    RunScheduled,
    ScheduleDecided,
    SchedulePaused,
    ScheduleResumed,
)
from tickwork.core.state.retry import jitter_ms
from tickwork.core.state.run_ids import occurrence_id
from tickwork.core.state.schedule import CatchUpChoice, Fate
from tickwork.core.state.state import Schedule, State
from tickwork.core.state.tables import BLOCK_BITS

RUNS_PER_LOOK = 100
PASSED_PER_LOOK = 5_000


def fire(turn: TickContext, number: int) -> None:
    schedule = turn.state.schedules.blocks[number >> BLOCK_BITS][number]
    if schedule.is_plain and _begin_on_time(turn, schedule):
        return
    if is_held(schedule):
        _look_at_held(turn, schedule)
    elif schedule.terms.pause_after and must_pause(schedule):
        reason = f"{schedule.failures} runs in a row have failed"
        turn.emit(SchedulePaused(number, -1, reason))
        turn.effects.append(Alert("schedule_paused", schedule.tenant.id, schedule.name, reason))
    elif schedule.governing is not None:
        _look_at_governed(turn, schedule)
    else:
        for _ in range(RUNS_PER_LOOK):
            if not take_one(turn, schedule) and not take_firing(turn, schedule):
                break


def _begin_on_time(turn: TickContext, schedule: Schedule) -> bool:
    """Nearly every look: one occurrence is due, it is on time, and nothing is in its way. False: it is not so simple,
    and nothing is decided yet."""
    state, tenant, terms, rhythm = turn.state, schedule.tenant, schedule.terms, schedule.rhythm
    now_ms, due_ms = state.now_ms, schedule.next_ms
    if (
        rhythm is None or schedule.active or schedule.wait_ms or terms.jitter or terms.runs_max
        or due_ms < schedule.resumed_ms or not 0 < due_ms <= now_ms <= due_ms + terms.grace_ms
        or state.live_runs >= state.settings.max_live_runs or tenant.active >= tenant.max_live_runs
    ):  # fmt: skip
        return False
    after_ms = state.parts.next_ms(rhythm, due_ms) or 0
    plan = plan_of_run(tenant, schedule)
    run_id = occurrence_id(schedule.name, due_ms)
    if 0 < after_ms <= now_ms or plan is None or run_id in tenant.runs.of(run_id):
        return False
    version = version_of_run(tenant, schedule)
    event = RunScheduled(state.next_number, schedule.number, due_ms, after_ms, version=version)
    turn.events.append(event)
    begun_on_time(state, schedule, plan, run_id, event)
    return True


def _look_at_held(turn: TickContext, schedule: Schedule) -> None:
    until_ms = schedule.paused_until_ms
    if schedule.paused and until_ms and until_ms <= turn.state.now_ms:
        turn.emit(ScheduleResumed(schedule.number, -1))
    else:
        book_pause(turn, schedule)
        take_firings(turn, schedule)


def book_pause(turn: TickContext, schedule: Schedule, *, with_now: bool = False) -> None:
    """Record the occurrences that fell due in a pause until now. This very moment may still become the end of the
    pause; `with_now` includes it."""
    before_ms = turn.state.now_ms + with_now
    while schedule.next_ms and schedule.next_ms < before_ms:
        _pass(turn, schedule, before_ms, Fate.SKIPPED, "paused")


# ---- schedules with a rhythm


def take_one(turn: TickContext, schedule: Schedule, *, hurried: bool = False) -> bool:
    """Handle the first due occurrence. False: nothing is due. `hurried` does not wait for jitter."""
    now_ms, late = turn.state.now_ms, schedule.late
    if schedule.buffer and may_unbuffer(schedule):
        due_ms = schedule.buffer[0]
        version = version_of_run(schedule.tenant, schedule)
        turn.emit(RunScheduled(turn.state.next_number, schedule.number, due_ms, way="buffered", version=version))
    elif late is not None:
        if schedule.next_ms < late.run_from_ms:
            _pass(turn, schedule, min(late.run_from_ms, late.to_ms + 1), late.fate, late.cause)
        else:
            start_at = 0
            if late.spread_ms:
                start_ms = late.base_ms + late.run * late.spread_ms // late.runs
                start_at = max(turn.state.settings.clock.tick_at(start_ms), turn.state.tick + 1)
            _run(turn, schedule, _after(turn.state, schedule, schedule.next_ms), start_at)
    elif 0 < schedule.next_ms <= now_ms - (0 if hurried else schedule.wait_ms):
        _take_due(turn, schedule)
    else:
        return False
    return True


def _take_due(turn: TickContext, schedule: Schedule) -> None:
    now_ms, due_ms = turn.state.now_ms, schedule.next_ms
    if schedule.rhythm is None:
        turn.emit(OccurrencesSettled(schedule.number, due_ms, due_ms, 1, Fate.MISSED, schedule.broken, 0))
        _warn(turn, schedule, schedule.broken)
        return
    if due_ms < schedule.resumed_ms:
        _decide_about_pause(turn, schedule, schedule.rhythm)
        return
    after_ms = turn.state.parts.next_ms(schedule.rhythm, due_ms) or 0
    late = now_ms - due_ms - schedule.wait_ms > schedule.terms.grace_ms or 0 < after_ms <= now_ms
    if late:
        _decide_about_late(turn, schedule, schedule.rhythm)
    else:
        _run(turn, schedule, after_ms, 0)


def _decide_about_pause(turn: TickContext, schedule: Schedule, rhythm: Recurrence) -> None:
    to_ms = last_due_ms(schedule, rhythm, schedule.resumed_ms)
    if schedule.terms.automatic_backfill:
        _decide_about_late(turn, schedule, rhythm)
    else:
        turn.emit(CatchUpDecided(schedule.number, to_ms, to_ms + 1, Fate.SKIPPED, "paused"))


def _decide_about_late(turn: TickContext, schedule: Schedule, rhythm: Recurrence) -> None:
    policy, length_ms = policy_of(turn.state, schedule)
    plan = catch_up(schedule, rhythm, turn.state.now_ms, policy, length_ms)
    turn.emit(plan)
    turn.effects.append(
        Alert("late", schedule.tenant.id, schedule.name, f"due since {instant_text(schedule.next_ms)}: {plan.cause}")
    )


def policy_of(state: State, schedule: Schedule) -> tuple[str, int]:
    """Return its own policy, unless another one was chosen for what was late at that moment. A schedule that was held
    then is not part of the choice: it is late only since it was resumed."""
    choice = state.choice
    if choice is not None and schedule.next_ms + schedule.wait_ms <= choice.at_ms and is_at_choice(schedule, choice):
        return choice.policy, choice.length_ms
    return own_policy(schedule)


def is_at_choice(schedule: Schedule, choice: CatchUpChoice) -> bool:
    return schedule.made_ms <= choice.at_ms and schedule.resumed_ms <= choice.at_ms


def own_policy(schedule: Schedule) -> tuple[str, int]:
    terms = schedule.terms
    return ("all" if terms.automatic_backfill else terms.catch_up), terms.catch_up_ms


def catch_up(schedule: Schedule, rhythm: Recurrence, now_ms: int, policy: str, length_ms: int) -> CatchUpDecided:
    """What becomes of everything that is due by now. The newest are the ones worth running."""
    terms = schedule.terms
    last_ms = last_due_ms(schedule, rhythm, now_ms + 1)
    number, cause = schedule.number, f"catch_up {policy}"
    match policy:
        case "none":
            run_from_ms = last_ms if now_ms - last_ms <= terms.grace_ms else last_ms + 1
            return CatchUpDecided(number, last_ms, run_from_ms, Fate.SKIPPED, cause)
        case "last":
            return CatchUpDecided(number, last_ms, last_ms, Fate.SKIPPED, cause)
        case "coalesce":
            cause = f"into {occurrence_id(schedule.name, last_ms)}"
            return CatchUpDecided(number, last_ms, last_ms, Fate.COALESCED, cause)
    from_ms = max(schedule.next_ms, now_ms - length_ms) if policy == "window" else schedule.next_ms
    run_from_ms, runs = _newest(rhythm, from_ms, last_ms, terms.catch_up_cap)
    if from_ms <= schedule.next_ms < run_from_ms and runs < terms.catch_up_cap:
        run_from_ms, runs = (
            schedule.next_ms,
            runs + 1,
        )  # computed with other zone data, so the walk back did not meet it
    if run_from_ms > from_ms and policy != "window":
        cause = f"{cause}, at most {terms.catch_up_cap}"
    spread_ms = length_ms if policy == "spread" else 0
    return CatchUpDecided(number, last_ms, run_from_ms, Fate.SKIPPED, cause, spread_ms, runs if spread_ms else 0)


def last_due_ms(schedule: Schedule, rhythm: Recurrence, before_ms: int) -> int:
    """The last occurrence before this time. The next one counts, even if other zone data gave its time and it is
    not among today's."""
    return max(rhythm.prev_ms(before_ms) or 0, schedule.next_ms)


def _newest(rhythm: Recurrence, from_ms: int, last_ms: int, cap: int) -> tuple[int, int]:
    """The first of the newest `cap` times in a window, and how many these are; past its end where there is none."""
    first_ms, count = last_ms + 1, 0
    time_ms: int | None = last_ms
    while time_ms is not None and time_ms >= from_ms and count < cap:
        first_ms, count = time_ms, count + 1
        time_ms = rhythm.prev_ms(time_ms)
    return first_ms, count


def _pass(turn: TickContext, schedule: Schedule, before_ms: int, fate: int, cause: str) -> None:
    """A portion of the occurrences before this time. There is one at least."""
    from_ms = to_ms = after_ms = schedule.next_ms
    count = 0
    while after_ms and after_ms < before_ms and count < PASSED_PER_LOOK:
        to_ms, count = after_ms, count + 1
        after_ms = _after(turn.state, schedule, after_ms)
    turn.emit(
        OccurrencesSettled(schedule.number, from_ms, to_ms, count, fate, cause, after_ms, wait_ms(schedule, after_ms))
    )


def _run(turn: TickContext, schedule: Schedule, after_ms: int, start_at: int) -> None:
    """The next occurrence, if nothing is in its way."""
    state, number, due_ms, terms = turn.state, schedule.number, schedule.next_ms, schedule.terms
    wait = wait_ms(schedule, after_ms) if terms.jitter else 0
    fate, cause = _obstacle(state, schedule)
    if cause:
        turn.emit(OccurrencesSettled(number, due_ms, due_ms, 1, fate, cause, after_ms, wait))
        if fate == Fate.MISSED:
            _warn(turn, schedule, cause)
        return
    if terms.runs_max and schedule.fired + len(schedule.buffer) + 1 >= terms.runs_max:
        after_ms = wait = 0  # this is the last one
    if (schedule.active or waits_for_past(schedule)) and terms.overlap in ("buffer_one", "buffer_all"):
        turn.emit(OccurrenceBuffered(number, due_ms, after_ms, wait))
        return
    if schedule.active and terms.overlap == "replace":
        for active in schedule.active:
            replace_run(turn, state.runs[active], f"replaced by {occurrence_id(schedule.name, due_ms)}")
    version = version_of_run(schedule.tenant, schedule)
    event = RunScheduled(state.next_number, number, due_ms, after_ms, wait, start_at, version=version)
    turn.events.append(event)
    on_scheduled(state, event)


def _obstacle(state: State, schedule: Schedule) -> tuple[int, str]:
    terms, tenant = schedule.terms, schedule.tenant
    if plan_of_run(tenant, schedule) is None:
        return Fate.MISSED, "unknown_version" if terms.version else "unknown_workflow"
    run_id = occurrence_id(schedule.name, schedule.next_ms)
    if run_id in tenant.runs.of(run_id):
        return Fate.RAN, "begun by a backfill"
    held = waits_for_past(schedule)
    if schedule.active or held:
        if terms.overlap == "forbid":
            return Fate.SKIPPED, "the run before it failed" if held else "overlap forbid"
        if terms.overlap == "buffer_one" and schedule.buffer:
            return Fate.SKIPPED, "overlap buffer_one"
        if terms.overlap == "buffer_all" and len(schedule.buffer) >= terms.buffer_max:
            return Fate.SKIPPED, "overlap buffer_all, buffer full"
    if state.live_runs >= state.settings.max_live_runs or tenant.active >= tenant.max_live_runs:
        return Fate.MISSED, "overloaded"
    return 0, ""


def _warn(turn: TickContext, schedule: Schedule, cause: str) -> None:
    turn.effects.append(Alert("occurrence_missed", schedule.tenant.id, schedule.name, cause))


def _after(state: State, schedule: Schedule, due_ms: int) -> int:
    return 0 if schedule.rhythm is None else state.parts.next_ms(schedule.rhythm, due_ms) or 0


def wait_ms(schedule: Schedule, due_ms: int) -> int:
    """By how much jitter delays the start at this nominal time."""
    return (
        start_delay_ms(schedule.rhythm, f"{schedule.tenant.id}/{schedule.name}", due_ms)
        if (schedule.terms.jitter and due_ms)
        else 0
    )


def start_delay_ms(rhythm: Recurrence | None, seed: str, due_ms: int) -> int:
    """A function of the schedule and the nominal time alone."""
    before_ms = rhythm.prev_ms(due_ms) if rhythm is not None else None
    if rhythm is None or before_ms is None:
        return 0
    return jitter_ms(seed, due_ms, due_ms - before_ms, next_due_ms=rhythm.next_ms(due_ms))


# ---- governed schedules


def _look_at_governed(turn: TickContext, schedule: Schedule) -> None:
    now_ms = turn.state.now_ms
    if schedule.paused and schedule.paused_until_ms <= now_ms:
        turn.emit(ScheduleResumed(schedule.number, -1))
    if schedule.decision is None or schedule.ended:
        govern(turn, schedule)
    elif schedule.next_ms and schedule.next_ms <= now_ms:
        _run_governed(turn, schedule)


def _run_governed(turn: TickContext, schedule: Schedule) -> None:
    state, due_ms, terms = turn.state, schedule.next_ms, schedule.terms
    fate, cause = _obstacle(state, schedule)
    if not cause and policy_of(state, schedule)[0] == "none" and state.now_ms - due_ms > terms.grace_ms:
        fate, cause = Fate.SKIPPED, "catch_up none"
    if cause:
        turn.emit(OccurrencesSettled(schedule.number, due_ms, due_ms, 1, fate, cause, 0))
        if fate == Fate.MISSED:
            _warn(turn, schedule, cause)
        govern(turn, schedule)
        return
    version = version_of_run(schedule.tenant, schedule)
    turn.emit(RunScheduled(state.next_number, schedule.number, due_ms, version=version))


def govern(turn: TickContext, schedule: Schedule) -> None:
    """Ask the Governor, and write down what it says."""
    course, decision = next_decision(schedule, turn.state.now_ms)
    turn.emit(ScheduleDecided(schedule.number, course, decision))
