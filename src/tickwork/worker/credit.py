"""How many attempts a worker is ready to hold.

As many as it can run at once, and what these will have finished until more can come: slow tasks are not hoarded where
another worker could run them, fast ones keep both sides busy. It goes by how long attempts take, not by how many end:
a worker that waits for a busy server would otherwise ask for less and less.

Where attempts cost more than their own time (threads share an interpreter, processes share a core), attempts wait here
longer than was expected, and a later one, however urgent, runs after them. An attempt that came behind many others
and waited long shows how many end in the time that is meant; so many are requested in advance, and more only after
the wait for nearly as many was short. A short wait behind few others says nothing about many.
"""

AHEAD_MS = 100  # attempts that are expected to end within this time are requested in advance
AHEAD_LOCAL_MS = 25  # the same where the server is in this process: more comes sooner, and both share an interpreter
CREDIT_MAX = 2_000
LEAST_US = 50  # what any attempt takes, with everything around it
SPAN = 64  # so many attempts ago counts no more
RISE = 2  # from one call to the next at most so many times as much


class Credit:
    def __init__(self, *, ahead_ms: int = AHEAD_MS) -> None:
        self._ahead_ms = ahead_ms
        self._span_us = 0  # what an attempt takes; 0: not known
        self._count = 0
        self._busy_ms = 0
        self._ahead = 0
        self._ahead_max = CREDIT_MAX

    def waited(self, ms: int, *, behind: int) -> None:
        """An attempt began so long after it had come, behind so many others."""
        fit = behind * self._ahead_ms // max(ms, 1)  # so many begin within the time
        if ms > self._ahead_ms:
            self._ahead_max = min(fit, self._ahead_max)
        else:
            self._ahead_max = max(min(fit, RISE * behind + 1, CREDIT_MAX), self._ahead_max)

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
        expected = slots * self._ahead_ms * 1_000 // self._span_us if self._span_us else 0
        self._ahead = max(0, min(expected, RISE * self._ahead + slots, CREDIT_MAX - slots, self._ahead_max))
        return slots + self._ahead
