"""Rows behind the journal: what changed since the watermark, and what the store does not know yet.

Every tick is observed, live and on recovery alike, so both give the same rows. A window collects what changed; when it
is closed, its rows are written as they stand then, and work that began and ended inside it is written once. Until
the write is durable, questions about runs that left memory are answered from here.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Value
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve import output_of
from tickwork.core.evolve.follow_ups import OF_CHILDREN, failed_steps
from tickwork.core.explain.history_index import DERIVED_MOVES, HistoryIndex, Place
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.explain.run_labels import searchable_of, tags_of
from tickwork.core.snapshot.dirty_rows import DirtyRows
from tickwork.core.snapshot.schedule_rows import backfill_row
from tickwork.core.snapshot.snapshot import encode_header
from tickwork.core.state import events as ev
from tickwork.core.state.events import RunMoved, RunSubmitted, TaskDispatched, TaskReady, TaskSucceeded
from tickwork.core.state.inputs import Input
from tickwork.core.state.lifecycle import TOOK_TOO_LONG, AttemptState, Phase, RunState
from tickwork.core.state.schedule import FateRange
from tickwork.core.state.state import Run, State, Task
from tickwork.core.state.tables import BLOCK_BITS
from tickwork.ports.store import BackfillRow, CacheRow, ChildRow, DefinitionRow, IndexEntry, Rows, RunRow
from tickwork.runtime.storage.payloads import encode_value
from tickwork.runtime.storage.run_records import rest_of_run

ERROR_CHARACTERS_MAX = 500


class AttemptRecord(msgspec.Struct, array_like=True, gc=False):
    """One attempt, for people. What ends in `worker_ms` is by the worker's clock."""

    task: int
    step: int
    child: int
    attempt: int
    worker: str
    dispatched_ms: int
    state: int = int(AttemptState.ASSIGNED)
    ended_ms: int = 0
    started_worker_ms: int = 0
    ended_worker_ms: int = 0
    error: str = ""
    message: str = ""
    exit_code: int | None = None
    marks: tuple[int, ...] = ()  # ms after its dispatch at which it was taken from a broker, and started


attempts_encoder = msgspec.msgpack.Encoder()
attempts_decoder = msgspec.msgpack.Decoder(list[AttemptRecord])

SUCCEEDED, FAILED = int(AttemptState.SUCCEEDED), int(AttemptState.FAILED)
TIMED_OUT, LOST = int(AttemptState.TIMED_OUT), int(AttemptState.LOST)
HANDED_BACK, CANCELLED = int(AttemptState.HANDED_BACK), int(AttemptState.CANCELLED)
SUSPENDED = int(AttemptState.SUSPENDED)
COMPLETED = int(RunState.COMPLETED)


ASSIGNED, LOADING, PENDING, SENT = range(4)
"""Stages of an attempt on its way to its worker: dispatched; its arguments are being loaded; it goes out with the next
reply to its worker; it went out."""


class InFlightAttempt(msgspec.Struct, gc=False):
    """An attempt that is assigned to a worker, with what only memory knows of it."""

    run: int
    row: AttemptRecord
    begun: bool = False
    of_map: bool = False  # its result is kept beside its run
    stage: int = ASSIGNED
    sent_seq: int = 0  # number of the call whose reply brought it, in the worker's session
    progress: tuple[int, int] | None = None
    progress_message: str = ""


class FlushWindow:
    """What changed between two writes of rows."""

    def __init__(self) -> None:
        # Runs that ended. Their rows are made at once: later, everything in them is cold.
        self.left: dict[tuple[str, str], RunRow] = {}
        self.left_keys: dict[tuple[str, str], RunRow] = {}
        self.history: dict[int, list[AttemptRecord]] = {}
        self.children: dict[tuple[int, int], dict[int, Value]] = {}
        self.cache: dict[str, CacheRow] = {}
        self.definitions: list[DefinitionRow] = []
        self.reopened: list[int] = []
        self.backfills: list[BackfillRow] = []
        self.fates: list[FateRange] = []  # while they are being written
        self.index: dict[Place, bytes] = {}  # entries, while they are being written
        self.ticks = 0


