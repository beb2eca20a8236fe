"""A visit to one run: start it, take its next steps, and say where it stands.

Everything a run does by itself happens here, one visit at a time, in the order of run ids. A
visit never waits and never looks at another run, except to begin or end the children of its own.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref, Value, unpack
from tickwork.core.calendar.durations import instant_ms
from tickwork.core.decide.chosen_values import chosen_count, chosen_duration_ms, chosen_queue
from tickwork.core.decide.functions import called_runs, check_nesting, tend_function
from tickwork.core.decide.policy import ask
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.decide.trigger_rules import verdict
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.input_fields import require_child_inputs
from tickwork.core.definition.model import (
    ApprovalNode,
    EventNode,
    FollowUp,
    MapNode,
    RepeatNode,
    WaitNode,
    WorkflowNode,
    WorkNode,
)
from tickwork.core.definition.plan import IN_DEFINITION, INPUTS, Kind, Plan, Step
from tickwork.core.definition.references import is_reference
from tickwork.core.evolve import child_id, has_children_to_give, live_tasks
from tickwork.core.evolve.follow_ups import CAUSES, follow_up_of, report_inputs
from tickwork.core.evolve.races import losers_of, winner_of
from tickwork.core.evolve.runs import moved
from tickwork.core.evolve.tasks import CHILDREN_IN_TURN, made_ready
from tickwork.core.evolve.worker_pools import handler_of, others_may_have
from tickwork.core.state.effects import Alert, CancelAttempt, LookUpCache, ReadExtract
from tickwork.core.state.evaluation_context import (
    OF_CHECK,
    OF_LAST,
    ExtractMissing,
    cache_key,
    child_inputs,
    items_over,
    look_into,
    output_value,
    own_names,
    resolve_anywhere,
    snapshot,
)
from tickwork.core.state.events import (
    ExtractRequested,
    FanOutEnded,
    FirstEnded,
    FollowUpStarted,
    GateTaken,
    IterationDelayed,
    IterationStarted,
    PolicyDecided,
    QueueChosen,
    RepeatTimedOut,
    RunDetached,
    RunGated,
    RunMoved,
    RunOverdue,
    RunSpawned,
    StepEnded,
    TaskAnswered,
    TaskChecking,
    TaskFailed,
    TaskReady,
    TaskRetrying,
    TaskWaiting,
)
from tickwork.core.state.lifecycle import ENDED, IDLE, TOOK_TOO_LONG, Phase, RunState, RunTrigger, may_move
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.retry import ELSEWHERE, HANDLER_MISSING, backoff_ms
from tickwork.core.state.state import Run, State, Task, tries_of

MAP_ITEMS_MAX = 1_000_000
CLEAN_UP_MS_MIN, CLEAN_UP_MS_MAX = 60_000, 600_000  # what is left to the clean-up of a run that timed out

PENDING, ACTIVE = int(RunState.PENDING), int(RunState.ACTIVE)
WAITING, PAUSED = int(RunState.WAITING), int(RunState.PAUSED)
START, COMPLETE = int(RunTrigger.START), int(RunTrigger.COMPLETE)
READY, CHECKING = int(Phase.READY), int(Phase.CHECKING)
READY = Phase.READY


def visit(turn: TickContext, run: Run) -> None:
    state, plan = run.state, run.plan
    if state == PENDING:
        if run.start_at or (plan.definition.concurrency is not None and not _enter_gate(turn, run)):
            return
        event = RunMoved(run.number, START)
        turn.events.append(event)
        moved(turn.state, run, START, event)
    elif state >= PAUSED:
        return
    if run.parent and type(run.inputs) is Ref and not _inputs_hold(turn, run):
        return
    if plan.exits and not run.overdue and _leave_early(turn, run):
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
        _seek(turn, run, ExtractMissing([(INPUTS, OF_CHECK)]))
    elif checked.code:
        _wake(turn, run)
        end_run(turn, run, RunTrigger.FAIL, f"{checked.code}: {checked.message}")
    else:
        return True
    return False


def _enter_gate(turn: TickContext, run: Run) -> bool:
    """False: its concurrency key is taken, or cannot be told."""
    concurrency = run.plan.definition.concurrency
    if concurrency is not None and run.gate is None:
        try:
            key = _gate_key(turn.state, run)
        except ExtractMissing as missing:
            _seek(turn, run, missing)
            return False
        except Refused as refused:
            end_run(turn, run, RunTrigger.CANCEL, f"concurrency key: {refused}")
            return False
        gate = run.tenant.gates.get((run.plan.name, key))
        if gate is not None and (gate.holding >= concurrency.limit or any(waiter.gated for waiter in gate.line)):
            turn.emit(RunGated(run.number, key))
            return False
        turn.emit(GateTaken(run.number, key))
    return not run.gated


def take_gate_again(turn: TickContext, run: Run) -> None:
    """A resolved run goes on where it was and stands in no line, but whoever comes next sees that it is there."""
    try:
        key = _gate_key(turn.state, run)
    except (Refused, ExtractMissing):
        return  # it had none that could be told, so it never started; or it would have to wait until it can
    turn.emit(GateTaken(run.number, key))


def _gate_key(state: State, run: Run) -> str:
    condition = run.plan.gate_key
    return "" if condition is None else str(condition.value(snapshot(state, run, condition)))


def _leave_early(turn: TickContext, run: Run) -> bool:
    for condition, way in zip(run.plan.exits, run.plan.definition.exits, strict=True):
        try:
            holds = condition.holds(snapshot(turn.state, run, condition))
        except ExtractMissing as missing:
            _seek(turn, run, missing)
            return True  # looked at before every step, so no step goes first
        except Refused as refused:
            _wake(turn, run)
            end_run(turn, run, RunTrigger.FAIL, f"exit condition: {refused}")
            return True
        if holds:
            _wake(turn, run)
            trigger = RunTrigger.CANCEL if way.outcome == "cancelled" else RunTrigger.COMPLETE
            end_run(turn, run, trigger, way.reason or f"exit: {way.when}")
            return True
    return False


def _seek(turn: TickContext, run: Run, missing: ExtractMissing) -> None:
    """The shell reads what is missing; the run is visited again when it has come."""
    for source, key in missing.places:
        if (source, key) not in (run.extracts or {}):
            turn.emit(ExtractRequested(run.number, source, key))
            turn.effects.append(ReadExtract(run.number, source, key))


def _has_output(turn: TickContext, run: Run) -> bool:
    """False: a part of it has to be read first; or it is not there, and the run has failed."""
    try:
        output_value(run)
    except ExtractMissing as missing:
        _seek(turn, run, missing)
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
        if run.history is not None and run.history.cancelled and not run.failures:
            end_run(turn, run, RunTrigger.CANCEL, run.history.cancelled)
        elif run.overdue:
            end_run(turn, run, RunTrigger.TIME_OUT, TOOK_TOO_LONG)
        elif run.failures:
            end_run(turn, run, RunTrigger.FAIL, _failed_nodes(run))
        elif run.plan.output != IN_DEFINITION or _has_output(turn, run):
            _follow_up(turn, run, RunTrigger.COMPLETE, "")
            turn.emit(RunMoved(run.number, COMPLETE))
    elif run.state == ACTIVE:
        if not run.busy and run.waiting and not run.todo:
            turn.emit(RunMoved(run.number, RunTrigger.WAIT))
    elif run.state == WAITING and run.busy:
        _wake(turn, run)


def _wake(turn: TickContext, run: Run) -> None:
    if run.state == WAITING:
        turn.emit(RunMoved(run.number, RunTrigger.WAKE))


def _failed_nodes(run: Run) -> str:
    failed = [step.id for step in run.plan.steps if run.phases[step.index] == Phase.FAILED]
    return f"failed: {', '.join(failed[:5])}" + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")


def end_run(turn: TickContext, run: Run, trigger: RunTrigger, reason: str, *, place: int = -1) -> None:
    """End a run with everything that is still going on in it, child runs included."""
    state = turn.state
    line = [(run, trigger, reason)]
    for ending, how, why in line:  # grows while it is walked
        for task in live_tasks(state, ending):
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            line.extend((child, RunTrigger.CANCEL, f"its parent ended: {why}") for child in _left_behind(turn, task))
        _follow_up(turn, ending, how, why)
        turn.emit(RunMoved(ending.number, how, why, place))
        if how in (RunTrigger.FAIL, RunTrigger.TIME_OUT):
            alert(turn, "run_failed", ending, why)


def _left_behind(turn: TickContext, task: Task) -> list[Run]:
    """The child runs that end with this task. Those that are to go on by themselves have no parent from here on."""
    children = child_runs(turn.state, task)
    if getattr((task.step.body or task.step).node, "on_cancel", "cancel") == "cancel":
        return children
    for child in children:
        turn.emit(RunDetached(child.number))
    return []


def alert(turn: TickContext, kind: str, run: Run, detail: str) -> None:
    """An alert about a run. What happens in a child run is told of the run at the top, with the nodes that lead to it:
    the children of a map that fail alike then give the same alert, and whoever keeps alerts counts equal ones."""
    while (parent := turn.state.tasks.get(run.parent) if run.parent else None) is not None:
        run, detail = parent.run, f"{parent.run.plan.steps[parent.step.index].id}: {detail}"
    turn.effects.append(Alert(kind, run.tenant.id, run.id, detail))


def alert_dead_letter(turn: TickContext, task: Task, cause: str) -> None:
    node = task.run.plan.steps[task.step.index]  # the body of a map or repeat has no name of its own
    alert(turn, "dead_letter", task.run, f"{node.id}: {cause}")


def end_calls(turn: TickContext, calls: list[Run], reason: str) -> None:
    """A function ends, or gives these calls up: nobody takes their results."""
    for child in calls:
        end_run(turn, child, RunTrigger.CANCEL, reason)


def _follow_up(turn: TickContext, run: Run, trigger: RunTrigger, reason: str) -> None:
    """Begin what the workflow of an ending run says follows it. It is a run of its own, so nothing that it does
    changes how this one ended, and nothing that cuts this one short cuts it short."""
    follow_up = follow_up_of(run, trigger)
    if follow_up is None:
        return
    plan, cause = run.tenant.plans.get(follow_up.workflow), CAUSES[trigger]
    if plan is None:
        _miss_follow_up(turn, run, follow_up, "there is no workflow of this name")
        return
    values = report_inputs(run, follow_up, cause, reason)
    try:
        require_child_inputs(plan.definition, unpack(values, what="the report") or {}, {})
    except Refused as refused:
        _miss_follow_up(turn, run, follow_up, str(refused))
        return
    turn.emit(FollowUpStarted(turn.state.next_number, run.number, plan.hash, cause, reason))


def _miss_follow_up(turn: TickContext, run: Run, follow_up: FollowUp, why: str) -> None:
    turn.effects.append(Alert("no_follow_up", run.tenant.id, run.id, f"{follow_up.workflow} cannot start: {why}"))


def time_out(turn: TickContext, run: Run) -> None:
    """The time of a whole run is over. Its clean-up still runs, for a limited time; then the run ends, timed out."""
    state, steps = turn.state, run.plan.steps
    function = state.tasks.get(run.number) if steps[0].durable else None
    if function is not None and function.history is not None and function.history.cancelled:
        end_run(turn, run, RunTrigger.CANCEL, f"{function.history.cancelled}; its clean-up took too long")
        return
    left = any(step.cleans_up and run.phases[step.index] not in ENDED for step in steps)
    if run.overdue or not left:
        end_run(turn, run, RunTrigger.TIME_OUT, TOOK_TOO_LONG)
        return
    timeout_ms = run.plan.definition.timeout_ms
    assert timeout_ms is not None, "only a limit sets the timer"
    children: list[Run] = []
    for task in live_tasks(state, run):
        if not steps[task.step.index].cleans_up:
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            children += _left_behind(turn, task)
    turn.emit(RunOverdue(run.number, state.tick + state.settings.clock.ticks(clean_up_ms(timeout_ms))))
    for child in children:
        end_run(turn, child, RunTrigger.CANCEL, f"its parent ended: {TOOK_TOO_LONG}")
    if run.state == PAUSED:  # the limit holds while a run is paused, so its clean-up does not wait either
        resume_run(turn, run, f"{TOOK_TOO_LONG}: its clean-up starts")


def clean_up_ms(timeout_ms: int) -> int:
    """How long the clean-up of a run that timed out may take: as long as the run itself, within bounds."""
    return min(max(timeout_ms, CLEAN_UP_MS_MIN), CLEAN_UP_MS_MAX)


WITH_PARENT = "its parent is paused"


def pause_run(turn: TickContext, run: Run, reason: str, *, place: int = -1, until: int = 0) -> None:
    """Pause a run and the runs below it; those come back with it, unless somebody paused them for themselves."""
    turn.emit(RunMoved(run.number, RunTrigger.PAUSE, reason, place, until))
    line = _children(turn.state, run)
    for child in line:  # grows while it is walked
        if may_move(child.state, RunTrigger.PAUSE):
            turn.emit(RunMoved(child.number, RunTrigger.PAUSE, WITH_PARENT, place))
        line.extend(_children(turn.state, child))


def resume_run(turn: TickContext, run: Run, reason: str = "", *, place: int = -1) -> None:
    line = [(run, reason)]
    for paused, why in line:  # grows while it is walked
        turn.emit(RunMoved(paused.number, RunTrigger.RESUME, why, place))
        below = _children(turn.state, paused)
        with_it = (child for child in below if child.state == PAUSED and child.pause_reason == WITH_PARENT)
        line.extend((child, "its parent goes on") for child in with_it)


def _children(state: State, run: Run) -> list[Run]:
    fans = sorted((run.fanning or {}).items(), key=lambda pair: pair[0])
    return [child for _, task in fans for child in child_runs(state, task)]


def child_runs(state: State, task: Task) -> list[Run]:
    if task.step.durable:
        return called_runs(state, task)
    body = task.step if task.step.kind is Kind.WORKFLOW else task.step.body
    if task.fan is None or body is None or body.kind is not Kind.WORKFLOW:
        return []
    return [state.runs[number] for _, number in sorted(task.fan.live.items())]


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
        outcome = verdict(step.node.trigger, tuple(map(phase_of, step.weighed)), branches)
        if outcome is not READY:
            reason = "something it needs failed" if outcome is Phase.BLOCKED else "nothing led here"
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
        _seek(turn, run, missing)
        run.held = (*run.held, step.index)
    except Refused as refused:
        turn.emit(StepEnded(run.number, step.index, Phase.FAILED, f"{refused.code}: {refused}"))


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
            run.todo = [*run.todo, step.index]  # asked again when the run is resumed
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
    total = items_over(run, node.over)
    if not 0 <= total <= MAP_ITEMS_MAX:
        raise Refused("map_too_wide", f"{node.over} has {total} items, the limit is {MAP_ITEMS_MAX}")
    most = 0
    if node.max_parallel_from is not None:
        most = chosen_count(run, step, "max_parallel", node.max_parallel_from)
    turn.emit(TaskWaiting(run.number, step.index, 0, "", total, most))


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
    lost = frozenset(losers_of(run.plan, step, phases))
    children: list[Run] = []
    for task in live_tasks(turn.state, run):
        if task.step.index in lost:
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            children += _left_behind(turn, task)
    turn.emit(FirstEnded(run.number, step.index, winner))
    for child in children:
        end_run(turn, child, RunTrigger.CANCEL, f"{run.plan.steps[winner].id} was first")


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


# ---- children


def _tend_all_children(turn: TickContext, run: Run) -> None:
    """Until nothing more follows: the end of one map may be the beginning of the next."""
    events = turn.events
    while run.fanning and run.state != PAUSED:
        before = len(events)
        _tend_children(turn, run)
        if len(events) == before or turn.full or run.number in turn.deferred[-1:]:
            return
        if run.todo:
            _take_steps(turn, run)


def _tend_children(turn: TickContext, run: Run) -> None:
    """Begin what may begin, and end what all children of have ended."""
    for _, task in sorted((run.fanning or {}).items(), key=lambda pair: pair[0]):
        try:
            _TENDERS[task.step.kind](turn, task)
        except ExtractMissing as missing:
            _seek(turn, run, missing)
        except Refused as refused:
            orphans = child_runs(turn.state, task)
            turn.emit(TaskFailed(task.number, refused.code, str(refused)))
            for orphan in orphans:
                end_run(turn, orphan, RunTrigger.CANCEL, f"its parent failed: {refused.code}")
        if turn.full and not run.wanted:
            turn.deferred.append(run.number)
            return


def _tend_map(turn: TickContext, task: Task) -> None:
    fan, node, body = task.fan, task.step.node, task.step.body
    assert fan is not None and body is not None and isinstance(node, MapNode)
    if fan.begun == fan.total and not fan.running:
        if fan.failed <= node.tolerate:
            turn.emit(FanOutEnded(task.number))
        else:
            turn.emit(TaskFailed(task.number, "children_failed", f"{fan.failed} of {fan.total} failed"))
    elif body.kind is Kind.WORKFLOW:
        _spawn_in_turn(turn, task, body.node, node.over)


def _tend_workflow(turn: TickContext, task: Task) -> None:
    fan = task.fan
    assert fan is not None
    if not fan.begun:
        _spawn(turn, task, task.step.node, None)
    elif fan.succeeded:
        turn.emit(FanOutEnded(task.number))
    elif not fan.running:
        fail_or_retry(turn, task, "ChildFailed", "the child run did not complete")


def _tend_repeat(turn: TickContext, task: Task) -> None:
    fan, node, step = task.fan, task.step.node, task.step
    assert fan is not None and isinstance(node, RepeatNode) and step.until is not None and step.body is not None
    if fan.running or task.due:
        return
    if fan.failed_in_a_row > node.tolerate:
        so_far = f", number {fan.failed_in_a_row} in a row" if node.tolerate else ""
        turn.emit(TaskFailed(task.number, "iteration_failed", f"iteration {fan.begun} failed{so_far}"))
        return
    rested = fan.rested == fan.begun
    if fan.begun and not (rested and node.delay_ms):
        if not fan.failed_in_a_row and _enough(turn, task, step.until):
            turn.emit(FanOutEnded(task.number))
            return
        if fan.begun >= fan.total:
            _end_of_turns(turn, task, node)
            return
        if node.delay_ms:
            turn.emit(IterationDelayed(task.number, turn.state.tick + turn.state.settings.clock.ticks(node.delay_ms)))
            return
    if step.body.kind is Kind.WORKFLOW:
        _spawn(turn, task, step.body.node, None)
    else:
        turn.emit(IterationStarted(task.number, turn.state.next_number))


def _enough(turn: TickContext, task: Task, until: Condition) -> bool:
    assert task.fan is not None
    fan = task.fan
    last = None
    if "last" in until.names:
        last = look_into(task.run, task.step.index, fan.last, f"{OF_LAST}{fan.begun}", what="the last result")
    return until.holds(snapshot(turn.state, task.run, until, iteration=fan.begun, last=last))


def time_out_repeat(turn: TickContext, task: Task) -> None:
    """The time of a repeat is over, whatever its turn is doing."""
    state, node = turn.state, task.step.node
    assert task.fan is not None and isinstance(node, RepeatNode)
    children = child_runs(state, task)
    for number in () if children else sorted(task.fan.live.values()):
        child = state.tasks[number]
        if child.worker is not None:
            turn.effects.append(CancelAttempt(child.worker.number, child.number, child.attempt))
    turn.emit(RepeatTimedOut(task.number))
    if node.on_max == "continue":
        turn.emit(FanOutEnded(task.number))
    else:
        turn.emit(TaskFailed(task.number, "timeout", f"not enough in time, after {task.fan.begun} turns"))
    for run in children:
        end_run(turn, run, RunTrigger.CANCEL, "the time of the repeat is over")


def _end_of_turns(turn: TickContext, task: Task, node: RepeatNode) -> None:
    if node.on_max == "continue":
        turn.emit(FanOutEnded(task.number))
    else:
        turn.emit(TaskFailed(task.number, "too_many_iterations", f"not enough after {node.max_iterations}"))


def _spawn_in_turn(turn: TickContext, task: Task, node: object, over: str) -> None:
    """Make child runs of a map, as many as can soon start. What comes beside a wide map waits for a portion of it."""
    state = turn.state
    for _ in range(CHILDREN_IN_TURN):
        if turn.full or not _has_room(state, task):
            return
        _spawn(turn, task, node, over)
    if _has_room(state, task):
        turn.deferred.append(task.run.number)


def _has_room(state: State, task: Task) -> bool:
    """Whether another child run could soon start: no more than a portion of them is active beside those that workers
    can have at once. Runs that wait or are paused take no room. Runs in backoff are not counted apart: where the line
    is short and the latest child has begun, another portion goes in."""
    fan = task.fan
    assert fan is not None
    if not has_children_to_give(task):
        return False
    if fan.running - fan.idle < CHILDREN_IN_TURN + state.capacity[0]:
        return True
    return task.run.tenant.queued < CHILDREN_IN_TURN and _has_begun(state.runs.get(fan.live.get(fan.begun - 1, 0)))


def _has_begun(run: Run | None) -> bool:
    return run is None or run.state in IDLE or any(phase > READY and phase != CHECKING for phase in run.phases)


def _spawn(turn: TickContext, task: Task, node: object, over: str | None) -> None:
    assert isinstance(node, WorkflowNode) and task.fan is not None
    run, fan = task.run, task.fan
    plan = run.tenant.plans.get(node.workflow)
    if plan is None:
        raise Refused("unknown_workflow", f"there is no workflow {node.workflow}")
    check_nesting(turn.state, run)
    own = own_names(run, over, fan.begun, fan.last) if task.step.kind is not Kind.WORKFLOW else {}
    inputs = _child_inputs(task, node, own, plan)
    number = turn.state.next_number
    if run.tenant.runs.get(child_id(task, fan.begun, number)) is not None:
        raise Refused("already_submitted", "a run has the id that this child would have")
    turn.emit(RunSpawned(number, task.number, fan.begun, plan.hash, inputs))


def _child_inputs(task: Task, node: WorkflowNode, own: dict[str, Any], plan: Plan) -> Value:
    """The inputs of the next child. Raises `Refused` if they cannot be made or do not fit what the child declares. An
    item of a map fails only its own child: the shell makes and checks its inputs, as if the list were not inline."""
    assert task.fan is not None
    name = f"{task.number}/{task.fan.begun}"
    try:
        inputs = child_inputs(task.run, node.args, own, place=name)
        require_child_inputs(plan.definition, inputs.plain, inputs.apart)
    except Refused:
        if task.step.kind is Kind.MAP:
            return Ref(name, 0, None, "arguments")
        raise
    return inputs.stored


_TENDERS: dict[Kind, Callable[[TickContext, Task], None]] = {
    Kind.WORK: tend_function,
    Kind.MAP: _tend_map,
    Kind.WORKFLOW: _tend_workflow,
    Kind.REPEAT: _tend_repeat,
}


# ---- attempts that did not succeed


def fail_or_retry(
    turn: TickContext, task: Task, error: str, message: str, *, place: int = -1, permanent: bool = False,
    bases: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Another attempt where the retry rules allow one, else the end of the task and a dead letter."""
    state = turn.state
    seed = (task.run.id, task.number)
    if permanent and error == HANDLER_MISSING:  # only with this worker: counted apart from its own retries
        returns = _returns(state, task)
        delay = backoff_ms(ELSEWHERE, returns, seed=seed, error=error) if returns else 0
    elif permanent:
        delay = None
    else:
        delay = backoff_ms(task.step.retry, tries_of(task), seed=seed, error=error, bases=bases)
    if delay is None:
        calls = called_runs(state, task)
        turn.emit(TaskFailed(task.number, error, message if place < 0 else "", place, True))
        end_calls(turn, calls, f"the function that called it failed: {error}")
        alert_dead_letter(turn, task, error)
        return
    settings = state.settings
    due = state.tick + max(1, settings.clock.ticks(delay))
    budget = task.run.tenant.budgets.get(task.step.requirement[4]) if task.step.requirement[4] else None
    booked = settings.clock.tick_at(budget.next_ms(settings, state.now_ms)) if budget is not None else 0
    turn.emit(TaskRetrying(task.number, max(due, booked), error, place, booked > due))


def _returns(state: State, task: Task) -> int:
    """How often it has come back without anybody learning from it. It goes on while another may have its function."""
    worker, lane, handler = task.worker, task.lane, handler_of(task.step)
    assert worker is not None and lane is not None
    if not others_may_have(state, lane, worker, handler):
        return task.returns + 1
    if handler not in worker.lacks and not is_broker_worker(
        worker.id
    ):  # that is learned now, and will not happen again
        return 0
    return min(task.returns + 1, ELSEWHERE.attempts - 1)  # a broker does not know who lacks it
