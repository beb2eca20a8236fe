"""How many attempts a worker is ready to hold.

As many as it can run, and what it is expected to finish until the next exchange: slow tasks are not hoarded where
another worker could run them, fast ones keep both sides busy. Told the time, never asking for it.
"""

AHEAD_MS = 100  # what is expected to end within this time is asked for in advance
CREDIT_MAX = 2_000
WINDOW_MS = 200  # over which the rate is taken
RISE = 2  # from one call to the next at most so many times as much


class Credit:
    def __init__(self) -> None:
        self._rate_milli = 0  # ends per second, in thousandths
        self._since_ms: int | None = None
        self._ended = 0
        self._ahead = 0

    def ended(self, count: int) -> None:
        self._ended += count

    def at(self, now_ms: int, *, slots: int) -> int:
        """What to announce now. Never below `slots`."""
        if self._since_ms is None:
            self._since_ms = now_ms
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= 10:
            # The longer the look, the more it counts; after a window of silence nothing is left of what was before.
            rate_milli = self._ended * 1_000_000 // elapsed_ms
            weight = min(elapsed_ms, WINDOW_MS)
            self._rate_milli = (self._rate_milli * (WINDOW_MS - weight) + rate_milli * weight) // WINDOW_MS
            self._since_ms, self._ended = now_ms, 0
        expected = self._rate_milli * AHEAD_MS // 1_000_000
        self._ahead = max(0, min(expected, RISE * self._ahead + slots, CREDIT_MAX - slots))
        return slots + self._ahead