class WriteBehind:
    """Begin them with the state that is stored, as of the row `seq`, before the journal's tail is folded into it."""

    def __init__(self, state: State, seq: int = 0) -> None:
        self.state = state
        self.index = HistoryIndex(state, seq)
        self.epoch = 0  # the owner's; None while loading in advance
        self._touched = DirtyRows(state)
        self.ledger = Ledger(state)
        self.open: dict[int, InFlightAttempt] = {}
        self._fans: dict[int, dict[int, None]] = {}  # run -> tasks of map children that a worker holds
        self._reasons: dict[int, dict[int, str]] = {}  # unfinished run -> step -> why it failed
        self._unplaced: dict[int, tuple[str, str]] = {}  # failed tasks of this tick that no worker held
        self.window = FlushWindow()
        self.writing: FlushWindow | None = None
        for task in state.tasks.values():
            if task.worker is not None:
                self._open(task.number)

    # ---- every tick

    def observe(self, inputs: list[Input], events: list[ev.Event]) -> list[ev.Event]:
        """Record the events of a tick after the state applied them, and return the unusual ones. The events that every
        task has are handled inline: looking up each of them in each table would cost more than handling it."""
        window, state, touched, index = self.window, self.state, self._touched, self.index
        window.ticks += 1
        index.seq += 1
        now_ms, first_new = state.now_ms, touched.first_new
        others: list[ev.Event] = []
        for kind, event in zip(map(type, events), events, strict=True):
            if kind in _OF_RUNS:
                if event.run < first_new:  # type: ignore[union-attr]
                    others.append(event)
            elif kind is RunMoved:
                if event.run < first_new or event.trigger not in DERIVED_MOVES:  # type: ignore[union-attr]
                    others.append(event)
            elif kind is TaskSucceeded:
                held = self._end(event.task, SUCCEEDED, now_ms)  # type: ignore[union-attr]
                if held is None:
                    others.append(event)
                elif held.of_map:
                    # Also of a run that ended in this very tick: its map may be its last node, and its output.
                    request: Any = inputs[event.input]  # type: ignore[union-attr]
                    self.keep_child(held.run, held.row.step, held.row.child, request.value)
            elif kind is TaskDispatched:
                self._open(event.task)  # type: ignore[union-attr]
            else:
                others.append(event)
                handler = _HANDLERS.get(kind)
                if handler is not None:
                    handler(self, event, inputs, now_ms)
        if self._unplaced:
            self._place_failures()
        for run in state.closed:
            self._close(run, now_ms)
        for backfill in state.left_backfills:
            schedule = backfill.schedule
            data = attempts_encoder.encode(backfill_row(backfill))
            window.backfills.append(BackfillRow(backfill.number, schedule.tenant.id, schedule.name, data))
        touched.note(state, others)
        self.ledger.observe(inputs, others)
        index.observe(inputs, others)
        if state.lacking:
            index.note_lanes(_tasks_of(state, events))
        return others

    def _open(self, number: int) -> None:
        state, touched = self.state, self._touched
        task = state.tasks.blocks[number >> BLOCK_BITS][number]
        worker, run, index = task.worker, task.run, task.step.index
        assert worker is not None
        at, child = task.dispatched, task.child
        dispatched_ms = state.now_ms if at == state.tick else state.settings.clock.ms_of(at)
        row = AttemptRecord(number, index, child, task.attempt, worker.id, dispatched_ms)
        of_map = child >= 0 and run.plan.steps[index].kind is Kind.MAP
        self.open[number] = InFlightAttempt(run.number, row, task.started, of_map)
        if task.parent:
            self._fans.setdefault(run.number, {})[number] = None
        if run.number < touched.first_new:
            touched.runs.add(run.number)
            touched.tasks.add(number)

    def _end(self, number: int, state: int, now_ms: int, error: str = "", message: str = "") -> InFlightAttempt | None:
        held = self.open.pop(number, None)
        if held is None:
            return None
        row = held.row
        row.state, row.ended_ms = state, now_ms
        if error:
            row.error, row.message = error, message
        if row.child >= 0 and (fan := self._fans.get(held.run)) is not None:
            fan.pop(number, None)
        history = self.window.history.get(held.run)
        if history is None:
            self.window.history[held.run] = [row]
        else:
            history.append(row)
        return held

    def _close(self, run: Run, now_ms: int) -> None:
        """A run has left memory: what a worker still holds of it is over, and its parent may need its output."""
        number = run.number
        if run.counts is not None or number in self.open or number in self._fans:  # else its one task has ended
            for index in range(len(run.plan.steps)):
                if number + index in self.open:
                    self._end(number + index, CANCELLED, now_ms)
            for child in list(self._fans.pop(number, ())):
                self._end(child, CANCELLED, now_ms)
        window = self.window
        reasons = self._reasons.pop(number, {}) if self._reasons else {}
        row = window.left[run.tenant.id, run.id] = self._run_row(run, now_ms, window.history.pop(number, None), reasons)
        if run.key:
            window.left_keys[run.tenant.id, run.key] = row
        if run.parent:
            self._close_child(run, row)

    def _close_child(self, run: Run, row: RunRow) -> None:
        parent, step = run.parent_run, run.parent - run.parent_run
        if run.state == RunState.FAILED and parent in self.state.runs:
            self._reasons.setdefault(parent, {})[step] = row.error
        self.index.add(run.parent)
        completed = run.state == RunState.COMPLETED
        if not self._is_call(run) and (completed or parent in self.state.runs):
            self.keep_child(parent, step, run.child, output_of(run) if completed else None)

    def _is_call(self, run: Run) -> bool:
        """Whether a function called this run: the result is in the function's history."""
        parent = self.state.runs.get(run.parent_run)
        return parent is not None and parent.plan.steps[run.parent - run.parent_run].durable

    def keep_child(self, run: int, step: int, child: int, value: Value) -> None:
        """What a child gave: nothing where it failed. Its run may have been resolved, and then this child has the row
        of the child of its first life, which may have succeeded."""
        self.window.children.setdefault((run, step), {})[child] = value

    def keep_cached(self, key: str, value: Value, now_ms: int) -> None:
        self.window.cache[key] = CacheRow(key, encode_value(value), now_ms)

    # ---- writing

    @property
    def unwritten(self) -> bool:
        return self.window.ticks > 0

    @property
    def left_count(self) -> int:
        """Ended runs of which the store may not know yet."""
        return len(self.window.left) + (len(self.writing.left) if self.writing is not None else 0)

    def rows(self) -> Rows:
        """Close the window: rows as they stand now. `written` or `keep` follows."""
        assert self.writing is None, "one write at a time"
        window, state = self.window, self.state
        self.writing, self.window = window, FlushWindow()
        rows = Rows(header=encode_header(state))
        rows.runs = list(window.left.values())
        rows.attempts = [(number, attempts_encoder.encode(history)) for number, history in window.history.items()]
        rows.children = [
            ChildRow(run, step, child, encode_value(value))
            for (run, step), values in window.children.items()
            for child, value in values.items()
        ]
        rows.cache = list(window.cache.values())
        rows.definitions, rows.reopened = window.definitions, window.reopened
        changes = self._touched.take(state)
        rows.live_runs, rows.gone_runs = changes.live_runs, changes.gone_runs
        rows.live_tasks, rows.gone_tasks = changes.live_tasks, changes.gone_tasks
        rows.schedules, rows.gone_schedules = changes.schedules, changes.gone_schedules
        rows.fates, rows.backfills = changes.spans, window.backfills
        window.fates = rows.fates
        if self.epoch:
            self.index.cover(self.epoch, through=self.index.seq)
        window.index = self.index.take()
        rows.index = [IndexEntry(*key, data) for key, data in window.index.items()]
        return rows

    def ended_rows(self) -> Rows:
        """Rows of the runs that have ended, while the window stays open. `written` follows."""
        assert self.writing is None, "one write at a time"
        assert not self.window.reopened, "a run that was live again in this window is written with all of it"
        window, self.writing = self.window, FlushWindow()
        self.writing.left, window.left = window.left, {}
        self.writing.left_keys, window.left_keys = window.left_keys, {}
        return Rows(runs=list(self.writing.left.values()))

    def written(self) -> None:
        """The rows that were taken last are durable."""
        self.writing = None

    def _run_row(
        self, run: Run, ended_ms: int, history: list[AttemptRecord] | None, reasons: Mapping[int, str]
    ) -> RunRow:
        clock, plan = self.state.settings.clock, run.plan
        definition = plan.definition
        labelled = run.own is not None or definition.tags or definition.search
        origin_ms, resolution_ms = clock.origin_ms, clock.resolution_ms  # every run comes by here: no call for each
        return RunRow(
            run.number,
            run.id,
            run.tenant.id,
            plan.name,
            plan.hash,
            run.state,
            run.source,
            run.by,
            origin_ms + run.submitted * resolution_ms,
            origin_ms + run.started * resolution_ms if run.started else 0,
            ended_ms,
            run.key,
            "" if run.state == COMPLETED else error_of(run, reasons),
            run.schedule,
            rest_of_run(run),
            encode_value(output_of(run)),
            attempts_encoder.encode(history) if history else b"",
            tags_of(run) if labelled else (),
            searchable_of(run) if labelled else (),
            run.pin,
        )

    # ---- what the store does not know yet

    def find_left(self, tenant: str, run_id: str) -> RunRow | None:
        row = self.window.left.get((tenant, run_id))
        if row is None and self.writing is not None:
            row = self.writing.left.get((tenant, run_id))
        return row

    def find_left_key(self, tenant: str, key: str) -> RunRow | None:
        row = self.window.left_keys.get((tenant, key))
        if row is None and self.writing is not None:
            row = self.writing.left_keys.get((tenant, key))
        return row

    def recently_left(self) -> list[RunRow]:
        """Newest first."""
        windows = (self.window, self.writing) if self.writing is not None else (self.window,)
        return [row for window in windows for row in reversed(window.left.values())]

    def attempts_of(self, run: int) -> list[AttemptRecord]:
        """Those that ended and are not stored yet, then those that a worker holds."""
        windows = (self.writing, self.window) if self.writing is not None else (self.window,)
        ended = [row for window in windows for row in window.history.get(run, ())]
        return ended + [held.row for held in self.open_of(run)]

    def open_of(self, run: int) -> list[InFlightAttempt]:
        live = self.state.runs.get(run)
        if live is None:
            return []
        numbers = [run + index for index in range(len(live.plan.steps))] + list(self._fans.get(run, ()))
        return [held for number in numbers if (held := self.open.get(number)) is not None]

    def children_of(self, run: int, step: int) -> dict[int, Value]:
        children: dict[int, Value] = {}
        for window in (self.writing, self.window):
            if window is not None:
                children |= window.children.get((run, step), {})
        return children

    def fates_of(self, tenant: str, schedule: str) -> list[FateRange]:
        """Return the ranges whose present form the store may lack: the closed ones, then the one that may still
        grow."""
        closed = [*(self.writing.fates if self.writing is not None else ()), *self._touched.spans]
        owner = self.state.tenants.get(tenant)
        planned = owner.schedules.get(schedule) if owner is not None else None
        growing = [planned.span] if planned is not None and planned.span is not None else []
        growing += [
            walk.span for walk in self.state.backfills.values() if walk.schedule is planned and walk.span is not None
        ]
        return [span for span in closed if (span.tenant, span.name) == (tenant, schedule)] + growing

    def left_backfills(self, tenant: str) -> list[BackfillRow]:
        """Those that ended and are not stored yet, newest first."""
        windows = (self.writing, self.window) if self.writing is not None else (self.window,)
        return [row for window in windows for row in window.backfills if row.tenant == tenant][::-1]

    def index_entries(self, kind: int, subjects: tuple[int, int], *, after: int, through: int) -> list[IndexEntry]:
        """Return the entries that the store may not have yet, by seq."""
        written = self.writing.index if self.writing is not None else {}
        entries = {
            key: data
            for key, data in (*written.items(), *self.index.entries.items())
            if key.kind == kind and subjects[0] <= key.subject <= subjects[1] and after < key.seq <= through
        }
        return [IndexEntry(*entry, entries[entry]) for entry in sorted(entries, key=attrgetter("seq", "subject"))]

    def find_cached(self, key: str) -> CacheRow | None:
        for window in (self.window, self.writing):
            if window is not None and key in window.cache:
                return window.cache[key]
        return None

    # ---- single events

    def _on_child_dispatched(self, event: ev.ChildDispatched, _: list[Input], __: int) -> None:
        self._open(event.task)

    def _on_taken(self, event: ev.TaskTaken, inputs: list[Input], now_ms: int) -> None:
        held = self.open.get(event.task)
        if held is not None:
            taken: Any = inputs[event.input]  # the worker may be gone by the end of the tick
            held.row.worker, held.stage, held.sent_seq = taken.worker, ASSIGNED, 0
            held.row.marks = (*held.row.marks, now_ms - held.row.dispatched_ms)

    def _on_started(self, event: ev.AttemptStarted, _: list[Input], now_ms: int) -> None:
        held = self.open.get(event.task)
        if held is not None:
            held.begun = True
            held.row.marks = (*held.row.marks, now_ms - held.row.dispatched_ms)

    def _on_failed_attempt(self, event: ev.TaskFailed | ev.TaskRetrying, inputs: list[Input], now_ms: int) -> None:
        code = event.code if isinstance(event, ev.TaskFailed) else event.cause
        message = event.message if isinstance(event, ev.TaskFailed) else ""
        report = inputs[event.input] if event.input >= 0 else None
        state = LOST if code == "worker_lost" else FAILED if report is not None else TIMED_OUT
        message = message or getattr(report, "message", "")
        held = self._end(event.task, state, now_ms, code, message)
        if isinstance(event, ev.TaskFailed):
            if held is None:
                self._unplaced[event.task] = (code, message)
            else:
                self._note_failure(held.run, held.row.step, code, message)
                if held.of_map:
                    self.keep_child(held.run, held.row.step, held.row.child, None)

    def _on_skipped(self, event: ev.TaskSkipped, inputs: list[Input], now_ms: int) -> None:
        report: Any = inputs[event.input]
        held = self._end(event.task, SUCCEEDED, now_ms, "Skip", report.message)
        if held is not None and held.of_map:
            self.keep_child(held.run, held.row.step, held.row.child, None)

    def _on_step_ended(self, event: ev.StepEnded, _: list[Input], __: int) -> None:
        if event.phase == Phase.FAILED:
            self._reasons.setdefault(event.run, {})[event.step] = event.reason

    def _place_failures(self) -> None:
        """Note failures of maps, waits, approvals and the like, whose tasks are among those that have ended."""
        for task in self.state.ended:
            if (failure := self._unplaced.get(task.number)) is not None:
                self._note_failure(task.run.number, task.step.index, *failure)
                if task.parent:  # no worker took it in time
                    self.keep_child(task.run.number, task.step.index, task.child, None)
        self._unplaced = {}

    def _note_failure(self, run: int, step: int, code: str, message: str) -> None:
        reasons = self._reasons.setdefault(run, {})
        if step not in reasons or code not in OF_CHILDREN:
            reasons[step] = f"{code}: {message}" if message else code

    def _on_requeued(self, event: ev.TaskRequeued, _: list[Input], now_ms: int) -> None:
        self._end(event.task, LOST if event.cause == "lost" else HANDED_BACK, now_ms)

    def _on_suspended(self, event: ev.FunctionSuspended, _: list[Input], now_ms: int) -> None:
        self._end(event.task, SUSPENDED, now_ms)

    def _on_continued(self, event: ev.FunctionContinued, _: list[Input], now_ms: int) -> None:
        self._end(event.task, SUCCEEDED, now_ms)

    def _on_some_cancelled(
        self, event: ev.RunOverdue | ev.RunEnding | ev.FirstEnded, _: list[Input], now_ms: int
    ) -> None:
        """The attempts of nodes that are cancelled while their run goes on are over."""
        for task in self.state.ended:
            if task.run.number == event.run and task.phase == Phase.CANCELLED:
                self._end(task.number, CANCELLED, now_ms)

    def _on_turn_cancelled(self, event: ev.RepeatTimedOut | ev.TaskStopped, _: list[Input], now_ms: int) -> None:
        for task in self.state.ended:
            if task.parent == event.task and task.phase == Phase.CANCELLED:
                self._end(task.number, CANCELLED, now_ms)

    def _on_definition(self, event: ev.DefinitionPut, inputs: list[Input], now_ms: int) -> None:
        request: Any = inputs[event.input]
        document = self.state.documents[event.hash]
        name = self.state.plans[event.hash].name
        self.window.definitions.append(DefinitionRow(event.hash, request.tenant, name, document, now_ms))

    def _on_restored(self, event: ev.RunRestored, _: list[Input], __: int) -> None:
        """A failed run is live again. Where its row was not written yet, there is none to take back."""
        for window in (self.window, self.writing):
            if window is None:
                continue
            for key, row in list(window.left.items()):
                if row.number == event.run:
                    del window.left[key]
                    if row.attempts and window is self.window:
                        self.window.history[event.run] = attempts_decoder.decode(row.attempts)
        self.window.reopened.append(event.run)


