"""Events of workers, ready queues, and load."""

from tickwork.core.state.events.base import EventStruct


class WorkerOffered(EventStruct, frozen=True, tag=70):
    worker: int
    input: int


class WorkerGone(EventStruct, frozen=True, tag=71):
    worker: int
    clean: bool


class QueueHeld(EventStruct, frozen=True, tag=72):
    lane: int
    reason: str
    by: str
    until: int = 0


class RateDue(EventStruct, frozen=True, tag=74):
    """A rate limit that holds ready queues has a token again."""

    gauge: int


class LoadShed(EventStruct, frozen=True, tag=73):
    on: bool
    lag_ms: int
