"""Ending, pausing and resuming a run together with the runs below it."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import unpack
from tickwork.core.decide.runs.functions import called_runs
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.definition.input_fields import require_child_inputs
from tickwork.core.definition.model import (
    FollowUp,
)
from tickwork.core.definition.plan import Kind
from tickwork.core.evolve import live_tasks
from tickwork.core.evolve.follow_ups import CAUSES, follow_up_of, is_follow_up, report_inputs
from tickwork.core.state.effects import Alert, CancelAttempt
from tickwork.core.state.events import (
    FollowUpStarted,
    RunDetached,
    RunMoved,
    RunOverdue,
)
from tickwork.core.state.lifecycle import ENDED, TOOK_TOO_LONG, RunState, RunTrigger, may_move
from tickwork.core.state.state import Run, State, Task

PAUSED = int(RunState.PAUSED)
CLEAN_UP_MS_MIN, CLEAN_UP_MS_MAX = 60_000, 600_000  # what is left to the clean-up of a run that timed out


def end_run(turn: TickContext, run: Run, trigger: RunTrigger, reason: str, *, place: int = -1) -> None:
    """End a run with everything that is still going on in it, child runs included."""
    state = turn.state
    line = [(run, trigger, reason)]
    for ending, how, why in line:  # grows while it is walked
        for task in live_tasks(state, ending):
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            line.extend((child, RunTrigger.CANCEL, f"its parent ended: {why}") for child in left_behind(turn, task))
        follow_up(turn, ending, how, why)
        turn.emit(RunMoved(ending.number, how, why, place))
        if how in (RunTrigger.FAIL, RunTrigger.TIME_OUT):
            alert(turn, "run_failed", ending, why)


def left_behind(turn: TickContext, task: Task) -> list[Run]:
    """The child runs that end with this task. Those that are to go on by themselves have no parent from here on."""
    children = child_runs(turn.state, task)
    if getattr((task.step.body or task.step).node, "on_cancel", "cancel") == "cancel":
        return children
    for child in children:
        turn.emit(RunDetached(child.number))
    return []


def child_runs(state: State, task: Task) -> list[Run]:
    if task.step.durable:
        return called_runs(state, task)
    body = task.step if task.step.kind is Kind.WORKFLOW else task.step.body
    if task.fan is None or body is None or body.kind is not Kind.WORKFLOW:
        return []
    return [state.runs[number] for _, number in sorted(task.fan.live.items())]


def end_calls(turn: TickContext, calls: list[Run], reason: str) -> None:
    """A function ends, or gives these calls up: nobody takes their results."""
    for child in calls:
        end_run(turn, child, RunTrigger.CANCEL, reason)


def alert(turn: TickContext, kind: str, run: Run, detail: str) -> None:
    """An alert about a run. What happens in a child run is told of the run at the top, with the nodes that lead to it:
    the children of a map that fail alike then give the same alert, and whoever keeps alerts counts equal ones."""
    while (parent := turn.state.tasks.get(run.parent) if run.parent else None) is not None:
        run, detail = parent.run, f"{parent.run.plan.steps[parent.step.index].id}: {detail}"
    turn.effects.append(Alert(kind, run.tenant.id, run.id, detail))


def alert_dead_letter(turn: TickContext, task: Task, cause: str) -> None:
    node = task.run.plan.steps[task.step.index]  # the body of a map or repeat has no name of its own
    alert(turn, "dead_letter", task.run, f"{node.id}: {cause}")


def follow_up(turn: TickContext, run: Run, trigger: RunTrigger, reason: str) -> None:
    """Begin what the workflow of an ending run says follows it. It is a run of its own, so nothing that it does
    changes how this one ended, and nothing that cuts this one short cuts it short."""
    follow_up = follow_up_of(run, trigger)
    if follow_up is None or _is_below_follow_up(turn.state, run):
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


def _is_below_follow_up(state: State, run: Run) -> bool:
    """A child run of a follow-up has none either: it could call the workflow that it is the follow-up of."""
    while (parent := state.tasks.get(run.parent) if run.parent else None) is not None:
        run = parent.run
    return is_follow_up(run)


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
            children += left_behind(turn, task)
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
