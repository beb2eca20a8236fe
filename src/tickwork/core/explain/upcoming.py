"""What is expected of schedules in the time to come, by time: for people who look ahead.

Nothing here decides anything. A preview costs little for each schedule, and one step for each time.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace

from tickwork.core.evolve.schedules import held_until_ms, is_held
from tickwork.core.state.state import Schedule

UNBOUNDED = 1 << 60


def upcoming(
    schedules: Iterable[Schedule], now_ms: int, end_ms: int, after: tuple[int, str] = (0, "")
) -> Iterator[tuple[int, str]]:
    """Every expected time before `end_ms` with the schedule's name, by (time, name); only those after `after`."""
    waiting = []
    for schedule in schedules:
        left = runs_left(schedule)
        # A limited number of runs is counted from now on, however far ahead the view begins.
        first_ms = expected_ms(schedule, now_ms if left < UNBOUNDED else max(now_ms, after[0]))
        if 0 < first_ms < end_ms:
            waiting.append((first_ms, schedule.name, left, schedule))
    heapify(waiting)
    while waiting:
        at_ms, name, left, schedule = waiting[0]
        if (at_ms, name) > after:
            yield at_ms, name
        next_ms = _after_ms(schedule, at_ms) if left > 1 else 0
        if 0 < next_ms < end_ms:
            heapreplace(waiting, (next_ms, name, left - 1, schedule))
        else:
            heappop(waiting)


def expected_ms(schedule: Schedule, from_ms: int) -> int:
    """The first time from here on at which it is expected to fire; 0: none, as things stand."""
    if not schedule.next_ms or runs_left(schedule) < 1:
        return 0
    if is_held(schedule):
        until_ms = held_until_ms(schedule)
        if not until_ms:
            return 0
        from_ms = max(from_ms, until_ms)  # the time at which a pause ends is no part of it
    if from_ms <= schedule.next_ms:
        return schedule.next_ms
    return _after_ms(schedule, from_ms - 1)


def runs_left(schedule: Schedule) -> int:
    return left_of(schedule.terms.runs_max, schedule)


def left_of(runs_max: int, schedule: Schedule | None) -> int:
    """How many runs it may still have, where `runs_max` (0: no end) is the most."""
    if not runs_max:
        return UNBOUNDED
    return max(0, runs_max - (schedule.fired + len(schedule.buffer) if schedule is not None else 0))


def _after_ms(schedule: Schedule, at_ms: int) -> int:
    """An endpoint's times after the next one depend on results that are not known yet."""
    if schedule.governing is not None or schedule.rhythm is None:
        return 0
    return schedule.rhythm.next_ms(at_ms) or 0
