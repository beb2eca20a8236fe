"""Events and decisions of people: given to the tasks that wait for them."""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, too_large
from tickwork.core.decide.commands.mailboxes import check_payload, put_mailbox, remove_mailbox
from tickwork.core.decide.runs.functions import approval_of, take_newest
from tickwork.core.decide.runs.run_end import runs_below
from tickwork.core.decide.schedules.updates import check_asset, hear_event, update_asset
from tickwork.core.decide.tick_context import TickContext, answer, check_key, check_same, live_run, tenant_of
from tickwork.core.definition.forms import check_answer
from tickwork.core.definition.model import ApprovalNode, InputField, Node
from tickwork.core.definition.plan import Kind
from tickwork.core.state import inputs
from tickwork.core.state.effects import CommandResult
from tickwork.core.state.events import (
    AwaitMet,
    Duplicate,
    EventIdKept,
    EventStored,
    MessageKept,
    MessageRefused,
    TaskAnswered,
    TaskFailed,
    UpdateReceived,
)
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.mailboxes import KEPT, Mailbox
from tickwork.core.state.state import Run, State, Task

DUPLICATE = "duplicate"
EVENTS_KEPT_MAX = 1_000  # of one run: they stay in memory as long as it does


class Given(IntEnum):
    """Decide about an event that no run waits for and that has a mailbox."""

    KEPT = -1
    REFUSED = -2


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
        check_answer(_fields(task.step.node), decide.values, by=decide.by, comment=decide.comment)
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
    if decide.approve:
        check_answer(dict(request.fields), decide.values, by=decide.by, comment=decide.comment)
    turn.emit(AwaitMet(task.number, request.position, position))


def _fields(node: Node) -> dict[str, InputField]:
    return node.fields if isinstance(node, ApprovalNode) else {}


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
        if ingest.id and _is_known(turn, position, ingest):
            return
        full = ingest.id != "" and _is_full(state, ingest)  # a refused event comes again, under the same id
        if ingest.id and not full:
            turn.emit(EventIdKept(position, state.next_number))
        given = give_event(turn, position, ingest)
        schedules = hear_event(turn, position, ingest)
        if full and schedules:
            turn.emit(EventIdKept(position, state.next_number))
        turn.effects.append(_result_of(position, ingest, given, schedules))
    else:
        _give_to_run(turn, position, ingest, live_run(state, ingest.tenant, ingest.run_id))


def _update_asset(turn: TickContext, position: int, request: inputs.UpdateAsset) -> None:
    check_asset(turn.state, request)
    if request.id:
        if _is_known(turn, position, request):
            return
        turn.emit(EventIdKept(position, turn.state.next_number))
    schedules = update_asset(turn, position, request)
    turn.effects.append(CommandResult(position, "", "", f"{schedules} schedules"))


def _is_known(turn: TickContext, position: int, ingest: inputs.Ingest | inputs.UpdateAsset) -> bool:
    """Whether an event with this id came before, within the window of keys."""
    state = turn.state
    known = tenant_of(state, ingest.tenant).event_ids.get(ingest.id)
    if known is not None and known.came + state.settings.clock.ticks(state.settings.dedupe_window_ms) > state.tick:
        turn.emit(Duplicate(position, ""))
        turn.effects.append(CommandResult(position, "", "", DUPLICATE))
        return True
    return False


def _is_full(state: State, ingest: inputs.Ingest) -> bool:
    """Whether the event has a mailbox that takes no more with its key."""
    mailbox = tenant_of(state, ingest.tenant).mailboxes.get(ingest.event)
    return mailbox is not None and not _waiting(state, ingest) and _is_full_for(mailbox, ingest.key)


def _is_full_for(mailbox: Mailbox, key: str) -> bool:
    return len(mailbox.queues.get(key, ())) >= mailbox.capacity


def _result_of(position: int, ingest: inputs.Ingest, given: int, schedules: int) -> CommandResult:
    heard = f", {schedules} schedules" if schedules else ""
    match given:
        case Given.KEPT:
            return CommandResult(position, "", "", f"{KEPT}{heard}")
        case Given.REFUSED if not schedules:
            key = f" and the key {shortened(ingest.key, 128)!r}" if ingest.key else ""
            return CommandResult(position, "", "mailbox_full", f"key: the mailbox {ingest.event}{key} is full")
    return CommandResult(position, "", "", f"{max(given, 0)} waiting{heard}")


