"""Events of the nodes of a run, their tasks and attempts."""

from tickwork.core.state.events.base import EventStruct


class TaskReady(EventStruct, frozen=True, tag=40):
    run: int
    step: int


class TaskDispatched(EventStruct, frozen=True, tag=41):
    task: int
    worker: int


class VersionAbsent(EventStruct, frozen=True, tag=410):
    """The attempt that was just dispatched went to any worker: none of the version that its run carries was there."""

    task: int


class ChildDispatched(EventStruct, frozen=True, tag=42):
    """The next child of a map is created, together with its first attempt."""

    parent: int
    task: int
    worker: int


class TaskTaken(EventStruct, frozen=True, tag=46):
    """A worker claimed an attempt from a broker, which now counts as dispatched to it."""

    task: int
    worker: int
    input: int


class AttemptStarted(EventStruct, frozen=True, tag=43):
    task: int


class TaskSucceeded(EventStruct, frozen=True, tag=44):
    task: int
    input: int


class TaskRetrying(EventStruct, frozen=True, tag=45):
    task: int
    due: int  # tick
    cause: str
    input: int = -1
    held: bool = False  # the retry budget is spent, so it is due later than its backoff


class TaskDue(EventStruct, frozen=True, tag=47):
    task: int
    input: int = -1  # a request to retry now


class TaskRequeued(EventStruct, frozen=True, tag=48):
    task: int
    cause: str  # lost, or handed_back


class TaskFailed(EventStruct, frozen=True, tag=49):
    task: int
    code: str
    message: str = ""
    input: int = -1
    dead: bool = False  # attempts exhausted: a dead letter


class QueueChosen(EventStruct, frozen=True, tag=220):
    """Queue and labels for the attempts of a node, where values determine them. It precedes `TaskReady`."""

    run: int
    step: int
    queue: str  # "": that of the definition
    labels: tuple[tuple[str, str], ...] = ()


class TaskSkipped(EventStruct, frozen=True, tag=201):
    """The task reported that there is nothing to do. Its successors are decided as after a node that was not taken."""

    task: int
    input: int


class TaskChecking(EventStruct, frozen=True, tag=50):
    run: int
    step: int
    key: str


class CacheMissed(EventStruct, frozen=True, tag=51):
    task: int


class TaskWaiting(EventStruct, frozen=True, tag=52):
    """A task waits: for a time, an event, an approval, or its children. `until` is a tick; 0: no limit."""

    run: int
    step: int
    until: int = 0
    key: str = ""
    total: int = 0  # children of a map
    max_parallel: int = 0  # of them at once, where a value determines it
    keys: tuple[str, ...] | None = None  # of the object whose entries a map iterates over, in order


class WaitElapsed(EventStruct, frozen=True, tag=53):
    task: int


class TaskAnswered(EventStruct, frozen=True, tag=54):
    """The event or approval that a task waited for has come."""

    task: int
    input: int
    kept: int = -1  # an event that was kept earlier, by its index in the run
    command: int = -1  # as in `Duplicate`
    taken: int = 0  # the message of a mailbox, by its number


class IterationStarted(EventStruct, frozen=True, tag=55):
    """The next iteration of a repeat starts."""

    parent: int
    task: int


class IterationDelayed(EventStruct, frozen=True, tag=62):
    """A repeat pauses before its next iteration."""

    task: int
    due: int


class TaskStopped(EventStruct, frozen=True, tag=272):
    """A person cancelled a map, repeat or child workflow, and so its children. Another event ends it."""

    task: int


class RepeatTimedOut(EventStruct, frozen=True, tag=222):
    """A repeat has timed out and its iteration is cancelled. Another event ends the repeat."""

    task: int


class FanOutEnded(EventStruct, frozen=True, tag=56):
    """The children of a map or repeat have ended, within its tolerance of failures."""

    task: int


class StepEnded(EventStruct, frozen=True, tag=57):
    """A node ended without a task of its own: a branch, or a node that was not taken, skipped or blocked."""

    run: int
    step: int
    phase: int
    reason: str = ""


class FirstEnded(EventStruct, frozen=True, tag=221):
    """A `first` node has a winner. Unfinished nodes that lead only to the others are cancelled."""

    run: int
    step: int
    winner: int


class StepReset(EventStruct, frozen=True, tag=58):
    run: int
    step: int


class StepAccepted(EventStruct, frozen=True, tag=59):
    """An operator set the result of a failed node, or skipped it."""

    run: int
    step: int
    phase: int
    input: int


class AttemptCheckpointed(EventStruct, frozen=True, tag=60):
    task: int
    input: int


class PolicyDecided(EventStruct, frozen=True, tag=61):
    run: int
    step: int
    policy: str
    allowed: bool
    reason: str = ""
    action: str = ""
