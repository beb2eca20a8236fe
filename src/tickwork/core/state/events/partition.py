"""Events of a whole partition: definitions, limits, versions, pauses, held timers, and inputs without effect."""

from tickwork.core.state.events.base import EventStruct


class DefinitionPut(EventStruct, frozen=True, tag=1):
    input: int
    hash: str


class TenantPut(EventStruct, frozen=True, tag=2):
    input: int


class QueuePut(EventStruct, frozen=True, tag=3):
    input: int


class LabelLimitPut(EventStruct, frozen=True, tag=4):
    input: int


class PolicyPut(EventStruct, frozen=True, tag=5):
    input: int


class ScopePaused(EventStruct, frozen=True, tag=8):
    input: int


class ScopeResumed(EventStruct, frozen=True, tag=9):
    input: int


class InputRefused(EventStruct, frozen=True, tag=10):
    input: int
    code: str
    message: str


class Duplicate(EventStruct, frozen=True, tag=11):
    """A submission that was accepted before; the answer is that run."""

    input: int
    run_id: str
    command: int = -1  # which command of a result it was


class StaleReport(EventStruct, frozen=True, tag=12):
    """A report about an attempt that is no longer its sender's: recorded, counted, ignored."""

    input: int


class ClockGapRecorded(EventStruct, frozen=True, tag=13):
    input: int


class TimersHeld(EventStruct, frozen=True, tag=160):
    """No timer fires until `held` is false again."""

    input: int
    held: bool


class VersionPut(EventStruct, frozen=True, tag=110):
    """A version of an application is known, or registered again; where it is the latest, its definitions are."""

    input: int
    version: int
    timestamp_ms: int
