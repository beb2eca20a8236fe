"""The network between hosts: connections that carry requests and answers, and everything that befalls them.

One request is on a connection at a time, as in HTTP/1.1, so whoever gives up on one closes its connection. A message
takes a drawn time; it may be lost (then the connection stalls and breaks), arrive twice, or find its path cut. A
crash closes connections, and the other side hears of it unless nobody is left to tell. Only bytes cross.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from sim.hosts import MS, Host, World
from tickwork.core.base.errors import Unavailable
from tickwork.testing.virtual_loop import NS

DELAY_NS = MS // 2  # the usual way of a message
STALL_NS_MAX = 20 * NS  # how long a connection may hang before one side finds out
SPIKE_NS_MAX = 30 * NS
RETRY_AFTER_MS = 100


class Service(Protocol):
    """What listens on a host."""

    async def serve(self, request: bytes, peer: str) -> bytes: ...

    def closed(self, peer: str) -> None:
        """This connection ended, or broke. Called in the host's process."""


class Connection:
    """From a client to a server. `peer` is its name at the server; every connection has another one."""

    def __init__(self, net: "Net", number: int, client: Host, server: Host, port: str) -> None:
        self.net, self.number, self.port = net, number, port
        self.peer = f"{client.name}#{number}"
        self.client, self.server = client, server
        self.client_process, self.server_process = client.process, server.process
        self.open = True  # as the client sees it
        self.told = False  # the server knows that it ended
        self.reached = False  # the server has heard of it at all
        self.waiting: asyncio.Future[bytes] | None = None

    async def request(self, data: bytes) -> bytes:
        """Raises `Unavailable` where it breaks. Whoever is cancelled here has closed the connection."""
        assert self.waiting is None, "one request at a time"
        if not self.open:
            raise _broken(self)
        self.waiting = self.net.world.loop.create_future()
        try:
            self.net.send(self, data)
            return await self.waiting
        except BaseException:
            self.close()
            raise
        finally:
            self.waiting = None

    def close(self) -> None:
        if self.open:
            self.open = False
            self.net.hang_up(self)

    def fail(self) -> None:
        """The client finds out."""
        self.open = False
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(_broken(self))


def _broken(connection: Connection) -> Unavailable:
    return Unavailable(f"the connection to {connection.server.name} broke: try again", retry_after_ms=RETRY_AFTER_MS)


