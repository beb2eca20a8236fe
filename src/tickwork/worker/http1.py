"""A lean HTTP client: few connections to one server, kept open, one request at a time on each.

The exchange is called hundreds of times a second and every hop of a chain waits for it, so it goes without a general
client's layers. Parsing is httptools', as in the server. Whatever breaks the connection before a whole answer is
there is `ConnectionError`; the caller decides whether to ask again.
"""

import asyncio
import ssl
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

IDLE_MAX = 16
CONNECT_S = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class NoConnection(ConnectionError):
    """There was no connection, so nothing was sent."""


class ResponseReader(Protocol):
    """Takes one response. httptools calls the `on_` methods, and others of their kind where a reader has them."""

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None:
        """Calls `Connection.complete`."""

    def failed(self, error: OSError) -> None:
        """The connection ended before the response did."""


class WholeResponse:
    """Collects the body of a response."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._body: list[bytes] = []
        self._size = 0

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > ANSWER_BYTES_MAX:
            self._connection.fail(ConnectionError("the response exceeds the size limit"))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._connection.complete(b"".join(self._body))

    def failed(self, error: OSError) -> None:
        """The caller learns it from the connection."""


class Connection(asyncio.Protocol):
    """One connection. The reader of each response says what becomes of its body."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.parser: httptools.HttpResponseParser | None = None
        self.reusable = True
        self._reader: ResponseReader | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        if self.parser is None:
            self.close()  # there was no request
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(ConnectionError(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self.fail(ConnectionError(f"the connection closed before the answer: {error or 'end of stream'}"))

    def send(self, request: bytes, reader: ResponseReader) -> "asyncio.Future[tuple[int, bytes]]":
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._reader, self.parser = reader, httptools.HttpResponseParser(reader)
        self.transport.write(request)
        return self._answer

    def answer(self, status: int, body: bytes = b"") -> None:
        """Give the caller the response, or its beginning."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))

    def complete(self, body: bytes) -> None:
        """The response has ended."""
        parser, self.parser, self._reader = self.parser, None, None
        assert parser is not None
        self.reusable = self.reusable and parser.should_keep_alive()
        self.answer(parser.get_status_code(), body)

    def give_up(self) -> None:
        self.fail(TimeoutError("no answer in time"))

    def fail(self, error: OSError) -> None:
        reader, self.parser, self._reader = self._reader, None, None
        if reader is not None:
            reader.failed(error)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


class ServerAddress:
    """Where a server is, and the headers of every request to it."""

    def __init__(self, server: str, *, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(server)
        secure = parts.scheme == "https"
        self.host = parts.hostname or "127.0.0.1"
        self.port = parts.port or (443 if secure else 80)
        self.tls = (tls or ssl.create_default_context()) if secure else None
        self.prefix = parts.path.rstrip("/")
        self._name = parts.netloc.rpartition("@")[2]
        self.set_headers(headers)

    def set_headers(self, headers: dict[str, str]) -> None:
        """Of the requests from now on."""
        lines = {"host": self._name, **headers}
        self.head = "".join(f"{name}: {_clean(value)}\r\n" for name, value in lines.items())


class ConnectionPool:
    """Connections to one server. Raises `ConnectionError`, `TimeoutError` or `OSError` where there is no answer."""

    def __init__(self, server: ServerAddress) -> None:
        self._server = server
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    async def take(self) -> Connection:
        """Return an idle connection, or a new one. It is busy until it is kept or dropped."""
        connection = self._reusable() or await self._connect()
        self._busy.add(connection)
        return connection

    async def send(
        self, connection: Connection, request: bytes, reader: ResponseReader, *, timeout_s: float
    ) -> tuple[int, bytes]:
        alarm = asyncio.get_running_loop().call_later(timeout_s, connection.give_up)
        try:
            return await connection.send(request, reader)
        except BaseException:
            self.drop(connection)  # an answer that comes later must not be taken for another's
            raise
        finally:
            alarm.cancel()

    def keep(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if connection.reusable and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def drop(self, connection: Connection) -> None:
        self._busy.discard(connection)
        connection.close()

    def _reusable(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connect(self) -> Connection:
        loop, server = asyncio.get_running_loop(), self._server
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(Connection, server.host, server.port, ssl=server.tls)
        except (OSError, TimeoutError) as error:
            raise NoConnection(str(error) or f"no connection within {CONNECT_S:g} s") from error
        return connection

    def close(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()


class PostClient:
    """POSTs to one server. Raises `ConnectionError`, `TimeoutError` or `OSError` where there is no answer."""

    def __init__(self, server: str, *, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        self._server = ServerAddress(server, headers=headers, tls=tls)
        self._connections = ConnectionPool(self._server)

    def set_headers(self, headers: dict[str, str]) -> None:
        """Of the requests from now on."""
        self._server.set_headers(headers)

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        server, connections = self._server, self._connections
        head = f"POST {server.prefix}{path} HTTP/1.1\r\n{server.head}content-length: {len(body)}\r\n\r\n"
        connection = await connections.take()
        request = head.encode("latin-1") + body
        answer = await connections.send(connection, request, WholeResponse(connection), timeout_s=timeout_s)
        connections.keep(connection)
        return answer

    def close(self) -> None:
        self._connections.close()


def _clean(value: str) -> str:
    assert "\r" not in value and "\n" not in value, "a header is one line"
    return value
