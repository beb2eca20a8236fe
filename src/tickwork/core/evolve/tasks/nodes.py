"""Nodes of a run: their results, how they ended without a task, and what an operator decides about them."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.values import Value
from tickwork.core.definition.plan import Step
from tickwork.core.evolve.follow_ups import drop_error, note_error
from tickwork.core.evolve.messages import refuse_open
from tickwork.core.evolve.races import may_start_early, open_parents
from tickwork.core.state import events as ev
from tickwork.core.state.history import History, entry_bytes, reported_steps
from tickwork.core.state.inputs import Resolve
from tickwork.core.state.lifecycle import Cause, Phase, move_task
from tickwork.core.state.state import Run, State

SUCCEEDED = int(Phase.SUCCEEDED)
FAILED = int(Phase.FAILED)


def keep_result(run: Run, index: int, value: Value) -> None:
    if run.results is None:
        run.results = {index: value}
    else:
        run.results[index] = value


def count_ended(run: Run, step: Step) -> None:
    run.unfinished -= 1
    if run.phases[step.index] == FAILED and not step.forgiven:
        run.failures += 1
    counts = run.counts
    if counts is None:
        return
    races = run.plan.races
    for child in step.children:
        if races and not counts[child]:
            continue  # it did not wait for this one
        counts[child] -= 1
        if races and may_start_early(run.plan.steps[child], run.phases):
            counts[child] = 0
        if not counts[child]:
            note_todo(run, child)


def note_todo(run: Run, index: int) -> None:
    if isinstance(run.todo, list):
        run.todo.append(index)
    else:
        run.todo = [*run.todo, index]


_STEP_CAUSES = {
    Phase.SUCCEEDED: Cause.SUCCEED,
    Phase.FAILED: Cause.FAIL,
    Phase.SKIPPED: Cause.SKIP,
    Phase.NOT_TAKEN: Cause.NOT_TAKE,
    Phase.BLOCKED: Cause.BLOCK,
}


def _on_step_ended(state: State, event: ev.StepEnded) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    run.phases[step.index] = move_task(run.phases[step.index], _STEP_CAUSES[Phase(event.phase)])
    if event.phase == FAILED:
        code, _, message = event.reason.partition(": ")
        note_error(run, step.index, code, message)
    count_ended(run, step)


def _on_step_reset(state: State, event: ev.StepReset) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    index = step.index
    if run.phases[index] == FAILED:
        run.failures -= not step.forgiven
    elif run.phases[index] == SUCCEEDED:  # its next attempt must not have the number of the one that succeeded
        run.tried = run.before = max(run.tried, 1)
    run.phases[index] = move_task(run.phases[index], Cause.RESET)
    run.unfinished += 1
    counts = run.counts
    if counts is not None:
        for child in step.children:
            counts[child] = open_parents(run.plan.steps[child], run.phases)
    if counts is None or not counts[index]:
        note_todo(run, index)
    drop_error(run, index)
    if run.results is not None:
        run.results.pop(index, None)
    if run.history is not None:
        run.history = resumable(run.history)
        if not run.history.entries:
            refuse_open(state, run, "the function starts again")
    if run.extracts is not None:
        run.extracts = {key: extract for key, extract in run.extracts.items() if key[0] != index} or None


def resumable(history: History) -> History:
    """What is left of the history of a function that is tried again: all of it but the failure that ended it. Where
    more was recorded after that failure (it was caught, and something was undone), the function starts again."""
    failed, entries = history.failed, history.entries
    if failed < 0:
        return history
    if entries and entries[-1].position == failed and history.next_position() == failed + 1:
        left = entries[:-1]
        return History(
            history.started_ms, history.base, left, versions=history.versions, size=sum(map(entry_bytes, left)),
            cost=history.cost, reported=reported_steps(left, 0),
        )  # fmt: skip
    return History(history.started_ms, history.next_position(), cost=history.cost)


def _on_step_accepted(state: State, event: ev.StepAccepted) -> None:
    run = state.runs[event.run]
    request = state.inputs[event.input]
    assert isinstance(request, Resolve)
    run.phases[event.step] = move_task(run.phases[event.step], _STEP_CAUSES[Phase(event.phase)])
    run.failures -= not run.plan.steps[event.step].forgiven
    drop_error(run, event.step)
    value = request.values.get(run.plan.steps[event.step].id)
    if value is not None:
        keep_result(run, event.step, value)


NODE_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.StepEnded: _on_step_ended,
    ev.StepReset: _on_step_reset,
    ev.StepAccepted: _on_step_accepted,
}
