"""Real time to ticks.

`RealTime` is what this process believes the time to be. It advances with the monotonic clock and is slewed towards the
wall clock. A difference of a second or more is a step of the wall clock, and a step is not believed at once: a wall
clock that is an hour ahead for three seconds must not fire an hour of schedules. A step is adopted

1. at once, where the time reference shows the same step (the machine was suspended, the VM was paused), or a person
   confirms it;
2. after `hold_ms`, where nothing contradicts it;
3. not by itself, while an independent reference, such as the clock of the database, contradicts it.

`TickClock` makes ticks of it. Logical time is the highest real time believed so far, so it never goes back. Where it
is ahead of real time, timers are held until real time has caught up, and ticks creep by one for each batch of inputs.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from tickwork.core.state.inputs import OUTAGE
from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.ports.system import Clock

STEP_MS = 1_000  # a difference from here on is a step, not drift
SLEW_DIVISOR = 20  # at most a twentieth of the time that passed is corrected
HOLD_MS = 300_000  # a step that nothing contradicts is adopted after this time


class Gap(msgspec.Struct, frozen=True):
    from_ms: int
    to_ms: int
    cause: str  # as in `core.inputs.ClockGap`
    by: str = ""


class ClockReading(msgspec.Struct, frozen=True):
    """How the clocks stand. `steady`: they agree. `held`: the wall clock has stepped and the step is not believed.
    `ahead`: logical time is ahead of real time, and timers wait for it."""

    state: Literal["steady", "held", "ahead"]
    real_ms: int
    wall_ms: int
    logical_ms: int
    step_ms: int = 0  # wall clock minus real time, while a step is held
    contradicted: bool = False  # by the reference
    adopted_in_ms: int | None = None  # when the held step is believed by itself; None: when a person confirms it

    @property
    def ahead_ms(self) -> int:
        return max(0, self.logical_ms - self.real_ms)


class RealTime:
    """`closest_to_ms` is the last logical time, 0 where there is none: where wall clock and reference disagree at the
    start, the reading closest to it is believed."""

    def __init__(
        self,
        clock: Clock,
        *,
        hold_ms: int = HOLD_MS,
        reference_ms: int | None = None,
        independent: bool = False,
        closest_to_ms: int = 0,
    ) -> None:
        self._clock = clock
        self._hold_ms = hold_ms
        self._independent = independent
        self._mono_ms = clock.mono_ms()
        wall_ms = clock.wall_ms()
        self._now_ms = wall_ms
        if reference_ms is not None and abs(wall_ms - reference_ms) >= STEP_MS:
            self._now_ms = min(reference_ms, wall_ms, key=lambda ms: (abs(ms - closest_to_ms), ms))
        self._reference_offset_ms = None if reference_ms is None else reference_ms - self._now_ms
        self._step_since_ms = self._mono_ms
        self._adopted: list[Gap] = []
        self.step_ms = 0
        self.contradicted = False
        self._see_step(wall_ms - self._now_ms)

    def read(self) -> int:
        """Advance to now, and adopt a held step whose time has come."""
        mono_ms = self._clock.mono_ms()
        passed = mono_ms - self._mono_ms
        if passed <= 0:
            return self._now_ms
        self._mono_ms = mono_ms
        self._now_ms += passed
        off = self._clock.wall_ms() - self._now_ms
        if -STEP_MS < off < STEP_MS:
            most = passed // SLEW_DIVISOR
            self._now_ms += max(-most, min(most, off))
            self.step_ms = 0
        else:
            self._see_step(off)
            if not self.contradicted and mono_ms - self._step_since_ms >= self._hold_ms:
                self._adopt()
        return self._now_ms

    def peek(self) -> int:
        """As `read`, for measuring: nothing is corrected or adopted."""
        return self._now_ms + max(self._clock.mono_ms() - self._mono_ms, 0)

    def compare(self, reference_ms: int) -> None:
        """Judge a held step by the reference; without a step, follow the reference's drift."""
        now_ms = self.read()
        if self._reference_offset_ms is None:
            if not self.step_ms:
                self._reference_offset_ms = reference_ms - now_ms
            return
        moved_ms = reference_ms - self._reference_offset_ms - now_ms
        if not self.step_ms:
            if abs(moved_ms) < STEP_MS:
                self._reference_offset_ms += moved_ms
        elif abs(moved_ms - self.step_ms) < STEP_MS:
            self._adopt()
        else:
            self.contradicted = self._independent and abs(moved_ms) < STEP_MS

    def confirm(self, by: str) -> bool:
        """A person says that the wall clock is right. Return whether there was a step to adopt."""
        now_ms = self.read()
        self._see_step(self._clock.wall_ms() - now_ms)  # also where no time has passed since the last reading
        if not self.step_ms:
            return False
        self._adopt(by)
        return True

    def take_adopted(self) -> list[Gap]:
        """Steps forward that were adopted since the last call."""
        adopted, self._adopted = self._adopted, []
        return adopted

    @property
    def adopted_in_ms(self) -> int | None:
        if self.contradicted:
            return None
        return max(0, self._hold_ms - (self._mono_ms - self._step_since_ms))

    def _see_step(self, off: int) -> None:
        if abs(off) < STEP_MS:
            return
        if not self.step_ms or abs(off - self.step_ms) >= STEP_MS:  # another step: its time begins now
            self._step_since_ms, self.contradicted = self._mono_ms, False
        self.step_ms = off

    def _adopt(self, by: str = "") -> None:
        before_ms = self._now_ms
        self._now_ms = self._clock.wall_ms()
        if self._now_ms > before_ms:
            self._adopted.append(Gap(before_ms, self._now_ms, "clock_step", by))
        if self._reference_offset_ms is not None:
            self._reference_offset_ms -= self._now_ms - before_ms
        self.step_ms, self.contradicted = 0, False


