"""Commands that set up tenants, queues, limits, policies and definitions, and the observations of the clock."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.machine_settings import check_settings
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import instant_text
from tickwork.core.decide.runs.policy import ACTIONS
from tickwork.core.decide.tick_context import TickContext, tenant_of
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.model import WorkflowNode, WorkNode
from tickwork.core.definition.plan import Plan, plan_of
from tickwork.core.evolve.indexes import DEFAULT_QUEUE
from tickwork.core.state import inputs
from tickwork.core.state.effects import Alert
from tickwork.core.state.events import (
    ClockGapRecorded,
    DefinitionPut,
    LabelLimitPut,
    PolicyPut,
    PolicyRemoved,
    QueuePut,
    QueueRemoved,
    SettingsPut,
    TenantPut,
    TimersHeld,
    WorkflowRemoved,
)
from tickwork.core.state.state import State

WEIGHT_MAX = 100
LIMIT_MAX = 1_000_000_000
SLIDING_STARTS_MAX = 10_000
DELAY_MS_MAX = 100 * 366 * 86_400_000


def _put_definition(turn: TickContext, position: int, definition: inputs.PutDefinition) -> None:
    state = turn.state
    tenant_of(state, definition.tenant)
    plan = plan_of(definition.document)
    for step in plan.steps:
        if not state.has_queue(step.requirement[0]) and _runs_on_workers(step.node, step.body):
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


def _remove_policy(turn: TickContext, position: int, request: inputs.RemovePolicy) -> None:
    state, name = turn.state, request.policy
    if name not in state.policies:
        raise Refused("unknown_policy", f"there is no policy {shortened(name, 128)!r}", path="policy")
    users = _users(state, lambda plan: any(name in step.policies for step in plan.steps))
    if users:
        message = f"{users} names it, and a policy that does not exist denies: publish it without the policy first"
        raise Refused("in_use", message, path="policy")
    turn.emit(PolicyRemoved(position))


def _remove_queue(turn: TickContext, position: int, request: inputs.RemoveQueue) -> None:
    state, name = turn.state, request.queue
    if not state.has_queue(name):
        raise Refused("unknown_queue", f"there is no queue {shortened(name, 128)!r}", path="queue")
    if name == DEFAULT_QUEUE:
        raise Refused("in_use", "nodes that name no queue use this one", path="queue")
    users = _users(state, lambda plan: any((step.body or step).requirement[0] == name for step in plan.steps))
    if users:
        raise Refused("in_use", f"{users} names it: publish it with another queue first", path="queue")
    running = state.queues[name].gauge.running
    ready = sum(lane.live for lane in state.lanes.values() if lane.key[2] == name)
    if running or ready:
        raise Refused("in_use", f"{ready} tasks wait in it and {running} run: delete it when they ended", path="queue")
    turn.emit(QueueRemoved(position))


def _remove_workflow(turn: TickContext, position: int, request: inputs.RemoveWorkflow) -> None:
    state, name = turn.state, request.workflow
    tenant = tenant_of(state, request.tenant)
    if name not in tenant.plans:
        raise Refused("unknown_workflow", f"there is no workflow {shortened(name, 128)!r}", path="workflow")
    users = sorted(plan.name for plan in tenant.plans.values() if plan.name != name and name in _workflows_named(plan))
    if users:
        message = f"the workflow {users[0]} starts runs of it: publish that one without it first"
        raise Refused("in_use", message, path="workflow")
    turn.emit(WorkflowRemoved(position))


def _users(state: State, names_it: Callable[[Plan], bool]) -> str:
    """The first workflow by name whose latest version is such a one, for people."""
    names = sorted(plan.name for tenant in state.tenants.values() for plan in tenant.plans.values() if names_it(plan))
    return f"the workflow {names[0]}" if names else ""


def _workflows_named(plan: Plan) -> set[str]:
    """Workflows of which runs of this one start others."""
    nodes = [(step.body or step).node for step in plan.steps]
    named = {node.workflow for node in nodes if isinstance(node, WorkflowNode)}
    definition = plan.definition
    return named | {
        follow_up.workflow for follow_up in (definition.on_failure, definition.on_success) if follow_up is not None
    }


def _put_settings(turn: TickContext, position: int, request: inputs.PutSettings) -> None:
    check_settings(request.values)
    turn.emit(SettingsPut(position))


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


SETUP_COMMANDS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.PutDefinition: _put_definition,
    inputs.PutTenant: _put_tenant,
    inputs.PutQueue: _put_queue,
    inputs.PutLabelLimit: _put_label_limit,
    inputs.PutPolicy: _put_policy,
    inputs.RemovePolicy: _remove_policy,
    inputs.RemoveQueue: _remove_queue,
    inputs.RemoveWorkflow: _remove_workflow,
    inputs.PutSettings: _put_settings,
    inputs.ClockGap: _clock_gap,
    inputs.HoldTimers: _hold_timers,
}
