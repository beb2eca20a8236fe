"""One tick in progress: what has been decided so far, and the way to decide more."""

from collections.abc import Callable

from tickwork.core.evolve import HANDLERS
from tickwork.core.state.effects import Effect
from tickwork.core.state.events import Event
from tickwork.core.state.state import State


class TickContext:
    """Rules emit events; each one changes the state at once, so that the next rule sees it.

    The events that every task has are recorded and evolved by their rules directly: the detour
    through `emit` and the table of handlers would be a tenth of a task's cost.
    """

    __slots__ = ("changes_max", "deferred", "effects", "emit", "events", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.deferred: list[int] = []
        self.changes_max = state.settings.max_changes_per_tick
        self.emit = _emitter(state, self.events)

    @property
    def full(self) -> bool:
        return len(self.events) >= self.changes_max


def _emitter(state: State, events: list[Event]) -> Callable[[Event], None]:
    """Record the event, then let it change the state. A closure, because every decision passes through it."""
    record, handlers = events.append, HANDLERS

    def emit(event: Event) -> None:
        record(event)
        handlers[type(event)](state, event)

    return emit
