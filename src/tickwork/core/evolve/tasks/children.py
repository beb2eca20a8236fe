"""Children of maps and repeats."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.values import Ref, Value
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve.indexes import begin_attempt, set_due, stand_behind, want
from tickwork.core.evolve.tasks.attempts import (
    clear_deadline,
    drop_task,
    end_task,
    has_children_to_give,
    stand_in_line,
    take_from_lane,
)
from tickwork.core.state import events as ev
from tickwork.core.state.lifecycle import Cause, Phase, RunState
from tickwork.core.state.state import State, Task

READY = int(Phase.READY)
CHILDREN_IN_TURN = 64  # that a map gives before it goes to the end of the line: what comes beside it waits for no more


def _on_child_dispatched(state: State, event: ev.ChildDispatched) -> None:
    parent = state.tasks[event.parent]
    fan, lane, body = parent.fan, parent.lane, parent.step.body
    assert fan is not None and lane is not None and body is not None
    state.next_number = event.task + 1
    child = Task(event.task, parent.run, body, READY, 0, 0, state.now_ms, lane)
    child.parent, child.child = parent.number, fan.begun
    fan.live[fan.begun] = event.task
    fan.begun += 1
    fan.running += 1
    parent.run.busy += 1
    state.tasks.add(event.task, child)
    if not has_children_to_give(parent):
        take_from_lane(state, parent)
    elif not fan.begun % CHILDREN_IN_TURN:
        stand_behind(state, parent)
    begin_attempt(state, child, state.workers[event.worker], lane)


def _on_children_cancelled(state: State, event: ev.RepeatTimedOut | ev.TaskStopped) -> None:
    """Children are cancelled here where they are tasks; child runs are cancelled by their own events."""
    task = state.tasks[event.task]
    fan = task.fan
    assert fan is not None
    clear_deadline(state, task, fan)
    if task.step.body is not None and task.step.body.kind is Kind.WORK:
        for number in sorted(fan.live.values()):
            drop_task(state, state.tasks[number])
    fan.live, fan.running = {}, 0
    want(state, task.run)  # no visit decides this


def _on_child_begun(state: State, event: ev.IterationStarted) -> None:
    parent = state.tasks[event.parent]
    fan, body = parent.fan, parent.step.body
    assert fan is not None and body is not None
    state.next_number = event.task + 1
    child = Task(event.task, parent.run, body, READY)
    child.parent, child.child = parent.number, fan.begun
    fan.live[fan.begun] = event.task
    fan.begun += 1
    fan.running += 1
    parent.run.busy += 1
    state.tasks.add(event.task, child)
    if parent.run.state != RunState.PAUSED:
        stand_in_line(state, child)


def _on_turn_delayed(state: State, event: ev.IterationDelayed) -> None:
    task = state.tasks[event.task]
    assert task.fan is not None
    task.fan.rested = task.fan.begun
    set_due(state, task, event.due)


def _on_fan_ended(state: State, event: ev.FanOutEnded) -> None:
    task = state.tasks[event.task]
    fan = task.fan
    assert fan is not None
    if task.step.kind is Kind.MAP:
        items = None if fan.keys is not None else fan.total
        value: Value = Ref(f"{task.run.number}/{task.step.index}", 0, items, "gather", fan.keys)
    else:
        value = fan.last
    end_task(state, task, Cause.SUCCEED, value, visit=False)  # a visit decides this, and it continues


CHILD_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.ChildDispatched: _on_child_dispatched,
    ev.IterationStarted: _on_child_begun,
    ev.IterationDelayed: _on_turn_delayed,
    ev.RepeatTimedOut: _on_children_cancelled,
    ev.TaskStopped: _on_children_cancelled,
    ev.FanOutEnded: _on_fan_ended,
}
