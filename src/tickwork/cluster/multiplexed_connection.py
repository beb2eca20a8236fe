"""One connection to a node that carries many exchanges, several in a frame.

A node stands for its workers at every owner, and a worker that can reach the owners speaks to each for itself. With a
request for each call the beats alone would cost more than the work, so calls that come in one turn of the loop leave
in one frame, and so do the replies that are ready. A frame is
its length and MessagePack; the connection begins as HTTP and is upgraded. When it ends, every call on it ends with
it, as if each had lost a connection of its own: whoever called asks again. A peer that hangs closes nothing, so a
connection on which nothing comes in is pinged, and ends where the pings are not answered.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import msgspec

from tickwork.cluster.node_credentials import CODE
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.protocol.worker_messages import Call, Reply
from tickwork.runtime.supervision import is_cancelled
from tickwork.worker.http1 import CONNECT_S, PostClient

PATH, PROTOCOL = "/v1/cluster/trunk", "tickwork-trunk"
WORKER_PATH = "/v1/workers/trunk"  # of a worker: when the connection ends, it may be gone
FRAME_BYTES_MAX = 256 * 1024 * 1024
RETRY_MS = 50
NOT_A_NODE = CODE.encode()
PING_S = 2.5  # a connection that is silent for so long is pinged, as long as calls wait on it
PINGS_MAX = 4  # so many without an answer, and the peer hangs
log = logging.getLogger("tickwork.cluster")


class CallFrame(msgspec.Struct, frozen=True, array_like=True):
    id: int
    partition: int
    call: Call


class ClientFrame(msgspec.Struct, frozen=True, array_like=True):
    asked: tuple[CallFrame, ...] = ()
    dropped: tuple[int, ...] = ()  # nobody waits for these any more


class ReplyFrame(msgspec.Struct, frozen=True, array_like=True):
    id: int
    reply: Reply | None = None
    code: str = ""  # why the call is refused; "" without a reply: the call is to be repeated
    detail: str = ""


_encode = msgspec.msgpack.Encoder().encode
_up = msgspec.msgpack.Decoder(ClientFrame)
_down = msgspec.msgpack.Decoder(tuple[ReplyFrame, ...])


def frame(message: object) -> bytes:
    data = _encode(message)
    return len(data).to_bytes(4, "big") + data


class FrameBuffer:
    """What came in, as far as it is whole."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        while len(self._data) >= 4:
            size = int.from_bytes(self._data[:4], "big")
            if size > FRAME_BYTES_MAX:
                raise ValueError("a frame exceeds the size limit")
            if len(self._data) < 4 + size:
                return
            whole = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            yield whole


class _Endpoint(asyncio.Protocol):
    """Either end: frames in, and messages out that gather for a turn of the loop."""

    def __init__(self) -> None:
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            for whole in self._frames.feed(data):
                self._heard(whole)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("a connection between nodes broke: %s", error)
            self.close()

    def _heard(self, whole: bytes) -> None:
        raise NotImplementedError

    def _flush(self) -> None:
        raise NotImplementedError

    def _flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _write(self, message: object) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()


class MultiplexedServer(_Endpoint):
    """At the owner: every call is answered as one that came alone."""

    def __init__(
        self, exchange: Callable[[int, Call], Awaitable[Reply]], on_end: Callable[["MultiplexedServer"], None]
    ) -> None:
        super().__init__()
        self._exchange = exchange
        self._on_end = on_end
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._replies: list[ReplyFrame] = []

    def connection_lost(self, _error: Exception | None) -> None:
        for task in self._calls.values():
            task.cancel()
        self._on_end(self)

    def _heard(self, whole: bytes) -> None:
        up = _up.decode(whole)
        loop = asyncio.get_running_loop()
        if not up.asked and not up.dropped:  # a ping
            self._flush_soon()
        for call in up.asked:
            self._calls[call.id] = loop.create_task(self._answer(call))
        for number in up.dropped:
            task = self._calls.get(number)
            if task is not None:
                task.cancel()

    async def _answer(self, call: CallFrame) -> None:
        try:
            reply = ReplyFrame(call.id, await self._exchange(call.partition, call.call))
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            reply = ReplyFrame(call.id, detail="the partition ended here")  # the engine did, not this call
        except Refused as error:
            reply = ReplyFrame(call.id, code=error.code, detail=error.message)
        except TickworkError as error:
            reply = ReplyFrame(call.id, detail=str(error))
        except Exception as error:
            log.error("an exchange of %s broke off", call.call.worker, exc_info=error)
            reply = ReplyFrame(call.id, detail=f"it broke off: {type(error).__name__}")
        finally:
            self._calls.pop(call.id, None)
        self._replies.append(reply)
        self._flush_soon()

    def _flush(self) -> None:
        self._flushing = False
        replies, self._replies = self._replies, []
        self._write(tuple(replies))


