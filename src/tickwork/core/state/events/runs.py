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
    """An occurrence of a schedule became this run, and the schedule has its next time.

    `way` is due, buffered (it waited for another run), trigger, test or backfill. Only `due` advances the schedule.
    """

    run: int
    schedule: int
    due_ms: int
    next_ms: int = 0  # 0: none
    wait_ms: int = 0
    start_at: int = 0  # tick, if late starts are spread
    way: str = "due"
    input: int = -1
    backfill: int = 0
    version: str = ""  # `application@version` that the run carries: its schedule's own, or the latest


class RunSpawned(EventStruct, frozen=True, tag=23):
    run: int
    task: int  # its parent
    child: int
    definition: str
    inputs: Value


class RunRestored(EventStruct, frozen=True, tag=24):
    """A failed run is back in memory because of an operator's decision, which is applied next."""

    run: int
    input: int
    record: int = 0  # index among the records of the input
    start_at: int = 0


class RunRerun(EventStruct, frozen=True, tag=25):
    run: int
    input: int
    kept: list[tuple[int, int]] = []  # node, node of the old run whose outcome it keeps; parents first


class RunGated(EventStruct, frozen=True, tag=26):
    """The run waits because another run holds its concurrency key."""

    run: int
    key: str


class RunRated(EventStruct, frozen=True, tag=390):
    """The run takes its turn in the rate of its workflow: now, or at `start_at`. It may take that of another run."""

    run: int
    key: str
    start_at: int = 0  # tick; 0: now
    replaces: int = 0  # the run that waited until then


class RateKeysSwept(EventStruct, frozen=True, tag=391):
    """Keys of rates that nothing is known of any more are forgotten."""


class RunMoved(EventStruct, frozen=True, tag=27):
    run: int
    trigger: int
    reason: str = ""
    input: int = -1
    until: int = 0  # tick at which a pause ends


class Visited(EventStruct, frozen=True, tag=28):
    """The runs that this tick visits, in order."""

    runs: list[int]


class Deferred(EventStruct, frozen=True, tag=29):
    """Runs whose visit did not fit into this tick, or that need another one. The next tick visits them first."""

    runs: list[int]


class EventStored(EventStruct, frozen=True, tag=30):
    run: int
    input: int
    command: int = -1  # as in `Duplicate`


class UpdateReceived(EventStruct, frozen=True, tag=250):
    """An update is in the inbox of its run."""

    run: int
    input: int


class SlaReached(EventStruct, frozen=True, tag=31):
    """A point in time of the service level has come. `late`: what it watches had not ended."""

    run: int
    point: int
    late: bool


class RunDue(EventStruct, frozen=True, tag=33):
    """A delayed run starts, or a redriven run continues, because its time has come."""

    run: int


class RunOverdue(EventStruct, frozen=True, tag=120):
    """The run has timed out. Its teardowns go on until tick `until`; everything else of it is cancelled."""

    run: int
    until: int
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class RunEnding(EventStruct, frozen=True, tag=270):
    """The run is about to end by `trigger`. Its teardowns go on until tick `until`; everything else is cancelled."""

    run: int
    trigger: int
    reason: str
    until: int
    input: int = -1
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class StepCancelled(EventStruct, frozen=True, tag=271):
    """A node that was kept for the teardowns of its child runs is cancelled: they have ended."""

    run: int
    step: int


class FollowUpStarted(EventStruct, frozen=True, tag=200):
    """A follow-up of run `of`, which is about to end. `cause` is failed, timed_out or completed."""

    run: int
    of: int
    definition: str
    cause: str
    reason: str = ""


class RunDetached(EventStruct, frozen=True, tag=202):
    """A child run goes on after the end of its parent."""

    run: int


class GateTaken(EventStruct, frozen=True, tag=32):
    run: int
    key: str


class ExtractRequested(EventStruct, frozen=True, tag=125):
    """A condition needs a part of a value that is not inline. `source` and `key` are those of `evaluation_context`."""

    run: int
    source: int
    key: str


class ExtractKept(EventStruct, frozen=True, tag=126):
    """The requested part has come with an `Extracted` input."""

    run: int
    input: int
