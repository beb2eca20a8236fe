"""Running a run again from one node on: which results may be kept.

A node keeps its result when it ended well, is the same in the chosen version, and neither it nor
anything above it is to run again.
"""

from tickwork.core.inputs import RunRecord
from tickwork.core.lifecycle import Phase
from tickwork.core.plan import Plan, downstream
from tickwork.core.values import Value

_KEEPABLE = (Phase.SUCCEEDED, Phase.SKIPPED, Phase.NOT_TAKEN)


def kept_steps(old: Plan, record: RunRecord, new: Plan, from_node: str) -> dict[int, tuple[int, Value]]:
    """Node of the new plan -> the phase and value it keeps, parents first. "" runs only what did not end well."""
    again: dict[int, None] = {}
    if from_node:
        start = new.index[from_node]
        again = {start: None, **downstream(new, start)}
    results = dict(record.results)
    kept: dict[int, tuple[int, Value]] = {}
    for index in _parents_first(new):
        step = new.steps[index]
        place = old.index.get(step.id)
        if place is None or index in again:
            continue
        same = old.steps[place].node == step.node and record.phases[place] in _KEEPABLE
        if same and all(parent in kept for parent in step.parents):
            kept[index] = (record.phases[place], results.get(place))
    return kept


def _parents_first(plan: Plan) -> list[int]:
    counts = [len(step.parents) for step in plan.steps]
    order = list(plan.roots)
    for index in order:
        for child in plan.steps[index].children:
            counts[child] -= 1
            if not counts[child]:
                order.append(child)
    return order
