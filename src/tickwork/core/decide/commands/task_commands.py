"""Commands from the code of a task: start runs, send events.

Commands come with the report that ends an attempt, and share its fate: if the report is accepted, all of them take
effect in its tick; if not, none. All are checked before the first one acts: if one is refused, the task fails with the
reason. A command for another partition is queued, and sent until that partition acknowledges it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import TASK_COMMANDS_MAX
from tickwork.core.decide.commands.signals import Given, check_event, give_event
from tickwork.core.decide.commands.submissions import check_start
from tickwork.core.decide.schedules.updates import check_asset, hear_event, update_asset
from tickwork.core.decide.tick_context import TickContext, check_room, check_same, tenant_of
from tickwork.core.state import inputs
from tickwork.core.state.effects import Alert, CommandResult, SendCommand
from tickwork.core.state.events import (
    CommandAcknowledged,
    CommandQueued,
    CommandReceived,
    Duplicate,
    RunSubmitted,
    StaleReport,
)
from tickwork.core.state.inputs import Ingest, Submit, SubmitOptions, TaskCommand, UpdateAsset
from tickwork.core.state.state import State

OUTBOX_MAX = 2_000  # commands that wait for one other partition
FOR_NOW = frozenset(("overloaded", "outbox_full"))  # refusals that pass by themselves
NO_TERMS = SubmitOptions()


def check_commands(state: State, commands: Sequence[TaskCommand]) -> None:
    """Raises `Refused` where one of them cannot be done. Those before it count as done."""
    if len(commands) > TASK_COMMANDS_MAX:
        message = f"a task starts and signals at most {TASK_COMMANDS_MAX} times, and this one asked for {len(commands)}"
        raise Refused("too_many_commands", message, path="commands")
    bodies: dict[tuple[str, str], str] = {}
    begun: dict[str, int] = {}
    queued: dict[int, int] = {}
    for index, command in enumerate(commands):
        try:
            _check(state, command, bodies, begun, queued)
        except Refused as refused:
            raise Refused(refused.code, refused.message, path=f"commands[{index}].{refused.path}") from None


def _check(
    state: State,
    command: TaskCommand,
    bodies: dict[tuple[str, str], str],
    begun: dict[str, int],
    queued: dict[int, int],
) -> None:
    """`bodies` by tenant and key, `begun` by tenant, `queued` by partition: what the commands before this one do."""
    request = command.request
    if isinstance(request, Ingest):
        check_event(state, request)
    elif isinstance(request, UpdateAsset):
        check_asset(state, request)
    else:
        terms = request.terms or NO_TERMS
        if terms.key:
            check_same(bodies.setdefault((request.tenant, terms.key), terms.body), terms.body, f"key {terms.key}")
        same, _ = check_start(state, request, terms)
        if same is None and _is_here(state, command):
            begun[request.tenant] = begun.get(request.tenant, 0) + 1
            check_room(state, tenant_of(state, request.tenant), begun[request.tenant])
    for partition in _elsewhere(state, command):
        queued[partition] = queued.get(partition, 0) + 1
        if queued[partition] + len(state.outbox.get(partition, ())) > OUTBOX_MAX:
            message = f"too many commands wait for partition {partition}, which does not answer"
            raise Refused("outbox_full", message, path="partition")


def _is_here(state: State, command: TaskCommand) -> bool:
    return not command.partitions or state.settings.partition in command.partitions


def _elsewhere(state: State, command: TaskCommand) -> list[int]:
    return [partition for partition in command.partitions if partition != state.settings.partition]


def apply_commands(turn: TickContext, position: int, commands: Sequence[TaskCommand]) -> None:
    """Those of a report, in their order, once they are checked. The task is still there, and goes on afterwards."""
    state = turn.state
    for index, command in enumerate(commands):
        if _is_here(state, command):
            if isinstance(command.request, Ingest):
                _give(turn, position, command.request, index)
            elif isinstance(command.request, UpdateAsset):
                update_asset(turn, position, command.request, command=index)
            else:
                _start(turn, position, command.request, command=index)
        for partition in _elsewhere(state, command):
            turn.emit(CommandQueued(position, index, partition, state.sent.get(partition, 0) + 1))
            turn.effects.append(SendCommand(partition, state.outbox[partition][-1]))


def _give(turn: TickContext, position: int, ingest: Ingest, command: int) -> None:
    """Raise an alarm if a mailbox is full: the result of the task counts all the same."""
    if give_event(turn, position, ingest, command=command) == Given.REFUSED:
        words = f"the mailbox {ingest.event} is full for the key {ingest.key!r}, so a message of a task is not kept"
        turn.effects.append(Alert("mailbox_full", ingest.tenant, ingest.event, words))
    hear_event(turn, position, ingest, command=command)


def _start(turn: TickContext, position: int, submit: Submit, *, command: int = -1) -> str:
    """Returns the id of the run. A key, or an id, that has begun one already begins no other."""
    same, start_at = check_start(turn.state, submit, submit.terms or NO_TERMS)
    if same is not None:
        turn.emit(Duplicate(position, same, command))
        return same
    turn.emit(RunSubmitted(turn.state.next_number, position, start_at, command))
    return submit.run_id


# ---- between partitions


def _delivered(turn: TickContext, position: int, delivered: inputs.Delivered) -> None:
    """A command of a task in another partition. One that was decided upon before, and whose acknowledgement was lost,
    is acknowledged again."""
    state, request = turn.state, delivered.request
    before = state.received.get(delivered.sender, 0)
    if delivered.number <= before:
        turn.emit(StaleReport(position))
        turn.effects.append(CommandResult(position))
        return
    if delivered.number != before + 1 or delivered.sender == state.settings.partition:
        message = f"command {delivered.number} of partition {delivered.sender} does not follow {before}"
        raise Refused("out_of_order", message, path="number")
    try:
        if isinstance(request, Ingest):
            check_event(state, request)
            _give(turn, position, request, -1)
            refused = None
        elif isinstance(request, UpdateAsset):
            check_asset(state, request)
            update_asset(turn, position, request)
            refused = None
        else:
            _start(turn, position, request)
            refused = None
    except Refused as error:
        if error.code in FOR_NOW:
            raise  # not decided: it is sent again
        refused = error
    code, message = (refused.code, str(refused)) if refused is not None else ("", "")
    turn.emit(CommandReceived(position, code, message))
    turn.effects.append(CommandResult(position, "", code, message))


def _acknowledged(turn: TickContext, position: int, reply: inputs.Acknowledged) -> None:
    waiting = turn.state.outbox.get(reply.partition, [])
    if not waiting or reply.number < waiting[0].number:
        turn.emit(StaleReport(position))
        return
    command = waiting[0]
    if reply.number != command.number:
        message = f"command {reply.number} for partition {reply.partition} is acknowledged before {command.number}"
        raise Refused("out_of_order", message, path="number")
    turn.emit(CommandAcknowledged(position))
    if reply.code:
        words = f"partition {reply.partition} refused what {command.origin} asked for: {reply.code}: {reply.message}"
        turn.effects.append(Alert("command_refused", command.request.tenant, _name(command.request), words))


def _name(request: Submit | Ingest | UpdateAsset) -> str:
    if isinstance(request, UpdateAsset):
        return request.asset
    return request.event if isinstance(request, Ingest) else request.run_id


OUTBOX_REPORTS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.Delivered: _delivered,
    inputs.Acknowledged: _acknowledged,
}
