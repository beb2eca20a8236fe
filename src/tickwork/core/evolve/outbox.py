"""The part of `evolve` by which commands of tasks travel to other partitions, each exactly once.

The sender numbers its commands for each partition and keeps them until they are acknowledged. They are sent in order
and sent again after a crash, so the receiver needs to remember one number for each sender.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.state import events as ev
from tickwork.core.state.run_ids import task_name
from tickwork.core.state.state import QueuedCommand, State


def _on_queued(state: State, event: ev.CommandQueued) -> None:
    report: Any = state.inputs[event.input]
    request = report.commands[event.command].request
    waiting = state.outbox.setdefault(event.partition, [])
    waiting.append(QueuedCommand(event.number, request, task_name(state.tasks[report.task])))
    state.sent[event.partition] = event.number


def _on_acknowledged(state: State, event: ev.CommandAcknowledged) -> None:
    report: Any = state.inputs[event.input]
    waiting = state.outbox[report.partition]
    assert waiting[0].number == report.number, "a partition acknowledges commands in their order"
    del waiting[0]
    if not waiting:
        del state.outbox[report.partition]


def _on_received(state: State, event: ev.CommandReceived) -> None:
    delivered: Any = state.inputs[event.input]
    state.received[delivered.sender] = delivered.number


OUTBOX_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.CommandQueued: _on_queued,
    ev.CommandAcknowledged: _on_acknowledged,
    ev.CommandReceived: _on_received,
}
