"""Ids of the runs that a partition starts itself, and the text that names the task that started a run."""

from functools import lru_cache

from tickwork.core.calendar.durations import instant_text
from tickwork.core.state.state import Backfill, Task

SUBMITTED = "submit"  # the source of runs that nothing here started


@lru_cache(64)  # needed several times while a run starts
def occurrence_id(name: str, due_ms: int) -> str:
    """Return the schedule's name with the nominal time in UTC, so that an occurrence cannot start twice."""
    return f"sched-{name}-{instant_text(due_ms)}"


def backfill_run_id(backfill: Backfill, due_ms: int) -> str:
    run_id = f"sched-{backfill.schedule.name}-{instant_text(due_ms)}"
    return f"{run_id}-again-{backfill.number}" if backfill.forced else run_id


def child_id(task: Task, child: int, number: int) -> str:
    """Return an id that is new even if a resolved parent starts the same child again: `number` is that of the run."""
    return f"{task.run.id}.{task.step.id}.{child}.{number}"


def follow_up_id(run_id: str, cause: str, number: int) -> str:
    """Return an id that is new even if a retried run fails again: `number` is that of the follow-up."""
    return f"{run_id}.on_{'success' if cause == 'completed' else 'failure'}.{number}"


def task_name(task: Task) -> str:
    node = task.run.plan.steps[task.step.index].id
    return f"task {node}{f'[{task.child}]' if task.parent else ''} of {task.run.id}"
