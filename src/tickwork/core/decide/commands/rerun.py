"""Running a run again, from the start or from one node on: which results may be kept.

A node keeps its result when it ended well, is the same in the chosen version, reads no input that
changed, and neither it nor anything above it is to run again. What a person approved was this version with
these inputs, so with others they are decided again. What a branch left out stays left out for as long as the branch is
kept, so a repeated run never has nodes of both sides.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value, unpack
from tickwork.core.definition import references
from tickwork.core.definition.input_fields import with_defaults
from tickwork.core.definition.plan import Kind, Plan, Step, downstream
from tickwork.core.state.inputs import RunRecord
from tickwork.core.state.lifecycle import Phase

_KEEPABLE = (Phase.SUCCEEDED, Phase.SKIPPED, Phase.NOT_TAKEN)


def kept_steps(old: Plan, record: RunRecord, new: Plan, from_node: str, inputs: Value) -> dict[int, int]:
    """Node of the new plan -> node of the old one whose outcome it keeps, parents first.

    With no `from_node`, what did not end well runs again, and what reads an input or a version that changed. Where that
    is nothing, as with a completed run, everything does: a run that executes nothing is useless.
    """
    again: dict[int, None] = {}
    if from_node:
        start = new.index[from_node]
        again = {start: None, **downstream(new, start)}
    lost = GivenUp(old, record.phases)
    only_teardown = bool(from_node) and new.steps[start].tears_down >= 0  # a rerun from there is meant to repeat it
    while True:
        kept = _kept(old, record, new, from_node, inputs, again, lost)
        runs_again = frozenset(range(len(old.steps))).difference(kept.values()).__contains__
        raced = [index for index, source in kept.items() if source in lost and lost.runs_again(source, runs_again)]
        open_ = lost.unsettled_branches(set(lost).difference(kept.values()))
        raced += [index for index, source in kept.items() if source in open_]
        lacking = [] if only_teardown else [step.index for step in new.teardowns if step.index not in kept]
        undone = [setup for setup in torn_down(new, lacking) if setup in kept]
        if not raced and not undone:
            return kept if len(kept) < len(new.steps) else {}
        for index in (*raced, *undone):  # what lost a race that is run again, and what is torn down again
            again |= {index: None, **downstream(new, index)}


def _kept(
    old: Plan, record: RunRecord, new: Plan, from_node: str, inputs: Value, again: dict[int, None],
    lost: "GivenUp",
) -> dict[int, int]:  # fmt: skip
    changed = _changed_inputs(old, record.inputs, new, inputs)
    other = bool(changed) or record.inputs != inputs or old.hash != new.hash
    kept: dict[int, int] = {}
    out = left_out(old, record.phases, lost)
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


class GivenUp:
    """The nodes of a run that were cancelled because another one was first."""

    def __init__(self, plan: Plan, phases: bytes | bytearray) -> None:
        self._plan, self._phases = plan, phases
        self._races: dict[int, list[int]] = {}  # that each loser lost
        self._leads_to: dict[int, list[int]] = {}  # losers, and what leads only to these
        for step in plan.steps if plan.races else ():
            if step.kind is Kind.FIRST and phases[step.index] in (Phase.SUCCEEDED, Phase.BLOCKED):
                for racer in step.racers:
                    if phases[racer] == Phase.CANCELLED:
                        self._races.setdefault(racer, []).append(step.index)
        for index in reversed(_parents_first(plan)) if self._races else ():
            cut = [child for child in plan.steps[index].children if phases[child] == Phase.CANCELLED]
            if (
                phases[index] == Phase.CANCELLED
                and index not in self._races
                and cut
                and all(node in self for node in cut)
            ):
                self._leads_to[index] = cut

    def __contains__(self, index: int) -> bool:
        return index in self._races or index in self._leads_to

    def __iter__(self) -> Iterator[int]:
        return iter((*self._races, *self._leads_to))

    def runs_again(self, index: int, again: Callable[[int], bool]) -> bool:
        """A loser stays cancelled as long as one of the races that it lost stays decided. What led to losers runs for
        any of them."""
        races = self._races.get(index)
        return any(again(child) for child in self._leads_to[index]) if races is None else all(map(again, races))

    def unsettled_branches(self, again: Collection[int]) -> set[int]:
        """The branches around these losers, which run again, where nothing tells that they led to them. A loser may
        have been cancelled before its branch was decided, so it would run beside the side that was taken."""
        return {
            branch
            for index in again
            for branch in self._plan.steps[index].branches
            if self._phases[branch] == Phase.SUCCEEDED and not self._led_to(branch, index)
        }

    def _led_to(self, branch: int, index: int) -> bool:
        taken, possible = sides_taken(self._plan.steps[branch], self._phases, self)
        return bool(taken) and bool(possible) and all(index in side for side in possible)


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


def left_out(plan: Plan, phases: bytes | bytearray, lost: GivenUp) -> dict[int, list[int]]:
    """The nodes that branches which succeeded did not lead to, each with those branches.

    The record of a run does not say which side a branch took, but nothing of another side was taken. Where the nodes of
    the chosen side were not taken either, the sides look the same, and none of these nodes counts as led to. What lost
    a race may have done so before the branch, so it says nothing of the sides.
    """
    untaken: dict[int, list[int]] = {}
    for step in plan.steps:
        if step.kind is not Kind.BRANCH or phases[step.index] != Phase.SUCCEEDED:
            continue
        _, chosen = sides_taken(step, phases, lost)
        for target in targets_of(step):
            if phases[target] == Phase.NOT_TAKEN and not (chosen and all(target in side for side in chosen)):
                untaken.setdefault(target, []).append(step.index)
    return untaken


def sides_taken(branch: Step, phases: bytes | bytearray, lost: GivenUp) -> tuple[list[int], list[tuple[int, ...]]]:
    """The nodes that show which side a branch took, and the sides that have all of them."""
    taken = [target for target in targets_of(branch) if phases[target] != Phase.NOT_TAKEN and target not in lost]
    sides = [*(to for _, to in branch.cases), branch.default]
    return taken, [side for side in sides if all(target in side for target in taken)]


def targets_of(branch: Step) -> list[int]:
    return list(dict.fromkeys([*(target for _, to in branch.cases for target in to), *branch.default]))
