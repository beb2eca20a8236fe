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


class PolicyRemoved(EventStruct, frozen=True, tag=320):
    input: int


class QueueRemoved(EventStruct, frozen=True, tag=321):
    input: int


class WorkflowRemoved(EventStruct, frozen=True, tag=322):
    input: int


class SettingsPut(EventStruct, frozen=True, tag=323):
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
    """The submission was accepted before. The response names that run."""

    input: int
    run_id: str
    command: int = -1  # index of the command in a result


class StaleReport(EventStruct, frozen=True, tag=12):
    """A report about an attempt that its sender no longer holds. It is recorded and counted, and has no effect."""

    input: int


class ClockGapRecorded(EventStruct, frozen=True, tag=13):
    input: int


class TimersHeld(EventStruct, frozen=True, tag=160):
    """No timer fires until `held` is false again."""

    input: int
    held: bool


class VersionPut(EventStruct, frozen=True, tag=110):
    """A version of an application is registered, or registered again. If it is the latest, so are its definitions."""

    input: int
    version: int
    timestamp_ms: int
