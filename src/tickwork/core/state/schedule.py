"""The settings of a schedule and the record of its occurrences: values without rules.

An occurrence is a time at which a schedule was expected to fire. It ends in exactly one fate, and fates are
kept as ranges, because most neighbours share one.
"""

from enum import IntEnum
from typing import Literal

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.definition.model import PRIORITY_MAX, PRIORITY_MIN
from tickwork.core.definition.run_labels import check_tags

Overlap = Literal["allow", "forbid", "replace", "buffer_one", "buffer_all"]
CatchUp = Literal["none", "last", "all", "window", "coalesce", "spread"]

OVERLAPS: tuple[Overlap, ...] = ("allow", "forbid", "replace", "buffer_one", "buffer_all")
SPAN_MS_MAX = 366 * 86_400_000
CATCH_UPS: tuple[CatchUp, ...] = ("none", "last", "all", "window", "coalesce", "spread")


class Fate(IntEnum):
    """How an expected occurrence ended. Never renumber: rows hold these."""

    RAN = 1
    COALESCED = 2  # one run stands for it and others
    SKIPPED = 3  # by a policy that a person chose
    MISSED = 4  # it should have run, and could not
    CANCELLED = 5  # it waited for its turn, and its schedule went


class SchedulePolicy(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The policies of a schedule. Most schedules have the same few, so equal ones are one object in memory."""

    queue: str = ""  # for nodes that name none; "": the default queue
    overlap: Overlap = "allow"
    catch_up: CatchUp = "last"
    catch_up_ms: int = 0  # of `window`: how far back; of `spread`: over how long
    catch_up_cap: int = 1_000  # late occurrences that may run; older ones are skipped
    grace_ms: int = 60_000  # an occurrence this late is still on time
    jitter: bool = False
    pause_after: int = 0  # failed runs in a row; 0: never
    priority: int = -1  # -1: as the nodes say
    automatic_backfill: bool = False  # catch up on everything since it last fired, paused time included
    runs_max: int = 0  # 0: no end
    buffer_max: int = 100  # of `buffer_all`
    group: str = ""
    time_input: str = "scheduled_time"  # which input gets the nominal time, where the workflow has it
    context_input: str = "context"
    depends_on_past: bool = False  # an occurrence waits until the run before it has not failed
    tags: tuple[str, ...] = ()  # of its runs, beside those of the workflow
    version: str = ""  # `application@version` to which its runs are pinned; "": they carry the latest


class GovernorLimits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The next time is the Governor's decision, taken when a run has ended. Hard limits for it."""

    min_ms: int | None = None
    max_ms: int | None = None


class HintOrigin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Who put the hints that a course has, why, and what the advice itself did cost."""

    by: str
    reason: str = ""
    cost: int = 0  # in whatever the adviser counts


class CatchUpPlan(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Occurrences that are due and late: those before `run_from_ms` have one fate, the others run one by one."""

    to_ms: int  # the last of them
    run_from_ms: int
    fate: int
    cause: str
    base_ms: int = 0  # starts are spread from here on …
    spread_ms: int = 0  # … over so long …
    runs: int = 0  # … among so many
    run: int = 0  # of which this is the next


class CatchUpChoice(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How to catch up with what was late at one moment, whatever the schedules themselves say."""

    policy: CatchUp
    length_ms: int  # of `window` and `spread`
    at_ms: int  # that moment


class FateRange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Neighbouring occurrences of one version of a schedule that share a fate."""

    tenant: str
    name: str
    schedule: int
    version: int
    from_ms: int
    to_ms: int
    count: int
    fate: int
    cause: str
    backfill: int = 0  # whose runs these are; they are counted apart from what was expected


# ---- The terms of a schedule: what is wrong with them by themselves, whatever else there is.


CAP_MAX = 100_000
BUFFER_MAX = 10_000


def check_terms(terms: SchedulePolicy) -> None:
    """Raises `Refused` with the field."""
    if terms.overlap not in OVERLAPS:
        raise Refused("bad_overlap", f"overlap is one of {', '.join(OVERLAPS)}", path="overlap")
    if terms.catch_up not in CATCH_UPS:
        raise Refused("bad_catch_up", f"catch_up is one of {', '.join(CATCH_UPS)}", path="catch_up")
    if terms.depends_on_past and terms.overlap not in ("buffer_all", "buffer_one", "forbid"):
        message = "depends_on_past needs an overlap by which occurrences wait (buffer_all, buffer_one) or are left out"
        raise Refused("bad_overlap", f"{message} (forbid), not {terms.overlap}", path="overlap")
    check_tags(terms.tags, path="tags")
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
