"""A visit to one run: start it, take its next steps, and say where it stands.

Everything a run does by itself happens here, one visit at a time, in the order of run ids. A
visit never waits and never looks at another run, except to begin or end the children of its own.
"""

from collections.abc import Callable

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.decide.runs.children import tend_children
from tickwork.core.decide.runs.chosen_values import chosen_count, chosen_duration_ms, chosen_queue
from tickwork.core.decide.runs.policy import ask
from tickwork.core.decide.runs.run_end import end_run, follow_up, left_behind, pause_run, stop_run
from tickwork.core.decide.runs.start_limits import may_start
from tickwork.core.decide.runs.trigger_rules import teardown_verdict, verdict
from tickwork.core.decide.tick_context import TickContext, request_extracts
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.model import (
    ApprovalNode,
    EventNode,
    MapNode,
    RepeatNode,
    WaitNode,
    WorkNode,
)
from tickwork.core.definition.plan import IN_DEFINITION, INPUTS, Kind, Step
from tickwork.core.definition.references import is_reference
from tickwork.core.evolve import live_tasks
from tickwork.core.evolve.follow_ups import failed_steps
from tickwork.core.evolve.races import losers_of, winner_of
from tickwork.core.evolve.runs import started
from tickwork.core.evolve.tasks.attempts import made_ready
from tickwork.core.state.effects import CancelAttempt, LookUpCache
from tickwork.core.state.evaluation_context import (
    OF_CHECK,
    ExtractMissing,
    cache_key,
    output_value,
    resolve_anywhere,
    snapshot,
)
from tickwork.core.state.events import (
    FirstEnded,
    PolicyDecided,
    QueueChosen,
    RunMoved,
    StepEnded,
    TaskAnswered,
    TaskChecking,
    TaskReady,
    TaskWaiting,
)
from tickwork.core.state.lifecycle import TOOK_TOO_LONG, Phase, RunState, RunTrigger
from tickwork.core.state.map_items import items_of
from tickwork.core.state.state import Run

MAP_ITEMS_MAX = 1_000_000

PENDING, ACTIVE = int(RunState.PENDING), int(RunState.ACTIVE)
WAITING, PAUSED = int(RunState.WAITING), int(RunState.PAUSED)
START, COMPLETE = int(RunTrigger.START), int(RunTrigger.COMPLETE)
READY, CHECKING = int(Phase.READY), int(Phase.CHECKING)
READY = Phase.READY


def visit(turn: TickContext, run: Run) -> None:
    state, plan = run.state, run.plan
    if state == PENDING:
        if run.start_at or (plan.guarded and not may_start(turn, run)):
            return
        turn.events.append(RunMoved(run.number, START))
        started(turn.state, run)
    elif state >= PAUSED:
        return
    if run.parent and type(run.inputs) is Ref and not _inputs_hold(turn, run):
        return
    if plan.exits and not run.overdue and run.ending is None and _leave_early(turn, run):
        return
    if plan.lone is not None and not run.phases[0]:
        # A single task: there is nothing to weigh up.
        run.todo = ()
        turn.events.append(TaskReady(run.number, 0))
        made_ready(turn.state, run, plan.lone)
        return
    if run.todo:
        _take_steps(turn, run)
    if run.fanning:
        _tend_all_children(turn, run)
    if not run.unfinished or not run.busy or run.state != ACTIVE:
        _settle(turn, run)
    if run.signals and run.signals[-1].tick == turn.state.tick and run.state <= WAITING:
        turn.deferred.append(run.number)  # conditions see what came in this tick from the next one on


def _inputs_hold(turn: TickContext, run: Run) -> bool:
    """Whether the inputs of a child run are what its workflow declares, where they are not inline: the shell compares
    them. False: not known yet; or they are not, and the run has failed."""
    checked = (run.extracts or {}).get((INPUTS, OF_CHECK))
    if checked is None:
        request_extracts(turn, run, ExtractMissing([(INPUTS, OF_CHECK)]))
    elif checked.code:
        _wake(turn, run)
        end_run(turn, run, RunTrigger.FAIL, f"{checked.code}: {checked.message}")
    else:
        return True
    return False


