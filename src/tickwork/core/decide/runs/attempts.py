"""Attempts that did not succeed: another attempt, or the end of the task."""

from tickwork.core.decide.runs.run_end import alert_dead_letter, called_runs, end_calls
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.evolve.worker_pools import handler_of, others_may_have
from tickwork.core.state.events import (
    TaskFailed,
    TaskRetrying,
)
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.retry import ELSEWHERE, HANDLER_MISSING, backoff_ms
from tickwork.core.state.state import State, Task, retry_of, tries_of


def fail_or_retry(
    turn: TickContext, task: Task, error: str, message: str, *, position: int = -1, permanent: bool = False,
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
        delay = backoff_ms(retry_of(task), tries_of(task), seed=seed, error=error, bases=bases)
    if delay is None:
        calls = called_runs(state, task)
        turn.emit(TaskFailed(task.number, error, message if position < 0 else "", position, True))
        end_calls(turn, calls, f"the function that called it failed: {error}")
        alert_dead_letter(turn, task, error)
        return
    settings = state.settings
    due = state.tick + max(1, settings.clock.ticks(delay))
    budget = task.run.tenant.budgets.get(task.step.requirement[4]) if task.step.requirement[4] else None
    booked = settings.clock.tick_at(budget.next_ms(settings, state.now_ms)) if budget is not None else 0
    turn.emit(TaskRetrying(task.number, max(due, booked), error, position, booked > due))


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
