"""What a durable function has done so far: the steps that ended, and what it awaits.

A worker runs the function from its first line and feeds it the recorded outcomes in their order, so that the function
makes the same calls again. Outcomes that arrive while an attempt runs are unknown to that attempt; they follow the
steps that it still reports (`arrived`). A plain task records its steps the same way and awaits nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.definition.model import InputField
from tickwork.core.state.messages import ReceivedEvent
from tickwork.core.state.tables import SmallTable, with_entry

CANCELLATION = -1  # position of the entry that cancels the function
FUNCTION_CANCELLED = "Cancelled"  # error of a function that ended because it was cancelled
TIMED_OUT = "timeout"  # error of an event or approval that did not come in time
WITHDRAWN = "withdrawn"  # kind of an await that the function gave up
ENTRY_BYTES = 64  # of an entry, in addition to its texts and its value


NO_VERSIONS: Mapping[str, int] = MappingProxyType({})
NO_POSITIONS: Mapping[int, None] = MappingProxyType({})


class StepEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step that ended on a worker. `retry`, where an error may be retried: retries, delay_ms, delay_ms_max, and the
    factor in percent."""

    position: int
    name: str
    digest: str
    value: Value = None
    error: str = ""
    message: str = ""
    at_ms: int = 0  # the worker's clock at its end: the function's time from here on
    took_ms: int = 0
    tries: int = 1
    retry: tuple[int, int, int, int] | None = None
    cost: int = 0  # as the step reports it


