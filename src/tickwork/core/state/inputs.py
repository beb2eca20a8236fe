"""Inputs of a partition: commands and facts.

Commands are requests, with imperative names and their sender (`by`). Facts are observations: a result, a lost worker, a
row that the shell looked up. All of them are journalled in one order, and the machine knows nothing else about the
world.

Structs are encoded as arrays with an integer tag, so a field may only be added at the end and
a tag is never used again. Values over `values.INLINE_BYTES_MAX` come as references.
"""

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.definition.model import Retry
from tickwork.core.state.history import Await, HistoryRecord, StepEntry
from tickwork.core.state.messages import PublishedValue, RunMessages, UpdateReply
from tickwork.core.state.schedule import GovernorLimits
from tickwork.core.state.schedule import SchedulePolicy as ScheduleTerms


class _Input(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---- what is set up


class PutDefinition(_Input, frozen=True, tag=1):
    by: str
    tenant: str
    document: bytes  # JSON
    latest: bool = True  # False: known by its hash, for a version of an application to choose it


class PutTenant(_Input, frozen=True, tag=2):
    by: str
    tenant: str
    weight: int = 1
    limit: int | None = None  # attempts running at once
    rate_starts: int | None = None
    rate_ms: int = 1_000
    burst: int | None = None
    max_live_runs: int | None = None
    window: str = "bucket"  # or "sliding": exact, and without a burst


class PutQueue(_Input, frozen=True, tag=3):
    by: str
    queue: str
    limit: int | None = None
    rate_starts: int | None = None
    rate_ms: int = 1_000
    burst: int | None = None
    window: str = "bucket"  # as in PutTenant


class PutLabelLimit(_Input, frozen=True, tag=4):
    by: str
    label: str
    value: str
    limit: int | None = None


class PutPolicy(_Input, frozen=True, tag=5):
    """A gate asked before every step that names it: `allow` must hold, or `action` follows."""

    by: str
    policy: str
    allow: str  # CEL
    reason: str
    action: str  # pause, fail, skip_with_log
    pause_ms: int = 0  # a pause that ends by itself; 0: it waits for a person


class PutSchedule(_Input, frozen=True, tag=6):
    by: str
    tenant: str
    schedule: str
    workflow: str
    when: ScheduleSpec
    terms: ScheduleTerms = ScheduleTerms()
    inputs: Value = None
    context: Value = None
    governing: GovernorLimits | None = None
    owner: str = ""  # the application that declares it in code; "": made at run time
    description: str = ""
    new: bool = False  # refused where there is one of this name


class RemoveSchedule(_Input, frozen=True, tag=7):
    by: str
    tenant: str
    schedule: str


class ApplySchedules(_Input, frozen=True, tag=30):
    """A whole set, all or none. What this owner had and the set lacks is removed."""

    by: str
    tenant: str
    owner: str
    puts: list[PutSchedule]


class PutHolidays(_Input, frozen=True, tag=31):
    """A named list of dates (YYYY-MM-DD) that calendars of this tenant may name. None: the list goes."""

    by: str
    tenant: str
    name: str
    dates: tuple[str, ...] | None


class PutMailbox(_Input, frozen=True, tag=251):
    """From now on, events of this name are kept until a run takes them. Events that are kept already stay."""

    by: str
    tenant: str
    name: str
    keep_ms: int
    capacity: int  # messages of one key
    fields: bytes = b"{}"  # JSON: what a payload has, as the inputs of a workflow


class RemoveMailbox(_Input, frozen=True, tag=252):
    """Refused while it keeps messages. Events of its name are lost again where nobody waits for them."""

    by: str
    tenant: str
    name: str


class Advise(_Input, frozen=True, tag=32):
    """Hints to the Governor. Given ones replace those of their kind; `clear` drops what was there before."""

    by: str
    tenant: str
    schedule: str
    interval_ms: int | None = None
    at_ms: int | None = None
    ttl_ms: int = 3_600_000
    reason: str = ""
    cost: int = 0
    clear: bool = False


class KnownRun(_Input, frozen=True):
    """A fact beside what begins a run: this id or key belongs to one that has left memory, or may in this tick."""

    run_id: str
    body: str
    submitted: int  # tick


class Trigger(_Input, frozen=True, tag=33):
    """One run now, beside whatever is due. A test touches nothing of the schedule."""

    by: str
    tenant: str
    schedule: str
    test: bool = False
    key: str = ""  # repeated under it, a trigger begins nothing more
    known: KnownRun | None = None


class SteerSchedule(_Input, frozen=True, tag=34):
    """Deed is archive, restore or reset_failures."""

    by: str
    tenant: str
    schedule: str
    deed: str


class Backfill(_Input, frozen=True, tag=35):
    """Runs for the occurrences from `from_ms` on and before `to_ms`, a few at a time."""

    by: str
    tenant: str
    schedule: str
    from_ms: int
    to_ms: int
    concurrency: int = 10
    priority: int | None = None
    newest_first: bool = False
    forced: bool = False  # also those that ran before


class SteerBackfill(_Input, frozen=True, tag=36):
    """Deed is pause, resume or cancel."""

    by: str
    tenant: str
    backfill: int
    deed: str


class RunsKnown(_Input, frozen=True, tag=37):
    """A fact: of the occurrences that a `FindRuns` effect asked for, these have run before."""

    backfill: int
    known: tuple[int, ...]


class NewZones(_Input, frozen=True, tag=38):
    """A fact: this owner knows other time zones than the one before it. Next times are computed again."""

    version: str


class ChooseCatchUp(_Input, frozen=True, tag=44):
    """Whatever is late now is caught up with by this policy, once, instead of by each schedule's own."""

    by: str
    policy: str
    length_ms: int = 0  # of window and spread


class RegisterVersion(_Input, frozen=True, tag=50):
    """A version of an application has started: its definitions, which are put before, and its schedules."""

    by: str
    tenant: str
    application: str
    version: str
    workflows: dict[str, str]  # name to hash
    puts: list[PutSchedule]
    latest: bool = False  # also where it is known already


class SetLatestVersion(_Input, frozen=True, tag=51):
    """`puts` is what that version declares, as it is kept."""

    by: str
    tenant: str
    application: str
    version: str
    puts: list[PutSchedule]


class Pause(_Input, frozen=True, tag=8):
    """Scope is run, queue, workflow, tenant, schedule, group (of schedules) or partition; a queue has no tenant, and
    neither has a partition, whose name is its number: while it is paused, nothing of it is given to a worker."""

    by: str
    scope: str
    tenant: str
    name: str
    reason: str = ""
    until_ms: int | None = None  # of a run, a schedule or a group
    left_as: int | None = None  # a fact: the state in which this run left memory


class Resume(_Input, frozen=True, tag=9):
    by: str
    scope: str
    tenant: str
    name: str
    left_as: int | None = None  # as in `Pause`


# ---- what is asked of runs


class RunTerms(_Input, frozen=True):
    """What one submission says instead of its workflow."""

    timeout_ms: int | None = None  # of the whole run
    retry: Retry | None = None  # for nodes that have no retry of their own


class SubmitOptions(_Input, frozen=True):
    """What few submissions need."""

    key: str = ""
    body: str = ""  # digest of the request; two bodies under one key are refused
    start_at_ms: int | None = None
    delay_ms: int | None = None
    debounce: str = ""  # a later submission under this key replaces the inputs and restarts the delay
    priority: int | None = None
    definition: str = ""  # a definition's hash, where not the latest is wanted
    known: KnownRun | None = None
    version: str = ""  # of an application: only its workers may have the run
    at_most_ms: int | None = None  # a debounced run starts no later than this after its first submission
    queue: str = ""  # for nodes that name none
    own: RunTerms | None = None


class Submit(_Input, frozen=True, tag=10):
    by: str
    tenant: str
    run_id: str
    workflow: str
    inputs: Value = None
    terms: SubmitOptions | None = None


class Cancel(_Input, frozen=True, tag=11):
    by: str
    tenant: str
    run_id: str
    reason: str = ""
    left_as: int | None = None  # a fact: the state in which this run left memory


class RunRecord(_Input, frozen=True):
    """A run that has left memory, as its rows hold it: the fact beside what brings it back."""

    number: int
    run_id: str
    definition: str
    state: int
    inputs: Value
    by: str
    source: str
    submitted: int
    started: int
    priority: int
    phases: bytes
    results: tuple[tuple[int, Value], ...]  # by node
    key: str = ""
    body: str = ""
    scheduled_ms: int = 0
    schedule: str = ""
    queue: str = ""
    backfill: int = 0
    decided: str = ""
    pin: str = ""
    tried: int = 0  # its highest attempt so far
    history: HistoryRecord | None = None  # of its durable function
    messages: RunMessages | None = None
    own: RunTerms | None = None


class Resolve(_Input, frozen=True, tag=12):
    """An operator's decision about a FAILED run: node -> retry, accept or skip. Empty: retry all that failed."""

    by: str
    tenant: str
    run_id: str
    reason: str
    decisions: dict[str, str] = {}
    values: dict[str, Value] = {}
    record: RunRecord | None = None
    others_stay: bool = False  # nodes without a decision stay failed, and so the run fails again


class CancelTask(_Input, frozen=True, tag=272):
    """This task fails, whatever it is doing. Its run goes on by its rules."""

    by: str
    tenant: str
    task: int
    reason: str = ""


class RetryTask(_Input, frozen=True, tag=273):
    """The next attempt of a task that waits for it begins now."""

    by: str
    tenant: str
    task: int
    reason: str = ""


class Redrive(_Input, frozen=True, tag=13):
    """Dead letters brought back in bulk, no faster than `per_second`."""

    by: str
    tenant: str
    reason: str
    per_second: int
    records: list[RunRecord] = []


class Rerun(_Input, frozen=True, tag=14):
    """A new run that keeps the results of an old one, except from one node on."""

    by: str
    tenant: str
    run_id: str
    record: RunRecord
    from_node: str = ""
    definition: str = ""  # another version; "": the same
    inputs: Value = None
    change_inputs: bool = False
    from_start: bool = False  # nothing is kept


class Decide(_Input, frozen=True, tag=15):
    by: str
    tenant: str
    run_id: str
    node: str
    approve: bool
    comment: str = ""
    left_as: int | None = None  # as in `Pause`
    values: Value = None  # of the fields of a form


class Ingest(_Input, frozen=True, tag=16):
    """An event from outside: for one run, or for all that wait for this name and key."""

    by: str
    tenant: str
    event: str
    key: str = ""
    run_id: str = ""
    payload: Value = None


class SendUpdate(_Input, frozen=True, tag=250):
    """A message to the durable function of a run, which replies to it once."""

    by: str
    tenant: str
    run_id: str
    name: str
    key: str  # repeated under it, it is the same update
    body: str  # digest of name and payload
    payload: Value = None


# ---- what workers and the shell observe


class Offer(_Input, frozen=True, tag=20):
    """A worker says what it serves and how many attempts it is ready to hold in all."""

    worker: str
    credit: int
    queues: tuple[str, ...] = ("default",)
    labels: dict[str, str] = {}
    slots: int = 0  # 0: as many as its credit
    cpu_milli: int = 0
    memory_mb: int = 0
    gpu: int = 0
    start: str = ""  # which start of this worker it is: another one under the same name holds nothing of the first
    process: str = ""  # names its operating system process, so that the same host can prove that it has ended


class WorkerLost(_Input, frozen=True, tag=21):
    """Silent too long, or its connection closed without goodbye; `clean` where it said goodbye."""

    worker: str
    clean: bool = False


class Started(_Input, frozen=True, tag=22):
    task: int
    attempt: int
    sender: str = ""  # as in `Succeeded`


class TaskCommand(_Input, frozen=True):
    """What the code of a task asked for: it happens if the result that brings it is accepted, and only then."""

    request: Submit | Ingest
    partitions: tuple[int, ...] = ()  # a fact: those that it is for; (): this one


class Succeeded(_Input, frozen=True, tag=23):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # the worker that reports, where it is another one than holds the attempt, as far as is known
    commands: tuple[TaskCommand, ...] = ()


class Failed(_Input, frozen=True, tag=24):
    task: int
    attempt: int
    error: str  # its type
    message: str = ""
    permanent: bool = False
    sender: str = ""  # as in `Succeeded`
    position: int = -1  # of the recorded failure that ended a durable function
    bases: tuple[str, ...] = ()  # more general types of the error, the nearest first: rules for these count too
    skip: bool = False  # the task itself says that there is nothing to do: it is not taken


class Checkpointed(_Input, frozen=True, tag=25):
    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`


class StepsRecorded(_Input, frozen=True, tag=110):
    """Steps that ended in the middle of an attempt."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...]
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Suspended(_Input, frozen=True, tag=111):
    """A durable function cannot go on before something that it awaits has an outcome. The attempt ends."""

    task: int
    attempt: int
    steps: tuple[StepEntry, ...] = ()
    awaits: tuple[Await, ...] = ()  # new ones
    withdrawn: tuple[int, ...] = ()  # positions of awaits that it gave up
    together: tuple[tuple[int, ...], ...] = ()  # positions that it awaits all of; any other lets it go on alone
    versions: tuple[tuple[str, int], ...] = ()
    sender: str = ""  # as in `Succeeded`
    replies: tuple[UpdateReply, ...] = ()
    published: tuple[PublishedValue, ...] = ()


class Continued(_Input, frozen=True, tag=112):
    """A durable function starts again under the same run id, with these inputs and an empty history."""

    task: int
    attempt: int
    value: Value = None
    sender: str = ""  # as in `Succeeded`
    withdrawn: tuple[int, ...] = ()  # awaits that it gave up before


class HandedBack(_Input, frozen=True, tag=26):
    task: int
    attempt: int
    worker: str = ""  # only if it is still this worker's: a broker may not know yet that another took it
    begun: bool = False  # its code ran for a while, or may have


class Taken(_Input, frozen=True, tag=29):
    """A worker got this attempt from a lane, and asks to have it."""

    task: int
    attempt: int
    worker: str


class Delivered(_Input, frozen=True, tag=150):
    """A command of a task in another partition. The commands of one sender are numbered without gaps."""

    sender: int  # partition
    number: int
    request: Submit | Ingest
    origin: str  # which task of which run


class Acknowledged(_Input, frozen=True, tag=151):
    """A fact: that partition has decided about a command of ours. A code says that it was refused."""

    partition: int
    number: int
    code: str = ""
    message: str = ""


class CacheAnswered(_Input, frozen=True, tag=27):
    """What the shell found under the key that a `LookUp` effect asked for."""

    task: int
    found: bool
    value: Value = None


class Extracted(_Input, frozen=True, tag=65):
    """A fact: what conditions read of a value that is not inline, as a `ReadExtract` effect asked for it. A code says
    why there is none."""

    run: int
    source: int
    key: str
    value: bytes | None = None
    code: str = ""
    message: str = ""


OUTAGE = "outage"  # no owner decided anything until the partition was taken up


class ClockGap(_Input, frozen=True, tag=28):
    """The shell saw time jump: what was due inside is late for this reason."""

    from_ms: int
    to_ms: int
    cause: str  # outage, clock_step
    by: str = ""  # who confirmed a step; "": it was adopted without a person


class HoldTimers(_Input, frozen=True, tag=100):
    """Logical time is ahead of real time, or no longer is. While timers are held none fires, so nothing happens before
    its time; every other input is decided as usual."""

    held: bool
    reason: str = ""


Input = (
    PutDefinition
    | PutTenant
    | PutQueue
    | PutLabelLimit
    | PutPolicy
    | PutSchedule
    | RemoveSchedule
    | ApplySchedules
    | PutHolidays
    | PutMailbox
    | RemoveMailbox
    | Advise
    | Trigger
    | SteerSchedule
    | Backfill
    | SteerBackfill
    | RunsKnown
    | NewZones
    | ChooseCatchUp
    | RegisterVersion
    | SetLatestVersion
    | Pause
    | Resume
    | Submit
    | Cancel
    | Resolve
    | CancelTask
    | RetryTask
    | Redrive
    | Rerun
    | Decide
    | Ingest
    | SendUpdate
    | Offer
    | WorkerLost
    | Started
    | Succeeded
    | Failed
    | Checkpointed
    | StepsRecorded
    | Suspended
    | Continued
    | HandedBack
    | Delivered
    | Acknowledged
    | CacheAnswered
    | Extracted
    | ClockGap
    | HoldTimers
    | Taken
)


def request_in(item: Input, command: int) -> Input:
    """What an event points to: an input, or the command of a task in it."""
    if command >= 0:
        assert isinstance(item, Succeeded), "only results have commands"
        return item.commands[command].request
    return item.request if isinstance(item, Delivered) else item