class _Socket(_Endpoint):
    """At the node that asks."""

    def __init__(self) -> None:
        super().__init__()
        self.upgraded: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # False: it is not spoken
        self._head = b""
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._outgoing: list[CallFrame] = []
        self._dropped: list[int] = []
        self._numbers = itertools.count(1)
        self._answers_pings = False  # one of an older version does not
        self._pings = 0  # sent since something was heard
        self._silent = False  # nothing was heard since the last look
        self._looking: asyncio.TimerHandle | None = None
        self.ended = False

    def begin(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self.upgraded.done():
            self._pings, self._silent = 0, False
            super().data_received(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if end:
            if NOT_A_NODE in rest:  # it may have to hear of this node first
                self.upgraded.set_exception(ConnectionError("the peer does not know this node yet"))
                return
            self.upgraded.set_result(head.startswith(b"HTTP/1.1 101 "))
            if self.upgraded.result():
                self._write(ClientFrame())
                self._look()
            if rest:
                super().data_received(rest)

    def _look(self) -> None:
        """Pings are counted, not the time: a process that stood still itself has not heard what came meanwhile."""
        if self._waiting and self._silent:
            if self._pings >= PINGS_MAX and self._answers_pings:
                self.connection_lost(TimeoutError("the peer does not respond"))
                self.close()
                return
            self._pings += 1
            self._write(ClientFrame())
        self._silent = True
        self._looking = asyncio.get_running_loop().call_later(PING_S, self._look)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if self._looking is not None:
            self._looking.cancel()
        lost = ConnectionError(f"the connection closed before the answer: {error or 'end of stream'}")
        if not self.upgraded.done():
            self.upgraded.set_exception(lost)
            self.upgraded.exception()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(lost)
        self._waiting.clear()

    async def ask(self, partition: int, call: Call, *, timeout_s: float) -> Reply:
        if self.ended:
            raise ConnectionError("the connection has ended")
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        reply: asyncio.Future[Reply] = loop.create_future()
        self._waiting[number] = reply
        self._outgoing.append(CallFrame(number, partition, call))
        self._flush_soon()
        alarm = loop.call_later(timeout_s, _give_up, reply)
        try:
            return await reply
        except BaseException:
            if self._waiting.pop(number, None) is not None:
                self._dropped.append(number)
                self._flush_soon()
            raise
        finally:
            alarm.cancel()

    def _heard(self, whole: bytes) -> None:
        replies = _down.decode(whole)
        self._answers_pings = self._answers_pings or not replies
        for answer in replies:
            reply = self._waiting.pop(answer.id, None)
            if reply is None or reply.done():
                continue
            if answer.reply is not None:
                reply.set_result(answer.reply)
            elif answer.code:
                reply.set_exception(Refused(answer.code, answer.detail))
            else:
                reply.set_exception(Unavailable(answer.detail, retry_after_ms=RETRY_MS))

    def _flush(self) -> None:
        self._flushing = False
        calls, self._outgoing = self._outgoing, []
        dropped, self._dropped = self._dropped, []
        self._write(ClientFrame(tuple(calls), tuple(dropped)))


class MultiplexedConnection(PostClient):
    """To one node: opened when it is needed, and again after it ended. Raises what a `PostClient` raises, and
    `UpgradeRefused`
    where the other side, or something between, does not know this."""

    def __init__(self, server: str, *, headers: dict[str, str], path: str = PATH) -> None:
        super().__init__(server, headers=headers)
        self._path = path
        self._line: _Socket | None = None
        self._opening: asyncio.Task[_Socket] | None = None
        self._closed = False

    async def ask(self, partition: int, call: Call, *, timeout_s: float) -> Reply:
        line = self._line
        if line is None or line.ended:
            line = await self._open_once()
        return await line.ask(partition, call, timeout_s=timeout_s)

    async def open(self) -> None:
        """Whether it can be reached at all."""
        if self._line is None or self._line.ended:
            await self._open_once()

    async def _open_once(self) -> _Socket:
        """However many want it. Waiters look at what became of the task and do not await it: where `close` cancels
        it, a waiter has lost a connection, and is not cancelled itself."""
        if self._closed:
            raise ConnectionError("the connection was closed")
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.get_running_loop().create_task(self._open())
            opening.add_done_callback(self._opened)
        await asyncio.wait([opening])
        if opening.cancelled():
            raise ConnectionError("the connection was closed while it was opened")
        return opening.result()

    def _opened(self, opening: "asyncio.Task[_Socket]") -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._line = opening.result()

    async def _open(self) -> _Socket:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_S):
            _, line = await loop.create_connection(_Socket, self._host, self._port, ssl=self._tls)
            head = f"GET {self._prefix}{self._path} HTTP/1.1\r\n{self._head}"
            words = f"{head}connection: upgrade\r\nupgrade: {PROTOCOL}\r\n\r\n"
            try:
                line.begin(words.encode("latin-1"))
                if await line.upgraded:
                    return line
            except BaseException:
                line.close()
                raise
        line.close()
        raise UpgradeRefused

    def close(self) -> None:
        """For good: what is asked afterwards is a lost connection."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._line is not None:
            self._line.close()
        super().close()


class UpgradeRefused(Exception):
    """The other node answers to single requests only."""


def _give_up(reply: "asyncio.Future[Reply]") -> None:
    if not reply.done():
        reply.set_exception(TimeoutError("no answer in time"))
