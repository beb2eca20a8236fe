"""The models of the public API: what server, client, command line and page say to each other.

JSON with these names; times are RFC 3339 in UTC; an absent field means its default. The OpenAPI document is
made from these structs, so a field's docstring is its documentation. Nothing private exists beside them,
except the worker's exchange, which is MessagePack (`protocol/worker_messages.py`).
"""

from typing import Any, Literal

import msgspec

from tickwork.core.state.schedule import CatchUp as CatchUpPolicy
from tickwork.core.state.schedule import Overlap

STORE_HEADER = "x-tickwork-store"  # of every response: the identity of the store that answers


class _Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class _Request(_Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


# ---- answers


class Problem(_Model, frozen=True, kw_only=True):
    """RFC 9457. `code` is stable; `detail` says what to change."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str = ""
    path: str = ""  # the field at fault, in the words of the request
    problems: tuple[dict[str, str], ...] = ()  # all of them, for a definition
    request_id: str = ""


class Attempt(_Model, frozen=True, kw_only=True):
    attempt: int
    worker: str
    state: str  # running, succeeded, failed, lost, returned, timed_out, cancelled
    dispatched_at: str
    started_at: str | None = None  # as the worker's clock has it
    ended_at: str | None = None
    error: str = ""
    message: str = ""
    exit_code: int | None = None
    progress: tuple[int, int] | None = None  # done, total
    progress_message: str = ""


class Task(_Model, frozen=True, kw_only=True):
    """A node of a run, or one child of a map."""

    id: str  # run number and node, unique; logs are found by it
    node: str
    kind: str
    state: str  # pending, ready, running, waiting, succeeded, failed, skipped …
    child: int | None = None
    attempts: tuple[Attempt, ...] = ()
    children: dict[str, int] = {}  # of a map: counts by state
    reason: str = ""
    due_at: str | None = None  # a wait, a retry
    result: Any = None  # where it is small enough to show; see `result_size`
    result_size: int = 0
    message: str = ""  # of an approval: what it asks, with the values of the run


class Run(_Model, frozen=True, kw_only=True):
    id: str
    number: str = ""  # counts runs and tasks of its partition
    workflow: str
    definition: str
    state: str  # pending, active, waiting, paused, completed, failed, cancelled
    source: str
    by: str
    submitted_at: str
    started_at: str | None = None
    ended_at: str | None = None
    scheduled_at: str | None = None
    schedule: str = ""
    decided: str = ""  # of an endpoint: why it ran then, as its Governor said
    key: str = ""
    priority: int | None = None
    error: str = ""
    reason: str = ""  # of a pause
    tasks_total: int = 0
    tasks_ended: int = 0


class RunDetail(Run, frozen=True, kw_only=True):
    sla_deadline: str | None = None  # when its workflow's service level is broken, had it not ended by then
    inputs: Any = None
    output: Any = None
    output_size: int = 0
    tasks: tuple[Task, ...] = ()


class Page(_Model, frozen=True, kw_only=True):
    """`next` is the cursor of the following page; absent on the last."""

    runs: tuple[Run, ...]
    next: str = ""


class Submitted(_Model, frozen=True, kw_only=True, tag_field="outcome", tag="accepted"):
    id: str
    duplicate: bool = False  # accepted before under the same key or id


class Rejected(_Model, frozen=True, kw_only=True, tag_field="outcome", tag="rejected"):
    code: str
    detail: str
    path: str = ""  # the field at fault


class BatchAnswer(_Model, frozen=True, kw_only=True):
    """In the order of the request: an id where accepted, a problem where not."""

    runs: tuple[Submitted | Rejected, ...]


class Workflow(_Model, frozen=True, kw_only=True):
    name: str
    definition: str  # hash of the latest version
    description: str = ""
    versions: int = 1
    paused: bool = False
    schedules: tuple[str, ...] = ()


class WorkflowDetail(Workflow, frozen=True, kw_only=True):
    document: Any = None


class Workflows(_Model, frozen=True, kw_only=True):
    workflows: tuple[Workflow, ...]
    latest_version: str = ""  # of the application that was published


class AppVersion(_Model, frozen=True, kw_only=True):
    application: str
    version_id: int
    version_name: str
    version_timestamp: str  # the highest is the latest
    created_at: str
    latest: bool = False
    workers: int = 0  # that have it now
    stranded: int = 0  # ready tasks that are pinned to it while no worker has it
    kept: bool = True  # what it declares is still known, so that it can be set latest


class AppVersions(_Model, frozen=True, kw_only=True):
    versions: tuple[AppVersion, ...]  # newest first


class Fates(_Model, frozen=True, kw_only=True):
    """How many occurrences ended how."""

    ran: int = 0
    coalesced: int = 0
    skipped: int = 0
    missed: int = 0
    cancelled: int = 0


class Hints(_Model, frozen=True, kw_only=True):
    interval: str = ""
    at: str | None = None
    expires_at: str
    reason: str = ""
    by: str = ""
    cost: int = 0


class Governed(_Model, frozen=True, kw_only=True):
    """Of a schedule whose next time the Governor decides: by what, and from which candidates."""

    source: str = ""
    candidates: tuple[tuple[str, str], ...] = ()  # source, time
    min: str = ""
    max: str = ""
    failures: int = 0
    hints: Hints | None = None


class Schedule(_Model, frozen=True, kw_only=True):
    name: str
    workflow: str
    expression: str
    timezone: str = "UTC"
    says: str = ""  # the expression in words
    description: str = ""
    owner: str = ""  # the application that declares it in code
    queue: str = ""
    overlap: str = "allow"
    catch_up: str = "last"
    automatic_backfill: bool = False
    jitter: bool = False
    group: str = ""
    paused: bool = False
    archived: bool = False
    pause_reason: str = ""
    paused_until: str | None = None
    next_at: str | None = None
    starts_at: str | None = None  # with its jitter, where that is later
    last_fired_at: str | None = None
    last_success_at: str | None = None
    fired: int = 0
    failures: int = 0
    active: int = 0
    buffered: int = 0
    fates: Fates = Fates()
    governed: Governed | None = None
    broken: str = ""
    request: "ScheduleRequest | None" = None  # what was asked for; of one that is shown alone


class Schedules(_Model, frozen=True, kw_only=True):
    schedules: tuple[Schedule, ...]
    next: str | None = None  # cursor of the next page


class Time(_Model, frozen=True, kw_only=True):
    utc: str
    local: str


class ScheduleWarning(_Model, frozen=True, kw_only=True):
    code: str
    text: str


class SchedulePreview(_Model, frozen=True, kw_only=True):
    """What a schedule will do: in words, its next times, and what looks like a mistake."""

    says: str
    next: tuple[Time, ...] = ()
    warnings: tuple[ScheduleWarning, ...] = ()
    tzdata: str = ""


class Occurrence(_Model, frozen=True, kw_only=True):
    """Neighbouring occurrences with one fate."""

    schedule: str
    from_at: str
    to_at: str
    count: int
    fate: str
    cause: str = ""
    backfill: int | None = None


class Occurrences(_Model, frozen=True, kw_only=True):
    occurrences: tuple[Occurrence, ...]
    next: str | None = None  # there are more: `start` of the next page, which has the last of this one again


class Due(_Model, frozen=True, kw_only=True):
    """A time at which a schedule is expected to fire."""

    schedule: str
    utc: str
    local: str


class Upcoming(_Model, frozen=True, kw_only=True):
    occurrences: tuple[Due, ...]
    next: str | None = None  # where the next page begins; none: this is all of it


class ZoneNames(_Model, frozen=True, kw_only=True):
    """The time zones that a schedule may name, and the version of their data."""

    zones: tuple[str, ...]
    tzdata: str


class Triggered(_Model, frozen=True, kw_only=True):
    run_id: str


class Backfill(_Model, frozen=True, kw_only=True):
    number: int
    schedule: str
    state: str  # active, paused, done, cancelled
    start: str
    end: str
    by: str = ""
    forced: bool = False
    newest_first: bool = False
    concurrency: int = 10
    started: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    known: int = 0  # had run before
    position: str | None = None  # how far it has come
    # Of a new one: all that it may begin, as far as they fit. Of a preview: those among them that have not run yet.
    run_ids: tuple[str, ...] = ()
    count: int = 0  # of a preview or a new one: how many occurrences its window has
    more: bool = False  # there are more than `count`


class Backfills(_Model, frozen=True, kw_only=True):
    backfills: tuple[Backfill, ...]


class CatchUp(_Model, frozen=True, kw_only=True):
    """What is late with one schedule, and what its policy will make of it."""

    schedule: str
    policy: str
    late_since: str
    late: int
    runs: int
    passed: int
    fate: str = ""
    cause: str = ""
    first_run_at: str | None = None
    spread: str = ""
    limit: str = ""  # what lets fewer run than the policy does: they would overlap
    paused: bool = False  # nothing of this happens before it is resumed


class CatchUps(_Model, frozen=True, kw_only=True):
    schedules: tuple[CatchUp, ...]


class Holidays(_Model, frozen=True, kw_only=True):
    lists: dict[str, tuple[str, ...]] = {}


class EndpointRun(_Model, frozen=True, kw_only=True):
    """One call of an endpoint and its answer, with the tries that it took."""

    id: str
    source: str  # the Governor's: baseline-cron, baseline-interval, ai-interval …; or trigger, test
    by: str = ""
    state: str  # completed is a success, failed a failure; otherwise it goes on, or somebody ended it
    attempt: int = 0  # which of the tries it was that ended it; 0: none began
    status: int | None = None  # of the answer; None: there was none
    duration_ms: int | None = None
    body: Any = None
    cut: bool = False  # the answer had more
    error: str = ""
    message: str = ""
    scheduled_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None


class EndpointRuns(_Model, frozen=True, kw_only=True):
    """Newest first. `next` is the cursor of the following page; absent on the last."""

    runs: tuple[EndpointRun, ...]
    next: str = ""


class Endpoint(_Model, frozen=True, kw_only=True):
    """A URL that is called when its Governor says so: what was asked for, and how it stands."""

    name: str
    url: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: Any = None
    timeout: str = "30s"
    body_limit: int = 100_000
    success: str = ""
    retries: int = 0
    retry_delay: str = "1s"
    sign: str = ""
    cron: str = ""
    every: str = ""
    timezone: str = "UTC"
    min_interval: str = ""
    max_interval: str = ""
    max_duration: str = ""
    queue: str = ""
    group: str = ""
    description: str = ""
    pause_after: int = 0
    says: str = ""  # when, in words
    workflow: str = ""  # under which its runs are found
    next_at: str | None = None
    source: str = ""  # why then
    candidates: tuple[tuple[str, str], ...] = ()  # source, time
    failures: int = 0  # in a row
    hints: Hints | None = None
    running: bool = False
    paused: bool = False
    pause_reason: str = ""
    paused_until: str | None = None
    archived: bool = False
    last_fired_at: str | None = None
    last_success_at: str | None = None
    fates: Fates = Fates()
    last: EndpointRun | None = None  # without its body; where one endpoint is asked for


class EndpointPage(_Model, frozen=True, kw_only=True):
    endpoints: tuple[Endpoint, ...]
    next: str | None = None  # cursor of the next page


class EndpointPreview(SchedulePreview, frozen=True, kw_only=True):
    """What was put, in words. `next` are the times of the baseline; `next_at` is what the Governor has decided."""

    next_at: str | None = None
    source: str = ""


class EndpointPreviews(_Model, frozen=True, kw_only=True):
    endpoints: dict[str, EndpointPreview]


class Worker(_Model, frozen=True, kw_only=True):
    id: str
    queues: tuple[str, ...]
    labels: dict[str, str] = {}
    credit: int
    running: int
    last_heard_at: str | None = None
    host: str = ""
    pid: int = 0
    application: str = ""
    version: str = ""  # of its application
    latest: bool | None = None  # None: its application has no versions


class Workers(_Model, frozen=True, kw_only=True):
    workers: tuple[Worker, ...]


class Queue(_Model, frozen=True, kw_only=True):
    name: str
    ready: int = 0
    running: int = 0
    limit: int | None = None
    rate: int | None = None  # starts
    per: str = ""  # in this time
    burst: int | None = None
    paused: bool = False
    window: str = ""  # how a rate is counted: bucket or sliding


class Queues(_Model, frozen=True, kw_only=True):
    queues: tuple[Queue, ...]


class Step(_Model, frozen=True, kw_only=True):
    """One line of an explanation."""

    at: str
    seq: int
    text: str


class Why(_Model, frozen=True, kw_only=True):
    run: str
    state: str
    steps: tuple[Step, ...] = ()  # what was decided, from the journal
    waiting_for: tuple[str, ...] = ()  # why it does not go on now


class LogLine(_Model, frozen=True, kw_only=True):
    at: str
    task: str
    node: str
    attempt: int
    stream: str  # stdout, stderr, log
    text: str


class Logs(_Model, frozen=True, kw_only=True):
    lines: tuple[LogLine, ...]
    truncated: bool = False  # there are more lines than one answer holds; these are the last of them


class Heard(_Model, frozen=True, kw_only=True):
    """What became of an event."""

    detail: str = ""
    waiting: int = 0  # nodes that waited for it; told to one run: 1, it has it or keeps it until it waits


class Stored(_Model, frozen=True, kw_only=True):
    digest: str
    size: int


class Health(_Model, frozen=True, kw_only=True):
    status: str
    detail: str = ""
    warnings: tuple[str, ...] = ()  # what a person should know although work is accepted


class PartitionHead(_Model, frozen=True, kw_only=True):
    """Where a partition stands, as far as it is durable."""

    partition: int
    epoch: int
    seq: int
    tick: int
    hash: str
    watermark: int
    dispatch_held: str = ""  # why nothing of it is given to workers; "": it is


class ClockStatus(_Model, frozen=True, kw_only=True):
    """How wall clock, real time and logical time stand. `steady`: they agree. `held`: the wall clock has stepped, and
    the step is not believed yet. `ahead`: logical time is ahead of real time, and timers are held."""

    state: Literal["steady", "held", "ahead"]
    wall_time: str
    real_time: str  # what is believed
    logical_time: str
    step_ms: int = 0  # wall clock minus real time, while a step is held
    contradicted: bool = False  # by the clock of the database
    adopted_in_ms: int | None = None  # when a held step is believed by itself; null: when a person confirms it
    description: str = ""


class Status(_Model, frozen=True, kw_only=True):
    """How the engine is."""

    version: str
    tick: int
    seq: int
    watermark: int
    epoch: int
    live_runs: int
    live_tasks: int
    ready: int
    running: int
    workers: int
    runs: dict[str, int] = {}  # ended ones, by state
    alerts: tuple[str, ...] = ()
    accepting: bool = True
    schedules: int = 0
    schedules_late: int = 0  # those that catch up
    occurrences: dict[str, int] = {}  # of this tenant: expected, then by fate, and those that wait for their turn
    ledger_differences: int = 0  # since the start; anything but 0 is a defect
    dispatch_held: str = ""  # why nothing is given to workers; "": it is
    clock: ClockStatus | None = None


# ---- requests


class Submission(_Request, frozen=True, kw_only=True):
    workflow: str
    inputs: dict[str, Any] = {}
    id: str = ""  # "": the server makes one
    key: str = ""  # the same key gives the same run for 24 h
    start_at: str = ""  # RFC 3339
    delay_ms: int | None = None
    debounce: str = ""
    priority: int | None = None
    definition: str = ""  # hash of another version than the latest
    version: str = ""  # of its application, as `version` or `application@version`: only workers of it run it


class Batch(_Request, frozen=True, kw_only=True):
    runs: tuple[Submission, ...]


class Reason(_Request, frozen=True, kw_only=True):
    reason: str = ""


class PauseRequest(Reason, frozen=True, kw_only=True):
    until: str = ""


class ResolveRequest(Reason, frozen=True, kw_only=True):
    """node -> retry, accept or skip; empty: retry everything that failed."""

    decisions: dict[str, str] = {}
    values: dict[str, Any] = {}


class RerunRequest(_Request, frozen=True, kw_only=True):
    """With neither a node nor `from_start`: what did not end well, and everything of a run that completed."""

    from_node: str = ""
    definition: str = ""
    inputs: dict[str, Any] | None = None
    from_start: bool = False


class Decision(_Request, frozen=True, kw_only=True):
    approve: bool
    comment: str = ""


class Signal(_Request, frozen=True, kw_only=True):
    """An event from outside, for one run or for whoever waits for its name and key."""

    event: str
    key: str = ""
    run: str = ""
    payload: Any = None


class GovernorRequest(_Request, frozen=True, kw_only=True):
    """Hard limits for the Governor; "": none."""

    min: str = ""
    max: str = ""


class ScheduleRequest(_Request, frozen=True, kw_only=True):
    """One of cron, every, at and rrule says when."""

    workflow: str
    cron: str = ""
    every: str = ""  # 5m, PT5M
    at: str = ""  # one instant
    rrule: str = ""
    anchor: str = ""  # where an interval or a rule counts from
    timezone: str = "UTC"
    dst_gap: Literal["auto", "shift", "skip", "end"] = "auto"
    dst_overlap: Literal["auto", "first", "second", "both"] = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    business_days: bool = False
    holidays: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    max_runs: int = 0
    inputs: dict[str, Any] = {}
    context: Any = None
    time_input: str = "scheduled_time"
    context_input: str = "context"
    queue: str = ""
    priority: int | None = None
    overlap: Overlap = "allow"
    buffer: int = 100
    catch_up: CatchUpPolicy = "last"
    catch_up_window: str = ""  # of window: how far back; of spread: over how long
    catch_up_cap: int = 1_000
    grace: str = "1m"
    automatic_backfill: bool = False
    jitter: bool = False
    pause_after: int = 0
    group: str = ""
    description: str = ""
    governor: GovernorRequest | None = None


class PreviewRequest(ScheduleRequest, frozen=True, kw_only=True):
    name: str = ""  # of the schedule that this would be: `H` in its expression stands for times of its own


class ScheduleSet(_Request, frozen=True, kw_only=True):
    """All schedules of an owner: what it had and the set lacks is removed."""

    owner: str
    schedules: dict[str, ScheduleRequest] = {}
    dry_run: bool = False  # only say whether it could be applied, and what of it is there already


class HintRequest(_Request, frozen=True, kw_only=True):
    """Advice to the Governor: an interval, one time, or both."""

    interval: str = ""
    at: str = ""
    ttl: str = ""  # "": an hour; of one for a time, an hour after it
    reason: str = ""
    cost: int = 0  # in whatever the adviser counts


class EndpointRequest(_Request, frozen=True, kw_only=True):
    """A URL to call, by cron or at an interval, within the limits for its Governor."""

    url: str
    method: str = "GET"
    headers: dict[str, str] = {}  # as they stand: no place for secrets
    body: Any = None  # text as it is, everything else as JSON
    timeout: str = "30s"  # of one try; 30m at most
    body_limit: int = 100_000  # bytes of the answer that are kept
    success: str = ""  # CEL over status and body; "": any 2xx
    retries: int = 0  # within one run
    retry_delay: str = "1s"  # before the first of them; doubled for each further one
    sign: str = ""  # name of a secret of the worker
    cron: str = ""
    every: str = ""
    timezone: str = "UTC"
    min_interval: str = ""
    max_interval: str = ""
    max_duration: str = ""  # of a run, all of its tries included; "": 5m, or as long as its tries may take
    queue: str = ""
    group: str = ""
    description: str = ""
    pause_after: int = 0  # failed runs in a row; 0: never


class EndpointSet(_Request, frozen=True, kw_only=True):
    """Several endpoints, all or none. Others are left alone."""

    endpoints: dict[str, EndpointRequest]


class BackfillRequest(_Request, frozen=True, kw_only=True):
    """From `start` up to `end`: instants, or dates and times on the clock of the schedule's zone."""

    start: str
    end: str
    concurrency: int = 10
    priority: int | None = None
    newest_first: bool = False
    forced: bool = False
    preview: bool = False


class HolidaysRequest(_Request, frozen=True, kw_only=True):
    dates: tuple[str, ...]


class LatestRequest(_Request, frozen=True, kw_only=True):
    version: str
    application: str = ""  # "": the only one there is


class QueueRequest(_Request, frozen=True, kw_only=True):
    limit: int | None = None
    rate: int | None = None  # starts
    per: str = "1s"
    burst: int | None = None
    window: str = "bucket"  # or sliding


class Publication(_Request, frozen=True, kw_only=True):
    """Definitions and schedules of an application, all or none."""

    documents: tuple[Any, ...] = ()
    schedules: dict[str, ScheduleRequest] = {}
    application: str = ""  # whose schedules these are; those it no longer declares end. "": nobody's
    version: str = ""  # of the application; one that is known and not the latest moves nothing
    latest: bool = False  # make it the latest all the same


class Publications(msgspec.Struct, frozen=True, kw_only=True):
    """All that a tenant has, in the order in which it is published elsewhere."""

    publications: tuple[Publication, ...] = ()


class HeldRun(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted while its partition had no owner, and refused by the owner that came."""

    id: str
    partition: int
    workflow: str
    by: str = ""
    code: str = ""
    detail: str = ""


class HeldRuns(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[HeldRun, ...] = ()


class Ids(_Request, frozen=True, kw_only=True):
    ids: tuple[str, ...]


class SpreadRequest(_Request, frozen=True, kw_only=True):
    spread: int  # partitions


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    session: str
    address: str
    version: str
    started_at: str
    draining: bool = False
    engine: bool = True
    partitions: tuple[int, ...] = ()
    here: bool = False  # this one answered


class ClusterPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    node: str  # its owner; "": nobody now
    address: str
    epoch: int
    seq: int
    rows_behind: int  # ticks by which rows follow the journal
    here: bool = False


class ClusterRoute(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    home: int
    spread: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    nodes: tuple[ClusterNode, ...] = ()
    partitions: tuple[ClusterPartition, ...] = ()
    routes: tuple[ClusterRoute, ...] = ()


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """Where workers find the owner of each partition."""

    partitions: tuple[str, ...]  # addresses; "": nobody owns it now
    nodes: int  # how many there are
    store: str = ""  # identity of the store that they share
