"""A journal read by somebody who knows nothing of the machine: only inputs, events and the published tables.

`walk` goes through a journal event by event and gives each one with the ledger as it stands just before it.
The ledger counts for itself. It believes what it reads, also what makes no sense: finding that is left to
the checkers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tickwork.core.calendar.durations import instant_text
from tickwork.core.decide.commands.rerun import kept_steps
from tickwork.core.definition.model import ApprovalNode, EventNode, MapNode
from tickwork.core.definition.plan import Kind, Plan, Step, plan_of
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.history import Await
from tickwork.core.state.lifecycle import ENDED, RUN_MOVES, TASK_MOVES, Cause, Phase, RunState, RunTrigger
from tickwork.core.state.state import Settings, Timer

Row = tuple[int, list[Any], list[Any]]  # tick, inputs, events
Due = tuple[int, int, int]  # tick, kind of timer, number
DONE = (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


@dataclass
class Run:
    number: int
    id: str
    tenant: str
    plan: Plan
    by: str
    submitted: int
    inputs: Any = None
    priority: int = -1
    state: int = RunState.PENDING
    phases: list[int] = field(default_factory=list)
    key: str = ""
    body: str = ""
    start_at: int = 0
    gate: tuple[str, str, str] | None = None
    parent: int = 0
    child: int = 0
    since: int = 0  # tick of its start, or of its return
    resume_at: int = 0
    scheduled_ms: int = 0
    sla_next: int = 0
    sla_at: int = 0
    wanted: int = 0
    queue: str = ""
    visited: int = 0  # what `wanted` was before the visit
    before: int = 0  # attempts of its nodes are counted on from here
    overdue_until: int = 0  # only its clean-up goes on, until this tick
    ending_until: int = 0  # only its teardowns go on, until this tick
    chosen: dict[int, tuple[str, tuple[tuple[str, str], ...]]] = field(default_factory=dict)  # by node


@dataclass
class Task:
    number: int
    run: Run
    step: Step
    phase: int
    parent: int = 0
    child: int = -1
    attempt: int = 0
    losses: int = 0
    returns: int = 0
    worker: int = -1
    due: int = 0
    ready_at: int = 0
    dispatched: int = 0
    heard: int = 0
    queued: bool = False
    total: int = 0
    deadline: int = 0  # of a repeat
    max_parallel: int = 0
    begun: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    live: dict[int, int] = field(default_factory=dict)
    awaits: dict[int, tuple[int, Await]] = field(default_factory=dict)  # of a function: tick of its end, request
    past: int = 0  # attempts of a function until its last suspension
    met: int = 0  # tick in which time last met one of its awaits
    armed: int = 0  # tick in which its timer was last set: an await that was over by then is met in a later one
    timed_out: bool = False  # a repeat whose time is over

    @property
    def tries(self) -> int:
        """Those that count for its retries."""
        return self.attempt - self.losses - self.returns - max(self.past, 0 if self.parent else self.run.before)

    @property
    def gives(self) -> bool:
        """A map whose children are tasks and that may begin one more."""
        node = self.step.node
        if not isinstance(node, MapNode) or self.step.body is None or self.step.body.kind is not Kind.WORK:
            return False
        most = self.max_parallel or node.max_parallel
        return self.begun < self.total and (most is None or self.running < most)


@dataclass
class Worker:
    id: str
    credit: int
    queues: tuple[str, ...]
    labels: dict[str, str]
    capacity: tuple[int, int, int, int]
    held: dict[int, None] = field(default_factory=dict)


@dataclass
class Limit:
    """What is in force for a tenant, queue or label, and since when."""

    running_max: int | None = None
    rate_starts: int | None = None
    rate_ms: int = 1_000
    burst: int = 0
    paused: bool = False


class Moment(NamedTuple):
    tick: int
    asked: list[Any]
    event: Any


def walk(settings: Settings, rows: list[Row]) -> "Iterator[tuple[Ledger, Moment]]":
    """Each event, with the ledger just before it."""
    ledger = Ledger(settings)
    for tick, asked, events in rows:
        ledger.begin(tick)
        for event in events:
            moment = Moment(tick, asked, event)
            yield ledger, moment
            ledger.enter(moment)


class Ledger:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tick = self.stamp = 0
        self.runs: dict[int, Run] = {}
        self.past: dict[int, Run] = {}  # runs that ended, by number
        self.tasks: dict[int, Task] = {}
        self.mailboxes: dict[tuple[str, str], int] = {}  # how long each keeps its messages, in ms
        self.messages: dict[int, int] = {}  # of mailboxes: when each is due
        self.plans: dict[str, Plan] = {}
        self.latest: dict[tuple[str, str], Plan] = {}
        self.workers: dict[int, Worker] = {}
        self.limits: dict[tuple[str, ...], Limit] = {}
        self.live_runs_max: dict[str, int | None] = {}
        self.schedules: dict[int, inp.PutSchedule] = {}
        self.backfills: dict[int, int] = {}  # their priority
        self.schedule_due: dict[int, int] = {}
        self.gates: dict[tuple[str, str, str], list[int]] = {}
        self.lines: dict[tuple[str, str, str], list[int]] = {}
        self.shedding = False

    def begin(self, tick: int) -> None:
        self.tick = self.stamp = tick

    def enter(self, moment: Moment) -> None:
        handler = _HANDLERS.get(type(moment.event))
        if handler is not None:
            handler(self, moment.event, moment.asked)

    # ---- looking

    def now_ms(self) -> int:
        return self.settings.clock.ms_of(self.tick)

    def ticks(self, ms: int) -> int:
        return self.settings.clock.ticks(ms)

    def run_of(self, event: Any) -> Run | None:
        """The run that an event is about, if it is there."""
        number = getattr(event, "run", None)
        if number is not None:
            return self.runs.get(number)
        task = self.task_of(event)
        return task.run if task is not None else None

    def task_of(self, event: Any) -> Task | None:
        if type(event) is ev.ChildDispatched or type(event) is ev.IterationStarted:
            return self.tasks.get(event.parent)
        return self.tasks.get(getattr(event, "task", -1))

    def step_of(self, event: Any) -> tuple[Run, Step] | None:
        run = self.runs.get(event.run)
        return (run, run.plan.steps[event.step]) if run is not None and event.step < len(run.plan.steps) else None

    def cause_of(self, event: Any) -> Cause | None:
        """By which cause an event moves a task or node; None where it moves none."""
        task = self.task_of(event)
        match event:
            case ev.TaskDue() if task is not None and task.step.kind is Kind.WORKFLOW:
                return Cause.WAIT
            case ev.WaitElapsed() if task is not None and task.step.kind is Kind.REPEAT:
                return None
            case ev.StepEnded() | ev.StepAccepted():
                return _PHASE_CAUSES.get(Phase(event.phase))
            case _:
                return _CAUSES.get(type(event))

    def phase_of(self, event: Any) -> int | None:
        """The phase of what an event moves, before it does."""
        if hasattr(event, "step"):
            found = self.step_of(event)
            return None if found is None else found[0].phases[event.step]
        task = self.tasks.get(event.task)
        return None if task is None else task.phase

    def due_of(self, event: Any) -> Due | None:
        """Tick, kind and number of the timer by which an event happens; None where no timer is behind it."""
        task = self.tasks.get(getattr(event, "task", -1))
        run = self.runs.get(getattr(event, "run", -1))
        match event:
            case ev.RunDue() if run is not None:
                return (run.start_at, Timer.RUN_START, run.number)
            case ev.TaskDue(input=-1) if task is not None:
                return (task.due, Timer.RETRY, task.number)
            case ev.WaitElapsed() if task is not None:
                return (task.due, Timer.WAIT, task.number)
            case ev.TaskFailed(code="timeout", input=-1) if task is not None and isinstance(
                task.step.node, EventNode | ApprovalNode
            ):
                return (task.due, Timer.WAIT, task.number)
            case ev.MessageExpired():
                return (self.messages.get(event.message, 0), Timer.MESSAGE, event.message)
            case ev.RepeatTimedOut() if task is not None:
                return (task.deadline, Timer.REPEAT, task.number)
            case ev.TaskFailed(code="queued_timeout") if task is not None:
                return (task.ready_at + self.ticks(task.step.timeout.queued_ms or 0), Timer.QUEUED, task.number)
            case ev.TaskRetrying(input=-1, cause=error) | ev.TaskFailed(input=-1, code=error) if task is not None:
                timeout = task.step.timeout
                if error == "Timeout":
                    return (task.dispatched + self.ticks(timeout.running_ms or 0), Timer.RUNNING, task.number)
                if error == "Silent":
                    return (task.heard + self.ticks(timeout.silent_ms or 0), Timer.SILENT, task.number)
            case ev.RunMoved(trigger=RunTrigger.TIME_OUT) if run is not None and run.overdue_until:
                ended = all(phase in ENDED for phase in run.phases)
                return None if ended else (run.overdue_until, Timer.RUN_TIMEOUT, run.number)
            case ev.RunOverdue() | ev.RunMoved(trigger=RunTrigger.TIME_OUT) if run is not None:
                return (run.since + self.ticks(run.plan.definition.timeout_ms or 0), Timer.RUN_TIMEOUT, run.number)
            case ev.RunMoved(trigger=RunTrigger.RESUME, input=-1, reason="the pause is over") if run is not None:
                return (run.resume_at, Timer.RUN_RESUME, run.number)
            case ev.SlaReached() if run is not None:
                return (run.sla_at, Timer.SLA, run.number)
            case ev.AwaitMet() if task is not None and self.is_timed(event) and self.stamp == self.tick != task.met:
                earliest = min(due for due, _ in task.awaits.values() if due)
                return (max(earliest, task.armed + 1), Timer.WAIT, task.number)
        return None

    def is_timed(self, event: ev.AwaitMet) -> bool:
        """Whether time alone is behind this outcome."""
        return event.input < 0 and event.kept < 0 and not event.taken and event.error in ("", "timeout")

    def requirement(self, task: Task) -> tuple[str, int, tuple[tuple[str, str], ...], tuple[int, int, int, int], str]:
        """Queue, priority, labels, resources, dependency."""
        queue, priority, labels, resources, dependency = task.step.requirement
        if queue == "default" and task.run.queue:
            queue = task.run.queue
        if task.step.index in task.run.chosen:
            chosen, more = task.run.chosen[task.step.index]
            queue, labels = chosen or queue, tuple(sorted((dict(labels) | dict(more)).items()))
        return (queue, task.run.priority if task.run.priority >= 0 else priority, labels, resources, dependency)

    def running_under(self, scope: tuple[str, ...]) -> int:
        return sum(scope in self.scopes(task) for task in self.tasks.values() if task.phase == Phase.RUNNING)

    def scopes(self, task: Task) -> list[tuple[str, ...]]:
        queue, _, labels, _, _ = self.requirement(task)
        tenant = task.run.tenant
        own = [("partition",), ("tenant", tenant), ("workflow", tenant, task.run.plan.name), ("queue", queue)]
        return [*own, *(("label", *label) for label in labels)]

    # ---- set up

    def _definition(self, event: ev.DefinitionPut, asked: list[Any]) -> None:
        plan = plan_of(asked[event.input].document)
        self.plans[event.hash] = plan
        self.latest[asked[event.input].tenant, plan.name] = plan

    def _tenant(self, event: ev.TenantPut, asked: list[Any]) -> None:
        put = asked[event.input]
        self._limit(("tenant", put.tenant), put)
        self.live_runs_max[put.tenant] = put.max_live_runs

    def _queue(self, event: ev.QueuePut, asked: list[Any]) -> None:
        self._limit(("queue", asked[event.input].queue), asked[event.input])

    def _queue_removed(self, event: ev.QueueRemoved, asked: list[Any]) -> None:
        """What the queue still had to give keeps nothing back: no limit, and no pause."""
        name = asked[event.input].queue
        self._limit(("queue", name), inp.PutQueue("", name))
        self.limits["queue", name].paused = False

    def _settings(self, event: ev.SettingsPut, asked: list[Any]) -> None:
        self.settings = msgspec.structs.replace(self.settings, **asked[event.input].values)

    def _workflow_removed(self, event: ev.WorkflowRemoved, asked: list[Any]) -> None:
        del self.latest[asked[event.input].tenant, asked[event.input].workflow]

    def _limit(self, scope: tuple[str, ...], put: Any) -> None:
        limit = self.limits.setdefault(scope, Limit())
        limit.running_max, limit.rate_starts, limit.rate_ms = put.limit, put.rate_starts, put.rate_ms
        limit.burst = (put.rate_starts or 0) if put.burst is None else put.burst

    def _label(self, event: ev.LabelLimitPut, asked: list[Any]) -> None:
        put = asked[event.input]
        self.limits.setdefault(("label", put.label, put.value), Limit()).running_max = put.limit

    def _schedule(self, event: ev.SchedulePut, asked: list[Any]) -> None:
        put = asked[event.input]
        self.schedules[event.schedule] = put.puts[event.item] if event.item >= 0 else put
        self.schedule_due[event.schedule] = event.next_ms

    def _schedule_told(self, event: Any, _asked: list[Any]) -> None:
        self.schedule_due[event.schedule] = event.next_ms

    def _schedule_decided(self, event: ev.ScheduleDecided, _asked: list[Any]) -> None:
        self.schedule_due[event.schedule] = event.decision.next_ms or 0

    def _schedule_removed(self, event: ev.ScheduleRemoved, _asked: list[Any]) -> None:
        self.schedules.pop(event.schedule, None)

    def _paused(self, event: ev.ScopePaused | ev.ScopeResumed, asked: list[Any]) -> None:
        put = asked[event.input]
        scope = {
            "partition": ("partition",),
            "queue": ("queue", put.name),
            "tenant": ("tenant", put.tenant),
            "workflow": ("workflow", put.tenant, put.name),
        }.get(put.scope)
        if scope is not None:
            self.limits.setdefault(scope, Limit()).paused = type(event) is ev.ScopePaused
        elif put.scope == "schedule":
            self._reset_schedules(put)

    def _reset_schedules(self, put: inp.Pause | inp.Resume) -> None:
        """While it is paused it has no time; on resuming it takes the next one from then on, which no event names."""
        for number, schedule in self.schedules.items():
            if (schedule.tenant, schedule.schedule) == (put.tenant, put.name):
                self.schedule_due[number] = -1 if isinstance(put, inp.Pause) else 0

    # ---- runs

    def _add(self, run: Run, phases: list[int] | None = None) -> None:
        run.phases = phases or [Phase.PENDING] * len(run.plan.steps)
        self.runs[run.number] = run

    def _arrive(self, run: Run, phases: list[int] | None = None) -> None:
        self._add(run, phases)
        self._arm_sla(run)
        if not run.start_at:
            self._want(run)

    def _want(self, run: Run) -> None:
        run.wanted = run.wanted or self.stamp

    def _arm_sla(self, run: Run) -> None:
        points = run.plan.sla_points
        if run.sla_next < len(points):
            base_ms = run.scheduled_ms or self.settings.clock.ms_of(run.submitted)
            run.sla_at = max(self.settings.clock.tick_at(base_ms + points[run.sla_next][0]), self.tick)

    def plan_for(self, asked: inp.Submit) -> Plan | None:
        wanted = asked.terms.definition if asked.terms is not None else ""
        return self.plans.get(wanted) if wanted else self.latest.get((asked.tenant, asked.workflow))

    def _submitted(self, event: ev.RunSubmitted, asked: list[Any]) -> None:
        put = request_of(event, asked)
        if not isinstance(put, inp.Submit):
            return
        plan, terms = self.plan_for(put), put.terms or inp.SubmitOptions()
        if plan is None:
            return
        run = Run(event.run, put.run_id, put.tenant, plan, put.by, self.tick, put.inputs)
        run.key, run.body, run.start_at = terms.key, terms.body, event.start_at
        run.priority = -1 if terms.priority is None else terms.priority
        self._arrive(run)

    def _debounced(self, event: ev.RunDebounced, asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.by, run.start_at, run.inputs = asked[event.input].by, event.start_at, asked[event.input].inputs

    def _rated(self, event: ev.RunRated, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.start_at = event.start_at

    def _run_due(self, event: ev.RunDue, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.start_at = 0
            self._want(run)

    def _scheduled(self, event: ev.RunScheduled, asked: list[Any]) -> None:
        put = self.schedules.get(event.schedule)
        if event.way == "due":
            self.schedule_due[event.schedule] = event.next_ms
        if put is None:
            return
        by = asked[event.input].by if event.input >= 0 else put.by
        way = f"{event.way}-" if event.way in ("trigger", "test") else ""
        name = f"sched-{put.schedule}-{way}{instant_text(event.due_ms)}"
        run = Run(event.run, name, put.tenant, self.latest[put.tenant, put.workflow], by, self.tick, put.inputs)
        run.scheduled_ms, run.queue, run.start_at = event.due_ms, put.terms.queue, event.start_at
        run.priority = put.terms.priority
        if event.backfill:
            run.priority = self.backfills[event.backfill]
        self._arrive(run)

    def _backfill(self, event: ev.BackfillStarted, asked: list[Any]) -> None:
        put = asked[event.input]
        number = next(number for number, one in self.schedules.items() if (one.tenant, one.schedule) == (
            put.tenant, put.schedule))  # fmt: skip
        self.backfills[event.backfill] = self.schedules[number].terms.priority if put.priority is None else put.priority

    def _spawned(self, event: ev.RunSpawned, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is None or event.definition not in self.plans:
            return
        parent = task.run
        name = f"{parent.id}.{task.step.id}.{event.child}.{event.run}"
        run = Run(event.run, name, parent.tenant, self.plans[event.definition], parent.by, self.tick, event.inputs)
        run.parent, run.child, run.priority = task.number, event.child, parent.priority
        self._child_begins(task, event.child, event.run)
        self._arrive(run)

    def _detached(self, event: ev.RunDetached, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        parent = self.tasks.get(run.parent) if run is not None else None
        if run is not None and parent is not None:
            parent.live.pop(run.child, None)
            parent.running -= 1
            run.parent = run.child = 0

    def _follow_up(self, event: ev.FollowUpStarted, _asked: list[Any]) -> None:
        before = self.runs.get(event.of)
        if before is None or event.definition not in self.plans:
            return
        word = "success" if event.cause == "completed" else "failure"
        name = f"{before.id}.on_{word}.{event.run}"
        run = Run(event.run, name, before.tenant, self.plans[event.definition], before.by, self.tick)
        run.priority = before.priority
        self._arrive(run)

    def _restored(self, event: ev.RunRestored, asked: list[Any]) -> None:
        put = asked[event.input]
        record = put.record if isinstance(put, inp.Resolve) else put.records[event.record]
        run = Run(record.number, record.run_id, put.tenant, self.plans[record.definition], record.by, record.submitted)
        run.state, run.inputs, run.priority = record.state, record.inputs, record.priority
        run.key, run.body, run.start_at, run.scheduled_ms = (
            record.key, record.body, event.start_at, record.scheduled_ms
        )  # fmt: skip
        run.sla_next, run.before = len(run.plan.sla_points), record.tried
        self._add(run, list(record.phases))

    def _rerun(self, event: ev.RunRerun, asked: list[Any]) -> None:
        put: inp.Rerun = asked[event.input]
        old = self.plans[put.record.definition]
        plan = self.plans[put.definition] if put.definition else old
        inputs = put.inputs if put.change_inputs else put.record.inputs
        phases = [int(Phase.PENDING)] * len(plan.steps)
        kept = {} if put.from_start else kept_steps(old, put.record, plan, put.from_node, inputs)
        for index, place in kept.items():
            phase = put.record.phases[place]
            phases[index] = phase
        self._arrive(Run(event.run, put.run_id, put.tenant, plan, put.by, self.tick, inputs), phases)

    def _gated(self, event: ev.RunGated, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.gate = (run.tenant, run.plan.name, event.key)
            self.lines.setdefault(run.gate, []).append(run.number)

    def _gate_taken(self, event: ev.GateTaken, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.gate = (run.tenant, run.plan.name, event.key)
            self.gates.setdefault(run.gate, []).append(run.number)

    def _moved(self, event: ev.RunMoved, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is None:
            return
        run.state = RUN_MOVES.get((run.state, event.trigger), run.state)
        match event.trigger:
            case RunTrigger.START | RunTrigger.RESOLVE:
                run.since = self.tick
                if event.trigger == RunTrigger.RESOLVE:
                    self._want(run)
            case RunTrigger.PAUSE:
                run.resume_at = event.until
                for task in self.tasks_of(run):
                    task.queued = False
            case RunTrigger.RESUME:
                for task in self.tasks_of(run):
                    if task.phase == Phase.READY or task.gives:
                        self._line_up(task)
                self._want(run)
        if run.state in DONE and event.trigger != RunTrigger.RESOLVE:
            self._close(run)

    def tasks_of(self, run: Run) -> list[Task]:
        return [task for task in self.tasks.values() if task.run is run]

    def _close(self, run: Run) -> None:
        for task in self.tasks_of(run):
            self._release(task)
            del self.tasks[task.number]
        run.phases = [phase if phase in ENDED else Phase.CANCELLED for phase in run.phases]
        run.wanted = 0
        del self.runs[run.number]
        self.past[run.number] = run
        if run.gate is not None:
            self._leave_gate(run, run.gate)
        parent = self.tasks.get(run.parent)
        if parent is not None and parent.live.get(run.child) == run.number:
            self._child_ends(parent, run.child, ok=run.state == RunState.COMPLETED)
            parent.awaits.pop(run.child, None)
            parent.armed = self.tick
            self._want(parent.run)

    def _leave_gate(self, run: Run, gate: tuple[str, str, str]) -> None:
        line, held = self.lines.setdefault(gate, []), self.gates.setdefault(gate, [])
        if run.number in line:
            line.remove(run.number)
            return
        held.remove(run.number)
        concurrency = run.plan.definition.concurrency
        while line and concurrency is not None and len(held) < self._gate_limit(gate, concurrency.limit):
            follower = self.runs[line.pop(0)]
            held.append(follower.number)
            self._want(follower)

    def _gate_limit(self, gate: tuple[str, str, str], default: int) -> int:
        plan = self.latest.get(gate[:2])
        concurrency = plan.definition.concurrency if plan is not None else None
        return default if concurrency is None else concurrency.limit

    def _visited(self, event: ev.Visited, _asked: list[Any]) -> None:
        self.stamp = self.tick + 1
        for number in event.runs:
            if number in self.runs:
                run = self.runs[number]
                run.visited, run.wanted = run.wanted, 0

    def _deferred(self, event: ev.Deferred, _asked: list[Any]) -> None:
        for number in event.runs:
            if number in self.runs:
                self.runs[number].wanted = self.runs[number].visited

    def _kept(self, event: ev.EventStored | ev.UpdateReceived | ev.ExtractKept, _asked: list[Any]) -> None:
        self._want(self.runs[event.run])

    def _mailbox(self, event: ev.MailboxPut, asked: list[Any]) -> None:
        put = asked[event.input]
        self.mailboxes[put.tenant, put.name] = put.keep_ms

    def _message(self, event: ev.MessageKept, asked: list[Any]) -> None:
        put = request_of(event, asked)
        self.messages[event.message] = self.tick + self.ticks(self.mailboxes[put.tenant, put.event])

    def _sla(self, event: ev.SlaReached, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.sla_next = event.point + 1
            self._arm_sla(run)

    def _overdue(self, event: ev.RunOverdue, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.overdue_until = event.until
            self._cancel_nodes(run, [step for step in run.plan.steps if not step.cleans_up], event.kept)

    def _ending(self, event: ev.RunEnding, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            run.ending_until = event.until
            self._cancel_nodes(run, [step for step in run.plan.steps if step.node.teardown is None], event.kept)

    def _step_cancelled(self, event: ev.StepCancelled, _asked: list[Any]) -> None:
        run = self.runs.get(event.run)
        if run is not None:
            self._cancel_nodes(run, [run.plan.steps[event.step]])

    def _cancel_nodes(self, run: Run, steps: list[Step], kept: tuple[int, ...] = ()) -> None:
        cut = {step.index for step in steps if step.index not in kept}
        for task in self.tasks_of(run):
            if task.step.index in cut:
                self._release(task)
                del self.tasks[task.number]
        for index in cut:
            if run.phases[index] not in ENDED:
                run.phases[index] = Phase.CANCELLED
        self._want(run)

    # ---- tasks

    def _node(self, event: Any, _asked: list[Any]) -> None:
        """A node that begins, ends without a task, or is reset."""
        found, cause = self.step_of(event), self.cause_of(event)
        if found is None or cause is None:
            return
        run, step = found
        if isinstance(event, ev.StepReset) and run.phases[step.index] == Phase.SUCCEEDED:
            run.before = max(run.before, 1)  # the attempt that succeeded has a number too
        phase = TASK_MOVES.get((run.phases[step.index], cause), _FORCED.get(cause, Phase.PENDING))
        run.phases[step.index] = phase
        if type(event) in (ev.TaskReady, ev.TaskChecking, ev.TaskWaiting):
            number = run.number + step.index
            task = self.tasks[number] = Task(number, run, step, phase, attempt=run.before)
            if type(event) is ev.TaskReady:
                self._line_up(task)
            elif type(event) is ev.TaskWaiting:
                task.due, task.total, task.max_parallel = event.until, event.total, event.max_parallel
                if step.kind is Kind.REPEAT:
                    task.due, task.deadline = 0, event.until
                task.attempt += step.kind is Kind.WORKFLOW
                self._line_up_children(task)

    def _first_ended(self, event: ev.FirstEnded, _asked: list[Any]) -> None:
        """It believes that what has not ended and leads nowhere else is cancelled: a node by itself, over and over."""
        run = self.runs.get(event.run)
        if run is None:
            return
        steps, first = run.plan.steps, run.plan.steps[event.step]
        lost = {racer for racer in first.racers if run.phases[racer] not in ENDED}
        grown = True
        while grown:
            above = {parent for index in lost for parent in steps[index].awaited} - lost - {run.plan.output}
            free = {
                index
                for index in above
                if run.phases[index] not in ENDED
                and all(child in lost or run.phases[child] in ENDED for child in steps[index].children)
            }
            lost, grown = lost | free, bool(free)
        for task in self.tasks_of(run):
            if task.step.index in lost:
                self._release(task)
                del self.tasks[task.number]
        for index in lost:
            run.phases[index] = Phase.CANCELLED
        good = run.phases[event.winner] in (Phase.SUCCEEDED, Phase.SKIPPED)
        # Decided in a visit, which goes on by itself: nobody has to look at the run again.
        run.phases[first.index] = Phase.SUCCEEDED if good else Phase.BLOCKED

    def _queue_chosen(self, event: ev.QueueChosen, _asked: list[Any]) -> None:
        if event.run in self.runs:
            self.runs[event.run].chosen[event.step] = (event.queue, event.labels)

    def _line_up(self, task: Task) -> None:
        if task.run.state != RunState.PAUSED and not task.queued:
            task.queued, task.ready_at = True, self.tick

    def _line_up_children(self, task: Task) -> None:
        if task.gives:
            self._line_up(task)
        else:
            task.queued = False

    def _move(self, task: Task, cause: Cause) -> None:
        task.phase = TASK_MOVES.get((task.phase, cause), _FORCED.get(cause, task.phase))
        if not task.parent:
            task.run.phases[task.step.index] = task.phase

    def _release(self, task: Task) -> None:
        if task.worker in self.workers:
            self.workers[task.worker].held.pop(task.number, None)
        task.worker = -1
        task.queued = False

    def _dispatched(self, event: ev.TaskDispatched, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            self._start(task, event.worker)

    def _start(self, task: Task, worker: int) -> None:
        self._release(task)
        self._move(task, Cause.DISPATCH)
        task.attempt += 1
        task.worker, task.dispatched, task.heard = worker, self.tick, self.tick
        if worker in self.workers:
            self.workers[worker].held[task.number] = None

    def _taken(self, event: ev.TaskTaken, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            self._release(task)
            task.worker, task.dispatched, task.heard = event.worker, self.tick, self.tick
            if event.worker in self.workers:
                self.workers[event.worker].held[task.number] = None

    def _child_dispatched(self, event: ev.ChildDispatched, _asked: list[Any]) -> None:
        parent = self.tasks.get(event.parent)
        if parent is None or parent.step.body is None:
            return
        child = Task(event.task, parent.run, parent.step.body, Phase.READY, parent.number, parent.begun)
        self.tasks[event.task] = child
        self._child_begins(parent, parent.begun, event.task)
        self._line_up_children(parent)
        self._start(child, event.worker)

    def _child_begun(self, event: ev.IterationStarted, _asked: list[Any]) -> None:
        parent = self.tasks.get(event.parent)
        if parent is None or parent.step.body is None:
            return
        child = Task(event.task, parent.run, parent.step.body, Phase.READY, parent.number, parent.begun)
        self.tasks[event.task] = child
        self._child_begins(parent, parent.begun, event.task)
        self._line_up(child)

    def _child_begins(self, parent: Task, child: int, number: int) -> None:
        parent.live[child] = number
        parent.begun += 1
        parent.running += 1

    def _child_ends(self, parent: Task, child: int, *, ok: bool) -> None:
        parent.live.pop(child, None)
        parent.running -= 1
        parent.succeeded += ok
        parent.failed += not ok
        if parent.gives:
            self._line_up(parent)

    def _heard(self, event: Any, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            task.heard = self.tick

    def _again(self, event: Any, _asked: list[Any]) -> None:
        """An attempt is over, or a wait between two attempts."""
        task, cause = self.tasks.get(event.task), self.cause_of(event)
        if task is None or cause is None:
            return
        self._release(task)
        self._move(task, cause)
        match event:
            case ev.TaskRetrying():
                task.due = event.due
            case ev.TaskRequeued():
                task.losses += event.cause == "lost"
                task.returns += event.cause != "lost"
                self._line_up(task)
            case ev.TaskDue() if task.step.kind is Kind.WORKFLOW:
                task.attempt += 1
                task.begun = task.running = task.succeeded = task.failed = 0
                task.live = {}
                self._want(task.run)
            case ev.TaskDue() | ev.CacheMissed():
                self._line_up(task)

    def _ended(self, event: Any, _asked: list[Any]) -> None:
        task, cause = self.tasks.get(event.task), self.cause_of(event)
        if task is None:
            return
        if cause is None:  # a repeat has rested
            task.due = 0
            self._want(task.run)
            return
        self._release(task)
        self._move(task, cause)
        del self.tasks[task.number]
        parent = self.tasks.get(task.parent)
        if parent is not None:
            self._child_ends(parent, task.child, ok=task.phase in (Phase.SUCCEEDED, Phase.NOT_TAKEN))
        if not isinstance(event, ev.FanOutEnded):  # decided in a visit, which goes on by itself
            self._want(task.run)

    def _delayed(self, event: ev.IterationDelayed, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            task.due = event.due

    def _repeat_timed_out(self, event: ev.RepeatTimedOut, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is None:
            return
        for child in task.live.values():
            if child in self.tasks:
                self._release(self.tasks[child])
                del self.tasks[child]
        task.live, task.running, task.timed_out = {}, 0, True
        self._want(task.run)

    # ---- durable functions

    def _suspended(self, event: ev.FunctionSuspended, asked: list[Any]) -> None:
        task, report = self.tasks.get(event.task), asked[event.input]
        if task is None:
            return
        self._release(task)
        self._move(task, Cause.WAIT)
        task.past, task.losses, task.returns = task.attempt, 0, 0
        for position in report.withdrawn:
            task.awaits.pop(position, None)
            task.live.pop(position, None)
        for request in report.awaits:
            due = self.tick + self.ticks(request.delay_ms) if request.delay_ms >= 0 else 0
            if request.until_ms:
                due = max(self.tick, self.settings.clock.tick_at(request.until_ms))
            task.awaits.setdefault(request.position, (due, request))
        task.armed = self.tick
        self._want(task.run)

    def _step_retrying(self, event: ev.StepRetrying, asked: list[Any]) -> None:
        task, step = self.tasks.get(event.task), asked[event.input].steps[event.index]
        if task is None:
            return
        if event.due:
            task.awaits[step.position] = (event.due, Await(step.position, "retry", step.name, step.digest))
            task.armed = self.tick
        else:
            self._want(task.run)

    def _met(self, event: ev.AwaitMet, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            if self.is_timed(event):
                task.met = self.tick
            task.awaits.pop(event.position, None)
            task.armed = self.tick
            self._want(task.run)

    def _woken(self, event: ev.FunctionWoken, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            self._move(task, Cause.DUE)
            self._line_up(task)

    def _continued(self, event: ev.FunctionContinued, asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            self._release(task)
            self._move(task, Cause.REQUEUE)
            task.past, task.losses, task.returns = task.attempt, 0, 0
            task.awaits, task.live = {}, {}
            task.run.inputs = asked[event.input].value
            self._line_up(task)

    def _function_cancelled(self, event: ev.FunctionCancelled, _asked: list[Any]) -> None:
        task = self.tasks.get(event.task)
        if task is not None:
            task.awaits, task.live = {}, {}
            self._want(task.run)

    # ---- workers and lanes

    def _offered(self, event: ev.WorkerOffered, asked: list[Any]) -> None:
        put: inp.Offer = asked[event.input]
        held = self.workers[event.worker].held if event.worker in self.workers else {}
        capacity = (put.slots or put.credit, put.cpu_milli, put.memory_mb, put.gpu)
        self.workers[event.worker] = Worker(put.worker, put.credit, put.queues, put.labels, capacity, held)

    def _gone(self, event: ev.WorkerGone, _asked: list[Any]) -> None:
        self.workers.pop(event.worker, None)

    def _shed(self, event: ev.LoadShed, _asked: list[Any]) -> None:
        self.shedding = event.on


_CAUSES: dict[type, Cause] = {
    ev.TaskReady: Cause.READY,
    ev.TaskChecking: Cause.CHECK,
    ev.CacheMissed: Cause.MISS,
    ev.TaskDispatched: Cause.DISPATCH,
    ev.TaskSucceeded: Cause.SUCCEED,
    ev.TaskRetrying: Cause.RETRY,
    ev.TaskDue: Cause.DUE,
    ev.TaskRequeued: Cause.REQUEUE,
    ev.TaskFailed: Cause.FAIL,
    ev.TaskSkipped: Cause.NOT_TAKE,
    ev.TaskWaiting: Cause.WAIT,
    ev.WaitElapsed: Cause.SUCCEED,
    ev.TaskAnswered: Cause.SUCCEED,
    ev.FanOutEnded: Cause.SUCCEED,
    ev.StepReset: Cause.RESET,
    ev.FunctionSuspended: Cause.WAIT,
    ev.FunctionWoken: Cause.DUE,
    ev.FunctionContinued: Cause.REQUEUE,
}
_PHASE_CAUSES: dict[int, Cause] = {
    Phase.SUCCEEDED: Cause.SUCCEED,
    Phase.FAILED: Cause.FAIL,
    Phase.SKIPPED: Cause.SKIP,
    Phase.NOT_TAKEN: Cause.NOT_TAKE,
    Phase.BLOCKED: Cause.BLOCK,
}
_FORCED: dict[int, Phase] = {
    Cause.READY: Phase.READY,
    Cause.DISPATCH: Phase.RUNNING,
    Cause.SUCCEED: Phase.SUCCEEDED,
    Cause.FAIL: Phase.FAILED,
    Cause.WAIT: Phase.WAITING,
}  # where a move is not in the table, the ledger still writes down what the journal claims

_HANDLERS: dict[type, Any] = {
    ev.DefinitionPut: Ledger._definition,
    ev.TenantPut: Ledger._tenant,
    ev.QueuePut: Ledger._queue,
    ev.LabelLimitPut: Ledger._label,
    ev.QueueRemoved: Ledger._queue_removed,
    ev.WorkflowRemoved: Ledger._workflow_removed,
    ev.SettingsPut: Ledger._settings,
    ev.SchedulePut: Ledger._schedule,
    ev.ScheduleRemoved: Ledger._schedule_removed,
    ev.ScopePaused: Ledger._paused,
    ev.ScopeResumed: Ledger._paused,
    ev.RunSubmitted: Ledger._submitted,
    ev.RunDebounced: Ledger._debounced,
    ev.RunDue: Ledger._run_due,
    ev.RunScheduled: Ledger._scheduled,
    ev.BackfillStarted: Ledger._backfill,
    ev.ScheduleDecided: Ledger._schedule_decided,
    ev.OccurrencesSettled: Ledger._schedule_told,
    ev.OccurrenceBuffered: Ledger._schedule_told,
    ev.ScheduleMoved: Ledger._schedule_told,
    ev.RunSpawned: Ledger._spawned,
    ev.FollowUpStarted: Ledger._follow_up,
    ev.RunDetached: Ledger._detached,
    ev.RunRestored: Ledger._restored,
    ev.RunRerun: Ledger._rerun,
    ev.RunGated: Ledger._gated,
    ev.RunRated: Ledger._rated,
    ev.GateTaken: Ledger._gate_taken,
    ev.RunMoved: Ledger._moved,
    ev.Visited: Ledger._visited,
    ev.Deferred: Ledger._deferred,
    ev.EventStored: Ledger._kept,
    ev.UpdateReceived: Ledger._kept,
    ev.MailboxPut: Ledger._mailbox,
    ev.MessageKept: Ledger._message,
    ev.ExtractKept: Ledger._kept,
    ev.SlaReached: Ledger._sla,
    ev.RunOverdue: Ledger._overdue,
    ev.RunEnding: Ledger._ending,
    ev.StepCancelled: Ledger._step_cancelled,
    ev.QueueChosen: Ledger._queue_chosen,
    ev.FirstEnded: Ledger._first_ended,
    ev.TaskReady: Ledger._node,
    ev.TaskChecking: Ledger._node,
    ev.TaskWaiting: Ledger._node,
    ev.StepEnded: Ledger._node,
    ev.StepReset: Ledger._node,
    ev.StepAccepted: Ledger._node,
    ev.TaskDispatched: Ledger._dispatched,
    ev.ChildDispatched: Ledger._child_dispatched,
    ev.IterationStarted: Ledger._child_begun,
    ev.TaskTaken: Ledger._taken,
    ev.AttemptStarted: Ledger._heard,
    ev.AttemptCheckpointed: Ledger._heard,
    ev.TaskRetrying: Ledger._again,
    ev.TaskRequeued: Ledger._again,
    ev.TaskDue: Ledger._again,
    ev.CacheMissed: Ledger._again,
    ev.TaskSucceeded: Ledger._ended,
    ev.TaskFailed: Ledger._ended,
    ev.TaskSkipped: Ledger._ended,
    ev.WaitElapsed: Ledger._ended,
    ev.TaskAnswered: Ledger._ended,
    ev.FanOutEnded: Ledger._ended,
    ev.IterationDelayed: Ledger._delayed,
    ev.RepeatTimedOut: Ledger._repeat_timed_out,
    ev.TaskStopped: Ledger._repeat_timed_out,
    ev.StepsAppended: Ledger._heard,
    ev.FunctionSuspended: Ledger._suspended,
    ev.StepRetrying: Ledger._step_retrying,
    ev.AwaitMet: Ledger._met,
    ev.FunctionWoken: Ledger._woken,
    ev.FunctionContinued: Ledger._continued,
    ev.FunctionCancelled: Ledger._function_cancelled,
    ev.WorkerOffered: Ledger._offered,
    ev.WorkerGone: Ledger._gone,
    ev.LoadShed: Ledger._shed,
}


def request_of(event: Any, asked: list[Any]) -> Any:
    """What an event points to: an input, the command of another partition in it, or one of those of a result. None
    where there is no such thing."""
    item = asked[event.input] if 0 <= event.input < len(asked) else None
    if isinstance(item, inp.Delivered):
        return item.request
    command = getattr(event, "command", -1)
    if command < 0:
        return item
    commands = getattr(item, "commands", ())
    return commands[command].request if command < len(commands) else None
