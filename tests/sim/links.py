"""A worker's way to its server through the simulated network.

`SimLink` is `ports.exchange.Link`. It keeps connections as an HTTP client does: one request at a time on each, idle
ones are used again, and giving up on a request closes its connection, which the server hears of.
"""

import asyncio
from collections.abc import Container, Sequence
from typing import Protocol

import msgspec

from sim.hosts import Host
from sim.network import Connection, Net
from tickwork.cluster.direct_link import OwnerUnreachable
from tickwork.core.base.errors import Corrupt, Refused, TickworkError, Unavailable
from tickwork.protocol.http_models import Owners
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Catalog,
    LogPiece,
    NodeSpec,
    Reading,
    ReadRequest,
    Reply,
    call_decoder,
    encoder,
    of_other_store,
    reply_decoder,
)

SCHEME = "http://"
FOREIGN = "foreign"  # identity of another store, and the handler of its tasks
FOREIGN_SPEC = NodeSpec(1, "task", "foreign", "foreign", "foreign", FOREIGN)
FOREIGN_WAIT_MS = 200
PATIENCE_S = 15.0  # beyond what a call allows the server to wait


class Server(Protocol):
    """What a node offers to workers; the object behind its HTTP routes."""

    async def exchange(self, call: Call, peer: str, partition: int) -> Reply:
        """`partition`: of a worker that speaks to owners by itself; else -1."""

    async def owners(self) -> Owners: ...

    def connection_closed(self, peer: str) -> None: ...

    async def fetch(self, digest: str) -> bytes: ...

    async def store(self, data: bytes) -> str: ...

    async def log(self, piece: LogPiece) -> None: ...

    async def publish(self, catalog: Catalog) -> str: ...


class _Request(msgspec.Struct, array_like=True):
    route: str
    body: bytes = b""
    numbers: tuple[int, ...] = ()


class _Answer(msgspec.Struct, array_like=True):
    body: bytes = b""
    problem: str = ""  # unavailable, refused, corrupt
    code: str = ""
    message: str = ""
    retry_after_ms: int = 0


_requests = msgspec.msgpack.Decoder(_Request)
_answers = msgspec.msgpack.Decoder(_Answer)
_catalogs = msgspec.msgpack.Decoder(Catalog)
_owners = msgspec.msgpack.Decoder(Owners)
_pieces = msgspec.msgpack.Decoder(LogPiece)