def _leave_early(turn: TickContext, run: Run) -> bool:
    for condition, way in zip(run.plan.exits, run.plan.definition.exits, strict=True):
        try:
            holds = condition.holds(snapshot(turn.state, run, condition))
        except ExtractMissing as missing:
            request_extracts(turn, run, missing)
            return True  # looked at before every step, so no step goes first
        except Refused as refused:
            _wake(turn, run)
            stop_run(turn, run, RunTrigger.FAIL, f"exit condition: {refused}")
            return True
        if holds:
            _wake(turn, run)
            trigger = RunTrigger.CANCEL if way.outcome == "cancelled" else RunTrigger.COMPLETE
            stop_run(turn, run, trigger, way.reason or f"exit: {way.when}")
            return True
    return False


def _has_output(turn: TickContext, run: Run) -> bool:
    """False: a part of it has to be read first; or it is not there, and the run has failed."""
    try:
        output_value(run)
    except ExtractMissing as missing:
        request_extracts(turn, run, missing)
        return False
    except Refused as refused:
        end_run(turn, run, RunTrigger.FAIL, f"output: {refused}")
        return False
    return True


def _settle(turn: TickContext, run: Run) -> None:
    """Say where the run stands now that nothing more can be done for it."""
    if not run.unfinished:
        if run.state == WAITING:
            _wake(turn, run)
        if run.ending is not None:
            _end_torn_down(turn, run, *run.ending)
        elif run.history is not None and run.history.cancelled and not run.failures:
            end_run(turn, run, RunTrigger.CANCEL, run.history.cancelled)
        elif run.overdue:
            end_run(turn, run, RunTrigger.TIME_OUT, TOOK_TOO_LONG)
        elif run.failures:
            end_run(turn, run, RunTrigger.FAIL, _names(failed_steps(run.plan, run.phases)))
        elif run.plan.output != IN_DEFINITION or _has_output(turn, run):
            follow_up(turn, run, RunTrigger.COMPLETE, "")
            turn.emit(RunMoved(run.number, COMPLETE))
    elif run.state == ACTIVE:
        if not run.busy and run.waiting and not run.todo:
            turn.emit(RunMoved(run.number, RunTrigger.WAIT))
    elif run.state == WAITING and run.busy:
        _wake(turn, run)


def _end_torn_down(turn: TickContext, run: Run, trigger: int, reason: str) -> None:
    failed = [step for step in failed_steps(run.plan, run.phases) if step.tears_down >= 0]
    if failed:
        end_run(turn, run, RunTrigger.FAIL, f"{reason}; {_names(failed)}")
    else:
        end_run(turn, run, RunTrigger(trigger), reason)


def _wake(turn: TickContext, run: Run) -> None:
    if run.state == WAITING:
        turn.emit(RunMoved(run.number, RunTrigger.WAKE))


def _names(failed: list[Step]) -> str:
    names = ", ".join(step.id for step in failed[:5])
    return f"failed: {names}" + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")


# ---- steps


def _take_steps(turn: TickContext, run: Run) -> None:
    """Begin every node whose parents have all ended, and every node that this frees immediately."""
    phases, counts, steps = run.phases, run.counts, run.plan.steps
    if counts is None:  # a single node
        run.todo = ()
        if not phases[0]:
            _begin(turn, run, steps[0])
        return
    while run.todo:
        todo = run.todo if len(run.todo) == 1 else sorted(dict.fromkeys(run.todo))
        run.todo = ()
        for position, index in enumerate(todo):
            if phases[index] or counts[index]:
                continue
            if len(turn.events) >= turn.changes_max or run.state == PAUSED:
                run.todo = [*todo[position:], *run.todo]
                if run.state != PAUSED:
                    turn.deferred.append(run.number)
                return
            _begin(turn, run, steps[index])


