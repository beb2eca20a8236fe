"""What follows when time comes: one rule per kind of timer.

Each rule emits an event that ends its timer, so every timer that fires does so exactly once in
the journal.
"""

from collections.abc import Callable

from tickwork.core.decide.commands.dead_letters import resolve_redriven
from tickwork.core.decide.runs.attempts import fail_or_retry
from tickwork.core.decide.runs.children import time_out_repeat
from tickwork.core.decide.runs.functions import meet_due
from tickwork.core.decide.runs.run_end import alert_dead_letter, called_runs, end_calls, resume_run, time_out
from tickwork.core.decide.schedules.backfill import look_at_backfill
from tickwork.core.decide.schedules.schedule_firing import fire
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.definition.model import ApprovalNode, EventNode
from tickwork.core.definition.plan import Kind
from tickwork.core.state.effects import Alert, CancelAttempt
from tickwork.core.state.events import (
    MessageExpired,
    RateDue,
    RateKeysSwept,
    RunDue,
    SlaReached,
    TaskDue,
    TaskFailed,
    WaitElapsed,
)
from tickwork.core.state.lifecycle import ENDED, RunState
from tickwork.core.state.state import Timer


def _run_start(turn: TickContext, number: int) -> None:
    run = turn.state.runs[number]
    turn.emit(RunDue(number))
    if run.state == RunState.FAILED:
        resolve_redriven(turn, run)


def _retry(turn: TickContext, number: int) -> None:
    turn.emit(TaskDue(number))


def _wait(turn: TickContext, number: int) -> None:
    task = turn.state.tasks[number]
    node = task.step.node
    if task.step.durable:
        meet_due(turn, task)
        return
    if isinstance(node, EventNode | ApprovalNode) and node.on_timeout == "fail":
        what = "event" if task.step.kind is Kind.EVENT else "approval"
        turn.emit(TaskFailed(number, "timeout", f"no {what} came in time"))
    else:
        turn.emit(WaitElapsed(number))


def _repeat(turn: TickContext, number: int) -> None:
    time_out_repeat(turn, turn.state.tasks[number])


def _queued(turn: TickContext, number: int) -> None:
    task = turn.state.tasks[number]
    calls = called_runs(turn.state, task)
    turn.emit(TaskFailed(number, "queued_timeout", "no worker took it in time", -1, True))
    alert_dead_letter(turn, task, "queued_timeout")
    end_calls(turn, calls, "the function that called it failed: queued_timeout")


def _running(turn: TickContext, number: int) -> None:
    _stop(turn, number, "Timeout", "the attempt took too long")


def _silent(turn: TickContext, number: int) -> None:
    _stop(turn, number, "Silent", "the attempt reported nothing for too long")


def _stop(turn: TickContext, number: int, error: str, message: str) -> None:
    task = turn.state.tasks[number]
    assert task.worker is not None
    turn.effects.append(CancelAttempt(task.worker.number, number, task.attempt))
    fail_or_retry(turn, task, error, message, bases=("TimeoutError",))


def _run_timeout(turn: TickContext, number: int) -> None:
    time_out(turn, turn.state.runs[number])


def _run_resume(turn: TickContext, number: int) -> None:
    resume_run(turn, turn.state.runs[number], "the pause is over")


def _sla(turn: TickContext, number: int) -> None:
    run = turn.state.runs[number]
    point = run.sla_next
    after_ms, breach, node = run.plan.sla_points[point]
    late = node < 0 or run.phases[node] not in ENDED
    turn.emit(SlaReached(number, point, late))
    if late:
        what = run.id if node < 0 else f"{run.id}/{run.plan.steps[node].id}"
        kind = "sla_breach" if breach else "sla_warning"
        turn.effects.append(Alert(kind, run.tenant.id, what, f"{after_ms} ms after it was due"))


def _message(turn: TickContext, number: int) -> None:
    turn.emit(MessageExpired(number))


def _rate_keys(turn: TickContext, _number: int) -> None:
    turn.emit(RateKeysSwept())


def _rate(turn: TickContext, number: int) -> None:
    turn.emit(RateDue(number))


TIMERS: dict[int, Callable[[TickContext, int], None]] = {
    Timer.RUN_START: _run_start,
    Timer.SCHEDULE: fire,
    Timer.BACKFILL: look_at_backfill,
    Timer.RETRY: _retry,
    Timer.WAIT: _wait,
    Timer.QUEUED: _queued,
    Timer.RUNNING: _running,
    Timer.SILENT: _silent,
    Timer.RUN_TIMEOUT: _run_timeout,
    Timer.RUN_RESUME: _run_resume,
    Timer.SLA: _sla,
    Timer.RATE: _rate,
    Timer.MESSAGE: _message,
    Timer.RATE_KEYS: _rate_keys,
    Timer.REPEAT: _repeat,
}
