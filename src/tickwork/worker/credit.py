"""How many attempts a worker is ready to hold.

As many as it can run at once, and what these will have finished until more can come: slow tasks are not hoarded where
another worker could run them, fast ones keep both sides busy. It goes by how long attempts take, not by how many end:
a worker that waits for a busy server would otherwise ask for less and less.
"""

AHEAD_MS = 100  # what is expected to end within this time is asked for in advance
CREDIT_MAX = 2_000
LEAST_US = 50  # what any attempt takes, with everything around it
SPAN = 64  # so many attempts ago counts no more
RISE = 2  # from one call to the next at most so many times as much


class Credit:
    def __init__(self) -> None:
        self._span_us = 0  # what an attempt takes; 0: not known
        self._count = 0
        self._busy_ms = 0
        self._ahead = 0

    def ran(self, ms: int, *, attempts: int = 1) -> None:
        """So many ended that took so long together, or one runs that has taken so long already."""
        self._count += attempts
        self._busy_ms += max(ms, 0)

    def now(self, *, slots: int) -> int:
        """What to announce. Never below `slots`."""
        if self._count:
            mean_us = max(self._busy_ms * 1_000 // self._count, LEAST_US)
            weight = min(self._count, SPAN) if self._span_us else SPAN
            self._span_us = (self._span_us * (SPAN - weight) + mean_us * weight) // SPAN
            self._count = self._busy_ms = 0
        expected = slots * AHEAD_MS * 1_000 // self._span_us if self._span_us else 0
        self._ahead = max(0, min(expected, RISE * self._ahead + slots, CREDIT_MAX - slots))
        return slots + self._ahead
