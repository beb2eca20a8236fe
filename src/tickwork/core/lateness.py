"""What is late, and what a policy makes of it: for people who look before they choose.

Nothing here decides anything. The machine decides by the same `catch_up`, at its own moment.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from tickwork.core.errors import Refused
from tickwork.core.events import CatchUpDecided
from tickwork.core.evolve.schedules import is_held
from tickwork.core.model import Schedule, Tenant
from tickwork.core.occurrences import catch_up, own_policy
from tickwork.core.schedule import CATCH_UPS, SPAN_MS_MAX
from tickwork.core.timetext import duration_ms

COUNTED_MAX = 1_000_000
WITH_LENGTH = ("window", "spread")


class Lateness(NamedTuple):
    schedule: Schedule
    policy: str
    plan: CatchUpDecided
    late: int
    runs: int


def read_policy(text: str, *, path: str = "policy") -> tuple[str, int]:
    """`all`, `last`, `none`, `coalesce`, `window:6h` or `spread:30m`."""
    policy, mark, length = text.partition(":")
    if policy not in CATCH_UPS:
        known = ", ".join(f"{one}:LENGTH" if one in WITH_LENGTH else one for one in CATCH_UPS)
        raise Refused("bad_catch_up", f"{text[:40]!r} is no way to catch up; use one of {known}", path=path)
    if policy not in WITH_LENGTH:
        if mark:
            raise Refused("bad_catch_up", f"{policy} has no length; write only {policy}", path=path)
        return policy, 0
    if not length:
        raise Refused("bad_catch_up", f"{policy} needs a length, as in {policy}:6h", path=path)
    return policy, duration_ms(length, path=path, minimum_ms=1, maximum_ms=SPAN_MS_MAX)


def late_ones(tenant: Tenant, now_ms: int, policy: str = "") -> Iterator[Lateness]:
    """What is due by now and has no fate, schedule by schedule; "": by the schedules' own policies."""
    chosen = read_policy(policy) if policy else None
    for schedule in tenant.schedules.values():
        if not _is_late(schedule, now_ms):
            continue
        rhythm = schedule.rhythm
        assert rhythm is not None
        name, length_ms = chosen if chosen is not None and not is_held(schedule) else own_policy(schedule)
        plan = catch_up(schedule, rhythm, now_ms, name, length_ms)
        late = sum(1 for _ in islice(rhythm.between(schedule.next_ms, plan.to_ms + 1), COUNTED_MAX))
        runs = sum(1 for _ in islice(rhythm.between(plan.run_from_ms, plan.to_ms + 1), COUNTED_MAX))
        yield Lateness(schedule, name, plan, late, runs)


def _is_late(schedule: Schedule, now_ms: int) -> bool:
    if schedule.governing is not None or schedule.rhythm is None:
        return False
    if not schedule.next_ms or schedule.next_ms + schedule.wait_ms > now_ms:
        return False
    return schedule.terms.automatic_backfill or not is_held(schedule)