# They change rows of their run and its tasks and nothing else, and a new run has none yet.
_OF_RUNS = frozenset({RunSubmitted, TaskReady})
_HANDLERS: dict[type[Any], Callable[[WriteBehind, Any, list[Input], int], None]] = {
    ev.ChildDispatched: WriteBehind._on_child_dispatched,
    ev.TaskTaken: WriteBehind._on_taken,
    ev.AttemptStarted: WriteBehind._on_started,
    ev.StepEnded: WriteBehind._on_step_ended,
    ev.TaskFailed: WriteBehind._on_failed_attempt,
    ev.TaskSkipped: WriteBehind._on_skipped,
    ev.TaskRetrying: WriteBehind._on_failed_attempt,
    ev.TaskRequeued: WriteBehind._on_requeued,
    ev.RunOverdue: WriteBehind._on_some_cancelled,
    ev.RunEnding: WriteBehind._on_some_cancelled,
    ev.FirstEnded: WriteBehind._on_some_cancelled,
    ev.RepeatTimedOut: WriteBehind._on_turn_cancelled,
    ev.TaskStopped: WriteBehind._on_turn_cancelled,
    ev.FunctionSuspended: WriteBehind._on_suspended,
    ev.FunctionContinued: WriteBehind._on_continued,
    ev.DefinitionPut: WriteBehind._on_definition,
    ev.RunRestored: WriteBehind._on_restored,
}


