"""Events and decisions of people: given to the tasks that wait for them."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, too_large
from tickwork.core.decide.runs.functions import approval_of, take_newest
from tickwork.core.decide.tick_context import TickContext, answer, check_key, check_same, live_run, tenant_of
from tickwork.core.definition.model import ApprovalNode, Node
from tickwork.core.definition.plan import Kind
from tickwork.core.state import inputs
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.events import (
    AwaitMet,
    Duplicate,
    EventStored,
    TaskAnswered,
    TaskFailed,
    UpdateReceived,
)
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.state import Run, State, Task

EVENTS_KEPT_MAX = 1_000  # of one run: they stay in memory as long as it does


def _decide(turn: TickContext, position: int, decide: inputs.Decide) -> None:
    state = turn.state
    if decide.left_as is not None and tenant_of(state, decide.tenant).runs.get(decide.run_id) is None:
        message = f"run {decide.run_id[:128]} is {RunState(decide.left_as).name}: nothing in it waits for a decision"
        raise Refused("run_ended", message, path="run_id")
    run = live_run(state, decide.tenant, decide.run_id)
    if run.plan.steps[0].durable:
        _decide_for_function(turn, position, decide, run)
        return
    task = _waiting_task(state, run, decide.node, Kind.APPROVAL)
    check_entitled(task.step.node, by=decide.by, requester=run.by)
    if decide.approve:
        turn.emit(TaskAnswered(task.number, position))
    else:
        turn.emit(TaskFailed(task.number, "rejected", f"by {decide.by}: {decide.comment}"[:512], position))


def _decide_for_function(turn: TickContext, position: int, decide: inputs.Decide, run: Run) -> None:
    """Both decisions are outcomes: the function itself says what follows from a rejection."""
    task = turn.state.tasks.get(run.number)
    pending = approval_of(task, decide.node) if task is not None else None
    if task is None or pending is None:
        raise Refused("not_waiting", f"{shortened(decide.node, 128)!r} does not wait for an answer", path="node")
    request = pending.request
    _check_approver(request.name, request.approvers, four_eyes=request.four_eyes, by=decide.by, requester=run.by)
    turn.emit(AwaitMet(task.number, request.position, position))


def check_entitled(node: Node, *, by: str, requester: str) -> None:
    if isinstance(node, ApprovalNode):
        _check_approver(node.id, node.approvers, four_eyes=node.four_eyes, by=by, requester=requester)


def _check_approver(name: str, approvers: tuple[str, ...], *, four_eyes: bool, by: str, requester: str) -> None:
    if approvers and by not in approvers:
        raise Refused("not_entitled", f"{shortened(by, 128)!r} is not among the approvers of {name}", path="by")
    if four_eyes and by == requester:
        raise Refused("four_eyes", "whoever asked for the run cannot approve it", path="by")


def _waiting_task(state: State, run: Run, node: str, kind: Kind) -> Task:
    index = run.plan.index.get(node)
    task = state.tasks.get(run.number + index) if index is not None else None
    phase = Phase(run.phases[index]) if index is not None and run.plan.steps[index].kind is kind else None
    if phase in (Phase.SUCCEEDED, Phase.FAILED):
        raise Refused(
            "already_decided", f"{shortened(node, 128)!r} is {phase.name}: it was decided before", path="node"
        )
    if task is None or task.step.kind is not kind or task.phase != Phase.WAITING:
        raise Refused("not_waiting", f"{shortened(node, 128)!r} does not wait for an answer", path="node")
    return task


def _ingest(turn: TickContext, position: int, ingest: inputs.Ingest) -> None:
    state = turn.state
    check_event(state, ingest)
    if not ingest.run_id:
        count = give_event(turn, position, ingest)
        turn.effects.append(CommandResult(position, "", "", f"{count} waiting"))
        return
    waiting = _waiting(state, ingest)
    run = live_run(state, ingest.tenant, ingest.run_id)
    own = [task for task in waiting if task.run is run]
    if own:
        _take_event(turn, own[0], position, ingest)
    elif run.plan.events is not None and ingest.event not in run.plan.events:
        known = ", ".join(run.plan.events[:10])
        waits = f"its events are {known}" if known else "it waits for no event"
        message = f"run {run.id} of {run.plan.name} can never take the event {ingest.event}: {waits}"
        raise Refused("unknown_event", message, path="event")
    elif run.signals is not None and len(run.signals) >= EVENTS_KEPT_MAX:
        raise Refused("too_many_events", f"a run keeps at most {EVENTS_KEPT_MAX} events", path="run_id")
    else:
        turn.emit(EventStored(run.number, position))
        take_newest(turn, run)


def _send_update(turn: TickContext, position: int, update: inputs.SendUpdate) -> None:
    """Put an update into the inbox of a run. Under a key that the run knows it is the same update."""
    state = turn.state
    run = live_run(state, update.tenant, update.run_id)
    known = _known_update(run, update.key)
    if known is not None:
        check_same(known, update.body, f"key {update.key}")
        turn.emit(Duplicate(position, run.id))
    else:
        _check_update(state, run, update)
        turn.emit(UpdateReceived(run.number, position))
        take_newest(turn, run)
    answer(turn, position, run.id)


def _known_update(run: Run, key: str) -> str | None:
    """The digest of the update that this run got under the key."""
    messages = run.messages
    in_inbox = next((kept.body for kept in run.signals or () if kept.update == key), None)
    if in_inbox is not None or messages is None:
        return in_inbox
    known = messages.outcome_of(key) or messages.open_update(key)
    return None if known is None else known.body


def _check_update(state: State, run: Run, update: inputs.SendUpdate) -> None:
    check_name(update.name, path="name", kind="message")
    check_key(update.key, "key")
    if not update.key:
        raise Refused("bad_key", "an update has a key", path="key")
    if too_large(update.payload):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="payload")
    if not run.plan.steps[0].durable:
        message = f"run {run.id} of {run.plan.name} is no durable function, so nothing in it replies to {update.name}"
        raise Refused("no_receiver", message, path="run_id")
    task = state.tasks.get(run.number)
    if task is not None and task.history is not None and task.history.cancelled:
        raise Refused("run_ended", f"run {run.id} is being cancelled: it replies to nothing any more", path="run_id")
    if len(run.signals or ()) >= EVENTS_KEPT_MAX:
        raise Refused("too_many_events", f"the inbox of a run has at most {EVENTS_KEPT_MAX} messages", path="run_id")


def check_event(state: State, ingest: inputs.Ingest) -> None:
    """Raises `Refused` for an event that nobody could ever take."""
    tenant_of(state, ingest.tenant)
    if too_large(ingest.payload):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="payload")
    check_name(ingest.event, path="event", kind="event")
    check_key(ingest.key, "key")


def give_event(turn: TickContext, position: int, ingest: inputs.Ingest, *, command: int = -1) -> int:
    """An event that was checked, to everybody who waits for it. Returns how many that are."""
    waiting = _waiting(turn.state, ingest)
    for task in waiting:
        _take_event(turn, task, position, ingest, command)
    return len(waiting)


def _take_event(turn: TickContext, task: Task, position: int, ingest: inputs.Ingest, command: int = -1) -> None:
    if task.history is not None:
        awaited = task.history.event_await(ingest.event, ingest.key)
        turn.emit(AwaitMet(task.number, awaited, position, command=command))
    else:
        turn.emit(TaskAnswered(task.number, position, command=command))


def _waiting(state: State, ingest: inputs.Ingest) -> list[Task]:
    return list(tenant_of(state, ingest.tenant).waits.get((ingest.event, ingest.key), {}).values())


SIGNAL_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.Decide: _decide,
    inputs.Ingest: _ingest,
    inputs.SendUpdate: _send_update,
}
