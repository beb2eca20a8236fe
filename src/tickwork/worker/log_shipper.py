"""Lines of attempts on their way to the server: in chunks, on their own call, never in the exchange.

A chunk leaves when it is full or a fifth of a second old; with a piece of a stream in it, when it has 4 KiB or at most
50 ms after the chunk before it. While the server is away, chunks wait in a spool of
bounded size; where that is full the oldest are dropped, and a line in their place says so: how a task ended is in the
last of its lines.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from tickwork.core.base.errors import Conflict, Refused
from tickwork.protocol.worker_messages import LogPiece

CHUNK_BYTES = 64 * 1024
CHUNK_S = 0.2
PIECE_BYTES, PIECE_S = 4 * 1024, 0.05
AT_ONCE = 8  # chunks that are on their way together, of different attempts
SPOOL_BYTES_MAX = 16 * 1024 * 1024
PAST_MAX = 1_000
Key = tuple[int, int]
Send = Callable[[LogPiece], Awaitable[None]]
_encode = msgspec.json.Encoder().encode


class LogLine(msgspec.Struct, omit_defaults=True):
    """As it travels: one JSON object per line."""

    at: int  # ms since 1970, by the worker's clock
    stream: str
    text: str
    number: int = -1  # of a piece of a stream, counted in its attempt


class _Log:
    __slots__ = ("at_ms", "bytes", "chunks", "cut_s", "lines", "parts", "run")

    def __init__(self, run: str = "") -> None:
        self.run = run
        self.parts: list[bytes] = []
        self.bytes = self.at_ms = 0
        self.chunks = 0  # cut so far
        self.lines = 0  # in those
        self.cut_s = 0.0  # when the last one was cut, by the loop's clock


class _Chunk:
    """On its way. Of one that was dropped, `dropped` counts its lines and those of others of this attempt."""

    __slots__ = ("at_ms", "data", "dropped", "first", "key", "lines", "number", "run")

    def __init__(self, key: Key, log: _Log) -> None:
        self.key, self.number, self.first, self.at_ms = key, log.chunks, log.lines, log.at_ms
        self.run, self.lines, self.dropped = log.run, len(log.parts), 0
        self.data = b"\n".join(log.parts) + b"\n"

    def bytes(self) -> bytes:
        if not self.dropped:
            return self.data
        note = f"[{self.dropped} lines dropped: the server did not accept them in time]"
        return _encode(LogLine(self.at_ms, "log", note)) + b"\n"


class LogShipper:
    """`send` waits until the server has taken a chunk; it raises only what makes trying again useless."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.open: dict[Key, _Log] = {}
        self._spool: deque[_Chunk] = deque()
        self._spooled = 0  # bytes, with those of the chunk that is being sent
        self._dropped: dict[Key, _Chunk] = {}  # in the spool
        self._ended: dict[Key, None] = {}
        self._past: dict[Key, _Log] = {}  # ended, the latest: what a daemon of theirs prints goes on behind their lines
        self._timer: asyncio.TimerHandle | None = None
        self._piece_timers: dict[Key, asyncio.TimerHandle] = {}  # of logs that hold pieces
        self._sender: asyncio.Task[None] | None = None
        self.refused = 0  # chunks that the server did not want: their attempt is no longer ours

    def add(
        self, task: int, attempt: int, stream: str, text: str, at_ms: int, *, run: str = "", number: int = -1
    ) -> None:
        log = self.open.get((task, attempt))
        if log is None:
            past = self._past.get((task, attempt))
            log = self.open[task, attempt] = past or _Log(run)
            if past is not None:
                self._ended[task, attempt] = None
        part = _encode(LogLine(at_ms, stream, text, number))
        log.parts.append(part)
        log.bytes += len(part) + 1
        log.at_ms = at_ms
        if log.bytes >= (CHUNK_BYTES if number < 0 else PIECE_BYTES):
            self._cut((task, attempt), log)
        elif number >= 0:
            self._cut_soon((task, attempt), log)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHUNK_S, self._on_time)

    def _cut_soon(self, key: Key, log: _Log) -> None:
        """Send at once if nothing was sent lately: a reader may follow the log."""
        if key not in self._piece_timers:
            loop = asyncio.get_running_loop()
            self._piece_timers[key] = loop.call_at(max(loop.time(), log.cut_s + PIECE_S), self._on_piece_time, key)

    def _on_piece_time(self, key: Key) -> None:
        del self._piece_timers[key]
        log = self.open.get(key)
        if log is not None and log.parts:
            self._cut(key, log)

    def ended(self, key: Key) -> None:
        """No more lines come of this attempt, as far as we know."""
        log = self.open.get(key)
        if log is not None:
            if log.parts:
                self._cut(key, log)
            self._ended[key] = None
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(CHUNK_S, self._on_time)

    def forget(self) -> None:
        """Another store answers: these lines are of tasks that it does not have."""
        self._spooled -= sum(len(chunk.data) for chunk in self._spool)
        for keyed in (self.open, self._ended, self._past, self._dropped):
            keyed.clear()
        self._spool.clear()

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
        for timer in self._piece_timers.values():
            timer.cancel()
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.wait([self._sender])

    def _on_time(self) -> None:
        self._timer = None
        ended, self._ended = self._ended, {}
        for key, log in self.open.items():
            if log.parts:
                self._cut(key, log)
        for key in ended:  # kept for one turn of the timer: prints past Python may come after the result
            if key in self.open:
                self._past.pop(key, None)  # so that it is the latest
                self._past[key] = self.open.pop(key)
        while len(self._past) > PAST_MAX:
            del self._past[next(iter(self._past))]

    def _cut(self, key: Key, log: _Log) -> None:
        chunk = _Chunk(key, log)
        self._spool.append(chunk)
        self._spooled += len(chunk.data)
        log.chunks += 1
        log.lines += chunk.lines
        log.parts, log.bytes, log.cut_s = [], 0, asyncio.get_running_loop().time()
        while self._spooled > SPOOL_BYTES_MAX and self._drop_oldest():
            pass
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send_all())

    def _drop_oldest(self) -> bool:
        """Whether there was one. Those of one attempt are reported at the position of the first."""
        for index, chunk in enumerate(self._spool):
            if chunk.dropped:
                continue
            counted = self._dropped.setdefault(chunk.key, chunk)
            counted.dropped += chunk.lines
            self._spooled -= len(chunk.data)
            chunk.data = b""
            if counted is not chunk:
                del self._spool[index]
            return True
        return False

    async def _send_all(self) -> None:
        try:
            while self._spool:
                await asyncio.gather(*(self._send_one(chunk) for chunk in self._take()))
        finally:
            self._sender = None

    def _take(self) -> list[_Chunk]:
        """The oldest chunk of each of several attempts: those of one attempt go one after the other."""
        taken: dict[Key, _Chunk] = {}
        for chunk in self._spool:
            if len(taken) == AT_ONCE:
                break
            taken.setdefault(chunk.key, chunk)
        for chunk in taken.values():
            self._spool.remove(chunk)
            if chunk.dropped:
                del self._dropped[chunk.key]
        return list(taken.values())

    async def _send_one(self, chunk: _Chunk) -> None:
        try:
            await self._send(LogPiece(*chunk.key, chunk.number, chunk.first, chunk.bytes(), chunk.run))
        except (Refused, Conflict):
            self.refused += 1
        finally:
            self._spooled -= len(chunk.data)
