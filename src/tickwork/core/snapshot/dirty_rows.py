"""Which rows changed: what a store must rewrite so that it holds exactly the snapshot.

After every tick, live or folded, `note` reads its events, and `take` gives the rows as they stand now. A row
too many costs a write, a row too few is a wrong restart, so each rule here names whatever its event
may change: also the parent of a child, the run of a task, the tasks of a run that is paused. Three things no
event names; `evolve` keeps them for the tick: runs that closed, tasks that ended, runs that a gate let in.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from tickwork.core.evolve import live_tasks
from tickwork.core.snapshot.mailbox_rows import encode_asset, encode_event_id, encode_message
from tickwork.core.snapshot.run_rows import encode_run, encode_task
from tickwork.core.snapshot.schedule_rows import encode_schedule
from tickwork.core.state import events as ev
from tickwork.core.state.lifecycle import RunTrigger
from tickwork.core.state.schedule import FateRange
from tickwork.core.state.state import State
from tickwork.core.state.tables import BLOCK_BITS, NumberTable

T = TypeVar("T")
PAUSE, RESUME, WAIT = int(RunTrigger.PAUSE), int(RunTrigger.RESUME), int(RunTrigger.WAIT)


class RowChanges(msgspec.Struct):
    """Rows to put in place of what is stored under their number, and numbers of which nothing is left."""

    live_runs: list[tuple[int, bytes]]
    gone_runs: list[int]
    live_tasks: list[tuple[int, bytes]]
    gone_tasks: list[int]
    schedules: list[tuple[int, bytes]]
    gone_schedules: list[int]
    spans: list[FateRange]  # ranges of fates, each in place of one that began at the same time


class DirtyRows:
    """Numbers of the rows that may differ from those taken last. Begin it with the state that is stored.

    What is newer than the last taking has no row yet and is taken whole, so only older numbers are noted.
    """

    __slots__ = ("first_new", "runs", "schedules", "spans", "tasks")

    def __init__(self, state: State) -> None:
        self.runs: set[int] = set()
        self.tasks: set[int] = set()
        self.schedules: set[int] = set()
        self.spans: list[FateRange] = []
        self.first_new = state.next_number  # from here on nothing was ever taken

    def note(self, state: State, events: Iterable[ev.Event]) -> None:
        """Once after each tick, before the next one begins."""
        rules = RULES
        for event in events:
            rule = rules.get(type(event))
            if rule is not None:
                rule(self, state, event)
        new = self.first_new
        for task in state.ended:
            if task.run.number < new:  # a task is never older than its run, nor its parent
                self.tasks.add(task.number)
                self.runs.add(task.run.number)
                if task.parent:
                    self.tasks.add(task.parent)
        for run in state.closed:
            if run.number < new:
                self.runs.add(run.number)
            if run.parent:
                self.add_task(state, run.parent)
            if run.schedule:
                schedule = run.tenant.schedules.get(run.schedule)
                if schedule is not None:
                    self.schedules.add(schedule.number)
        for run, _ in state.let_in:
            self.runs.add(run.number)
        self.schedules.update(state.changed_messages)
        self.spans += state.spans

    def add_task(self, state: State, number: int) -> None:
        """A task and its run. Where it ended meanwhile, its run is found with it."""
        self.tasks.add(number)  # its run may be older: a child of a map is newer than its run
        block = state.tasks.blocks.get(number >> BLOCK_BITS)
        task = None if block is None else block.get(number)
        if task is not None:
            self.runs.add(task.run.number)

    def take(self, state: State) -> RowChanges:
        """All of them as they stand now. What came and went since the last time is not mentioned."""
        new = self.first_new
        runs = sorted(number for number in self.runs if number < new)
        tasks = sorted(number for number in self.tasks if number < new)
        numbers, spans = sorted(self.schedules), self.spans
        self.runs, self.tasks, self.first_new = set(), set(), state.next_number
        self.schedules, self.spans = set(), []
        schedules = [schedule for number in numbers if (schedule := state.schedules.get(number)) is not None]
        spans += [schedule.span for schedule in schedules if schedule.span is not None]
        spans += [backfill.span for backfill in state.backfills.values() if backfill.span is not None]
        rows = [(number, _tenant_row(state, number)) for number in numbers]
        live_runs = [run for number in runs if (run := state.runs.get(number)) is not None]
        live_tasks = [task for number in tasks if (task := state.tasks.get(number)) is not None]
        live_runs += _since(state.runs, new)
        live_tasks += _since(state.tasks, new)
        return RowChanges(
            [(run.number, encode_run(run)) for run in live_runs],
            [number for number in runs if number not in state.runs],
            [(task.number, encode_task(task)) for task in live_tasks],
            [number for number in tasks if number not in state.tasks],
            [(number, row) for number, row in rows if row is not None],
            [number for number, row in rows if row is None],
            spans,
        )


def _tenant_row(state: State, number: int) -> bytes | None:
    """A schedule, a message of a mailbox, an asset or the id of an event: their rows lie in one table."""
    if (schedule := state.schedules.get(number)) is not None:
        return encode_schedule(schedule)
    if (message := state.messages.get(number)) is not None:
        return encode_message(message)
    if (asset := state.assets.get(number)) is not None:
        return encode_asset(asset)
    kept = state.event_ids.get(number)
    return None if kept is None else encode_event_id(kept)


def _since(table: NumberTable[T], number: int) -> list[T]:
    """What has this number or a higher one, in order."""
    first = number >> BLOCK_BITS
    blocks = sorted(block for block in table.blocks if block >= first)
    return [thing for block in blocks for key, thing in sorted(table.blocks[block].items(), key=_key) if key >= number]


def _key(pair: tuple[int, Any]) -> int:
    return pair[0]


def _run(touched: DirtyRows, _state: State, event: Any) -> None:
    if event.run < touched.first_new:
        touched.runs.add(event.run)


def _runs(touched: DirtyRows, _state: State, event: ev.Visited | ev.Deferred) -> None:
    new = touched.first_new
    touched.runs.update(number for number in event.runs if number < new)


def _moved(touched: DirtyRows, state: State, event: ev.RunMoved) -> None:
    """A pause takes its tasks out of line, the end of it puts them back. A child at rest stirs its parent."""
    if event.trigger == PAUSE or event.trigger == WAIT:
        run = state.runs.get(event.run)
        if run is not None and run.parent_run:
            touched.runs.add(run.parent_run)
    if event.run >= touched.first_new:
        return
    touched.runs.add(event.run)
    if event.trigger == PAUSE or event.trigger == RESUME:
        run = state.runs.get(event.run)
        if run is not None:
            touched.tasks.update(task.number for task in live_tasks(state, run))


def _scheduled(touched: DirtyRows, _state: State, event: ev.RunScheduled) -> None:
    touched.runs.add(event.run)
    touched.schedules.add(event.schedule)


def _schedule(touched: DirtyRows, _state: State, event: Any) -> None:
    touched.schedules.add(event.schedule)


def _message(touched: DirtyRows, _state: State, event: ev.MessageKept | ev.MessageExpired | ev.MessageRefused) -> None:
    touched.schedules.add(event.message)  # its row lies beside those of schedules


def _heard(touched: DirtyRows, _state: State, event: ev.UpdateHeard | ev.RunEndHeard) -> None:
    touched.schedules.update(schedule for schedule, _ in event.heard)


def _asset(touched: DirtyRows, _state: State, event: ev.AssetUpdated) -> None:
    touched.schedules.add(event.asset)
    touched.schedules.update(schedule for schedule, _ in event.heard)


def _event_id(touched: DirtyRows, _state: State, event: ev.EventIdKept) -> None:
    touched.schedules.add(event.number)  # those forgotten with it are in `State.changed_messages`


def _scope(touched: DirtyRows, state: State, event: ev.ScopePaused | ev.ScopeResumed) -> None:
    """A group marks its members as dirty; every other scope is in the header."""
    request: Any = state.inputs[event.input]
    if request.scope == "group":
        group = state.tenants[request.tenant].groups.get(request.name)
        touched.schedules.update(group.members if group is not None else ())


def _holidays(touched: DirtyRows, state: State, event: ev.HolidaysPut) -> None:
    request: Any = state.inputs[event.input]
    users = [
        schedule
        for schedule in state.tenants[request.tenant].schedules.values()
        if request.name in schedule.when.holidays
    ]
    touched.schedules.update(user.number for user in users)


def _restored(touched: DirtyRows, state: State, event: ev.RunRestored) -> None:
    _run(touched, state, event)
    run = state.runs.get(event.run)
    schedule = run.tenant.schedules.get(run.schedule) if run is not None and run.schedule else None
    if schedule is not None:
        touched.schedules.add(schedule.number)


def _spawned(touched: DirtyRows, _state: State, event: ev.RunSpawned) -> None:
    touched.runs.add(event.run)
    touched.tasks.add(event.task)


def _step(touched: DirtyRows, _state: State, event: ev.TaskReady | ev.TaskChecking | ev.TaskWaiting) -> None:
    if event.run < touched.first_new:
        touched.runs.add(event.run)
        touched.tasks.add(event.run + event.step)


def _task(touched: DirtyRows, state: State, event: Any) -> None:
    touched.add_task(state, event.task)


def _retrying(touched: DirtyRows, state: State, event: ev.TaskRetrying) -> None:
    """A child run in backoff stirs its parent."""
    touched.add_task(state, event.task)
    task = state.tasks.get(event.task)
    if task is not None and task.run.parent_run:
        touched.runs.add(task.run.parent_run)


def _task_alone(touched: DirtyRows, _state: State, event: Any) -> None:
    touched.tasks.add(event.task)


def _child(touched: DirtyRows, state: State, event: ev.ChildDispatched | ev.IterationStarted) -> None:
    touched.tasks.add(event.task)
    touched.add_task(state, event.parent)


RULES: dict[type[Any], Callable[[DirtyRows, State, Any], None]] = {
    ev.RunSubmitted: _run,
    ev.RunDebounced: _run,
    ev.RunScheduled: _scheduled,
    ev.RunSpawned: _spawned,
    ev.RunRestored: _restored,
    ev.SchedulePut: _schedule,
    ev.ScheduleRemoved: _schedule,
    ev.SchedulePaused: _schedule,
    ev.ScheduleResumed: _schedule,
    ev.ScheduleDecided: _schedule,
    ev.HintsChanged: _schedule,
    ev.ScheduleStateChanged: _schedule,
    ev.CatchUpDecided: _schedule,
    ev.OccurrencesSettled: _schedule,
    ev.OccurrenceBuffered: _schedule,
    ev.OccurrencesCancelled: _schedule,
    ev.ScheduleMoved: _schedule,
    ev.HolidaysPut: _holidays,
    ev.MessageKept: _message,  # the fate of one that is taken, and those forgotten, are in `State.changed_messages`
    ev.MessageExpired: _message,
    ev.MessageRefused: _message,
    ev.UpdateHeard: _heard,
    ev.RunEndHeard: _heard,
    ev.UpdatesSettled: _schedule,
    ev.EventIdKept: _event_id,
    ev.AssetUpdated: _asset,
    ev.ScopePaused: _scope,
    ev.ScopeResumed: _scope,
    ev.RunRerun: _run,
    ev.FollowUpStarted: _run,
    ev.RunDetached: _run,  # the task of its parent ends in this tick
    ev.RunGated: _run,
    ev.RunRated: _run,
    ev.GateTaken: _run,
    ev.RunMoved: _moved,
    ev.Visited: _runs,
    ev.Deferred: _runs,
    ev.EventStored: _run,
    ev.UpdateReceived: _run,
    ev.SlaReached: _run,
    ev.RunOverdue: _run,  # the tasks that it cancels have ended, and are found there
    ev.RunEnding: _run,
    ev.StepCancelled: _run,
    ev.RunDue: _run,
    ev.QueueChosen: _run,
    ev.TaskReady: _step,
    ev.TaskChecking: _step,
    ev.TaskWaiting: _step,
    ev.TaskDispatched: _task,
    ev.ChildDispatched: _child,
    ev.IterationStarted: _child,
    ev.TaskTaken: _task_alone,
    ev.AttemptStarted: _task_alone,
    ev.AttemptCheckpointed: _task_alone,
    ev.IterationDelayed: _task_alone,
    ev.RepeatTimedOut: _task,  # the turn that it cancels has ended, and is found there
    ev.TaskStopped: _task,  # its children as well
    ev.TaskRetrying: _retrying,
    ev.TaskDue: _task,
    ev.TaskRequeued: _task,
    ev.CacheMissed: _task,
    ev.ExtractRequested: _run,
    ev.ExtractKept: _run,
    ev.WaitElapsed: _task,
    ev.StepEnded: _run,
    ev.FirstEnded: _run,  # the tasks that it cancels have ended, and are found there
    ev.StepReset: _run,
    ev.StepAccepted: _run,
    ev.StepsAppended: _task,  # and what it published or replied is in its run
    ev.FunctionSuspended: _task,
    ev.StepRetrying: _task,
    ev.AwaitMet: _task,
    ev.FunctionWoken: _task,
    ev.FunctionContinued: _task,
    ev.FunctionCancelled: _task,
}

# The task of each of these has ended, and is found there.
ENDINGS = frozenset({ev.TaskSucceeded, ev.TaskFailed, ev.TaskSkipped, ev.TaskAnswered, ev.FanOutEnded})
# All that these change is in the header, or in a document.
HEADER_ONLY = frozenset(
    {
        ev.DefinitionPut, ev.TenantPut, ev.QueuePut, ev.LabelLimitPut, ev.PolicyPut, ev.PolicyRemoved,
        ev.QueueRemoved, ev.WorkflowRemoved, ev.SettingsPut, ev.ZonesChanged, ev.CatchUpChosen,
        ev.VersionPut, ev.VersionAbsent, ev.TimersHeld, ev.RateKeysSwept,
        ev.InputRefused, ev.Duplicate, ev.StaleReport, ev.ClockGapRecorded, ev.PolicyDecided, ev.WorkerOffered,
        ev.WorkerGone,
        ev.QueueHeld, ev.RateDue, ev.LoadShed, ev.BackfillStarted, ev.BackfillStateChanged, ev.BackfillLookupStarted,
        ev.BackfillLookupFinished,
        ev.BackfillEnded, ev.MailboxPut, ev.MailboxRemoved,
        ev.CommandQueued, ev.CommandAcknowledged, ev.CommandReceived, ev.BulkStarted, ev.BulkActed, ev.BulkCancelled,
    }
)  # fmt: skip
