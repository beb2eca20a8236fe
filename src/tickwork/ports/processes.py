"""Processes of the operating system, named so that the same host can prove that one of them has ended."""

from typing import Protocol


class Processes(Protocol):
    def own(self) -> str:
        """The name of this process, which no other process has or will have. "": this system gives no proof."""

    def has_ended(self, process: str) -> bool:
        """True only where that is certain. A process of another host or of another container is never certain."""
