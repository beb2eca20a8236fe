"""The part of `evolve` by which durable functions record steps, suspend and go on."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.values import Value, pack
from tickwork.core.definition.forms import filled, values_of
from tickwork.core.evolve.awaits import (
    add_arrived,
    append,
    arm,
    drop,
    forget_awaits,
    give_back,
    history_of,
    register,
    settle,
    take_arrived,
)
from tickwork.core.evolve.indexes import clear_due, clear_timer, end_attempt, set_timer, want
from tickwork.core.evolve.mailboxes import take_message
from tickwork.core.evolve.messages import CONTINUED, note_received, note_said, refuse_open
from tickwork.core.evolve.tasks.attempts import stand_in_line
from tickwork.core.state import events as ev
from tickwork.core.state.history import (
    CANCELLATION,
    NO_POSITIONS,
    WITHDRAWN,
    Await,
    History,
    HistoryEntry,
    PendingAwait,
    StepEntry,
)
from tickwork.core.state.inputs import Decide, Ingest, StepsRecorded, Suspended, request_in
from tickwork.core.state.lifecycle import Cause, Phase, RunState, move_task
from tickwork.core.state.messages import NO_PAYLOAD
from tickwork.core.state.state import State, Task, Timer
from tickwork.core.state.tables import with_entry


def _on_steps_appended(state: State, event: ev.StepsAppended) -> None:
    task = state.tasks[event.task]
    report = state.inputs[event.input]
    assert isinstance(report, StepsRecorded)
    _record(state, task, report.steps, report.versions)
    note_said(state, task.run, report)
    history = history_of(state, task)
    positions = dict.fromkeys(step.position for step in report.steps)
    if isinstance(history.reported, dict):
        history.reported |= positions
    else:
        history.reported = positions
    task.heard = state.tick


def _record(state: State, task: Task, steps: tuple[StepEntry, ...], versions: tuple[tuple[str, int], ...]) -> None:
    """Append what a worker reports. A failure that may be retried is decided on by an event of its own."""
    history = history_of(state, task)
    for step in steps:
        if not (step.error and step.retry is not None):
            append(history, _entry(step, task.attempt))
            history.cost += step.cost
    for name, number in versions:
        if name not in history.versions:
            history.versions = {**history.versions, name: number}


def _entry(step: StepEntry, attempt: int) -> HistoryEntry:
    return HistoryEntry(
        step.position, "step", step.name, step.digest, step.value, step.error, step.message, step.at_ms, step.tries,
        step.took_ms, attempt, cost=step.cost,
    )  # fmt: skip


def _on_suspended(state: State, event: ev.FunctionSuspended) -> None:
    task = state.tasks[event.task]
    report = state.inputs[event.input]
    assert isinstance(report, Suspended)
    run = task.run
    end_attempt(state, task)
    _record(state, task, report.steps, report.versions)
    note_said(state, run, report)
    history = history_of(state, task)
    history.past, task.losses, task.returns, history.reported = task.attempt, 0, 0, NO_POSITIONS
    _set_phase(task, Cause.WAIT)
    run.busy -= 1
    run.waiting += 1
    run.fanning = with_entry(run.fanning, task.step.index, task)  # until it ends: its calls are children of the run
    for position in report.withdrawn:
        if position in history.awaits:
            _withdraw(state, task, position)
    give_back(state, task, report.withdrawn)
    arrived = frozenset(entry.position for entry in history.arrived)
    for request in report.awaits:
        if request.position not in history.awaits and request.position not in arrived:
            register(state, task, request, _due(state, request))
    _group(history, report.together)
    history.woken = bool(history.arrived)
    arm(state, task)
    want(state, run)


def _set_phase(task: Task, cause: Cause) -> None:
    task.phase = task.run.phases[task.step.index] = move_task(task.phase, cause)


def _due(state: State, request: Await) -> int:
    """The tick at which a sleep is over, or an event or approval is late."""
    clock = state.settings.clock
    if request.until_ms:
        return max(clock.tick_at(request.until_ms), state.tick)
    return state.tick + clock.ticks(request.delay_ms) if request.delay_ms >= 0 else 0


def _group(history: History, together: tuple[tuple[int, ...], ...]) -> None:
    """Members that have their outcome already are not counted. A step to be run again needs the function for that."""
    awaits = history.awaits
    for pending in awaits.values():
        pending.group = -1
    groups: list[int] = []
    for positions in together:
        known = (awaits[position] for position in positions if position in awaits)
        members = [pending for pending in known if pending.request.kind != "retry"]
        for pending in members:
            pending.group = len(groups)
        groups.append(len(members))
    history.groups = groups or ()


def _withdraw(state: State, task: Task, position: int) -> None:
    pending = drop(task, position)
    request = pending.request
    assert task.history is not None
    entry = HistoryEntry(position, WITHDRAWN, request.name, request.digest, at_ms=state.now_ms)
    append(task.history, entry)


def _on_step_retrying(state: State, event: ev.StepRetrying) -> None:
    """A step failed. `due`: it is run again then; 0: the failure is its outcome."""
    task = state.tasks[event.task]
    report: Any = state.inputs[event.input]
    step: StepEntry = report.steps[event.index]
    history = history_of(state, task)
    if not event.due:
        append(history, _entry(step, task.attempt))
        history.woken = True
        want(state, task.run)
        return
    request = Await(step.position, "retry", step.name, step.digest, message=f"{step.error}: {step.message}")
    pending = PendingAwait(request, event.due, state.tick, tries=step.tries)
    history.awaits = with_entry(history.awaits, step.position, pending)
    arm(state, task)


def _on_await_met(state: State, event: ev.AwaitMet) -> None:
    task = state.tasks[event.task]
    run = task.run
    if event.taken:
        payload = take_message(state, event.taken, run).payload
        settle(state, task, event.position, value=payload if payload is not None else NO_PAYLOAD)
        return
    if event.kept >= 0:
        assert run.signals is not None
        kept = run.signals[event.kept]
        run.signals = [*run.signals[: event.kept], *run.signals[event.kept + 1 :]] or None
        received = note_received(run, kept) if _receives(task, event.position) else ""
        value = kept.payload if kept.payload is not None else NO_PAYLOAD
        settle(state, task, event.position, value=value, message=received)
        return
    request = request_in(state.inputs[event.input], event.command) if event.input >= 0 else None
    outcome = _outcome(task, event.position, request)
    settle(state, task, event.position, value=outcome, error=event.error, message=event.message)


def _receives(task: Task, position: int) -> bool:
    assert task.history is not None
    return task.history.awaits[position].request.kind == "receive"


def _outcome(task: Task, position: int, request: object) -> Value:
    match request:
        case Ingest():
            return request.payload if request.payload is not None else NO_PAYLOAD
        case Decide():
            decision = {"approved": request.approve, "by": request.by, "comment": request.comment}
            assert task.history is not None
            fields = dict(task.history.awaits[position].request.fields)
            if fields and request.approve:
                return pack(decision | {"values": filled(fields, values_of(request.values))})
            return pack(decision)
    return None


def _on_woken(state: State, event: ev.FunctionWoken) -> None:
    task = state.tasks[event.task]
    run = task.run
    assert task.history is not None
    take_arrived(task)
    task.history.woken = False
    clear_due(state, task)
    run.waiting -= 1
    run.busy += 1
    _set_phase(task, Cause.DUE)
    if run.state != RunState.PAUSED:
        stand_in_line(state, task)


def _on_continued(state: State, event: ev.FunctionContinued) -> None:
    """The same run starts again with other inputs. Positions go on, so that children have other ids than before."""
    task = state.tasks[event.task]
    report: Any = state.inputs[event.input]
    run = task.run
    end_attempt(state, task)
    old = history_of(state, task)
    base = old.next_position()
    give_back(state, task, (*report.withdrawn, *(entry.position for entry in old.arrived)))
    forget_awaits(task)
    task.history = History(state.now_ms, base, past=task.attempt, cost=old.cost)
    task.losses = task.returns = 0
    run.inputs = report.value
    refuse_open(state, run, CONTINUED)
    _set_phase(task, Cause.REQUEUE)
    if run.state != RunState.PAUSED:
        stand_in_line(state, task)


def _on_cancelled(state: State, event: ev.FunctionCancelled) -> None:
    """The function gets the cancellation before the awaits that end with it."""
    task = state.tasks[event.task]
    request: Any = state.inputs[event.input]
    history, run = history_of(state, task), task.run
    history.cancelled = request.reason or "cancelled"
    outcomes = [HistoryEntry(CANCELLATION, "cancel", "", "", at_ms=state.now_ms)]
    for position in sorted(history.awaits):
        given_up = drop(task, position).request
        outcomes.append(HistoryEntry(position, WITHDRAWN, given_up.name, given_up.digest, at_ms=state.now_ms))
    add_arrived(history, outcomes)
    if task.phase not in (Phase.RUNNING, Phase.WAITING):
        take_arrived(task)
    history.woken = True
    if task.phase == Phase.WAITING:
        clear_due(state, task)
    if run.deadline:
        clear_timer(state, Timer.RUN_TIMEOUT, run.number, run.deadline)
    run.deadline = set_timer(state, Timer.RUN_TIMEOUT, run.number, event.until)
    want(state, run)


FUNCTION_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.StepsAppended: _on_steps_appended,
    ev.FunctionSuspended: _on_suspended,
    ev.StepRetrying: _on_step_retrying,
    ev.AwaitMet: _on_await_met,
    ev.FunctionWoken: _on_woken,
    ev.FunctionContinued: _on_continued,
    ev.FunctionCancelled: _on_cancelled,
}
