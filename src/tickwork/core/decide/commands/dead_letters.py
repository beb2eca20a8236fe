"""Dead letters: failed runs that are brought back, one by `Resolve` or many by `Redrive`, or dropped.

A dead letter is a task that has used up its attempts; its run has failed. `runs.run_end.alert_dead_letter` reports it.
To resolve a run is to decide for each failed node whether it is tried again, accepted or skipped.
"""

from collections.abc import Callable, Collection
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import too_large
from tickwork.core.decide.commands.rerun import GivenUp, left_out, torn_down
from tickwork.core.decide.commands.signals import check_entitled
from tickwork.core.decide.runs.start_limits import take_gate_again
from tickwork.core.decide.tick_context import (
    TickContext,
    check_room,
    tenant_of,
)
from tickwork.core.definition.plan import Kind, Plan, downstream, nodes_read
from tickwork.core.evolve.follow_ups import failed_steps
from tickwork.core.state import inputs
from tickwork.core.state.events import (
    RunMoved,
    RunRestored,
    StepAccepted,
    StepReset,
)
from tickwork.core.state.lifecycle import Phase, RunState, RunTrigger
from tickwork.core.state.state import Run, State, Tenant


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


def _redrive(turn: TickContext, position: int, redrive: inputs.Redrive) -> None:
    """Runs come back one by one, spaced so that no more than `per_second` start in any second."""
    state = turn.state
    tenant = tenant_of(state, redrive.tenant)
    if not 1 <= redrive.per_second <= 1_000:
        raise Refused("bad_rate", "a redrive starts 1 to 1,000 runs a second", path="per_second")
    _check_records(state, tenant, redrive.records)
    check_room(state, tenant, len(redrive.records))
    clock, gap_ms = state.settings.clock, -(-1_000 // redrive.per_second)
    for number, record in enumerate(redrive.records):
        start_at = max(state.tick + 1, clock.tick_at(max(tenant.redrive_ms + gap_ms, state.now_ms)))
        turn.emit(RunRestored(record.number, position, number, start_at))


def _check_records(state: State, tenant: Tenant, records: list[inputs.RunRecord]) -> None:
    if len(records) > state.settings.max_changes_per_tick:
        raise Refused("too_many", f"at most {state.settings.max_changes_per_tick} at once", path="records")
    seen: dict[str, None] = {}
    for record in records:
        _plan_of_record(state, tenant, record)
        if record.run_id in seen:
            raise Refused("twice", f"run {record.run_id} is in the list twice", path="records")
        seen[record.run_id] = None


def _drop(turn: TickContext, position: int, drop: inputs.DropDeadLetters) -> None:
    """A decision about a failed run, as `resolve` is: it takes the run back and ends it in the same tick."""
    tenant = tenant_of(turn.state, drop.tenant)
    if not drop.reason:
        raise Refused("reason_missing", "say why these are dropped: the reason is recorded", path="reason")
    _check_records(turn.state, tenant, drop.records)
    for number, record in enumerate(drop.records):
        turn.emit(RunRestored(record.number, position, number))
        turn.emit(RunMoved(record.number, RunTrigger.RESOLVE, f"dropped by {drop.by}: {drop.reason}", position))
        turn.emit(RunMoved(record.number, RunTrigger.CANCEL, f"dropped: {drop.reason}", position))


def resolve_redriven(turn: TickContext, run: Run) -> None:
    """The moment that a bulk redrive chose for this run has come."""
    failed = [step.index for step in failed_steps(run.plan, run.phases)]
    _apply_decisions(turn, -1, run, dict.fromkeys(failed, "retry"))


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
    if not resolve.others_stay and any(index not in chosen for index in failed):
        raise Refused("undecided", "every failed node needs a decision", path="decisions")
    again = _decided_again(plan, record.phases, chosen)
    _check_sides(plan, again, chosen)
    _check_reads(plan, again, chosen)
    return chosen


def _check_sides(plan: Plan, again: Collection[int], decisions: dict[int, str]) -> None:
    """A branch that is decided again may lead elsewhere. What is accepted or skipped would count on the other side."""
    for index, decision in decisions.items():
        for branch in plan.steps[index].branches if decision != "retry" else ():
            if branch in again:
                name, other = plan.steps[index].id, plan.steps[branch].id
                message = f"{name} stands on a side of {other}, which is decided again: retry {name} as well"
                raise Refused("bad_decision", message, path=f"decisions.{name}")


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
    out, unless the branch itself is decided again. What a teardown that runs again belongs to is set up again.
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
    lost = GivenUp(plan, phases)
    for index, phase in enumerate(phases):
        if (phase == Phase.CANCELLED and index not in lost) or (phase == Phase.BLOCKED and index in after):
            again[index] = None
    later = {step: None for index in list(again) for step in downstream(plan, index)}
    while True:
        runs_again = {**again, **later}.__contains__
        raced = [index for index in lost if index not in again and lost.runs_again(index, runs_again)]
        raced += sorted(
            lost.unsettled_branches([index for index in lost if runs_again(index)]).difference(again, later)
        )
        if not raced:
            break
        again |= dict.fromkeys(raced)  # what is decided again starts from the start
        later |= {step: None for index in raced for step in downstream(plan, index)}
    out = left_out(plan, phases, lost)
    for index in later:
        left = any(branch not in again and branch not in later for branch in out.get(index, ()))
        if index not in decisions and not left:
            again[index] = None


DEAD_LETTER_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.Resolve: _resolve,
    inputs.Redrive: _redrive,
    inputs.DropDeadLetters: _drop,
}
