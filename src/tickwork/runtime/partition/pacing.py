"""Policies of the tick loop: when the next tick may begin, and when rows are written behind the journal."""

import math

GATHER_S = 0.002  # from the beginning of one tick to that of the next
OFTEN_S = 0.004  # between two calls, on average
REST_S = 0.05  # a longer pause says no more
SPAN = 8  # calls that count
MANY = 32  # inputs that are worth a tick at any time

RESTED_S = 0.05
FEW_TICKS = 8  # so many are no load
WHOLE_S = 10.0
TAIL_EVENTS_MAX = 500_000  # behind the watermark, those of 100,000 tasks; a recovery folds them in a second or two
ENDED_S, ENDED_SOON_S = 3.0, 1.0
ENDED_MANY = 20_000  # runs that wait to be written: then it is the second


class TickPacer:
    """When the next tick may begin.

    Alone, an input is decided at once. Where calls come more often than every 4 ms, a tick for each would be a commit
    for each: ticks then begin at least 2 ms apart and take what has gathered. 32 waiting inputs are worth a tick at
    any time.
    """

    def __init__(self) -> None:
        self._between_s = REST_S
        self._heard_at = self._ticked_at = 0.0

    def heard(self, now: float) -> None:
        """A call came from outside, however many inputs it has."""
        passed, self._heard_at = min(now - self._heard_at, REST_S), now
        self._between_s += (passed - self._between_s) / SPAN

    def ticked(self, now: float) -> None:
        self._ticked_at = now

    def wait_s(self, now: float, *, waiting: int) -> float:
        if self._between_s > OFTEN_S or waiting >= MANY:
            return 0.0
        return self._ticked_at + GATHER_S - now


class FlushPolicy:
    """When rows are written behind the journal.

    At rest, after 50 ms. Under load, all rows every 10 s: a live run is written at such a moment and taken away again
    when it has ended, so that a backlog costs more the more often it is written. Ended runs are written once, so they
    go in between, every 3 s, or every second from 20,000 on, because they wait in memory. Recovery folds what is behind
    the watermark in a second or two: 500,000 events bound it.
    """

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
