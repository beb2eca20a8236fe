"""The part of `evolve` by which runs come into memory: submitted, scheduled, spawned, brought back."""

from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, decode, pack
from tickwork.core.calendar.zones import in_zone
from tickwork.core.definition.input_fields import filled
from tickwork.core.definition.model import Definition, Second
from tickwork.core.definition.plan import Plan
from tickwork.core.evolve.backfills import backfill_run_begun
from tickwork.core.evolve.follow_ups import CAUSES, SOURCE, failed_steps, follow_up_of, report_inputs
from tickwork.core.evolve.indexes import arm_sla, clear_timer, start_later, want
from tickwork.core.evolve.messages import own_messages
from tickwork.core.evolve.races import open_parents
from tickwork.core.evolve.run_rates import no_longer_waits
from tickwork.core.evolve.schedules import fired_on_time, run_begun, run_returned
from tickwork.core.evolve.tasks.attempts import know_queue
from tickwork.core.evolve.tasks.nodes import count_ended, keep_result
from tickwork.core.evolve.versions import plan_of_run
from tickwork.core.state import events as ev
from tickwork.core.state.history import history_of_record, record_of_history
from tickwork.core.state.inputs import (
    Delivered,
    DropDeadLetters,
    Input,
    Redrive,
    Rerun,
    Resolve,
    RunRecord,
    RunTerms,
    StepsRecorded,
    Submit,
    Succeeded,
    request_in,
)
from tickwork.core.state.lifecycle import ENDED
from tickwork.core.state.ready_queues import PREFERRED
from tickwork.core.state.run_ids import (
    SUBMITTED,
    backfill_run_id,
    child_id,
    follow_up_id,
    occurrence_id,
    task_name,
)
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.core.state.state import ConcurrencyGate, Fired, Run, Schedule, State, Tenant, Timer
from tickwork.core.state.tables import BLOCK_BITS
from tickwork.core.state.updates import UPDATE, caused_inputs


def add_run(state: State, run: Run) -> None:
    tenant = run.tenant
    state.runs.blocks[run.number >> BLOCK_BITS][run.number] = run
    run.shelf = shelf = tenant.runs.of(run.id)
    shelf[run.id] = run
    if run.key and tenant.keys.get(run.key) is None:  # one brought back leaves a later holder its key
        tenant.keys.add(run.key, run)
    state.live_runs += 1


def arrive(state: State, run: Run) -> None:
    """A new run that nothing delays: its promises begin, and it wants to be looked at."""
    add_run(state, run)
    if run.plan.sla_points:
        arm_sla(state, run)
    run.wanted = state.stamp
    state.fresh.append(run)


def new_run(
    state: State, number: int, run_id: str, tenant: Tenant, plan: Plan, inputs: Value, by: str, source: str
) -> Run:
    size = len(plan.steps)
    state.next_number = number + size
    tenant.accepted += 1
    tenant.active += 1
    counts = None if size == 1 else plan.fresh_counts()
    phases = bytearray(size)
    return Run(number, run_id, tenant, plan, inputs, by, source, state.tick, phases, counts, size, 0, 0, plan.roots)


def _on_submitted(state: State, event: ev.RunSubmitted) -> None:
    item = state.inputs[event.input]
    request: Any = request_in(item, event.command)
    tenant = state.tenants[request.tenant]
    terms, source = request.terms, source_of_request(state, item)
    if terms is None:
        submitted(state, event.run, request, tenant, tenant.plans[request.workflow], source)
        return
    plan = state.plans[terms.definition] if terms.definition else tenant.plans[request.workflow]
    run = new_run(state, event.run, request.run_id, tenant, plan, request.inputs, request.by, source)
    run.key, run.body, run.debounce, run.pin = terms.key, terms.body, terms.debounce, terms.version
    run.queue, run.own = terms.queue, terms.own
    know_queue(state, terms.queue)
    if terms.priority is not None:
        run.priority = terms.priority
    if terms.debounce:
        tenant.debounced[plan.name, terms.debounce] = run
    if event.start_at:
        add_run(state, run)
        if plan.sla_points:
            arm_sla(state, run)
        start_later(state, run, event.start_at)
    else:
        arrive(state, run)


