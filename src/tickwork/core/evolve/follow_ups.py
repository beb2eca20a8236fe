"""What a follow-up learns of the run before it: the report of how it ended.

Errors of nodes are kept with a run only where its workflow has a follow-up for failures. A report is small, whatever
failed: a few nodes, each with the beginning of its message.
"""

from collections.abc import Sequence
from typing import Any

from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Value, pack
from tickwork.core.definition.model import FollowUp
from tickwork.core.definition.plan import Plan, Step
from tickwork.core.state.lifecycle import Phase, RunTrigger
from tickwork.core.state.state import Run

NODES_MAX = 10  # in one report
MESSAGE_CHARACTERS_MAX = 300
SOURCE = "follow_up"  # of runs that are one; followed by ` of RUN`
CAUSES = {RunTrigger.FAIL: "failed", RunTrigger.TIME_OUT: "timed_out", RunTrigger.COMPLETE: "completed"}
OF_CHILDREN = frozenset(("ChildFailed", "children_failed", "iteration_failed"))  # what the children say says more


def follow_up_of(run: Run, trigger: int) -> FollowUp | None:
    """What follows when the run ends by this trigger. Nothing follows a follow-up, so none can follow without end."""
    definition = run.plan.definition
    if trigger == RunTrigger.COMPLETE:
        follow_up = definition.on_success
    else:
        follow_up = definition.on_failure if trigger in (RunTrigger.FAIL, RunTrigger.TIME_OUT) else None
    return None if follow_up is None or is_follow_up(run) else follow_up


def is_follow_up(run: Run) -> bool:
    return run.source.startswith(f"{SOURCE} of ")


def note_error(run: Run, index: int, error: str, message: str, *, first: bool = False) -> None:
    """Keep why a node failed, or a child of it; with `first`, unless something is known already."""
    if run.plan.definition.on_failure is None:
        return
    known = run.errors or {}
    if index not in known or not first:
        run.errors = {**known, index: (shortened(error, 128), shortened(message, MESSAGE_CHARACTERS_MAX))}


def drop_error(run: Run, index: int) -> None:
    if run.errors is not None:
        run.errors = {node: error for node, error in run.errors.items() if node != index} or None


def report_inputs(run: Run, follow_up: FollowUp, cause: str, reason: str) -> Value:
    """The inputs of a follow-up."""
    if not follow_up.input:
        return None
    report: dict[str, Any] = {"run": run.id, "workflow": run.plan.name}
    if cause != CAUSES[RunTrigger.COMPLETE]:
        report |= {"cause": cause, "reason": shortened(reason, MESSAGE_CHARACTERS_MAX), "nodes": _failed_nodes(run)}
    return pack({follow_up.input: report})


def failed_steps(plan: Plan, phases: Sequence[int]) -> list[Step]:
    """The nodes by which a run fails: the failure of a teardown may be a warning."""
    return [step for step in plan.steps if phases[step.index] == Phase.FAILED and not step.forgiven]


def _failed_nodes(run: Run) -> list[dict[str, str]]:
    failed = failed_steps(run.plan, run.phases)
    errors = run.errors or {}
    reports = []
    for step in failed[:NODES_MAX]:
        error, message = errors.get(step.index, ("", ""))
        reports.append({"node": step.id, "error": error, "message": message})
    return reports
