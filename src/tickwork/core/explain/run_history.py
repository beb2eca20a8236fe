"""Why a run went as it did: its chain of decisions, built from the journal alone.

The journal is folded, never decided again, so a story is true under whatever rules once decided it,
and every number in it has the name that it had at that tick. Of each decision it tells what, when,
by whom, and what set it off: an input by its place in the tick, a timer, a visit to the run, or admission.

A hold is shown as it is at the end of a tick: a hold that begins and ends within one tick took no time.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec

from tickwork.core.calendar.durations import instant_text
from tickwork.core.evolve import begin_tick, evolve, live_tasks
from tickwork.core.evolve.follow_ups import SOURCE as FOLLOW_UP
from tickwork.core.explain.run_history_text import (
    HELD_WORDS,
    cause_of,
    describe_start,
    fired_words,
    words_of,
)
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Input
from tickwork.core.state.lifecycle import RunState, RunTrigger, move_run
from tickwork.core.state.state import Run, Settings, State, Task, first_state


class JournalRow(Protocol):
    """What is needed of a row of the journal."""

    @property
    def seq(self) -> int: ...
    @property
    def tick(self) -> int: ...
    @property
    def inputs(self) -> list[Input]: ...
    @property
    def events(self) -> list[ev.Event]: ...


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    tick: int
    at_ms: int
    what: str  # a short code: submitted, started, ready, held, dispatched, retrying …
    detail: str
    node: str = ""
    child: int = -1  # of a map or repeat
    attempt: int = 0
    by: str = ""  # who sent the input, or what holds its lane
    cause: str = ""  # input, timer, visit or admission
    input: int = -1  # its place in the tick


class RunOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run came from. `of` is the run that it repeats, is a child of, or was started by."""

    kind: str  # submit, schedule, child, rerun, task
    tick: int
    at_ms: int
    by: str
    detail: str
    schedule: str = ""
    nominal_ms: int = 0  # when the schedule meant it to start
    of: str = ""
    node: str = ""


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a task stood in a lane that did not move."""

    node: str
    child: int
    reason: str
    by: str
    since: int
    until: int  # tick; of the last row where it is not over
    ms: int
    over: bool


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    run_id: str
    workflow: str
    source: RunOrigin
    state: str
    started: int  # tick, 0: not yet
    ended: int
    entries: tuple[HistoryEntry, ...]
    holds: tuple[Hold, ...]
    visits: tuple[int, ...]  # ticks in which it was looked at
    held_ms_by_reason: dict[str, int]
    queued_ms: int  # ready until dispatched, over all tasks
    ran_ms: int  # dispatched until ended, over all attempts
    stale: int  # reports of attempts that were no longer theirs


def why(
    rows: Iterable[JournalRow],
    tenant: str,
    run_id: str,
    *,
    settings: Settings | None = None,
    state: State | None = None,
) -> RunHistory | None:
    """The story of a run, from rows that follow each other. None where they do not know it.

    Without a state the rows begin at the first one, under these settings; a state restored from a snapshot stands just
    before the first row, and is brought to the last.
    """
    builder = HistoryBuilder(state or first_state(settings), tenant, run_id)
    for row in rows:
        builder.add_row(row)
    return builder.story()


class _Stay(msgspec.Struct):
    """One task standing in its lane."""

    task: Task
    lane: Any  # Held
    since: int
    held: tuple[str, str] = ("", "")
    held_since: int = 0
    entry: int = -1  # of the hold


class Held(Protocol):
    """What holds a ready queue: a `Lane`, or what is known of one."""

    held: str
    held_by: str
    held_since: int


class HistoryBuilder:
    """Follows one run through rows: all rows of the partition, in which case `add_row` is enough, or those that concern
    the run, which `excerpt` gives it event by event."""

    def __init__(self, state: State, tenant: str, run_id: str) -> None:
        self.state, self.tenant, self.run_id = state, tenant, run_id
        self.lane_of: Callable[[Task], Held] = _own_lane
        self.scheduled_words: Callable[[ev.RunScheduled], str] = self._scheduled_words
        self.run: Run | None = None  # as it is, or was when it left memory
        self.live = self.touched = False
        self.seq = 0
        self.source: RunOrigin | None = None
        self.why_now = "nothing held it back"
        self.last_cause = ("visit", -1, "")
        self.entries: list[HistoryEntry] = []
        self.holds: list[Hold] = []
        self.visits: list[int] = []
        self.stays: dict[tuple[int, int], _Stay] = {}
        self.attempts: dict[tuple[int, int], int] = {}  # since when they run
        self.children: dict[int, tuple[str, int]] = {}  # node and child of each task of a map or repeat
        self.queued_ms = self.ran_ms = self.stale = self.ended = 0
        owner = state.tenants.get(tenant)
        known = owner.runs.get(run_id) if owner is not None else None
        if known is not None:
            self._meet(known)
            self.why_now = "nothing has held it back since the first of these rows"
            self.look_at_tasks()
            self.look_at_holds()

    # ---- row by row

    def add_row(self, row: JournalRow) -> None:
        self.begin(row)
        for event in row.events:
            self.add_event(event)
        if self.touched or self.stays:
            self.look_at_tasks()
            self.look_at_holds()

    def begin(self, row: JournalRow) -> None:
        self.seq = row.seq
        begin_tick(self.state, row.tick, row.inputs)

    def add_event(self, event: ev.Event, apply: Callable[[State, ev.Event], None] = evolve) -> None:
        if self.live:
            self._before(event)
        apply(self.state, event)
        self._after(event)

    def _before(self, event: ev.Event) -> None:
        """Tell what an event says about the run while everything it speaks of is still there."""
        run = self.run
        assert run is not None
        task = self._task_of(event)
        if task is None and getattr(event, "run", 0) != run.number:
            self._beside(event, run)
            return
        self.touched = True
        if isinstance(event, ev.RunDue):
            self.why_now = "its start time came"
        what, detail = words_of(self.state, run, task, event)
        if isinstance(event, ev.RunMoved):
            if event.trigger == RunTrigger.START:
                detail = self.why_now
            if move_run(run.state, event.trigger) >= RunState.COMPLETED:
                self.live, self.ended = False, self.state.tick
        self._append(event, what, detail, task)

    def _task_of(self, event: ev.Event) -> Task | None:
        task = self.state.tasks.get(getattr(event, "task", 0))
        if task is None:
            task = self.state.tasks.get(getattr(event, "parent", 0))
        return task if task is not None and task.run is self.run else None

    def _beside(self, event: ev.Event, run: Run) -> None:
        match event:
            case ev.Visited() if run.number in event.runs:
                self.visits.append(self.state.tick)
                self.touched = True
            case ev.Deferred() if run.number in event.runs:
                self._append(event, "deferred", "the tick was full, or more is to be seen: visited again in the next")
            case ev.FollowUpStarted() if event.of == run.number:
                self.touched = True
                self._append(event, *words_of(self.state, run, None, event))
            case ev.RunMoved():
                self._child_moved(event, run)

    def _child_moved(self, event: ev.RunMoved, run: Run) -> None:
        other = self.state.runs[event.run]
        parent = self.state.tasks.get(other.parent) if other.parent else None
        after = move_run(other.state, event.trigger)
        if parent is not None and parent.run is run and after >= RunState.COMPLETED:
            detail = f"run {other.id} ended {RunState(after).name}" + (f": {event.reason}" if event.reason else "")
            self._append(event, "child_ended", detail, parent, child=other.child)

    def _after(self, event: ev.Event) -> None:
        """Meet the run when it comes into memory, and tell what only shows once the event has acted."""
        match event:
            case (
                ev.RunSubmitted()
                | ev.RunScheduled()
                | ev.RunSpawned()
                | ev.RunRestored()
                | ev.RunRerun()
                | ev.FollowUpStarted()
            ):
                self._arrive(event)
            case ev.ChildDispatched() | ev.IterationStarted():
                child = self.state.tasks[event.task]
                if child.run is self.run:
                    self.children[event.task] = (self._node(child), child.child)
            case ev.RunMoved() if self.live:
                for run, leaver in self.state.let_in:
                    if run is self.run:
                        self.was_let_in(leaver)
            case ev.StaleReport() | ev.InputRefused() | ev.Duplicate():
                self._aside(event)

    def was_let_in(self, leaver: str) -> None:
        assert self.run is not None
        key = self.run.gate.key if self.run.gate is not None else ""
        self.why_now = f"run {leaver} ended and left it the concurrency key {key!r}"

    def _arrive(self, event: ev.Event) -> None:
        run = self.state.runs.get(getattr(event, "run", 0))
        if run is None or (run.tenant.id, run.id) != (self.tenant, self.run_id):
            return
        self._meet(run)
        what, detail = words_of(self.state, run, None, event)
        if isinstance(event, ev.RunScheduled):
            detail += self.scheduled_words(event)
        self._append(event, what, detail)

    def _scheduled_words(self, event: ev.RunScheduled) -> str:
        return describe_start(*fired_words(self.state, event))

    def _meet(self, run: Run) -> None:
        self.run, self.live, self.touched, self.ended = run, True, True, 0
        if self.source is None:
            self.source = source_of(self.state, run)

    def _aside(self, event: ev.StaleReport | ev.InputRefused | ev.Duplicate) -> None:
        """Record a request or a report about the run that had no effect."""
        if self.run is None:
            return
        request = self.state.inputs[event.input]
        number = getattr(request, "task", 0)
        of_run = getattr(request, "run_id", "") or (request.name if getattr(request, "scope", "") == "run" else "")  # type: ignore[union-attr]
        first = self.run.number
        if first <= number < first + len(self.run.plan.steps) or number in self.children:
            node, child = self.children.get(number, ("", -1))
            node = node or self.run.plan.steps[number - first].id
        elif (getattr(request, "tenant", ""), of_run) == (self.tenant, self.run_id):
            node, child = getattr(request, "node", ""), -1
        else:
            return
        self.stale += isinstance(event, ev.StaleReport)
        what, detail = words_of(self.state, self.run, None, event)
        self._append(event, what, detail, node=node, child=child, attempt=getattr(request, "attempt", 0))

    # ---- the entries

    def _append(
        self, event: ev.Event, what: str, detail: str, task: Task | None = None, *, node: str = "", child: int = -1,
        attempt: int = 0,
    ) -> None:  # fmt: skip
        cause = cause_of(self.state.inputs, event, task)
        if isinstance(event, ev.StepReset):
            cause = self.last_cause  # whatever brought the run back resets its nodes
        self.last_cause = cause
        if task is not None:
            node, attempt = self._node(task), task.attempt + isinstance(event, ev.TaskDispatched)
            child = task.child if child < 0 else child
            if isinstance(event, ev.RunSpawned) and task.history is not None:
                child = event.child
            elif isinstance(event, ev.ChildDispatched | ev.IterationStarted | ev.RunSpawned):
                assert task.fan is not None
                child, attempt = task.fan.begun, int(isinstance(event, ev.ChildDispatched))
        elif not node and self.run is not None and hasattr(event, "step"):
            node = self.run.plan.steps[event.step].id
        self._add(what, detail, node=node, child=child, attempt=attempt, by=cause[2], cause=cause[0], input=cause[1])

    def _add(
        self, what: str, detail: str, *, node: str = "", child: int = -1, attempt: int = 0, by: str = "",
        cause: str = "", input: int = -1,  # noqa: A002
    ) -> None:  # fmt: skip
        entry = HistoryEntry(
            seq=self.seq, tick=self.state.tick, at_ms=self.state.now_ms, what=what, detail=detail, node=node,
            child=child, attempt=attempt, by=by, cause=cause, input=input,
        )  # fmt: skip
        self.entries.append(entry)

    @staticmethod
    def _node(task: Task) -> str:
        return task.run.plan.steps[task.step.index].id

    # ---- lines and attempts

    def look_at_tasks(self) -> None:
        """At the end of a tick: which tasks stand in line, which run."""
        if self.touched:
            tasks = live_tasks(self.state, self.run) if self.live and self.run is not None else []
            self._look_at_lines(tasks)
            self._look_at_attempts(tasks)
            self.touched = False

    def look_at_holds(self) -> None:
        """At the end of a tick: what holds the lines that they stand in."""
        for stay in self.stays.values():
            if stay.held != (held := (stay.lane.held, stay.lane.held_by)):
                self._end_hold(stay)
                self._begin_hold(stay, held)

    def _look_at_lines(self, tasks: list[Task]) -> None:
        now = {(task.number, task.order): task for task in tasks if task.queued}
        for key, stay in list(self.stays.items()):
            if key not in now:
                self._end_hold(stay)
                self.queued_ms += self._ms(stay.since)
                del self.stays[key]
        for key, task in now.items():
            if key not in self.stays:
                self.stays[key] = _Stay(task, self.lane_of(task), self.state.settings.clock.tick_at(task.ready_ms))

    def _look_at_attempts(self, tasks: list[Task]) -> None:
        now = {(task.number, task.attempt): task for task in tasks if task.worker is not None}
        for key, since in list(self.attempts.items()):
            if key not in now:
                self.ran_ms += self._ms(since)
                del self.attempts[key]
        for key, task in now.items():
            self.attempts.setdefault(key, task.dispatched)

    def _begin_hold(self, stay: _Stay, held: tuple[str, str]) -> None:
        stay.held = held
        if held[0]:
            stay.held_since, stay.entry = max(stay.since, stay.lane.held_since), len(self.entries)
            task = stay.task
            detail = HELD_WORDS[held[0]].format(by=held[1])
            self._add("held", detail, node=self._node(task), child=task.child, by=held[1], cause="admission")

    def _end_hold(self, stay: _Stay, *, over: bool = True) -> None:
        reason, by = stay.held
        if not reason:
            return
        ms, task, until = self._ms(stay.held_since), stay.task, self.state.tick
        hold = Hold(
            node=self._node(task), child=task.child, reason=reason, by=by, since=stay.held_since, until=until, ms=ms,
            over=over,
        )  # fmt: skip
        self.holds.append(hold)
        entry = self.entries[stay.entry]
        ended = f", for {ms} ms until {self.state.at(until)}" if over else f", for {ms} ms so far"
        self.entries[stay.entry] = msgspec.structs.replace(entry, detail=entry.detail + ended)

    def _ms(self, since: int) -> int:
        return (self.state.tick - since) * self.state.settings.clock.resolution_ms

    # ---- the end

    def story(self) -> RunHistory | None:
        run = self.run
        if run is None or self.source is None:
            return None
        for stay in self.stays.values():
            self._end_hold(stay, over=False)
            self.queued_ms += self._ms(stay.since)
        self.ran_ms += sum(self._ms(since) for since in self.attempts.values())
        held_ms: dict[str, int] = {}
        for hold in self.holds:
            held_ms[hold.reason] = held_ms.get(hold.reason, 0) + hold.ms
        return RunHistory(
            tenant=self.tenant, run_id=self.run_id, workflow=run.plan.name, source=self.source,
            state=RunState(run.state).name, started=run.started, ended=self.ended, entries=tuple(self.entries),
            holds=tuple(self.holds), visits=tuple(self.visits), held_ms_by_reason=held_ms, queued_ms=self.queued_ms,
            ran_ms=self.ran_ms, stale=self.stale,
        )  # fmt: skip


def _own_lane(task: Task) -> Held:
    assert task.lane is not None
    return task.lane


def source_of(state: State, run: Run) -> RunOrigin:
    """Where a run in memory came from."""
    clock = state.settings.clock
    kind, _, of = run.source.partition(" of ")
    node = ""
    detail = f"submitted by {run.by}"
    if kind == "schedule":
        detail = f"schedule {run.schedule} of {run.by}, due at {instant_text(run.scheduled_ms)}"
    elif kind == "backfill":
        when = instant_text(run.scheduled_ms)
        detail = f"backfill {run.backfill} of schedule {run.schedule}, for {when}, requested by {run.by}"
    elif kind in ("trigger", "test"):
        detail = f"schedule {run.schedule}, begun by hand ({kind}) by {run.by}"
    elif kind == "child":
        parent = state.tasks.get(run.parent)
        if parent is not None:
            of, node, child = parent.run.id, HistoryBuilder._node(parent), str(run.child)
        else:  # not here, or it ended before its child: then the id says it
            of, node, child, _ = run.id.rsplit(".", 3)
        detail = f"child {child} of node {node} of run {of}"
    elif kind == FOLLOW_UP:
        detail = f"follows the end of run {of}"
    elif kind == "rerun":
        detail = f"repeats run {of}, requested by {run.by}"
    elif kind.startswith("task "):
        node, detail, kind = kind.removeprefix("task "), f"started by {run.source}", "task"
    return RunOrigin(
        kind=kind, tick=run.submitted, at_ms=clock.ms_of(run.submitted), by=run.by, detail=detail,
        schedule=run.schedule, nominal_ms=run.scheduled_ms, of=of, node=node,
    )  # fmt: skip