def source_of_request(state: State, item: Input) -> str:
    """Return how a requested run came about: it was submitted, or a task started it with its result or a step."""
    if isinstance(item, Succeeded | StepsRecorded):
        return task_name(state.tasks[item.task])
    return item.origin if isinstance(item, Delivered) else SUBMITTED


def submitted(state: State, number: int, submit: Submit, tenant: Tenant, plan: Plan, source: str = SUBMITTED) -> None:
    """A run on no terms: it starts now."""
    run = new_run(state, number, submit.run_id, tenant, plan, submit.inputs, submit.by, source)
    add_run(state, run)
    if plan.sla_points:
        arm_sla(state, run)
    run.wanted = state.stamp
    state.fresh.append(run)


def _on_run_due(state: State, event: ev.RunDue) -> None:
    run = state.runs[event.run]
    clear_timer(state, Timer.RUN_START, run.number, run.start_at)
    run.start_at = 0
    if run.debounce:
        del run.tenant.debounced[run.plan.name, run.debounce]
    if run.rate_key is not None:
        no_longer_waits(run)
    want(state, run)


def _on_debounced(state: State, event: ev.RunDebounced) -> None:
    run = state.runs[event.run]
    request = state.inputs[event.input]
    assert isinstance(request, Submit)
    run.inputs, run.by = request.inputs, request.by
    given = request.terms.own if request.terms is not None else None
    if run.own is not None or given is not None:
        fields = given.fields if given is not None else ()
        run.own = msgspec.structs.replace(run.own or RunTerms(), fields=fields)
    start_later(state, run, event.start_at)


def on_scheduled(state: State, event: ev.RunScheduled) -> None:
    schedule = state.schedules.blocks[event.schedule >> BLOCK_BITS][event.schedule]
    tenant, terms, due_ms = schedule.tenant, schedule.terms, event.due_ms
    plan = plan_of_run(tenant, schedule)
    assert plan is not None, "its rule has looked"
    if event.way == "due" and not event.start_at and not event.wait_ms and schedule.is_plain:
        begun_on_time(state, schedule, plan, occurrence_id(schedule.name, due_ms), event)
        return
    backfill = state.backfills[event.backfill] if event.backfill else None
    inputs, by, source, key = schedule.inputs, schedule.by, "schedule", ""
    if event.way == UPDATE:
        inputs = inputs_of_firing(state, schedule, plan.definition, due_ms)
    elif plan.definition.inputs or schedule.context is not None:
        inputs = scheduled_inputs(state, schedule, plan.definition, due_ms)
    if backfill is not None:
        by, source, run_id = backfill.by, "backfill", backfill_run_id(backfill, due_ms)
    elif event.input >= 0:
        request: Any = state.inputs[event.input]
        key = request.key
        by, source, run_id = request.by, event.way, _free_id(tenant, f"{schedule.name}-{event.way}", due_ms)
    else:
        run_id = occurrence_id(schedule.name, due_ms)
    run = new_run(state, event.run, run_id, tenant, plan, inputs, by, source)
    run.schedule, run.scheduled_ms, run.queue, run.priority = schedule.name, due_ms, terms.queue, terms.priority
    if terms.tags:
        run.own = RunTerms(tags=terms.tags)
    run.pin = pin_of_scheduled(terms, event.version)
    if key:
        run.key, run.body = key, trigger_body(schedule.name, event.way)
    if backfill is not None:
        run.backfill, run.priority = backfill.number, backfill.priority
        backfill_run_begun(state, backfill, run, due_ms)
    else:
        if schedule.decision is not None and event.way == "due":
            run.decided = schedule.decision.source.value
            # `run_begun` ends the decision; explanations of the run need it as it was.
            state.fired.append(Fired(run.number, terms, schedule.decision, schedule.advice, schedule.failures))
        else:
            state.fired.append(Fired(run.number, terms))
        run_begun(state, schedule, run, event)
    if event.start_at:
        add_run(state, run)
        start_later(state, run, event.start_at)
    else:
        arrive(state, run)


