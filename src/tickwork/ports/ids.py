"""New ids, made by the shell and journalled."""

from typing import Protocol


class Ids(Protocol):
    def new(self) -> str:
        """Return a new id: UUID version 7, so that ids sort by time."""

    def token(self) -> str:
        """256 random bits as text, for what must not be guessed."""