_INTO_LINE = frozenset(
    (
        ev.TaskReady,
        ev.TaskDue,
        ev.TaskRequeued,
        ev.CacheMissed,
        ev.TaskWaiting,
        ev.IterationStarted,
        ev.FunctionWoken,
        ev.FunctionContinued,
    )
)


def _tasks_of(state: State, events: list[ev.Event]) -> list[Task]:
    """Tasks that these events may have put into a ready queue."""
    named = [
        getattr(event, "task", 0) or getattr(event, "run", 0) + getattr(event, "step", 0)
        for event in events
        if type(event) in _INTO_LINE
    ]
    return [task for number in dict.fromkeys(named) if (task := state.tasks.get(number)) is not None]


def error_of(run: Run, reasons: Mapping[int, str]) -> str:
    """Return the first failed node and its error; for a child run, the child's own. Failures from before a restart of
    the server are only in the journal."""
    if run.state == RunState.CANCELLED:
        return ""
    if run.overdue:
        return TOOK_TOO_LONG  # what failed in its clean-up is not why it failed
    for step in failed_steps(run.plan, run.phases):
        return shortened(f"{step.id}: {reasons.get(step.index, 'failed')}", ERROR_CHARACTERS_MAX)
    return shortened(run.pause_reason or TOOK_TOO_LONG, ERROR_CHARACTERS_MAX)
