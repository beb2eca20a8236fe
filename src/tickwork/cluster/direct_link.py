"""A worker that speaks to every owner by itself, where it can reach them.

It begins at the server that it was given, which stands for it. Where there are several nodes it asks who owns what and
tries to reach every owner. If it can, it deals its credit out itself, as a node would for it, and each call goes
straight to its owner; if it cannot, because only the given address leads anywhere, all stays as it was. Owners see a
change only as an introduction, and the latest one counts: nothing is held twice, and what was reported on the way
that ended is reported again.
"""

import asyncio
import math
from collections.abc import Callable, Container, Coroutine
from typing import Any, Protocol

from tickwork.cluster.multiplexed_connection import WORKER_PATH, MultiplexedConnection, UpgradeRefused
from tickwork.cluster.worker_gateway import WorkerGateway
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.ports.system import Clock
from tickwork.protocol.http_models import Owners
from tickwork.protocol.worker_messages import Call, Catalog, Link, LogPiece, Reading, ReadRequest, Reply
from tickwork.runtime.workers.failure_detector import FailureDetector
from tickwork.worker.http_link import MSGPACK

PARTITIONS_MAX = 32  # a call waits at each: of more, the node that stands for a worker makes fewer
FIRST_S = 1.0  # so long the first call waits for a way to the owners
SOON_S, LOOK_S = 0.5, 30.0  # after which is looked again whether there is one: soon, while a cluster forms, then seldom
AGAIN_S = 0.05  # the shortest time between two lookups of the owners after a missing answer
FALL_BACK_S = 30.0  # an owner that cannot be reached for so long is not dead, or another would own its partitions
ANSWER_S = 10.0  # beyond what the owner may wait for work
RETRY_MS = 50


class GatewayLink(Link, Protocol):
    """The server that a worker was given."""

    async def owners(self, address: str = "") -> Owners:
        """As the node at `address` says, or the given server. Raises `Refused` where it is alone."""


class OwnerConnections(Protocol):
    """The way to owners. Raises `OwnerUnreachable`, what the owner says, or `UpgradeRefused`."""

    async def open(self, address: str) -> None: ...

    async def exchange(self, address: str, partition: int, call: Call) -> Reply: ...

    def keep_only(self, addresses: Container[str]) -> None: ...

    def close(self) -> None: ...


class OwnerUnreachable(Unavailable):
    """No answer at this address."""


class HttpOwnerConnections:
    """By one connection to each node."""

    def __init__(self, *, token: str | Callable[[], str] = "", secure: bool = False) -> None:
        """`token` may be called for each connection. `secure`: the given server is reached by TLS, and the token
        goes nowhere without it."""
        self._token = token
        self._secure = secure
        self._connections: dict[str, MultiplexedConnection] = {}

    async def open(self, address: str) -> None:
        try:
            await self._connection(address).open()
        except (OSError, TimeoutError) as error:
            raise _unreached(address, error) from error

    async def exchange(self, address: str, partition: int, call: Call) -> Reply:
        connection = self._connection(address)
        try:
            return await connection.send(partition, call, timeout_s=ANSWER_S + call.wait_ms / 1000)
        except (OSError, TimeoutError) as error:
            if isinstance(error, TimeoutError) and self._connections.get(address) is connection:
                self._cut(address)  # it may hang without an end
            raise _unreached(address, error) from error

    def _connection(self, address: str) -> MultiplexedConnection:
        if self._secure and not address.startswith("https:"):
            raise UpgradeRefused
        if address not in self._connections:
            token = self._token if isinstance(self._token, str) else self._token()
            headers = MSGPACK | ({"authorization": f"Bearer {token}"} if token else {})
            self._connections[address] = MultiplexedConnection(address, headers=headers, path=WORKER_PATH)
        return self._connections[address]

    def keep_only(self, addresses: Container[str]) -> None:
        for address in [address for address in self._connections if address not in addresses]:
            self._cut(address)

    def _cut(self, address: str) -> None:
        self._connections.pop(address).close()

    def close(self) -> None:
        self.keep_only(())