def _begin(turn: TickContext, run: Run, step: Step) -> None:
    if step.parents:
        phase_of = run.phases.__getitem__
        branches = tuple(map(phase_of, step.branches)) if step.branches else ()
        if step.tears_down >= 0:
            outcome = teardown_verdict(run.phases[step.tears_down])
        else:
            weighed = _weighed(run, step) if step.forgives else tuple(map(phase_of, step.weighed))
            outcome = verdict(step.node.trigger, weighed, branches)
        if outcome is not READY:
            reason = "something it needs failed" if outcome is Phase.BLOCKED else "nothing led here"
            if step.tears_down >= 0:
                reason = f"{run.plan.steps[step.tears_down].id} did not succeed, so there is nothing to tear down"
            turn.emit(StepEnded(run.number, step.index, outcome, reason))
            return
    if run.state == WAITING:
        _wake(turn, run)
    if step.plain:
        turn.events.append(TaskReady(run.number, step.index))
        made_ready(turn.state, run, step)
        return
    try:
        if step.when is not None and not step.when.holds(snapshot(turn.state, run, step.when)):
            turn.emit(StepEnded(run.number, step.index, Phase.NOT_TAKEN, "its condition is false"))
        elif not step.policies or _pass_gate(turn, run, step):
            if step.chooses:
                turn.emit(QueueChosen(run.number, step.index, *chosen_queue(turn.state, run, step)))
            _KINDS[step.kind](turn, run, step)
    except ExtractMissing as missing:
        request_extracts(turn, run, missing)
        run.held = (*run.held, step.index)
    except Refused as refused:
        turn.emit(StepEnded(run.number, step.index, Phase.FAILED, f"{refused.code}: {refused}"))


def _weighed(run: Run, step: Step) -> tuple[int, ...]:
    """A failed teardown that is a warning keeps nothing from starting."""
    phases, steps = run.phases, run.plan.steps
    return tuple(
        int(Phase.SUCCEEDED) if phases[parent] == Phase.FAILED and steps[parent].forgiven else phases[parent]
        for parent in step.weighed
    )


def _pass_gate(turn: TickContext, run: Run, step: Step) -> bool:
    state = turn.state

    def see(condition: Condition) -> dict[str, object]:
        return snapshot(state, run, condition, policy=True)

    for answer in ask(step.policies, state.policies, see):
        turn.emit(PolicyDecided(run.number, step.index, answer.policy, answer.allowed, answer.reason, answer.action))
        if answer.allowed:
            continue
        reason = f"policy {answer.policy}: {answer.reason}"
        if answer.action == "pause":
            until = state.tick + state.settings.clock.ticks(answer.pause_ms) if answer.pause_ms else 0
            run.todo = [*run.todo, step.index]  # decided again when the run is resumed
            pause_run(turn, run, reason, until=until)
        else:
            phase = Phase.SKIPPED if answer.action == "skip_with_log" else Phase.FAILED
            turn.emit(StepEnded(run.number, step.index, phase, reason))
        return False
    return True


def _begin_work(turn: TickContext, run: Run, step: Step) -> None:
    node = step.node
    assert isinstance(node, WorkNode)
    if step.cache_version is None:
        turn.emit(TaskReady(run.number, step.index))
        return
    key = cache_key(run, node, step.cache_version)
    turn.emit(TaskChecking(run.number, step.index, key))
    assert node.cache is not None
    turn.effects.append(LookUpCache(run.number + step.index, key, node.cache.ttl_ms))


def _begin_wait(turn: TickContext, run: Run, step: Step) -> None:
    node, state = step.node, turn.state
    assert isinstance(node, WaitNode)
    clock, duration_ms = state.settings.clock, node.duration_ms
    if node.duration_from is not None:
        duration_ms = chosen_duration_ms(run, step, "duration", node.duration_from) or 0
    if duration_ms is not None:
        until = state.tick + clock.ticks(duration_ms)
    else:
        assert node.until is not None
        text = resolve_anywhere(run, node.until) if is_reference(node.until) else node.until
        until = clock.tick_at(instant_ms(text, path=step.id))
    if until <= state.tick:
        turn.emit(StepEnded(run.number, step.index, Phase.SUCCEEDED, "its time has already come"))
    else:
        turn.emit(TaskWaiting(run.number, step.index, until))


def _begin_branch(turn: TickContext, run: Run, step: Step) -> None:
    taken, reason = step.default, "default"
    for index, (condition, to) in enumerate(step.cases):
        if condition.holds(snapshot(turn.state, run, condition)):
            taken, reason = to, f"case {index}"
            break
    turn.emit(StepEnded(run.number, step.index, Phase.SUCCEEDED, reason))
    targets = dict.fromkeys([to for _, case in step.cases for to in case] + list(step.default))
    for target in targets:
        if target not in taken and run.phases[target] == Phase.PENDING:
            turn.emit(StepEnded(run.number, target, Phase.NOT_TAKEN, f"{step.id} took {reason}"))