def begun_on_time(state: State, schedule: Schedule, plan: Plan, run_id: str, event: ev.RunScheduled) -> None:
    """What `on_scheduled` does where nothing but its rhythm moves a schedule on, and its run begins now."""
    terms, due_ms, inputs = schedule.terms, event.due_ms, schedule.inputs
    if plan.definition.inputs or schedule.context is not None:
        inputs = scheduled_inputs(state, schedule, plan.definition, due_ms)
    run = new_run(state, event.run, run_id, schedule.tenant, plan, inputs, schedule.by, "schedule")
    run.schedule, run.scheduled_ms, run.queue, run.priority = schedule.name, due_ms, terms.queue, terms.priority
    if terms.tags:
        run.own = RunTerms(tags=terms.tags)
    run.pin = pin_of_scheduled(terms, event.version)
    state.fired.append(Fired(run.number, terms))
    fired_on_time(state, schedule, event)
    arrive(state, run)


def pin_of_scheduled(terms: SchedulePolicy, version: str) -> str:
    """A schedule's own version is required of workers; the latest one comes first."""
    return version if terms.version or not version else PREFERRED + version


def trigger_body(schedule: str, way: str) -> str:
    """What the key of a trigger stands for."""
    return f"{way} {schedule}"


def scheduled_inputs(state: State, schedule: Schedule, definition: Definition, at_ms: int) -> Value:
    """The inputs of a scheduled run: those of its schedule, its nominal time in the schedule's zone, its context."""
    value = schedule.inputs
    if not (value is None or isinstance(value, bytes)):
        return value
    try:
        zone = state.zones.get(schedule.when.zone)
        more = filled(definition, schedule.terms, schedule.context, in_zone(zone, at_ms))
    except Refused:  # the workflow has changed since, or the zone has gone: the run's own check will say so
        more = {}
    if not more:
        return value
    plain = {} if value is None else decode(value, what="inputs")
    return pack(plain | more)


def inputs_of_firing(state: State, schedule: Schedule, definition: Definition, due_ms: int) -> Value:
    """The inputs of a run that updates start: those of a scheduled run, with what caused it."""
    assert schedule.updates is not None
    firing = next(firing for firing in schedule.updates.waiting if firing.due_ms == due_ms)
    large = firing.updates[-1].inputs
    if large is not None:
        return large
    value = scheduled_inputs(state, schedule, definition, due_ms)
    if not (value is None or isinstance(value, bytes)):
        return value
    plain = {} if value is None else decode(value, what="inputs")
    causes = caused_inputs(definition, firing.updates)
    return pack(causes | plain) if causes else value


def _free_id(tenant: Tenant, stem: str, now_ms: int) -> str:
    """Several triggers of one tick are as many runs. All of them are here: nothing ends among inputs. And where a
    schedule is named like `nightly-trigger`, this id would be that of its occurrence."""
    run_id = first = occurrence_id(stem, now_ms)
    count = 1
    while tenant.runs.get(run_id) is not None or (count == 1 and tenant.schedules.get(stem) is not None):
        count += 1
        run_id = f"{first}-{count}"
    return run_id


def _on_spawned(state: State, event: ev.RunSpawned) -> None:
    task = state.tasks[event.task]
    parent, fan = task.run, task.fan
    run_id = child_id(task, event.child, event.run)
    plan = state.plans[event.definition]
    run = new_run(state, event.run, run_id, parent.tenant, plan, event.inputs, parent.by, "child")
    run.parent, run.child, run.priority = task.number, event.child, parent.priority
    run.parent_run, run.pin = parent.number, parent.pin
    if task.history is not None:
        task.history.awaits[event.child].child = run.number
    else:
        assert fan is not None
        fan.begun += 1
        fan.running += 1
        fan.live[event.child] = run.number
    arrive(state, run)


def _on_follow_up(state: State, event: ev.FollowUpStarted) -> None:
    before = state.runs[event.of]
    trigger = next(trigger for trigger, cause in CAUSES.items() if cause == event.cause)
    follow_up = follow_up_of(before, trigger)
    assert follow_up is not None, "its workflow declares what follows"
    run_id = follow_up_id(before.id, event.cause, event.run)
    values = report_inputs(before, follow_up, event.cause, event.reason)
    plan = state.plans[event.definition]
    run = new_run(state, event.run, run_id, before.tenant, plan, values, before.by, f"{SOURCE} of {before.id}")
    run.priority, run.pin = before.priority, before.pin
    arrive(state, run)


