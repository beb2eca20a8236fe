"""Time, as the shell may see it. Nothing outside an adapter of this port asks the operating system."""

from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """UTC since 1970. It may jump."""

    def mono_ms(self) -> int:
        """Return a time that never goes back or stands still. Its zero means nothing."""


class TimeReference(Protocol):
    """A second opinion on real time, read at the start and while the wall clock is in doubt."""

    independent: bool
    """Whether it has a clock of its own: then it may contradict a step of the wall clock, not only confirm it."""

    async def read_ms(self) -> int | None:
        """UTC since 1970; None where it cannot tell. Raises `Unavailable` where it does not answer."""

    async def record(self, real_ms: int) -> None:
        """Called now and then while the clocks agree: this is the time."""
