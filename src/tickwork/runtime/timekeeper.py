"""Real time to ticks.

Logical time follows the monotonic clock. Small differences to the wall clock are slewed away; a large jump forward
is a gap that the caller journals; a large jump backward is an alarm, and time goes on as before. A
tick is never given twice and never lies in the future.
"""

import msgspec

from tickwork.core.inputs import OUTAGE
from tickwork.core.model import Clock as LogicalClock
from tickwork.ports.clock import Clock

STEP_MS = 1_000  # a difference from here on is a step, not drift
SLEW_DIVISOR = 20  # at most a twentieth of the time that passed is corrected


class Gap(msgspec.Struct, frozen=True):
    from_ms: int
    to_ms: int
    cause: str  # as in `core.inputs.ClockGap`


class Timekeeper:
    def __init__(self, clock: Clock, logical: LogicalClock, *, last_tick: int) -> None:
        self._clock = clock
        self._logical = logical
        self._mono_ms = clock.mono_ms()
        self._now_ms = clock.wall_ms()
        self.behind_ms = 0  # how far the wall clock lies behind logical time; an alarm where it is a step
        self.gaps: list[Gap] = []
        last_ms = logical.ms_of(last_tick)
        if last_tick and self._now_ms - last_ms >= STEP_MS:
            self.gaps.append(Gap(last_ms, self._now_ms, OUTAGE))
        elif last_tick and self._now_ms < last_ms:
            self.behind_ms = last_ms - self._now_ms
            self._now_ms = last_ms

    def now_ms(self) -> int:
        mono_ms = self._clock.mono_ms()
        passed = mono_ms - self._mono_ms
        if passed <= 0:
            return self._now_ms
        self._mono_ms = mono_ms
        now_ms = self._now_ms + passed
        off = self._clock.wall_ms() - now_ms
        if off >= STEP_MS:
            self.gaps.append(Gap(now_ms, now_ms + off, "clock_step"))
            now_ms += off
            off = 0
        elif -STEP_MS < off < STEP_MS:
            most = passed // SLEW_DIVISOR
            now_ms += max(-most, min(most, off))
            off = 0
        self.behind_ms = -off
        self._now_ms = now_ms
        return now_ms

    def reading_ms(self) -> int:
        """As `now_ms`, for whoever only measures: nothing is corrected and no gap is found."""
        return self._now_ms + max(self._clock.mono_ms() - self._mono_ms, 0)

    def tick(self) -> int:
        """The tick that has begun; the caller keeps it above the last one."""
        return (self.now_ms() - self._logical.origin_ms) // self._logical.resolution_ms

    def seconds_until(self, tick: int) -> float:
        return (self._logical.ms_of(tick) - self.now_ms()) / 1000

    def take_gaps(self) -> list[Gap]:
        gaps, self.gaps = self.gaps, []
        return gaps
