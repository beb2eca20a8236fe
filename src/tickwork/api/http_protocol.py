"""One connection: uvicorn's protocol with limits on request heads, and a fast path for frequent requests.

Small requests that `FastRouter` can answer take the fast path: the whole body is present when the handler is called,
and the response leaves in one write. A request whose head equals an earlier one on the connection, except for the
length of the body, is neither parsed nor authenticated again. All other requests go through uvicorn. Responses keep the
order of the requests, because each request is the connection's cycle while it is handled.
"""

import asyncio
import logging
import resource
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tickwork.api.app import FastRouter
from tickwork.api.http.auth import not_a_node
from tickwork.api.http.errors import problem
from tickwork.api.http.request import NODE
from tickwork.api.http.response import Response
from tickwork.cluster import multiplexed_connection as multiplexed
from tickwork.cluster.node import Node

if TYPE_CHECKING:
    from tickwork.cluster.worker_exchange import WorkerExchange
    from tickwork.runtime.engine import Engine
    from tickwork.runtime.workers.sessions import WorkerSessions

# ---- Connection limit: the descriptors of the process, minus a reserve for the tick loop.


DESCRIPTORS_KEPT = 64  # reserved for the store, artifacts and pipes, however many clients connect
CONNECTIONS_MIN = 8
STRANGERS_PART = 4  # a quarter of all connections
STRANGERS_MAX = 1_024
SILENT_S = 1.0  # a new connection is about to send its request
TOLD_S = 10.0  # how often a full server logs it
log = logging.getLogger("tickwork.api")


class LimitedConnection(Protocol):
    """A connection that can be limited."""

    def dismiss(self) -> None: ...


def connections_max() -> int:
    """Return the connection limit: the descriptors of this process, minus its own needs."""
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files_max == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(CONNECTIONS_MIN, files_max - DESCRIPTORS_KEPT)