class CorrectedClock:
    """A `ports.clock.Clock` whose wall clock is the believed real time."""

    def __init__(self, real: RealTime, clock: Clock) -> None:
        self._real = real
        self._clock = clock

    def wall_ms(self) -> int:
        return self._real.peek()

    def mono_ms(self) -> int:
        return self._clock.mono_ms()


class TickClock:
    def __init__(self, real: RealTime, logical: LogicalClock, *, last_tick: int) -> None:
        self.real = real
        self._logical = logical
        self._gaps: list[Gap] = []
        self._now_ms = now_ms = real.read()
        if last_tick:
            last_ms = logical.ms_of(last_tick)
            if now_ms - last_ms >= STEP_MS:
                self._gaps.append(Gap(last_ms, now_ms, OUTAGE))
            self._now_ms = max(now_ms, last_ms)

    def now_ms(self) -> int:
        """Logical time: it never goes back, and stands still while it is ahead of real time."""
        real_ms = self.real.read()
        for gap in self.real.take_adopted():
            if gap.to_ms - self._now_ms >= STEP_MS:
                self._gaps.append(Gap(max(gap.from_ms, self._now_ms), gap.to_ms, gap.cause, gap.by))
        self._now_ms = max(self._now_ms, real_ms)
        return self._now_ms

    def reading_ms(self) -> int:
        """As `now_ms`, for measuring: nothing is corrected and no gap is recorded."""
        return max(self._now_ms, self.real.peek())

    def is_ahead(self) -> bool:
        """Whether timers must be held: real time has to catch up by a step or more."""
        return self.now_ms() - self.real.read() >= STEP_MS

    def tick(self) -> int:
        """The tick that has begun; the caller keeps it above the last one."""
        return (self.now_ms() - self._logical.origin_ms) // self._logical.resolution_ms

    def creep(self, last: int) -> int:
        """The tick after `last`, while logical time is ahead: inputs do not wait for real time."""
        self._now_ms = max(self._now_ms, self._logical.ms_of(last + 1))
        return last + 1

    def seconds_until(self, tick: int) -> float:
        """Until real time reaches this tick."""
        return (self._logical.ms_of(tick) - self.real.read()) / 1000

    def take_gaps(self) -> list[Gap]:
        gaps, self._gaps = self._gaps, []
        return gaps

    def reading(self, wall_ms: Callable[[], int]) -> ClockReading:
        logical_ms, real_ms = self.now_ms(), self.real.read()
        held = self.real.step_ms != 0
        ahead = logical_ms - real_ms >= STEP_MS
        return ClockReading(
            state="ahead" if ahead else "held" if held else "steady",
            real_ms=real_ms,
            wall_ms=wall_ms(),
            logical_ms=logical_ms,
            step_ms=self.real.step_ms,
            contradicted=self.real.contradicted,
            adopted_in_ms=self.real.adopted_in_ms if held else None,
        )
