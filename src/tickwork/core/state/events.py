"""What was decided, in the words of the journal.

State changes through these and nothing else. An event never repeats what its input said: it
points to the input by its place in the tick (`input`), and -1 means that none caused it.
Runs and tasks go by number; a node is named by its run and index.

Encoded as arrays with an integer tag: add fields at the end only, never reuse a tag.
"""

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.state.governor import Decision, GovernorState


class _Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---- set up


class DefinitionPut(_Event, frozen=True, tag=1):
    input: int
    hash: str


class TenantPut(_Event, frozen=True, tag=2):
    input: int


class QueuePut(_Event, frozen=True, tag=3):
    input: int


class LabelLimitPut(_Event, frozen=True, tag=4):
    input: int


class PolicyPut(_Event, frozen=True, tag=5):
    input: int


class SchedulePut(_Event, frozen=True, tag=6):
    """`item` is its place in a set; -1: it came alone."""

    input: int
    schedule: int
    next_ms: int  # 0: none, or the Governor will say
    item: int = -1
    wait_ms: int = 0  # jitter of the next start


class ScheduleRemoved(_Event, frozen=True, tag=7):
    input: int
    schedule: int


class ScopePaused(_Event, frozen=True, tag=8):
    input: int


class ScopeResumed(_Event, frozen=True, tag=9):
    input: int


class InputRefused(_Event, frozen=True, tag=10):
    input: int
    code: str
    message: str


class Duplicate(_Event, frozen=True, tag=11):
    """A submission that was accepted before; the answer is that run."""

    input: int
    run_id: str
    command: int = -1  # which command of a result it was


class StaleReport(_Event, frozen=True, tag=12):
    """A report about an attempt that is no longer its sender's: recorded, counted, ignored."""

    input: int


class ClockGapRecorded(_Event, frozen=True, tag=13):
    input: int


class TimersHeld(_Event, frozen=True, tag=160):
    """No timer fires until `held` is false again."""

    input: int
    held: bool


# ---- schedules


class SchedulePaused(_Event, frozen=True, tag=80):
    """By a person (`input`), or because its runs kept failing."""

    schedule: int
    input: int
    reason: str
    until_ms: int = 0


class ScheduleResumed(_Event, frozen=True, tag=81):
    schedule: int
    input: int


class ScheduleDecided(_Event, frozen=True, tag=82):
    """The Governor's word, and the course as it stands with it."""

    schedule: int
    course: GovernorState
    decision: Decision


class HintsChanged(_Event, frozen=True, tag=83):
    input: int
    schedule: int


class ScheduleStateChanged(_Event, frozen=True, tag=84):
    input: int
    schedule: int


class CatchUpDecided(_Event, frozen=True, tag=85):
    """Several occurrences are late: up to `to_ms`, those before `run_from_ms` share a fate, the others run."""

    schedule: int
    to_ms: int
    run_from_ms: int
    fate: int
    cause: str
    spread_ms: int = 0
    runs: int = 0


class OccurrencesSettled(_Event, frozen=True, tag=86):
    """These will have no run of their own."""

    schedule: int
    from_ms: int
    to_ms: int
    count: int
    fate: int
    cause: str
    next_ms: int
    wait_ms: int = 0


class OccurrenceBuffered(_Event, frozen=True, tag=87):
    schedule: int
    due_ms: int
    next_ms: int
    wait_ms: int = 0


class OccurrencesCancelled(_Event, frozen=True, tag=88):
    """These waited for their turn, which will not come."""

    schedule: int
    dues_ms: tuple[int, ...]
    cause: str


class ScheduleMoved(_Event, frozen=True, tag=89):
    """Its next time was computed again, by other zone data."""

    schedule: int
    next_ms: int
    wait_ms: int = 0


class HolidaysPut(_Event, frozen=True, tag=90):
    input: int


class MailboxPut(_Event, frozen=True, tag=251):
    input: int


class MailboxRemoved(_Event, frozen=True, tag=255):
    """With the fates that it knew."""

    input: int


