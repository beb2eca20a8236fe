"""When the next tick may begin.

Alone, whatever comes is decided at once. Where calls come often, one by one, a tick for each of them would be a commit
for each of them; so ticks keep a distance then, and take what has gathered.
"""

GATHER_S = 0.002  # from the beginning of one tick to that of the next
OFTEN_S = 0.004  # between two calls, on average
REST_S = 0.05  # a longer pause says no more
SPAN = 8  # calls that count
MANY = 32  # inputs that are worth a tick at any time


class TickPacer:
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
