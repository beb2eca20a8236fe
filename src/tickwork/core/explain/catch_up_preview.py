"""What is late, and what a policy makes of it: for people who look before they choose.

Nothing here decides anything. The machine decides by the same `catch_up`, at its own moment.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.calendar.recurrence import Recurrence
from tickwork.core.decide.schedules.schedule_firing import catch_up, own_policy
from tickwork.core.evolve.schedules import held_until_ms, is_held, waits_for_past
from tickwork.core.explain.upcoming import runs_left
from tickwork.core.state.events import CatchUpDecided
from tickwork.core.state.schedule import CATCH_UPS, SPAN_MS_MAX
from tickwork.core.state.state import Schedule, Tenant

COUNTED_MAX = 1_000_000
WITH_LENGTH = ("window", "spread")


class CatchUpPreview(NamedTuple):
    """`late` are due and have no fate; `runs` of them would run, from `first_ms` on."""

    schedule: Schedule
    policy: str
    plan: CatchUpDecided
    from_ms: int
    late: int
    runs: int
    first_ms: int
    limit: str  # why not all run that the policy lets through: they would be in each other's way
    paused: bool  # nothing of this happens before the schedule is resumed


def read_policy(text: str, *, path: str = "policy") -> tuple[str, int]:
    """`all`, `last`, `none`, `coalesce`, `window:6h` or `spread:30m`."""
    policy, mark, length = text.partition(":")
    if policy not in CATCH_UPS:
        known = ", ".join(f"{name}:LENGTH" if name in WITH_LENGTH else name for name in CATCH_UPS)
        raise Refused("bad_catch_up", f"{text[:40]!r} is no way to catch up; use one of {known}", path=path)
    if policy not in WITH_LENGTH:
        if mark:
            raise Refused("bad_catch_up", f"{policy} has no length; write only {policy}", path=path)
        return policy, 0
    if not length:
        raise Refused("bad_catch_up", f"{policy} needs a length, as in {policy}:6h", path=path)
    return policy, duration_ms(length, path=path, minimum_ms=1, maximum_ms=SPAN_MS_MAX)


def late_ones(tenant: Tenant, now_ms: int, policy: str = "") -> Iterator[CatchUpPreview]:
    """What is due by now and has no fate, schedule by schedule; "": by the schedules' own policies."""
    chosen = read_policy(policy) if policy else None
    for schedule in tenant.schedules.values():
        from_ms = _late_from_ms(schedule, now_ms)
        if not from_ms:
            continue
        rhythm = schedule.rhythm
        assert rhythm is not None
        paused = is_held(schedule) and not _pause_is_over(schedule, now_ms)
        name, length_ms = own_policy(schedule) if chosen is None or paused else chosen
        plan = catch_up(schedule, rhythm, now_ms, name, length_ms)
        first_ms = max(from_ms, plan.run_from_ms)
        late, runs = _count(rhythm, from_ms, plan.to_ms), _count(rhythm, first_ms, plan.to_ms)
        ended = max(0, runs - runs_left(schedule))  # what comes after its last run is no occurrence any more
        late, runs, room = late - ended, runs - ended, _room(schedule)
        limit = f"overlap {schedule.terms.overlap}" if runs > room else ""
        if limit and schedule.terms.overlap == "replace":
            first_ms = plan.to_ms
        yield CatchUpPreview(schedule, name, plan, from_ms, late, min(runs, room), first_ms, limit, paused)


def _late_from_ms(schedule: Schedule, now_ms: int) -> int:
    """The first occurrence that is late; 0: none is. One that falls into a pause is only if it is made up for."""
    if schedule.governing is not None or schedule.rhythm is None:
        return 0
    if not schedule.next_ms or schedule.next_ms + schedule.wait_ms > now_ms:
        return 0
    if schedule.terms.automatic_backfill or not is_held(schedule):
        return schedule.next_ms
    if not _pause_is_over(schedule, now_ms):
        return 0
    after_ms = schedule.rhythm.next_ms(max(schedule.next_ms, schedule.paused_until_ms) - 1) or 0
    return after_ms if after_ms <= now_ms else 0


def _pause_is_over(schedule: Schedule, now_ms: int) -> bool:
    return 0 < held_until_ms(schedule) <= now_ms


def _count(rhythm: Recurrence, from_ms: int, to_ms: int) -> int:
    return sum(1 for _ in islice(rhythm.between(from_ms, to_ms + 1), COUNTED_MAX))


def _room(schedule: Schedule) -> int:
    """How many can run to their end when all of them come at once, as late ones do."""
    terms, waiting = schedule.terms, len(schedule.buffer)
    busy = bool(schedule.active) or waits_for_past(schedule)
    match terms.overlap:
        case "forbid":
            return 0 if busy else 1
        case "replace":
            return 1
        case "buffer_one" | "buffer_all":
            most = 1 if terms.overlap == "buffer_one" else terms.buffer_max
            return max(0, most - waiting) + (not busy)
    return COUNTED_MAX