class Await(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a function waits for: `sleep`, `event`, `call`, `approval` or `receive`."""

    position: int
    kind: str
    name: str
    digest: str
    delay_ms: int = -1  # length of a sleep, or the time-out; -1: none
    until_ms: int = 0  # instant at which a sleep ends
    key: str = ""  # of an event
    value: Value = None  # inputs of a call
    message: str = ""  # to the approver
    approvers: tuple[str, ...] = ()
    four_eyes: bool = False
    line: str = ""  # of the user's code
    names: tuple[str, ...] = ()  # of the messages that it receives
    fields: tuple[tuple[str, InputField], ...] = ()  # of a form, in their order


class HistoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One recorded outcome. Kinds: step, retry (the step runs again), sleep, event, call, approval, receive, withdrawn,
    cancel. The message of a `receive` is the name of what was received and, after a space, the key of the update."""

    position: int
    kind: str
    name: str
    digest: str
    value: Value = None
    error: str = ""
    message: str = ""
    at_ms: int = 0
    tries: int = 1
    took_ms: int = 0
    attempt: int = 0  # that reported it
    key: str = ""  # of an event
    cost: int = 0  # of a step


def entry_bytes(entry: HistoryEntry) -> int:
    value = len(entry.value) if isinstance(entry.value, bytes) else 0
    return ENTRY_BYTES + len(entry.name) + len(entry.message) + value


class PendingAwait(msgspec.Struct, array_like=True, gc=False):
    """An await that has no outcome yet. Kind `retry`: a step that is run again when its delay is over."""

    request: Await
    due: int = 0  # tick; 0: none
    since: int = 0  # tick
    group: int = -1  # awaited together with others: index in `History.groups`
    child: int = 0  # number of the run that a call started
    tries: int = 0  # of a step to be retried


NO_AWAITS: SmallTable[PendingAwait] = cast("SmallTable[PendingAwait]", MappingProxyType({}))


class History(msgspec.Struct, gc=False, eq=False):
    """The history of one task."""

    started_ms: int
    base: int = 0  # first position since the function continued as new
    entries: list[HistoryEntry] | tuple[()] = ()  # shared by all functions while it is empty, as the next four
    awaits: SmallTable[PendingAwait] = NO_AWAITS
    arrived: list[HistoryEntry] | tuple[()] = ()
    groups: list[int] | tuple[()] = ()  # how many members of each have no outcome yet
    versions: Mapping[str, int] = NO_VERSIONS
    woken: bool = False  # an outcome is there that lets the function go on
    past: int = 0  # attempts that ended in a suspension: they do not count as tries
    failed: int = -1  # position of the recorded failure that ended the function
    size: int = 0  # bytes of its entries, about
    cancelled: str = ""  # why; from then on the function only undoes what it did
    cost: int = 0  # of its steps, also of those before it continued as new
    reported: Mapping[int, None] = NO_POSITIONS  # of the steps since the last suspension; follows from the entries

    def next_due(self) -> int:
        """The earliest tick at which an await is over; 0: none has an end."""
        return min((pending.due for pending in self.awaits.values() if pending.due), default=0)

    def next_position(self) -> int:
        known: list[int] = [entry.position for entry in (*self.entries, *self.arrived)]
        known += list(self.awaits)
        return max([self.base - 1, *known]) + 1

    def event_await(self, name: str, key: str) -> int:
        """Position of the oldest await for this event; -1: there is none."""
        return min(
            (position for position, pending in self.awaits.items() if is_event(pending.request, name, key)), default=-1
        )

    def taker_of(self, kept: ReceivedEvent) -> int:
        """Position of the oldest await that takes what the run has kept; -1: there is none."""
        return min((position for position, pending in self.awaits.items() if takes(pending.request, kept)), default=-1)


def takes(request: Await, kept: ReceivedEvent) -> bool:
    """An update needs an answer, so only `receive` takes it."""
    if request.kind == "receive":
        return kept.name in request.names
    return not kept.update and is_event(request, kept.name, kept.key)


def reported_steps(entries: list[HistoryEntry], past: int) -> Mapping[int, None]:
    """Positions of the steps that attempts after `past` have reported."""
    steps = (entry for entry in entries if entry.kind == "step" and entry.attempt > past)
    return {entry.position: None for entry in steps} or NO_POSITIONS


def unseen_events(history: History, positions: tuple[int, ...]) -> list[HistoryEntry]:
    """Events and messages that came for these positions, which the function gave up, and that it has not given back
    before."""
    chosen = frozenset(position for position in positions if position not in history.awaits)
    if not chosen:
        return []
    outcomes: dict[int, list[HistoryEntry]] = {}
    for entry in (*history.entries, *history.arrived):
        if entry.position in chosen:
            outcomes.setdefault(entry.position, []).append(entry)
    return [
        entries[0]
        for _, entries in sorted(outcomes.items())
        if len(entries) == 1 and entries[0].kind in ("event", "receive") and not entries[0].error
    ]


def is_event(request: Await, name: str, key: str) -> bool:
    return request.kind == "event" and request.name == name and request.key == key


class HistoryRecord(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A history as rows and records hold it."""

    started_ms: int
    base: int
    entries: list[HistoryEntry]
    awaits: list[PendingAwait]  # by position
    arrived: list[HistoryEntry]
    groups: list[int]
    versions: dict[str, int]
    woken: bool
    past: int
    failed: int
    size: int
    cancelled: str = ""
    cost: int = 0


def record_of_history(history: History | None) -> HistoryRecord | None:
    if history is None:
        return None
    awaits = [history.awaits[position] for position in sorted(history.awaits)]
    return HistoryRecord(
        history.started_ms, history.base, history.entries or [], awaits, list(history.arrived), list(history.groups),
        dict(history.versions), history.woken, history.past, history.failed, history.size, history.cancelled,
        history.cost,
    )  # fmt: skip


def history_of_record(record: HistoryRecord | None) -> History | None:
    """The lists of the record belong to the history from here on."""
    if record is None:
        return None
    awaits = NO_AWAITS
    for pending in record.awaits:
        awaits = with_entry(awaits, pending.request.position, pending)
    return History(
        record.started_ms, record.base, list(record.entries) or (), awaits, list(record.arrived) or (),
        list(record.groups) or (), dict(record.versions) or NO_VERSIONS, record.woken, record.past, record.failed,
        record.size, record.cancelled, record.cost, reported_steps(record.entries, record.past),
    )  # fmt: skip
