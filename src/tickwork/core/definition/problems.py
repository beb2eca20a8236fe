"""Problems, gathered: a document is read to its end and every finding kept, up to a bound."""

from collections.abc import Callable
from typing import TypeVar

from tickwork.core.base.errors import Problem, Refused
from tickwork.core.calendar.durations import DURATION_MS_MAX, duration_text

PROBLEMS_MAX = 50

T = TypeVar("T")


class Problems:
    """A bounded list. What no longer fits is counted, so the answer never grows with the mistake."""

    def __init__(self) -> None:
        self._listed: list[Problem] = []
        self._left_out = 0

    def __bool__(self) -> bool:
        return bool(self._listed)

    @property
    def full(self) -> bool:
        """Whether a further message would not be kept, and need not be made."""
        return len(self._listed) >= PROBLEMS_MAX

    def add(self, path: str, code: str, message: str) -> None:
        if self.full:
            self._left_out += 1
        else:
            self._listed.append(Problem(path, code, message))

    def attempt(self, check: Callable[..., T], value: object, **arguments: object) -> T | None:
        """What `check` answers; its refusal becomes a problem."""
        try:
            return check(value, **arguments)
        except Refused as refused:
            self.add(refused.path, refused.code, refused.message)
            return None

    def between(self, path: str, value: int | None, *, low: int, high: int) -> None:
        if value is not None and not low <= value <= high:
            self.add(path, "out_of_range", f"{_number(value)} is out of range; use {low} to {high}")

    def duration(self, path: str, value_ms: int | None, *, low_ms: int = 1) -> None:
        if value_ms is not None and not low_ms <= value_ms <= DURATION_MS_MAX:
            limits = f"{low_ms} ms to {duration_text(DURATION_MS_MAX)}"
            self.add(path, "out_of_range", f"{_number(value_ms)} ms is out of range; use {limits}")

    def count(self, path: str, number: int, *, high: int, what: str) -> bool:
        """Whether there are not too many."""
        if number > high:
            self.add(path, "too_many", f"{number} {what} are too many; at most {high} are accepted")
        return number <= high

    def length(self, path: str, text: str, *, high: int) -> None:
        if len(text) > high:
            self.add(path, "text_too_long", f"the text has {len(text)} characters; at most {high} are accepted")

    def one_of(self, path: str, value: str, choices: tuple[str, ...]) -> None:
        if value not in choices:
            self.add(path, "wrong_value", f"{value[:60]!a} is not known here; use one of {', '.join(choices)}")

    def listed(self) -> list[Problem]:
        if not self._left_out:
            return list(self._listed)
        return [*self._listed, Problem("", "more_problems", f"and {self._left_out} more; mend these first")]


def join(path: str, name: str) -> str:
    """`path.name`, with a name of the user cut and escaped, so that it cannot forge a line."""
    shown = name if name.isascii() and name.isprintable() else ascii(name)[1:-1]
    return f"{path}.{shown[:128]}" if path else shown[:128]


def _number(value: int) -> str:
    return str(value) if abs(value) < 10**20 else "the number"