def _give_to_run(turn: TickContext, position: int, ingest: inputs.Ingest, run: Run) -> None:
    """Give the event to the run itself if it waits, else to the runs below it that wait. If none does, it is kept by
    the run that may still wait for it, or else by those below it."""
    state = turn.state
    waiting = _waiting(state, ingest)
    takers = [task for task in waiting if task.run is run][:1]
    takers = takers or [task for task in waiting if _is_below(state, task.run, run)]
    for task in takers:
        _take_event(turn, task, position, ingest)
    if takers:
        return
    keepers = [run] if _may_take(run, ingest) else [below for below in _below(state, run) if _may_take(below, ingest)]
    if not keepers:
        known = ", ".join((run.plan.events or ())[:10])
        waits = f"its events are {known}" if known else "it waits for no event"
        message = f"run {run.id} of {run.plan.name} can never take the event {ingest.event}: {waits}"
        raise Refused("unknown_event", message, path="event")
    if any(len(keeper.signals or ()) >= EVENTS_KEPT_MAX for keeper in keepers):
        raise Refused("too_many_events", f"a run keeps at most {EVENTS_KEPT_MAX} events", path="run_id")
    for keeper in keepers:
        turn.emit(EventStored(keeper.number, position))
        take_newest(turn, keeper)


def _may_take(run: Run, ingest: inputs.Ingest) -> bool:
    return run.plan.events is None or ingest.event in run.plan.events


def _is_below(state: State, run: Run, above: Run) -> bool:
    while (parent := state.tasks.get(run.parent) if run.parent else None) is not None:
        run = parent.run
        if run is above:
            return True
    return False


def _below(state: State, run: Run) -> list[Run]:
    """Live runs that this one began, and those that they began."""
    children = runs_below(state, run)
    for child in children:  # grows while it is walked
        children.extend(runs_below(state, child))
    return children


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
    """Raises `Refused` for an event that no run could ever take."""
    tenant_of(state, ingest.tenant)
    if too_large(ingest.payload):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="payload")
    check_name(ingest.event, path="event", kind="event")
    check_key(ingest.key, "key")
    check_key(ingest.id, "id")
    mailbox = tenant_of(state, ingest.tenant).mailboxes.get(ingest.event)
    if mailbox is not None:
        check_payload(mailbox, ingest.payload)


def give_event(turn: TickContext, position: int, ingest: inputs.Ingest, *, command: int = -1) -> int:
    """An event that was checked, to everybody who waits for it. Returns how many that are. If there is a mailbox of its
    name, the run that has waited longest takes it, or it is kept."""
    mailbox = tenant_of(turn.state, ingest.tenant).mailboxes.get(ingest.event)
    waiting = _waiting(turn.state, ingest)
    if mailbox is not None:
        return _give_to_mailbox(turn, position, ingest, mailbox, waiting, command)
    for task in waiting:
        _take_event(turn, task, position, ingest, command)
    return len(waiting)


def _give_to_mailbox(
    turn: TickContext, position: int, ingest: inputs.Ingest, mailbox: Mailbox, waiting: list[Task], command: int
) -> int:
    number = turn.state.next_number
    if not waiting and _is_full_for(mailbox, ingest.key):
        turn.emit(MessageRefused(number, position, command))
        return Given.REFUSED
    turn.emit(MessageKept(number, position, command))
    if not waiting:
        return Given.KEPT
    task = waiting[0]
    if task.history is not None:
        awaited = task.history.event_await(ingest.event, ingest.key)
        turn.emit(AwaitMet(task.number, awaited, taken=number))
    else:
        turn.emit(TaskAnswered(task.number, -1, taken=number))
    return 1


def _take_event(turn: TickContext, task: Task, position: int, ingest: inputs.Ingest, command: int = -1) -> None:
    if task.history is not None:
        awaited = task.history.event_await(ingest.event, ingest.key)
        turn.emit(AwaitMet(task.number, awaited, position, command=command))
    else:
        turn.emit(TaskAnswered(task.number, position, command=command))


def _waiting(state: State, ingest: inputs.Ingest) -> list[Task]:
    """By number, that is in the order in which their runs began: a restored state has the same one."""
    waiting = tenant_of(state, ingest.tenant).waits.get((ingest.event, ingest.key), {})
    return [waiting[number] for number in sorted(waiting)]


SIGNAL_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.Decide: _decide,
    inputs.Ingest: _ingest,
    inputs.UpdateAsset: _update_asset,
    inputs.SendUpdate: _send_update,
    inputs.PutMailbox: put_mailbox,
    inputs.RemoveMailbox: remove_mailbox,
}
