"""Deciding a journal again, and folding what it recorded.

`replay` decides every tick from its inputs under the same rules and must reach the same events; it
names the first that differs. Rows of other rules are folded: their recorded events are applied
without deciding. Both verify the hash chain on the way.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tickwork.core.base.errors import Corrupt, ReplayDiffers
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.rules import rules_of
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import Input
from tickwork.journal.record import GENESIS, Row, SealedRow, seal, unseal

if TYPE_CHECKING:
    from tickwork.core.machine import Machine, Outcome


class Recorder:
    """The writing end: seq and hash of the next row follow from the last one."""

    def __init__(self, *, seq: int = 0, head: bytes = GENESIS, rules: str = rules_of(UTC_ONLY)) -> None:
        self.seq = seq
        self.head = head
        self._rules = rules

    def row(self, tick: int, inputs: list[Input], events: list[Event]) -> SealedRow:
        sealed = seal(Row(self.seq + 1, tick, self._rules, inputs, events), self.head)
        self.seq, self.head = sealed.seq, sealed.hash
        return sealed


@dataclass(slots=True)
class Tally:
    """What a replay did with rows."""

    decided: int = 0  # again, with the same events
    folded: int = 0  # of other rules: their events were applied, and nothing was decided


def replay(
    rows: Iterable[SealedRow], machine: "Machine", *, head: bytes = GENESIS, seq: int = 0, tally: Tally | None = None
) -> bytes:
    """Bring `machine` from just after `seq` to the end of these rows. Returns the last hash."""
    tally = tally or Tally()
    for sealed in rows:
        row = _next(sealed, head, seq, machine.state.tick)
        if row.rules == machine.rules:
            outcome = _again(row, machine)
            if outcome.taken != len(row.inputs) or outcome.events != row.events:
                raise ReplayDiffers(_difference(row, outcome.taken, outcome.events), seq=row.seq)
            tally.decided += 1
        else:
            _fold(row, machine)
            tally.folded += 1
        head, seq = sealed.hash, sealed.seq
    return head


def _again(row: Row, machine: "Machine") -> "Outcome":
    try:
        return machine.apply(row.tick, row.inputs)
    except Exception as error:  # inputs that no machine took, or a defect: either way it is not the recorded decision
        raise ReplayDiffers(f"it cannot be decided again: {_words(error)}", seq=row.seq) from error


def _fold(row: Row, machine: "Machine") -> None:
    try:
        machine.fold(row.tick, row.inputs, row.events)
    except Exception as error:  # events that no machine decided in this state
        raise ReplayDiffers(f"its events do not fit the state before it: {_words(error)}", seq=row.seq) from error


def _words(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 300)


def fold(rows: Iterable[SealedRow], machine: "Machine", *, head: bytes = GENESIS, seq: int = 0) -> bytes:
    """The same by the recorded events alone."""
    for sealed in rows:
        row = _next(sealed, head, seq, machine.state.tick)
        machine.fold(row.tick, row.inputs, row.events)
        head, seq = sealed.hash, sealed.seq
    return head


def _next(sealed: SealedRow, head: bytes, seq: int, tick: int) -> Row:
    if sealed.seq != seq + 1:
        raise Corrupt(f"seq {sealed.seq} follows {seq}: rows are missing or out of order")
    if sealed.tick <= tick:
        raise Corrupt(f"seq {sealed.seq}: tick {sealed.tick} does not come after {tick}")
    return unseal(sealed, head)


def _difference(row: Row, taken: int, events: list[Event]) -> str:
    if taken != len(row.inputs):
        return f"{taken} of {len(row.inputs)} inputs were taken"
    for index, (was, now) in enumerate(zip(row.events, events, strict=False)):
        if was != now:
            return f"event {index} was {was}, is {now}"
    longer = row.events if len(row.events) > len(events) else events
    missing = "no longer decided" if longer is row.events else "newly decided"
    return f"event {min(len(events), len(row.events))} is {missing}: {longer[min(len(events), len(row.events))]}"
