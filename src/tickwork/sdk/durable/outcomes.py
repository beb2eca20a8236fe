"""What a durable function gets from its calls, and the errors they raise."""

from collections.abc import Callable
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
    """The run was cancelled, or this branch was abandoned. `except Exception` does not catch it."""


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


@dataclass(frozen=True, slots=True)
class FormResult:
    """What a person filled in, with the fields as attributes.

    If it was rejected, or nobody filled it in in time, they have the form's default.
    """

    values: dict[str, Any]
    by: str = ""
    comment: str = ""
    rejected: bool = False
    timed_out: bool = False

    def __getattr__(self, name: str) -> Any:
        values = object.__getattribute__(self, "values")
        if name in values:
            return values[name]
        raise AttributeError(f"the form has no field {name!r}; known: {', '.join(values) or 'none'}")

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


class Message:
    """A message that a durable function received: an event that was sent to its run, or an update, whose sender waits
    for `reply` or `refuse`. Its payload can be read like a mapping."""

    __slots__ = ("_answer", "name", "payload")

    def __init__(self, name: str, payload: Any, answer: Callable[[Any, str | None], None] | None) -> None:
        self.name = name
        self.payload = payload
        self._answer = answer

    @property
    def expects_reply(self) -> bool:
        return self._answer is not None

    def reply(self, value: Any = None) -> None:
        """The sender gets this value. An event has no sender who waits, so that nothing happens."""
        if self._answer is not None:
            self._answer(value, None)

    def refuse(self, reason: str) -> None:
        """The sender gets `UpdateRefused` with this reason."""
        if self._answer is not None:
            self._answer(None, reason)

    def __getitem__(self, name: str) -> Any:
        return self.payload[name]

    def __contains__(self, name: object) -> bool:
        return name in self.payload

    def get(self, name: str, default: Any = None) -> Any:
        return self.payload.get(name, default)

    def __repr__(self) -> str:
        return f"<message {self.name} {self.payload!r}>"


class ContinueAsNew(BaseException):
    """Leaves the function; it begins again with these inputs (MessagePack map) and an empty history."""

    def __init__(self, inputs: bytes, names: dict[str, Any]) -> None:
        super().__init__("the function continues as new")
        self.inputs, self.names = inputs, names
