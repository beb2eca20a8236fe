"""Models of schedules: requests, previews, occurrences, backfills, catch-up, hints, and lists of holidays."""

from typing import Any, Literal

from tickwork.core.state.schedule import CatchUp as CatchUpPolicy
from tickwork.core.state.schedule import Overlap
from tickwork.protocol.http_models.base import Model, RequestModel


class Fates(Model, frozen=True, kw_only=True):
    """How many occurrences ended how."""

    ran: int = 0
    coalesced: int = 0
    skipped: int = 0
    missed: int = 0
    cancelled: int = 0


class Hints(Model, frozen=True, kw_only=True):
    interval: str = ""
    at: str | None = None
    expires_at: str
    reason: str = ""
    by: str = ""
    cost: int = 0


class Governed(Model, frozen=True, kw_only=True):
    """Of a schedule whose next time the Governor decides: by what, and from which candidates."""

    source: str = ""
    candidates: tuple[tuple[str, str], ...] = ()  # source, time
    min: str = ""
    max: str = ""
    failures: int = 0
    hints: Hints | None = None


class Schedule(Model, frozen=True, kw_only=True):
    name: str
    workflow: str
    expression: str
    timezone: str = "UTC"
    says: str = ""  # the expression in words
    description: str = ""
    owner: str = ""  # the application that declares it in code
    queue: str = ""
    overlap: str = "allow"
    catch_up: str = "last"
    automatic_backfill: bool = False
    jitter: bool = False
    group: str = ""
    paused: bool = False
    archived: bool = False
    pause_reason: str = ""
    paused_until: str | None = None
    next_at: str | None = None
    starts_at: str | None = None  # with its jitter, where that is later
    last_fired_at: str | None = None
    last_success_at: str | None = None
    fired: int = 0
    failures: int = 0
    active: int = 0
    buffered: int = 0
    fates: Fates = Fates()
    governed: Governed | None = None
    broken: str = ""
    request: "ScheduleRequest | None" = None  # the request; of a schedule that is shown alone
    etag: str = ""  # for `If-Match`; of a schedule that is shown alone
    held: str = ""  # why nothing of it may start now, though it is not paused
    updates: "ScheduleUpdates | None" = None  # of one that listens to updates


class ScheduleUpdates(Model, frozen=True, kw_only=True):
    """What a schedule has heard of the updates that it listens to."""

    count: int = 0  # of all updates so far
    waiting: int = 0  # updates without a fate
    missing: tuple[str, ...] = ()  # what has to come before it fires; of a trigger with alternatives, of the nearest
    last_at: str | None = None


class Schedules(Model, frozen=True, kw_only=True):
    schedules: tuple[Schedule, ...]
    next: str | None = None  # cursor of the next page


class Time(Model, frozen=True, kw_only=True):
    utc: str
    local: str


class ScheduleWarning(Model, frozen=True, kw_only=True):
    code: str
    text: str


class SchedulePreview(Model, frozen=True, kw_only=True):
    """What a schedule will do: in words, its next times, and what looks like a mistake."""

    says: str
    next: tuple[Time, ...] = ()
    warnings: tuple[ScheduleWarning, ...] = ()
    tzdata: str = ""


class Occurrence(Model, frozen=True, kw_only=True):
    """Neighbouring occurrences with one fate."""

    schedule: str
    from_at: str
    to_at: str
    count: int
    fate: str
    cause: str = ""
    backfill: int | None = None


class Occurrences(Model, frozen=True, kw_only=True):
    occurrences: tuple[Occurrence, ...]
    next: str | None = None  # there are more: `start` of the next page, which has the last of this one again


class Due(Model, frozen=True, kw_only=True):
    """A time at which a schedule is expected to fire."""

    schedule: str
    utc: str
    local: str


class Upcoming(Model, frozen=True, kw_only=True):
    occurrences: tuple[Due, ...]
    next: str | None = None  # where the next page begins; none: this is all of it


class ZoneNames(Model, frozen=True, kw_only=True):
    """The time zones that a schedule may name, and the version of their data."""

    zones: tuple[str, ...]
    tzdata: str


class Triggered(Model, frozen=True, kw_only=True):
    run_id: str


class Backfill(Model, frozen=True, kw_only=True):
    number: int
    schedule: str
    state: str  # active, paused, done, cancelled
    start: str
    end: str
    by: str = ""
    forced: bool = False
    newest_first: bool = False
    concurrency: int = 10
    started: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    known: int = 0  # had run before
    position: str | None = None  # how far it has come
    # Of a new one: all that it may begin, as far as they fit. Of a preview: those among them that have not run yet.
    run_ids: tuple[str, ...] = ()
    count: int = 0  # of a preview or a new one: how many occurrences its window has
    more: bool = False  # there are more than `count`


