"""The error tree, sorted by what the caller does next.

    TickworkError
      Refused            change the request; nothing was stored
        InvalidDefinition  the document has problems, each with a path
      Conflict           read again: the world moved on
      Unavailable        try again later; says when. Nothing was done
        OutcomeUnknown   it may have been done: look, or repeat it under the same key
      Corrupt            a stored record does not verify and must not be used
        ReplayDiffers    deciding again gave another answer than the journal
        Newer            a later version of the program wrote it: that one may go on

API and CLI map the second level, never every class. `code` is stable and for programs,
the message is for people and says what to change.
"""

from collections.abc import Sequence

import msgspec


class TickworkError(Exception):
    code = "error"


class Refused(TickworkError):
    """The request itself is wrong. `path` names the field, in the words of the document."""

    def __init__(self, code: str, message: str, *, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.code = code
        self.message = message
        self.path = path


class Problem(msgspec.Struct, frozen=True):
    """One thing wrong with a document: where, a stable code, and what to change."""

    path: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidDefinition(Refused):
    def __init__(self, problems: Sequence[Problem]) -> None:
        assert problems, "an invalid definition names at least one problem"
        first = problems[0]
        super().__init__(first.code, first.message, path=first.path)
        self.problems = tuple(problems)


class Conflict(TickworkError):
    code = "conflict"


class Unavailable(TickworkError):
    code = "unavailable"

    def __init__(self, message: str, *, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class OutcomeUnknown(Unavailable):
    """What was requested may or may not have happened. Repeating it is safe only under the same key."""

    code = "outcome_unknown"


class Corrupt(TickworkError):
    code = "corrupt"


class Newer(Corrupt):
    code = "newer"


class ReplayDiffers(Corrupt):
    """Where a replay first left the recorded path: seq, and which part of it."""

    code = "replay_differs"

    def __init__(self, message: str, *, seq: int) -> None:
        super().__init__(f"seq {seq}: {message}")
        self.seq = seq
