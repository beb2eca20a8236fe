"""What a durable function, or a task that records steps, has done so far and what it awaits."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tickwork.core.definition.model import InputField
from tickwork.core.definition.plan import Plan
from tickwork.core.state.history import History, HistoryEntry, PendingAwait
from tickwork.core.state.state import Run, State
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.text import instant, instant_or_none

STEPS_SHOWN = 200  # of one function within a run's detail; the history route has all


def history_of_run(state: State, run: Run) -> tuple[str, History] | None:
    """The node and the history of a run's durable function."""
    step = run.plan.steps[0]
    task = state.tasks.get(run.number)
    history = run.history if task is None else task.history
    return (step.id, history) if step.durable and history is not None else None


def ended_history(plan: Plan | None, history: History | None) -> tuple[str, History] | None:
    return (plan.steps[0].id, history) if plan is not None and history is not None else None


def step_view(node: str, entry: HistoryEntry, value: Any, size: int) -> wire.RecordedStep:
    return wire.RecordedStep(
        node=node,
        position=entry.position,
        kind=entry.kind,
        name=entry.name,
        state=_state(entry),
        at=instant_or_none(entry.at_ms),
        took_ms=entry.took_ms,
        tries=entry.tries,
        attempt=entry.attempt,
        error=entry.error,
        message=entry.message,
        value=value,
        value_size=size,
        cost=entry.cost,
    )


def _state(entry: HistoryEntry) -> str:
    if entry.kind in ("withdrawn", "retry"):
        return "withdrawn" if entry.kind == "withdrawn" else "retrying"
    if entry.error == "timeout" and entry.kind in ("event", "approval"):
        return "timed_out"
    return "failed" if entry.error else "succeeded"


def await_view(state: State, node: str, pending: PendingAwait) -> wire.FunctionAwait:
    request, clock = pending.request, state.settings.clock
    child = state.runs.get(pending.child) if pending.child else None
    return wire.FunctionAwait(
        node=node,
        position=request.position,
        kind=request.kind,
        name=request.name,
        key=request.key,
        since=instant(clock.ms_of(pending.since)),
        due_at=instant_or_none(clock.ms_of(pending.due) if pending.due else 0),
        run=child.id if child is not None else "",
        message=request.message,
        approvers=request.approvers,
        fields=fields_view(dict(request.fields)),
        line=request.line,
    )


def fields_view(fields: Mapping[str, InputField]) -> dict[str, Any]:
    """In the words of a document."""
    return {name: msgspec.to_builtins(field) for name, field in fields.items()}


def awaits_of(state: State, node: str, history: History) -> tuple[wire.FunctionAwait, ...]:
    return tuple(await_view(state, node, history.awaits[position]) for position in sorted(history.awaits))
