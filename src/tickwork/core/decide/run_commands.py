"""What somebody asks of a partition: accepted and turned into events, or refused by name.

A rule here raises `Refused` before it emits anything, so a refused command has changed nothing.
An accepted one needs no answer of its own: the events are the answer.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, too_large
from tickwork.core.calendar.durations import instant_text
from tickwork.core.decide import schedule_commands as schedules
from tickwork.core.decide.advance import CLEAN_UP_MS_MAX, end_calls, end_run, pause_run, resume_run, take_gate_again
from tickwork.core.decide.backfill import BACKFILL_COMMANDS
from tickwork.core.decide.functions import approval_of, called_runs, to_unwind
from tickwork.core.decide.policy import ACTIONS
from tickwork.core.decide.rerun import given_up, kept_steps, left_out
from tickwork.core.decide.tick_context import TickContext, answer, check_room, check_same, earlier_run, tenant_of
from tickwork.core.decide.versions import VERSION_COMMANDS, pinned
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN, ApprovalNode, Node, WorkNode
from tickwork.core.definition.plan import Kind, Plan, downstream, nodes_read, plan_of
from tickwork.core.evolve.capacity import scope_gauge
from tickwork.core.evolve.run_creation import submitted
from tickwork.core.state import inputs
from tickwork.core.state.effects import Alert, CommandResult
from tickwork.core.state.events import (
    AwaitMet,
    ClockGapRecorded,
    DefinitionPut,
    Duplicate,
    EventStored,
    FunctionCancelled,
    LabelLimitPut,
    PolicyPut,
    QueuePut,
    RunDebounced,
    RunMoved,
    RunRerun,
    RunRestored,
    RunSubmitted,
    ScopePaused,
    ScopeResumed,
    StepAccepted,
    StepReset,
    TaskAnswered,
    TaskFailed,
    TenantPut,
    TimersHeld,
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


def live_run(state: State, tenant: str, run_id: str, left_as: int | None = None) -> Run:
    """The run in memory. Without the fact beside it, one that ended and one that never was look the same."""
    run = tenant_of(state, tenant).runs.get(run_id)
    if run is None and left_as is not None:
        message = f"run {run_id[:128]} is {RunState(left_as).name}: it only moves if it failed, by resolve"
        raise Refused("illegal_move", message, path="run_id")
    if run is None:
        raise Refused("unknown_run", f"there is no unfinished run {shortened(run_id, 128)!r}", path="run_id")
    return run


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


def check_key(key: str, path: str) -> None:
    if len(key) > KEY_CHARACTERS_MAX:
        raise Refused("key_too_long", f"at most {KEY_CHARACTERS_MAX} characters", path=path)


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
    wait_ms = terms.delay_ms
    if terms.start_at_ms is not None:
        wait_ms = max(0, terms.start_at_ms - state.now_ms)
    if wait_ms is None:
        return 0
    if not 0 <= wait_ms <= DELAY_MS_MAX:
        raise Refused("bad_delay", f"a delay is 0 to {DELAY_MS_MAX} ms", path="delay_ms")
    return state.tick + clock.ticks(wait_ms) if wait_ms else 0


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
    end_run(turn, run, RunTrigger.CANCEL, cancel.reason or "cancelled", place=position)


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
    failed = [index for index, phase in enumerate(record.phases) if phase == Phase.FAILED]
    if not resolve.decisions:
        return dict.fromkeys(failed, "retry")
    chosen: dict[int, str] = {}
    # The journal keeps decisions in this order, so a refusal names the same node on replay.
    for node, decision in sorted(resolve.decisions.items()):
        index = plan.index.get(node)
        if index is None or index not in failed:
            raise Refused("not_failed", f"node {shortened(node, 128)!r} has not failed", path=f"decisions.{node}")
        if decision not in ("retry", "accept", "skip"):
            raise Refused("bad_decision", "a decision is retry, accept or skip", path=f"decisions.{node}")
        if decision == "accept" and plan.steps[index].kind is Kind.BRANCH:
            message = f"the branch {node} took no side, so it cannot be accepted: retry it, or skip it with its sides"
            raise Refused("bad_decision", message, path=f"decisions.{node}")
        if decision != "retry":  # to bypass an approval takes the right to approve
            _check_entitled(plan.steps[index].node, by=resolve.by, requester=record.by)
        chosen[index] = decision
    if len(chosen) < len(failed):
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
    out, unless the branch itself is asked again.
    """
    after = {later: None for index in decisions for later in downstream(plan, index)}
    again = {index: None for index, decision in decisions.items() if decision == "retry"}
    lost = given_up(plan, phases)
    for index, phase in enumerate(phases):
        if (phase == Phase.CANCELLED and index not in lost) or (phase == Phase.BLOCKED and index in after):
            again[index] = None
    later = {step: None for index in list(again) for step in downstream(plan, index)}
    raced = [index for index, first in lost.items() if first in later]  # what is decided again starts from the start
    again |= dict.fromkeys(raced)
    later |= {step: None for index in raced for step in downstream(plan, index)}
    out = left_out(plan, phases)
    for index in later:
        left = any(branch not in again and branch not in later for branch in out.get(index, ()))
        if index not in decisions and not left:
            again[index] = None
    return again


