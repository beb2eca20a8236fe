"""Watches the clocks of one partition while it runs.

Every second it reads the clocks, so that a step is seen while nothing else happens. A held step is compared with the
time reference. Timers are held while logical time is ahead of real time, and released when real time has caught up.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from tickwork.core.base.errors import TickworkError
from tickwork.core.calendar.durations import duration_text, instant_text
from tickwork.core.state.inputs import HoldTimers
from tickwork.ports.system import Clock, TimeReference
from tickwork.runtime.partition.logical_clock import ClockReading

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import Partition

WATCH_S = 1.0
STEADY_COMPARE_S = 60.0  # how often the reference is read while the clocks agree
REMIND_S = 600.0  # an alarm that still holds is raised again after this time


class ClockMonitor:
    def __init__(
        self,
        partition: "Partition",
        clock: Clock,
        reference: TimeReference | None,
        *,
        on_alarm: Callable[[str, str], None],
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._reference = reference
        self._on_alarm = on_alarm
        self._compared_s = self._alarmed_s = float("-inf")
        self._alarmed = ""

    async def run(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(WATCH_S)

    def hold_timers(self) -> None:
        """Hold or release timers, as the clocks demand. Called before the first tick, too."""
        ahead = self._partition.keeper.is_ahead()
        if ahead != self._partition.machine.state.timers_held:
            reason = describe_clock(self.reading()) if ahead else ""
            with contextlib.suppress(TickworkError):  # it has stopped, and the next owner looks for itself
                self._partition.submit_inputs([HoldTimers(ahead, reason)])

    async def check(self) -> None:
        loop, real = asyncio.get_running_loop(), self._partition.keeper.real
        real.read()
        if real.step_ms or loop.time() - self._compared_s >= STEADY_COMPARE_S:
            self._compared_s = loop.time()
            await self._compare()
        self.hold_timers()
        self._raise_alarm(self.reading(), loop.time())

    def confirm(self, by: str) -> bool:
        """A person says that the wall clock is right. Return whether a step was held."""
        confirmed = self._partition.keeper.real.confirm(by)
        self.hold_timers()
        self._partition.refresh()
        return confirmed

    def reading(self) -> ClockReading:
        return self._partition.keeper.reading(self._clock.wall_ms)

    async def _compare(self) -> None:
        if self._reference is None:
            return
        real = self._partition.keeper.real
        with contextlib.suppress(TickworkError):
            reference_ms = await self._reference.read_ms()
            if reference_ms is not None:
                real.compare(reference_ms)
            if not real.step_ms:
                await self._reference.record(real.read())
        self._partition.refresh()

    def _raise_alarm(self, reading: ClockReading, now_s: float) -> None:
        kind = {"steady": "", "held": "clock_step", "ahead": "clock_ahead"}[reading.state]
        if kind and (kind != self._alarmed or now_s - self._alarmed_s >= REMIND_S):
            self._alarmed_s = now_s
            self._on_alarm(kind, describe_clock(reading))
        self._alarmed = kind


def describe_clock(reading: ClockReading) -> str:
    """Describe what is wrong with the clocks, the effect, and what to do; "" while they agree."""
    wall, real = instant_text(reading.wall_ms), instant_text(reading.real_ms)
    if reading.state == "ahead":
        text = (
            f"logical time is {_rounded(reading.ahead_ms)} ahead of real time ({real}): "
            "timers are held until real time has caught up; everything else continues"
        )
        return f"{text}; a step of the wall clock ({wall}) is held as well" if reading.step_ms else text
    if reading.state == "held":
        direction = "ahead of" if reading.step_ms > 0 else "behind"
        if reading.contradicted:
            then = "the database's clock contradicts it, so it is not adopted until an operator confirms it"
        else:
            then = f"it is adopted if it persists for another {_rounded(reading.adopted_in_ms or 0)}"
        return (
            f"the wall clock stepped to {wall}, {_rounded(abs(reading.step_ms))} {direction} real time ({real}); "
            f"{then}. Correct the clock, or confirm it: tickwork clock confirm"
        )
    return ""


def _rounded(length_ms: int) -> str:
    """To the second: readings a millisecond apart must not read as 59m59s999ms."""
    return duration_text(max(1, round(length_ms / 1000)) * 1000)
