"""One connection to a node that carries many exchanges, several in a frame.

A node speaks for its workers at every owner, and a worker that can reach the owners speaks to each itself. With one
request per call the heartbeats alone would cost more than the work. So calls that come in one turn of the event loop
leave in one frame, and so do the replies that are ready. A frame is its length and MessagePack; the connection begins
as HTTP and is upgraded. When it ends, every call on it fails as if its own connection were lost, and its caller sends
it again. A connection on which nothing comes in is pinged, because a peer that hangs closes nothing; if the pings are
not answered, it ends.
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, cast

import msgspec

from tickwork.cluster.node_credentials import CODE
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.protocol.worker_messages import Call, Reply
from tickwork.runtime.supervision import is_cancelled
from tickwork.worker.http1 import CONNECT_S, ServerAddress

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
    calls: tuple[CallFrame, ...] = ()
    dropped: tuple[int, ...] = ()  # calls that were cancelled meanwhile


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
    """Bytes received, and the frames in them that are complete."""

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
            body = bytes(self._data[4 : 4 + size])
            del self._data[: 4 + size]
            yield body


class FrameHandler(Protocol):
    """One end of a connection: takes frames, and makes the message of the next one."""

    def frame_received(self, body: bytes) -> None:
        """Raises `ValueError` or `MsgspecError` for a frame that cannot be read: then the connection is closed."""

    def outgoing(self) -> object:
        """Return the message with everything that has gathered."""

    def connection_lost(self, error: Exception | None) -> None: ...


class FrameChannel(asyncio.Protocol):
    """Frames over one connection. Messages gather for one turn of the event loop and leave in one frame."""

    def __init__(self, handler: FrameHandler) -> None:
        self.received = False  # something came since the handler last set this back
        self._handler = handler
        self._frames = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._flushing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received = True
        try:
            for body in self._frames.feed(data):
                self._handler.frame_received(body)
        except (ValueError, msgspec.MsgspecError) as error:
            log.warning("a connection between nodes broke: %s", error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._handler.connection_lost(error)

    def flush_soon(self) -> None:
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self.write(self._handler.outgoing())

    def write(self, message: object) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(message))

    def close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()


class MultiplexedServer:
    """The owner's end: every call is answered as one that came alone."""

    def __init__(
        self, exchange: Callable[[int, Call], Awaitable[Reply]], on_end: Callable[["MultiplexedServer"], None]
    ) -> None:
        self.channel = FrameChannel(self)
        self._exchange = exchange
        self._on_end = on_end
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._replies: list[ReplyFrame] = []

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the calls end whatever the reason
        for task in self._calls.values():
            task.cancel()
        self._on_end(self)

    def frame_received(self, body: bytes) -> None:
        up = _up.decode(body)
        loop = asyncio.get_running_loop()
        if not up.calls and not up.dropped:  # a ping
            self.channel.flush_soon()
        for call in up.calls:
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
        self.channel.flush_soon()

    def outgoing(self) -> tuple[ReplyFrame, ...]:
        replies, self._replies = self._replies, []
        return tuple(replies)

    def close(self) -> None:
        self.channel.close()


class _CallsInFlight:
    """The calling node's end: the calls that wait for their replies."""

    def __init__(self) -> None:
        self.channel = FrameChannel(self)
        self.ended = False
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._outgoing: list[CallFrame] = []
        self._dropped: list[int] = []
        self._numbers = itertools.count(1)
        self._answers_pings = False  # a peer of an older version does not
        self._pings = 0  # sent since something was received
        self._check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.channel.write(ClientFrame())
        self._check_peer()

    def _check_peer(self) -> None:
        """Pings are counted, not the time: a process that stood still itself has not heard what came meanwhile."""
        if self.channel.received:
            self._pings = 0
        elif self._waiting:
            if self._pings >= PINGS_MAX and self._answers_pings:
                self.connection_lost(TimeoutError("the peer does not respond"))
                self.channel.close()
                return
            self._pings += 1
            self.channel.write(ClientFrame())
        self.channel.received = False
        self._check = asyncio.get_running_loop().call_later(PING_S, self._check_peer)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        if self._check is not None:
            self._check.cancel()
        lost = _lost(error)
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(lost)
        self._waiting.clear()

    async def send(self, partition: int, call: Call, *, timeout_s: float) -> Reply:
        if self.ended:
            raise ConnectionError("the connection has ended")
        loop, number = asyncio.get_running_loop(), next(self._numbers)
        reply: asyncio.Future[Reply] = loop.create_future()
        self._waiting[number] = reply
        self._outgoing.append(CallFrame(number, partition, call))
        self.channel.flush_soon()
        alarm = loop.call_later(timeout_s, _give_up, reply)
        try:
            return await reply
        except BaseException:
            if self._waiting.pop(number, None) is not None:
                self._dropped.append(number)
                self.channel.flush_soon()
            raise
        finally:
            alarm.cancel()

    def frame_received(self, body: bytes) -> None:
        replies = _down.decode(body)
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

    def outgoing(self) -> ClientFrame:
        calls, self._outgoing = self._outgoing, []
        dropped, self._dropped = self._dropped, []
        return ClientFrame(tuple(calls), tuple(dropped))