class MessageKept(_Event, frozen=True, tag=252):
    """An event that came for a mailbox has this number. If somebody waits for it, it is taken next."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class MessageExpired(_Event, frozen=True, tag=253):
    message: int


class MessageRefused(_Event, frozen=True, tag=254):
    """The queue of its key was full."""

    message: int
    input: int
    command: int = -1  # as in `Duplicate`


class ZonesChanged(_Event, frozen=True, tag=91):
    input: int


class CatchUpChosen(_Event, frozen=True, tag=104):
    input: int


class VersionPut(_Event, frozen=True, tag=110):
    """A version of an application is known, or registered again; where it is the latest, its definitions are."""

    input: int
    version: int
    timestamp_ms: int


class BackfillStarted(_Event, frozen=True, tag=92):
    input: int
    backfill: int
    to_ms: int  # what is still expected is left to the schedule


class BackfillStateChanged(_Event, frozen=True, tag=93):
    input: int


class BackfillLookupStarted(_Event, frozen=True, tag=94):
    """Which of these have run before? The cursor has moved past them."""

    backfill: int
    dues_ms: tuple[int, ...]
    cursor_ms: int


class BackfillLookupFinished(_Event, frozen=True, tag=95):
    input: int
    backfill: int


class BackfillEnded(_Event, frozen=True, tag=96):
    backfill: int


# ---- runs


class RunSubmitted(_Event, frozen=True, tag=20):
    run: int
    input: int
    start_at: int = 0
    command: int = -1  # as in `Duplicate`


class RunDebounced(_Event, frozen=True, tag=21):
    run: int
    input: int
    start_at: int


class RunScheduled(_Event, frozen=True, tag=22):
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


class RunSpawned(_Event, frozen=True, tag=23):
    run: int
    task: int  # its parent
    child: int
    definition: str
    inputs: Value


class RunRestored(_Event, frozen=True, tag=24):
    """A failed run is back in memory by an operator's decision, before that is applied."""

    run: int
    input: int
    record: int = 0  # which of the input's records
    start_at: int = 0


class RunRerun(_Event, frozen=True, tag=25):
    run: int
    input: int
    kept: list[tuple[int, int]] = []  # node here, node of the old run whose outcome it keeps; parents first


class RunGated(_Event, frozen=True, tag=26):
    """Its concurrency key is taken; it stands in line."""

    run: int
    key: str


class RunMoved(_Event, frozen=True, tag=27):
    run: int
    trigger: int
    reason: str = ""
    input: int = -1
    until: int = 0  # tick at which a pause ends


class Visited(_Event, frozen=True, tag=28):
    """The runs looked at in this tick, in order."""

    runs: list[int]


class Deferred(_Event, frozen=True, tag=29):
    """Runs whose visit did not fit into this tick, or that have more to see in the next; first in line for it."""

    runs: list[int]


class EventStored(_Event, frozen=True, tag=30):
    run: int
    input: int
    command: int = -1  # as in `Duplicate`


class UpdateReceived(_Event, frozen=True, tag=250):
    """An update waits in the inbox of its run."""

    run: int
    input: int


class SlaReached(_Event, frozen=True, tag=31):
    """A point of the plan's service level came; `late` where what it watches had not ended."""

    run: int
    point: int
    late: bool


class RunDue(_Event, frozen=True, tag=33):
    """The time came at which a delayed run starts, or a redriven one goes on."""

    run: int


class RunOverdue(_Event, frozen=True, tag=120):
    """The time of a whole run is over. Its clean-up goes on until a tick; everything else of it is cancelled."""

    run: int
    until: int
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class RunEnding(_Event, frozen=True, tag=270):
    """A run is about to end by a trigger. Its teardowns go on until a tick; everything else of it is cancelled."""

    run: int
    trigger: int
    reason: str
    until: int
    input: int = -1
    kept: tuple[int, ...] = ()  # nodes whose child runs still tear down


class StepCancelled(_Event, frozen=True, tag=271):
    """A node that was kept for the teardowns of its child runs has none left."""

    run: int
    step: int


class FollowUpStarted(_Event, frozen=True, tag=200):
    """A run that learns how run `of` ended, which is about to end. Cause is failed, timed_out or completed."""

    run: int
    of: int
    definition: str
    cause: str
    reason: str = ""


class RunDetached(_Event, frozen=True, tag=202):
    """A child run whose parent ends before it, and that goes on by itself."""

    run: int


class GateTaken(_Event, frozen=True, tag=32):
    run: int
    key: str


# ---- tasks


class TaskReady(_Event, frozen=True, tag=40):
    run: int
    step: int


class TaskDispatched(_Event, frozen=True, tag=41):
    task: int
    worker: int


class ChildDispatched(_Event, frozen=True, tag=42):
    """The next child of a map exists from here on, and its first attempt with it."""

    parent: int
    task: int
    worker: int


class TaskTaken(_Event, frozen=True, tag=46):
    """An attempt that was on a lane is now with a worker, as if it had been dispatched to it."""

    task: int
    worker: int
    input: int


