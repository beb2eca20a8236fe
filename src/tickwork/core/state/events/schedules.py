"""Events of schedules, their occurrences, and backfills."""

from tickwork.core.state.events.base import EventStruct
from tickwork.core.state.governor import Decision, GovernorState


class SchedulePut(EventStruct, frozen=True, tag=6):
    """`item` is its index in a set; -1: it was put alone."""

    input: int
    schedule: int
    next_ms: int  # 0: none, or the Governor decides it
    item: int = -1
    wait_ms: int = 0  # jitter of the next start


class ScheduleRemoved(EventStruct, frozen=True, tag=7):
    input: int
    schedule: int


class SchedulePaused(EventStruct, frozen=True, tag=80):
    """A person paused the schedule (`input`), or its runs kept failing."""

    schedule: int
    input: int
    reason: str
    until_ms: int = 0


class ScheduleResumed(EventStruct, frozen=True, tag=81):
    schedule: int
    input: int


class ScheduleDecided(EventStruct, frozen=True, tag=82):
    """A decision of the Governor, and its state afterwards."""

    schedule: int
    course: GovernorState
    decision: Decision


class HintsChanged(EventStruct, frozen=True, tag=83):
    input: int
    schedule: int


class ScheduleStateChanged(EventStruct, frozen=True, tag=84):
    input: int
    schedule: int


class CatchUpDecided(EventStruct, frozen=True, tag=85):
    """Several occurrences up to `to_ms` are late. Those before `run_from_ms` share a fate; the others run."""

    schedule: int
    to_ms: int
    run_from_ms: int
    fate: int
    cause: str
    spread_ms: int = 0
    runs: int = 0


class OccurrencesSettled(EventStruct, frozen=True, tag=86):
    """These occurrences get no run of their own."""

    schedule: int
    from_ms: int
    to_ms: int
    count: int
    fate: int
    cause: str
    next_ms: int
    wait_ms: int = 0


class OccurrenceBuffered(EventStruct, frozen=True, tag=87):
    schedule: int
    due_ms: int
    next_ms: int
    wait_ms: int = 0


class OccurrencesCancelled(EventStruct, frozen=True, tag=88):
    """These buffered occurrences will not run."""

    schedule: int
    dues_ms: tuple[int, ...]
    cause: str


class ScheduleMoved(EventStruct, frozen=True, tag=89):
    """The next time was computed again with other zone data."""

    schedule: int
    next_ms: int
    wait_ms: int = 0


class HolidaysPut(EventStruct, frozen=True, tag=90):
    input: int


class ZonesChanged(EventStruct, frozen=True, tag=91):
    input: int


class CatchUpChosen(EventStruct, frozen=True, tag=104):
    input: int


class BackfillStarted(EventStruct, frozen=True, tag=92):
    input: int
    backfill: int
    to_ms: int  # later occurrences are left to the schedule


class BackfillStateChanged(EventStruct, frozen=True, tag=93):
    input: int


class BackfillLookupStarted(EventStruct, frozen=True, tag=94):
    """A lookup of which of these have run before has started. The cursor has moved past them."""

    backfill: int
    dues_ms: tuple[int, ...]
    cursor_ms: int


class BackfillLookupFinished(EventStruct, frozen=True, tag=95):
    input: int
    backfill: int


class BackfillEnded(EventStruct, frozen=True, tag=96):
    backfill: int


class RunEndHeard(EventStruct, frozen=True, tag=361):
    """A run that ended in this tick counts for these schedules."""

    run: int
    heard: tuple[tuple[int, int], ...]  # schedule, source


class UpdatesSettled(EventStruct, frozen=True, tag=362):
    """These updates have no run of their own."""

    schedule: int
    due_ms: int  # of the firing that they are in; 0: they are in none
    from_ms: int
    to_ms: int
    count: int
    fate: int
    cause: str
