"""Inputs about schedules, holidays, and backfills."""

from tickwork.core.base.values import Value
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state.inputs.base import InputStruct, KnownRun
from tickwork.core.state.schedule import GovernorLimits
from tickwork.core.state.schedule import SchedulePolicy as ScheduleTerms


class PutSchedule(InputStruct, frozen=True, tag=6):
    by: str
    tenant: str
    schedule: str
    workflow: str
    when: ScheduleSpec
    terms: ScheduleTerms = ScheduleTerms()
    inputs: Value = None
    context: Value = None
    governing: GovernorLimits | None = None
    owner: str = ""  # the application that declares it in code; "": made at run time
    description: str = ""
    new: bool = False  # refused where there is one of this name


class RemoveSchedule(InputStruct, frozen=True, tag=7):
    by: str
    tenant: str
    schedule: str


class ApplySchedules(InputStruct, frozen=True, tag=30):
    """A whole set, all or none. What this owner had and the set lacks is removed."""

    by: str
    tenant: str
    owner: str
    puts: list[PutSchedule]


class PutHolidays(InputStruct, frozen=True, tag=31):
    """A named list of dates (YYYY-MM-DD) that calendars of this tenant may name. None: the list goes."""

    by: str
    tenant: str
    name: str
    dates: tuple[str, ...] | None


class Advise(InputStruct, frozen=True, tag=32):
    """Hints to the Governor. Given ones replace those of their kind; `clear` drops what was there before."""

    by: str
    tenant: str
    schedule: str
    interval_ms: int | None = None
    at_ms: int | None = None
    ttl_ms: int = 3_600_000
    reason: str = ""
    cost: int = 0
    clear: bool = False


class Trigger(InputStruct, frozen=True, tag=33):
    """One run now, beside whatever is due. A test touches nothing of the schedule."""

    by: str
    tenant: str
    schedule: str
    test: bool = False
    key: str = ""  # repeated under it, a trigger begins nothing more
    known: KnownRun | None = None


class SteerSchedule(InputStruct, frozen=True, tag=34):
    """Deed is archive, restore or reset_failures."""

    by: str
    tenant: str
    schedule: str
    deed: str


class Backfill(InputStruct, frozen=True, tag=35):
    """Runs for the occurrences from `from_ms` on and before `to_ms`, a few at a time."""

    by: str
    tenant: str
    schedule: str
    from_ms: int
    to_ms: int
    concurrency: int = 10
    priority: int | None = None
    newest_first: bool = False
    forced: bool = False  # also those that ran before


class SteerBackfill(InputStruct, frozen=True, tag=36):
    """Deed is pause, resume or cancel."""

    by: str
    tenant: str
    backfill: int
    deed: str


class RunsKnown(InputStruct, frozen=True, tag=37):
    """A fact: of the occurrences that a `FindRuns` effect asked for, these have run before."""

    backfill: int
    known: tuple[int, ...]


class NewZones(InputStruct, frozen=True, tag=38):
    """A fact: this owner knows other time zones than the one before it. Next times are computed again."""

    version: str


class ChooseCatchUp(InputStruct, frozen=True, tag=44):
    """Whatever is late now is caught up with by this policy, once, instead of by each schedule's own."""

    by: str
    policy: str
    length_ms: int = 0  # of window and spread
