"""Events of durable functions."""

from tickwork.core.state.events.base import EventStruct


class StepsAppended(EventStruct, frozen=True, tag=170):
    """Steps are recorded while their attempt goes on."""

    task: int
    input: int


class FunctionSuspended(EventStruct, frozen=True, tag=171):
    """A durable function is off its worker until an await has an outcome."""

    task: int
    input: int


class StepRetrying(EventStruct, frozen=True, tag=172):
    """A step failed. `due`: the tick at which it may run again; 0: its retries are used up."""

    task: int
    input: int
    index: int  # among the steps of the report
    due: int = 0


class AwaitMet(EventStruct, frozen=True, tag=173):
    """An await has its outcome: that of an input, or without an input, a timeout."""

    task: int
    position: int
    input: int = -1
    kept: int = -1  # an event that was kept earlier, by its index in the run
    error: str = ""
    message: str = ""
    command: int = -1  # of the input: an event that a task sent with its result; as in `Duplicate`
    taken: int = 0  # the message of a mailbox, by its number


class FunctionWoken(EventStruct, frozen=True, tag=174):
    """A suspended function may resume."""

    task: int


class FunctionContinued(EventStruct, frozen=True, tag=175):
    """The function restarts with an empty history."""

    task: int
    input: int


class FunctionCancelled(EventStruct, frozen=True, tag=176):
    """The run was cancelled. The function is notified and may undo its work until tick `until`."""

    task: int
    input: int
    until: int