def _begin_event(turn: TickContext, run: Run, step: Step) -> None:
    node = step.node
    assert isinstance(node, EventNode)
    key = "" if node.key is None else str(resolve_anywhere(run, node.key))
    turn.emit(TaskWaiting(run.number, step.index, _deadline(turn, run, step, node), key))
    for index, heard in enumerate(run.signals or ()):
        if not heard.used and heard.name == node.event and heard.key == key:
            turn.emit(TaskAnswered(run.number + step.index, -1, index))
            return
    mailbox = run.tenant.mailboxes.get(node.event)
    message = mailbox.first(key) if mailbox is not None else None
    if message is not None:
        turn.emit(TaskAnswered(run.number + step.index, -1, taken=message.number))


def _begin_approval(turn: TickContext, run: Run, step: Step) -> None:
    node = step.node
    assert isinstance(node, ApprovalNode)
    turn.emit(TaskWaiting(run.number, step.index, _deadline(turn, run, step, node)))


def _deadline(turn: TickContext, run: Run, step: Step, node: EventNode | ApprovalNode | RepeatNode) -> int:
    state, timeout_ms = turn.state, node.timeout_ms
    if node.timeout_from is not None:
        timeout_ms = chosen_duration_ms(run, step, "timeout", node.timeout_from)
    return 0 if timeout_ms is None else state.tick + state.settings.clock.ticks(timeout_ms)


def _begin_workflow(turn: TickContext, run: Run, step: Step) -> None:
    turn.emit(TaskWaiting(run.number, step.index, 0, "", 1))


def _begin_map(turn: TickContext, run: Run, step: Step) -> None:
    node = step.node
    assert isinstance(node, MapNode)
    total, keys = items_of(run, node)
    if not 0 <= total <= MAP_ITEMS_MAX:
        what = f"the {node.combine} of {' and '.join(node.sources)}" if node.others else node.over
        raise Refused("map_too_wide", f"{what} has {total} items, the limit is {MAP_ITEMS_MAX}")
    most = 0
    if node.max_parallel_from is not None:
        most = chosen_count(run, step, "max_parallel", node.max_parallel_from)
    turn.emit(TaskWaiting(run.number, step.index, 0, "", total, most, keys))


def _begin_repeat(turn: TickContext, run: Run, step: Step) -> None:
    node = step.node
    assert isinstance(node, RepeatNode)
    turn.emit(TaskWaiting(run.number, step.index, _deadline(turn, run, step, node), "", node.max_iterations))


def _begin_first(turn: TickContext, run: Run, step: Step) -> None:
    """What has lost is cancelled in the same event, with its attempts and child runs."""
    phases = run.phases
    winner = winner_of(step, phases)
    if winner is None:
        turn.emit(StepEnded(run.number, step.index, Phase.NOT_TAKEN, "none of them was taken"))
        return
    lost, reason = frozenset(losers_of(run.plan, step, phases)), f"{run.plan.steps[winner].id} was first"
    children: list[Run] = []
    for task in live_tasks(turn.state, run):
        if task.step.index in lost:
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            children += left_behind(turn, task, reason)
    turn.emit(FirstEnded(run.number, step.index, winner))
    for child in children:
        end_run(turn, child, RunTrigger.CANCEL, reason)


_KINDS: dict[Kind, Callable[[TickContext, Run, Step], None]] = {
    Kind.WORK: _begin_work,
    Kind.WAIT: _begin_wait,
    Kind.BRANCH: _begin_branch,
    Kind.EVENT: _begin_event,
    Kind.APPROVAL: _begin_approval,
    Kind.WORKFLOW: _begin_workflow,
    Kind.MAP: _begin_map,
    Kind.REPEAT: _begin_repeat,
    Kind.FIRST: _begin_first,
}


def _tend_all_children(turn: TickContext, run: Run) -> None:
    """Until nothing more follows: the end of one map may be the beginning of the next."""
    events = turn.events
    while run.fanning and run.state != PAUSED:
        before = len(events)
        tend_children(turn, run)
        if len(events) == before or turn.full or run.number in turn.deferred[-1:]:
            return
        if run.todo:
            _take_steps(turn, run)
