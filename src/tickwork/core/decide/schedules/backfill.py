"""Backfill: runs for a past window of a schedule, a few at a time.

It walks the schedule's own times, so its ids are those that live runs have, and nothing that ran runs twice. What
has run before is known to the store alone: the walk asks for it in portions (`FindRuns`) and goes on when it is
told. It never passes the schedule's next occurrence: that one is the schedule's.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.schedules.schedule_commands import schedule_of
from tickwork.core.decide.schedules.schedule_firing import book_pause
from tickwork.core.decide.tick_context import TickContext, answer
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN
from tickwork.core.evolve.schedules import is_held
from tickwork.core.evolve.versions import plan_of_run, version_of_run
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import FindRuns
from tickwork.core.state.events import (
    BackfillEnded,
    BackfillLookupFinished,
    BackfillLookupStarted,
    BackfillStarted,
    BackfillStateChanged,
    RunScheduled,
)
from tickwork.core.state.state import Backfill, BackfillState, Schedule, State

PORTION = 100
CONCURRENCY_MAX = 1_000
BACKFILLS_MAX = 100  # at once in a partition


def window_end_ms(schedule: Schedule, to_ms: int, now_ms: int) -> int:
    """Where a backfill up to `to_ms` really ends: what is still expected is left to the schedule."""
    limit_ms = now_ms + 1
    if schedule.next_ms and schedule.governing is None:
        limit_ms = min(limit_ms, schedule.next_ms)
    return min(to_ms, limit_ms)


def _begin(turn: TickContext, position: int, request: inp.Backfill) -> None:
    state = turn.state
    schedule = schedule_of(state, request.tenant, request.schedule)
    if schedule.governing is not None:
        message = "an endpoint's times follow from its results; trigger it instead"
        raise Refused("not_backfillable", message, path="schedule")
    if schedule.rhythm is None:
        raise Refused("broken_schedule", schedule.broken, path="schedule")
    if plan_of_run(schedule.tenant, schedule) is None:
        raise Refused(
            "unknown_workflow", f"there is no workflow {shortened(schedule.workflow, 128)!r}", path="schedule"
        )
    if request.from_ms >= request.to_ms:
        raise Refused("bad_window", "a window begins before it ends", path="start")
    if not 1 <= request.concurrency <= CONCURRENCY_MAX:
        raise Refused("bad_concurrency", f"a concurrency is 1 to {CONCURRENCY_MAX}", path="concurrency")
    if request.priority is not None and not PRIORITY_MIN <= request.priority <= PRIORITY_MAX:
        raise Refused("bad_priority", f"a priority is {PRIORITY_MIN} to {PRIORITY_MAX}", path="priority")
    if len(state.backfills) >= BACKFILLS_MAX:
        raise Refused("overloaded", f"{BACKFILLS_MAX} backfills are under way; wait for one to end", path="")
    if is_held(schedule) and request.to_ms > schedule.next_ms > 0:
        if schedule.terms.automatic_backfill:
            message = "it is paused and makes up for that by itself; resume it, or end the window before the pause"
            raise Refused("resume_first", message, path="end")
        book_pause(turn, schedule)
    number = state.next_number
    turn.emit(BackfillStarted(position, number, window_end_ms(schedule, request.to_ms, state.now_ms)))
    answer(turn, position, str(number))


def _steer(turn: TickContext, position: int, request: inp.SteerBackfill) -> None:
    backfill = turn.state.backfills.get(request.backfill)
    if backfill is None or backfill.schedule.tenant.id != request.tenant:
        raise Refused("unknown_backfill", f"there is no backfill {request.backfill} under way", path="backfill")
    paused = backfill.state == BackfillState.PAUSED
    match request.action:
        case "pause" | "resume":
            if paused is (request.action == "pause"):
                message = f"backfill {backfill.number} is {'' if paused else 'not '}paused"
                raise Refused("illegal_move", message, path="backfill")
        case "cancel":
            pass
        case _:
            raise Refused("bad_deed", "a deed is pause, resume or cancel", path="deed")
    turn.emit(BackfillStateChanged(position))


def _finish_lookup(turn: TickContext, position: int, request: inp.RunsKnown) -> None:
    backfill = turn.state.backfills.get(request.backfill)
    if backfill is None or not backfill.lookups:
        raise Refused("unknown_backfill", f"backfill {request.backfill} has not asked", path="backfill")
    turn.emit(BackfillLookupFinished(position, backfill.number))


def look_at_backfill(turn: TickContext, number: int) -> None:
    backfill = turn.state.backfills[number]
    state = turn.state
    while backfill.ready and len(backfill.running) < backfill.concurrency:
        turn.emit(
            RunScheduled(
                state.next_number,
                backfill.schedule.number,
                backfill.ready[0],
                way="backfill",
                backfill=number,
                version=version_of_run(backfill.schedule.tenant, backfill.schedule),
            )
        )
    if backfill.ready or backfill.lookups:
        return
    if not backfill.exhausted:
        dues, cursor_ms = _portion(state, backfill)
        turn.emit(BackfillLookupStarted(number, dues, cursor_ms))
        if dues and not backfill.forced:
            name = backfill.schedule.name
            turn.effects.append(FindRuns(number, backfill.schedule.tenant.id, name, dues))
    elif not backfill.running:
        turn.emit(BackfillEnded(number))


def _portion(state: State, backfill: Backfill) -> tuple[tuple[int, ...], int]:
    """The next times, and where the walk goes on after them; 0: nowhere."""
    rhythm = backfill.schedule.rhythm
    if rhythm is None:
        return (), 0
    taken: frozenset[int] = frozenset() if backfill.forced else _taken(state, backfill)
    dues: list[int] = []
    if backfill.newest_first:
        walked_ms, time_ms = backfill.cursor_ms, rhythm.prev_ms(backfill.cursor_ms)
        while time_ms is not None and time_ms >= backfill.from_ms and len(dues) < PORTION:
            if time_ms not in taken:
                dues.append(time_ms)
            walked_ms, time_ms = time_ms, rhythm.prev_ms(time_ms)
        more = time_ms is not None and time_ms >= backfill.from_ms
        return tuple(dues), walked_ms if more else 0
    time_ms = rhythm.next_ms(backfill.cursor_ms - 1)
    while time_ms is not None and time_ms < backfill.to_ms and len(dues) < PORTION:
        if time_ms not in taken:
            dues.append(time_ms)
        time_ms = rhythm.next_ms(time_ms)
    return tuple(dues), time_ms if time_ms is not None and time_ms < backfill.to_ms else 0


def _taken(state: State, backfill: Backfill) -> frozenset[int]:
    """Times that nobody knows as begun yet and that will be: those that wait for a live run to end, and those of
    another backfill. Begun here as well, two runs would have one id."""
    schedule = backfill.schedule
    taken = set(schedule.buffer)
    for other in state.backfills.values():
        if other is not backfill and other.schedule is schedule and not other.forced:
            taken.update(other.lookups, other.ready)
    return frozenset(taken)


BACKFILL_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inp.Backfill: _begin,
    inp.SteerBackfill: _steer,
    inp.RunsKnown: _finish_lookup,
}
