"""Sessions of workers, and the attempts that they held: what decides whose log lines are accepted.

An attempt's last lines arrive shortly after its end, so a session is remembered with the attempts that ended in it: the
latest of them, also where the worker was lost for a moment. What is older is looked up in the record of its run.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from operator import attrgetter

from tickwork.protocol.worker_messages import Failed, HandedBack, Report, Succeeded

Pair = tuple[int, int]  # task, attempt
ENDED_MAX = 4_000  # attempts of one session
SESSIONS_MAX = 10_000
_LAST = frozenset((Succeeded, Failed, HandedBack))
_pair: Callable[[Report], Pair] = attrgetter("task", "attempt")


class SessionAttempts:
    """One start of a worker."""

    __slots__ = ("_count", "_ended", "since_ms", "start")

    def __init__(self, start: str, since_ms: int = 0) -> None:
        self.start = start
        self.since_ms = since_ms  # attempts that were dispatched before belong to an earlier one
        self._ended: deque[list[Pair]] = deque()
        self._count = 0

    def note_reports(self, reports: Sequence[Report], fenced: Container[Pair]) -> None:
        """These are durable, except for those that came too late or were not this worker's to send."""
        last = reports if _LAST.issuperset(map(type, reports)) else [one for one in reports if type(one) in _LAST]
        self.note(list(map(_pair, last)), fenced)

    def note(self, pairs: list[Pair], fenced: Container[Pair] = ()) -> None:
        if fenced:
            pairs = [pair for pair in pairs if pair not in fenced]
        if not pairs:
            return
        self._ended.append(pairs)
        self._count += len(pairs)
        while self._count - len(self._ended[0]) >= ENDED_MAX:
            self._count -= len(self._ended.popleft())

    def held(self, pair: Pair) -> bool:
        return any(pair in pairs for pairs in reversed(self._ended))


class SessionAttemptsTable:
    """By worker: the latest one of each, also of workers that are gone."""

    def __init__(self) -> None:
        self._known: dict[str, SessionAttempts] = {}

    def get(self, worker: str) -> SessionAttempts | None:
        return self._known.get(worker)

    def begin(self, worker: str, start: str, *, since_ms: int) -> SessionAttempts:
        """The same one where this start was here before."""
        known = self._known.pop(worker, None)
        session = known if known is not None and known.start == start else SessionAttempts(start, since_ms)
        self._known[worker] = session
        while len(self._known) > SESSIONS_MAX:
            del self._known[next(iter(self._known))]
        return session
