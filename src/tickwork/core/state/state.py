"""What a partition holds in memory: unfinished work, and the limits it runs under.

Only `evolve` changes these values. Runs and tasks are flat structs that the garbage collector
never visits, kept in tables of small dicts: one dict of a million entries would stop the partition
for a quarter of a second whenever it grows. Everything that ended leaves memory. What there are few of, but is
counted up and down with every task, is a plain class with slots: writing a field of a struct takes twice as long.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.calendar.durations import instant_text
from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.calendar.schedule_spec import ScheduleSpec, SpecCache
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.definition.model import Retry
from tickwork.core.definition.plan import Plan, Step
from tickwork.core.state.bulk import BulkOperation
from tickwork.core.state.governor import Decision, GovernorState
from tickwork.core.state.history import History
from tickwork.core.state.inputs import Ingest, Input, RunTerms, Submit, UpdateAsset
from tickwork.core.state.mailboxes import Mailbox, MailboxMessage
from tickwork.core.state.messages import ReceivedEvent, RunMessages
from tickwork.core.state.ready_queues import (
    OWED_MS_MAX,
    SHARE_SCALE,
    Blocker,
    Labels,
    Limiter,
    LoadShedder,
    ReadyQueue,
    ReadyQueueKey,
    WorkerPool,
)
from tickwork.core.state.retry import RetryBudget
from tickwork.core.state.run_rates import RateKey
from tickwork.core.state.schedule import CatchUpChoice, CatchUpPlan, FateRange, GovernorLimits, HintOrigin
from tickwork.core.state.schedule import SchedulePolicy as ScheduleTerms
from tickwork.core.state.tables import NameTable, NumberTable, SmallTable
from tickwork.core.state.timing_wheel import Wheel
from tickwork.core.state.updates import Asset, ScheduleUpdates

NUMBER_BITS = 44  # of a number within its partition
NOTHING = (0, 0, 0)


class Timer(IntEnum):
    """What is due, in the order in which timers of one tick are taken. Never renumber: it is an order."""

    RUN_START = 0
    SCHEDULE = 1
    RETRY = 2
    WAIT = 3
    QUEUED = 4
    RUNNING = 5
    SILENT = 6
    RUN_TIMEOUT = 7
    RUN_RESUME = 8
    SLA = 9
    RATE = 10
    BACKFILL = 11
    REPEAT = 12
    MESSAGE = 13
    RATE_KEYS = 14


class LogicalClock(msgspec.Struct, frozen=True):
    """The logical clock. Fixed when a partition is created, apart from the tick itself."""

    origin_ms: int = 0
    resolution_ms: int = 1

    def ms_of(self, tick: int) -> int:
        return self.origin_ms + tick * self.resolution_ms

    def tick_at(self, instant_ms: int) -> int:
        """The first tick at or after an instant."""
        return -(-(instant_ms - self.origin_ms) // self.resolution_ms)

    def ticks(self, duration_ms: int) -> int:
        return -(-duration_ms // self.resolution_ms)


class Settings(msgspec.Struct, frozen=True):
    """Part of the state: a replay runs under the same ones."""

    clock: LogicalClock = LogicalClock()
    partition: int = 0  # whose numbers begin at `first_number`
    max_runs_per_tick: int = 500
    max_changes_per_tick: int = 5_000
    max_live_runs: int = 5_000_000
    ageing_ms: int = 60_000  # waiting this long is worth one level of priority
    dedupe_window_ms: int = 86_400_000
    shed_lag_ms: int = 0  # 0: never
    shed_below: int = 3  # lanes of lower priority than this are held first
    loss_allowance: int = 5  # attempts of one task that may end with their worker, beyond its retries
    retry_gap_ms: int = 1_000  # retries of one dependency beyond its burst are at least this far apart
    retry_burst: int = 10
    retry_earned_percent: int = 20  # of a retry, for each first attempt that succeeds

    @property
    def first_number(self) -> int:
        """Runs and tasks have numbers that no other partition gives, so that a number alone says where it lives."""
        return (self.partition << NUMBER_BITS) + 1


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant with its share, its counters, and the names that live under it."""

    id: str
    gauge: Limiter
    weight: int = 1
    max_live_runs: int = 1 << 62
    share_unit: int = SHARE_SCALE  # fair time per slot-millisecond: SHARE_SCALE // weight
    fair_time: int = 0
    charged_ms: int = 0  # up to when running work is in `fair_time`
    slots: int = 0  # of running work
    more: tuple[int, int, int] = NOTHING  # cpu, memory, gpu of running work
    usage: int = 0  # all of it as one number: slot-equivalents of its dominant resource
    queued: int = 0  # ready tasks in all of its lanes
    accepted: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    active: int = 0
    redrive_ms: int = 0  # when the next redriven run may start
    plans: dict[str, Plan] = field(default_factory=dict)  # the latest of each workflow
    versions: dict[str, Plan] = field(default_factory=dict)  # all of them, by hash
    runs: "NameTable[Run]" = field(default_factory=NameTable)
    keys: "NameTable[Run]" = field(default_factory=NameTable)
    debounced: "dict[tuple[str, str], Run]" = field(default_factory=dict)  # those that have not started
    workflow_gauges: dict[str, Limiter] = field(default_factory=dict)
    gates: "dict[tuple[str, str], ConcurrencyGate]" = field(default_factory=dict)
    rates: dict[str, dict[str, RateKey]] = field(default_factory=dict)  # by workflow and key: those that are not full
    waits: "dict[tuple[str, str], SmallTable[Task]]" = field(default_factory=dict)
    budgets: "dict[str, RetryBudget]" = field(default_factory=dict)
    schedules: "NameTable[Schedule]" = field(default_factory=NameTable)
    owned: "dict[str, dict[str, Schedule]]" = field(default_factory=dict)  # by application and name
    groups: "dict[str, Group]" = field(default_factory=dict)
    applications: "dict[str, dict[str, AppVersion]]" = field(default_factory=dict)
    holidays: dict[str, frozenset[str]] = field(default_factory=dict)
    mailboxes: dict[str, Mailbox] = field(default_factory=dict)
    assets: dict[str, Asset] = field(default_factory=dict)
    event_ids: "dict[str, EventId]" = field(default_factory=dict)  # of late, in the order in which they came
    # Schedules that listen, with the sources of each, by kind and name of the update: found again from the schedules.
    listeners: dict[tuple[str, str], dict[int, tuple[int, ...]]] = field(default_factory=dict)
    bulks: dict[str, BulkOperation] = field(default_factory=dict)  # in the order of their starts
    lanes: dict[Step, ReadyQueue] = field(default_factory=dict)  # finds the lane of a node quickly
    pinned_lanes: dict[tuple[str, Step], ReadyQueue] = field(default_factory=dict)  # likewise, where its run has a pin
    newest: dict[tuple[str, str], str] = field(default_factory=dict)  # workflow and hash: the latest version with it

    def fair_time_at(self, now_ms: int) -> int:
        return self.fair_time + self.usage * (now_ms - self.charged_ms) * self.share_unit

    def settle(self, now_ms: int) -> None:
        self.fair_time += self.usage * (now_ms - self.charged_ms) * self.share_unit
        self.charged_ms = now_ms