def resolve_redriven(turn: TickContext, run: Run) -> None:
    """The moment that a bulk redrive chose for this run has come."""
    failed = [index for index, phase in enumerate(run.phases) if phase == Phase.FAILED]
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


def _decide(turn: TickContext, position: int, decide: inputs.Decide) -> None:
    state = turn.state
    if decide.left_as is not None and tenant_of(state, decide.tenant).runs.get(decide.run_id) is None:
        message = f"run {decide.run_id[:128]} is {RunState(decide.left_as).name}: nothing in it waits for a decision"
        raise Refused("run_ended", message, path="run_id")
    run = live_run(state, decide.tenant, decide.run_id)
    if run.plan.steps[0].durable:
        _decide_for_function(turn, position, decide, run)
        return
    task = _waiting_task(state, run, decide.node, Kind.APPROVAL)
    _check_entitled(task.step.node, by=decide.by, requester=run.by)
    if decide.approve:
        turn.emit(TaskAnswered(task.number, position))
    else:
        turn.emit(TaskFailed(task.number, "rejected", f"by {decide.by}: {decide.comment}"[:512], position))


def _decide_for_function(turn: TickContext, position: int, decide: inputs.Decide, run: Run) -> None:
    """Both decisions are outcomes: the function itself says what follows from a rejection."""
    task = turn.state.tasks.get(run.number)
    pending = approval_of(task, decide.node) if task is not None else None
    if task is None or pending is None:
        raise Refused("not_waiting", f"{shortened(decide.node, 128)!r} does not wait for an answer", path="node")
    request = pending.request
    _check_approver(request.name, request.approvers, four_eyes=request.four_eyes, by=decide.by, requester=run.by)
    turn.emit(AwaitMet(task.number, request.position, position))


def _check_entitled(node: Node, *, by: str, requester: str) -> None:
    if isinstance(node, ApprovalNode):
        _check_approver(node.id, node.approvers, four_eyes=node.four_eyes, by=by, requester=requester)


def _check_approver(name: str, approvers: tuple[str, ...], *, four_eyes: bool, by: str, requester: str) -> None:
    if approvers and by not in approvers:
        raise Refused("not_entitled", f"{shortened(by, 128)!r} is not among the approvers of {name}", path="by")
    if four_eyes and by == requester:
        raise Refused("four_eyes", "whoever asked for the run cannot approve it", path="by")


def _waiting_task(state: State, run: Run, node: str, kind: Kind) -> Task:
    index = run.plan.index.get(node)
    task = state.tasks.get(run.number + index) if index is not None else None
    phase = Phase(run.phases[index]) if index is not None and run.plan.steps[index].kind is kind else None
    if phase in (Phase.SUCCEEDED, Phase.FAILED):
        raise Refused(
            "already_decided", f"{shortened(node, 128)!r} is {phase.name}: it was decided before", path="node"
        )
    if task is None or task.step.kind is not kind or task.phase != Phase.WAITING:
        raise Refused("not_waiting", f"{shortened(node, 128)!r} does not wait for an answer", path="node")
    return task


