"""Lines of attempts on their way to the server: in chunks, on their own call, never in the exchange.

A chunk leaves when it is full or a fifth of a second old. While the server is away, chunks wait in a spool of
bounded size; what does not fit is dropped, and a line says so.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from tickwork.core.errors import Conflict, Refused

CHUNK_BYTES = 64 * 1024
CHUNK_S = 0.2
SPOOL_BYTES_MAX = 16 * 1024 * 1024
Key = tuple[int, int]
Send = Callable[[int, int, int, int, bytes], Awaitable[None]]
_encode = msgspec.json.Encoder().encode


class LogLine(msgspec.Struct):
    """As it travels: one JSON object per line."""

    at: int  # ms since 1970, by the worker's clock
    stream: str
    text: str


class _Log:
    __slots__ = ("bytes", "chunks", "dropped", "lines", "parts")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.chunks = 0  # sent so far
        self.lines = 0  # in those
        self.dropped = 0


class Logs:
    """`send` waits until the server has taken a chunk; it raises only what makes trying again useless."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.open: dict[Key, _Log] = {}
        self._spool: deque[tuple[Key, int, int, bytes]] = deque()
        self._spooled = 0
        self._ended: dict[Key, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sender: asyncio.Task[None] | None = None
        self.refused = 0  # chunks that the server did not want: their attempt is no longer ours

    def add(self, task: int, attempt: int, stream: str, text: str, at_ms: int) -> None:
        log = self.open.get((task, attempt))
        if log is None:
            log = self.open[task, attempt] = _Log()
        if self._spooled > SPOOL_BYTES_MAX:
            log.dropped += 1
            return
        if log.dropped:
            note = f"[{log.dropped} lines dropped: the server did not take them in time]"
            log.dropped = 0
            self._append(log, LogLine(at_ms, stream, note))
        self._append(log, LogLine(at_ms, stream, text))
        if log.bytes >= CHUNK_BYTES:
            self._cut((task, attempt), log)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHUNK_S, self._on_time)

    def ended(self, key: Key) -> None:
        """No more lines come of this attempt, as far as we know."""
        log = self.open.get(key)
        if log is not None:
            if log.parts:
                self._cut(key, log)
            self._ended[key] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(CHUNK_S, self._on_time)

    async def flush(self) -> None:
        """Everything is with the server when this returns."""
        for key, log in self.open.items():
            if log.parts:
                self._cut(key, log)
        while self._sender is not None:
            await asyncio.wait([self._sender])

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def _append(self, log: _Log, line: LogLine) -> None:
        part = _encode(line)
        log.parts.append(part)
        log.bytes += len(part) + 1

    def _on_time(self) -> None:
        self._timer = None
        ended, self._ended = self._ended, {}
        for key, log in self.open.items():
            if log.parts:
                self._cut(key, log)
        for key in ended:  # kept for one turn of the timer: prints past Python may come after the result
            self.open.pop(key, None)

    def _cut(self, key: Key, log: _Log) -> None:
        data = b"\n".join(log.parts) + b"\n"
        self._spool.append((key, log.chunks, log.lines, data))
        self._spooled += len(data)
        log.chunks += 1
        log.lines += len(log.parts)
        log.parts, log.bytes = [], 0
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    async def _send_all(self) -> None:
        try:
            while self._spool:
                key, chunk, first, data = self._spool[0]
                try:
                    await self._send(*key, chunk, first, data)
                except (Refused, Conflict):
                    self.refused += 1
                self._spool.popleft()
                self._spooled -= len(data)
        finally:
            self._sender = None
