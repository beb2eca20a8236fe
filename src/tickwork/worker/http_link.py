"""The way to the server over HTTP: the exchange as MessagePack, everything else as the public API has it.

Whatever may go away by itself (no connection, 5xx, too many requests) is `Unavailable`, and the agent tries again;
what the server refuses is `Refused` or `Conflict` with its own words.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec

from tickwork.core.base.errors import Conflict, Refused, TickworkError, Unavailable
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX, digest_of
from tickwork.protocol.http_models import Owners, Problem, Publication
from tickwork.protocol.worker_messages import (
    Call,
    Catalog,
    LogPiece,
    Reading,
    ReadRequest,
    Reply,
    encoder,
    reply_decoder,
    shown,
)
from tickwork.system.local_token import NOT_LET_IN, LocalServer
from tickwork.worker.http1 import PostClient

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}
BYTES = {"content-type": "application/octet-stream"}
ANSWER_S = 15.0  # beyond what the server may wait for work
MOVE_S = 300.0  # for a large value
READ_S = 30.0  # for what a task reads
OWNERS_S = 3.0  # for the owners of partitions: a call waits for it


class HttpLink:
    def __init__(
        self,
        server: str,
        *,
        token: str = "",
        latest: bool = False,
        find: Callable[[str], LocalServer | None] = lambda _: None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`latest`: what is published becomes the latest version, also where it was known before. `server` may name
        several nodes of a cluster, with commas between them: after a failure the next one is tried. `find` is called
        for the token of a server that lets us in no more, where none was given."""
        self._latest = latest
        self._servers = [url.strip().rstrip("/") for url in server.split(",") if url.strip()]
        self._server = 0
        self._find = find if not token else None
        self.token = token
        self._client = httpx2.AsyncClient(
            base_url=self._servers[0],
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=httpx2.Timeout(ANSWER_S, connect=5.0),
            limits=httpx2.Limits(max_connections=16, max_keepalive_connections=8, keepalive_expiry=60.0),
            transport=transport,
            trust_env=False,
        )
        # The exchange is called so often that it has a way of its own, except where a transport is given.
        self._posters = (
            []
            if transport is not None
            else [PostClient(server, headers=self._headers(token)) for server in self._servers]
        )

    def _next_server(self, failed: int) -> None:
        """Once, where several calls to one server fail together."""
        if len(self._servers) > 1 and failed == self._server:
            self._server = (self._server + 1) % len(self._servers)
            self._client.base_url = self._servers[self._server]

    def _learned(self, server: int) -> bool:
        """Tell whether there is another token by now: the server started after us, or has a new one."""
        local = self._find(self._servers[server]) if self._find is not None else None
        if local is None or local.token == self.token:
            return False
        self.token, self._servers[server] = local.token, local.url
        self._client.headers["authorization"] = f"Bearer {local.token}"
        if server == self._server:
            self._client.base_url = local.url
        if self._posters:
            self._posters[server].close()
            self._posters = [PostClient(server, headers=self._headers(local.token)) for server in self._servers]
        return True

    async def call(self, call: Call) -> Reply:
        path = f"/v1/workers/{quote(call.worker, safe='')}/exchange"
        data = encoder.encode(call)
        if not self._posters:
            timeout = httpx2.Timeout(ANSWER_S + call.wait_ms / 1000, connect=5.0)
            answer = (await self._ask("POST", path, content=data, headers=MSGPACK, timeout=timeout)).content
        else:
            answer = await self._post(path, data, ANSWER_S + call.wait_ms / 1000)
        try:
            return reply_decoder.decode(answer)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the server's reply cannot be read: {error}", retry_after_ms=1_000) from error

    async def _post(self, path: str, data: bytes, timeout_s: float) -> bytes:
        server = self._server
        try:
            status, answer = await self._posters[server].post(path, data, timeout_s=timeout_s)
        except (OSError, TimeoutError) as error:
            message = f"the server at {self._servers[server]} cannot be reached: {error or type(error).__name__}"
            self._next_server(server)
            raise Unavailable(message, retry_after_ms=1_000) from error
        if status == 401 and self._learned(server):
            return await self._post(path, data, timeout_s)
        if status >= 400:
            raise _trouble(httpx2.Response(status, content=answer))
        return answer

    async def fetch(self, digest: str) -> bytes:
        return (await self._ask("GET", f"/v1/artifacts/{digest}", timeout=MOVE_S)).content

    async def store(self, data: bytes) -> str:
        if len(data) > ARTIFACT_BYTES_MAX:  # a server that hangs up in the middle would get the request again and again
            raise Refused("too_large", f"{len(data)} bytes are more than the {ARTIFACT_BYTES_MAX} of an artifact")
        digest = digest_of(data)
        await self._ask("PUT", f"/v1/artifacts/{digest}", content=data, headers=BYTES, timeout=MOVE_S)
        return digest

    async def log(self, piece: LogPiece) -> None:
        query = f"chunk={piece.chunk}&first={piece.first}{f'&run={quote(piece.run)}' if piece.run else ''}"
        path = f"/v1/tasks/{piece.task}/attempts/{piece.attempt}/logs?{query}"
        sender = {
            "x-tickwork-worker": quote(piece.worker),  # a header has no room for every name
            "x-tickwork-session": piece.session,
            "x-tickwork-store": piece.store,
        }
        await self._ask("POST", path, content=piece.lines, headers=LINES | sender)

    async def read(self, request: ReadRequest) -> Reading:
        server = self._server
        try:
            answer = await self._client.get(request.target, headers=dict(request.headers), timeout=READ_S)
        except (httpx2.TransportError, OSError) as error:
            message = f"the server at {self._servers[server]} cannot be reached: {error or type(error).__name__}"
            self._next_server(server)
            raise Unavailable(message, retry_after_ms=1_000) from error
        if answer.status_code == 401 and self._learned(server):
            return await self.read(request)
        return Reading(answer.status_code, tuple(answer.headers.items()), answer.content)

    async def publish(self, catalog: Catalog) -> str:
        if not catalog.documents and not catalog.schedules and not catalog.application:
            return ""
        data = msgspec.json.encode(publication(catalog, latest=self._latest))
        with shown(catalog.schedules):
            answer = await self._ask("PUT", "/v1/workflows", content=data, headers=JSON)
        return msgspec.json.decode(answer.content, type=Published).latest_version if answer.content else ""

    async def owners(self, address: str = "") -> Owners:
        """Of the partitions of a cluster, as the node at `address` knows them. `Refused`: the server is alone."""
        answer = await self._ask("GET", f"{address}/v1/cluster/owners", timeout=OWNERS_S)
        return msgspec.json.decode(answer.content, type=Owners)

    async def close(self) -> None:
        for poster in self._posters:
            poster.close()
        await self._client.aclose()

    @staticmethod
    def _headers(token: str) -> dict[str, str]:
        return MSGPACK | ({"authorization": f"Bearer {token}"} if token else {})

    async def _ask(self, method: str, path: str, **options: Any) -> httpx2.Response:
        server = self._server
        try:
            answer = await self._client.request(method, path, **options)
        except (httpx2.TransportError, OSError) as error:
            message = f"the server at {self._servers[server]} cannot be reached: {error or type(error).__name__}"
            self._next_server(server)
            raise Unavailable(message, retry_after_ms=1_000) from error
        if answer.status_code == 401 and self._learned(server):
            return await self._ask(method, path, **options)
        if answer.status_code >= 400:
            raise _trouble(answer)
        return answer


class Published(msgspec.Struct, frozen=True):
    """Of the answer, what a worker needs."""

    latest_version: str = ""


def publication(catalog: Catalog, *, latest: bool = False) -> Publication:
    return Publication(
        documents=tuple(msgspec.Raw(document) for document in catalog.documents),
        schedules={schedule.name: schedule.wanted for schedule in catalog.schedules},
        application=catalog.application,
        version=catalog.version,
        latest=latest,
        mailboxes={mailbox.name: mailbox.wanted for mailbox in catalog.mailboxes},
    )


def _trouble(answer: httpx2.Response) -> TickworkError:
    status = answer.status_code
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
        code, detail, path = problem.code, problem.detail or problem.title, problem.path
    except msgspec.DecodeError:
        code, detail, path = "http", f"the server answered {status} {answer.reason_phrase}", ""
    if status >= 500 or status in (408, 425, 429):
        return Unavailable(detail, retry_after_ms=1_000)
    if status == 401:
        return Refused(code, NOT_LET_IN)
    if status == 403:
        return Refused(code, detail)
    if status == 409:
        conflict = Conflict(detail)
        conflict.code = code
        return conflict
    return Refused(code, detail, path=path)
