"""The part of `evolve` by which runs move from state to state, and leave."""

from collections.abc import Callable
from typing import Any

from tickwork.core import events as ev
from tickwork.core.evolve.tasks import drop_task, live_tasks, offer_children, take_from_lane
from tickwork.core.evolve.upkeep import clear_timer, enqueue, leave_line, merge_fresh, set_timer, want
from tickwork.core.lifecycle import ENDED, Phase, RunState, RunTrigger, move_run
from tickwork.core.model import Gate, Heard, Run, State, Timer
from tickwork.core.references import resolve
from tickwork.core.values import Value


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
            take_from_lane(state, task)


def _resume(state: State, run: Run) -> None:
    run.pause_reason = ""
    if run.resume_at:
        clear_timer(state, Timer.RUN_RESUME, run.number, run.resume_at)
        run.resume_at = 0
    for task in live_tasks(state, run):
        if task.phase == Phase.READY and not task.queued:
            enqueue(state, task)
        elif task.fan is not None:
            offer_children(state, task)
    want(state, run)


def _close_run(state: State, run: Run) -> None:
    """A run that ends leaves memory, with everything that still belonged to it."""
    if run.busy or run.waiting:
        for task in live_tasks(state, run):
            drop_task(state, task)
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
    if not gate.holding:
        del run.tenant.gates[run.plan.name, gate.key]  # nobody is in line either


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
    definition = run.plan.definition
    ref = resolve(source, path="output", inputs=definition.inputs, nodes=run.plan.index)
    return run.inputs if ref.root == "inputs" else run.results.get(run.plan.index[ref.name])


def _on_visited(state: State, event: ev.Visited) -> None:
    """Their visits are now; what wants a visit from here on waits for the next tick."""
    merge_fresh(state)
    state.stamp = state.tick + 1
    leave_line(state, event.runs)


def _on_deferred(state: State, event: ev.Deferred) -> None:
    """Back to the front of the line in the order they had; whoever is wanted anew meanwhile stands there only once."""
    runs = {number: state.runs[number] for number in event.runs}
    if any(run.wanted for run in runs.values()):
        state.fresh = [run for run in state.fresh if run.number not in runs]
    for run in runs.values():
        run.wanted = state.tick
    state.line.extendleft(reversed(runs.values()))


def _on_event_kept(state: State, event: ev.EventKept) -> None:
    run = state.runs[event.run]
    asked: Any = state.inputs[event.input]
    run.signals = [*(run.signals or ()), Heard(asked.event, asked.key, asked.payload, state.tick)]
    if not run.wanted:
        # Conditions see events that came before their tick, so the visit is in the next one.
        run.wanted = state.tick + 1
        state.fresh.append(run)


def arm_sla(state: State, run: Run) -> None:
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
    arm_sla(state, run)


RUN_HANDLERS: dict[type[Any], Callable[[State, Any], None]] = {
    ev.RunMoved: _on_moved,
    ev.Visited: _on_visited,
    ev.Deferred: _on_deferred,
    ev.EventKept: _on_event_kept,
    ev.SlaReached: _on_sla,
}
