"""HTTP in process: an ASGI application behind the simulated network, and a client that asks for it.

Requests and answers cross as bytes. When a connection ends, requests on it that are still being answered hear of it
as `http.disconnect`, as behind a real server.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import ASGIApp, Message

from sim.hosts import Host
from sim.network import Net
from tickwork.core.base.errors import Unavailable

PORT = "api"
PATIENCE_S = 20.0
RETRY_S = 0.2
JSON = "application/json"

_json = msgspec.json.Decoder()


class Request(msgspec.Struct, array_like=True):
    method: str
    path: str
    body: bytes = b""
    kind: str = JSON  # of the body
    headers: tuple[tuple[bytes, bytes], ...] = ()  # further ones


class Answer(msgspec.Struct, array_like=True):
    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def json(self) -> Any:
        return _json.decode(self.body) if self.body else None


_requests = msgspec.msgpack.Decoder(Request)
_answers = msgspec.msgpack.Decoder(Answer)


class HttpService:
    """`network.Service` in front of the application that is served just now; None: nothing is."""

    def __init__(self, app: Callable[[], ASGIApp | None]) -> None:
        self._app = app
        self._ended: dict[str, list[asyncio.Future[None]]] = {}  # by peer: requests under way

    async def serve(self, request: bytes, peer: str) -> bytes:
        return msgspec.msgpack.encode(await self.answer(_requests.decode(request), peer))

    def closed(self, peer: str) -> None:
        for ended in self._ended.pop(peer, ()):
            if not ended.done():
                ended.set_result(None)

    async def answer(self, request: Request, peer: str) -> Answer:
        app = self._app()
        if app is None:
            raise Unavailable("this node serves nobody now: try again", retry_after_ms=100)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended.setdefault(peer, []).append(ended)
        try:
            return await _ask(app, request, peer, ended)
        finally:
            waiting = self._ended.get(peer, [])  # after the end of the connection: none, or those of its echo
            if ended in waiting:
                waiting.remove(ended)


async def _ask(app: ASGIApp, request: Request, peer: str, ended: "asyncio.Future[None]") -> Answer:
    path, _, query = request.path.partition("?")
    host, _, port = peer.partition("#")
    headers = [(b"host", b"127.0.0.1"), *request.headers]
    given = {name for name, _ in request.headers}
    if b"accept" not in given:
        headers.append((b"accept", request.kind.encode()))
    if request.body and b"content-type" not in given:
        headers.append((b"content-type", request.kind.encode()))
    scope = {
        "type": "http", "http_version": "1.1", "method": request.method, "scheme": "http", "path": path,
        "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "headers": headers,
        "client": (host, port), "server": ("127.0.0.1", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip
    body: list[bytes] = [request.body]
    answer = Answer(0)

    async def receive() -> Message:
        if body:
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        await asyncio.shield(ended)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = tuple((bytes(name), bytes(value)) for name, value in message.get("headers", ()))
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    if not answer.status:
        raise Unavailable("the connection ended before there was an answer", retry_after_ms=100)
    return answer


class HttpClient:
    """Asks one server after the other until one answers with more than `try again`."""

    def __init__(self, net: Net, host: Host, servers: tuple[str, ...]) -> None:
        self._net, self._host, self._servers = net, host, servers
        self._server = host.chance.below(len(servers))
        self.unknown = 0  # requests that got no answer: they may have happened

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """The answer, whatever it takes; the request may have happened several times."""
        while (answer := await self.try_once(method, path, body)) is None:
            await asyncio.sleep(RETRY_S)
        return answer

    async def try_once(self, method: str, path: str, body: Any = None) -> Answer | None:
        data = b"" if body is None else msgspec.json.encode(body)
        request = msgspec.msgpack.encode(Request(method, path, data))
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                server = self._servers[self._server]
                answer = _answers.decode(await self._net.request(self._host, server, request, port=PORT))
            if answer.status not in (429, 503, 504, 507):
                return answer
        self.unknown += 1
        self._server = (self._server + 1) % len(self._servers)
        return None
