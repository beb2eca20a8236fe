"""Helpers of `evolve`: updates that a function received get their reply, and values are published."""

from collections.abc import Iterable

from tickwork.core.state.history import HistoryEntry
from tickwork.core.state.inputs import StepsRecorded, Suspended
from tickwork.core.state.messages import OpenUpdate, ReceivedEvent, RunMessages, UpdateOutcome, UpdateReply
from tickwork.core.state.state import Run, State

OUTCOMES_KEPT_MAX = 500  # of one run: they stay in memory as long as it does, and are written with its row
CONTINUED = "the function continued as new before it replied"


def own_messages(messages: RunMessages | None) -> RunMessages | None:
    """A copy for a run that comes back: what its record holds is an input, and the journal has it as it came."""
    if messages is None:
        return None
    return RunMessages([*messages.open], [*messages.outcomes], {**messages.published})


def messages_of(run: Run) -> RunMessages:
    if run.messages is None:
        run.messages = RunMessages()
    return run.messages


def note_received(run: Run, received: ReceivedEvent) -> str:
    """The function got a message from the inbox. Returns what its entry in the history says of it."""
    if received.update:
        messages_of(run).open.append(OpenUpdate(received.update, received.name, received.body))
    return f"{received.name} {received.update}"


def note_said(state: State, run: Run, report: StepsRecorded | Suspended) -> None:
    """What a function says to the outside. Only the first reply to an update counts."""
    _reply(state, run, report.replies)
    for value in report.published:
        messages_of(run).published[value.name] = value


def _reply(state: State, run: Run, replies: Iterable[UpdateReply]) -> None:
    for reply in replies:
        request = run.messages.open_update(reply.update) if run.messages is not None else None
        if request is None:
            continue
        messages = messages_of(run)
        messages.open.remove(request)
        messages.outcomes.append(
            UpdateOutcome(
                request.update, request.name, request.body, reply.value, reply.refused, reply.reason, state.tick
            )
        )
        del messages.outcomes[:-OUTCOMES_KEPT_MAX]


def refuse_open(state: State, run: Run, reason: str) -> None:
    """Refuse the open updates of a run, which will get no other reply."""
    if run.messages is not None:
        _reply(state, run, [UpdateReply(request.update, None, True, reason) for request in run.messages.open])


def received_again(run: Run, entry: HistoryEntry, tick: int) -> ReceivedEvent:
    """What came for an await that the function had given up, as the run keeps it for the next one."""
    if entry.kind == "event":
        return ReceivedEvent(entry.name, entry.key, entry.value, tick)
    name, _, update = entry.message.partition(" ")
    request = run.messages.open_update(update) if update and run.messages is not None else None
    if request is not None:
        messages_of(run).open.remove(request)
    return ReceivedEvent(name, "", entry.value, tick, False, update, request.body if request is not None else "")
