"""Inputs about schedules, holidays, backfills, and versions of applications, which declare schedules."""

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
    """Replace all schedules of an owner: all of them or none. Its schedules that are not in `puts` are removed."""

    by: str
    tenant: str
    owner: str
    puts: list[PutSchedule]


class PutHolidays(InputStruct, frozen=True, tag=31):
    """A named list of dates (YYYY-MM-DD) for calendars of this tenant. `None` removes the list."""

    by: str
    tenant: str
    name: str
    dates: tuple[str, ...] | None


class Advise(InputStruct, frozen=True, tag=32):
    """Hints to the Governor. A hint replaces the previous one of its kind; `clear` drops all previous hints."""

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
    """Start one run now, in addition to the occurrences that are due. A test run does not change the schedule."""

    by: str
    tenant: str
    schedule: str
    test: bool = False
    key: str = ""  # idempotency key: a repeated trigger starts nothing
    known: KnownRun | None = None


class SteerSchedule(InputStruct, frozen=True, tag=34):
    """Change the state of a schedule. `action` is archive, restore or reset_failures."""

    by: str
    tenant: str
    schedule: str
    action: str


class Backfill(InputStruct, frozen=True, tag=35):
    """Start runs for the occurrences from `from_ms` up to, but not including, `to_ms`; `concurrency` at a time."""

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
    """Change the state of a backfill. `action` is pause, resume or cancel."""

    by: str
    tenant: str
    backfill: int
    action: str


class RunsKnown(InputStruct, frozen=True, tag=37):
    """A fact, the result of a `FindRuns` effect: these occurrences have run before."""

    backfill: int
    known: tuple[int, ...]


class NewZones(InputStruct, frozen=True, tag=38):
    """A fact: this owner has other time-zone data than the previous owner. Next times are computed again."""

    version: str


class ChooseCatchUp(InputStruct, frozen=True, tag=44):
    """Catch up once by this policy, instead of by the policy of each schedule, with all that is late now."""

    by: str
    policy: str
    length_ms: int = 0  # of window and spread


class RegisterVersion(InputStruct, frozen=True, tag=50):
    """A version of an application has started. Its definitions are put before; `puts` are its schedules."""

    by: str
    tenant: str
    application: str
    version: str
    workflows: dict[str, str]  # name to hash
    puts: list[PutSchedule]
    latest: bool = False  # makes it the latest version, even if it was registered before
    carried: bool = False  # by scheduled runs of its workflows, while it is the latest; early journals do not have it


class SetLatestVersion(InputStruct, frozen=True, tag=51):
    """Make a registered version the latest. `puts` are the schedules that it declares, as stored."""

    by: str
    tenant: str
    application: str
    version: str
    puts: list[PutSchedule]
