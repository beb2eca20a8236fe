"""One tick in progress: what has been decided so far, and the way to decide more."""

from typing import Any

from tickwork.core.effects import Effect
from tickwork.core.events import Event
from tickwork.core.evolve import HANDLERS
from tickwork.core.model import State


class Turn:
    """Rules emit events; each one changes the state at once, so that the next rule sees it."""

    __slots__ = ("changes_max", "deferred", "effects", "events", "state")

    def __init__(self, state: State) -> None:
        self.state = state
        self.events: list[Event] = []
        self.effects: list[Effect] = []
        self.deferred: list[int] = []
        self.changes_max = state.settings.max_changes_per_tick

    def emit(self, event: Any) -> None:
        self.events.append(event)
        HANDLERS[type(event)](self.state, event)

    @property
    def full(self) -> bool:
        return len(self.events) >= self.changes_max
