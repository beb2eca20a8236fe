"""What a policy would have said before the recorded steps of a run.

The trial watches the events of an excerpt (`excerpt.Excerpt.before`): each is seen while the state is still as the rule
saw it that decided. So the expression reads the same snapshot as the step did.
"""

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Value
from tickwork.core.definition.cel import Condition
from tickwork.core.state import events as ev
from tickwork.core.state.evaluation_context import ExtractMissing, snapshot
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import Run, State


class StepVerdict(msgspec.Struct, frozen=True):
    workflow: str
    node: str
    tick: int
    allowed: bool
    went_on: bool  # what the step did then
    reason: str = ""
    recorded: str = ""  # allowed or denied, where this policy was asked


class PolicyTrial:
    """Hold one expression against the steps of one run: those that name the policy, or all where none of them does."""

    def __init__(self, name: str, condition: Condition, reason: str, inputs: Value) -> None:
        self._name, self._condition, self._reason, self._inputs = name, condition, reason, inputs
        self._asked: set[tuple[int, int]] = set()  # steps and ticks that were answered
        self.verdicts: list[StepVerdict] = []
        self.unread = 0  # steps before which it reads a value that is not inline

    def before(self, state: State, run: Run, event: ev.Event) -> None:
        """See an event of the run before it is applied."""
        match event:
            case ev.PolicyDecided(step=step) if event.policy == self._name:
                self._asked.add((step, state.tick))
                self._hold(state, run, step, recorded="allowed" if event.allowed else "denied")
            case ev.PolicyDecided(step=step) if not event.allowed:
                self._asked.add((step, state.tick))  # another policy stopped it first
            case ev.TaskReady(step=step) | ev.TaskChecking(step=step) | ev.TaskWaiting(step=step):
                self._hold_unasked(state, run, step)
            case ev.StepEnded(step=step) if event.phase == Phase.SUCCEEDED:
                self._hold_unasked(state, run, step)

    def _hold_unasked(self, state: State, run: Run, step: int) -> None:
        """A step that names the policy was asked; only where no step does, each is a trial."""
        named = any(self._name in other.policies for other in run.plan.steps)
        if not named and (step, state.tick) not in self._asked:
            self._asked.add((step, state.tick))
            self._hold(state, run, step)

    def _hold(self, state: State, run: Run, step: int, recorded: str = "") -> None:
        inputs, run.inputs = run.inputs, self._inputs
        reason = ""
        try:
            allowed = self._condition.holds(snapshot(state, run, self._condition, policy=True))
            reason = "" if allowed else self._reason
        except ExtractMissing:
            self.unread += 1
            return
        except Refused as refused:
            allowed, reason = False, f"it cannot be answered: {refused}"
        finally:
            run.inputs = inputs
        node = run.plan.steps[step].id
        went_on = recorded != "denied"
        self.verdicts.append(StepVerdict(run.plan.name, node, state.tick, allowed, went_on, reason, recorded))
