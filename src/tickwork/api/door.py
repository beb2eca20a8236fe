"""Who is let in: as many connections as the process has descriptors for, and what ticks need is kept back."""

import asyncio
import logging
import resource
import sys

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from tickwork.api.problems import problem

DESCRIPTORS_KEPT = 64  # for the store, artifacts and pipes: what ticks need is there, however many call
CONNECTIONS_MIN = 8
TOLD_S = 10.0  # how often a full server says so in its log
log = logging.getLogger("tickwork.api")


def connections_max() -> int:
    """As many as the system gives this process, but for those that it needs itself."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(CONNECTIONS_MIN, files_max - DESCRIPTORS_KEPT)


class Door:
    """Who is let in. One beyond the last is told so and sent away, and those inside go on."""

    def __init__(self) -> None:
        self._most = connections_max()
        self._told_s = float("-inf")
        busy = problem(503, "too_many_connections", "the server has no room for another connection; try again")
        head = b"content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n"
        self._answer = STATUS_LINE[503] + head + b"content-length: %d\r\n\r\n" % len(busy.body) + busy.body

    def turns_away(self, transport: asyncio.Transport, *, inside: int, now_s: float) -> bool:
        if inside <= self._most:
            return False
        if now_s - self._told_s > TOLD_S:
            self._told_s = now_s
            log.warning("%d connections are open, others are refused; raise the limit of open files", self._most)
        transport.write(self._answer)
        transport.close()
        return True
