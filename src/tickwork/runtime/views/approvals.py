"""What waits for a person: approvals and forms of unfinished runs, the newest run first."""

from collections.abc import Iterator

from tickwork.core.definition.approval_text import message_of
from tickwork.core.definition.model import ApprovalNode
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import Run, State
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.functions import fields_view, history_of_run
from tickwork.runtime.views.runs import live_runs
from tickwork.runtime.views.text import instant, instant_or_none

RUNS_MAX = 20_000  # that one request looks at


def open_approvals(state: State, query: RunFilter) -> tuple[list[wire.OpenApproval], bool]:
    """At most `limit` of them, and whether there may be more."""
    waiting: list[wire.OpenApproval] = []
    steps: dict[str, list[int]] = {}  # by definition: its approvals
    for number, run in enumerate(live_runs(state, query)):
        if number >= RUNS_MAX or len(waiting) > query.limit:
            return waiting[: query.limit], True
        if not run.waiting:
            continue
        plan = run.plan
        if plan.hash not in steps:
            steps[plan.hash] = _approvals_of(plan)
        waiting += _of_nodes(state, run, steps[plan.hash])
        waiting += _of_function(state, run)
    return waiting[: query.limit], len(waiting) > query.limit


def _approvals_of(plan: Plan) -> list[int]:
    return [step.index for step in plan.steps if step.kind is Kind.APPROVAL]


def _of_nodes(state: State, run: Run, indexes: list[int]) -> Iterator[wire.OpenApproval]:
    for index in indexes:
        if run.phases[index] != Phase.WAITING:
            continue
        task, node = state.tasks[run.number + index], run.plan.steps[index].node
        assert isinstance(node, ApprovalNode)
        yield wire.OpenApproval(
            **_of_run(state, run),
            node=node.id,
            message=message_of(node.message, run.plan, run.inputs, run.results or {}),
            approvers=node.approvers,
            not_by=run.by if node.four_eyes else "",
            fields=fields_view(node.fields),
            due_at=_due_at(state, task.due),
        )


def _of_function(state: State, run: Run) -> Iterator[wire.OpenApproval]:
    function = history_of_run(state, run)
    if function is None:
        return
    awaits = function[1].awaits
    for pending in (awaits[position] for position in sorted(awaits)):
        request = pending.request
        if request.kind == "approval":
            yield wire.OpenApproval(
                **_of_run(state, run),
                node=request.name,
                message=request.message,
                approvers=request.approvers,
                not_by=run.by if request.four_eyes else "",
                fields=fields_view(dict(request.fields)),
                due_at=_due_at(state, pending.due),
            )


def _of_run(state: State, run: Run) -> dict[str, str]:
    submitted_at = instant(state.settings.clock.ms_of(run.submitted))
    return {"run": run.id, "workflow": run.plan.name, "by": run.by, "submitted_at": submitted_at}


def _due_at(state: State, tick: int) -> str | None:
    return instant_or_none(state.settings.clock.ms_of(tick) if tick else 0)
