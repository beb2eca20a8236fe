"""Ending, pausing and resuming a run together with the runs below it."""

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import unpack
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.definition.input_fields import require_child_inputs
from tickwork.core.definition.model import (
    FollowUp,
)
from tickwork.core.definition.plan import Kind, Step
from tickwork.core.evolve import live_tasks
from tickwork.core.evolve.follow_ups import CAUSES, follow_up_of, is_follow_up, report_inputs
from tickwork.core.state.effects import Alert, CancelAttempt
from tickwork.core.state.events import (
    FollowUpStarted,
    RunDetached,
    RunEnding,
    RunMoved,
    RunOverdue,
)
from tickwork.core.state.lifecycle import ENDED, TOOK_TOO_LONG, Phase, RunState, RunTrigger, may_move
from tickwork.core.state.state import Run, State, Task, run_timeout_ms

PAUSED = int(RunState.PAUSED)
CLEAN_UP_MS_MIN, CLEAN_UP_MS_MAX = 60_000, 600_000  # what is left to the clean-up of a run that timed out


def end_run(turn: TickContext, run: Run, trigger: RunTrigger, reason: str, *, position: int = -1) -> None:
    """End a run with everything that is still going on in it, child runs included."""
    state = turn.state
    line = [(run, trigger, reason)]
    for ending, how, why in line:  # grows while it is walked
        for task in live_tasks(state, ending):
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            reason = f"its parent ended: {why}"
            line.extend((child, RunTrigger.CANCEL, reason) for child in left_behind(turn, task, reason))
        follow_up(turn, ending, how, why)
        turn.emit(RunMoved(ending.number, how, why, position))
        if how in (RunTrigger.FAIL, RunTrigger.TIME_OUT):
            alert(turn, "run_failed", ending, why)


def stop_run(turn: TickContext, run: Run, trigger: RunTrigger, reason: str, *, position: int = -1) -> None:
    """End a run before its time. What it set up, or a child run did, is torn down first, for a limited time. A run that
    is told so once more ends at once."""
    state, steps = turn.state, run.plan.steps
    if not _must_tear_down(state, run):
        end_run(turn, run, trigger, reason, position=position)
        return
    kept = _kept_for_children(state, run, [step for step in steps if step.tears_down < 0])
    going_on = [child for task in kept for child in child_runs(state, task)]
    why = f"its parent ended: {reason}"
    others = [*(step.index for step in run.plan.teardowns), *(task.step.index for task in kept)]
    cut = _stop_tasks(turn, run, others, why)
    until = state.tick + state.settings.clock.ticks(CLEAN_UP_MS_MAX)
    turn.emit(RunEnding(run.number, trigger, reason, until, position, tuple(task.step.index for task in kept)))
    for child in cut:
        end_run(turn, child, RunTrigger.CANCEL, why)
    _stop_children(turn, going_on, why)
    if run.state == PAUSED:
        resume_run(turn, run, "it was cancelled: its clean-up starts")


def replace_run(turn: TickContext, run: Run, reason: str) -> None:
    """A later run takes its place. One that is replaced more often still tears down."""
    if run.ending is None:
        stop_run(turn, run, RunTrigger.CANCEL, reason)


def _stop_tasks(turn: TickContext, run: Run, but: list[int], reason: str) -> list[Run]:
    """Cancel the attempts of all nodes but these, and return the child runs that end with them."""
    cut: list[Run] = []
    for task in live_tasks(turn.state, run):
        if task.step.index not in but:
            if task.worker is not None:
                turn.effects.append(CancelAttempt(task.worker.number, task.number, task.attempt))
            cut += left_behind(turn, task, reason)
    return cut


def _stop_children(turn: TickContext, children: list[Run], reason: str) -> None:
    for child in children:
        if not _is_tearing_down(child):
            stop_run(turn, child, RunTrigger.CANCEL, reason)


def _must_tear_down(state: State, run: Run) -> bool:
    """Whether the end of this run waits for teardowns, here or below it."""
    if _is_tearing_down(run) or run.state in (RunState.PENDING, RunState.FAILED):
        return False
    if any(_is_set_up(run, step) for step in run.plan.teardowns):
        return True
    return bool(run.fanning) and bool(_kept_for_children(state, run, list(run.plan.steps)))


def is_cut_short(run: Run, step: Step) -> bool:
    """Whether this node, of those that go on, does so only until its child runs have torn down."""
    if run.ending is not None:
        return step.tears_down < 0
    return bool(run.overdue) and not step.cleans_up


def _is_set_up(run: Run, teardown: Step) -> bool:
    phases = run.phases
    return phases[teardown.tears_down] == Phase.SUCCEEDED and phases[teardown.index] not in ENDED


def _is_tearing_down(run: Run) -> bool:
    return run.ending is not None or bool(run.overdue)


def _kept_for_children(state: State, run: Run, steps: list[Step]) -> list[Task]:
    """The nodes among these that wait until child runs of theirs have torn down."""
    indexes = {step.index for step in steps}
    return [
        task
        for _, task in sorted((run.fanning or {}).items(), key=lambda pair: pair[0])
        if task.step.index in indexes and not task.step.durable and not _abandons(task)
        and any(_is_tearing_down(child) or _must_tear_down(state, child) for child in child_runs(state, task))
    ]  # fmt: skip


