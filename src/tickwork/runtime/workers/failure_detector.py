"""Failure detector: which worker sessions are lost.

A session is lost after 25 s of silence, 3 s after its connection closed without goodbye, or as soon as this host can
prove that the worker's process has ended. The detector reads no clock and acts on nothing: it receives the time and
returns sessions. The owner of a partition turns them into `WorkerLost`; a gateway informs the owners.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import msgspec

from tickwork.ports.processes import Processes

LOST_AFTER_MS = 25_000  # two heartbeats of 10 s may be missing
SILENT_MS = 12_500  # half of that: one heartbeat is missing
CLOSED_AFTER_MS = 3_000  # enough for a worker to open another connection


class MonitoredSession(Protocol):
    """What the detector reads of a session. It sets `closed_ms` and nothing else."""

    heard_ms: int
    closed_ms: int  # when its connection closed; 0: it has not, or the worker came back
    peer: str  # connection of its latest call
    calls: dict[str, int]  # calls without a reply yet, by connection
    process: str  # operating system process of a worker that has not called since this node started; "" afterwards

    def wake(self) -> None: ...


S = TypeVar("S", bound=MonitoredSession)


class HeartbeatAges(msgspec.Struct, frozen=True):
    """Seconds since each worker was heard, and the number of attempts that silent workers hold."""

    ages_s: list[float]
    orphaned: int


class FailureDetector:
    def __init__(
        self,
        *,
        lost_after_ms: int = LOST_AFTER_MS,
        closed_after_ms: int = CLOSED_AFTER_MS,
        processes: Processes | None = None,
    ) -> None:
        """`processes` are those of this host. Without them, no end of a process is proved."""
        self.lost_after_ms = lost_after_ms
        self._closed_after_ms = closed_after_ms
        self._processes = processes

    def lost(self, sessions: Iterable[S], *, now_ms: int) -> list[tuple[S, str]]:
        """Return the lost sessions, each with the cause."""
        causes = ((session, self._cause(session, now_ms)) for session in sessions)
        return [(session, cause) for session, cause in causes if cause]

    def _cause(self, session: MonitoredSession, now_ms: int) -> str:
        if session.process and self._processes is not None and self._processes.has_ended(session.process):
            return "its process has ended"
        if now_ms - session.heard_ms > self.lost_after_ms:
            return "silent"
        if session.closed_ms and now_ms - session.closed_ms > self._closed_after_ms:
            return "its connection closed"
        return ""

    def connection_closed(self, sessions: Iterable[MonitoredSession], peer: str, *, now_ms: int) -> None:
        """Start the short period of the sessions that this connection belonged to.

        A live worker keeps one call waiting. It may be gone when the connection of a waiting call closes, or its last
        connection while no call waits. The end of an idle connection beside another one means nothing."""
        for session in sessions:
            concerned = peer in session.calls if session.calls else session.peer == peer
            if concerned and not session.closed_ms:
                session.closed_ms = now_ms
                session.wake()  # the reply cannot be read any more; it is kept in case the worker comes back
