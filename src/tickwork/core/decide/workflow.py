"""Which nodes of a graph may start, from the outcomes of their parents.

The rule for parents that were not taken:

1. A side of a branch consists of the nodes that the branch names. They need the branch, and it decides first,
   whatever their trigger rule says and whatever else they need: where the branch was not taken or was skipped, or took
   another side, they are not taken; where it failed, was blocked or cancelled, nobody knows the side, and they are
   blocked. A branch that took this side counts as a parent that succeeded. Of several branches that name a node,
   one that leaves it out is enough. What is left out ends with its branch and does not wait for its other parents.
2. Any other parent that was not taken is neutral: it neither starts a node nor keeps it from starting. So a join behind
   a branch runs once, for the side that was taken. A node all of whose parents were not taken is not taken either,
   unless its trigger rule is `all_done` or `none_failed`.
3. Nothing downstream of a failure starts unless its own trigger rule asks for failures.
"""

from collections.abc import Iterable

from tickwork.core.definition.model import Trigger
from tickwork.core.state.lifecycle import Phase

_BAD = (Phase.FAILED, Phase.BLOCKED, Phase.CANCELLED)


def verdict(trigger: Trigger, parents: Iterable[int], branches: Iterable[int] = ()) -> Phase:
    """READY, NOT_TAKEN or BLOCKED, for a node whose parents have all ended.

    `branches` are those of the parents that are branches. One that succeeded took the side of this node: a node of the
    other sides has ended together with its branch.
    """
    chosen = Phase.READY
    for phase in branches:
        if phase in (Phase.NOT_TAKEN, Phase.SKIPPED):
            return Phase.NOT_TAKEN
        if phase in _BAD:
            chosen = Phase.BLOCKED
    if chosen is Phase.BLOCKED:
        return chosen
    taken = failed = False
    count = 0
    for phase in parents:
        count += 1
        if phase in _BAD:
            failed = True
        elif phase != Phase.NOT_TAKEN:
            taken = True
    if not count or trigger is Trigger.ALL_DONE:
        return Phase.READY
    if trigger is Trigger.ANY_FAILED:
        return Phase.READY if failed else Phase.NOT_TAKEN
    if failed:
        return Phase.BLOCKED
    if trigger is Trigger.NONE_FAILED:
        return Phase.READY
    return Phase.READY if taken else Phase.NOT_TAKEN
