"""Counters of an engine for /metrics.

Nothing is done per task: each tick is counted once, and waiting times are sampled from a few of its dispatches. Rare
events (a retry, a failure, a missed service level) are counted when they happen.
"""

from bisect import bisect_left
from collections import Counter

from tickwork.core.state.state import State, Task
from tickwork.runtime.partition.task_assignment import Assignment, ReadyAssignment

SAMPLES = 4  # of a tick; where it dispatches no more, all are read
WAIT_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)


class Histogram:
    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class EngineMetrics:
    """Since this engine started."""

    def __init__(self) -> None:
        self.waits = {"schedule": Histogram(WAIT_SECONDS), "task": Histogram(WAIT_SECONDS)}
        self.again: Counter[str] = Counter()  # attempts that ended and were not the last of their task, by how
        self.failed = 0  # tasks, for good
        self.breaches: Counter[str] = Counter()  # of service levels, by workflow

    def dispatched(self, state: State, orders: list[ReadyAssignment | Assignment], now_ms: int) -> None:
        """These are given to workers now: their tick is durable."""
        count = len(orders)
        step = -(-count // SAMPLES)
        for index in range(0, count, step):
            order = orders[index]
            task = state.tasks.get(order[1].task if isinstance(order, tuple) else order.task)
            if task is not None:
                source, since_ms = _since(state, task)
                self.waits[source].add(max(now_ms - since_ms, 0) / 1000, min(step, count - index))


def _since(state: State, task: Task) -> tuple[str, int]:
    """Return the time from which waiting counts: for a scheduled run its due time, unless the schedule delayed it
    (jitter, overlap, catch-up); otherwise the time at which the task became ready."""
    run = task.run
    if run.source != "schedule" or task.attempt > 1 or task.step.parents or task.parent:
        return "task", task.ready_ms
    made_ms = state.settings.clock.ms_of(run.submitted)
    schedule = run.tenant.schedules.get(run.schedule)
    if schedule is None or not run.scheduled_ms:
        return "schedule", made_ms
    terms = schedule.terms
    put_off = terms.jitter or terms.overlap.startswith("buffer") or made_ms - run.scheduled_ms > terms.grace_ms
    return "schedule", made_ms if put_off else run.scheduled_ms
