"""Who is let in: as many connections as the process has descriptors for, and what ticks need is kept back.

A connection on which no request has been let in yet is a stranger. Strangers have a share of the connections, of which
one peer has half; beyond it the strangers that have been silent longest make room for those that come. Whoever has
shown a token keeps the rest, so idle connections of others lock nobody out.
"""

import asyncio
import logging
import resource
import sys
from typing import Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tickwork.api.http.errors import problem

DESCRIPTORS_KEPT = 64  # for the store, artifacts and pipes: what ticks need is there, however many call
CONNECTIONS_MIN = 8
STRANGERS_PART = 4  # a quarter of all connections
STRANGERS_MAX = 1_024
SILENT_S = 1.0  # a stranger that has just come is about to send its request
TOLD_S = 10.0  # how often a full server says so in its log
log = logging.getLogger("tickwork.api")


class LimitedConnection(Protocol):
    """A connection."""

    def dismiss(self) -> None: ...


def connections_max() -> int:
    """As many as the system gives this process, but for those that it needs itself."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(CONNECTIONS_MIN, files_max - DESCRIPTORS_KEPT)


class ConnectionLimit:
    """Who is let in. One beyond the last is told so and sent away, and those inside go on."""

    def __init__(self) -> None:
        self._most = connections_max()
        self._strangers_max = max(CONNECTIONS_MIN, min(STRANGERS_MAX, self._most // STRANGERS_PART))
        self._strangers: dict[LimitedConnection, tuple[str, float]] = {}  # their peers and since when, oldest first
        self._of_peer: dict[str, int] = {}
        self._told_s = float("-inf")
        busy = problem(503, "too_many_connections", "the server has no room for another connection; try again")
        head = b"content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n"
        self._answer = STATUS_LINE[503] + head + b"content-length: %d\r\n\r\n" % len(busy.body) + busy.body

    def comes(self, connection: LimitedConnection, peer: str, *, now_s: float) -> None:
        """A stranger; others may have to make room for it."""
        if len(self._strangers) >= self._strangers_max:
            self._dismiss_oldest("", now_s - SILENT_S)
        elif self._of_peer.get(peer, 0) >= self._strangers_max // 2:
            self._dismiss_oldest(peer, now_s - SILENT_S)
        self._strangers[connection] = (peer, now_s)
        self._of_peer[peer] = self._of_peer.get(peer, 0) + 1

    def leaves(self, connection: LimitedConnection) -> None:
        """It is let in, or gone: no stranger any more."""
        peer, _ = self._strangers.pop(connection, ("", 0.0))
        if peer:
            left = self._of_peer[peer] - 1
            if left:
                self._of_peer[peer] = left
            else:
                del self._of_peer[peer]

    def turns_away(self, transport: asyncio.Transport, *, inside: int, now_s: float) -> bool:
        if inside <= self._most:
            return False
        if now_s - self._told_s > TOLD_S:
            self._told_s = now_s
            log.warning("%d connections are open, others are refused; raise the limit of open files", self._most)
        if self._dismiss_oldest("", now_s):
            return False
        transport.write(self._answer)
        transport.close()
        return True

    def _dismiss_oldest(self, peer: str, before_s: float) -> bool:
        for guest, (other, since_s) in self._strangers.items():
            if since_s >= before_s:
                return False
            if not peer or other == peer:
                self.leaves(guest)
                guest.dismiss()
                return True
        return False
