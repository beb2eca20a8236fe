"""May this step run at all? Evaluated before every step, from the same snapshot as the step.

All policies that a step names must allow it, the workflow's before the node's own. A policy that
does not exist, or cannot be answered, denies: there is no way past a gate by an error.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel import Condition
from tickwork.core.state.state import Policy

ACTIONS = ("pause", "fail", "skip_with_log")


class PolicyAnswer(msgspec.Struct, frozen=True):
    policy: str
    allowed: bool
    reason: str = ""
    action: str = ""
    pause_ms: int = 0


def ask(
    names: tuple[str, ...], policies: Mapping[str, Policy], see: Callable[[Condition], Mapping[str, Any]]
) -> list[PolicyAnswer]:
    """An answer per policy, up to the first that denies."""
    answers: list[PolicyAnswer] = []
    for name in names:
        answers.append(_ask_one(name, policies.get(name), see))
        if not answers[-1].allowed:
            break
    return answers


def _ask_one(name: str, policy: Policy | None, see: Callable[[Condition], Mapping[str, Any]]) -> PolicyAnswer:
    if policy is None:
        return PolicyAnswer(name, False, f"there is no policy {name}", "fail")
    try:
        condition = Condition.compile(policy.allow)
        allowed = condition.holds(see(condition))
    except Refused as refused:
        return PolicyAnswer(name, False, f"policy {name} cannot be answered: {refused}", "fail")
    if allowed:
        return PolicyAnswer(name, True)
    return PolicyAnswer(name, False, policy.reason, policy.action, policy.pause_ms)
