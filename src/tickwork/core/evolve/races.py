"""Nodes that start before all of their parents have ended: `any_succeeded`, `one_done` and `first`.

Such a node counts as having no open parents from the moment at which one of its racers has ended in the right way. A
`first` then cancels what has lost: the other racers, and everything above them that nothing else needs.
"""

from collections.abc import Sequence

from tickwork.core.definition.model import Trigger
from tickwork.core.definition.plan import Plan, Step
from tickwork.core.state.lifecycle import ENDED, Phase

GOOD = frozenset({Phase.SUCCEEDED, Phase.SKIPPED})
STARTS_ON = {Trigger.ANY_SUCCEEDED: GOOD, Trigger.ONE_DONE: ENDED - {Phase.NOT_TAKEN}}


def open_parents(step: Step, phases: Sequence[int]) -> int:
    """How many nodes it still waits for."""
    return 0 if may_start_early(step, phases) else sum(phases[parent] not in ENDED for parent in step.awaited)


def may_start_early(step: Step, phases: Sequence[int]) -> bool:
    """One racer is enough, once everything else that the node awaits has ended."""
    if step.race is None or not any(phases[racer] in STARTS_ON[step.race] for racer in step.racers):
        return False
    return all(phases[other] in ENDED for other in step.awaited if other not in step.racers)


def winner_of(step: Step, phases: Sequence[int]) -> int | None:
    """Of racers that ended together, one that succeeded, and the one that is named first. None: none was taken."""
    ended = [racer for racer in step.racers if phases[racer] in ENDED and phases[racer] != Phase.NOT_TAKEN]
    return next((racer for racer in ended if phases[racer] in GOOD), ended[0] if ended else None)


def losers_of(plan: Plan, first: Step, phases: Sequence[int]) -> list[int]:
    """Racers that have not ended, and what has not ended above them and is of no use to anything else, in the order of
    the document."""
    lost = dict.fromkeys(racer for racer in first.racers if phases[racer] not in ENDED)
    todo = list(lost)
    for index in todo:  # grows while it is walked
        for parent in plan.steps[index].awaited:
            if parent in lost or parent == plan.output or phases[parent] in ENDED or plan.steps[parent].tears_down >= 0:
                continue
            if not any(phases[child] not in ENDED and child not in lost for child in plan.steps[parent].children):
                lost[parent] = None
                todo.append(parent)
    return sorted(lost)
