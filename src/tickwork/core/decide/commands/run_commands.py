"""Commands about runs: accepted and turned into events, or refused with a code.

A rule raises `Refused` before it emits anything, so a refused command changes nothing. An accepted command has no other
answer than its events.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.decide.commands.bulk import BULK_COMMANDS, in_bulk
from tickwork.core.decide.commands.dead_letters import DEAD_LETTER_COMMANDS
from tickwork.core.decide.commands.rerun import kept_steps
from tickwork.core.decide.commands.setup_commands import SETUP_COMMANDS
from tickwork.core.decide.commands.signals import SIGNAL_COMMANDS
from tickwork.core.decide.commands.submissions import check_submission, submit
from tickwork.core.decide.commands.task_actions import TASK_ACTIONS
from tickwork.core.decide.commands.versions import VERSION_COMMANDS
from tickwork.core.decide.runs.functions import to_unwind
from tickwork.core.decide.runs.run_end import CLEAN_UP_MS_MAX, called_runs, end_calls, pause_run, resume_run, stop_run
from tickwork.core.decide.schedules import schedule_commands as schedules
from tickwork.core.decide.schedules.backfill import BACKFILL_COMMANDS
from tickwork.core.decide.tick_context import (
    TickContext,
    live_run,
    tenant_of,
)
from tickwork.core.evolve.capacity import scope_gauge
from tickwork.core.state import inputs
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import (
    FunctionCancelled,
    RunRerun,
    ScopePaused,
    ScopeResumed,
)
from tickwork.core.state.lifecycle import RunState, RunTrigger, may_move
from tickwork.core.state.state import Run, State, Task


def _cancel(turn: TickContext, position: int, cancel: inputs.Cancel) -> None:
    run = live_run(turn.state, cancel.tenant, cancel.run_id, cancel.left_as)
    _may(run, RunTrigger.CANCEL)
    task = to_unwind(turn.state, run)
    if task is not None:
        _unwind(turn, position, task)
        return
    stop_run(turn, run, RunTrigger.CANCEL, cancel.reason or "cancelled", position=position)


def _unwind(turn: TickContext, position: int, task: Task) -> None:
    """The function is cancelled at what it awaits; its run ends when it has undone what it wants to undo."""
    run, clock = task.run, turn.state.settings.clock
    calls = called_runs(turn.state, task)
    turn.emit(FunctionCancelled(task.number, position, turn.state.tick + clock.ticks(CLEAN_UP_MS_MAX)))
    end_calls(turn, calls, "the function that called it was cancelled")
    if run.state == RunState.PAUSED:
        resume_run(turn, run, "it was cancelled: its clean-up starts")


def _may(run: Run, trigger: RunTrigger) -> None:
    if not may_move(run.state, trigger):
        state, action = RunState(run.state).name, trigger.name.lower()
        raise Refused("illegal_move", f"run {run.id} is {state}: it cannot {action}", path="run_id")


def _pause(turn: TickContext, position: int, pause: inputs.Pause) -> None:
    state = turn.state
    if pause.scope in ("schedule", "group"):
        schedules.pause(turn, position, pause)
        return
    if pause.scope != "run":
        _check_scope(state, pause)
        turn.emit(ScopePaused(position))
        if pause.scope == "partition":
            turn.effects.append(Alert("dispatch_held", "", f"partition {pause.name}", f"{pause.by}: {pause.reason}"))
        return
    run = live_run(state, pause.tenant, pause.name, pause.left_as)
    _may(run, RunTrigger.PAUSE)
    until = 0
    if pause.until_ms is not None:
        until = state.settings.clock.tick_at(pause.until_ms)
        if until <= state.tick:
            raise Refused("bad_time", "a pause must end in the future", path="until_ms")
    pause_run(turn, run, pause.reason or "paused", position=position, until=until)


def _resume(turn: TickContext, position: int, resume: inputs.Resume) -> None:
    state = turn.state
    if resume.scope in ("schedule", "group"):
        schedules.resume(turn, position, resume)
        return
    if resume.scope != "run":
        _check_scope(state, resume)
        turn.emit(ScopeResumed(position))
        return
    run = live_run(state, resume.tenant, resume.name, resume.left_as)
    _may(run, RunTrigger.RESUME)
    resume_run(turn, run, position=position)


def _check_scope(state: State, request: inputs.Pause | inputs.Resume) -> None:
    known = {
        "partition": lambda: request.name == str(state.settings.partition),
        "queue": lambda: state.has_queue(request.name),
        "tenant": lambda: tenant_of(state, request.tenant) is not None,
        "workflow": lambda: request.name in tenant_of(state, request.tenant).plans,
    }.get(request.scope)
    if known is None:
        message = "a scope is run, queue, workflow, tenant, schedule, group or partition"
        raise Refused("bad_scope", message, path="scope")
    if not known():
        raise Refused(
            f"unknown_{request.scope}", f"there is no {request.scope} {shortened(request.name, 128)!r}", path="name"
        )
    paused = _is_paused(state, request)
    if paused is (isinstance(request, inputs.Pause)):
        raise Refused(
            "illegal_move", f"{request.scope} {request.name} is {'' if paused else 'not '}paused", path="name"
        )


def _is_paused(state: State, request: inputs.Pause | inputs.Resume) -> bool:
    gauge = scope_gauge(state, request.scope, request.tenant, request.name)
    return gauge is not None and gauge.paused


def _rerun(turn: TickContext, position: int, rerun: inputs.Rerun) -> None:
    state = turn.state
    tenant = tenant_of(state, rerun.tenant)
    record = rerun.record
    old, new = (tenant.versions.get(version) for version in (record.definition, rerun.definition or record.definition))
    if old is None or new is None or len(old.steps) != len(record.phases):
        raise Refused("unknown_definition", "that version is not here", path="definition")
    if old.name != new.name:
        raise Refused("unknown_definition", "a run is repeated with a version of its own workflow", path="definition")
    if rerun.from_node and rerun.from_node not in new.index:
        raise Refused("unknown_node", f"there is no node {shortened(rerun.from_node, 128)!r}", path="from_node")
    if rerun.from_node and rerun.from_start:
        raise Refused("two_starts", "give the node to begin from or the start of the run, not both", path="from_start")
    if record.run_id == rerun.run_id or tenant.runs.get(rerun.run_id) is not None:
        raise Refused("already_submitted", "a repeated run needs an id of its own", path="run_id")
    values = rerun.inputs if rerun.change_inputs else record.inputs
    check_submission(state, tenant, new, inputs.Submit(rerun.by, rerun.tenant, rerun.run_id, new.name, values))
    kept = {} if rerun.from_start else kept_steps(old, record, new, rerun.from_node, values)
    turn.emit(RunRerun(state.next_number, position, list(kept.items())))


COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    **schedules.SCHEDULE_COMMANDS,
    **VERSION_COMMANDS,
    **BACKFILL_COMMANDS,
    **SETUP_COMMANDS,
    **SIGNAL_COMMANDS,
    **DEAD_LETTER_COMMANDS,
    **TASK_ACTIONS,
    **BULK_COMMANDS,
    inputs.Submit: submit,
    inputs.Cancel: in_bulk(_cancel),
    inputs.Pause: in_bulk(_pause),
    inputs.Resume: in_bulk(_resume),
    inputs.Resolve: in_bulk(DEAD_LETTER_COMMANDS[inputs.Resolve]),
    inputs.Rerun: in_bulk(_rerun),
}
