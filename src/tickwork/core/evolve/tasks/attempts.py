"""Tasks of a run and their attempts: ready, dispatched, running, retried, ended."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from tickwork.core.base.values import Value
from tickwork.core.definition.plan import Kind, Step
from tickwork.core.evolve.awaits import forget_awaits, take_arrived
from tickwork.core.evolve.follow_ups import OF_CHILDREN, note_error
from tickwork.core.evolve.indexes import (
    begin_attempt,
    change_worker,
    clear_due,
    clear_timer,
    count_begun,
    dequeue,
    end_attempt,
    enqueue,
    left_line,
    new_rated_gauge,
    set_due,
    set_timer,
    wait_no_more,
    want,
)
from tickwork.core.evolve.races import GOOD, losers_of
from tickwork.core.evolve.tasks.nodes import count_ended, keep_result
from tickwork.core.evolve.worker_pools import handler_of, learn_lack
from tickwork.core.state import events as ev
from tickwork.core.state.inputs import Failed
from tickwork.core.state.lifecycle import TASK_NEXT, Cause, Phase, RunState, move_task
from tickwork.core.state.ready_queues import ReadyQueue
from tickwork.core.state.retry import HANDLER_MISSING, RetryBudget
from tickwork.core.state.state import NOTHING, FanOut, Queue, Run, State, Task, Timer, Worker
from tickwork.core.state.tables import BLOCK_BITS, with_entry, without_entry

PENDING = int(Phase.PENDING)
READY = int(Phase.READY)
RUNNING = int(Phase.RUNNING)
WAITING = int(Phase.WAITING)
SUCCEEDED = int(Phase.SUCCEEDED)
FAILED = int(Phase.FAILED)
CANCELLED = int(Phase.CANCELLED)
ACTIVE = int(RunState.ACTIVE)
PAUSED = int(RunState.PAUSED)
SUCCEED = int(Cause.SUCCEED)


def live_tasks(state: State, run: Run) -> list[Task]:
    """Every task of a run that was reached and has not ended, children included, in order."""
    live: list[Task] = []
    tasks, number = state.tasks, run.number
    for index, phase in enumerate(run.phases):
        if phase and phase < SUCCEEDED:
            task = tasks[number + index]
            live.append(task)
            if task.fan is not None and task.step.body is not None and task.step.body.kind is Kind.WORK:
                live.extend(tasks[child] for _, child in sorted(task.fan.live.items()))
    return live


def make_task(state: State, run: Run, step: Step, cause: Cause) -> Task:
    index = step.index
    task = Task(run.number + index, run, step, move_task(run.phases[index], cause), run.before)
    run.phases[index] = task.phase
    state.tasks.add(task.number, task)
    return task


def _on_ready(state: State, event: ev.TaskReady) -> None:
    run = state.runs[event.run]
    made_ready(state, run, run.plan.steps[event.step])


def made_ready(state: State, run: Run, step: Step) -> None:
    index = step.index
    assert run.phases[index] == PENDING, "a node is made ready once"
    run.phases[index] = READY
    number = run.number + index
    task = state.tasks.blocks[number >> BLOCK_BITS][number] = Task(number, run, step, READY, run.before)
    if run.history is not None:
        task.history, run.history = run.history, None
    run.busy += 1
    if step.timeout.queued_ms is None and run.state == ACTIVE:
        enqueue(state, task)
    elif run.state != PAUSED:
        stand_in_line(state, task)


def stand_in_line(state: State, task: Task) -> None:
    """A ready task waits for a worker, and only so long. Call it unless its run is paused."""
    queued_ms = task.step.timeout.queued_ms
    if queued_ms is not None:
        set_due(state, task, state.tick + state.settings.clock.ticks(queued_ms))
    enqueue(state, task)


def _on_queue_chosen(state: State, event: ev.QueueChosen) -> None:
    """A worker serves the queue: it may be one that no definition names."""
    run = state.runs[event.run]
    run.chosen = {**(run.chosen or {}), event.step: (event.queue, event.labels)}
    know_queue(state, event.queue)


def know_queue(state: State, name: str) -> None:
    """A worker serves it, and no definition names it."""
    if name and name not in state.queues:
        state.queues[name] = Queue(name, new_rated_gauge(state, "queue", name))
    elif name:
        state.queues[name].removed = False


def _on_checking(state: State, event: ev.TaskChecking) -> None:
    run = state.runs[event.run]
    task = make_task(state, run, run.plan.steps[event.step], Cause.CHECK)
    task.cache_key = event.key
    run.busy += 1


def _on_cache_missed(state: State, event: ev.CacheMissed) -> None:
    task = state.tasks[event.task]
    _set_phase(task, Cause.MISS)
    if task.run.state != RunState.PAUSED:
        stand_in_line(state, task)


def on_dispatched(state: State, event: ev.TaskDispatched) -> None:
    task = state.tasks.blocks[event.task >> BLOCK_BITS][event.task]
    lane = task.lane
    assert lane is not None
    if lane.tasks[0] is not task:  # some that left the line stand before it
        assert lane.head() is task, "a lane is served in order"
    if task.due:
        clear_due(state, task)
    lane.tasks.popleft()
    lane.orders.popleft()
    task.queued = False
    left_line(state, lane)
    begin_attempt(state, task, state.workers[event.worker], lane)
    if not task.parent:
        task.run.phases[task.step.index] = RUNNING


def plain_first(lane: ReadyQueue, count: int) -> list[Task]:
    """Those at the front of a line, at most so many, for which `dispatch_together` is the same as one by one."""
    first: list[Task] = []
    if count <= 1 or not lane.plain or lane.tenant.more != NOTHING:
        return first
    for task, order in zip(islice(lane.tasks, count), lane.orders, strict=False):
        if not task.queued or task.order != order or task.due or task.fan is not None or task.step.timed:
            break
        first.append(task)
    return first


def dispatch_together(state: State, lane: ReadyQueue, tasks: list[Task], worker: Worker) -> None:
    """What `on_dispatched` does for each of them in turn."""
    tick, held = state.tick, worker.tasks
    for task in tasks:
        lane.tasks.popleft()
        lane.orders.popleft()
        task.queued = task.started = False
        task.phase = RUNNING
        task.attempt += 1
        task.worker = worker
        task.dispatched = task.heard = tick
        held[task.number] = task
        if not task.parent:
            task.run.phases[task.step.index] = RUNNING
    left_line(state, lane, len(tasks))
    count_begun(state, lane, worker, len(tasks))


def _on_taken(state: State, event: ev.TaskTaken) -> None:
    change_worker(state, state.tasks[event.task], state.workers[event.worker])


def has_children_to_give(task: Task) -> bool:
    fan, node = task.fan, task.step.node
    assert fan is not None
    room: int | None = fan.max_parallel or getattr(node, "max_parallel", None)
    return fan.begun < fan.total and (room is None or fan.running < room)


def stir_map(state: State, run: Run) -> None:
    """This child run holds no place in line any more, so its map may make the next one."""
    task = state.tasks.get(run.parent)
    if task is not None and task.fan is not None and task.step.kind is Kind.MAP and has_children_to_give(task):
        want(state, task.run)


def offer_children(state: State, task: Task) -> None:
    """A map whose children are tasks stands in line for them."""
    gives = task.step.kind is Kind.MAP and task.step.body is not None and task.step.body.kind is Kind.WORK
    if gives and not task.queued and has_children_to_give(task) and task.run.state != RunState.PAUSED:
        enqueue(state, task)
        task.run.busy += 1


def take_from_lane(state: State, task: Task) -> None:
    dequeue(state, task)
    if task.fan is not None:
        task.run.busy -= 1


def _set_phase(task: Task, cause: Cause) -> None:
    task.phase = move_task(task.phase, cause)
    if task.parent == 0:
        task.run.phases[task.step.index] = task.phase


def _on_started(state: State, event: ev.AttemptStarted) -> None:
    task = state.tasks[event.task]
    task.started = True
    _heard_from(state, task)


def _heard_from(state: State, task: Task) -> None:
    task.heard = state.tick
    silent_ms = task.step.timeout.silent_ms
    if silent_ms is not None and task.silent_at:  # with a broker, silence is not timed
        clear_timer(state, Timer.SILENT, task.number, task.silent_at)
        task.silent_at = state.tick + state.settings.clock.ticks(silent_ms)
        set_timer(state, Timer.SILENT, task.number, task.silent_at)


def _on_succeeded(state: State, event: ev.TaskSucceeded) -> None:
    report: Any = state.inputs[event.input]
    succeeded(state, state.tasks[event.task], report.value)


def succeeded(state: State, task: Task, value: Value) -> None:
    if task.phase == RUNNING:
        end_attempt(state, task)
        if task.attempt != 1:
            _note_tries(task)
        elif task.step.requirement[4]:
            _earn_retries(state, task)
    end_task(state, task, SUCCEED, value, visit=False)
    run = task.run
    if not run.wanted and (run.unfinished or not _completes(run)):
        run.wanted = state.stamp
        state.fresh.append(run)


def _completes(run: Run) -> bool:
    """Whether a run whose nodes have all ended is complete without another look at it."""
    if run.history is not None and run.history.cancelled:
        return False
    return run.plan.ends_itself and run.state == ACTIVE and not (run.failures or run.overdue or run.ending)


def _earn_retries(state: State, task: Task) -> None:
    """A first attempt that went well pays for the retries of others."""
    budget = task.run.tenant.budgets.get(task.step.requirement[4])
    if budget is not None:
        budget.earn(state.settings)


def _on_retrying(state: State, event: ev.TaskRetrying) -> None:
    task = state.tasks[event.task]
    dependency = task.step.requirement[4]
    report = state.inputs[event.input] if event.input >= 0 else None
    worker = task.worker
    missing = event.cause == HANDLER_MISSING and isinstance(report, Failed) and report.permanent
    if dependency and not missing:
        task.run.tenant.budgets.setdefault(dependency, RetryBudget()).book(state.settings, state.now_ms)
    if task.phase == RUNNING:
        end_attempt(state, task)
        take_arrived(task)
    elif task.phase == WAITING:
        stop_waiting(state, task)
        task.run.busy += 1
    if missing and worker is not None:  # it could do nothing with it; now another lane may be right
        task.returns += 1
        task.lane = None
        learn_lack(state, worker, handler_of(task.step))
    _set_phase(task, Cause.RETRY)
    set_due(state, task, event.due)
    if task.run.parent:
        stir_map(state, task.run)


def _on_due(state: State, event: ev.TaskDue) -> None:
    task = state.tasks[event.task]
    clear_due(state, task)
    run = task.run
    if task.step.kind is Kind.WORKFLOW:
        _set_phase(task, Cause.WAIT)
        run.busy -= 1
        start_waiting(state, task, FanOut(total=1))
        want(state, run)
        return
    _set_phase(task, Cause.DUE)
    if run.state != RunState.PAUSED:
        stand_in_line(state, task)


def _on_requeued(state: State, event: ev.TaskRequeued) -> None:
    task = state.tasks[event.task]
    end_attempt(state, task)
    take_arrived(task)
    if event.cause == "lost":
        task.losses += 1
    else:
        task.returns += 1
    _set_phase(task, Cause.REQUEUE)
    if task.run.state != RunState.PAUSED:
        stand_in_line(state, task)


def _on_failed(state: State, event: ev.TaskFailed) -> None:
    task = state.tasks[event.task]
    if task.phase == RUNNING:
        end_attempt(state, task)
    elif task.queued and task.fan is None:
        dequeue(state, task)
    clear_due(state, task)
    _note_tries(task)
    report = state.inputs[event.input] if event.input >= 0 else None
    if task.history is not None:
        task.history.failed = report.position if isinstance(report, Failed) else -1
    message = event.message or getattr(report, "message", "")
    note_error(task.run, task.step.index, event.code, message, first=bool(task.parent) or event.code in OF_CHILDREN)
    end_task(state, task, Cause.FAIL, None)


def _on_skipped(state: State, event: ev.TaskSkipped) -> None:
    task = state.tasks[event.task]
    end_attempt(state, task)
    _note_tries(task)
    end_task(state, task, Cause.NOT_TAKE, None)


def start_waiting(state: State, task: Task, fan: FanOut | None) -> None:
    run = task.run
    run.waiting += 1
    task.fan = fan
    if fan is not None:
        if task.step.kind is Kind.WORKFLOW:
            task.attempt += 1
        run.fanning = with_entry(run.fanning, task.step.index, task)
        offer_children(state, task)


def stop_waiting(state: State, task: Task) -> None:
    """What it stood in line or was listed for while it waited."""
    run = task.run
    run.waiting -= 1
    clear_due(state, task)
    if task.queued:
        take_from_lane(state, task)
    if task.wait_key is not None:
        wait_no_more(run.tenant, task.wait_key, task)
    if task.fan is not None:
        clear_deadline(state, task, task.fan)
    if task.fan is not None and run.fanning is not None and run.fanning.get(task.step.index) is task:
        run.fanning = without_entry(run.fanning, task.step.index)


def clear_deadline(state: State, task: Task, fan: FanOut) -> None:
    if fan.deadline:
        clear_timer(state, Timer.REPEAT, task.number, fan.deadline)
        fan.deadline = 0


def end_task(state: State, task: Task, cause: int, value: Value, *, visit: bool = True) -> None:
    """End a task: its run counts it, and its next nodes move up."""
    run, number = task.run, task.number
    if task.history is not None:
        _leave_history(task)
    if task.phase == WAITING:
        stop_waiting(state, task)
    else:
        run.busy -= 1
    after = TASK_NEXT[task.phase * 16 + cause]
    task.phase = after if after >= 0 else move_task(task.phase, cause)
    block = state.tasks.blocks[number >> BLOCK_BITS]
    del block[number]
    if not block:
        del state.tasks.blocks[number >> BLOCK_BITS]
    state.ended.append(task)
    if task.parent:
        _child_ended(state, task, value)
    else:
        step = task.step
        run.phases[step.index] = task.phase
        if value is not None:
            keep_result(run, step.index, value)
        if run.counts is None and task.phase != FAILED:
            run.unfinished = 0
        else:
            count_ended(run, step)
    if visit and not run.wanted:
        run.wanted = state.stamp
        state.fresh.append(run)


def _leave_history(task: Task) -> None:
    """The history of a function stays with its run: people read it, and a run that failed may go on from it."""
    forget_awaits(task)
    if task.step.durable:
        task.run.history = task.history


def _child_ended(state: State, child: Task, value: Value) -> None:
    parent = state.tasks[child.parent]
    fan = parent.fan
    assert fan is not None
    del fan.live[child.child]
    fan.running -= 1
    if child.phase in (SUCCEEDED, Phase.NOT_TAKEN):
        fan.succeeded += 1
        fan.failed_in_a_row = 0
        if parent.step.kind is Kind.REPEAT:
            fan.last = value
    else:
        fan.failed += 1
        fan.failed_in_a_row += 1
    offer_children(state, parent)


def drop_task(state: State, task: Task) -> None:
    """A task whose run ends under it, or has no time left for it. The caller counts and visits its run."""
    run = task.run
    if task.history is not None:
        _leave_history(task)
    if task.phase == WAITING:
        stop_waiting(state, task)
    else:
        run.busy -= 1
        if task.phase == RUNNING:
            end_attempt(state, task)
        elif task.queued:
            dequeue(state, task)
        clear_due(state, task)
    task.phase = Phase.CANCELLED
    _note_tries(task)
    state.tasks.remove(task.number)
    state.ended.append(task)
    if task.parent == 0:
        run.phases[task.step.index] = Phase.CANCELLED
        run.unfinished -= 1


def _note_tries(task: Task) -> None:
    """A worker that still runs an attempt of a failed run may report it when the run is back. Children of a map get
    new numbers then; a node has the same, so none of its attempts may have the number of an earlier one."""
    if not task.parent:
        task.run.tried = max(task.run.tried, task.attempt)


def cancel_steps(state: State, run: Run, steps: list[Step]) -> None:
    """Cancel nodes that have not ended, in a run that goes on."""
    cut, unfinished = {step.index for step in steps}, run.unfinished
    for task in live_tasks(state, run):
        if task.step.index in cut:  # the body of a map has the index of the map
            drop_task(state, task)
    run.unfinished = unfinished  # nodes that were not reached have no task to drop: all are counted below
    for step in steps:
        run.phases[step.index] = CANCELLED
        count_ended(run, step)


def _on_first_ended(state: State, event: ev.FirstEnded) -> None:
    run = state.runs[event.run]
    plan, phases = run.plan, run.phases
    step = plan.steps[event.step]
    cancel_steps(state, run, [plan.steps[index] for index in losers_of(plan, step, phases)])
    good = phases[event.winner] in GOOD
    phases[step.index] = move_task(phases[step.index], Cause.SUCCEED if good else Cause.BLOCK)
    value = (run.results or {}).get(event.winner)
    if good and value is not None:
        keep_result(run, step.index, value)
    count_ended(run, step)


def _on_checkpoint(state: State, event: ev.AttemptCheckpointed) -> None:
    task = state.tasks[event.task]
    report: Any = state.inputs[event.input]
    task.checkpoint = report.value
    _heard_from(state, task)


ATTEMPT_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.QueueChosen: _on_queue_chosen,
    ev.TaskReady: _on_ready,
    ev.TaskDispatched: on_dispatched,
    ev.TaskTaken: _on_taken,
    ev.AttemptStarted: _on_started,
    ev.TaskSucceeded: _on_succeeded,
    ev.TaskRetrying: _on_retrying,
    ev.TaskDue: _on_due,
    ev.TaskRequeued: _on_requeued,
    ev.TaskFailed: _on_failed,
    ev.TaskSkipped: _on_skipped,
    ev.TaskChecking: _on_checking,
    ev.CacheMissed: _on_cache_missed,
    ev.FirstEnded: _on_first_ended,
    ev.AttemptCheckpointed: _on_checkpoint,
}
