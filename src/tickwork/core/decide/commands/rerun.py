"""Running a run again, from the start or from one node on: which results may be kept.

A node keeps its result when it ended well, is the same in the chosen version, reads no input that
changed, and neither it nor anything above it is to run again. What a person approved was this version with
these inputs, so with others they are asked again. What a branch left out stays left out for as long as the branch is
kept, so a repeated run never has nodes of both sides.
"""

from collections.abc import Collection
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, unpack
from tickwork.core.definition import references
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.plan import Kind, Plan, Step, downstream
from tickwork.core.evolve.races import losers_of
from tickwork.core.state.inputs import RunRecord
from tickwork.core.state.lifecycle import Phase

_KEEPABLE = (Phase.SUCCEEDED, Phase.SKIPPED, Phase.NOT_TAKEN)


def kept_steps(old: Plan, record: RunRecord, new: Plan, from_node: str, inputs: Value) -> dict[int, int]:
    """Node of the new plan -> node of the old one whose outcome it keeps, parents first.

    With no `from_node`, what did not end well runs again, and what reads an input or a version that changed. Where that
    is nothing, as with a completed run, everything does: a run that executes nothing helps nobody.
    """
    again: dict[int, None] = {}
    if from_node:
        start = new.index[from_node]
        again = {start: None, **downstream(new, start)}
    lost = given_up(old, record.phases)
    only_teardown = (
        bool(from_node) and new.steps[start].tears_down >= 0
    )  # whoever repeats it from there wants just that
    while True:
        kept = _kept(old, record, new, from_node, inputs, again, lost)
        raced = [
            index
            for index, source in kept.items()
            if source in lost and not any(new.index.get(old.steps[first].id) in kept for first in lost[source])
        ]
        lacking = [] if only_teardown else [step.index for step in new.teardowns if step.index not in kept]
        undone = [setup for setup in torn_down(new, lacking) if setup in kept]
        if not raced and not undone:
            return kept if len(kept) < len(new.steps) else {}
        for index in (*raced, *undone):  # every race that it lost is run again, and so is what is torn down again
            again |= {index: None, **downstream(new, index)}


def _kept(
    old: Plan, record: RunRecord, new: Plan, from_node: str, inputs: Value, again: dict[int, None],
    lost: dict[int, list[int]],
) -> dict[int, int]:  # fmt: skip
    changed = _changed_inputs(old, record.inputs, new, inputs)
    other = bool(changed) or record.inputs != inputs or old.hash != new.hash
    kept: dict[int, int] = {}
    out = left_out(old, record.phases)
    for index in _parents_first(new):
        step = new.steps[index]
        source = old.index.get(step.id)
        if source is not None and any(new.index.get(old.steps[child].id) in kept for child in out.get(source, ())):
            if step.id == from_node:
                branch = old.steps[out[source][0]].id
                message = f"the branch {branch} did not lead to {from_node[:128]}, so nothing runs from there"
                raise Refused("not_taken", f"{message}; run it again from {branch}", path="from_node")
            kept[index] = source
            continue
        if source is None or index in again or (other and step.kind is Kind.APPROVAL):
            continue
        over = record.phases[source] in _KEEPABLE or source in lost
        forgiven = step.forgiven and record.phases[source] == Phase.FAILED
        same = old.steps[source].node == step.node and (over or forgiven)
        if same and not _reads_any(new, step, changed) and all(parent in kept for parent in step.parents):
            kept[index] = source
    return kept


def torn_down(plan: Plan, again: Collection[int]) -> list[int]:
    """The set-ups whose teardowns are among these nodes."""
    return [step.tears_down for step in plan.teardowns if step.index in again]


def given_up(plan: Plan, phases: bytes | bytearray) -> dict[int, list[int]]:
    """The nodes that were cancelled because another one was first, each with the races that it lost. As long as one of
    these stays decided, so does the node."""
    lost: dict[int, list[int]] = {}
    for step in plan.steps if plan.races else ():
        if step.kind is Kind.FIRST and phases[step.index] in (Phase.SUCCEEDED, Phase.BLOCKED):
            for index in losers_of(plan, step, phases, among=frozenset({Phase.CANCELLED})):
                lost.setdefault(index, []).append(step.index)
    return lost


def _changed_inputs(old: Plan, before: Value, new: Plan, after: Value) -> dict[str, None]:
    """The inputs whose values differ, defaults included; all of them where they cannot be compared here."""
    if before == after and old.definition.inputs == new.definition.inputs:
        return {}
    try:
        was, now = (_plain(plan, value) for plan, value in ((old, before), (new, after)))
    except Refused:
        return dict.fromkeys(new.definition.inputs)
    missing = object()
    return {name: None for name in new.definition.inputs if was.get(name, missing) != now.get(name, missing)}


def _plain(plan: Plan, value: Value) -> dict[str, Any]:
    return with_defaults(plan.definition, unpack(value, what="the inputs") or {})


def _reads_any(plan: Plan, step: Step, changed: dict[str, None]) -> bool:
    if not changed:
        return False
    conditions = (step.when, step.until, *(condition for condition, _ in step.cases))
    if any(condition is not None and "inputs" in condition.names for condition in conditions):
        return True
    for index in references.places_of(step.node, step.id):
        definition = plan.definition
        ref = references.resolve(
            index.text, path=index.path, inputs=definition.inputs, nodes=plan.index, words=index.words
        )
        if ref.root == "inputs" and (not ref.name or ref.name in changed):
            return True
    return False


def _parents_first(plan: Plan) -> list[int]:
    counts = [len(step.awaited) for step in plan.steps]
    order = list(plan.roots)
    for index in order:
        for child in plan.steps[index].children:
            counts[child] -= 1
            if not counts[child]:
                order.append(child)
    return order


def left_out(plan: Plan, phases: bytes | bytearray) -> dict[int, list[int]]:
    """The nodes that branches which succeeded did not lead to, each with those branches.

    The record of a run does not say which side a branch took, but nothing of another side was taken. Where the nodes of
    the chosen side were not taken either, the sides look the same, and none of these nodes counts as led to.
    """
    untaken: dict[int, list[int]] = {}
    for step in plan.steps:
        if step.kind is not Kind.BRANCH or phases[step.index] != Phase.SUCCEEDED:
            continue
        sides = [*(to for _, to in step.cases), step.default]
        targets = dict.fromkeys(target for side in sides for target in side)
        taken = [target for target in targets if phases[target] != Phase.NOT_TAKEN]
        chosen = [side for side in sides if all(target in side for target in taken)]
        for target in targets:
            if not all(target in side for side in chosen):
                untaken.setdefault(target, []).append(step.index)
    return untaken
