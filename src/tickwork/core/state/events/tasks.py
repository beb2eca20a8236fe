"""Events of the nodes of a run, their tasks and attempts."""

from tickwork.core.state.events.base import EventStruct


class TaskReady(EventStruct, frozen=True, tag=40):
    run: int
    step: int


class TaskDispatched(EventStruct, frozen=True, tag=41):
    task: int
    worker: int


class ChildDispatched(EventStruct, frozen=True, tag=42):
    """The next child of a map exists from here on, and its first attempt with it."""

    parent: int
    task: int
    worker: int


class TaskTaken(EventStruct, frozen=True, tag=46):
    """An attempt that was on a lane is now with a worker, as if it had been dispatched to it."""

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
    held: bool = False  # its dependency's retry budget is spent, so it is due later than its backoff


class TaskDue(EventStruct, frozen=True, tag=47):
    task: int
    input: int = -1  # somebody did not want to wait for its time


class TaskRequeued(EventStruct, frozen=True, tag=48):
    task: int
    cause: str  # lost, or handed_back


class TaskFailed(EventStruct, frozen=True, tag=49):
    task: int
    code: str
    message: str = ""
    input: int = -1
    dead: bool = False  # its attempts are used up: a dead letter


class QueueChosen(EventStruct, frozen=True, tag=220):
    """Where the attempts of a node go, as far as values say it. It comes before the node is ready."""

    run: int
    step: int
    queue: str  # "": as the definition says
    labels: tuple[tuple[str, str], ...] = ()


class TaskSkipped(EventStruct, frozen=True, tag=201):
    """It said itself that there is nothing to do. What comes after it is decided as after a node that was not taken."""

    task: int
    input: int


class TaskChecking(EventStruct, frozen=True, tag=50):
    run: int
    step: int
    key: str


class CacheMissed(EventStruct, frozen=True, tag=51):
    task: int


class TaskWaiting(EventStruct, frozen=True, tag=52):
    """A wait, an event, an approval, or the parent of children. `until` is a tick, 0 for none."""

    run: int
    step: int
    until: int = 0
    key: str = ""
    total: int = 0  # children of a map
    max_parallel: int = 0  # of them at once, where a value says so
    keys: tuple[str, ...] | None = None  # of the object over whose entries a map goes, in order


class WaitElapsed(EventStruct, frozen=True, tag=53):
    task: int


class TaskAnswered(EventStruct, frozen=True, tag=54):
    """What it waited for came: an event or an approval."""

    task: int
    input: int
    kept: int = -1  # an event that was kept earlier, by its place in the run
    command: int = -1  # as in `Duplicate`
    taken: int = 0  # the message of a mailbox, by its number


class IterationStarted(EventStruct, frozen=True, tag=55):
    """The next turn of a repeat."""

    parent: int
    task: int


class IterationDelayed(EventStruct, frozen=True, tag=62):
    """A repeat rests before its next turn."""

    task: int
    due: int


class TaskStopped(EventStruct, frozen=True, tag=272):
    """A map, repeat or child workflow is cancelled by a person: so are its children. How it ends follows."""

    task: int


class RepeatTimedOut(EventStruct, frozen=True, tag=222):
    """The time of a repeat is over: its turn is cancelled. How the repeat ends follows."""

    task: int


class FanOutEnded(EventStruct, frozen=True, tag=56):
    """All children of a map or repeat have ended well enough."""

    task: int


class StepEnded(EventStruct, frozen=True, tag=57):
    """A node that ended without a task of its own: not taken, skipped, blocked, taken branch."""

    run: int
    step: int
    phase: int
    reason: str = ""


class FirstEnded(EventStruct, frozen=True, tag=221):
    """A `first` ended with this winner. What leads only to it and has not ended is cancelled."""

    run: int
    step: int
    winner: int


class StepReset(EventStruct, frozen=True, tag=58):
    run: int
    step: int


class StepAccepted(EventStruct, frozen=True, tag=59):
    """An operator gave a failed node its result, or let the run go on without it."""

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
