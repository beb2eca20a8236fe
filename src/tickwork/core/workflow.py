"""Which nodes of a graph may start, from the outcomes of their parents.

An untaken parent is neutral: the untaken side of a branch is taken out of the graph, so a join
behind it runs once for the side that was taken. Nothing downstream of a failure starts unless its
own trigger rule asks for failures.
"""

from collections.abc import Iterable

from tickwork.core.definition import Trigger
from tickwork.core.lifecycle import Phase

_BAD = (Phase.FAILED, Phase.BLOCKED, Phase.CANCELLED)


def verdict(trigger: Trigger, parents: Iterable[int]) -> Phase:
    """READY, NOT_TAKEN or BLOCKED, for a node whose parents have all ended."""
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
