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
4. `any_succeeded`, `one_done` and `all_failed` do not count branches among the parents, unless there are no others. The
   first two start a node as soon as one parent has ended that way; the rest of its parents go on.
5. A teardown starts where its set-up succeeded, whatever became of its other parents; otherwise it is not taken. It is
   in the same sides of the same branches as its set-up. Where its own failure is a warning, it counts as succeeded for
   the nodes behind it.
"""

from collections.abc import Collection

from tickwork.core.definition.model import Trigger
from tickwork.core.state.lifecycle import Phase

# Every node that has parents passes here, and to look an enumeration up costs as much as the rule.
READY, NOT_TAKEN, BLOCKED = Phase.READY, Phase.NOT_TAKEN, Phase.BLOCKED
ALL_DONE, ANY_FAILED, NONE_FAILED = Trigger.ALL_DONE, Trigger.ANY_FAILED, Trigger.NONE_FAILED
_LATER = frozenset({Trigger.ANY_SUCCEEDED, Trigger.ONE_DONE, Trigger.ALL_FAILED})
_SUCCEEDED, _UNTAKEN = int(Phase.SUCCEEDED), int(Phase.NOT_TAKEN)
_GOOD = (_SUCCEEDED, int(Phase.SKIPPED))
_BAD = (int(Phase.FAILED), int(Phase.BLOCKED), int(Phase.CANCELLED))


def verdict(trigger: Trigger, parents: Collection[int], branches: Collection[int] = ()) -> Phase:
    """READY, NOT_TAKEN or BLOCKED, for a node whose parents have all ended, or enough of them.

    `branches` are those of the parents that are branches. One that succeeded took the side of this node: a node of the
    other sides has ended together with its branch.
    """
    blocked = False
    for phase in branches:
        if phase in (Phase.NOT_TAKEN, Phase.SKIPPED):
            return NOT_TAKEN
        if phase in _BAD:
            blocked = True
    if blocked:
        return BLOCKED
    if not parents or trigger is ALL_DONE:
        return READY
    if trigger in _LATER:
        return _of_any(trigger, parents)
    taken = failed = False
    for phase in parents:
        if phase == _SUCCEEDED:
            taken = True
        elif phase in _BAD:
            failed = True
        elif phase != _UNTAKEN:
            taken = True
    if trigger is ANY_FAILED:
        return READY if failed else NOT_TAKEN
    if failed:
        return BLOCKED
    return READY if taken or trigger is NONE_FAILED else NOT_TAKEN


def teardown_verdict(setup: int) -> Phase:
    """READY or NOT_TAKEN, for a teardown all of whose parents have ended. Its set-up is part of the same sides of the
    same branches."""
    return READY if setup == _SUCCEEDED else NOT_TAKEN


def _of_any(trigger: Trigger, parents: Collection[int]) -> Phase:
    good, failed = any(phase in _GOOD for phase in parents), any(phase in _BAD for phase in parents)
    if trigger is Trigger.ALL_FAILED:
        return READY if failed and not good else NOT_TAKEN
    if good or (failed and trigger is Trigger.ONE_DONE):
        return READY
    return BLOCKED if failed else NOT_TAKEN
