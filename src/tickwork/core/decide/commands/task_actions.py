"""Actions of people on one task: cancel it, or try it again without waiting for its backoff.

A cancelled task fails like one whose retries are used up, so its run decides about the rest of itself as after any
failure. A task that has failed for good is tried again by a `Resolve` of its run.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.decide.runs.run_end import child_runs, end_run, released
from tickwork.core.decide.tick_context import TickContext, tenant_of
from tickwork.core.state import inputs
from tickwork.core.state.effects import CancelAttempt
from tickwork.core.state.events import TaskDue, TaskFailed, TaskStopped
from tickwork.core.state.lifecycle import Phase, RunTrigger
from tickwork.core.state.state import State, Task

CANCELLED = "cancelled"  # the error of a task that was cancelled by a command
_MOVABLE = (Phase.READY, Phase.RUNNING, Phase.BACKOFF, Phase.WAITING)


def _cancel_task(turn: TickContext, position: int, cancel: inputs.CancelTask) -> None:
    task = _live_task(turn.state, cancel)
    if task.step.durable:
        message = f"{task.run.id} is a durable function, which is its only task: cancel the run"
        raise Refused("durable", message, path="task")
    why = f"by {cancel.by}: {cancel.reason}".rstrip(": ")
    reason = f"the task that started it was cancelled {why}"
    all_children = child_runs(turn.state, task)
    children = released(turn, all_children, reason)
    parts = [] if all_children or task.fan is None else [turn.state.tasks[part] for part in task.fan.live.values()]
    for stopped in (task, *sorted(parts, key=_number)):
        if stopped.worker is not None:
            turn.effects.append(CancelAttempt(stopped.worker.number, stopped.number, stopped.attempt))
    if task.fan is not None:
        turn.emit(TaskStopped(task.number))
    turn.emit(TaskFailed(task.number, CANCELLED, why, position))
    for child in children:
        end_run(turn, child, RunTrigger.CANCEL, reason)


def _number(task: Task) -> int:
    return task.number


def _retry_task(turn: TickContext, position: int, retry: inputs.RetryTask) -> None:
    task = _live_task(turn.state, retry)
    if task.phase != Phase.BACKOFF:
        phase = Phase(task.phase).name.lower()
        raise Refused("illegal_move", f"task {task.number} is {phase}: it does not wait for a retry", path="task")
    turn.emit(TaskDue(task.number, position))


def _live_task(state: State, request: inputs.CancelTask | inputs.RetryTask) -> Task:
    tenant, task = tenant_of(state, request.tenant), state.tasks.get(request.task)
    if task is None or task.run.tenant is not tenant:
        raise Refused("unknown_task", f"no task {request.task} has begun and not ended", path="task")
    if task.phase not in _MOVABLE:
        raise Refused("illegal_move", f"task {task.number} is {Phase(task.phase).name.lower()}: ask again", path="task")
    return task


TASK_ACTIONS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.CancelTask: _cancel_task,
    inputs.RetryTask: _retry_task,
}
