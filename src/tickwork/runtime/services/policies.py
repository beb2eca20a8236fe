"""Policies: gates before steps, and what one would have changed in recorded runs."""

from collections.abc import Sequence

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.calendar.durations import duration_ms, duration_text
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.plan import Plan
from tickwork.core.explain.policy_test import StepVerdict
from tickwork.core.state import inputs as inp
from tickwork.core.state.state import Policy, State
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.queries import QueryService
from tickwork.runtime.views.text import instant

VERDICTS_SHOWN = 500
RUNS_MAX = 1_000


class PolicyService:
    def __init__(self, context: EngineContext, queries: QueryService) -> None:
        self._context, self._queries = context, queries

    async def put(self, name: str, request: wire.PolicyRequest, *, by: str) -> None:
        pause_ms = duration_ms(request.pause, path="pause") if request.pause else 0
        if pause_ms and request.action != "pause":
            raise Refused("bad_action", "only the action pause has a time; leave pause out", path="pause")
        await self._context.command(inp.PutPolicy(by, name, request.allow, request.reason, request.action, pause_ms))

    async def remove(self, name: str, *, by: str) -> None:
        if name not in self._context.state.policies and not self._context.is_home(TENANT):
            return  # deleted before
        self._check_unfinished(name)
        await self._context.command(inp.RemovePolicy(by, name))

    def _check_unfinished(self, name: str) -> None:
        """Refuse while an unfinished run of an earlier version would be denied for lack of the policy."""
        state = self._context.state
        versions = {plan.hash for plan in state.plans.values() if name in policies_of(plan)}
        if not versions:
            return
        held = (run for block in state.runs.blocks.values() for run in block.values() if run.plan.hash in versions)
        run = next(held, None)
        if run is not None:
            message = f"the unfinished run {run.id} of {run.plan.name} names it, and would be denied without it"
            raise Refused("in_use", f"{message}: wait for it, or cancel it", path="policy")

    async def policies(self) -> wire.Policies:
        state = self._context.state
        listing = wire.Policies(policies=tuple(_view(state, state.policies[name]) for name in sorted(state.policies)))
        await self._context.until_durable()
        return listing

    async def test(self, name: str, request: wire.PolicyTestRequest, *, tenant: str = TENANT) -> wire.PolicyTest:
        """Hold a policy against the steps of recorded runs, newest first. Nothing is changed."""
        state = self._context.state
        policy = state.policies.get(name)
        if policy is None and not request.allow:
            raise Refused("unknown_policy", f"there is no policy {shortened(name, 128)!r}", path="policy")
        if not 1 <= request.limit <= RUNS_MAX:
            raise Refused("bad_limit", f"1 to {RUNS_MAX:,} runs", path="limit")
        allow = request.allow or (policy.allow if policy is not None else "")
        condition = Condition.compile(allow, path="allow")
        reason = policy.reason if policy is not None else "the tested expression does not hold"
        ids = await self._recent(name, request, tenant)
        verdicts: list[wire.PolicyVerdict] = []
        looked_at = steps = denied = changed = unread = 0
        for run_id in ids:
            trial = await self._queries.hold_policy(run_id, name, condition, reason, tenant=tenant)
            if trial is None:
                continue
            looked_at += 1
            unread += trial.unread
            for verdict in trial.verdicts:
                steps += 1
                denied += not verdict.allowed
                if verdict.allowed is not verdict.went_on:
                    changed += 1
                    if len(verdicts) < VERDICTS_SHOWN:
                        verdicts.append(self._verdict(run_id, verdict))
        return wire.PolicyTest(
            runs=looked_at, steps=steps, denied=denied, changed=changed, unread=unread, verdicts=tuple(verdicts)
        )

    async def _recent(self, name: str, request: wire.PolicyTestRequest, tenant: str) -> Sequence[str]:
        owner = self._context.tenant(tenant)
        if request.workflow:
            self._context.plan(tenant, request.workflow)
            workflows = [request.workflow]
        else:
            workflows = sorted(plan.name for plan in owner.plans.values() if name in policies_of(plan))
            if not workflows:
                message = "no workflow names this policy; say which one to hold it against"
                raise Refused("missing_workflow", message, path="workflow")
        newest: list[wire.Run] = []
        for workflow in workflows:
            runs, _ = await self._queries.runs(self._queries.filter(workflow=workflow, limit=request.limit))
            newest += runs
        newest.sort(key=lambda run: (run.submitted_at, int(run.number)), reverse=True)
        return [run.id for run in newest[: request.limit]]

    def _verdict(self, run_id: str, verdict: StepVerdict) -> wire.PolicyVerdict:
        return wire.PolicyVerdict(
            run=run_id,
            workflow=verdict.workflow,
            node=verdict.node,
            at=instant(self._context.state.settings.clock.ms_of(verdict.tick)),
            allowed=verdict.allowed,
            reason=verdict.reason,
            recorded=verdict.recorded,
        )


def policies_of(plan: Plan) -> set[str]:
    return {name for step in plan.steps for name in step.policies}


def _view(state: State, policy: Policy) -> wire.Policy:
    users = {plan.name for owner in state.tenants.values() for plan in owner.plans.values()
             if policy.name in policies_of(plan)}  # fmt: skip
    return wire.Policy(
        name=policy.name,
        allow=policy.allow,
        reason=policy.reason,
        action=policy.action,
        pause=duration_text(policy.pause_ms) if policy.pause_ms else "",
        workflows=tuple(sorted(users)),
    )
