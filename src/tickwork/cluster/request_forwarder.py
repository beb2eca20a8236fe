"""How a request travels to another node, and its answer back: whole where its length is known, else as a stream.

Every hop of a submission that came to another node than its owner goes this way, so it takes the lean connections that
the exchange takes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from tickwork.core.base.errors import OutcomeUnknown, Unavailable
from tickwork.worker.http1 import Connection, ConnectionPool, NoConnection, ServerAddress, WholeResponse

ANSWER_S = 60.0  # between two pieces of an answer
PIECES_MAX, PIECES_FEW = 64, 16  # that wait to be read: then the other side waits, until there are few
RETRY_MS = 200
BODILESS = (204, 304)
SAFE = ("GET", "HEAD", "OPTIONS")  # change nothing
Header = tuple[bytes, bytes]


class ForwardedResponse(msgspec.Struct):
    status: int
    headers: list[Header]
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None  # in place of a body


class RequestForwarder(Protocol):
    """Raises `OutcomeUnknown` where there is no answer to a request that changes something, and `Unavailable` where
    nothing was sent or nothing can have changed."""

    async def carry(
        self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes
    ) -> ForwardedResponse: ...

    async def close(self) -> None: ...


def no_answer(address: str, why: str) -> OutcomeUnknown:
    message = (
        f"the owner at {address} gave no answer ({why}): the outcome is unknown; read the state, or repeat it with"
    )
    return OutcomeUnknown(f"{message} the same key", retry_after_ms=RETRY_MS)


class HttpForwarder:
    def __init__(self) -> None:
        self._clients: dict[str, _ForwardClient] = {}

    async def carry(
        self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes
    ) -> ForwardedResponse:
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = _ForwardClient(address)
        try:
            return await client.send(method, target, headers, body)
        except (OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            if method in SAFE or isinstance(error, NoConnection):
                message = f"the owner at {address} cannot be reached: {why}"
                raise Unavailable(message, retry_after_ms=RETRY_MS) from error
            raise no_answer(address, why) from error

    async def close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()


class StreamedResponse:
    """A response with its headers, which may have no known length: then its body comes in pieces."""

    def __init__(self, connection: Connection) -> None:
        self.headers: list[Header] = []
        self.pieces: asyncio.Queue[bytes | OSError] | None = None  # b"": its end
        self._connection = connection
        self._whole = WholeResponse(connection)
        self._paused = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._connection.parser is not None
        status = self._connection.parser.get_status_code()
        if status not in BODILESS and not any(name == b"content-length" for name, _ in self.headers):
            self.pieces = asyncio.Queue()
            self._connection.answer(status)

    def on_body(self, body: bytes) -> None:
        if self.pieces is None:
            self._whole.on_body(body)
            return
        self.pieces.put_nowait(body)
        transport = self._connection.transport
        if self.pieces.qsize() > PIECES_MAX and transport is not None and not self._paused:
            self._paused = True
            transport.pause_reading()

    def on_message_complete(self) -> None:
        self._whole.on_message_complete()
        if self.pieces is not None:
            self.pieces.put_nowait(b"")

    def failed(self, error: OSError) -> None:
        if self.pieces is not None:
            self.pieces.put_nowait(error)

    async def next_piece(self) -> bytes:
        assert self.pieces is not None
        async with asyncio.timeout(ANSWER_S):
            piece = await self.pieces.get()
        transport = self._connection.transport
        if self._paused and self.pieces.qsize() <= PIECES_FEW and transport is not None:
            self._paused = False
            transport.resume_reading()
        if isinstance(piece, OSError):
            raise piece
        return piece


class _ForwardClient:
    """Any request to one node."""

    def __init__(self, address: str) -> None:
        self._server = ServerAddress(address, headers={})
        self._connections = ConnectionPool(self._server)

    async def send(self, method: str, target: str, headers: Sequence[Header], body: bytes) -> ForwardedResponse:
        lines = [f"{method} {self._server.prefix}{target} HTTP/1.1\r\n{self._server.head}".encode("latin-1")]
        lines += [b"%b: %b\r\n" % pair for pair in headers]
        if body or method not in ("GET", "DELETE"):
            lines.append(b"content-length: %d\r\n" % len(body))
        request = b"".join((*lines, b"\r\n", body))
        connection = await self._connections.take()
        response = StreamedResponse(connection)
        status, data = await self._connections.send(connection, request, response, timeout_s=ANSWER_S)
        if response.pieces is not None:
            return ForwardedResponse(status, response.headers, pieces=self._pieces(connection, response))
        self._connections.keep(connection)
        return ForwardedResponse(status, response.headers, data)

    async def _pieces(self, connection: Connection, response: StreamedResponse) -> AsyncIterator[bytes]:
        try:
            while piece := await response.next_piece():
                yield piece
        except BaseException:
            self._connections.drop(connection)  # the rest is not read
            raise
        self._connections.keep(connection)

    def close(self) -> None:
        self._connections.close()