def _on_restored(state: State, event: ev.RunRestored) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, Resolve | Redrive | DropDeadLetters)
    record = request.record if isinstance(request, Resolve) else request.records[event.record]
    assert record is not None
    tenant = state.tenants[request.tenant]
    run = run_of_record(tenant, state.plans[record.definition], record)
    add_run(state, run)
    tenant.failed -= 1
    tenant.active += 1
    if run.schedule:
        run_returned(run)
    if event.start_at:
        tenant.redrive_ms = state.settings.clock.ms_of(event.start_at)
        start_later(state, run, event.start_at)


def run_of_record(tenant: Tenant, plan: Plan, record: RunRecord) -> Run:
    """A run as its rows hold it. Counts follow from the phases of its nodes."""
    phases = bytearray(record.phases)
    counts = [open_parents(step, phases) for step in plan.steps]
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
        None if len(counts) == 1 else (bytearray(counts) if isinstance(plan.parent_counts, bytes) else counts),
        sum(phase not in ENDED for phase in phases),
    )
    run.state, run.started, run.priority = record.state, record.started, record.priority
    run.failures = len(failed_steps(plan, phases))
    run.results = dict(record.results) or None
    run.key, run.body = record.key, record.body
    run.scheduled_ms, run.schedule = record.scheduled_ms, record.schedule
    run.queue, run.backfill, run.decided, run.pin = record.queue, record.backfill, record.decided, record.pin
    run.sla_next = len(plan.sla_points)  # what was promised is over
    run.tried = run.before = record.tried
    run.history, run.messages, run.own = history_of_record(record.history), own_messages(record.messages), record.own
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
        tuple(sorted(run.results.items(), key=lambda pair: pair[0])) if run.results else (),
        run.key,
        run.body,
        run.scheduled_ms,
        run.schedule,
        run.queue,
        run.backfill,
        run.decided,
        run.pin,
        run.tried,
        record_of_history(run.history),
        run.messages,
        run.own,
    )


def _on_rerun(state: State, event: ev.RunRerun) -> None:
    request = state.inputs[event.input]
    assert isinstance(request, Rerun)
    record = request.record
    plan = state.plans[request.definition or record.definition]
    inputs = request.inputs if request.change_inputs else record.inputs
    run = new_run(
        state,
        event.run,
        request.run_id,
        state.tenants[request.tenant],
        plan,
        inputs,
        request.by,
        f"rerun of {record.run_id}",
    )
    run.pin = "" if request.definition else record.pin
    run.queue, run.own = "" if record.schedule else record.queue, record.own
    if request.change_inputs and (run.own is not None or request.fields):
        run.own = msgspec.structs.replace(run.own or RunTerms(), fields=request.fields)
    results = dict(record.results)
    for index, source in event.kept:
        run.phases[index] = record.phases[source]
        count_ended(run, plan.steps[index])
        if results.get(source) is not None:
            keep_result(run, index, results[source])
    arrive(state, run)


def _on_gated(state: State, event: ev.RunGated) -> None:
    run = state.runs[event.run]
    run.gate = _gate(run, event.key)
    run.gated = True
    run.gate.line.append(run)


def _on_gate_taken(state: State, event: ev.GateTaken) -> None:
    run = state.runs[event.run]
    gate = run.gate = _gate(run, event.key)
    gate.holding += 1
    concurrency = run.plan.definition.concurrency
    if concurrency is not None and concurrency.second is Second.REPLACE:
        gate.holder = run.number


def _gate(run: Run, key: str) -> ConcurrencyGate:
    concurrency = run.plan.definition.concurrency
    assert concurrency is not None
    gate = run.tenant.gates.get((run.plan.name, key))
    if gate is None:
        gate = run.tenant.gates[run.plan.name, key] = ConcurrencyGate(key=key, limit=concurrency.limit)
    gate.limit = concurrency.limit
    return gate


ARRIVAL_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.RunSubmitted: _on_submitted,
    ev.RunDebounced: _on_debounced,
    ev.RunDue: _on_run_due,
    ev.RunScheduled: on_scheduled,
    ev.RunSpawned: _on_spawned,
    ev.FollowUpStarted: _on_follow_up,
    ev.RunRestored: _on_restored,
    ev.RunRerun: _on_rerun,
    ev.RunGated: _on_gated,
    ev.GateTaken: _on_gate_taken,
}
