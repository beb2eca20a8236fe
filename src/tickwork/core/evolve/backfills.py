"""The part of `evolve` that moves backfills on."""

from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.definition.model import PRIORITY_MIN
from tickwork.core.evolve.indexes import clear_timer, set_timer
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.run_ids import backfill_run_id
from tickwork.core.state.schedule import Fate, FateRange
from tickwork.core.state.state import Backfill, BackfillState, Run, State, Timer

COMPLETED = int(RunState.COMPLETED)


def arm_backfill(state: State, backfill: Backfill) -> None:
    """It wants to be looked at whenever it can go on: to start a run, to ask for more, or to end."""
    able = backfill.state == BackfillState.ACTIVE and (
        bool(backfill.ready and len(backfill.running) < backfill.concurrency)
        or not (backfill.ready or backfill.lookups or (backfill.exhausted and backfill.running))
    )
    if able and not backfill.due:
        backfill.due = set_timer(state, Timer.BACKFILL, backfill.number, state.tick + 1)
    elif not able and backfill.due:
        clear_timer(state, Timer.BACKFILL, backfill.number, backfill.due)
        backfill.due = 0


def _looked(state: State, backfill: Backfill) -> None:
    """Its timer has done its work; a backfill with more to do sets another one."""
    if backfill.due and backfill.due <= state.tick:
        clear_timer(state, Timer.BACKFILL, backfill.number, backfill.due)
        backfill.due = 0
    arm_backfill(state, backfill)


def _on_begun(state: State, event: ev.BackfillStarted) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.Backfill)
    schedule = state.tenants[request.tenant].schedules.get(request.schedule)
    assert schedule is not None
    state.next_number = max(state.next_number, event.backfill + 1)
    backfill = Backfill(
        event.backfill, schedule, request.by, request.from_ms, event.to_ms, request.concurrency,
        PRIORITY_MIN if request.priority is None else request.priority, request.newest_first, request.forced,
        state.now_ms, event.to_ms if request.newest_first else request.from_ms,
    )  # fmt: skip
    state.backfills[event.backfill] = backfill
    arm_backfill(state, backfill)


def _on_steered(state: State, event: ev.BackfillStateChanged) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.SteerBackfill)
    backfill = state.backfills[request.backfill]
    if request.action == "cancel":
        leave_backfill(state, backfill, BackfillState.CANCELLED)
    else:
        backfill.state = BackfillState.PAUSED if request.action == "pause" else BackfillState.ACTIVE
        arm_backfill(state, backfill)


def _on_lookup_started(state: State, event: ev.BackfillLookupStarted) -> None:
    backfill = state.backfills[event.backfill]
    backfill.cursor_ms, backfill.exhausted = event.cursor_ms, not event.cursor_ms
    if backfill.forced:
        backfill.ready = event.dues_ms
    else:
        backfill.lookups = event.dues_ms
    _looked(state, backfill)


def _on_lookup_finished(state: State, event: ev.BackfillLookupFinished) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, inp.RunsKnown)
    backfill = state.backfills[event.backfill]
    runs = backfill.schedule.tenant.runs
    known = frozenset(request.known)
    ready = tuple(
        due_ms
        for due_ms in backfill.lookups
        if due_ms not in known and runs.get(backfill_run_id(backfill, due_ms)) is None
    )
    backfill.known += len(backfill.lookups) - len(ready)
    if len(ready) < len(backfill.lookups):
        _close_span(state, backfill)
    backfill.ready, backfill.lookups = ready, ()
    arm_backfill(state, backfill)


def _on_ended(state: State, event: ev.BackfillEnded) -> None:
    leave_backfill(state, state.backfills[event.backfill], BackfillState.DONE)


def leave_backfill(state: State, backfill: Backfill, ended: BackfillState) -> None:
    if backfill.due:
        clear_timer(state, Timer.BACKFILL, backfill.number, backfill.due)
        backfill.due = 0
    _close_span(state, backfill)
    backfill.state = ended
    del state.backfills[backfill.number]
    state.left_backfills.append(backfill)


def backfill_run_begun(state: State, backfill: Backfill, run: Run, due_ms: int) -> None:
    backfill.ready = tuple(ready_ms for ready_ms in backfill.ready if ready_ms != due_ms)
    backfill.running = (*backfill.running, run.number)
    backfill.started += 1
    span, schedule = backfill.span, backfill.schedule
    if span is not None and not backfill.newest_first:
        backfill.span = msgspec.structs.replace(span, to_ms=due_ms, count=span.count + 1)
    else:  # a range is known by its beginning, so it cannot grow backwards
        _close_span(state, backfill)
        backfill.span = FateRange(
            schedule.tenant.id, schedule.name, schedule.number, schedule.version, due_ms, due_ms, 1, Fate.RAN,
            "backfill", backfill.number,
        )  # fmt: skip
    _looked(state, backfill)


def backfill_run_ended(state: State, run: Run) -> None:
    backfill = state.backfills.get(run.backfill)
    if backfill is None or run.number not in backfill.running:
        return  # it was cancelled, or the run was resolved
    backfill.running = tuple(number for number in backfill.running if number != run.number)
    if run.state == COMPLETED:
        backfill.succeeded += 1
    else:
        backfill.failed += 1
    arm_backfill(state, backfill)


def _close_span(state: State, backfill: Backfill) -> None:
    if backfill.span is not None:
        state.spans.append(backfill.span)
        backfill.span = None


BACKFILL_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.BackfillStarted: _on_begun,
    ev.BackfillStateChanged: _on_steered,
    ev.BackfillLookupStarted: _on_lookup_started,
    ev.BackfillLookupFinished: _on_lookup_finished,
    ev.BackfillEnded: _on_ended,
}