class _Upgrade(asyncio.Protocol):
    """The HTTP request with which a connection begins, and its response. Afterwards the connection is `calls`'."""

    def __init__(self, request: bytes, calls: _CallsInFlight) -> None:
        self.accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # False: it is not spoken
        self._request = request
        self._calls = calls
        self._response = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._response += data
        head, end, rest = self._response.partition(b"\r\n\r\n")
        if not end or self.accepted.done():
            return
        if NOT_A_NODE in rest:  # it may have to hear of this node first
            self.accepted.set_exception(ConnectionError("the peer does not know this node yet"))
            return
        self.accepted.set_result(head.startswith(b"HTTP/1.1 101 "))
        if self.accepted.result():
            channel = self._calls.channel
            channel.connection_made(self._transport)
            self._transport.set_protocol(channel)
            self._calls.start()
            if rest:
                channel.data_received(rest)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(_lost(error))
            self.accepted.exception()


class MultiplexedConnection:
    """To one node: opened when it is needed, and again after it ended. Raises `ConnectionError`, `TimeoutError` or
    `OSError` where there is no reply, and `UpgradeRefused` where the other side, or something between, does not know
    this protocol."""

    def __init__(self, server: str, *, headers: dict[str, str], path: str = PATH) -> None:
        self._server = ServerAddress(server, headers=headers)
        self._path = path
        self._calls: _CallsInFlight | None = None
        self._opening: asyncio.Task[_CallsInFlight] | None = None
        self._closed = False

    def set_headers(self, headers: dict[str, str]) -> None:
        """Of connections that are opened from now on."""
        self._server.set_headers(headers)

    async def send(self, partition: int, call: Call, *, timeout_s: float) -> Reply:
        calls = self._calls
        if calls is None or calls.ended:
            calls = await self._open_once()
        return await calls.send(partition, call, timeout_s=timeout_s)

    async def open(self) -> None:
        """Connect, if there is no connection. Raises where the node cannot be reached."""
        if self._calls is None or self._calls.ended:
            await self._open_once()

    async def _open_once(self) -> _CallsInFlight:
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

    def _opened(self, opening: "asyncio.Task[_CallsInFlight]") -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._calls = opening.result()

    async def _open(self) -> _CallsInFlight:
        loop, server = asyncio.get_running_loop(), self._server
        head = f"GET {server.prefix}{self._path} HTTP/1.1\r\n{server.head}"
        request = f"{head}connection: upgrade\r\nupgrade: {PROTOCOL}\r\n\r\n".encode("latin-1")
        calls = _CallsInFlight()
        async with asyncio.timeout(CONNECT_S):
            transport, upgrade = await loop.create_connection(
                lambda: _Upgrade(request, calls), server.host, server.port, ssl=server.tls
            )
            try:
                if await upgrade.accepted:
                    return calls
            except BaseException:
                transport.abort()
                raise
        transport.abort()
        raise UpgradeRefused

    def close(self) -> None:
        """Close for good: a call that is sent afterwards fails as if its connection were lost."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self._calls is not None:
            self._calls.channel.close()


class UpgradeRefused(Exception):
    """The other node answers to single requests only."""


def _give_up(reply: "asyncio.Future[Reply]") -> None:
    if not reply.done():
        reply.set_exception(TimeoutError("no answer in time"))


def _lost(error: Exception | None) -> ConnectionError:
    return ConnectionError(f"the connection closed before the answer: {error or 'end of stream'}")
