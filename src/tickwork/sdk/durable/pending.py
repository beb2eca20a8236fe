"""What a durable function can await: a call by its position, a branch, and several of them together.

A pending object has an outcome once, and then never another. A coroutine that awaits it is resumed by the driver.
"""

from collections.abc import Callable, Generator
from contextvars import Context
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Location(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Pending(Generic[T]):
    """`await` gives the result or raises the error."""

    __slots__ = ("_error", "_value", "done", "listeners")

    def __init__(self) -> None:
        self.done = False
        self.listeners: list[Callable[[], None]] = []
        self._value: Any = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator["Pending[T]", None, T]:
        if not self.done:
            yield self
        return self.result()

    def result(self) -> T:
        assert self.done, "it is awaited first"
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    @property
    def error(self) -> BaseException | None:
        return self._error

    @property
    def value(self) -> Any:
        """The result where there is no error."""
        return self._value

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        if self.done:
            return
        self.done, self._value, self._error = True, value, error
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()


class Operation(Pending[Any]):
    """One call on the context, known by its position. `detail` is what is needed to carry it out, `variables` are the
    context variables of a step."""

    __slots__ = ("detail", "digest", "kind", "location", "name", "position", "variables")

    def __init__(self, position: int, kind: str, name: str, digest: str, detail: Any, location: Location) -> None:
        super().__init__()
        self.position, self.kind, self.name, self.digest = position, kind, name, digest
        self.detail, self.location = detail, location
        self.variables: Context | None = None

    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r} at {self.location}"


class Join(Pending[Any]):
    """Several pending objects. With `chosen` it is over with the first that ends, and `chosen` makes its result of
    index and value; otherwise it is over with the last, or with the first error. Those still open are then withdrawn,
    and it waits until they have ended."""

    __slots__ = ("cancel", "cancelled", "chosen", "ending", "keep_errors", "members", "open")

    def __init__(
        self,
        members: list[Pending[Any]],
        *,
        chosen: Callable[[int, Any], Any] | None = None,
        keep_errors: bool = False,
        cancel: Callable[[Pending[Any]], None],
    ) -> None:
        super().__init__()
        self.members, self.chosen, self.keep_errors = members, chosen, keep_errors
        self.cancel = cancel
        self.cancelled: list[Pending[Any]] = []
        self.open = len(members)  # members that have not ended
        self.ending: tuple[Any, BaseException | None] | None = None  # its outcome, while members are being withdrawn

    def watch(self) -> None:
        """Once, when all members are known."""
        for index, member in enumerate(self.members):
            if member.done:
                self._member_ended(index)
            else:
                member.listeners.append(partial(self._member_ended, index))
        if not self.members:
            self.settle([])

    def withdraw(self, error: BaseException) -> None:
        """Abandon it: its members are withdrawn, then it ends with this error."""
        if self.ending is not None:
            self.ending = (None, error)
        elif not self.done:
            self._end(None, error)

    def _member_ended(self, index: int) -> None:
        self.open -= 1
        if self.ending is not None:
            self._settle_when_all_ended()
            return
        member = self.members[index]
        if self.chosen is not None:
            self._end(self.chosen(index, member.value) if member.error is None else None, member.error)
        elif member.error is not None and not (self.keep_errors and isinstance(member.error, Exception)):
            self._end(None, member.error)
        elif not self.open:
            self.settle([self._kept(other) for other in self.members])

    def _kept(self, member: Pending[Any]) -> Any:
        return member.value if member.error is None else member.error

    def _end(self, value: Any, error: BaseException | None) -> None:
        self.ending = (value, error)
        self.cancelled = [member for member in self.members if not member.done]
        for member in self.cancelled:
            self.cancel(member)
        self._settle_when_all_ended()

    def _settle_when_all_ended(self) -> None:
        assert self.ending is not None
        if self.open or self.done:
            return
        value, error = self.ending
        if error is None:  # an error in the clean-up of a member must not get lost
            failures = [member.error for member in self.cancelled if isinstance(member.error, Exception)]
            error = failures[0] if failures else None
        self.settle(value, error)
