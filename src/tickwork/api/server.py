"""The server: uvicorn on one socket, told apart from others by what it notices.

A worker's death is noticed by its closed connection, so the protocol tells the engine of every connection that
ends. Bound wider than loopback, a token is needed. At its end, waiting calls and streams end at once.
"""

import asyncio
import contextlib
import ipaddress
import logging
import resource
import socket
import sys
from collections.abc import Generator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tickwork.api.asked import Closing
from tickwork.api.problems import problem
from tickwork.core.errors import TickworkError
from tickwork.runtime.engine import Engine

HEADER_BYTES_MAX = 64 * 1024
KEEP_ALIVE_S = 75
HEADERS_S = 30  # a connection that sends no whole head of a request for so long is closed
GRACE_S = 5
BACKLOG = 2_048
DESCRIPTORS_KEPT = 64  # for the store, artifacts and pipes: what ticks need is there, however many call
CONNECTIONS_MIN = 8
TOLD_S = 10.0  # how often a full server says so in its log
PORT = 8440
log = logging.getLogger("tickwork.api")
_TOO_LARGE = "The head of the request is too large."


class CannotServe(TickworkError):
    """The address cannot be used: a setting must change."""

    code = "cannot_serve"


class HttpServer:
    """`start` returns when the port listens, `stop` when every request was answered or cut off."""

    def __init__(self, app: Starlette, engine: Engine, *, host: str = "127.0.0.1", port: int = PORT) -> None:
        self._app = app
        self._engine = engine
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def start(self) -> None:
        check_exposure(self._host, token=self._app.state.token)
        listener = listen(self._host, self._port)
        self._port = listener.getsockname()[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{shown}:{self._port}"
        config = uvicorn.Config(
            self._app.state.front,
            http=_protocol(self._engine),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            backlog=BACKLOG,
        )
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0.001)
        if self._serving.done():
            self._serving.result()

    async def stop(self) -> None:
        if self._server is None or self._serving is None:
            return
        closing: Closing = self._app.state.closing
        closing.set()
        self._engine.release_workers()
        self._server.should_exit = True
        await self._serving

    async def wait_closed(self) -> None:
        if self._serving is not None:
            await asyncio.shield(self._serving)


async def serve(app: Starlette, engine: Engine, host: str, port: int) -> None:
    """Until cancelled; then it ends as `HttpServer.stop` does."""
    server = HttpServer(app, engine, host=host, port=port)
    await server.start()
    try:
        await server.wait_closed()
    finally:
        await server.stop()


def check_exposure(host: str, *, token: str | None) -> None:
    """Whoever reaches the port may run code on the workers."""
    if token is None and not is_loopback(host):
        raise CannotServe(
            f"{host} can be reached from other machines, so a token is needed: set TICKWORK_TOKEN, or bind to 127.0.0.1"
        )
    if token is not None and not token.strip():
        raise CannotServe("the token is empty: set TICKWORK_TOKEN to a long random text")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError) as error:
        raise CannotServe(f"{host}:{port} is not an address: {error}; set another host") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotServe(_why_not(host, port, error)) from None
    listener.setblocking(False)
    return listener


def _why_not(host: str, port: int, error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"port {port} may not be used by this user; choose one above 1023"
    reason = getattr(error, "strerror", None) or str(error)
    return f"cannot listen on {host}:{port}: {reason}; stop whoever has the port, or choose another one"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals belong to whoever started the process."""
        yield


def connections_max() -> int:
    """As many as the system gives this process, but for those that it needs itself."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(CONNECTIONS_MIN, files_max - DESCRIPTORS_KEPT)


class _Door:
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


def _protocol(engine: Engine) -> type[asyncio.Protocol]:
    door = _Door()

    class Protocol(HttpToolsProtocol):
        """uvicorn's own, with a limit on what stands before a body, and one more listener for its end."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._head_bytes = 0
            self._impatient = self.loop.call_later(HEADERS_S, transport.close)
            door.turns_away(transport, inside=len(self.connections), now_s=self.loop.time())

        def connection_lost(self, exc: Exception | None) -> None:
            self._impatient.cancel()
            super().connection_lost(exc)
            if self.client is not None:
                engine.connection_closed(f"{self.client[0]}:{self.client[1]}")

        def on_message_begin(self) -> None:
            self._head_bytes = 0
            self._impatient.cancel()
            self._impatient = self.loop.call_later(HEADERS_S, self.transport.close)
            super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            self._count(len(url))
            super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            self._count(len(name) + len(value) + 4)
            super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._impatient.cancel()
            super().on_headers_complete()

        def _count(self, size: int) -> None:
            self._head_bytes += size
            if self._head_bytes > HEADER_BYTES_MAX:
                raise ValueError(_TOO_LARGE)  # the parser hands it on as an error of its own

        def send_400_response(self, msg: str) -> None:
            if self._head_bytes <= HEADER_BYTES_MAX:
                super().send_400_response(msg)
                return
            head = b"connection: close\r\ncontent-length: 0\r\n\r\n"
            self.transport.write(STATUS_LINE[431] + head)
            self.transport.close()

    return Protocol