class Backfills(Model, frozen=True, kw_only=True):
    backfills: tuple[Backfill, ...]


class CatchUp(Model, frozen=True, kw_only=True):
    """What is late with one schedule, and what its policy will make of it."""

    schedule: str
    policy: str
    late_since: str
    late: int
    runs: int
    passed: int
    fate: str = ""
    cause: str = ""
    first_run_at: str | None = None
    spread: str = ""
    limit: str = ""  # what lets fewer run than the policy does: they would overlap
    paused: bool = False  # nothing of this happens before it is resumed


class CatchUps(Model, frozen=True, kw_only=True):
    schedules: tuple[CatchUp, ...]


class Holidays(Model, frozen=True, kw_only=True):
    lists: dict[str, tuple[str, ...]] = {}


class GovernorRequest(RequestModel, frozen=True, kw_only=True):
    """Hard limits for the Governor; "": none."""

    min: str = ""
    max: str = ""


class TriggerSource(RequestModel, frozen=True, kw_only=True):
    """What a schedule listens to: events of a name, the ends of runs of a workflow, or new data of an asset."""

    event: str = ""
    ended: str = ""  # a workflow
    key: str = ""  # only events with this key
    where: str = ""  # only events for which this CEL condition over `event` and `key` holds
    state: Literal["completed", "failed", "cancelled", "any"] = "completed"  # of the run that ended
    asset: str = ""


class ScheduleRequest(RequestModel, frozen=True, kw_only=True):
    """One of cron, every, at and rrule says when, or `listen_to`, or both."""

    workflow: str
    cron: str = ""
    every: str = ""  # 5m, PT5M
    at: str = ""  # one instant
    rrule: str = ""
    anchor: str = ""  # where an interval or a rule counts from
    timezone: str = "UTC"
    dst_gap: Literal["auto", "shift", "skip", "end"] = "auto"
    dst_overlap: Literal["auto", "first", "second", "both"] = "auto"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    business_days: bool = False
    holidays: tuple[str, ...] = ()
    start: str = ""
    end: str = ""
    max_runs: int = 0
    inputs: dict[str, Any] = {}
    context: Any = None
    time_input: str = "scheduled_time"
    context_input: str = "context"
    queue: str = ""
    priority: int | None = None
    overlap: Overlap = "allow"
    buffer: int = 100
    catch_up: CatchUpPolicy = "last"
    catch_up_window: str = ""  # of window: how far back; of spread: over how long
    catch_up_cap: int = 1_000
    grace: str = "1m"
    automatic_backfill: bool = False
    jitter: bool = False
    pause_after: int = 0
    group: str = ""
    description: str = ""
    governor: GovernorRequest | None = None
    depends_on_past: bool = False  # an occurrence waits until the run before it has not failed
    tags: tuple[str, ...] = ()  # of its runs, beside those of the workflow
    # Updates that start a run: any of these; of a list in it, all.
    listen_to: tuple[TriggerSource | tuple[TriggerSource, ...], ...] = ()
    updates: Literal["auto", "each", "coalesce"] = "auto"  # those that wait start a run each, or one together
    version: str = ""  # of its application: runs are pinned to it; "": they carry the latest


class PreviewRequest(ScheduleRequest, frozen=True, kw_only=True):
    name: str = ""  # of the schedule that this would be: `H` in its expression stands for times of its own


class ScheduleSet(RequestModel, frozen=True, kw_only=True):
    """All schedules of an owner: what it had and the set lacks is removed."""

    owner: str
    schedules: dict[str, ScheduleRequest] = {}
    dry_run: bool = False  # only say whether it could be applied, and what of it is there already


class HintRequest(RequestModel, frozen=True, kw_only=True):
    """Advice to the Governor: an interval, one time, or both."""

    interval: str = ""
    at: str = ""
    ttl: str = ""  # "": an hour; of one for a time, an hour after it
    reason: str = ""
    cost: int = 0  # in whatever the adviser counts


class BackfillRequest(RequestModel, frozen=True, kw_only=True):
    """From `start` up to `end`: instants, or dates and times on the clock of the schedule's zone."""

    start: str
    end: str
    concurrency: int = 10
    priority: int | None = None
    newest_first: bool = False
    forced: bool = False
    preview: bool = False


class HolidaysRequest(RequestModel, frozen=True, kw_only=True):
    dates: tuple[str, ...]
