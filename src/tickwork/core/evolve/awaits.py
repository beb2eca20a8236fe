"""Keeping the awaits of durable functions in step with timers and with the events that tasks wait for.

Helpers of `evolve` only.
"""

from tickwork.core.base.values import Value
from tickwork.core.evolve.indexes import clear_due, set_due, wait_for, wait_no_more, want
from tickwork.core.evolve.messages import received_again
from tickwork.core.state.history import (
    NO_AWAITS,
    WITHDRAWN,
    Await,
    History,
    HistoryEntry,
    PendingAwait,
    entry_bytes,
    unseen_events,
)
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.state import Run, State, Task
from tickwork.core.state.tables import with_entry, without_entry

RUNNING, WAITING = int(Phase.RUNNING), int(Phase.WAITING)


def history_of(state: State, task: Task) -> History:
    """The history of a task; it begins with the first thing that is recorded."""
    history = task.history
    if history is None:
        started = task.run.started or state.tick
        history = task.history = History(state.settings.clock.ms_of(started))
    return history


def append(history: History, entry: HistoryEntry) -> None:
    if isinstance(history.entries, list):
        history.entries.append(entry)
    else:
        history.entries = [entry]
    history.size += entry_bytes(entry)


def register(state: State, task: Task, request: Await, due: int) -> None:
    """From here on an outcome for this await is recorded."""
    history = history_of(state, task)
    history.awaits = with_entry(history.awaits, request.position, PendingAwait(request, due, state.tick))
    if request.kind == "event":
        wait_for(task.run.tenant, (request.name, request.key), task)


def drop(task: Task, position: int) -> PendingAwait:
    """The await at this position has its outcome, or is given up."""
    history = task.history
    assert history is not None
    pending = history.awaits[position]
    history.awaits = without_entry(history.awaits, position) or NO_AWAITS
    request = pending.request
    if request.kind == "event" and history.event_await(request.name, request.key) < 0:
        wait_no_more(task.run.tenant, (request.name, request.key), task)
    return pending


def settle(state: State, task: Task, position: int, *, value: Value = None, error: str = "", message: str = "") -> None:
    """Record the outcome of an await. An attempt that runs now does not know it: it follows what that still reports."""
    history = task.history
    assert history is not None
    pending = drop(task, position)
    request = pending.request
    entry = HistoryEntry(
        position, request.kind, request.name, request.digest, value, error, message, state.now_ms, pending.tries or 1,
        key=request.key,
    )  # fmt: skip
    if task.phase in (RUNNING, WAITING):
        add_arrived(history, [entry])
    else:
        append(history, entry)
    if pending.group >= 0:
        assert isinstance(history.groups, list), "the await is in one of them"
        history.groups[pending.group] -= 1
    if pending.group < 0 or error or not history.groups[pending.group]:
        history.woken = True
    if task.phase == WAITING:
        arm(state, task)
    want(state, task.run)


def arm(state: State, task: Task) -> None:
    """Set the timer of a suspended function to its earliest await. One that is over already is seen in a visit."""
    assert task.history is not None
    clear_due(state, task)
    due = task.history.next_due()
    if due:
        set_due(state, task, max(due, state.tick + 1))


def add_arrived(history: History, entries: list[HistoryEntry]) -> None:
    """Outcomes that the attempt which runs now does not know."""
    if isinstance(history.arrived, list):
        history.arrived += entries
    else:
        history.arrived = entries


def take_arrived(task: Task) -> None:
    """The next attempt gets what the one before it did not know."""
    history = task.history
    if history is not None and history.arrived:
        for entry in history.arrived:
            append(history, entry)
        history.arrived = ()


def give_back(state: State, task: Task, positions: tuple[int, ...]) -> None:
    """The function gave up awaits whose events had come. It did not see these events, so the run keeps them for
    the next await."""
    history, run = task.history, task.run
    assert history is not None
    unseen = unseen_events(history, positions)
    history.arrived = [entry for entry in history.arrived if entry not in unseen] or ()
    for entry in unseen:
        append(history, HistoryEntry(entry.position, WITHDRAWN, entry.name, entry.digest, at_ms=state.now_ms))
    if unseen:
        run.signals = [*(received_again(run, entry, state.tick) for entry in unseen), *(run.signals or ())]


def forget_awaits(task: Task) -> None:
    """The function ends or starts again: nothing waits for these outcomes any more."""
    history = task.history
    if history is None:
        return
    for position in list(history.awaits):
        drop(task, position)
    take_arrived(task)
    history.groups, history.woken = (), False
    fanning = task.run.fanning
    if fanning is not None and fanning.get(task.step.index) is task:
        task.run.fanning = without_entry(fanning, task.step.index)


def call_ended(state: State, task: Task, run: Run, output: Value) -> None:
    """The child run of a call has ended; its outcome is the call's, unless the call was withdrawn."""
    history = task.history
    if history is None or run.child not in history.awaits:
        return
    if run.state == RunState.COMPLETED:
        settle(state, task, run.child, value=output)
    else:
        error = RunState(run.state).name
        settle(state, task, run.child, error=error, message=f"{run.id}: {run.pause_reason or error.lower()}")
