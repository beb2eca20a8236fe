"""Sessions of workers and their attempts, which decide whose log lines are accepted.

An attempt's last lines arrive shortly after its end, so each session remembers its latest ended attempts, even if the
worker was lost for a moment. Older attempts are looked up in the record of the run.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from operator import attrgetter

from tickwork.protocol.worker_messages import LAST_REPORTS, Report

AttemptKey = tuple[int, int]  # task, attempt
ENDED_MAX = 4_000  # attempts of one session
SESSIONS_MAX = 10_000
_key: Callable[[Report], AttemptKey] = attrgetter("task", "attempt")


class SessionAttempts:
    """One start of a worker."""

    __slots__ = ("_count", "_ended", "since_ms", "start")

    def __init__(self, start: str, since_ms: int = 0) -> None:
        self.start = start
        self.since_ms = since_ms  # attempts that were dispatched before belong to an earlier one
        self._ended: deque[list[AttemptKey]] = deque()
        self._count = 0

    def note_reports(self, reports: Sequence[Report], fenced: Container[AttemptKey]) -> None:
        """These are durable, except for those that came too late or were not this worker's to send."""
        if not LAST_REPORTS.issuperset(map(type, reports)):
            reports = [report for report in reports if type(report) in LAST_REPORTS]
        self.note(list(map(_key, reports)), fenced)

    def note(self, keys: list[AttemptKey], fenced: Container[AttemptKey] = ()) -> None:
        if fenced:
            keys = [key for key in keys if key not in fenced]
        if not keys:
            return
        self._ended.append(keys)
        self._count += len(keys)
        while self._count - len(self._ended[0]) >= ENDED_MAX:
            self._count -= len(self._ended.popleft())

    def held(self, key: AttemptKey) -> bool:
        return any(key in keys for keys in reversed(self._ended))


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
