"""Alarms: what an operator should know of, kept for views and counted for metrics."""

from collections import deque
from collections.abc import Callable

import msgspec

from tickwork.ports.system import Clock

KEPT = 100


class Alarm(msgspec.Struct, frozen=True):
    at_ms: int
    kind: str
    text: str


class Alarms:
    """The latest alarms of an engine or a node, counts by kind, and a callback for each alarm."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.recent: deque[Alarm] = deque(maxlen=KEPT)
        self.counts: dict[str, int] = {}
        self.on_alarm: Callable[[Alarm], None] = lambda _: None

    def add(self, kind: str, text: str) -> None:
        alarm = Alarm(self._clock.wall_ms(), kind, text)
        self.recent.append(alarm)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.on_alarm(alarm)
