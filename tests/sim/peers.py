"""The other nodes through the simulated network, and leases in the simulated store."""

import asyncio
from collections.abc import Callable, Container, Sequence
from urllib.parse import urlsplit

import msgspec

from sim.asgi import PORT, Answer, Request
from sim.hosts import Host
from sim.network import Net
from sim.store import SimStore
from tickwork.cluster.node_credentials import CODE as NOT_A_NODE
from tickwork.cluster.node_credentials import HEADER
from tickwork.cluster.request_forwarder import SAFE, ForwardedResponse, Header, no_answer
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.ports.leases import HeldLease, Member
from tickwork.protocol import partition_messages
from tickwork.protocol.http_models import Publication, Publications
from tickwork.protocol.partition_messages import CommandBatch, CommandOutcome
from tickwork.protocol.worker_messages import Call, Heartbeats, Reply, encoder, reply_decoder
from tickwork.stores.leases.memory import MemoryLeases

MSGPACK = "application/msgpack"
PATIENCE_S = 10.0
_answers = msgspec.msgpack.Decoder(Answer)


def address_of(host: str) -> str:
    return f"http://{host}"


class SimPeers:
    def __init__(self, net: Net, host: Host) -> None:
        self._net, self._host = net, host
        self._secret = ""
        self._exchanging: dict[asyncio.Timeout, str] = {}  # to which address

    def identify(self, secret: str) -> None:
        self._secret = secret

    async def exchange(self, address: str, partition: int, call: Call) -> Reply:
        path = f"/v1/workers/{call.worker}/exchange?partition={partition}"
        request = Request("POST", path, encoder.encode(call), MSGPACK)
        try:
            async with asyncio.timeout(None) as until_cut:
                self._exchanging[until_cut] = address
                answer = await self._ask(address, request, PATIENCE_S + call.wait_ms / 1000)
        except TimeoutError:
            raise Unavailable(f"{address} is gone", retry_after_ms=100) from None
        finally:
            del self._exchanging[until_cut]
        _must_do(answer)
        return reply_decoder.decode(answer.body)

    async def beat(self, address: str, via: str, workers: Sequence[str]) -> None:
        body = encoder.encode(Heartbeats(via, tuple(workers)))
        try:
            _must_do(await self._ask(address, Request("POST", "/v1/cluster/beats", body, MSGPACK), PATIENCE_S))
        except Unavailable:
            self._cut(lambda one: one == address)
            raise

    def keep_only(self, addresses: Container[str]) -> None:
        self._cut(lambda one: one not in addresses)

    def _cut(self, is_gone: Callable[[str], bool]) -> None:
        for waiting, address in list(self._exchanging.items()):
            if is_gone(address) and not waiting.expired():
                waiting.reschedule(asyncio.get_running_loop().time())

    async def announce(self, address: str, partition: int) -> None:
        _must_do(await self._ask(address, Request("POST", f"/v1/cluster/announce?partition={partition}"), PATIENCE_S))

    async def give(self, address: str, partition: int) -> None:
        _must_do(await self._ask(address, Request("POST", f"/v1/cluster/give?partition={partition}"), PATIENCE_S))

    async def published(self, address: str, partition: int, tenant: str) -> list[Publication]:
        path = f"/v1/cluster/published?partition={partition}&tenant={tenant}"
        answer = await self._ask(address, Request("POST", path), PATIENCE_S)
        _must_do(answer)
        return list(msgspec.json.decode(answer.body, type=Publications).publications)

    async def deliver(self, address: str, partition: int, batch: CommandBatch) -> list[CommandOutcome]:
        request = Request(
            "POST", f"/v1/cluster/commands?partition={partition}", partition_messages.encode(batch), MSGPACK
        )
        answer = await self._ask(address, request, PATIENCE_S)
        _must_do(answer)
        return partition_messages.outcomes_decoder.decode(answer.body)

    async def close(self) -> None: ...

    async def _ask(self, address: str, request: Request, patience_s: float) -> Answer:
        try:
            async with asyncio.timeout(patience_s):
                host = urlsplit(address).hostname or ""
                request.headers = ((HEADER.encode(), self._secret.encode()),)
                return _answers.decode(
                    await self._net.request(self._host, host, msgspec.msgpack.encode(request), port=PORT)
                )
        except TimeoutError:
            raise Unavailable(f"{address} does not answer", retry_after_ms=100) from None


def _must_do(answer: Answer) -> None:
    if answer.status < 300:
        return
    said = answer.json()
    if answer.status in (429, 503, 504, 507) or said["code"] == NOT_A_NODE:
        raise Unavailable(said["detail"], retry_after_ms=100)
    raise Refused(said["code"], said["detail"])


class SimCarrier:
    """Requests that a node forwards."""

    def __init__(self, net: Net, host: Host) -> None:
        self._net, self._host = net, host

    async def carry(
        self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes
    ) -> ForwardedResponse:
        asked = Request(method, target, body, headers=tuple(headers))
        try:
            async with asyncio.timeout(PATIENCE_S):
                host = urlsplit(address).hostname or ""
                data = await self._net.request(self._host, host, msgspec.msgpack.encode(asked), port=PORT)
        except TimeoutError:
            if method in SAFE:
                raise Unavailable(f"{address} does not answer", retry_after_ms=100) from None
            raise no_answer(address, "no answer in time") from None
        answer = _answers.decode(data)
        return ForwardedResponse(answer.status, list(answer.headers), answer.body)

    async def close(self) -> None: ...


class SimLeases:
    """Leases in the store that the nodes share: they take time and fail as it does."""

    def __init__(self, store: SimStore, inner: MemoryLeases) -> None:
        self._store, self._inner = store, inner

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def beat(self, member: Member, *, ttl_ms: int) -> None:
        await self._store.deed("beat", lambda: self._inner.beat(member, ttl_ms=ttl_ms))

    async def leave(self, session: str) -> None:
        await self._store.deed("leave", lambda: self._inner.leave(session))

    async def members(self) -> list[Member]:
        return await self._store.look("members", self._inner.members)

    async def take(self, partition: int, member: Member, *, ttl_ms: int) -> bool:
        return await self._store.deed("take", lambda: self._inner.take(partition, member, ttl_ms=ttl_ms))

    async def renew(self, partitions: Sequence[int], session: str, *, ttl_ms: int) -> frozenset[int]:
        return await self._store.deed("renew", lambda: self._inner.renew(partitions, session, ttl_ms=ttl_ms))

    async def release(self, partition: int, session: str) -> None:
        await self._store.deed("release", lambda: self._inner.release(partition, session))

    async def holdings(self) -> list[HeldLease]:
        return await self._store.look("holdings", self._inner.holdings)