class ConcurrencyGate(msgspec.Struct, eq=False):
    """A workflow's concurrency key: how many runs hold it, and who is next."""

    key: str
    limit: int
    holding: int = 0
    holder: int = 0  # number of the last run that took it, where a later one may replace it
    line: "deque[Run]" = msgspec.field(default_factory=deque)  # in order of arrival


class QueuedCommand(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A command of a task on its way to another partition."""

    number: int
    request: Submit | Ingest | UpdateAsset
    origin: str  # which task of which run


class Extract(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What rules read of a value that is not inline, or why they cannot."""

    value: bytes | None
    code: str = ""
    message: str = ""


class Run(msgspec.Struct, gc=False, eq=False):
    number: int
    id: str
    tenant: Tenant
    plan: Plan
    inputs: Value
    by: str  # who requested it
    source: str  # api, schedule, child, rerun …
    submitted: int  # tick
    phases: bytearray  # of each node, by index
    counts: bytearray | list[int] | None  # unfinished parents of each node; None for a single node
    unfinished: int
    wanted: int = 0  # tick since when it waits for a visit; 0: it does not
    visited: int = 0  # what `wanted` was before its visit in this tick
    todo: tuple[int, ...] | list[int] = ()  # nodes whose parents have all ended
    shelf: "dict[str, Run] | None" = None  # where its tenant finds it by id
    state: int = 0
    started: int = 0  # tick
    priority: int = -1  # -1: as the nodes say
    busy: int = 0  # tasks ready, running, in backoff or checking
    waiting: int = 0  # tasks that wait
    failures: int = 0  # nodes that failed
    results: dict[int, Value] | None = None
    key: str = ""
    body: str = ""  # digest of what was submitted under the key
    start_at: int = 0  # tick of its delayed start
    debounce: str = ""
    gate: ConcurrencyGate | None = None
    gated: bool = False  # stands in the gate's line
    parent: int = 0  # number of the task whose child this run is
    child: int = 0
    parent_run: int = 0  # number of the run that this one is a child of
    signals: list[ReceivedEvent] | None = None
    deadline: int = 0  # tick
    resume_at: int = 0  # tick at which a policy's pause ends
    pause_reason: str = ""
    scheduled_ms: int = 0  # the nominal time, for a scheduled run
    schedule: str = ""
    queue: str = ""  # of its schedule, for nodes that name none
    backfill: int = 0  # whose run this is
    decided: str = ""  # why then, of a governed schedule: the Governor's source
    pin: str = ""  # `application@version` of the workers that may have it, or after `~` of those that come first
    sla_at: int = 0  # tick of the next point of its service level
    sla_next: int = 0  # which of the plan's points that is
    fanning: "SmallTable[Task] | None" = None  # maps, repeats and child workflows in progress, by node
    tried: int = 0  # the highest attempt of a node that ended without success
    before: int = 0  # what that was when it was brought back: its attempts are counted on from there
    extracts: "dict[tuple[int, str], Extract | None] | None" = None  # by source and key; None: sought, not here yet
    held: tuple[int, ...] = ()  # nodes that wait for an extract; found again from `phases` and `counts`
    overdue: int = 0  # tick at which its time was over; since then only its clean-up goes on
    chosen: dict[int, tuple[str, Labels]] | None = None  # queue and labels of nodes that take them from values
    history: History | None = None  # of its durable function, while that has no task: it failed and is to go on
    errors: dict[int, tuple[str, str]] | None = None  # by node: type and message, where a follow-up will ask for them
    messages: RunMessages | None = None  # updates that were received, and values that were published
    ending: tuple[int, str] | None = None  # trigger and reason of its end, while only its teardowns go on
    own: RunTerms | None = None  # what its submission said instead of its workflow
    rate_key: str | None = None  # its turn in the rate of its workflow is taken


class Task(msgspec.Struct, gc=False, eq=False):
    """A node that has been reached and has not ended, or one child of a map or repeat."""

    number: int
    run: Run
    step: Step
    phase: int
    attempt: int = 0
    order: int = 0  # place in its lane; unique in the partition
    ready_ms: int = 0
    lane: ReadyQueue | None = None
    queued: bool = False  # stands in its lane
    started: bool = False  # the worker said so
    worker: "Worker | None" = None
    due: int = 0  # tick of the timer that belongs to its phase
    silent_at: int = 0  # tick of the silence timer
    heard: int = 0  # tick of the last word from its attempt
    losses: int = 0  # attempts that ended with their worker
    returns: int = 0  # attempts that their worker handed back unfinished, or had no function for
    checkpoint: Value = None
    parent: int = 0  # number of the map or repeat that it is a child of
    child: int = -1
    fan: "FanOut | None" = None
    cache_key: str = ""
    wait_key: tuple[str, str] | None = None
    dispatched: int = 0  # tick
    history: History | None = None  # the steps it recorded, and what it awaits


def retry_of(task: Task) -> Retry:
    """What its node says, else the submission of its run, else the workflow."""
    own = task.run.own
    if own is None or own.retry is None or getattr(task.step.node, "retry", None) is not None:
        return task.step.retry
    return own.retry


def run_timeout_ms(run: Run) -> int | None:
    """How long the whole run may take."""
    own_ms = run.own.timeout_ms if run.own is not None else None
    return run.plan.definition.timeout_ms if own_ms is None else own_ms


def tries_of(task: Task) -> int:
    """Attempts that count for its retries: not those that ended with their worker or were handed back, nor those of a
    time before its run was brought back."""
    before = 0 if task.parent else task.run.before
    if task.history is not None:
        before = max(before, task.history.past)
    return task.attempt - task.losses - task.returns - before


class FanOut(msgspec.Struct, eq=False):
    """A map is one counter plus the children that were started; a repeat is a map of one at a time."""

    total: int
    begun: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    rested: int = 0  # the turn before which a repeat has had its rest
    last: Value = None
    max_parallel: int = 0  # where a value said it; 0: as the definition says
    failed_in_a_row: int = 0  # turns of a repeat
    deadline: int = 0  # tick at which the time of a repeat is over
    live: dict[int, int] = msgspec.field(default_factory=dict)  # child index -> task or run number
    idle: int = 0  # child runs that wait or are paused; follows from their states
    keys: tuple[str, ...] | None = None  # of the object over whose entries a map goes


@dataclass(slots=True, eq=False)
class Worker:
    number: int
    id: str
    queues: tuple[str, ...]
    labels: dict[str, str]
    capacity: tuple[int, int, int, int]
    credit: int = 0  # how many attempts it is ready to hold in all
    tasks: dict[int, Task] = field(default_factory=dict)
    slots: int = 0  # in use
    more: tuple[int, int, int] = NOTHING  # cpu, memory, gpu in use
    stations: tuple[WorkerPool, ...] = ()
    lacks: tuple[str, ...] = ()  # handlers that its code is known not to have
    start: str = ""  # which start of it; a later one under the same name has none of its attempts
    process: str = ""  # of the operating system


class MissingHandlers(msgspec.Struct):
    """What some code is known not to have, and how many workers have that code."""

    handlers: tuple[str, ...]
    workers: int


class Queue(msgspec.Struct, eq=False):
    name: str
    gauge: Limiter
    removed: bool = False  # nothing new may name it; tasks of earlier versions still find it, without limits


class Policy(msgspec.Struct, eq=False):
    name: str
    allow: str  # CEL
    reason: str
    action: str
    pause_ms: int


class Schedule(msgspec.Struct, gc=False, eq=False):
    """What fires by itself. The next occurrence is always the first that has no fate yet."""

    number: int
    tenant: Tenant
    name: str
    workflow: str
    when: ScheduleSpec
    rhythm: Recurrence | None  # None: its times can no longer be computed (`broken` says why)
    terms: ScheduleTerms
    inputs: Value
    context: Value
    by: str
    owner: str
    description: str
    made_ms: int
    version: int = 1  # raised with every edit
    next_ms: int = 0  # nominal; 0: none
    wait_ms: int = 0  # jitter of that start
    due: int = 0  # tick at which it wants to be looked at
    fired: int = 0  # runs that were due
    last_fired_ms: int = 0
    last_success_ms: int = 0  # nominal time of the last run that completed
    failures: int = 0  # in a row
    paused: bool = False
    archived: bool = False
    pause_reason: str = ""
    paused_until_ms: int = 0
    resumed_ms: int = 0  # what was due before and has no fate was due in a pause
    active: tuple[int, ...] = ()  # its live runs
    buffer: tuple[int, ...] = ()  # nominal times that wait for one of those to end
    late: CatchUpPlan | None = None
    # The last range of fates, which may still grow by an occurrence at `joins_ms`. In fields of its own, because it
    # grows with nearly every occurrence.
    span_from_ms: int = 0
    span_to_ms: int = 0
    span_count: int = 0  # 0: there is none
    span_fate: int = 0
    span_cause: str = ""
    joins_ms: int = 0
    fates: tuple[int, ...] = (0, 0, 0, 0, 0)  # how many of each
    governing: GovernorLimits | None = None
    course: GovernorState | None = None
    decision: Decision | None = None
    advice: HintOrigin | None = None
    ended: int = 0  # state of the last governed run, until the Governor has heard of it
    begun_ms: int = 0  # when that run began
    broken: str = ""
    updates: ScheduleUpdates | None = None  # where updates fire it

    @property
    def span(self) -> FateRange | None:
        if not self.span_count:
            return None
        return FateRange(
            self.tenant.id, self.name, self.number, self.version,
            self.span_from_ms, self.span_to_ms, self.span_count, self.span_fate, self.span_cause,
        )  # fmt: skip

    @property
    def is_plain(self) -> bool:
        """Nothing but its next time says when it wants to be looked at; so it is with most."""
        return not (
            self.paused or self.archived or self.buffer or self.late is not None or self.governing is not None
            or self.terms.group or self.terms.pause_after or self.terms.depends_on_past or self.updates is not None
        )  # fmt: skip


class EventId(msgspec.Struct, frozen=True, gc=False):
    """The id of an event that came: the same one again is not another event."""

    number: int
    tenant: str
    id: str
    came: int  # tick


class AppVersion(msgspec.Struct, eq=False):
    """A version of an application's code, and what it declares."""

    number: int
    name: str
    timestamp_ms: int  # the highest is the latest
    created_ms: int
    workflows: dict[str, str] = msgspec.field(default_factory=dict)  # name to hash
    declared: bytes | None = b"\x90"  # its schedules; None: no longer kept
    carried: bool = False  # by scheduled runs of its workflows, while it is the latest


class Group(msgspec.Struct, eq=False):
    """Schedules that are paused together."""

    name: str
    paused: bool = False
    reason: str = ""
    members: dict[int, None] = msgspec.field(default_factory=dict)


class BackfillState(IntEnum):
    ACTIVE = 0
    PAUSED = 1
    DONE = 2
    CANCELLED = 3


class Backfill(msgspec.Struct, gc=False, eq=False):
    """A walk over a window of a schedule's times, a few runs at once. It leaves memory when it has ended."""

    number: int
    schedule: Schedule
    by: str
    from_ms: int
    to_ms: int
    concurrency: int
    priority: int
    newest_first: bool
    forced: bool
    begun_ms: int
    cursor_ms: int  # the next time to look at
    state: int = 0
    exhausted: bool = False  # nothing is left beyond the cursor
    lookups: tuple[int, ...] = ()  # due times of which the shell looks whether they ran
    ready: tuple[int, ...] = ()  # these are to run
    running: tuple[int, ...] = ()
    started: int = 0
    known: int = 0  # had run before
    succeeded: int = 0
    failed: int = 0
    due: int = 0  # tick at which it wants to be looked at
    span: FateRange | None = None


class Fired(NamedTuple):
    """A run that its schedule began, and what of the schedule explains why it began then."""

    run: int
    terms: ScheduleTerms
    decision: Decision | None = None
    advice: HintOrigin | None = None
    failures: int = 0


@dataclass(slots=True, eq=False)
class State:
    """One partition. Fields above the line are state; those below it only find things faster."""

    settings: Settings = field(default_factory=Settings)
    tick: int = 0
    now_ms: int = 0
    next_number: int = 1  # of runs, tasks, workers, schedules: one counter for all
    next_order: int = 1
    fair_floor: int = 0  # fair time of the tenant that started last; a newcomer begins here
    capacity: tuple[int, int, int, int] = (0, 0, 0, 0)
    owed_max: int = OWED_MS_MAX * SHARE_SCALE  # fair time by which a tenant may lag behind; grows with capacity
    live_runs: int = 0
    stale: int = 0  # reports of attempts that were no longer theirs
    refused: int = 0
    tenants: dict[str, Tenant] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    rated: dict[int, Limiter] = field(default_factory=dict)  # gauges that can have a rate, by number
    label_gauges: dict[tuple[str, str], Limiter] = field(default_factory=dict)
    policies: dict[str, Policy] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    workers: dict[int, Worker] = field(default_factory=dict)
    schedules: NumberTable[Schedule] = field(default_factory=NumberTable)
    backfills: dict[int, Backfill] = field(default_factory=dict)
    messages: NumberTable[MailboxMessage] = field(default_factory=NumberTable)  # of mailboxes
    assets: NumberTable[Asset] = field(default_factory=NumberTable)
    event_ids: NumberTable[EventId] = field(default_factory=NumberTable)
    runs: NumberTable[Run] = field(default_factory=NumberTable)
    tasks: NumberTable[Task] = field(default_factory=NumberTable)
    lanes: dict[ReadyQueueKey, ReadyQueue] = field(default_factory=dict)
    shed: LoadShedder = field(default_factory=LoadShedder)
    gauge: Limiter = field(default_factory=lambda: Limiter(scope="partition", name=""))  # pauses all dispatch
    stamp: int = 0  # tick that a run wanted now is noted with
    choice: CatchUpChoice | None = None  # how to catch up with what was late when it was made
    timers_held: bool = False  # logical time is ahead of real time: no timer fires
    outbox: dict[int, list[QueuedCommand]] = field(default_factory=dict)  # by partition, in order: not acknowledged yet
    sent: dict[int, int] = field(default_factory=dict)  # number of the last command for each partition
    received: dict[int, int] = field(default_factory=dict)  # number of the last command of each partition
    rate_keys_due: int = 0  # tick at which full buckets of rates are looked for; 0: there are none
    zones_version: str = ""  # of the zone data by which next times were last computed; "": never
    created_with: Settings | None = None  # where settings have changed since: those of the first tick
    # ---- found again from the fields above
    wheel: Wheel = field(default_factory=Wheel)
    worker_bits: int = 0  # worker numbers in use; they are given again
    worker_numbers: dict[str, int] = field(default_factory=dict)
    stations: dict[tuple[str, Labels], WorkerPool] = field(default_factory=dict)
    lacking: dict[str, MissingHandlers] = field(default_factory=dict)  # by code, where some of its workers are here
    divided: dict[tuple[str, Labels, str], bool] = field(default_factory=dict)  # whether only some lack a handler
    lane_numbers: dict[int, ReadyQueue] = field(default_factory=dict)
    line: deque[Run] = field(default_factory=deque)  # runs to visit, those of earlier ticks first
    fresh: list[Run] = field(default_factory=list)  # wanted since the last visit
    open: list[ReadyQueue] = field(default_factory=list)  # lanes with work that nothing holds yet
    stirred: list[Blocker] = field(default_factory=list)  # blockers that may have room again
    protected: int = 0  # ready tasks of priority at or above settings.shed_below
    inputs: list[Input] = field(default_factory=list)  # of this tick; events point into it
    zones: Zones = UTC_ONLY  # given by the shell, the same for every tick that it decides
    parts: SpecCache = field(default_factory=SpecCache)  # equal expressions are compiled once
    terms: dict[ScheduleTerms, ScheduleTerms] = field(default_factory=dict)  # equal ones are one object
    listening: int = 0  # schedules that listen to the ends of runs
    # ---- of this tick, for those who write rows
    closed: list[Run] = field(default_factory=list)  # runs that ended
    ended: list[Task] = field(default_factory=list)  # tasks that ended, with their run or before it
    let_in: list[tuple[Run, str]] = field(
        default_factory=list
    )  # runs to which the end of another (its id) gave a place
    changed_messages: list[int] = field(
        default_factory=list
    )  # messages of mailboxes that got their fate or left, and ids of events that left
    released: list[ReadyQueue] = field(default_factory=list)  # ready queues that were held and are empty now
    fired: list[Fired] = field(default_factory=list)  # how schedules were when runs of theirs began
    spans: list[FateRange] = field(default_factory=list)  # ranges of fates that will not grow any more
    left_backfills: list[Backfill] = field(default_factory=list)  # those that ended

    def __post_init__(self) -> None:
        self.gauge.name = str(self.settings.partition)

    @property
    def first_settings(self) -> Settings:
        """Those that a replay from the first row begins with."""
        return self.created_with or self.settings

    def has_queue(self, name: str) -> bool:
        """Whether something new may name this queue."""
        queue = self.queues.get(name)
        return queue is not None and not queue.removed

    def at(self, tick: int) -> str:
        """The instant of a tick, for people."""
        return instant_text(self.settings.clock.ms_of(tick))


def first_state(settings: Settings | None = None, zones: Zones = UTC_ONLY) -> State:
    """Return the state of a partition before its first tick."""
    settings = settings or Settings()
    return State(settings=settings, next_number=settings.first_number, zones=zones)