class AttemptStarted(_Event, frozen=True, tag=43):
    task: int


class TaskSucceeded(_Event, frozen=True, tag=44):
    task: int
    input: int


class TaskRetrying(_Event, frozen=True, tag=45):
    task: int
    due: int  # tick
    cause: str
    input: int = -1
    held: bool = False  # its dependency's retry budget is spent, so it is due later than its backoff


class TaskDue(_Event, frozen=True, tag=47):
    task: int
    input: int = -1  # somebody did not want to wait for its time


class TaskRequeued(_Event, frozen=True, tag=48):
    task: int
    cause: str  # lost, or handed_back


class TaskFailed(_Event, frozen=True, tag=49):
    task: int
    code: str
    message: str = ""
    input: int = -1
    dead: bool = False  # its attempts are used up: a dead letter


class QueueChosen(_Event, frozen=True, tag=220):
    """Where the attempts of a node go, as far as values say it. It comes before the node is ready."""

    run: int
    step: int
    queue: str  # "": as the definition says
    labels: tuple[tuple[str, str], ...] = ()


class TaskSkipped(_Event, frozen=True, tag=201):
    """It said itself that there is nothing to do. What comes after it is decided as after a node that was not taken."""

    task: int
    input: int


class TaskChecking(_Event, frozen=True, tag=50):
    run: int
    step: int
    key: str


class CacheMissed(_Event, frozen=True, tag=51):
    task: int


class ExtractRequested(_Event, frozen=True, tag=125):
    """A rule reads into a value that is not inline; `source` and `key` as in `context`."""

    run: int
    source: int
    key: str


class ExtractKept(_Event, frozen=True, tag=126):
    """What was sought has come with an `Extracted` input."""

    run: int
    input: int


class TaskWaiting(_Event, frozen=True, tag=52):
    """A wait, an event, an approval, or the parent of children. `until` is a tick, 0 for none."""

    run: int
    step: int
    until: int = 0
    key: str = ""
    total: int = 0  # children of a map
    max_parallel: int = 0  # of them at once, where a value says so
    keys: tuple[str, ...] | None = None  # of the object over whose entries a map goes, in order


class WaitElapsed(_Event, frozen=True, tag=53):
    task: int


class TaskAnswered(_Event, frozen=True, tag=54):
    """What it waited for came: an event or an approval."""

    task: int
    input: int
    kept: int = -1  # an event that was kept earlier, by its place in the run
    command: int = -1  # as in `Duplicate`
    taken: int = 0  # the message of a mailbox, by its number


class IterationStarted(_Event, frozen=True, tag=55):
    """The next turn of a repeat."""

    parent: int
    task: int


class IterationDelayed(_Event, frozen=True, tag=62):
    """A repeat rests before its next turn."""

    task: int
    due: int


class TaskStopped(_Event, frozen=True, tag=272):
    """A map, repeat or child workflow is cancelled by a person: so are its children. How it ends follows."""

    task: int


class RepeatTimedOut(_Event, frozen=True, tag=222):
    """The time of a repeat is over: its turn is cancelled. How the repeat ends follows."""

    task: int


class FanOutEnded(_Event, frozen=True, tag=56):
    """All children of a map or repeat have ended well enough."""

    task: int


class StepEnded(_Event, frozen=True, tag=57):
    """A node that ended without a task of its own: not taken, skipped, blocked, taken branch."""

    run: int
    step: int
    phase: int
    reason: str = ""


class FirstEnded(_Event, frozen=True, tag=221):
    """A `first` ended with this winner. What leads only to it and has not ended is cancelled."""

    run: int
    step: int
    winner: int


class StepReset(_Event, frozen=True, tag=58):
    run: int
    step: int


class StepAccepted(_Event, frozen=True, tag=59):
    """An operator gave a failed node its result, or let the run go on without it."""

    run: int
    step: int
    phase: int
    input: int


class AttemptCheckpointed(_Event, frozen=True, tag=60):
    task: int
    input: int


class CommandQueued(_Event, frozen=True, tag=240):
    """A command of a task is for another partition. It is sent there until that partition acknowledges it."""

    input: int
    command: int
    partition: int
    number: int  # counted for each partition, without gaps


class CommandAcknowledged(_Event, frozen=True, tag=241):
    input: int


class CommandReceived(_Event, frozen=True, tag=242):
    """A command of a task in another partition was decided upon; it is never decided again. A code: it was refused."""

    input: int
    code: str = ""
    message: str = ""


