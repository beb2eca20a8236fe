"""Alarms: what an operator should know of, kept for views and counted for metrics."""

from collections.abc import Callable

import msgspec

from tickwork.ports.system import Clock

KEPT = 100


class Alarm(msgspec.Struct, frozen=True):
    at_ms: int
    kind: str
    text: str
    count: int = 1  # how often the same alarm was raised while it is kept

    def line(self) -> str:
        return f"{self.kind}: {self.text}" + (f" ({self.count:,} times)" if self.count > 1 else "")


class Alarms:
    """The latest alarms of an engine or a node, counts by kind, and a callback for each alarm. Equal alarms, as of the
    items of a map that fail alike, are kept as one with a count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[tuple[str, str], Alarm] = {}  # in the order of their latest time
        self.counts: dict[str, int] = {}
        self.on_alarm: Callable[[Alarm], None] = lambda _: None

    @property
    def recent(self) -> list[Alarm]:
        return list(self._kept.values())

    def add(self, kind: str, text: str) -> None:
        before = self._kept.pop((kind, text), None)
        alarm = Alarm(self._clock.wall_ms(), kind, text, before.count + 1 if before is not None else 1)
        self._kept[kind, text] = alarm
        if len(self._kept) > KEPT:
            del self._kept[next(iter(self._kept))]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.on_alarm(alarm)
