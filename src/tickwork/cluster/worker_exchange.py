"""Workers of a node: those that talk to this node, those of other nodes, and those that talk to every owner.

A call for a partition goes to its engine here or to the node that owns it. A call that names no partition goes through
the gateway, which speaks for the worker to all owners.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tickwork.cluster.multiplexed_connection import MultiplexedServer
from tickwork.cluster.node_credentials import CODE as NOT_A_NODE
from tickwork.cluster.owner_lookup import OwnerLookup
from tickwork.cluster.peers import Peers
from tickwork.cluster.worker_gateway import WorkerGateway
from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import Call, Heartbeats, Reply
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.supervision import is_cancelled
from tickwork.runtime.workers.failure_detector import FailureDetector

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


class WorkerExchange:
    def __init__(
        self,
        *,
        engines: "Mapping[int, Engine]",
        owners: OwnerLookup,
        peers: Peers,
        clock: Clock,
        alarms: Alarms,
        session: str,
        partitions: int,
        store_id: str,
        lost_after_ms: int,
    ) -> None:
        """`engines` are those that tick here, and `session` is that of this node."""
        self._engines = engines
        self._owners = owners
        self._peers = peers
        self._alarms = alarms
        self._session = session
        self._partitions = partitions
        self._store_id = store_id
        self.connections: set[MultiplexedServer] = set()  # of nodes and workers that call here
        self.gateway = WorkerGateway(
            route=self._exchange_with_owner,
            heartbeats=self._send_heartbeats,
            session=session,
            partitions=partitions,
            clock=clock,
            on_alarm=alarms.add,
            detector=FailureDetector(lost_after_ms=lost_after_ms),
            store=store_id,
        )

    def start(self) -> None:
        self.gateway.start()

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        only = self._engines.get(0) if self._partitions == 1 else None
        if only is not None:
            return await only.workers.exchange(call, peer)
        return await self.gateway.exchange(call, peer)

    async def exchange_at(self, partition: int, call: Call, peer: str = "") -> Reply:
        """Of a node that stands for a worker, or of a worker that speaks to every owner: then its connection counts."""
        engine = self._engines.get(partition)
        if engine is None:
            raise Unavailable(f"partition {partition} is not on this node; look up its owner again", retry_after_ms=50)
        if is_broker_worker(call.worker):  # a lane's keeper is beside its engine, and never calls from elsewhere
            return Reply(call.seq, refused=f"{call.worker!r} is a name reserved for brokers; choose another name")
        return await engine.workers.exchange(call, "" if call.via else peer)

    def heartbeats(self, beats: Heartbeats) -> None:
        """Of a node that stands for workers."""
        for engine in self._engines.values():
            engine.workers.heartbeats(beats.via, beats.workers)

    async def _send_heartbeats(self, workers: Sequence[str]) -> None:
        own = self._session
        self.heartbeats(Heartbeats(own, tuple(workers)))
        beats = [self._peers.beat(address, own, workers) for address in self._owners.other_owners()]
        for outcome in await asyncio.gather(*beats, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, TickworkError):
                raise outcome

    async def _exchange_with_owner(self, partition: int, call: Call) -> Reply:
        try:
            if partition in self._engines:
                return await self.exchange_at(partition, call)
            address = await self._owners.address_of(partition)
            reply = await self._peers.exchange(address, partition, call)
            if reply.store and reply.store != self._store_id:
                self._alarms.add(
                    "other_store", f"the node at {address} has another store than this one; it gets no reports"
                )
                raise Unavailable(f"the node at {address} has another store", retry_after_ms=1_000)
            return reply
        except Unavailable:
            await self._owners.refresh()
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise Unavailable(f"partition {partition} moved; try again", retry_after_ms=50) from None

    def accept_connection(self, peer: str = "") -> MultiplexedServer:
        """Of a node that calls for many workers, or from `peer`, where a worker does so for itself."""

        def ended(connection: MultiplexedServer) -> None:
            self.connections.discard(connection)
            if peer:
                self.connection_closed(peer)

        async def exchange(partition: int, call: Call) -> Reply:
            if peer and call.via:
                raise Refused(NOT_A_NODE, "only a node may call on behalf of a worker")
            return await self.exchange_at(partition, call, peer)

        connection = MultiplexedServer(exchange, ended)
        self.connections.add(connection)
        return connection

    def connection_closed(self, peer: str) -> None:
        for engine in self._engines.values():
            engine.workers.connection_closed(peer)
        self.gateway.connection_closed(peer)

    def release(self) -> None:
        """End the calls that wait for work: the server is about to stop listening."""
        for engine in self._engines.values():
            engine.workers.release()
        self.gateway.release()
        for connection in list(self.connections):
            connection.close()

    async def close(self) -> None:
        await self.gateway.close()
