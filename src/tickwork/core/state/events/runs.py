"""Events of whole runs."""

from tickwork.core.base.values import Value
from tickwork.core.state.events.base import EventStruct


class RunSubmitted(EventStruct, frozen=True, tag=20):
    run: int
    input: int
    start_at: int = 0
    command: int = -1  # as in `Duplicate`


class RunDebounced(EventStruct, frozen=True, tag=21):
    run: int
    input: int
    start_at: int


class RunScheduled(EventStruct, frozen=True, tag=22):
    """An occurrence of a schedule became this run; the schedule's next time with it.

    Way is due, buffered (it had to wait for another run), trigger, test or backfill; only `due` moves the schedule on.
    """

    run: int
    schedule: int
    due_ms: int
    next_ms: int = 0  # 0: none
    wait_ms: int = 0
    start_at: int = 0  # tick, where late starts are spread
    way: str = "due"
    input: int = -1
    backfill: int = 0


class RunSpawned(EventStruct, frozen=True, tag=23):
    run: int
    task: int  # its parent
    child: int
    definition: str
    inputs: Value


class RunRestored(EventStruct, frozen=True, tag=24):
    """A failed run is back in memory by an operator's decision, before that is applied."""

    run: int
    input: int
    record: int = 0  # which of the input's records
    start_at: int = 0


class RunRerun(EventStruct, frozen=True, tag=25):
    run: int
    input: int
    kept: list[tuple[int, int]] = []  # node here, node of the old run whose outcome it keeps; parents first


class RunGated(EventStruct, frozen=True, tag=26):
    """Its concurrency key is taken; it stands in line."""

    run: int
    key: str


class RunMoved(EventStruct, frozen=True, tag=27):
    run: int
    trigger: int
    reason: str = ""
    input: int = -1
    until: int = 0  # tick at which a pause ends


class Visited(EventStruct, frozen=True, tag=28):
    """The runs looked at in this tick, in order."""

    runs: list[int]


class Deferred(EventStruct, frozen=True, tag=29):
    """Runs whose visit did not fit into this tick, or that have more to see in the next; first in line for it."""

    runs: list[int]


class EventStored(EventStruct, frozen=True, tag=30):
    run: int
    input: int
    command: int = -1  # as in `Duplicate`


class UpdateReceived(EventStruct, frozen=True, tag=250):
    """An update waits in the inbox of its run."""

    run: int
    input: int


class SlaReached(EventStruct, frozen=True, tag=31):
    """A point of the plan's service level came; `late` where what it watches had not ended."""

    run: int
    point: int
    late: bool


class RunDue(EventStruct, frozen=True, tag=33):
    """The time came at which a delayed run starts, or a redriven one goes on."""

    run: int


class RunOverdue(EventStruct, frozen=True, tag=120):
    """The time of a whole run is over. Its clean-up goes on until a tick; everything else of it is cancelled."""

    run: int
    until: int
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class RunEnding(EventStruct, frozen=True, tag=270):
    """A run is about to end by a trigger. Its teardowns go on until a tick; everything else of it is cancelled."""

    run: int
    trigger: int
    reason: str
    until: int
    input: int = -1
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class StepCancelled(EventStruct, frozen=True, tag=271):
    """A node that was kept for the teardowns of its child runs has none left."""

    run: int
    step: int


class FollowUpStarted(EventStruct, frozen=True, tag=200):
    """A run that learns how run `of` ended, which is about to end. Cause is failed, timed_out or completed."""

    run: int
    of: int
    definition: str
    cause: str
    reason: str = ""


class RunDetached(EventStruct, frozen=True, tag=202):
    """A child run whose parent ends before it, and that goes on by itself."""

    run: int


class GateTaken(EventStruct, frozen=True, tag=32):
    run: int
    key: str


class ExtractRequested(EventStruct, frozen=True, tag=125):
    """A rule reads into a value that is not inline; `source` and `key` as in `context`."""

    run: int
    source: int
    key: str


class ExtractKept(EventStruct, frozen=True, tag=126):
    """What was sought has come with an `Extracted` input."""

    run: int
    input: int
