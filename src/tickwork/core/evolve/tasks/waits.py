"""Tasks that wait for a time, an event, an approval or children."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.values import Value, pack
from tickwork.core.definition.forms import result_of, values_of
from tickwork.core.definition.model import ApprovalNode
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve.indexes import clear_due, set_due, set_timer, wait_for, want
from tickwork.core.evolve.mailboxes import take_message
from tickwork.core.evolve.tasks.attempts import end_task, make_task, start_waiting
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Decide, Ingest, request_in
from tickwork.core.state.lifecycle import Cause
from tickwork.core.state.messages import NO_PAYLOAD, ReceivedEvent
from tickwork.core.state.state import FanOut, State, Task, Timer

APPROVED = pack(True)


def _on_waiting(state: State, event: ev.TaskWaiting) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    task = make_task(state, run, step, Cause.WAIT)
    if step.kind is Kind.EVENT:
        task.wait_key = (step.node.event, event.key)  # type: ignore[attr-defined]
        wait_for(run.tenant, task.wait_key, task)
    fan = None
    if step.kind >= Kind.WORKFLOW:
        fan = FanOut(total=event.total, max_parallel=event.max_parallel, keys=event.keys)
    start_waiting(state, task, fan)
    if event.until and fan is not None:
        fan.deadline = set_timer(state, Timer.REPEAT, task.number, event.until)
    elif event.until:
        set_due(state, task, event.until)


def _on_wait_elapsed(state: State, event: ev.WaitElapsed) -> None:
    task = state.tasks[event.task]
    if task.step.kind is Kind.REPEAT:
        clear_due(state, task)
        want(state, task.run)  # the rest between two turns is over
        return
    node, value = task.step.node, None
    if isinstance(node, ApprovalNode) and node.fields:
        value = result_of(node.fields, node.default)
    end_task(state, task, Cause.SUCCEED, value)


def _approved(task: Task, decide: Decide) -> Value:
    node = task.step.node
    assert isinstance(node, ApprovalNode)
    if not node.fields:
        return APPROVED
    return result_of(node.fields, values_of(decide.values), by=decide.by, comment=decide.comment)


def _on_answered(state: State, event: ev.TaskAnswered) -> None:
    task = state.tasks[event.task]
    run = task.run
    if event.taken:
        message = take_message(state, event.taken, run)
        value = message.payload if message.payload is not None else NO_PAYLOAD
        run.signals = [
            *(run.signals or ()),
            ReceivedEvent(message.mailbox, message.key, message.payload, state.tick, True),
        ]
    elif event.kept >= 0:
        assert run.signals is not None
        heard = run.signals[event.kept]
        used = ReceivedEvent(heard.name, heard.key, heard.payload, heard.tick, True)
        run.signals = [*run.signals[: event.kept], used, *run.signals[event.kept + 1 :]]
        value = heard.payload if heard.payload is not None else NO_PAYLOAD
    else:
        request = request_in(state.inputs[event.input], event.command)
        value = None
        if isinstance(request, Ingest):
            value = request.payload if request.payload is not None else NO_PAYLOAD
            run.signals = [
                *(run.signals or ()),
                ReceivedEvent(request.event, request.key, request.payload, state.tick, True),
            ]
        elif isinstance(request, Decide):
            value = _approved(task, request)
    end_task(state, task, Cause.SUCCEED, value)


WAIT_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.TaskWaiting: _on_waiting,
    ev.WaitElapsed: _on_wait_elapsed,
    ev.TaskAnswered: _on_answered,
}