class Net:
    def __init__(self, world: World) -> None:
        self.world = world
        self.chance = world.chance.stream("net")
        self.cut: dict[tuple[str, str], int] = {}  # (from, to) -> how many cuts are on this path
        self._services: dict[tuple[str, str], tuple[object, Service]] = {}  # host, port -> its process, who listens
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        world.on_crash(self._crashed)

    def listen(self, host: Host, service: Service, *, port: str = "") -> None:
        """Until the process ends or `silence`."""
        self._services[host.name, port] = (host.process, service)

    def silence(self, host: Host, *, port: str = "") -> None:
        self._services.pop((host.name, port), None)

    async def connect(self, client: Host, server: str, *, port: str = "") -> Connection:
        """Raises `Unavailable` where nobody listens; where the path is cut it says so only after a while."""
        await self._travel(client.name, server)
        await self._travel(server, client.name)
        if self._service(server, port) is None:
            raise Unavailable(f"nobody listens on {server}: try again", retry_after_ms=RETRY_AFTER_MS)
        self._numbers += 1
        made = Connection(self, self._numbers, client, self.world.hosts[server], port)
        self._connections[self._numbers] = made
        return made

    async def request(self, client: Host, server: str, data: bytes, *, port: str = "") -> bytes:
        """One request on a connection of its own."""
        connection = await self.connect(client, server, port=port)
        try:
            return await connection.request(data)
        finally:
            connection.close()

    # ---- partitions

    def partition(self, one: str, other: str, *, both_ways: bool = True) -> None:
        self.world.note("net", "cuts", f"{one} -> {other}{' and back' if both_ways else ''}")
        for path in _paths(one, other, both_ways=both_ways):
            self.cut[path] = self.cut.get(path, 0) + 1

    def join(self, one: str, other: str, *, both_ways: bool = True) -> None:
        self.world.note("net", "joins", f"{one} -> {other}{' and back' if both_ways else ''}")
        for path in _paths(one, other, both_ways=both_ways):
            self.cut[path] = max(0, self.cut.get(path, 0) - 1)

    def heal(self) -> None:
        self.cut.clear()

    # ---- messages

    def send(self, connection: Connection, data: bytes) -> None:
        client, server = connection.client.name, connection.server.name
        if self._lost(client, server):
            self._stall(connection)
            return
        self._after_ns(self._delay_ns(), self._arrive, connection, data, True)
        if self.world.strikes(self.chance, f"{client} -> {server}", "duplicate"):
            self._after_ns(self._delay_ns(), self._arrive, connection, data, False)

    def hang_up(self, connection: Connection) -> None:
        """The client closed it; the server hears of that where the path is whole."""
        if not self._is_cut(connection.client.name, connection.server.name):
            self._after_ns(self._delay_ns(), self._tell_server, connection)
        else:
            self._after_ns(self.chance.between(NS, STALL_NS_MAX), self._tell_server, connection)

    def _arrive(self, connection: Connection, data: bytes, answered: bool) -> None:
        server = connection.server
        service = self._service(server.name, connection.port)
        if connection.server_process is not server.process or service is None:
            self._after_ns(self._delay_ns(), connection.fail)  # refused by whoever is there now
            return
        connection.reached = True
        server.spawn(self._serve(connection, service, data, answered), name=f"serves {connection.peer}")

    async def _serve(self, connection: Connection, service: Service, data: bytes, answered: bool) -> None:
        """Runs in the server's process. An exception of the service is an internal error: the connection ends."""
        try:
            answer = await service.serve(data, connection.peer)
        except Unavailable:
            if answered:
                self._after_ns(self._delay_ns(), connection.fail)
            return
        if not answered:
            return
        if self._lost(connection.server.name, connection.client.name):
            self._stall(connection)
        else:
            self._after_ns(self._delay_ns(), self._answer, connection, answer)

    @staticmethod
    def _answer(connection: Connection, answer: bytes) -> None:
        if connection.open and connection.waiting is not None and not connection.waiting.done():
            connection.waiting.set_result(answer)

    def _stall(self, connection: Connection) -> None:
        """Nothing arrives any more; each side finds out in its own time."""
        self._after_ns(self.chance.between(MS, STALL_NS_MAX), connection.fail)
        self._after_ns(self.chance.between(MS, STALL_NS_MAX), self._tell_server, connection)

    def _tell_server(self, connection: Connection) -> None:
        server = connection.server
        self._connections.pop(connection.number, None)
        if connection.told or connection.server_process is not server.process or not server.up:
            return
        connection.told = True
        service = self._service(server.name, connection.port)
        if service is not None and connection.reached:
            self.world.note(server.name, "hears the end of", connection.peer)
            server.spawn(_tell(service.closed, connection.peer), name=f"ends {connection.peer}")

    def _crashed(self, host: Host, told: bool) -> None:
        for place in [place for place in self._services if place[0] == host.name]:
            del self._services[place]
        for connection in list(self._connections.values()):
            if connection.client_process is host.process:
                connection.open = False
                self._end_of(connection, told, host.name, connection.server.name, self._tell_server, connection)
            elif connection.server_process is host.process:
                self._end_of(connection, told, host.name, connection.client.name, connection.fail)

    def _end_of(
        self, connection: Connection, told: bool, here: str, there: str, tell: Callable[..., None], *args: Connection
    ) -> None:
        half_open = self.world.strikes(self.chance, connection.peer, "half_open")
        if told and not half_open and not self._is_cut(here, there):
            self._after_ns(self._delay_ns(), tell, *args)
        elif tell == connection.fail:  # a client has time-outs; a server that is never told has its own
            self._after_ns(self.chance.between(NS, STALL_NS_MAX), tell, *args)

    # ---- ways

    async def _travel(self, one: str, other: str) -> None:
        loop = self.world.loop
        arrived = loop.create_future()
        if self._lost(one, other):
            error = Unavailable(f"no answer from {other}: try again", retry_after_ms=RETRY_AFTER_MS)
            self._after_ns(self.chance.between(NS, STALL_NS_MAX), _fail, arrived, error)
        else:
            self._after_ns(self._delay_ns(), _done, arrived)
        await arrived

    def _lost(self, one: str, other: str) -> bool:
        return self._is_cut(one, other) or self.world.strikes(self.chance, f"{one} -> {other}", "drop")

    def _is_cut(self, one: str, other: str) -> bool:
        return any(self.cut.get(path) for path in ((one, other), (one, "*"), ("*", other)))

    def _delay_ns(self) -> int:
        if self.world.strikes(self.chance, "net", "spike"):
            return self.chance.between(NS, SPIKE_NS_MAX)
        return self.chance.delay_ns(DELAY_NS)

    def _after_ns(self, delay_ns: int, what: Callable[..., object], *args: object) -> None:
        self.world.at_ns(self.world.loop.now_ns + delay_ns, what, *args)

    def _service(self, name: str, port: str) -> Service | None:
        host = self.world.hosts.get(name)
        found = self._services.get((name, port))
        if host is None or found is None or found[0] is not host.process or not host.up:
            return None
        return found[1]


async def _tell(closed: Callable[[str], None], peer: str) -> None:
    closed(peer)


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Unavailable) -> None:
    if not future.done():
        future.set_exception(error)


def _paths(one: str, other: str, *, both_ways: bool) -> list[tuple[str, str]]:
    return [(one, other), (other, one)] if both_ways else [(one, other)]
