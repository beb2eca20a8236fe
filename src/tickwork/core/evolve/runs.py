"""The part of `evolve` by which runs move from state to state, and leave."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, pack
from tickwork.core.definition.plan import NOTHING, Step
from tickwork.core.evolve.awaits import call_ended
from tickwork.core.evolve.backfills import backfill_run_ended
from tickwork.core.evolve.follow_ups import note_error
from tickwork.core.evolve.indexes import arm_sla, clear_due, clear_timer, leave_line, merge_fresh, set_timer, want
from tickwork.core.evolve.run_rates import no_longer_waits
from tickwork.core.evolve.schedules import run_ended
from tickwork.core.evolve.tasks.attempts import (
    cancel_steps,
    drop_task,
    live_tasks,
    offer_children,
    stand_in_line,
    stir_map,
    take_from_lane,
)
from tickwork.core.state import events as ev
from tickwork.core.state.evaluation_context import OF_LAST, ExtractMissing, output_value, reference, stored_value
from tickwork.core.state.inputs import request_in
from tickwork.core.state.lifecycle import ENDED, IDLE, RUN_NEXT, Phase, RunState, RunTrigger, move_run
from tickwork.core.state.messages import ReceivedEvent
from tickwork.core.state.state import ConcurrencyGate, Extract, Run, State, Timer, run_timeout_ms
from tickwork.core.state.tables import BLOCK_BITS

START, COMPLETED, ACTIVE = int(RunTrigger.START), int(RunState.COMPLETED), int(RunState.ACTIVE)


def _on_moved(state: State, event: ev.RunMoved) -> None:
    moved(state, state.runs[event.run], event.trigger, event)


def started(state: State, run: Run) -> None:
    """What `moved` does with a run that starts."""
    run.state, run.started = ACTIVE, state.tick
    if run.own is not None or run.plan.definition.timeout_ms is not None:
        _set_deadline(state, run)


def completed(state: State, run: Run, event: ev.RunMoved) -> None:
    """What `moved` does with an active run that completes."""
    run.state = COMPLETED
    _close_run(state, run, event)


def moved(state: State, run: Run, trigger: int, event: ev.RunMoved) -> None:
    before = run.state
    after = RUN_NEXT[before * 16 + trigger]
    run.state = after if after >= 0 else move_run(before, trigger)
    if run.parent:
        _note_idle(state, run, before)
    if after >= COMPLETED:
        _close_run(state, run, event)
    elif trigger == START:
        started(state, run)
    elif trigger == RunTrigger.PAUSE:
        _pause(state, run, event)
    elif trigger == RunTrigger.RESUME:
        _resume(state, run)
    elif trigger == RunTrigger.RESOLVE:
        run.pause_reason = ""
        _set_deadline(state, run)
        want(state, run)


def _note_idle(state: State, run: Run, before: int) -> None:
    """A child run that waits or is paused leaves room for the next one of its map."""
    was, idle = before in IDLE, run.state in IDLE
    if was == idle:
        return
    task = state.tasks.get(run.parent)
    if task is None or task.fan is None or run.child not in task.fan.live:
        return
    task.fan.idle += 1 if idle else -1
    if idle:
        stir_map(state, run)


def _set_deadline(state: State, run: Run) -> None:
    timeout_ms = run_timeout_ms(run)
    if timeout_ms is not None:
        ticks = state.settings.clock.ticks(timeout_ms)
        run.deadline = set_timer(state, Timer.RUN_TIMEOUT, run.number, state.tick + ticks)


def _pause(state: State, run: Run, event: ev.RunMoved) -> None:
    run.pause_reason = event.reason
    if event.until:
        run.resume_at = set_timer(state, Timer.RUN_RESUME, run.number, event.until)
    for task in live_tasks(state, run):
        if task.queued:
            take_from_lane(state, task)
            if task.phase == Phase.READY:
                clear_due(state, task)  # it cannot be taken now, so it is not late either


def _resume(state: State, run: Run) -> None:
    run.pause_reason = ""
    if run.resume_at:
        clear_timer(state, Timer.RUN_RESUME, run.number, run.resume_at)
        run.resume_at = 0
    for task in live_tasks(state, run):
        if task.phase == Phase.READY and not task.queued:
            stand_in_line(state, task)
        elif task.fan is not None:
            offer_children(state, task)
    want(state, run)


def _close_run(state: State, run: Run, event: ev.RunMoved) -> None:
    """A run that ends leaves memory, with everything that still belonged to it."""
    if run.unfinished or run.busy or run.waiting:
        _drop_rest(state, run)
    if run.start_at or run.deadline or run.resume_at or run.sla_at:
        _clear_timers(state, run)
    run.wanted = 0
    tenant, number = run.tenant, run.number
    tenant.active -= 1
    if run.state == COMPLETED:
        tenant.completed += 1
    elif run.state == RunState.FAILED:
        tenant.failed += 1
        if event.trigger == RunTrigger.FAIL:
            run.pause_reason = event.reason  # its record names it where no node failed
    else:
        tenant.cancelled += 1
    block = state.runs.blocks[number >> BLOCK_BITS]
    del block[number]
    if not block:
        del state.runs.blocks[number >> BLOCK_BITS]
    assert run.shelf is not None
    del run.shelf[run.id]
    state.live_runs -= 1
    if run.key and tenant.keys.get(run.key) is run:
        tenant.keys.remove(run.key)
    if run.debounce and tenant.debounced.get((run.plan.name, run.debounce)) is run:
        del tenant.debounced[run.plan.name, run.debounce]
    if run.rate_key is not None:
        no_longer_waits(run)
    if run.gate is not None:
        _leave_gate(state, run, run.gate)
    if run.parent:
        _tell_parent(state, run, event.reason)
    if run.schedule:
        run_ended(state, run)
        if run.backfill:
            backfill_run_ended(state, run)
    state.closed.append(run)


def _drop_rest(state: State, run: Run) -> None:
    for task in live_tasks(state, run):
        drop_task(state, task)
    for index, phase in enumerate(run.phases):
        if phase not in ENDED:
            run.phases[index] = Phase.CANCELLED
    run.unfinished = 0


def _clear_timers(state: State, run: Run) -> None:
    for kind, tick in (
        (Timer.RUN_START, run.start_at),
        (Timer.RUN_TIMEOUT, run.deadline),
        (Timer.RUN_RESUME, run.resume_at),
        (Timer.SLA, run.sla_at),
    ):
        if tick:
            clear_timer(state, kind, run.number, tick)
    run.start_at = run.deadline = run.resume_at = run.sla_at = 0


def _leave_gate(state: State, run: Run, gate: ConcurrencyGate) -> None:
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
            if gate.holder:
                gate.holder = follower.number
            want(state, follower)
            state.let_in.append((follower, run.id))
    if not gate.holding:
        del run.tenant.gates[run.plan.name, gate.key]  # no other run waits for it


def _tell_parent(state: State, run: Run, reason: str) -> None:
    task = state.tasks.get(run.parent)
    if task is not None and task.history is not None:
        call_ended(state, task, run, output_of(run) if run.state == COMPLETED else None)
        return
    if task is None or task.fan is None or run.child not in task.fan.live:
        return
    fan = task.fan
    del fan.live[run.child]
    fan.running -= 1
    if run.state == RunState.COMPLETED:
        fan.succeeded += 1
        fan.failed_in_a_row = 0
        fan.last = output_of(run)
    else:
        fan.failed += 1
        fan.failed_in_a_row += 1
        ended = f"run {run.id} is {RunState(run.state).name}"
        note_error(task.run, task.step.index, "ChildFailed", f"{ended}: {reason}" if reason else ended)
    want(state, task.run)


def _on_detached(state: State, event: ev.RunDetached) -> None:
    """A function has given up its call before, and a node that has ended is gone."""
    run = state.runs[event.run]
    task = state.tasks.get(run.parent)
    if task is not None and task.fan is not None:
        del task.fan.live[run.child]
        task.fan.running -= 1
        task.fan.idle -= run.state in IDLE
    run.parent = run.child = run.parent_run = 0


def output_of(run: Run) -> Value:
    """What a run answers with: what its definition names, else the result of its last node. A run that ended before it
    had all of that has no output."""
    if run.plan.output >= 0:
        return run.results.get(run.plan.output) if run.results else None
    if run.plan.output == NOTHING:
        return None
    source = run.plan.definition.output
    assert source is not None, "without one, the last node's result is it"
    ref = reference(run, source)
    stored = stored_value(run, ref)
    if ref.root == "nodes" and not ref.walk:
        return stored
    try:
        value = output_value(run)
    except (Refused, ExtractMissing):
        return None
    return None if value is None else pack(value)


def _on_visited(state: State, event: ev.Visited) -> None:
    """Their visits are now; what wants a visit from here on waits for the next tick."""
    merge_fresh(state)
    state.stamp = state.tick + 1
    leave_line(state, event.runs)


def _on_deferred(state: State, event: ev.Deferred) -> None:
    """Back to where they stood in line; one that got another visit meanwhile stands there only once."""
    runs = {number: run for number in event.runs if (run := state.runs.get(number)) is not None}
    if any(run.wanted for run in runs.values()):
        state.fresh = [run for run in state.fresh if run.number not in runs]
    for run in runs.values():
        run.wanted = run.visited
    state.line.extendleft(reversed(runs.values()))


def _on_event_kept(state: State, event: ev.EventStored) -> None:
    run = state.runs[event.run]
    request: Any = request_in(state.inputs[event.input], event.command)
    run.signals = [*(run.signals or ()), ReceivedEvent(request.event, request.key, request.payload, state.tick)]
    want(state, run)


def _on_update_received(state: State, event: ev.UpdateReceived) -> None:
    run = state.runs[event.run]
    update: Any = state.inputs[event.input]
    received = ReceivedEvent(update.name, "", update.payload, state.tick, False, update.key, update.body)
    run.signals = [*(run.signals or ()), received]
    want(state, run)


def _on_extract_sought(state: State, event: ev.ExtractRequested) -> None:
    run = state.runs[event.run]
    run.extracts = {**(run.extracts or {}), (event.source, event.key): None}


def _on_extract_kept(state: State, event: ev.ExtractKept) -> None:
    """Store the extract and visit the nodes that waited for it again."""
    run = state.runs[event.run]
    report: Any = state.inputs[event.input]
    kept = run.extracts or {}
    if report.key.startswith(OF_LAST):  # nothing reads the extracts of earlier turns
        old = [key for key in kept if key[0] == report.source and key[1].startswith(OF_LAST)]
        kept = {key: extract for key, extract in kept.items() if key not in old}
    run.extracts = {**kept, (report.source, report.key): Extract(report.value, report.code, report.message)}
    run.todo, run.held = [*run.todo, *run.held], ()
    want(state, run)


def _on_overdue(state: State, event: ev.RunOverdue) -> None:
    """Everything but its clean-up is cancelled. What that frees is decided in a visit, as after any other end."""
    run = state.runs[event.run]
    run.overdue = state.tick
    _cut_short(state, run, [step for step in run.plan.steps if not step.cleans_up], event)


def _on_ending(state: State, event: ev.RunEnding) -> None:
    run = state.runs[event.run]
    run.ending = (event.trigger, event.reason)
    _cut_short(state, run, [step for step in run.plan.steps if step.tears_down < 0], event)


def _cut_short(state: State, run: Run, steps: list[Step], event: ev.RunOverdue | ev.RunEnding) -> None:
    """The rest of the run goes on, for a limited time."""
    if run.deadline:
        clear_timer(state, Timer.RUN_TIMEOUT, run.number, run.deadline)
    run.deadline = set_timer(state, Timer.RUN_TIMEOUT, run.number, event.until)
    cut = [step for step in steps if run.phases[step.index] not in ENDED and step.index not in event.kept]
    cancel_steps(state, run, cut)
    want(state, run)


def _on_step_cancelled(state: State, event: ev.StepCancelled) -> None:
    run = state.runs[event.run]
    cancel_steps(state, run, [run.plan.steps[event.step]])
    want(state, run)


def _on_sla(state: State, event: ev.SlaReached) -> None:
    run = state.runs[event.run]
    clear_timer(state, Timer.SLA, run.number, run.sla_at)
    run.sla_next = event.point + 1
    arm_sla(state, run)


RUN_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.RunMoved: _on_moved,
    ev.Visited: _on_visited,
    ev.Deferred: _on_deferred,
    ev.EventStored: _on_event_kept,
    ev.UpdateReceived: _on_update_received,
    ev.SlaReached: _on_sla,
    ev.RunOverdue: _on_overdue,
    ev.RunEnding: _on_ending,
    ev.StepCancelled: _on_step_cancelled,
    ev.RunDetached: _on_detached,
    ev.ExtractRequested: _on_extract_sought,
    ev.ExtractKept: _on_extract_kept,
}
