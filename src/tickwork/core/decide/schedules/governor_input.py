"""The state of a governed schedule: the input of its Governor.

The schedule's own fields are the truth about baseline, limits and pause; hints and failures live in the course.
"""

import msgspec

from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state.governor import Decision, GovernorState, after_run, consumed, decide
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.schedule import GovernorLimits
from tickwork.core.state.state import Schedule


def first_course(when: ScheduleSpec, governing: GovernorLimits) -> GovernorState:
    return GovernorState(interval_ms=when.every_ms, min_ms=governing.min_ms, max_ms=governing.max_ms)


def governor_state_of(schedule: Schedule) -> GovernorState:
    """As the schedule stands now."""
    assert schedule.governing is not None
    fresh = first_course(schedule.when, schedule.governing)
    paused_until_ms = schedule.paused_until_ms if schedule.paused and schedule.paused_until_ms else None
    return msgspec.structs.replace(
        schedule.course or fresh,
        interval_ms=fresh.interval_ms,
        min_ms=fresh.min_ms,
        max_ms=fresh.max_ms,
        failures=schedule.failures,
        paused_until_ms=paused_until_ms,
    )


def next_decision(schedule: Schedule, now_ms: int) -> tuple[GovernorState, Decision]:
    """After a run, the Governor gets its outcome; otherwise it only decides again."""
    course, rhythm = governor_state_of(schedule), cron_of(schedule)
    if schedule.ended in (RunState.COMPLETED, RunState.FAILED):
        return after_run(
            course,
            rhythm,
            started_ms=schedule.begun_ms,
            now_ms=now_ms,
            succeeded=schedule.ended == RunState.COMPLETED,
        )
    if schedule.ended:  # cancelled: neither a success nor a failure, but its one-shot is used up
        course = consumed(course, schedule.begun_ms)
        return course, decide(now_ms, course, rhythm, started_ms=schedule.begun_ms)
    return course, decide(now_ms, course, rhythm)


def cron_of(schedule: Schedule) -> Recurrence | None:
    return None if schedule.when.every_ms is not None else schedule.rhythm
