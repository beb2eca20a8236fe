"""How a request travels to another node, and its answer back: whole where its length is known, else as a stream.

Every hop of a submission that came to another node than its owner goes this way, so it takes the lean connections that
the exchange takes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import msgspec

from tickwork.core.base.errors import OutcomeUnknown, Unavailable
from tickwork.worker.http1 import Connection, NoConnection, PostClient

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
        self._askers: dict[str, _ForwardClient] = {}

    async def carry(
        self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes
    ) -> ForwardedResponse:
        asker = self._askers.get(address)
        if asker is None:
            asker = self._askers[address] = _ForwardClient(address, headers={})
        try:
            return await asker.ask(method, target, headers, body)
        except (OSError, TimeoutError) as error:
            why = str(error) or type(error).__name__
            if method in SAFE or isinstance(error, NoConnection):
                message = f"the owner at {address} cannot be reached: {why}"
                raise Unavailable(message, retry_after_ms=RETRY_MS) from error
            raise no_answer(address, why) from error

    async def close(self) -> None:
        for asker in self._askers.values():
            asker.close()
        self._askers.clear()


class _Streaming(Connection):
    """One whose answers have headers, and may have no known end."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[Header] = []
        self.pieces: asyncio.Queue[bytes | OSError] | None = None  # b"": its end
        self._paused = False

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        self.headers, self.pieces = [], None
        return super().ask(request)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        known = status in BODILESS or any(name == b"content-length" for name, _ in self.headers)
        if not known and self.answer is not None and not self.answer.done():
            self.pieces = asyncio.Queue()
            self.answer.set_result((status, b""))

    def on_body(self, body: bytes) -> None:
        if self.pieces is None:
            super().on_body(body)
            return
        self.pieces.put_nowait(body)
        if self.pieces.qsize() > PIECES_MAX and self.transport is not None and not self._paused:
            self._paused = True
            self.transport.pause_reading()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if self.pieces is not None:
            self.pieces.put_nowait(b"")

    def _fail(self, error: OSError) -> None:
        if self.pieces is not None:
            self.pieces.put_nowait(error)
        super()._fail(error)

    async def next_piece(self) -> bytes:
        assert self.pieces is not None
        async with asyncio.timeout(ANSWER_S):
            piece = await self.pieces.get()
        if self._paused and self.pieces.qsize() <= PIECES_FEW and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()
        if isinstance(piece, OSError):
            raise piece
        return piece


class _ForwardClient(PostClient):
    """Any request to one node."""

    _kind = _Streaming

    async def ask(self, method: str, target: str, headers: Sequence[Header], body: bytes) -> ForwardedResponse:
        lines = [f"{method} {self._prefix}{target} HTTP/1.1\r\n{self._head}".encode("latin-1")]
        lines += [b"%b: %b\r\n" % pair for pair in headers]
        if body or method not in ("GET", "DELETE"):
            lines.append(b"content-length: %d\r\n" % len(body))
        connection, (status, data) = await self._ask(b"".join((*lines, b"\r\n", body)), ANSWER_S)
        assert isinstance(connection, _Streaming)
        if connection.pieces is not None:
            return ForwardedResponse(status, connection.headers, pieces=self._pieces(connection))
        self._keep(connection)
        return ForwardedResponse(status, connection.headers, data)

    async def _pieces(self, connection: _Streaming) -> AsyncIterator[bytes]:
        try:
            while piece := await connection.next_piece():
                yield piece
        except BaseException:
            self._busy.discard(connection)
            connection.close()  # nobody reads the rest
            raise
        self._keep(connection)