class StepsAppended(_Event, frozen=True, tag=170):
    """Steps of an attempt that goes on are recorded."""

    task: int
    input: int


class FunctionSuspended(_Event, frozen=True, tag=171):
    """A durable function holds no worker until something that it awaits has an outcome."""

    task: int
    input: int


class StepRetrying(_Event, frozen=True, tag=172):
    """A step failed. `due`: the tick at which it may run again; 0: its retries are used up."""

    task: int
    input: int
    index: int  # among the steps of the report
    due: int = 0


class AwaitMet(_Event, frozen=True, tag=173):
    """An await has its outcome. Without an input, its time has come."""

    task: int
    position: int
    input: int = -1
    kept: int = -1  # an event that was kept earlier, by its index in the run
    error: str = ""
    message: str = ""
    command: int = -1  # of the input: an event that a task sent with its result
    taken: int = 0  # the message of a mailbox, by its number


class FunctionWoken(_Event, frozen=True, tag=174):
    """A suspended function may go on."""

    task: int


class FunctionContinued(_Event, frozen=True, tag=175):
    """The function starts again with an empty history."""

    task: int
    input: int


class FunctionCancelled(_Event, frozen=True, tag=176):
    """Its run was cancelled: the function learns it, and may undo what it did until a tick."""

    task: int
    input: int
    until: int


class PolicyDecided(_Event, frozen=True, tag=61):
    run: int
    step: int
    policy: str
    allowed: bool
    reason: str = ""
    action: str = ""


# ---- workers and lanes


class WorkerOffered(_Event, frozen=True, tag=70):
    worker: int
    input: int


class WorkerGone(_Event, frozen=True, tag=71):
    worker: int
    clean: bool


class QueueHeld(_Event, frozen=True, tag=72):
    lane: int
    reason: str
    by: str
    until: int = 0


class RateDue(_Event, frozen=True, tag=74):
    """The bucket of a rate limit that holds lanes has a token again."""

    gauge: int


class LoadShed(_Event, frozen=True, tag=73):
    on: bool
    lag_ms: int


Event = (
    DefinitionPut
    | TenantPut
    | QueuePut
    | LabelLimitPut
    | PolicyPut
    | SchedulePut
    | ScheduleRemoved
    | SchedulePaused
    | ScheduleResumed
    | ScheduleDecided
    | HintsChanged
    | ScheduleStateChanged
    | CatchUpDecided
    | OccurrencesSettled
    | OccurrenceBuffered
    | OccurrencesCancelled
    | ScheduleMoved
    | HolidaysPut
    | MailboxPut
    | MailboxRemoved
    | MessageKept
    | MessageExpired
    | MessageRefused
    | ZonesChanged
    | CatchUpChosen
    | VersionPut
    | BackfillStarted
    | BackfillStateChanged
    | BackfillLookupStarted
    | BackfillLookupFinished
    | BackfillEnded
    | ScopePaused
    | ScopeResumed
    | InputRefused
    | Duplicate
    | StaleReport
    | ClockGapRecorded
    | TimersHeld
    | RunSubmitted
    | RunDebounced
    | RunScheduled
    | RunSpawned
    | RunRestored
    | RunRerun
    | RunGated
    | RunMoved
    | Visited
    | Deferred
    | EventStored
    | UpdateReceived
    | SlaReached
    | RunOverdue
    | RunEnding
    | StepCancelled
    | FollowUpStarted
    | RunDetached
    | GateTaken
    | RunDue
    | QueueChosen
    | TaskReady
    | TaskDispatched
    | ChildDispatched
    | AttemptStarted
    | TaskSucceeded
    | TaskRetrying
    | TaskDue
    | TaskRequeued
    | TaskTaken
    | TaskFailed
    | TaskSkipped
    | TaskChecking
    | CacheMissed
    | ExtractRequested
    | ExtractKept
    | TaskWaiting
    | WaitElapsed
    | TaskAnswered
    | IterationStarted
    | IterationDelayed
    | RepeatTimedOut
    | TaskStopped
    | FanOutEnded
    | StepEnded
    | FirstEnded
    | StepReset
    | StepAccepted
    | AttemptCheckpointed
    | CommandQueued
    | CommandAcknowledged
    | CommandReceived
    | StepsAppended
    | FunctionSuspended
    | StepRetrying
    | AwaitMet
    | FunctionWoken
    | FunctionContinued
    | FunctionCancelled
    | PolicyDecided
    | WorkerOffered
    | WorkerGone
    | QueueHeld
    | RateDue
    | LoadShed
)