class OwnerLink:
    """`ports.exchange.Link`."""

    def __init__(self, given: GatewayLink, reach: OwnerConnections, *, clock: Clock) -> None:
        self._given, self._reach, self._clock = given, reach, clock
        self._gateway: WorkerGateway | None = None  # as long as every owner is spoken to
        self._next_gateway: WorkerGateway | None = None  # the same, from the next call on
        self._owners: tuple[str, ...] = ()  # addresses, by partition
        self._unreached: dict[str, float] = {}  # since when
        self._look_at, self._pause_s = 0.0, SOON_S
        self._looking: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def direct(self) -> bool:
        return self._gateway is not None

    async def call(self, call: Call) -> Reply:
        if self._gateway is None and not call.goodbye:
            await self._look_for_ways()
            self._change_over()
        gateway = self._gateway
        return await self._given.call(call) if gateway is None else await gateway.exchange(call)

    async def fetch(self, digest: str) -> bytes:
        return await self._given.fetch(digest)

    async def store(self, data: bytes) -> str:
        return await self._given.store(data)

    async def log(self, piece: LogPiece) -> None:
        await self._given.log(piece)

    async def read(self, request: ReadRequest) -> Reading:
        return await self._given.read(request)

    async def publish(self, catalog: Catalog) -> str:
        return await self._given.publish(catalog)

    async def close(self) -> None:
        """Close the connections to partition owners. The caller's own link stays open."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._fall_back()
        await asyncio.gather(*self._closing)
        self._reach.close()

    # ---- whether

    async def _look_for_ways(self) -> None:
        loop = asyncio.get_running_loop()
        first = self._look_at == 0.0
        if self._looking is None and loop.time() >= self._look_at:
            self._look_at = loop.time() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LOOK_S)
            self._look_by(self._find_ways())
        if first and self._looking is not None:
            await asyncio.wait([self._looking], timeout=FIRST_S)

    async def _find_ways(self) -> None:
        """No caller waits for this, and a failure does no harm: the given server remains in use."""
        try:
            owners = await self._given.owners()
            if owners.nodes > 1 and all(owners.partitions) and len(owners.partitions) <= PARTITIONS_MAX:
                for address in dict.fromkeys(owners.partitions):
                    await self._reach.open(address)
                self._owners = owners.partitions
                self._next_gateway = self._new_gateway(owners.store)
        except Refused:
            self._look_at = math.inf  # it is alone
        except (Unavailable, UpgradeRefused):
            self._reach.keep_only(())

    def _new_gateway(self, store: str) -> WorkerGateway:
        return WorkerGateway(
            route=self._exchange_with_owner,
            heartbeats=_no_heartbeats,
            session="own",
            partitions=len(self._owners),
            clock=self._clock,
            on_alarm=lambda _kind, _text: None,
            detector=FailureDetector(),
            own=True,
            store=store,
        )

    def _change_over(self) -> None:
        if self._next_gateway is not None:
            self._gateway, self._next_gateway = self._next_gateway, None
            self._look_at = asyncio.get_running_loop().time()

    def _fall_back(self) -> None:
        """To the given server, which stands for this worker again."""
        gateway, self._gateway, self._next_gateway = self._gateway, None, None
        if gateway is None:
            return
        self._pause_s = LOOK_S
        self._look_at = asyncio.get_running_loop().time() + LOOK_S
        self._unreached.clear()
        closing = asyncio.get_running_loop().create_task(self._close_gateway(gateway))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close_gateway(self, gateway: WorkerGateway) -> None:
        await gateway.close()
        if self._gateway is None:
            self._reach.keep_only(())

    # ---- to an owner

    async def _exchange_with_owner(self, partition: int, call: Call) -> Reply:
        address = self._owners[partition]
        try:
            if not address:
                raise Unavailable(f"partition {partition} has no owner now", retry_after_ms=RETRY_MS)
            reply = await self._reach.exchange(address, partition, call)
        except UpgradeRefused:
            self._fall_back()
            raise Unavailable("that owner does not accept direct connections", retry_after_ms=RETRY_MS) from None
        except Unavailable as error:
            if isinstance(error, OwnerUnreachable):
                self._unreached.setdefault(address, asyncio.get_running_loop().time())
            self._look_again()
            raise
        self._unreached.pop(address, None)
        if reply.store and call.store and reply.store != call.store:
            self._fall_back()  # the given server says which store it has now
            raise Unavailable(f"the node at {address} has another store", retry_after_ms=RETRY_MS)
        return reply

    def _look_again(self) -> None:
        loop = asyncio.get_running_loop()
        if self._looking is None and self._gateway is not None and loop.time() >= self._look_at:
            self._look_at = loop.time() + AGAIN_S
            self._look_by(self._follow_owners())

    async def _follow_owners(self) -> None:
        reached = [fromkey for fromkey in dict.fromkeys(self._owners) if fromkey and fromkey not in self._unreached]
        for address in (*reached, ""):
            try:
                owners = await self._given.owners(address)
                partitions = owners.partitions
                break
            except TickworkError:
                continue
        else:
            return  # the next call looks again
        gateway, before = self._gateway, self._owners
        moved = gateway is not None and bool(owners.store and gateway.store) and owners.store != gateway.store
        if gateway is None or moved or len(partitions) != len(before) or self._out_of_reach(partitions):
            self._fall_back()
            return
        self._owners = partitions
        self._reach.keep_only(partitions)
        for partition, address in enumerate(partitions):
            if address and address != before[partition]:
                gateway.owner_moved(partition)

    def _out_of_reach(self, owners: tuple[str, ...]) -> bool:
        """Whether one of them lives, as the others say, and not for this worker."""
        self._unreached = {address: since for address, since in self._unreached.items() if address in owners}
        since = min(self._unreached.values(), default=math.inf)
        return asyncio.get_running_loop().time() - since > FALL_BACK_S

    def _look_by(self, look: Coroutine[Any, Any, None]) -> None:
        self._looking = asyncio.get_running_loop().create_task(look)
        self._looking.add_done_callback(self._looked)

    def _looked(self, looking: "asyncio.Task[None]") -> None:
        self._looking = None
        if not looking.cancelled():
            looking.result()


async def _no_heartbeats(_workers: object) -> None:
    """A worker that calls each owner itself needs no other sender of heartbeats."""


def _unreached(address: str, error: Exception) -> OwnerUnreachable:
    return OwnerUnreachable(
        f"the node at {address} cannot be reached: {error or type(error).__name__}", retry_after_ms=RETRY_MS
    )
