"""The other nodes: what a node asks of them, and how it does over HTTP.

The exchange goes through one multiplexed connection for all workers, everything else through the public API. Where
something between the nodes passes no upgrade on, each exchange is a request.
"""

import asyncio
from collections.abc import Container, Sequence
from typing import Protocol
from urllib.parse import quote

import msgspec

from tickwork.cluster.multiplexed_connection import MultiplexedConnection, UpgradeRefused
from tickwork.cluster.node_credentials import CODE as NOT_A_NODE
from tickwork.cluster.node_credentials import HEADER
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.protocol import partition_messages
from tickwork.protocol.http_models import Problem, Publication, Publications
from tickwork.protocol.partition_messages import CommandBatch, CommandOutcome
from tickwork.protocol.worker_messages import Call, Heartbeats, Reply, encoder, reply_decoder
from tickwork.worker.http1 import PostClient

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}
ANSWER_S = 10.0  # beyond what the owner may wait for work
RETRY_MS = 50
SINGLY_S = 60.0  # so long single requests are used before a trunk is tried again


class Peers(Protocol):
    """The other nodes. Raises `Unavailable` if one cannot be reached or does not own the partition."""

    async def exchange(self, address: str, partition: int, call: Call) -> Reply: ...

    async def beat(self, address: str, via: str, workers: Sequence[str]) -> None:
        """These workers live, says the node `via`, which stands for them."""

    def keep_only(self, addresses: Container[str]) -> None:
        """Nodes elsewhere are gone: calls to them that wait for an answer end."""

    async def announce(self, address: str, partition: int) -> None:
        """It is about to be that node's, which reads ahead. Raises `Refused` where that node owns nothing more."""

    async def give(self, address: str, partition: int) -> None:
        """It is free. Returns when it ticks there."""

    async def published(self, address: str, partition: int, tenant: str) -> list[Publication]:
        """What that partition, the home of the tenant, has of it."""

    async def deliver(self, address: str, partition: int, batch: CommandBatch) -> list[CommandOutcome]:
        """Commands of tasks for a partition of that node, and what it decided about each."""

    def identify(self, secret: str) -> None:
        """Sent with each request from now on."""

    async def close(self) -> None: ...


class HttpPeers:
    def __init__(self, *, token: str = "") -> None:
        self._headers = MSGPACK | ({"authorization": f"Bearer {token}"} if token else {})
        self._posters: dict[str, PostClient] = {}
        self._connections: dict[str, MultiplexedConnection] = {}
        self._singly: dict[str, float] = {}  # until when

    def identify(self, secret: str) -> None:
        self._headers = {**self._headers, HEADER: secret}
        clients: list[PostClient | MultiplexedConnection] = [*self._posters.values(), *self._connections.values()]
        for client in clients:
            client.set_headers(self._headers)

    async def exchange(self, address: str, partition: int, call: Call) -> Reply:
        loop = asyncio.get_running_loop()
        if self._singly.get(address, 0.0) > loop.time():
            return await self._exchange_alone(address, partition, call)
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = MultiplexedConnection(address, headers=self._headers)
        try:
            return await connection.send(partition, call, timeout_s=ANSWER_S + call.wait_ms / 1000)
        except (OSError, TimeoutError) as error:
            raise _unreached(address, error) from error
        except UpgradeRefused:
            self._singly[address] = loop.time() + SINGLY_S
            return await self._exchange_alone(address, partition, call)

    async def _exchange_alone(self, address: str, partition: int, call: Call) -> Reply:
        path = f"/v1/workers/{quote(call.worker, safe='')}/exchange?partition={partition}"
        data = await self._post(address, path, encoder.encode(call), ANSWER_S + call.wait_ms / 1000)
        try:
            return reply_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the reply of {address} cannot be read: {error}", retry_after_ms=RETRY_MS) from error

    async def beat(self, address: str, via: str, workers: Sequence[str]) -> None:
        try:
            await self._post(address, "/v1/cluster/beats", encoder.encode(Heartbeats(via, tuple(workers))), ANSWER_S)
        except Unavailable:
            self._cut(address)  # it may hang without an end
            raise

    def keep_only(self, addresses: Container[str]) -> None:
        for address in [address for address in self._connections if address not in addresses]:
            self._cut(address)

    def _cut(self, address: str) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def announce(self, address: str, partition: int) -> None:
        await self._post(address, f"/v1/cluster/announce?partition={partition}", b"", ANSWER_S)

    async def give(self, address: str, partition: int) -> None:
        await self._post(address, f"/v1/cluster/give?partition={partition}", b"", ANSWER_S)

    async def published(self, address: str, partition: int, tenant: str) -> list[Publication]:
        path = f"/v1/cluster/published?partition={partition}&tenant={quote(tenant, safe='')}"
        data = await self._post(address, path, b"", ANSWER_S)
        try:
            return list(msgspec.json.decode(data, type=Publications).publications)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the reply of {address} cannot be read: {error}", retry_after_ms=RETRY_MS) from error

    async def deliver(self, address: str, partition: int, batch: CommandBatch) -> list[CommandOutcome]:
        path = f"/v1/cluster/commands?partition={partition}"
        data = await self._post(address, path, partition_messages.encode(batch), ANSWER_S)
        try:
            return partition_messages.outcomes_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise Unavailable(f"the reply of {address} cannot be read: {error}", retry_after_ms=RETRY_MS) from error

    async def _post(self, address: str, path: str, data: bytes, timeout_s: float) -> bytes:
        poster = self._posters.get(address)
        if poster is None:
            poster = self._posters[address] = PostClient(address, headers=self._headers)
        try:
            status, answer = await poster.post(path, data, timeout_s=timeout_s)
        except (OSError, TimeoutError) as error:
            raise _unreached(address, error) from error
        if status < 400:
            return answer
        try:
            problem = msgspec.json.decode(answer, type=Problem)
        except msgspec.DecodeError:
            raise Unavailable(f"the node at {address} answered {status}", retry_after_ms=RETRY_MS) from None
        if status >= 500 or status in (408, 425, 429) or problem.code == NOT_A_NODE:  # it looks again who is one
            raise Unavailable(problem.detail or problem.title, retry_after_ms=RETRY_MS)
        raise Refused(problem.code, problem.detail or problem.title)

    async def close(self) -> None:
        clients: list[PostClient | MultiplexedConnection] = [*self._posters.values(), *self._connections.values()]
        for client in clients:
            client.close()
        self._posters.clear()
        self._connections.clear()


def _unreached(address: str, error: Exception) -> Unavailable:
    message = f"the node at {address} cannot be reached: {error or type(error).__name__}"
    return Unavailable(message, retry_after_ms=RETRY_MS)
