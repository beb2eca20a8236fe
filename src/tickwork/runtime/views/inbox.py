"""What waits for a person: approvals and forms, paused runs, and failed runs that nobody has resolved."""

from collections.abc import Iterator, Sequence
from typing import Any

from tickwork.core.definition.approval_text import message_of
from tickwork.core.definition.model import ApprovalNode
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.state import Run, State
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.functions import fields_view, history_of_run
from tickwork.runtime.views.runs import live_runs
from tickwork.runtime.views.text import instant, instant_or_none

KINDS = ("approval", "form", "paused", "failed")
RUNS_MAX = 20_000  # that one request looks at


def live_entries(
    state: State, query: RunFilter, kinds: Sequence[str], person: str
) -> tuple[list[wire.InboxEntry], bool]:
    """Those of unfinished runs, at most `limit` of them, and whether there may be more."""
    decisions: list[wire.InboxEntry] = []
    paused: list[wire.InboxEntry] = []
    steps: dict[str, list[int]] = {}  # by definition: its approvals
    for number, run in enumerate(live_runs(state, query)):
        if number >= RUNS_MAX or len(decisions) > query.limit:
            return (decisions + paused)[: query.limit], True
        if run.state == RunState.PAUSED and "paused" in kinds:
            paused.append(_paused(state, run))
        if run.waiting:
            plan = run.plan
            if plan.hash not in steps:
                steps[plan.hash] = _approvals_of(plan)
            waiting = (*_of_nodes(state, run, steps[plan.hash]), *_of_function(state, run))
            decisions += [entry for entry in waiting if entry.kind in kinds and _may_decide(entry, person)]
    entries = decisions + paused
    return entries[: query.limit], len(entries) > query.limit


def failed_entry(run: wire.Run) -> wire.InboxEntry:
    return wire.InboxEntry(
        kind="failed", run=run.id, workflow=run.workflow, by=run.by, submitted_at=run.submitted_at, message=run.error
    )


def in_order(entries: Sequence[wire.InboxEntry]) -> list[wire.InboxEntry]:
    """Those of several partitions, as one of them would list them."""
    newest_first = sorted(entries, key=lambda entry: entry.submitted_at, reverse=True)
    return sorted(newest_first, key=lambda entry: max(KINDS.index(entry.kind), 1))


def _may_decide(entry: wire.InboxEntry, person: str) -> bool:
    return not person or ((not entry.approvers or person in entry.approvers) and person != entry.not_by)


def _approvals_of(plan: Plan) -> list[int]:
    return [step.index for step in plan.steps if step.kind is Kind.APPROVAL]


def _paused(state: State, run: Run) -> wire.InboxEntry:
    return wire.InboxEntry(
        kind="paused", **_of_run(state, run), message=run.pause_reason, due_at=_due_at(state, run.resume_at)
    )


def _of_nodes(state: State, run: Run, indexes: list[int]) -> Iterator[wire.InboxEntry]:
    for index in indexes:
        if run.phases[index] != Phase.WAITING:
            continue
        task, node = state.tasks[run.number + index], run.plan.steps[index].node
        assert isinstance(node, ApprovalNode)
        yield wire.InboxEntry(
            kind="form" if node.fields else "approval",
            **_of_run(state, run),
            node=node.id,
            message=message_of(node.message, run.plan, run.inputs, run.results or {}),
            approvers=node.approvers,
            not_by=run.by if node.four_eyes else "",
            fields=fields_view(node.fields),
            due_at=_due_at(state, task.due),
        )


def _of_function(state: State, run: Run) -> Iterator[wire.InboxEntry]:
    function = history_of_run(state, run)
    if function is None:
        return
    awaits = function[1].awaits
    for pending in (awaits[position] for position in sorted(awaits)):
        request = pending.request
        if request.kind == "approval":
            yield wire.InboxEntry(
                kind="form" if request.fields else "approval",
                **_of_run(state, run),
                node=request.name,
                message=request.message,
                approvers=request.approvers,
                not_by=run.by if request.four_eyes else "",
                fields=fields_view(dict(request.fields)),
                due_at=_due_at(state, pending.due),
            )


def _of_run(state: State, run: Run) -> dict[str, Any]:
    submitted_at = instant(state.settings.clock.ms_of(run.submitted))
    return {"run": run.id, "workflow": run.plan.name, "by": run.by, "submitted_at": submitted_at}


def _due_at(state: State, tick: int) -> str | None:
    return instant_or_none(state.settings.clock.ms_of(tick) if tick else 0)