def _ingest(turn: TickContext, position: int, ingest: inputs.Ingest) -> None:
    state = turn.state
    check_event(state, ingest)
    if not ingest.run_id:
        count = give_event(turn, position, ingest)
        turn.effects.append(CommandResult(position, "", "", f"{count} waiting"))
        return
    waiting = _waiting(state, ingest)
    run = live_run(state, ingest.tenant, ingest.run_id)
    own = [task for task in waiting if task.run is run]
    if own:
        _take_event(turn, own[0], position, ingest)
    elif run.plan.events is not None and ingest.event not in run.plan.events:
        known = ", ".join(run.plan.events[:10])
        waits = f"its events are {known}" if known else "it waits for no event"
        message = f"run {run.id} of {run.plan.name} can never take the event {ingest.event}: {waits}"
        raise Refused("unknown_event", message, path="event")
    elif run.signals is not None and len(run.signals) >= EVENTS_KEPT_MAX:
        raise Refused("too_many_events", f"a run keeps at most {EVENTS_KEPT_MAX} events", path="run_id")
    else:
        turn.emit(EventStored(run.number, position))


def check_event(state: State, ingest: inputs.Ingest) -> None:
    """Raises `Refused` for an event that nobody could ever take."""
    tenant_of(state, ingest.tenant)
    if too_large(ingest.payload):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="payload")
    check_name(ingest.event, path="event", kind="event")
    check_key(ingest.key, "key")


def give_event(turn: TickContext, position: int, ingest: inputs.Ingest, *, command: int = -1) -> int:
    """An event that was checked, to everybody who waits for it. Returns how many that are."""
    waiting = _waiting(turn.state, ingest)
    for task in waiting:
        _take_event(turn, task, position, ingest, command)
    return len(waiting)


def _take_event(turn: TickContext, task: Task, position: int, ingest: inputs.Ingest, command: int = -1) -> None:
    if task.history is not None:
        awaited = task.history.event_await(ingest.event, ingest.key)
        turn.emit(AwaitMet(task.number, awaited, position, command=command))
    else:
        turn.emit(TaskAnswered(task.number, position, command=command))


def _waiting(state: State, ingest: inputs.Ingest) -> list[Task]:
    return list(tenant_of(state, ingest.tenant).waits.get((ingest.event, ingest.key), {}).values())


# ---- set-up


def _put_definition(turn: TickContext, position: int, definition: inputs.PutDefinition) -> None:
    state = turn.state
    tenant_of(state, definition.tenant)
    plan = plan_of(definition.document)
    for step in plan.steps:
        if step.requirement[0] not in state.queues and _runs_on_workers(step.node, step.body):
            raise Refused(
                "unknown_queue", f"queue {step.requirement[0]!r} is not declared", path=f"nodes.{step.id}.queue"
            )
    turn.emit(DefinitionPut(position, plan.hash))


def _runs_on_workers(node: object, body: object) -> bool:
    return isinstance(node, WorkNode) or (body is not None and isinstance(getattr(body, "node", None), WorkNode))


def _put_tenant(turn: TickContext, position: int, tenant: inputs.PutTenant) -> None:
    check_name(tenant.tenant, path="tenant", kind="tenant")
    if not 1 <= tenant.weight <= WEIGHT_MAX:
        raise Refused("bad_weight", f"a weight is 1 to {WEIGHT_MAX}", path="weight")
    _check_limits(tenant)
    turn.emit(TenantPut(position))


def _put_queue(turn: TickContext, position: int, queue: inputs.PutQueue) -> None:
    check_name(queue.queue, path="queue", kind="queue")
    _check_limits(queue)
    turn.emit(QueuePut(position))


