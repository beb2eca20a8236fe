"""The children of maps, repeats, child workflows and functions: begin what may begin, end what is over."""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref, Value
from tickwork.core.decide.runs.attempts import fail_or_retry
from tickwork.core.decide.runs.functions import check_nesting, tend_function
from tickwork.core.decide.runs.run_end import child_runs, end_run, is_cut_short, released
from tickwork.core.decide.tick_context import TickContext, request_extracts
from tickwork.core.definition.cel import Condition
from tickwork.core.definition.input_fields import require_child_inputs
from tickwork.core.definition.model import (
    MapNode,
    RepeatNode,
    WorkflowNode,
)
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.evolve import has_children_to_give
from tickwork.core.evolve.tasks.children import CHILDREN_IN_TURN
from tickwork.core.state.effects import CancelAttempt
from tickwork.core.state.evaluation_context import (
    OF_LAST,
    ExtractMissing,
    child_inputs,
    look_into,
    snapshot,
)
from tickwork.core.state.events import (
    FanOutEnded,
    IterationDelayed,
    IterationStarted,
    RepeatTimedOut,
    RunSpawned,
    StepCancelled,
    TaskFailed,
)
from tickwork.core.state.lifecycle import IDLE, Phase, RunTrigger
from tickwork.core.state.map_items import item_names, turn_names
from tickwork.core.state.run_ids import child_id
from tickwork.core.state.state import Run, State, Task

READY, CHECKING = Phase.READY, int(Phase.CHECKING)


def tend_children(turn: TickContext, run: Run) -> None:
    """Begin what may begin, and end what all children of have ended."""
    for _, task in sorted((run.fanning or {}).items(), key=lambda pair: pair[0]):
        if is_cut_short(run, task.step):
            if task.fan is not None and not task.fan.live:
                turn.emit(StepCancelled(run.number, task.step.index))
            continue
        try:
            _TENDERS[task.step.kind](turn, task)
        except ExtractMissing as missing:
            request_extracts(turn, run, missing)
        except Refused as refused:
            reason = f"its parent failed: {refused.code}"
            orphans = released(turn, child_runs(turn.state, task), reason)
            turn.emit(TaskFailed(task.number, refused.code, str(refused)))
            for orphan in orphans:
                end_run(turn, orphan, RunTrigger.CANCEL, reason)
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
        _spawn_in_turn(turn, task, body.node)


def _tend_workflow(turn: TickContext, task: Task) -> None:
    fan = task.fan
    assert fan is not None
    if not fan.begun:
        _spawn(turn, task, task.step.node)
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
        _spawn(turn, task, step.body.node)
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
    reason = "the time of the repeat is over"
    all_children = child_runs(state, task)
    children = released(turn, all_children, reason)
    for number in () if all_children else sorted(task.fan.live.values()):
        child = state.tasks[number]
        if child.worker is not None:
            turn.effects.append(CancelAttempt(child.worker.number, child.number, child.attempt))
    turn.emit(RepeatTimedOut(task.number))
    if node.on_max == "continue":
        turn.emit(FanOutEnded(task.number))
    else:
        turn.emit(TaskFailed(task.number, "timeout", f"not enough in time, after {task.fan.begun} turns"))
    for run in children:
        end_run(turn, run, RunTrigger.CANCEL, reason)


def _end_of_turns(turn: TickContext, task: Task, node: RepeatNode) -> None:
    if node.on_max == "continue":
        turn.emit(FanOutEnded(task.number))
    else:
        turn.emit(TaskFailed(task.number, "too_many_iterations", f"not enough after {node.max_iterations}"))


def _spawn_in_turn(turn: TickContext, task: Task, node: object) -> None:
    """Make child runs of a map, as many as can soon start. What comes beside a wide map waits for a portion of it."""
    state = turn.state
    for _ in range(CHILDREN_IN_TURN):
        if turn.full or not _has_room(state, task):
            return
        _spawn(turn, task, node)
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


def _spawn(turn: TickContext, task: Task, node: object) -> None:
    assert isinstance(node, WorkflowNode) and task.fan is not None
    run, fan = task.run, task.fan
    plan = run.tenant.plans.get(node.workflow)
    if plan is None:
        raise Refused("unknown_workflow", f"there is no workflow {node.workflow}")
    check_nesting(turn.state, run)
    own = _own_names(task)
    inputs = _child_inputs(task, node, own, plan)
    number = turn.state.next_number
    if run.tenant.runs.get(child_id(task, fan.begun, number)) is not None:
        raise Refused("already_submitted", "a run has the id that this child would have")
    turn.emit(RunSpawned(number, task.number, fan.begun, plan.hash, inputs))


def _own_names(task: Task) -> dict[str, Any]:
    """What the next child may name beside inputs and nodes."""
    fan, node = task.fan, task.step.node
    assert fan is not None
    match node:
        case MapNode():
            return item_names(task.run, node, fan.begun)
        case RepeatNode():
            return turn_names(fan.begun, fan.last)
    return {}


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