def _abandons(task: Task) -> bool:
    return getattr((task.step.body or task.step).node, "on_cancel", "cancel") != "cancel"


def left_behind(turn: TickContext, task: Task, reason: str) -> list[Run]:
    """The child runs that end with this task. Those that are to go on by themselves have no parent from here on."""
    children = child_runs(turn.state, task)
    if not _abandons(task):
        return released(turn, children, reason)
    for child in children:
        turn.emit(RunDetached(child.number))
    return []


def released(turn: TickContext, children: list[Run], reason: str) -> list[Run]:
    """Those of these child runs that end at once, where nothing waits for the others: they tear down by themselves."""
    at_once: list[Run] = []
    for child in children:
        if _must_tear_down(turn.state, child):
            turn.emit(RunDetached(child.number))
            stop_run(turn, child, RunTrigger.CANCEL, reason)
        else:
            at_once.append(child)
    return at_once


def called_runs(state: State, task: Task) -> list[Run]:
    """Return the child runs of a function, in the order of their calls."""
    if task.history is None:
        return []
    awaits = task.history.awaits
    return [state.runs[awaits[position].child] for position in sorted(awaits) if awaits[position].child]


def child_runs(state: State, task: Task) -> list[Run]:
    if task.step.durable:
        return called_runs(state, task)
    body = task.step if task.step.kind is Kind.WORKFLOW else task.step.body
    if task.fan is None or body is None or body.kind is not Kind.WORKFLOW:
        return []
    return [state.runs[number] for _, number in sorted(task.fan.live.items())]


def end_calls(turn: TickContext, calls: list[Run], reason: str) -> None:
    """Cancel calls of a function that ends or abandons them: their results have no receiver."""
    for child in released(turn, calls, reason):
        end_run(turn, child, RunTrigger.CANCEL, reason)


def alert(turn: TickContext, kind: str, run: Run, detail: str) -> None:
    """Add an alert about a run. For a child run, it names the run at the top and the nodes that lead to it. So the
    children of a map that fail alike give the same alert, and equal alerts are counted."""
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
    if run.ending is not None:
        trigger, why = run.ending
        end_run(turn, run, RunTrigger(trigger), f"{why}; its clean-up took too long")
        return
    kept = _kept_for_children(state, run, [step for step in steps if not step.cleans_up])
    left = kept or any(step.cleans_up and run.phases[step.index] not in ENDED for step in steps)
    if run.overdue or not left:
        end_run(turn, run, RunTrigger.TIME_OUT, TOOK_TOO_LONG)
        return
    timeout_ms = run_timeout_ms(run)
    assert timeout_ms is not None, "only a limit sets the timer"
    going_on = [child for task in kept for child in child_runs(state, task)]
    why = f"its parent ended: {TOOK_TOO_LONG}"
    others = [*(step.index for step in steps if step.cleans_up), *(task.step.index for task in kept)]
    cut = _stop_tasks(turn, run, others, why)
    until = state.tick + state.settings.clock.ticks(clean_up_ms(timeout_ms))
    turn.emit(RunOverdue(run.number, until, tuple(task.step.index for task in kept)))
    for child in cut:
        end_run(turn, child, RunTrigger.CANCEL, why)
    _stop_children(turn, going_on, why)
    if run.state == PAUSED:  # the limit holds while a run is paused, so its clean-up does not wait either
        resume_run(turn, run, f"{TOOK_TOO_LONG}: its clean-up starts")


def clean_up_ms(timeout_ms: int) -> int:
    """How long the clean-up of a run that timed out may take: as long as the run itself, within bounds."""
    return min(max(timeout_ms, CLEAN_UP_MS_MIN), CLEAN_UP_MS_MAX)


WITH_PARENT = "its parent is paused"


def pause_run(turn: TickContext, run: Run, reason: str, *, position: int = -1, until: int = 0) -> None:
    """Pause a run and the runs below it; those come back with it, unless they were paused themselves."""
    turn.emit(RunMoved(run.number, RunTrigger.PAUSE, reason, position, until))
    line = runs_below(turn.state, run)
    for child in line:  # grows while it is walked
        if may_move(child.state, RunTrigger.PAUSE):
            turn.emit(RunMoved(child.number, RunTrigger.PAUSE, WITH_PARENT, position))
        line.extend(runs_below(turn.state, child))


def resume_run(turn: TickContext, run: Run, reason: str = "", *, position: int = -1) -> None:
    line = [(run, reason)]
    for paused, why in line:  # grows while it is walked
        turn.emit(RunMoved(paused.number, RunTrigger.RESUME, why, position))
        below = runs_below(turn.state, paused)
        with_it = (child for child in below if child.state == PAUSED and child.pause_reason == WITH_PARENT)
        line.extend((child, "its parent goes on") for child in with_it)


def runs_below(state: State, run: Run) -> list[Run]:
    fans = sorted((run.fanning or {}).items(), key=lambda pair: pair[0])
    return [child for _, task in fans for child in child_runs(state, task)]
