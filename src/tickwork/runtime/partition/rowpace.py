"""When rows are written behind the journal.

At rest, soon. Under load, seldom: whatever lives at such a moment is written now and taken away again when it has
ended, so that a backlog would cost more the more often it is looked at. Runs that have ended are written once, whenever
that is, so they go in between, before there are too many of them in memory. What bounds the time between two whole
writes is the recovery, which folds everything behind the watermark.
"""

import math

RESTED_S = 0.05
FEW_TICKS = 8  # so many are no load
WHOLE_S = 10.0
TAIL_EVENTS_MAX = 500_000  # behind the watermark, those of 100,000 tasks; a recovery folds them in a second or two
ENDED_S, ENDED_SOON_S = 3.0, 1.0
ENDED_MANY = 20_000  # runs that wait to be written: then it is the second


class FlushPolicy:
    def __init__(self) -> None:
        self._ticked_at = self._whole_at = self._ended_at = 0.0
        self._tail = 0  # events since the last whole write

    def ticked(self, now: float, *, events: int) -> None:
        if not self._tail:  # nothing was unwritten before
            self._whole_at = self._ended_at = now
        self._ticked_at = now
        self._tail += max(events, 1)

    def wait_s(self, now: float, *, ticks: int, ended: int) -> float:
        """Until something is to be written: `ticks` are those of the window, `ended` the runs in it that are over."""
        rest = self._ticked_at + RESTED_S - now
        if ticks < FEW_TICKS:
            return rest
        return min(rest, self._whole_wait_s(now), self._ended_wait_s(now, ended))

    def is_whole(self, now: float) -> bool:
        """Whether it is time for all rows, and not for those of ended runs alone."""
        return self._ticked_at + RESTED_S <= now or self._whole_wait_s(now) <= 0

    def wrote(self, now: float, *, whole: bool) -> None:
        self._ended_at = now
        if whole:
            self._whole_at, self._tail = now, 0

    def _whole_wait_s(self, now: float) -> float:
        return 0.0 if self._tail >= TAIL_EVENTS_MAX else self._whole_at + WHOLE_S - now

    def _ended_wait_s(self, now: float, ended: int) -> float:
        if not ended:
            return math.inf
        return self._ended_at + (ENDED_SOON_S if ended >= ENDED_MANY else ENDED_S) - now