class ServerService:
    """`network.Service` in front of a server: `net.listen(host, ServerService(server))`."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def serve(self, request: bytes, peer: str) -> bytes:
        asked = _requests.decode(request)
        try:
            return encoder.encode(_Answer(await self._route(asked, peer)))
        except Unavailable as error:
            return encoder.encode(_Answer(b"", "unavailable", error.code, str(error), error.retry_after_ms))
        except TickworkError as error:
            kind = "corrupt" if isinstance(error, Corrupt) else "refused"
            return encoder.encode(_Answer(b"", kind, error.code, str(error)))

    def closed(self, peer: str) -> None:
        self.server.connection_closed(peer)

    async def _route(self, asked: _Request, peer: str) -> bytes:
        match asked.route:
            case "exchange":
                partition = asked.numbers[0] if asked.numbers else -1
                return encoder.encode(await self.server.exchange(call_decoder.decode(asked.body), peer, partition))
            case "owners":
                return encoder.encode(await self.server.owners())
            case "fetch":
                return await self.server.fetch(asked.body.decode())
            case "store":
                return (await self.server.store(asked.body)).encode()
            case "log":
                await self.server.log(_pieces.decode(asked.body))
                return b""
            case "publish":
                return (await self.server.publish(_catalogs.decode(asked.body))).encode()
        raise Refused("not_found", f"there is no {asked.route}")


class ForeignStore:
    """Another store that answers a worker for a while: its tasks have numbers of ours, and other results."""

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._work = tuple(AttemptJob(*pair, 1, "foreign", "foreign", b"\x80") for pair in pairs)
        self._known = False

    async def exchange(self, call: Call) -> Reply:
        if (other := of_other_store(call, FOREIGN)) is not None:
            return other
        if call.profile is not None:
            self._known = True
            return Reply(call.seq, self._work, (FOREIGN_SPEC,), store=FOREIGN)
        if not self._known:
            return Reply(call.seq, resync=True)
        await asyncio.sleep(min(call.wait_ms, FOREIGN_WAIT_MS) / 1000)
        return Reply(call.seq)


class SimLink:
    """Servers are tried in turn: after a failure the next call goes to the next one."""

    def __init__(self, net: Net, host: Host, servers: tuple[str, ...]) -> None:
        self.net = net
        self.host = host
        self.servers = servers
        self.server = 0
        self._idle: list[Connection] = []
        self.foreign: ForeignStore | None = None  # it answers instead

    async def call(self, call: Call) -> Reply:
        if self.foreign is not None:
            return await self.foreign.exchange(call)
        body = encoder.encode(call)
        answer = await self._ask(_Request("exchange", body), patience_s=PATIENCE_S + call.wait_ms / 1000)
        return reply_decoder.decode(answer)

    async def owners(self, address: str = "") -> Owners:
        if not address:
            return _owners.decode(await self._ask(_Request("owners")))
        other = SimLink(self.net, self.host, (address.removeprefix(SCHEME),))
        try:
            return await other.owners()
        finally:
            other.close()

    async def fetch(self, digest: str) -> bytes:
        return await self._ask(_Request("fetch", digest.encode()))

    async def store(self, data: bytes) -> str:
        return (await self._ask(_Request("store", data))).decode()

    async def log(self, piece: LogPiece) -> None:
        if self.foreign is None:
            await self._ask(_Request("log", encoder.encode(piece)))

    async def read(self, request: ReadRequest) -> Reading:
        raise AssertionError(request)

    async def publish(self, catalog: Catalog) -> str:
        return (await self._ask(_Request("publish", encoder.encode(catalog)))).decode()

    def come_home(self) -> None:
        """Its own servers answer again."""
        self.foreign = None

    def close(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _ask(self, request: _Request, *, patience_s: float = PATIENCE_S) -> bytes:
        try:
            return _understood(await self._answer(request, patience_s))
        except Unavailable:
            self._next_server()
            raise

    async def _answer(self, request: _Request, patience_s: float) -> _Answer:
        try:
            async with asyncio.timeout(patience_s):
                return _answers.decode(await self._send(encoder.encode(request)))
        except TimeoutError:
            raise OwnerUnreachable("the server does not answer: try again", retry_after_ms=1_000) from None
        except Unavailable as error:
            raise OwnerUnreachable(str(error), retry_after_ms=error.retry_after_ms) from None

    async def exchange_at(self, partition: int, call: Call) -> Reply:
        request = _Request("exchange", encoder.encode(call), (partition,))
        return reply_decoder.decode(_understood(await self._answer(request, PATIENCE_S + call.wait_ms / 1000)))

    async def _send(self, data: bytes) -> bytes:
        connection = await self._connection()
        answer = await connection.request(data)
        if connection.open:
            self._idle.append(connection)
        return answer

    async def _connection(self) -> Connection:
        """An idle one if it is still whole, as far as a client can tell."""
        while self._idle:
            connection = self._idle.pop()
            if connection.open and connection.server.name == self.servers[self.server]:
                return connection
            connection.close()
        return await self.net.connect(self.host, self.servers[self.server])

    def _next_server(self) -> None:
        self.close()
        self.server = (self.server + 1) % len(self.servers)


def _understood(answer: _Answer) -> bytes:
    match answer.problem:
        case "":
            return answer.body
        case "unavailable":
            raise Unavailable(answer.message, retry_after_ms=answer.retry_after_ms)
        case "corrupt":
            raise Corrupt(answer.message)
    raise Refused(answer.code, answer.message)


class SimReach:
    """`cluster.direct.Reach`: connections to each owner, as to a server."""

    def __init__(self, net: Net, host: Host) -> None:
        self._net, self._host = net, host
        self._links: dict[str, SimLink] = {}

    async def open(self, address: str) -> None:
        await self._link(address).owners()

    async def exchange(self, address: str, partition: int, call: Call) -> Reply:
        return await self._link(address).exchange_at(partition, call)

    def _link(self, address: str) -> SimLink:
        if address not in self._links:
            self._links[address] = SimLink(self._net, self._host, (address.removeprefix(SCHEME),))
        return self._links[address]

    def keep_only(self, addresses: Container[str]) -> None:
        for address in [one for one in self._links if one not in addresses]:
            self._links.pop(address).close()

    def close(self) -> None:
        self.keep_only(())
