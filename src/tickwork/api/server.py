"""The server: uvicorn on one socket, with checks of its own.

A closed connection is the first sign of a dead worker, so the protocol reports every connection that ends to the
engine. An address wider than loopback needs a token. When the server ends, waiting calls and streams end at once.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Generator
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from tickwork.api.app import FastRouter
from tickwork.api.http.browser_sessions import BrowserSessions
from tickwork.api.http.request import ShutdownSignal
from tickwork.api.http_protocol import KEEP_ALIVE_S, protocol_of
from tickwork.cluster.node import Node
from tickwork.core.base.errors import TickworkError
from tickwork.protocol.http_models import STORE_HEADER
from tickwork.system.local_token import CHARACTERS_MIN, is_loopback

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine

GRACE_S = 5
BACKLOG = 2_048
PORT = 8440


class CannotServe(TickworkError):
    """The address cannot be used; a setting must change."""

    code = "cannot_serve"


def _is_news(record: logging.LogRecord) -> bool:
    """Hide uvicorn's message about a broken response: our own log has it, with its path and the reason."""
    return record.msg != "ASGI callable returned without completing response."


class HttpServer:
    """The HTTP server. `start` returns when the port listens, `stop` when every request was answered or cut off."""

    def __init__(
        self,
        app: Starlette,
        engine: "Engine | Node",
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        listener: socket.socket | None = None,
        inner: socket.socket | None = None,
    ) -> None:
        """`listener` is a socket that already listens; `inner` is a second one, for other nodes."""
        self._listener = listener
        self._app = app
        self._engine = engine
        self._host = host
        self._port = port
        self._inner = inner
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""
        self.bound = ("", 0)  # the numeric address

    async def start(self) -> None:
        check_exposure(self._host, token=self._app.state.token)
        listener = self._listener or listen(self._host, self._port)
        self.bound = listener.getsockname()[:2]
        self._port = self.bound[1]
        shown = f"[{self._host}]" if ":" in self._host else self._host
        self.address = f"http://{shown}:{self._port}"
        sockets = [listener] if self._inner is None else [listener, self._inner]
        front: FastRouter = self._app.state.front
        store = self._engine.store_id if isinstance(self._engine, Node) else self._engine.context.store_id
        config = uvicorn.Config(
            front,
            headers=[(STORE_HEADER, store)] if store else [],  # in every response: made into bytes once
            http=protocol_of(self._engine, front),
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
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self._server = _Server(config)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(sockets=sockets))
        while not self._server.started and not self._serving.done():
            await asyncio.sleep(0.001)
        if self._serving.done():
            self._serving.result()

    def link(self) -> str:
        """Return a single-use link to the page, or its plain address if the server needs no token."""
        sessions: BrowserSessions | None = self._app.state.sessions
        return self.address if sessions is None else sessions.link(self.address)

    async def stop(self) -> None:
        if self._server is None or self._serving is None:
            return
        shutdown: ShutdownSignal = self._app.state.closing
        shutdown.set()
        self._engine.workers.release()
        self._server.should_exit = True
        await self._serving
        if self._app.state.ways is not None:
            await self._app.state.ways.close()

    async def wait_closed(self) -> None:
        if self._serving is not None:
            await asyncio.shield(self._serving)


async def serve(app: Starlette, engine: "Engine", host: str, port: int) -> None:
    """Serve until cancelled; then stop as `HttpServer.stop` does."""
    server = HttpServer(app, engine, host=host, port=port)
    await server.start()
    try:
        await server.wait_closed()
    finally:
        await server.stop()


def check_exposure(host: str, *, token: str | None) -> None:
    """Refuse to listen beyond loopback without a token: a client that reaches the port can run code on workers."""
    if token is None and not is_loopback(host):
        raise CannotServe(
            f"{host} can be reached from other machines, so a token is needed: set TICKWORK_TOKEN, or bind to 127.0.0.1"
        )
    if token is not None and len(token.strip()) < CHARACTERS_MIN:
        size = f"has {len(token.strip())} characters" if token.strip() else "is empty"
        raise CannotServe(
            f"the token {size} and can be guessed: set TICKWORK_TOKEN to at least {CHARACTERS_MIN} random ones,"
            " as `openssl rand -hex 32` prints them"
        )


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a listening socket. `shared`: other processes of this server listen on it, too."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError) as error:
        raise CannotServe(f"{host}:{port} is not an address: {error}; set another host") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotServe(_why_not(host, port, error)) from None
    listener.setblocking(False)
    return listener


def _why_not(host: str, port: int, error: Exception) -> str:
    if isinstance(error, PermissionError):
        return f"this user may not use port {port}; choose one above 1023"
    reason = getattr(error, "strerror", None) or str(error)
    return f"cannot listen on {host}:{port}: {reason}; stop the program that uses the port, or choose another one"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers: they belong to the program that started the process."""
        yield
