"""What a durable function gets from its calls, and the errors they raise."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tickwork.core.base.errors import TickworkError

T = TypeVar("T")


class StepFailed(TickworkError):
    """A step failed for good. It is recorded, so every replay raises the same."""

    code = "step_failed"

    def __init__(self, step: str, error: str, message: str, *, position: int = -1) -> None:
        super().__init__(f"step {step!r} failed: {error}: {message}" if message else f"step {step!r} failed: {error}")
        self.step = step
        self.error = error  # name of the type
        self.message = message
        self.position = position


class CallFailed(TickworkError):
    """A task or workflow that a durable function called has failed or was cancelled."""

    code = "call_failed"

    def __init__(self, name: str, error: str, message: str, *, run_id: str = "", position: int = -1) -> None:
        super().__init__(f"call of {name!r} failed: {message or error}")
        self.name = name
        self.error = error
        self.message = message
        self.run_id = run_id  # "": it did not begin
        self.position = position


class Cancelled(BaseException):
    """The run was cancelled, or nobody waits for this branch any more. `except Exception` does not catch it."""


@dataclass(frozen=True, slots=True)
class First(Generic[T]):
    """Which of several calls ended first, and its result."""

    index: int
    name: str
    value: T


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided; true when approved."""

    approved: bool
    by: str = ""
    comment: str = ""
    timed_out: bool = False

    def __bool__(self) -> bool:
        return self.approved


class ContinueAsNew(BaseException):
    """Leaves the function; it begins again with these inputs (MessagePack map) and an empty history."""

    def __init__(self, inputs: bytes, names: dict[str, Any]) -> None:
        super().__init__("the function continues as new")
        self.inputs, self.names = inputs, names
