"""Time, as the shell may see it. Nothing outside an adapter of this port asks the operating system."""

from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """UTC since 1970. It may jump."""

    def mono_ms(self) -> int:
        """Never goes back, and stands still for nobody. Its zero means nothing."""
