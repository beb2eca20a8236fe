"""What somebody asks of a partition: accepted and turned into events, or refused by name.

A rule here raises `Refused` before it emits anything, so a refused command has changed nothing.
An accepted one needs no answer of its own: the events are the answer.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import too_large
from tickwork.core.decide.commands.rerun import given_up, kept_steps, left_out, torn_down
from tickwork.core.decide.commands.setup_commands import SETUP_COMMANDS
from tickwork.core.decide.commands.signals import SIGNAL_COMMANDS, check_entitled
from tickwork.core.decide.commands.versions import VERSION_COMMANDS, pinned
from tickwork.core.decide.runs.advance import take_gate_again
from tickwork.core.decide.runs.functions import called_runs, to_unwind
from tickwork.core.decide.runs.run_end import CLEAN_UP_MS_MAX, end_calls, pause_run, resume_run, stop_run
from tickwork.core.decide.schedules import schedule_commands as schedules
from tickwork.core.decide.schedules.backfill import BACKFILL_COMMANDS
from tickwork.core.decide.tick_context import (
    TickContext,
    answer,
    check_key,
    check_room,
    check_same,
    earlier_run,
    live_run,
    tenant_of,
)
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN
from tickwork.core.definition.plan import Kind, Plan, downstream, nodes_read
from tickwork.core.evolve.capacity import scope_gauge
from tickwork.core.evolve.follow_ups import failed_steps
from tickwork.core.evolve.run_creation import submitted
from tickwork.core.state import inputs
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import (
    Duplicate,
    FunctionCancelled,
    RunDebounced,
    RunMoved,
    RunRerun,
    RunRestored,
    RunSubmitted,
    ScopePaused,
    ScopeResumed,
    StepAccepted,
    StepReset,
)
from tickwork.core.state.lifecycle import Phase, RunState, RunTrigger, may_move
from tickwork.core.state.state import Run, State, Task, Tenant

WEIGHT_MAX = 100
LIMIT_MAX = 1_000_000_000
SLIDING_STARTS_MAX = 10_000
DELAY_MS_MAX = 100 * 366 * 86_400_000
KEY_CHARACTERS_MAX = 255
EVENTS_KEPT_MAX = 1_000  # of one run: they stay in memory as long as it does
_RUN_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+~@=-]{0,254}")
_is_plain_id = re.compile(
    r"[A-Fa-f0-9][A-Fa-f0-9-]{0,63}"
).fullmatch  # what most ids are: nothing is to be said about them


# ---- submissions


def _submit(turn: TickContext, position: int, submit: inputs.Submit) -> None:
    state = turn.state
    tenant = state.tenants.get(submit.tenant) or tenant_of(state, submit.tenant)
    if submit.terms is not None:
        _submit_on_terms(turn, position, submit, tenant, submit.terms)
        return
    plan = tenant.plans.get(submit.workflow) or _plan(tenant, submit)
    run_id = submit.run_id
    if run_id in tenant.runs.of(run_id):
        _answer_duplicate(turn, position, run_id)
        return
    if (
        submit.inputs is not None
        or plan.definition.inputs
        or tenant.active >= tenant.max_live_runs
        or state.live_runs >= state.settings.max_live_runs
        or not _is_plain_id(run_id)
    ):
        _check_submission(state, tenant, plan, submit)
    number = state.next_number
    turn.events.append(RunSubmitted(number, position))
    submitted(state, number, submit, tenant, plan)


def _submit_on_terms(
    turn: TickContext, position: int, submit: inputs.Submit, tenant: Tenant, terms: inputs.SubmitOptions
) -> None:
    state = turn.state
    same, start_at = check_start(state, submit, terms)
    if same is not None:
        _answer_duplicate(turn, position, same)
        return
    pending = tenant.debounced.get((submit.workflow, terms.debounce)) if terms.debounce else None
    if pending is not None and pending.state == RunState.PENDING and pending.start_at:
        require_inputs(pending.plan.definition, submit.inputs)  # the run keeps the version that accepted it
        if terms.at_most_ms is not None:
            latest = pending.submitted + state.settings.clock.ticks(terms.at_most_ms)
            start_at = max(state.tick + 1, min(start_at, latest))
        turn.emit(RunDebounced(pending.number, position, start_at))
        answer(turn, position, pending.id)
        return
    turn.emit(RunSubmitted(state.next_number, position, start_at))


def check_start(state: State, submit: inputs.Submit, terms: inputs.SubmitOptions) -> tuple[str | None, int]:
    """The run that this submission has begun already, if any, and the tick at which a new one starts (0: now). Raises
    `Refused` where it can begin none."""
    tenant = tenant_of(state, submit.tenant)
    plan = _plan(tenant, submit)
    if terms.version and pinned(tenant, submit.workflow, terms.version) != (terms.version, terms.definition):
        raise Refused("version_changed", "this version was registered anew meanwhile; try again", path="version")
    for field in ("key", "body", "debounce"):
        check_key(getattr(terms, field), field)
    same = _earlier(state, tenant, submit, terms)
    if same is not None:
        return same, 0
    _check_submission(state, tenant, plan, submit)
    if terms.priority is not None and not PRIORITY_MIN <= terms.priority <= PRIORITY_MAX:
        raise Refused("bad_priority", f"priority is {PRIORITY_MIN} to {PRIORITY_MAX}", path="priority")
    return None, _start_tick(state, terms)


def _plan(tenant: Tenant, submit: inputs.Submit) -> Plan:
    definition = submit.terms.definition if submit.terms is not None else ""
    plan = tenant.versions.get(definition) if definition else tenant.plans.get(submit.workflow)
    if plan is None or plan.name != submit.workflow:
        raise Refused(
            "unknown_workflow",
            f"there is no workflow {shortened(submit.workflow, 128)!r} {definition}",
            path="workflow",
        )
    return plan


def _earlier(state: State, tenant: Tenant, submit: inputs.Submit, terms: inputs.SubmitOptions) -> str | None:
    """The run that this submission already made: by id for ever, by key within the window."""
    run = tenant.runs.get(submit.run_id)
    if run is not None:
        check_same(run.body, terms.body, f"run {submit.run_id}")
        return run.id
    return earlier_run(state, tenant, terms.key, terms.body, terms.known, run_id=submit.run_id)


def _check_submission(state: State, tenant: Tenant, plan: Plan, submit: inputs.Submit) -> None:
    _check_run_id(submit.run_id)
    check_room(state, tenant, 1)
    if submit.inputs is not None or plan.definition.inputs:
        require_inputs(plan.definition, submit.inputs)


def _check_run_id(run_id: str) -> None:
    if _RUN_ID.fullmatch(run_id) is None:
        raise Refused("bad_run_id", "letters, digits and _.:+~@=- only, at most 255", path="run_id")
    if run_id.startswith("sched-"):
        raise Refused("reserved_id", "ids that begin with sched- are those of scheduled runs", path="run_id")


def _start_tick(state: State, terms: inputs.SubmitOptions) -> int:
    clock = state.settings.clock
    if terms.start_at_ms is not None and terms.delay_ms is not None:
        raise Refused("two_start_times", "give a start time or a delay, not both", path="delay_ms")
    if terms.debounce and not terms.delay_ms:
        raise Refused("debounce_without_delay", "a debounce key needs the delay to wait for", path="debounce")
    if terms.at_most_ms is not None:
        _check_at_most(terms, terms.at_most_ms)
    wait_ms = terms.delay_ms
    if terms.start_at_ms is not None:
        wait_ms = max(0, terms.start_at_ms - state.now_ms)
    if wait_ms is None:
        return 0
    if not 0 <= wait_ms <= DELAY_MS_MAX:
        raise Refused("bad_delay", f"a delay is 0 to {DELAY_MS_MAX} ms", path="delay_ms")
    return state.tick + clock.ticks(wait_ms) if wait_ms else 0


def _check_at_most(terms: inputs.SubmitOptions, at_most_ms: int) -> None:
    if not terms.debounce:
        message = "only a debounced run has a latest start: give a debounce key"
        raise Refused("at_most_without_debounce", message, path="at_most_ms")
    if not (terms.delay_ms or 0) <= at_most_ms <= DELAY_MS_MAX:
        raise Refused("bad_at_most", f"the latest start is the delay to {DELAY_MS_MAX} ms", path="at_most_ms")


def _answer_duplicate(turn: TickContext, position: int, run_id: str) -> None:
    turn.emit(Duplicate(position, run_id))
    answer(turn, position, run_id)


# ---- runs


def _cancel(turn: TickContext, position: int, cancel: inputs.Cancel) -> None:
    run = live_run(turn.state, cancel.tenant, cancel.run_id, cancel.left_as)
    _may(run, RunTrigger.CANCEL)
    task = to_unwind(turn.state, run)
    if task is not None:
        _unwind(turn, position, task)
        return
    stop_run(turn, run, RunTrigger.CANCEL, cancel.reason or "cancelled", place=position)


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
    pause_run(turn, run, pause.reason or "paused", place=position, until=until)


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
    resume_run(turn, run, place=position)


def _check_scope(state: State, request: inputs.Pause | inputs.Resume) -> None:
    known = {
        "partition": lambda: request.name == str(state.settings.partition),
        "queue": lambda: request.name in state.queues,
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


def _resolve(turn: TickContext, position: int, resolve: inputs.Resolve) -> None:
    state = turn.state
    tenant = tenant_of(state, resolve.tenant)
    record = resolve.record
    if record is None or record.run_id != resolve.run_id:
        raise Refused("unknown_run", f"there is no failed run {shortened(resolve.run_id, 128)!r}", path="run_id")
    decisions = _decisions(state, tenant, record, resolve)
    check_room(state, tenant, 1)
    turn.emit(RunRestored(record.number, position))
    _apply_decisions(turn, position, state.runs[record.number], decisions)


def _decisions(state: State, tenant: Tenant, record: inputs.RunRecord, resolve: inputs.Resolve) -> dict[int, str]:
    plan = _plan_of_record(state, tenant, record)
    for node, value in sorted(resolve.values.items(), key=lambda pair: pair[0]):
        if too_large(value):
            raise Refused("value_too_large", "the value is too large to be inline", path=f"values.{node}")
        if resolve.decisions.get(node) != "accept":
            raise Refused("not_accepted", "a value is given to a node that is accepted", path=f"values.{node}")
    failed = [step.index for step in failed_steps(plan, record.phases)]
    if not resolve.decisions:
        return dict.fromkeys(failed, "retry")
    chosen: dict[int, str] = {}
    # The journal keeps decisions in this order, so a refusal names the same node on replay.
    for node, decision in sorted(resolve.decisions.items()):
        index = plan.index.get(node)
        if index is None or record.phases[index] != Phase.FAILED:
            raise Refused("not_failed", f"node {shortened(node, 128)!r} has not failed", path=f"decisions.{node}")
        if decision not in ("retry", "accept", "skip"):
            raise Refused("bad_decision", "a decision is retry, accept or skip", path=f"decisions.{node}")
        if decision == "accept" and plan.steps[index].kind is Kind.BRANCH:
            message = f"the branch {node} took no side, so it cannot be accepted: retry it, or skip it with its sides"
            raise Refused("bad_decision", message, path=f"decisions.{node}")
        if decision != "retry":  # to bypass an approval takes the right to approve
            check_entitled(plan.steps[index].node, by=resolve.by, requester=record.by)
        chosen[index] = decision
    if any(index not in chosen for index in failed):
        raise Refused("undecided", "every failed node needs a decision", path="decisions")
    _check_reads(plan, _decided_again(plan, record.phases, chosen), chosen)
    return chosen


def _check_reads(plan: Plan, again: Collection[int], decisions: dict[int, str]) -> None:
    """What is accepted or skipped counts at once, so a node behind it could read one that is still tried again."""
    between = [index for index, decision in decisions.items() if decision != "retry"]
    for index in again if between else ():
        step = plan.steps[index]
        for other in nodes_read(plan.definition, step, plan.index, again):
            if other in again and index in downstream(plan, other) and index not in downstream(plan, other, again):
                name, read = step.id, plan.steps[other].id
                message = f"{name} reads {read}, which is tried again, but would not wait for it"
                raise Refused("bad_decision", f"{message}: retry the nodes between them as well", path="decisions")


def _plan_of_record(state: State, tenant: Tenant, record: inputs.RunRecord) -> Plan:
    if record.state != RunState.FAILED:
        raise Refused("illegal_move", f"run {record.run_id} is not FAILED: it cannot be resolved", path="run_id")
    if record.number in state.runs or tenant.runs.get(record.run_id) is not None:
        raise Refused("illegal_move", f"run {record.run_id} is already on its way again", path="run_id")
    plan = tenant.versions.get(record.definition)
    if plan is None or len(plan.steps) != len(record.phases):
        raise Refused("unknown_definition", "the version this run is pinned to is not here", path="definition")
    return plan


def _apply_decisions(turn: TickContext, position: int, run: Run, decisions: dict[int, str]) -> None:
    again = _decided_again(run.plan, run.phases, decisions)
    for index, decision in sorted(decisions.items()):
        if decision != "retry":
            accepted = Phase.SUCCEEDED if decision == "accept" else Phase.SKIPPED
            turn.emit(StepAccepted(run.number, index, accepted, position))
    for index in sorted(again):
        turn.emit(StepReset(run.number, index))
    if run.plan.definition.concurrency is not None:
        take_gate_again(turn, run)
    request: Any = turn.state.inputs[position] if position >= 0 else None
    turn.emit(RunMoved(run.number, RunTrigger.RESOLVE, request.reason if request else "redriven", position))


def _decided_again(plan: Plan, phases: bytes | bytearray, decisions: dict[int, str]) -> dict[int, None]:
    """The nodes whose outcomes are no longer valid.

    What is tried again, what was cut short or blocked, and everything that comes after one of these: clean-up and
    alerts that already ran belong to the try that failed, and the next one has its own. What a branch left out stays
    out, unless the branch itself is asked again. What a teardown that runs again belongs to is set up again.
    """
    after = {later: None for index in decisions for later in downstream(plan, index)}
    again = {index: None for index, decision in decisions.items() if decision == "retry"}
    while True:
        _add_decided_again(again, plan, phases, decisions, after)
        undone = [setup for setup in torn_down(plan, again) if setup not in again and setup not in decisions]
        if not undone:
            return again
        again |= dict.fromkeys(undone)


def _add_decided_again(
    again: dict[int, None],
    plan: Plan,
    phases: bytes | bytearray,
    decisions: dict[int, str],
    after: dict[int, None],
) -> None:
    lost = given_up(plan, phases)
    for index, phase in enumerate(phases):
        if (phase == Phase.CANCELLED and index not in lost) or (phase == Phase.BLOCKED and index in after):
            again[index] = None
    later = {step: None for index in list(again) for step in downstream(plan, index)}
    while raced := [
        index for index, races in lost.items() if index not in again and all(first in later for first in races)
    ]:  # what is decided again starts from the start
        again |= dict.fromkeys(raced)
        later |= {step: None for index in raced for step in downstream(plan, index)}
    out = left_out(plan, phases)
    for index in later:
        left = any(branch not in again and branch not in later for branch in out.get(index, ()))
        if index not in decisions and not left:
            again[index] = None


def resolve_redriven(turn: TickContext, run: Run) -> None:
    """The moment that a bulk redrive chose for this run has come."""
    failed = [step.index for step in failed_steps(run.plan, run.phases)]
    _apply_decisions(turn, -1, run, dict.fromkeys(failed, "retry"))


def _redrive(turn: TickContext, position: int, redrive: inputs.Redrive) -> None:
    """Runs come back one by one, spaced so that no more than `per_second` start in any second."""
    state = turn.state
    tenant = tenant_of(state, redrive.tenant)
    if not 1 <= redrive.per_second <= 1_000:
        raise Refused("bad_rate", "a redrive starts 1 to 1,000 runs a second", path="per_second")
    if len(redrive.records) > state.settings.max_changes_per_tick:
        raise Refused("too_many", f"at most {state.settings.max_changes_per_tick} at once", path="records")
    seen: dict[str, None] = {}
    for record in redrive.records:
        _plan_of_record(state, tenant, record)
        if record.run_id in seen:
            raise Refused("twice", f"run {record.run_id} is in the list twice", path="records")
        seen[record.run_id] = None
    check_room(state, tenant, len(redrive.records))
    clock, gap_ms = state.settings.clock, -(-1_000 // redrive.per_second)
    for number, record in enumerate(redrive.records):
        start_at = max(state.tick + 1, clock.tick_at(max(tenant.redrive_ms + gap_ms, state.now_ms)))
        turn.emit(RunRestored(record.number, position, number, start_at))


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
    _check_submission(state, tenant, new, inputs.Submit(rerun.by, rerun.tenant, rerun.run_id, new.name, values))
    kept = {} if rerun.from_start else kept_steps(old, record, new, rerun.from_node, values)
    turn.emit(RunRerun(state.next_number, position, list(kept.items())))


COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    **schedules.SCHEDULE_COMMANDS,
    **VERSION_COMMANDS,
    **BACKFILL_COMMANDS,
    **SETUP_COMMANDS,
    **SIGNAL_COMMANDS,
    inputs.Submit: _submit,
    inputs.Cancel: _cancel,
    inputs.Pause: _pause,
    inputs.Resume: _resume,
    inputs.Resolve: _resolve,
    inputs.Redrive: _redrive,
    inputs.Rerun: _rerun,
}
