"""State changes here and nowhere else.

`evolve(state, event)` applies one recorded decision, in place, for live ticks and for replay
alike. It never decides: given the same events it rebuilds the same state, whatever the rules
that once decided them. A handler per event, found in one table; a test checks that no event
is without one.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core import events as ev
from tickwork.core.evolve_setup import SETUP_HANDLERS, arm_schedule, stop_schedule
from tickwork.core.inputs import Input, Redrive, Rerun, Resolve, RunRecord, Submit
from tickwork.core.lifecycle import ENDED, Cause, Phase, RunState, RunTrigger, move_run, move_task
from tickwork.core.model import Budget, Fan, Gate, Heard, Run, State, Task, Tenant, Timer
from tickwork.core.plan import Kind, Plan, Step
from tickwork.core.rerun import kept_steps
from tickwork.core.timetext import instant_text
from tickwork.core.upkeep import (
    begin_attempt,
    clear_due,
    clear_timer,
    dequeue,
    end_attempt,
    enqueue,
    leave_line,
    left_line,
    merge_fresh,
    set_due,
    set_timer,
    want,
)
from tickwork.core.values import Ref, Value

PENDING, READY, RUNNING, BACKOFF = Phase.PENDING, Phase.READY, Phase.RUNNING, Phase.BACKOFF
CHECKING, WAITING, SUCCEEDED, FAILED = Phase.CHECKING, Phase.WAITING, Phase.SUCCEEDED, Phase.FAILED
_SINGLE = b"\x00"


def begin_tick(state: State, tick: int, inputs: list[Input]) -> None:
    assert tick > state.tick, "ticks of a partition strictly rise"
    state.tick = state.stamp = tick
    state.now_ms = state.settings.clock.ms_of(tick)
    state.inputs = inputs
    state.closed = []


def evolve(state: State, event: ev.Event) -> None:
    HANDLERS[type(event)](state, event)


# ---- runs come


def _add_run(state: State, run: Run) -> None:
    tenant = run.tenant
    state.runs.add(run.number, run)
    tenant.runs.add(run.id, run)
    if run.key:
        tenant.keys.add(run.key, run)
    state.live_runs += 1


def _new_run(
    state: State,
    number: int,
    run_id: str,
    tenant: Tenant,
    plan: Plan,
    inputs: Value,
    by: str,
    source: str,
) -> Run:
    size = len(plan.steps)
    state.next_number = number + size
    run = Run(
        number,
        run_id,
        tenant,
        plan,
        inputs,
        by,
        source,
        state.tick,
        bytearray(_SINGLE) if size == 1 else bytearray(size),
        None if size == 1 else plan.fresh_counts(),
        size,
    )
    run.todo = plan.roots
    tenant.accepted += 1
    tenant.active += 1
    return run


def _start_later(state: State, run: Run, tick: int) -> None:
    if run.start_at:
        clear_timer(state, Timer.RUN_START, run.number, run.start_at)
    run.start_at = set_timer(state, Timer.RUN_START, run.number, tick)


def _on_submitted(state: State, event: ev.RunSubmitted) -> None:
    asked = state.inputs[event.input]
    assert isinstance(asked, Submit)
    tenant = state.tenants[asked.tenant]
    terms = asked.terms
    plan = state.plans[terms.definition] if terms and terms.definition else tenant.plans[asked.workflow]
    run = _new_run(state, event.run, asked.run_id, tenant, plan, asked.inputs, asked.by, "submit")
    if terms is not None:
        run.key, run.body, run.debounce = terms.key, terms.body, terms.debounce
        if terms.priority is not None:
            run.priority = terms.priority
        if terms.debounce:
            tenant.debounced[terms.debounce] = run
    _add_run(state, run)
    if plan.sla_points:
        _arm_sla(state, run)
    if event.start_at:
        _start_later(state, run, event.start_at)
    else:
        run.wanted = state.stamp
        state.fresh.append(run)


def _on_run_due(state: State, event: ev.RunDue) -> None:
    run = state.runs[event.run]
    clear_timer(state, Timer.RUN_START, run.number, run.start_at)
    run.start_at = 0
    want(state, run)


def _on_debounced(state: State, event: ev.RunDebounced) -> None:
    run = state.runs[event.run]
    asked = state.inputs[event.input]
    assert isinstance(asked, Submit)
    run.inputs = asked.inputs
    _start_later(state, run, event.start_at)


def _on_scheduled(state: State, event: ev.RunScheduled) -> None:
    schedule = state.schedules[event.schedule]
    tenant = schedule.tenant
    stop_schedule(state, schedule)
    schedule.fired += 1
    schedule.last_fired_ms = event.due_ms
    arm_schedule(state, schedule, event.next_ms)
    if not event.run:
        return
    run_id = f"sched-{schedule.name}-{instant_text(event.due_ms)}"
    plan = tenant.plans[schedule.workflow]
    run = _new_run(state, event.run, run_id, tenant, plan, schedule.inputs, schedule.by, "schedule")
    run.schedule, run.scheduled_ms = schedule.name, event.due_ms
    _add_run(state, run)
    if plan.sla_points:
        _arm_sla(state, run)
    want(state, run)


def _on_spawned(state: State, event: ev.RunSpawned) -> None:
    task = state.tasks[event.task]
    parent, fan = task.run, task.fan
    assert fan is not None
    run_id = f"{parent.id}.{task.step.id}.{event.child}.{task.attempt}"
    plan = state.plans[event.definition]
    run = _new_run(state, event.run, run_id, parent.tenant, plan, event.inputs, parent.by, "child")
    run.parent, run.child, run.priority = task.number, event.child, parent.priority
    fan.begun += 1
    fan.running += 1
    fan.live[event.child] = run.number
    _add_run(state, run)
    if plan.sla_points:
        _arm_sla(state, run)
    want(state, run)


def _on_restored(state: State, event: ev.RunRestored) -> None:
    asked = state.inputs[event.input]
    assert isinstance(asked, Resolve | Redrive)
    record = asked.record if isinstance(asked, Resolve) else asked.records[event.record]
    assert record is not None
    tenant = state.tenants[asked.tenant]
    run = run_of_record(tenant, state.plans[record.definition], record)
    _add_run(state, run)
    tenant.failed -= 1
    tenant.active += 1
    if event.start_at:
        tenant.redrive_ms = state.settings.clock.ms_of(event.start_at)
        _start_later(state, run, event.start_at)


def run_of_record(tenant: Tenant, plan: Plan, record: RunRecord) -> Run:
    """A run as its rows hold it. Counts follow from the phases of its nodes."""
    phases = bytearray(record.phases)
    counts = [sum(phases[parent] not in ENDED for parent in step.parents) for step in plan.steps]
    run = Run(
        record.number,
        record.run_id,
        tenant,
        plan,
        record.inputs,
        record.by,
        record.source,
        record.submitted,
        phases,
        None if len(counts) == 1 else (bytearray(counts) if max(counts) < 256 else counts),
        sum(phase not in ENDED for phase in phases),
    )
    run.state, run.started, run.priority = record.state, record.started, record.priority
    run.failures = sum(phase == FAILED for phase in phases)
    run.results = dict(record.results) or None
    run.key, run.body = record.key, record.body
    run.scheduled_ms, run.schedule = record.scheduled_ms, record.schedule
    run.sla_next = len(plan.sla_points)  # what was promised is over
    return run


def record_of_run(run: Run) -> RunRecord:
    return RunRecord(
        run.number,
        run.id,
        run.plan.hash,
        run.state,
        run.inputs,
        run.by,
        run.source,
        run.submitted,
        run.started,
        run.priority,
        bytes(run.phases),
        run.results or {},
        run.key,
        run.body,
        run.scheduled_ms,
        run.schedule,
    )


def _on_rerun(state: State, event: ev.RunRerun) -> None:
    asked = state.inputs[event.input]
    assert isinstance(asked, Rerun)
    record = asked.record
    old_plan = state.plans[record.definition]
    plan = state.plans[asked.definition] if asked.definition else old_plan
    inputs = asked.inputs if asked.change_inputs else record.inputs
    run = _new_run(
        state, event.run, asked.run_id, state.tenants[asked.tenant], plan, inputs, asked.by, f"rerun of {record.run_id}"
    )
    for index, (phase, value) in kept_steps(old_plan, record, plan, asked.from_node).items():
        run.phases[index] = phase
        _count_ended(run, plan.steps[index])
        if value is not None:
            _keep_result(run, index, value)
    _add_run(state, run)
    if plan.sla_points:
        _arm_sla(state, run)
    want(state, run)


def _on_gated(state: State, event: ev.RunGated) -> None:
    run = state.runs[event.run]
    run.gate = _gate(run, event.key)
    run.gated = True
    run.gate.line.append(run)


def _on_gate_taken(state: State, event: ev.GateTaken) -> None:
    run = state.runs[event.run]
    run.gate = _gate(run, event.key)
    run.gate.holding += 1


def _gate(run: Run, key: str) -> Gate:
    concurrency = run.plan.definition.concurrency
    assert concurrency is not None
    gate = run.tenant.gates.get((run.plan.name, key))
    if gate is None:
        gate = run.tenant.gates[run.plan.name, key] = Gate(limit=concurrency.limit)
    gate.limit = concurrency.limit
    return gate


# ---- runs move


def _on_moved(state: State, event: ev.RunMoved) -> None:
    run = state.runs[event.run]
    trigger = event.trigger
    run.state = after = move_run(run.state, RunTrigger(trigger))
    if trigger == RunTrigger.START:
        run.started = state.tick
        timeout_ms = run.plan.definition.timeout_ms
        if timeout_ms is not None:
            ticks = state.settings.clock.ticks(timeout_ms)
            run.deadline = set_timer(state, Timer.RUN_TIMEOUT, run.number, state.tick + ticks)
    elif after >= RunState.COMPLETED:
        _close_run(state, run)
    elif trigger == RunTrigger.PAUSE:
        _pause(state, run, event)
    elif trigger == RunTrigger.RESUME:
        _resume(state, run)
    elif trigger == RunTrigger.RESOLVE:
        want(state, run)


def _pause(state: State, run: Run, event: ev.RunMoved) -> None:
    run.pause_reason = event.reason
    if event.until:
        run.resume_at = set_timer(state, Timer.RUN_RESUME, run.number, event.until)
    for task in live_tasks(state, run):
        if task.queued:
            _leave_lane(state, task)


def _resume(state: State, run: Run) -> None:
    run.pause_reason = ""
    if run.resume_at:
        clear_timer(state, Timer.RUN_RESUME, run.number, run.resume_at)
        run.resume_at = 0
    for task in live_tasks(state, run):
        if task.phase == READY and not task.queued:
            enqueue(state, task)
        elif task.fan is not None:
            _offer_children(state, task)
    want(state, run)


def _close_run(state: State, run: Run) -> None:
    """A run that ends leaves memory, with everything that still belonged to it."""
    if run.busy or run.waiting:
        for task in live_tasks(state, run):
            _drop_task(state, task)
    number = run.number
    if run.unfinished:
        _end_unreached(run)
    if run.start_at:
        clear_timer(state, Timer.RUN_START, number, run.start_at)
        run.start_at = 0
    if run.deadline:
        clear_timer(state, Timer.RUN_TIMEOUT, number, run.deadline)
        run.deadline = 0
    if run.resume_at:
        clear_timer(state, Timer.RUN_RESUME, number, run.resume_at)
        run.resume_at = 0
    if run.sla_at:
        clear_timer(state, Timer.SLA, number, run.sla_at)
        run.sla_at = 0
    run.wanted = 0
    tenant = run.tenant
    tenant.active -= 1
    if run.state == RunState.COMPLETED:
        tenant.completed += 1
    elif run.state == RunState.FAILED:
        tenant.failed += 1
    else:
        tenant.cancelled += 1
    state.runs.remove(number)
    tenant.runs.remove(run.id)
    state.live_runs -= 1
    if run.key:
        tenant.keys.remove(run.key)
    if run.debounce and tenant.debounced.get(run.debounce) is run:
        del tenant.debounced[run.debounce]
    if run.gate is not None:
        _leave_gate(state, run, run.gate)
    if run.parent:
        _tell_parent(state, run)
    state.closed.append(run)


def _end_unreached(run: Run) -> None:
    for index, phase in enumerate(run.phases):
        if phase not in ENDED:
            run.phases[index] = Phase.CANCELLED
    run.unfinished = 0


def _leave_gate(state: State, run: Run, gate: Gate) -> None:
    run.gate = None
    if run.gated:
        run.gated = False  # its place in line is dropped when it comes up
        return
    gate.holding -= 1
    while gate.line and gate.holding < gate.limit:
        follower = gate.line.popleft()
        if follower.gated:
            # The place is handed over here, so that no later arrival can take it.
            follower.gated = False
            gate.holding += 1
            want(state, follower)


def _tell_parent(state: State, run: Run) -> None:
    task = state.tasks.get(run.parent)
    if task is None or task.fan is None or run.child not in task.fan.live:
        return
    fan = task.fan
    del fan.live[run.child]
    fan.running -= 1
    if run.state == RunState.COMPLETED:
        fan.succeeded += 1
        fan.last = output_of(run)
    else:
        fan.failed += 1
    want(state, task.run)


def output_of(run: Run) -> Value:
    """What a run answers with: the node that its definition names, else its last node."""
    if not run.results:
        return None
    source = run.plan.definition.output
    if source is None:
        return run.results.get(len(run.plan.steps) - 1)
    parts = source.split(".")
    if parts[0] == "inputs":
        return run.inputs
    return run.results.get(run.plan.index[parts[1]])


def _on_visited(state: State, event: ev.Visited) -> None:
    """Their visits are now; what wants a visit from here on waits for the next tick."""
    merge_fresh(state)
    state.stamp = state.tick + 1
    leave_line(state, event.runs)


def _on_deferred(state: State, event: ev.Deferred) -> None:
    for number in event.runs:
        want(state, state.runs[number])


def _on_event_kept(state: State, event: ev.EventKept) -> None:
    run = state.runs[event.run]
    asked: Any = state.inputs[event.input]
    run.signals = [*(run.signals or ()), Heard(asked.event, asked.key, asked.payload, state.tick)]
    if not run.wanted:
        # Conditions see events that came before their tick, so the visit is in the next one.
        run.wanted = state.tick + 1
        state.fresh.append(run)


def _arm_sla(state: State, run: Run) -> None:
    points = run.plan.sla_points
    run.sla_at = 0
    if run.sla_next < len(points):
        clock = state.settings.clock
        base_ms = run.scheduled_ms or clock.ms_of(run.submitted)
        tick = max(clock.tick_at(base_ms + points[run.sla_next][0]), state.tick)
        run.sla_at = set_timer(state, Timer.SLA, run.number, tick)


def _on_sla(state: State, event: ev.SlaReached) -> None:
    run = state.runs[event.run]
    clear_timer(state, Timer.SLA, run.number, run.sla_at)
    run.sla_next = event.point + 1
    _arm_sla(state, run)


# ---- tasks


def live_tasks(state: State, run: Run) -> list[Task]:
    """Every task of a run that was reached and has not ended, children included, in order."""
    found: list[Task] = []
    tasks, number = state.tasks, run.number
    for index, phase in enumerate(run.phases):
        if phase and phase < SUCCEEDED:
            task = tasks[number + index]
            found.append(task)
            if task.fan is not None and task.step.body is not None and task.step.body.kind is Kind.WORK:
                found.extend(tasks[child] for _, child in sorted(task.fan.live.items()))
    return found


def _make_task(state: State, run: Run, step: Step, cause: Cause) -> Task:
    index = step.index
    task = Task(run.number + index, run, step, move_task(run.phases[index], cause))
    run.phases[index] = task.phase
    state.tasks.add(task.number, task)
    return task


def _on_ready(state: State, event: ev.TaskReady) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    task = _make_task(state, run, step, Cause.READY)
    run.busy += 1
    if step.timeout.queued_ms is not None:
        set_due(state, task, state.tick + state.settings.clock.ticks(step.timeout.queued_ms))
    if run.state != RunState.PAUSED:
        enqueue(state, task)


def _on_checking(state: State, event: ev.TaskChecking) -> None:
    run = state.runs[event.run]
    task = _make_task(state, run, run.plan.steps[event.step], Cause.CHECK)
    task.cache_key = event.key
    run.busy += 1


def _on_cache_missed(state: State, event: ev.CacheMissed) -> None:
    task = state.tasks[event.task]
    _set_phase(task, Cause.MISS)
    if task.run.state != RunState.PAUSED:
        enqueue(state, task)


def _on_dispatched(state: State, event: ev.TaskDispatched) -> None:
    task = state.tasks.shards[event.task & 255][event.task]
    lane = task.lane
    assert lane is not None and lane.head() is task, "a lane is served in order"
    if task.due:
        clear_due(state, task)
    lane.take_head()
    task.queued = False
    left_line(state, lane)
    begin_attempt(state, task, state.workers[event.worker], lane)
    if task.parent == 0:
        task.run.phases[task.step.index] = RUNNING


def _on_child_dispatched(state: State, event: ev.ChildDispatched) -> None:
    parent = state.tasks[event.parent]
    fan, lane, body = parent.fan, parent.lane, parent.step.body
    assert fan is not None and lane is not None and body is not None
    state.next_number = event.task + 1
    child = Task(event.task, parent.run, body, READY, 0, 0, False, False, state.now_ms, lane)
    child.parent, child.child = parent.number, fan.begun
    fan.live[fan.begun] = event.task
    fan.begun += 1
    fan.running += 1
    parent.run.busy += 1
    state.tasks.add(event.task, child)
    if not has_children_to_give(parent):
        _leave_lane(state, parent)
    begin_attempt(state, child, state.workers[event.worker], lane)


def has_children_to_give(task: Task) -> bool:
    fan, node = task.fan, task.step.node
    assert fan is not None
    room: int | None = getattr(node, "max_parallel", None)
    return fan.begun < fan.total and (room is None or fan.running < room)


def _offer_children(state: State, task: Task) -> None:
    """A map whose children are tasks stands in line for them."""
    gives = task.step.kind is Kind.MAP and task.step.body is not None and task.step.body.kind is Kind.WORK
    if gives and not task.queued and has_children_to_give(task) and task.run.state != RunState.PAUSED:
        enqueue(state, task)
        task.run.busy += 1


def _leave_lane(state: State, task: Task) -> None:
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
    if silent_ms is not None:
        clear_timer(state, Timer.SILENT, task.number, task.silent_at)
        task.silent_at = state.tick + state.settings.clock.ticks(silent_ms)
        set_timer(state, Timer.SILENT, task.number, task.silent_at)


def _on_succeeded(state: State, event: ev.TaskSucceeded) -> None:
    task = state.tasks.shards[event.task & 255][event.task]
    asked: Any = state.inputs[event.input]
    if task.phase == RUNNING:
        end_attempt(state, task)
    if task.attempt == 1 and task.lane is not None and task.lane.key[6]:
        _earn_retries(state, task)
    _end_task(state, task, Cause.SUCCEED, asked.value)


def _earn_retries(state: State, task: Task) -> None:
    """A first attempt that went well pays for the retries of others."""
    assert task.lane is not None
    budget = task.run.tenant.budgets.get(task.lane.key[6])
    if budget is not None:
        budget.earn(state.settings)


def _on_retrying(state: State, event: ev.TaskRetrying) -> None:
    task = state.tasks[event.task]
    dependency = task.step.requirement[4]
    if dependency:
        task.run.tenant.budgets.setdefault(dependency, Budget()).book(state.settings, state.now_ms)
    if task.phase == RUNNING:
        end_attempt(state, task)
    elif task.phase == WAITING:
        _stop_waiting(state, task)
        task.run.busy += 1
    _set_phase(task, Cause.RETRY)
    set_due(state, task, event.due)


def _on_due(state: State, event: ev.TaskDue) -> None:
    task = state.tasks[event.task]
    clear_due(state, task)
    run = task.run
    if task.step.kind is Kind.WORKFLOW:
        _set_phase(task, Cause.WAIT)
        run.busy -= 1
        _start_waiting(state, task, Fan(total=1))
        want(state, run)
        return
    _set_phase(task, Cause.DUE)
    if run.state != RunState.PAUSED:
        enqueue(state, task)


def _on_requeued(state: State, event: ev.TaskRequeued) -> None:
    task = state.tasks[event.task]
    end_attempt(state, task)
    if event.cause == "lost":
        task.losses += 1
    else:
        task.returns += 1
    _set_phase(task, Cause.REQUEUE)
    if task.run.state != RunState.PAUSED:
        enqueue(state, task)


def _on_failed(state: State, event: ev.TaskFailed) -> None:
    task = state.tasks[event.task]
    if task.phase == RUNNING:
        end_attempt(state, task)
    elif task.queued and task.fan is None:
        dequeue(state, task)
    clear_due(state, task)
    _end_task(state, task, Cause.FAIL, None)


def _on_waiting(state: State, event: ev.TaskWaiting) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    task = _make_task(state, run, step, Cause.WAIT)
    if step.kind is Kind.EVENT:
        task.wait_key = (step.node.event, event.key)  # type: ignore[attr-defined]
        run.tenant.waits.setdefault(task.wait_key, {})[task.number] = task
    fan = Fan(total=event.total) if step.kind >= Kind.WORKFLOW else None
    _start_waiting(state, task, fan)
    if event.until:
        set_due(state, task, event.until)


def _start_waiting(state: State, task: Task, fan: Fan | None) -> None:
    run = task.run
    run.waiting += 1
    task.fan = fan
    if fan is not None:
        if task.step.kind is Kind.WORKFLOW:
            task.attempt += 1
        run.fanning = {**(run.fanning or {}), task.step.index: task}
        _offer_children(state, task)


def _stop_waiting(state: State, task: Task) -> None:
    """What it stood in line or was listed for while it waited."""
    run = task.run
    run.waiting -= 1
    clear_due(state, task)
    if task.queued:
        _leave_lane(state, task)
    if task.wait_key is not None:
        waits = run.tenant.waits[task.wait_key]
        del waits[task.number]
        if not waits:
            del run.tenant.waits[task.wait_key]
    if task.fan is not None and run.fanning is not None:
        run.fanning = {index: other for index, other in run.fanning.items() if other is not task} or None


def _on_wait_elapsed(state: State, event: ev.WaitElapsed) -> None:
    task = state.tasks[event.task]
    if task.step.kind is Kind.REPEAT:
        clear_due(state, task)
        want(state, task.run)  # the rest between two turns is over
        return
    _end_task(state, task, Cause.SUCCEED, None)


def _on_answered(state: State, event: ev.TaskAnswered) -> None:
    task = state.tasks[event.task]
    run = task.run
    if event.kept >= 0:
        assert run.signals is not None
        heard = run.signals[event.kept]
        used = Heard(heard.name, heard.key, heard.payload, heard.tick, True)
        run.signals = [*run.signals[: event.kept], used, *run.signals[event.kept + 1 :]]
        value = heard.payload
    else:
        asked: Any = state.inputs[event.input]
        value = getattr(asked, "payload", None)
    _end_task(state, task, Cause.SUCCEED, value)


def _on_child_begun(state: State, event: ev.ChildBegun) -> None:
    parent = state.tasks[event.parent]
    fan, body = parent.fan, parent.step.body
    assert fan is not None and body is not None
    state.next_number = event.task + 1
    child = Task(event.task, parent.run, body, READY)
    child.parent, child.child = parent.number, fan.begun
    fan.live[fan.begun] = event.task
    fan.begun += 1
    fan.running += 1
    parent.run.busy += 1
    state.tasks.add(event.task, child)
    if parent.run.state != RunState.PAUSED:
        enqueue(state, child)


def _on_turn_delayed(state: State, event: ev.TurnDelayed) -> None:
    task = state.tasks[event.task]
    assert task.fan is not None
    task.fan.rested = task.fan.begun
    set_due(state, task, event.due)


def _on_fan_ended(state: State, event: ev.FanEnded) -> None:
    task = state.tasks[event.task]
    fan = task.fan
    assert fan is not None
    if task.step.kind is Kind.MAP:
        value: Value = Ref(f"{task.run.number}/{task.step.index}", 0, fan.total, "gather")
    else:
        value = fan.last
    _end_task(state, task, Cause.SUCCEED, value)


def _end_task(state: State, task: Task, cause: Cause, value: Value) -> None:
    """A task is over: its run counts it, and the nodes behind it move up."""
    run = task.run
    if task.phase == WAITING:
        _stop_waiting(state, task)
    else:
        run.busy -= 1
    if task.parent:
        task.phase = move_task(task.phase, cause)
        state.tasks.remove(task.number)
        _child_ended(state, task, value)
    else:
        index = task.step.index
        task.phase = run.phases[index] = move_task(task.phase, cause)
        state.tasks.remove(task.number)
        if value is not None:
            _keep_result(run, index, value)
        _count_ended(run, task.step)
    if not run.wanted:
        run.wanted = state.stamp
        state.fresh.append(run)


def _child_ended(state: State, child: Task, value: Value) -> None:
    parent = state.tasks[child.parent]
    fan = parent.fan
    assert fan is not None
    del fan.live[child.child]
    fan.running -= 1
    if child.phase == SUCCEEDED:
        fan.succeeded += 1
        if parent.step.kind is Kind.REPEAT:
            fan.last = value
    else:
        fan.failed += 1
    _offer_children(state, parent)


def _keep_result(run: Run, index: int, value: Value) -> None:
    if run.results is None:
        run.results = {index: value}
    else:
        run.results[index] = value


def _count_ended(run: Run, step: Step) -> None:
    run.unfinished -= 1
    if run.phases[step.index] == FAILED:
        run.failures += 1
    counts = run.counts
    if counts is None:
        return
    for child in step.children:
        counts[child] -= 1
        if not counts[child]:
            _note_todo(run, child)


def _note_todo(run: Run, index: int) -> None:
    if isinstance(run.todo, list):
        run.todo.append(index)
    else:
        run.todo = [*run.todo, index]


def _drop_task(state: State, task: Task) -> None:
    """A task whose run ends under it. Its own run is not visited again."""
    run = task.run
    if task.phase == WAITING:
        _stop_waiting(state, task)
    else:
        run.busy -= 1
        if task.phase == RUNNING:
            end_attempt(state, task)
        elif task.queued:
            dequeue(state, task)
        clear_due(state, task)
    task.phase = Phase.CANCELLED
    state.tasks.remove(task.number)
    if task.parent == 0:
        run.phases[task.step.index] = Phase.CANCELLED
        run.unfinished -= 1


_STEP_CAUSES = {
    Phase.SUCCEEDED: Cause.SUCCEED,
    Phase.FAILED: Cause.FAIL,
    Phase.SKIPPED: Cause.SKIP,
    Phase.NOT_TAKEN: Cause.NOT_TAKE,
    Phase.BLOCKED: Cause.BLOCK,
}


def _on_step_ended(state: State, event: ev.StepEnded) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    run.phases[step.index] = move_task(run.phases[step.index], _STEP_CAUSES[Phase(event.phase)])
    _count_ended(run, step)


def _on_step_reset(state: State, event: ev.StepReset) -> None:
    run = state.runs[event.run]
    step = run.plan.steps[event.step]
    index = step.index
    if run.phases[index] == FAILED:
        run.failures -= 1
    run.phases[index] = move_task(run.phases[index], Cause.RESET)
    run.unfinished += 1
    counts = run.counts
    if counts is not None:
        for child in step.children:
            counts[child] += 1
    if counts is None or not counts[index]:
        _note_todo(run, index)
    if run.results is not None:
        run.results.pop(index, None)


def _on_step_accepted(state: State, event: ev.StepAccepted) -> None:
    run = state.runs[event.run]
    asked = state.inputs[event.input]
    assert isinstance(asked, Resolve)
    run.phases[event.step] = move_task(run.phases[event.step], _STEP_CAUSES[Phase(event.phase)])
    run.failures -= 1
    value = asked.values.get(run.plan.steps[event.step].id)
    if value is not None:
        _keep_result(run, event.step, value)


def _on_checkpoint(state: State, event: ev.Checkpoint) -> None:
    task = state.tasks[event.task]
    asked: Any = state.inputs[event.input]
    task.checkpoint = asked.value
    _heard_from(state, task)


def _nothing(_state: State, _event: ev.Event) -> None:
    """Recorded for those who ask; the state does not depend on it."""


def _on_refused(state: State, _event: ev.InputRefused) -> None:
    state.refused += 1


def _on_stale(state: State, _event: ev.StaleReport) -> None:
    state.stale += 1


HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    **SETUP_HANDLERS,
    ev.InputRefused: _on_refused,
    ev.Duplicate: _nothing,
    ev.StaleReport: _on_stale,
    ev.GapNoted: _nothing,
    ev.RunSubmitted: _on_submitted,
    ev.RunDebounced: _on_debounced,
    ev.RunDue: _on_run_due,
    ev.RunScheduled: _on_scheduled,
    ev.RunSpawned: _on_spawned,
    ev.RunRestored: _on_restored,
    ev.RunRerun: _on_rerun,
    ev.RunGated: _on_gated,
    ev.GateTaken: _on_gate_taken,
    ev.RunMoved: _on_moved,
    ev.Visited: _on_visited,
    ev.Deferred: _on_deferred,
    ev.EventKept: _on_event_kept,
    ev.SlaReached: _on_sla,
    ev.TaskReady: _on_ready,
    ev.TaskDispatched: _on_dispatched,
    ev.ChildDispatched: _on_child_dispatched,
    ev.AttemptStarted: _on_started,
    ev.TaskSucceeded: _on_succeeded,
    ev.TaskRetrying: _on_retrying,
    ev.TaskDue: _on_due,
    ev.TaskRequeued: _on_requeued,
    ev.TaskFailed: _on_failed,
    ev.TaskChecking: _on_checking,
    ev.CacheMissed: _on_cache_missed,
    ev.TaskWaiting: _on_waiting,
    ev.WaitElapsed: _on_wait_elapsed,
    ev.TaskAnswered: _on_answered,
    ev.ChildBegun: _on_child_begun,
    ev.TurnDelayed: _on_turn_delayed,
    ev.FanEnded: _on_fan_ended,
    ev.StepEnded: _on_step_ended,
    ev.StepReset: _on_step_reset,
    ev.StepAccepted: _on_step_accepted,
    ev.Checkpoint: _on_checkpoint,
    ev.PolicyDecided: _nothing,
}
