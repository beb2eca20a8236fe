"""How many attempts a worker is ready to hold.

As many as it can run at once, and what these will have finished until more can come: slow tasks are not hoarded where
another worker could run them, fast ones keep both sides busy. It goes by how long attempts take, not by how many end:
a worker that waits for a busy server would otherwise ask for less and less.

Where attempts cost more than their own time (threads share an interpreter, processes share a core), attempts wait here
longer than was expected. Then the worker requests fewer in advance: a later attempt, however urgent, runs after them.
"""

AHEAD_MS = 100  # what is expected to end within this time is asked for in advance
WAIT_MS_MAX = AHEAD_MS * 3 // 2  # an attempt that waits longer for its turn was requested too early
WAIT_MS_LOW = AHEAD_MS // 2  # below this, more may be requested again
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
        self._ahead_max = CREDIT_MAX

    def waited(self, ms: int, *, behind: int) -> None:
        """An attempt began so long after it had come, behind so many others."""
        if ms > WAIT_MS_MAX:
            self._ahead_max = behind * AHEAD_MS // ms
        elif ms < WAIT_MS_LOW and self._ahead_max < CREDIT_MAX:
            self._ahead_max = min(CREDIT_MAX, RISE * self._ahead_max + 1)

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
        self._ahead = max(0, min(expected, RISE * self._ahead + slots, CREDIT_MAX - slots, self._ahead_max))
        return slots + self._ahead
