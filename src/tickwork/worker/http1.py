"""A lean way to POST: few connections to one server, kept open, one request at a time on each.

The exchange is called hundreds of times a second and every hop of a chain waits for it, so it goes without a general
client's layers. Parsing is httptools', as in the server. Whatever breaks the connection before a whole answer is
there is `ConnectionError`; the caller decides whether to ask again.
"""

import asyncio
import ssl
from typing import cast
from urllib.parse import urlsplit

import httptools

IDLE_MAX = 16
CONNECT_S = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024


class NoConnection(ConnectionError):
    """There was no connection, so nothing was sent."""


class Connection(asyncio.Protocol):
    """One connection. httptools calls the `on_` methods."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._body: list[bytes] = []
        self._size = 0
        self.reusable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.close()  # nobody asked
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"the answer is not HTTP: {error}"))

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._fail(ConnectionError(f"the connection closed before the answer: {error or 'end of stream'}"))

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int, bytes]]":
        assert self.transport is not None
        self.answer = asyncio.get_running_loop().create_future()
        self._parser, self._body, self._size = httptools.HttpResponseParser(self), [], 0
        self.transport.write(request)
        return self.answer

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > ANSWER_BYTES_MAX:
            self._fail(ConnectionError("the response exceeds the size limit"))
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        parser, self._parser = self._parser, None
        assert parser is not None
        self.reusable = self.reusable and parser.should_keep_alive()
        if self.answer is not None and not self.answer.done():
            self.answer.set_result((parser.get_status_code(), b"".join(self._body)))

    def give_up(self) -> None:
        self._fail(TimeoutError("no answer in time"))

    def _fail(self, error: OSError) -> None:
        self._parser = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)
        self.close()

    def close(self) -> None:
        self.reusable = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()


class PostClient:
    """POSTs to one server. Raises `ConnectionError`, `TimeoutError` or `OSError` where there is no answer."""

    _kind: type[Connection] = Connection

    def __init__(self, server: str, *, headers: dict[str, str], tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(server)
        secure = parts.scheme == "https"
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if secure else 80)
        self._tls = (tls or ssl.create_default_context()) if secure else None
        self._prefix = parts.path.rstrip("/")
        self._name = parts.netloc.rpartition("@")[2]
        self.set_headers(headers)
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()

    def set_headers(self, headers: dict[str, str]) -> None:
        """Of the requests from now on."""
        lines = {"host": self._name, **headers}
        self._head = "".join(f"{name}: {_clean(value)}\r\n" for name, value in lines.items())

    async def post(self, path: str, body: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        connection, answer = await self._ask(head.encode("latin-1") + body, timeout_s)
        self._keep(connection)
        return answer

    async def _ask(self, request: bytes, timeout_s: float) -> tuple[Connection, tuple[int, bytes]]:
        """The connection stays busy until it is kept."""
        connection = self._kept() or await self._connected()
        self._busy.add(connection)
        alarm = asyncio.get_running_loop().call_later(timeout_s, connection.give_up)
        try:
            return connection, await connection.ask(request)
        except BaseException:
            self._busy.discard(connection)
            connection.close()  # an answer that comes later must not be taken for another's
            raise
        finally:
            alarm.cancel()

    def _keep(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if connection.reusable and len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
        return None

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(self._kind, self._host, self._port, ssl=self._tls)
        except (OSError, TimeoutError) as error:
            raise NoConnection(str(error) or f"no connection within {CONNECT_S:g} s") from error
        return connection

    def close(self) -> None:
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()


def _clean(value: str) -> str:
    assert "\r" not in value and "\n" not in value, "a header is one line"
    return value
