"""A run's history from the rows that concern it alone.

The state is one in which nothing but this run lives: its tenant, its plan, its child runs as far as their beginning and
end, and the workers that its attempts were given to. `evolve` applies the run's own events to it, as anywhere else.
What depends on others is not decided here but given: what held a ready queue, which worker had a number, which run left
its concurrency key (see `history_index`).
"""

from collections import deque
from collections.abc import Callable

import msgspec

from tickwork.core.definition.plan import Plan
from tickwork.core.evolve import evolve
from tickwork.core.evolve.indexes import arm_sla, set_timer, start_later
from tickwork.core.evolve.run_creation import add_run, arrive, new_run
from tickwork.core.explain.history_index import LaneNote, RunNote, WorkerNote
from tickwork.core.explain.run_history import Held, HistoryBuilder, JournalRow, RunHistory
from tickwork.core.explain.run_history_text import describe_start
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import RunTerms
from tickwork.core.state.lifecycle import RunState, RunTrigger
from tickwork.core.state.mailboxes import Mailbox, MailboxMessage
from tickwork.core.state.ready_queues import HANDLER_LABEL, Limiter
from tickwork.core.state.state import Queue, Run, State, Task, Tenant, Timer, Worker

ENDS = frozenset((RunTrigger.COMPLETE, RunTrigger.FAIL, RunTrigger.TIME_OUT, RunTrigger.CANCEL))
ENDLESS = 1 << 30


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the record of a run says and its rows do not."""

    number: int
    id: str
    tenant: str
    plan: Plan
    by: str
    source: str
    priority: int
    queue: str
    pin: str
    schedule: str
    backfill: int
    own: RunTerms | None = None


class LaneView(msgspec.Struct):
    """What is known of a ready queue: its number in the partition, and what holds it."""

    number: int
    held: str = ""
    held_by: str = ""
    held_since: int = 0
    known: bool = False  # what holds it was looked up since a task of the run stands there


class _Queues(dict[str, Queue]):
    """Every queue there may be; none has a limit here."""

    def __missing__(self, name: str) -> Queue:
        queue = self[name] = Queue(name, Limiter(scope="queue", name=name))
        return queue


class Excerpt:
    """Give it the rows that concern the run, in order. For each, `workers_of` and `lost_workers` say which worker notes
    are needed, `add_row` takes the row, `unknown_lanes` says which ready queues to look up, `end_row` ends it."""

    def __init__(self, partition: State, facts: RunFacts) -> None:
        self.facts = facts
        self._lanes_by_key = partition.lanes
        state = self._state = State(settings=partition.settings, plans=partition.plans, queues=_Queues())
        tenant = Tenant(facts.tenant, Limiter(scope="tenant", name=facts.tenant))
        tenant.plans[facts.plan.name] = facts.plan
        state.tenants[facts.tenant] = tenant
        self._note = RunNote()
        self._lane_numbers: dict[int, int] = {}  # task -> ready queue, where a note said so
        self._views: dict[int, LaneView] = {}
        self._builder = HistoryBuilder(state, facts.tenant, facts.id)
        self._builder.lane_of = self._lane_of
        self._builder.scheduled_words = self._scheduled_words
        self.before: Callable[[State, Run, ev.Event], None] | None = None  # sees each event of the run first

    # ---- what a row needs

    def workers_of(self, row: JournalRow) -> set[int]:
        """Numbers of the workers that this row gives attempts of the run to."""
        first, size = self.facts.number, len(self.facts.plan.steps)
        tasks, numbers, begun = self._state.tasks, set(), set()
        for event in row.events:
            match event:
                case ev.TaskDispatched() | ev.TaskTaken():
                    if first <= event.task < first + size or event.task in tasks or event.task in begun:
                        numbers.add(event.worker)
                case ev.ChildDispatched() if first <= event.parent < first + size:
                    numbers.add(event.worker)
                case ev.IterationStarted() if first <= event.parent < first + size:
                    begun.add(event.task)
        return numbers

    def lost_workers(self, row: JournalRow) -> set[int]:
        """Numbers of the workers from which this row takes attempts of the run."""
        numbers = set()
        for event in row.events:
            if isinstance(event, ev.TaskRequeued | ev.TaskFailed):
                task = self._state.tasks.get(event.task)
                if task is not None and task.worker is not None:
                    numbers.add(task.worker.number)
        return numbers

    def know_worker(self, number: int, note: WorkerNote) -> None:
        """Attempts given from here on are this worker's."""
        known = self._state.workers.get(number)
        if known is None or (known.id, known.start) != (note.id, note.start):
            room = (ENDLESS, ENDLESS, ENDLESS, ENDLESS)
            self._state.workers[number] = Worker(number, note.id, (), {}, room, credit=ENDLESS, start=note.start)

    def worker_started(self, number: int, note: WorkerNote) -> None:
        """Before a row that takes attempts from it: which start of it held them."""
        known = self._state.workers.get(number)
        if known is not None and known.id == note.id:
            known.start = note.start

    # ---- row by row

    def add_row(self, row: JournalRow, note: RunNote) -> None:
        builder, self._note = self._builder, note
        self._lane_numbers |= note.lanes
        builder.begin(row)
        run = builder.run
        if note.leaver and run is not None and builder.live and run.gated:
            run.gated = False
            assert run.gate is not None
            run.gate.holding += 1
            run.wanted = run.wanted or row.tick
            builder.touched = True
            builder.was_let_in(note.leaver)
        for event in row.events:
            own = self._own(event)
            if own is not None:
                if self.before is not None and builder.live and builder.run is not None:
                    self.before(self._state, builder.run, own)
                builder.add_event(own, self._apply)
        builder.look_at_tasks()
        standing = {stay.lane.number for stay in builder.stays.values()}
        self._views = {number: view for number, view in self._views.items() if number in standing}

    def _own(self, event: ev.Event) -> ev.Event | None:
        """The event, as far as it concerns the run."""
        number, state = self.facts.number, self._state
        match event:
            case ev.Visited() | ev.Deferred():
                return type(event)([number]) if number in event.runs else None
            case ev.StaleReport() | ev.InputRefused() | ev.Duplicate():
                return event
            case ev.FollowUpStarted():
                return event if number in (event.run, event.of) else None
            case ev.RunMoved() if event.run != number:
                return event if event.run in state.runs and event.trigger in ENDS else None
        if getattr(event, "run", 0) == number:
            return event
        task = state.tasks.get(getattr(event, "task", 0)) or state.tasks.get(getattr(event, "parent", 0))
        return event if task is not None else None

    def _apply(self, state: State, event: ev.Event) -> None:
        number = self.facts.number
        match event:
            case ev.Visited():
                run = state.runs[number]
                state.stamp, state.fresh = state.tick + 1, []
                run.visited, run.wanted = run.wanted, 0
            case ev.Deferred():
                deferred = state.runs.get(number)
                if deferred is not None:
                    deferred.wanted = deferred.visited or state.tick
            case ev.RunScheduled():
                self._arrive(event, event.start_at)
            case ev.RunSubmitted() if self.facts.source.startswith("task "):
                self._arrive(event, event.start_at)
            case ev.RunSpawned() | ev.FollowUpStarted() if event.run == number:
                self._arrive(event, 0)
            case ev.FollowUpStarted():
                pass  # the run that follows is not here
            case ev.AwaitMet() | ev.TaskAnswered() if event.taken:
                self._put_message(event.taken)
                evolve(state, event)
            case ev.RunDetached():
                state.runs[number].parent = 0  # its parent is not here
            case ev.RunSpawned():
                evolve(state, event)
                state.runs[event.run].state = int(RunState.ACTIVE)  # its own moves are not heard, except the last
            case _:
                evolve(state, event)

    def _put_message(self, number: int) -> None:
        """A message of a mailbox came with a row that is not here, and nothing but its number matters."""
        state, mailbox = self._state, Mailbox("", 0, 1, {})
        message = MailboxMessage(number, self.facts.tenant, "", "", None, "", 0)
        message.due = set_timer(state, Timer.MESSAGE, number, state.tick + 1)
        state.messages.add(number, message)
        mailbox.queues[""] = deque([message])
        state.tenants[self.facts.tenant].mailboxes[""] = mailbox

    def _arrive(
        self, event: ev.RunScheduled | ev.RunSpawned | ev.RunSubmitted | ev.FollowUpStarted, start_at: int
    ) -> None:
        """A run whose schedule, parent, predecessor or task that started it is not here, from its record."""
        state, facts = self._state, self.facts
        tenant = state.tenants[facts.tenant]
        run = new_run(state, facts.number, facts.id, tenant, facts.plan, None, facts.by, facts.source)
        run.priority, run.queue, run.pin, run.own = facts.priority, facts.queue, facts.pin, facts.own
        if isinstance(event, ev.RunScheduled):
            run.schedule, run.scheduled_ms, run.backfill = facts.schedule, event.due_ms, facts.backfill
        elif isinstance(event, ev.RunSpawned):
            run.parent, run.child = event.task, event.child
        if start_at:
            add_run(state, run)
            if isinstance(event, ev.RunSubmitted) and run.plan.sla_points:
                arm_sla(state, run)
            start_later(state, run, start_at)
        else:
            arrive(state, run)

    def _scheduled_words(self, _event: ev.RunScheduled) -> str:
        return describe_start(self._note.later, self._note.governed)

    # ---- ready queues

    def _lane_of(self, task: Task) -> Held:
        assert task.lane is not None
        number = self._lane_numbers.get(task.number, 0)
        if not number:
            tenant, workflow, queue, priority, labels, resources, dependency = task.lane.key
            labels = tuple(label for label in labels if label[0] != HANDLER_LABEL)
            lane = self._lanes_by_key.get((tenant, workflow, queue, priority, labels, resources, dependency))
            number = lane.number if lane is not None else 0
        return self._views.setdefault(number, LaneView(number))

    @property
    def lanes(self) -> list[int]:
        """Numbers of the ready queues in which tasks of the run stand."""
        return list(self._views)

    def unknown_lanes(self) -> list[int]:
        return [number for number, view in self._views.items() if not view.known]

    def know_lane(self, number: int, note: LaneNote | None) -> None:
        """What holds a ready queue at the end of this row."""
        view = self._views[number]
        view.known = True
        if note is not None:
            view.held, view.held_by, view.held_since = note.reason, note.by, note.since

    def lane_changed(self, seq: int, number: int, note: LaneNote) -> None:
        """Between two rows of the run, what holds a ready queue changed."""
        self._at(seq, note.tick)
        self.know_lane(number, note)
        self._builder.look_at_holds()

    def end_row(self) -> None:
        self._builder.look_at_holds()

    # ---- the end

    @property
    def wants_visit(self) -> bool:
        """Whether the next row may visit the run."""
        run = self._builder.run
        return self._builder.live and run is not None and run.wanted > 0

    @property
    def children(self) -> set[int]:
        """Tasks of maps and repeats that these rows began."""
        return set(self._builder.children)

    @property
    def live(self) -> bool:
        return self._builder.live

    def story(self, seq: int, tick: int) -> RunHistory | None:
        """The history up to a row of the partition, which is the last one."""
        self._at(seq, tick)
        return self._builder.story()

    def _at(self, seq: int, tick: int) -> None:
        state = self._state
        self._builder.seq, state.tick, state.now_ms = seq, tick, state.settings.clock.ms_of(tick)