def _check_limits(request: inputs.PutTenant | inputs.PutQueue) -> None:
    for field in ("limit", "burst"):
        value = getattr(request, field)
        if value is not None and not 0 <= value <= LIMIT_MAX:
            raise Refused("bad_limit", f"a limit is 0 to {LIMIT_MAX}", path=field)
    if request.rate_starts is not None and not 1 <= request.rate_starts <= 1_000_000:
        raise Refused("bad_rate", "a rate is 1 to 1,000,000 starts", path="rate_starts")
    if not 1 <= request.rate_ms <= 86_400_000:
        raise Refused("bad_rate", "a rate is counted over 1 ms to one day", path="rate_ms")
    if request.rate_starts is not None and request.burst == 0:
        raise Refused("bad_rate", "a burst of 0 would let nothing start", path="burst")
    if request.window not in ("bucket", "sliding"):
        raise Refused("bad_rate", "a window is bucket or sliding", path="window")
    if request.window == "sliding":
        _check_sliding(request)


def _check_sliding(request: inputs.PutTenant | inputs.PutQueue) -> None:
    if request.rate_starts is None:
        raise Refused("bad_rate", "a sliding window needs a rate: give the number of starts", path="rate_starts")
    if request.rate_starts > SLIDING_STARTS_MAX:
        message = (
            f"a sliding window remembers each start, {SLIDING_STARTS_MAX:,} at most; use a bucket, or a shorter time"
        )
        raise Refused("bad_rate", message, path="rate_starts")
    if request.burst is not None:
        raise Refused("bad_rate", "a sliding window has no burst; leave it out, or use a bucket", path="burst")


def _put_label_limit(turn: TickContext, position: int, limit: inputs.PutLabelLimit) -> None:
    check_name(limit.label, path="label", kind="label")
    if limit.limit is not None and not 0 <= limit.limit <= LIMIT_MAX:
        raise Refused("bad_limit", f"a limit is 0 to {LIMIT_MAX}", path="limit")
    turn.emit(LabelLimitPut(position))


def _put_policy(turn: TickContext, position: int, policy: inputs.PutPolicy) -> None:
    check_name(policy.policy, path="policy", kind="policy")
    Condition.compile(policy.allow, path="allow")
    if policy.action not in ACTIONS:
        raise Refused("bad_action", f"an action is one of {', '.join(ACTIONS)}", path="action")
    if not 0 <= policy.pause_ms <= DELAY_MS_MAX:
        raise Refused("bad_delay", "a pause is 0 ms or more", path="pause_ms")
    turn.emit(PolicyPut(position))


def _clock_gap(turn: TickContext, position: int, gap: inputs.ClockGap) -> None:
    """A new owner of a partition cannot tell whether the old owner was idle or away. If nothing was due meanwhile, it
    makes no difference."""
    turn.emit(ClockGapRecorded(position))
    due = turn.state.wheel.next_due()
    harmless = gap.cause == inputs.OUTAGE and (due is None or turn.state.settings.clock.ms_of(due) > gap.to_ms)
    if not harmless:
        span = f"{instant_text(gap.from_ms)} to {instant_text(gap.to_ms)}"
        turn.effects.append(Alert("clock_gap", "", gap.cause, span))


def _hold_timers(turn: TickContext, position: int, timers: inputs.HoldTimers) -> None:
    if timers.held != turn.state.timers_held:
        turn.emit(TimersHeld(position, timers.held))


COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    **schedules.SCHEDULE_COMMANDS,
    **VERSION_COMMANDS,
    **BACKFILL_COMMANDS,
    inputs.Submit: _submit,
    inputs.Cancel: _cancel,
    inputs.Pause: _pause,
    inputs.Resume: _resume,
    inputs.Resolve: _resolve,
    inputs.Redrive: _redrive,
    inputs.Rerun: _rerun,
    inputs.Decide: _decide,
    inputs.Ingest: _ingest,
    inputs.PutDefinition: _put_definition,
    inputs.PutTenant: _put_tenant,
    inputs.PutQueue: _put_queue,
    inputs.PutLabelLimit: _put_label_limit,
    inputs.PutPolicy: _put_policy,
    inputs.ClockGap: _clock_gap,
    inputs.HoldTimers: _hold_timers,
}