class ConnectionLimit:
    """Limits connections. Beyond the limit, a new one is refused, and existing ones continue."""

    def __init__(self) -> None:
        self._most = connections_max()
        self._strangers_max = max(CONNECTIONS_MIN, min(STRANGERS_MAX, self._most // STRANGERS_PART))
        self._strangers: dict[LimitedConnection, tuple[str, float]] = {}  # peer and start time of each, oldest first
        self._of_peer: dict[str, int] = {}
        self._logged_s = float("-inf")
        busy = problem(503, "too_many_connections", "the server accepts no more connections now; try again")
        head = b"content-type: application/problem+json\r\nretry-after: 1\r\nconnection: close\r\n"
        self._answer = STATUS_LINE[503] + head + b"content-length: %d\r\n\r\n" % len(busy.body) + busy.body

    def comes(self, connection: LimitedConnection, peer: str, *, now_s: float) -> None:
        """Add an unauthenticated connection; the oldest such connection may have to make room."""
        if len(self._strangers) >= self._strangers_max:
            self._dismiss_oldest("", now_s - SILENT_S)
        elif self._of_peer.get(peer, 0) >= self._strangers_max // 2:
            self._dismiss_oldest(peer, now_s - SILENT_S)
        self._strangers[connection] = (peer, now_s)
        self._of_peer[peer] = self._of_peer.get(peer, 0) + 1

    def leaves(self, connection: LimitedConnection) -> None:
        """Remove a connection that was authenticated or closed."""
        peer, _ = self._strangers.pop(connection, ("", 0.0))
        if peer:
            left = self._of_peer[peer] - 1
            if left:
                self._of_peer[peer] = left
            else:
                del self._of_peer[peer]

    def turns_away(self, transport: asyncio.Transport, *, inside: int, now_s: float) -> bool:
        if inside <= self._most:
            return False
        if now_s - self._logged_s > TOLD_S:
            self._logged_s = now_s
            log.warning("%d connections are open, so new ones are refused; raise the limit of open files", self._most)
        if self._dismiss_oldest("", now_s):
            return False
        transport.write(self._answer)
        transport.close()
        return True

    def _dismiss_oldest(self, peer: str, before_s: float) -> bool:
        for guest, (other, since_s) in self._strangers.items():
            if since_s >= before_s:
                return False
            if not peer or other == peer:
                self.leaves(guest)
                guest.dismiss()
                return True
        return False


HEADER_BYTES_MAX = 64 * 1024
KEEP_ALIVE_S = 75
HEADERS_S = 30  # time limit for a complete request head
STRANGER_S = 10  # the same for an unauthenticated connection, also between requests
SHORT_BYTES_MAX = 64 * 1024  # above this size uvicorn stops reading until the body is requested
KNOWN_MAX = 4  # heads that a connection remembers
_UPGRADE, _UPGRADE_PATHS = (
    multiplexed.PROTOCOL.encode(),
    (multiplexed.PATH.encode(), multiplexed.WORKER_PATH.encode()),
)
_TOO_LARGE = "The head of the request is too large."
_LENGTH, _END = b"\r\ncontent-length: ", b"\r\n\r\n"


class _NoClient:
    """A cycle that waits for nothing more."""

    def set(self) -> None:
        pass


class FastRequest:
    """A complete request with a known head; it looks like one of uvicorn's own cycles."""

    __slots__ = ("body", "disconnected", "keep_alive", "response_complete", "scope")
    message_event = _NoClient()

    def __init__(self, scope: Scope, body: bytes) -> None:
        self.scope = scope
        self.body = body
        self.keep_alive = True
        self.disconnected = self.response_complete = False


def protocol_of(engine: "Engine | Node", front: FastRouter) -> type[asyncio.Protocol]:
    """The protocol of one connection. uvicorn creates it, so our objects are class attributes."""
    node = engine if isinstance(engine, Node) else None
    workers = engine.workers
    known = {"node": node, "workers": workers, "front": front, "door": ConnectionLimit()}
    return type("Connection", (ServerConnection,), known)


class ServerConnection(HttpToolsProtocol):
    node: ClassVar[Node | None]  # None: not a cluster
    workers: "ClassVar[WorkerExchange | WorkerSessions]"  # informed of each closed connection
    front: ClassVar[FastRouter]
    door: ClassVar[ConnectionLimit]

    # ---- how long it may take

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_bytes = 0
        self._feeding = self._inside = False
        self._known: dict[bytes, Scope] = {}
        self._begun: list[tuple[RequestResponseCycle, Any]] = []  # at most one request whose body is incomplete
        self._head_since = self.loop.time()  # 0: no incomplete head
        self._stranger_since = self._head_since  # time of its last request; 0: authenticated
        self._looking = self.loop.call_later(min(HEADERS_S, STRANGER_S), self._look)
        if not self.door.turns_away(transport, inside=len(self.connections), now_s=self.loop.time()):
            self.door.comes(self, self.client[0] if self.client is not None else "", now_s=self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self._looking.cancel()
        self.door.leaves(self)
        super().connection_lost(exc)
        if peer := self._peer():
            self.workers.connection_closed(peer)

    def _peer(self) -> str:
        return f"{self.client[0]}:{self.client[1]}" if self.client is not None else ""

    def _look(self) -> None:
        """Check the head's time limit. One timer per connection: one per head would cost more than reading it."""
        now_s = self.loop.time()
        passed = now_s - self._head_since if self._head_since else 0.0
        silent = now_s - self._stranger_since if self._stranger_since and not self._answering() else 0.0
        if passed >= HEADERS_S or silent >= STRANGER_S:
            self.transport.close()
        else:
            left = HEADERS_S - passed
            if self._stranger_since:
                left = min(left, STRANGER_S - silent)
            self._looking = self.loop.call_later(left, self._look)

    def dismiss(self) -> None:
        """Close this unauthenticated connection to make room for another."""
        self.transport.close()

    def _let_in(self) -> None:
        """Return whether this is the first request with a valid token; open routes prove nothing."""
        scope = cast("Scope", self.scope)
        if self.front.refusal(scope) is None and not self.front.is_open(scope):
            self._stranger_since = 0.0
            self.door.leaves(self)
        else:
            self._stranger_since = self.loop.time()

    # ---- the head

    def on_message_begin(self) -> None:
        self._inside = True
        self._head_bytes = 0
        self._head_since = self.loop.time()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_since = 0.0
        super().on_headers_complete()
        if self._stranger_since and "path" in self.scope:  # upgrades are checked separately
            self._let_in()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEADER_BYTES_MAX:
            raise ValueError(_TOO_LARGE)  # the parser reports it as its own error

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the problem document has its own text
        """Refuse bytes that are not HTTP, and close, because the end of the request is unknown."""
        if self._head_bytes > HEADER_BYTES_MAX:
            detail = f"request line and headers may have at most {HEADER_BYTES_MAX} bytes; send less"
            self._refuse(problem(431, "head_too_large", detail))
        else:
            self._refuse(problem(400, "malformed_request", "this is not an HTTP/1.1 request"))

    def _refuse(self, refused: Response) -> None:
        """Respond outside all routes and close the connection."""
        head = self.front.head_of(refused, self.server_state.default_headers)
        self.transport.write(b"".join((STATUS_LINE[refused.status], head, b"connection: close\r\n\r\n", refused.body)))
        self.transport.close()

    # ---- another node, for many workers, or a worker for itself

    def _should_upgrade(self) -> bool:
        return self.node is not None and self._get_upgrade() == _UPGRADE and self.url in _UPGRADE_PATHS

    def handle_websocket_upgrade(self) -> None:
        assert self.node is not None
        refused = self.front.refusal({**self.scope, "path": multiplexed.PATH})
        for_nodes = self.url == multiplexed.PATH.encode()
        if refused is None and for_nodes and not self._is_node():
            refused = not_a_node("this connection is for nodes of the cluster only")
        if refused is not None:
            self._refuse(refused)
            return
        self._looking.cancel()
        self.door.leaves(self)
        self.connections.discard(self)
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %b\r\n\r\n" % _UPGRADE
        )
        channel = self.node.workers.accept_connection("" if for_nodes else self._peer() or "?").channel
        channel.connection_made(self.transport)
        self.transport.set_protocol(channel)

    def _is_node(self) -> bool:
        """Look up an unknown node, so that its next try is recognized."""
        assert self.node is not None
        given = dict(self.headers).get(NODE, b"").decode("latin-1")
        if self.node.authentication.knows(given):
            return True
        if given:
            looking = self.loop.create_task(self.node.owners.refresh())
            self.tasks.add(looking)
            looking.add_done_callback(self.tasks.discard)
        return False

    # ---- the short way

    def data_received(self, data: bytes) -> None:
        mark = -1 if self._inside or self._answering() else data.find(_LENGTH)
        if mark > 0 and (scope := self._known.get(data[:mark])) is not None:
            body = _body_after(data, mark + len(_LENGTH))
            if body is not None:
                self._unset_keepalive_if_required()
                short = FastRequest(scope, body)
                self.cycle = cast("RequestResponseCycle", short)
                self._answer_soon(short)
                return
        self._feeding = True
        super().data_received(data)
        self._feeding = False
        while self._begun:  # the rest of its body may come later
            super()._start_asgi_task(*self._begun.pop())
        if mark > 0 and _body_after(data, mark + len(_LENGTH)) is not None:
            self._get_to_know(data[:mark])

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _get_to_know(self, head: bytes) -> None:
        """Return the head of the current request up to the content length, its last header."""
        cycle = self.cycle
        if isinstance(cycle, RequestResponseCycle) and _is_short(cycle) and cycle.keep_alive and not self._inside:
            scope = cast("Scope", cycle.scope)
            if self.front.knows(scope) and len(self._known) < KNOWN_MAX:
                self._known[head] = scope

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if not _is_short(cycle) or not self.front.answers(cast("Scope", cycle.scope)):
            super()._start_asgi_task(cycle, app)
        elif not cycle.more_body:
            self._answer_soon(cycle)
        elif self._feeding:
            self._begun.append((cycle, app))
        else:
            super()._start_asgi_task(cycle, app)

    def on_message_complete(self) -> None:
        self._inside = False
        super().on_message_complete()
        while self._begun:
            self._answer_soon(self._begun.pop()[0])

    def _answer_soon(self, cycle: RequestResponseCycle | FastRequest) -> None:
        task = self.loop.create_task(self._answer(cycle))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, cycle: RequestResponseCycle | FastRequest) -> None:
        answer = await self.front.answer(cast("Scope", cycle.scope), bytes(cycle.body))
        if self.flow.write_paused:
            await self.flow.drain()
        if cycle.disconnected or self.transport.is_closing():
            return
        head = self.front.head_of(answer, self.server_state.default_headers)
        last = not cycle.keep_alive or (b"connection", b"close") in answer.headers
        close = b"connection: close\r\n\r\n" if not cycle.keep_alive else b"\r\n"
        self.transport.write(b"".join((STATUS_LINE[answer.status], head, close, answer.body)))
        cycle.response_complete = True
        if last:
            self.transport.close()
        self.on_response_complete()


def _is_short(cycle: RequestResponseCycle) -> bool:
    """Whether the body is small, of known size and needs no special handling."""
    if cycle.scope["method"] != "POST" or cycle.waiting_for_100_continue:
        return False
    length = b""
    for name, value in cycle.scope["headers"]:
        if name == b"content-length":
            length = value
        elif name == b"transfer-encoding" or name == b"upgrade":
            return False
    return length.isdigit() and len(length) < 8 and int(length) <= SHORT_BYTES_MAX


def _body_after(data: bytes, start: int) -> bytes | None:
    """Return the body after the content length at `start`, if the head ends there and the body is complete."""
    end = data.find(_END, start, start + 8 + len(_END))
    length = data[start:end] if end > 0 else b""
    first = end + len(_END)
    if not length.isdigit() or int(length) != len(data) - first or len(data) - first > SHORT_BYTES_MAX:
        return None
    return data[first:]
