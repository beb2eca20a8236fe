"""The terms of a schedule: what is wrong with them by themselves, whatever else there is.

Apart from the rules of schedules, because whoever declares one checks this too, and needs nothing of the machine.
"""

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN
from tickwork.core.state.schedule import CATCH_UPS, OVERLAPS, SPAN_MS_MAX, SchedulePolicy

CAP_MAX = 100_000
BUFFER_MAX = 10_000


def check_terms(terms: SchedulePolicy) -> None:
    """Raises `Refused` with the field."""
    if terms.overlap not in OVERLAPS:
        raise Refused("bad_overlap", f"overlap is one of {', '.join(OVERLAPS)}", path="overlap")
    if terms.catch_up not in CATCH_UPS:
        raise Refused("bad_catch_up", f"catch_up is one of {', '.join(CATCH_UPS)}", path="catch_up")
    if terms.group:
        check_name(terms.group, path="group", kind="group")
    needs_length = terms.catch_up in ("window", "spread")
    if needs_length != (terms.catch_up_ms > 0) or terms.catch_up_ms > SPAN_MS_MAX:
        message = "window and spread need a length of at most a year, and no other policy has one"
        raise Refused("bad_catch_up", message, path="catch_up_ms")
    if terms.automatic_backfill and terms.catch_up not in ("last", "all"):
        raise Refused("bad_catch_up", "automatic_backfill is catch_up all; give one of the two", path="catch_up")
    if terms.priority != -1 and not PRIORITY_MIN <= terms.priority <= PRIORITY_MAX:
        raise Refused("bad_priority", f"a priority is {PRIORITY_MIN} to {PRIORITY_MAX}", path="priority")
    for field, low, high in (
        ("catch_up_cap", 1, CAP_MAX),
        ("grace_ms", 0, SPAN_MS_MAX),
        ("pause_after", 0, CAP_MAX),
        ("runs_max", 0, 1 << 53),
        ("buffer_max", 1, BUFFER_MAX),
    ):
        if not low <= getattr(terms, field) <= high:
            raise Refused("bad_terms", f"{field} is {low} to {high}", path=field)
