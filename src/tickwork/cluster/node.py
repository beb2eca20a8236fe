"""A node: the partitions it owns, the way to those it does not, and the workers that speak to it.

All nodes are equal, and everything durable is in the store, so any of them may die. A request to a node about
a partition is answered by its own engine, or by the node that owns it.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tickwork.cluster.command_delivery import CommandDelivery
from tickwork.cluster.home_definitions import HomeDefinitions
from tickwork.cluster.hosted_engines import EngineCompanion, HostedEngines
from tickwork.cluster.lease_renewal import TTL_MS
from tickwork.cluster.node_credentials import Credentials, NodeAuthentication
from tickwork.cluster.owner_lookup import OwnerLookup
from tickwork.cluster.ownership import RETRY_MS, Ownership, OwnershipCallbacks
from tickwork.cluster.peers import Peers
from tickwork.cluster.shared_inbox import SharedInbox
from tickwork.cluster.tenant_routes import TenantRoutes
from tickwork.cluster.worker_exchange import WorkerExchange
from tickwork.core.base.errors import Refused, TickworkError
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.rules import MACHINE
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.ids import Ids
from tickwork.ports.leases import ClusterScoped, Leases, Member
from tickwork.ports.store import HasInboxNotices, Store
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import OLDEST, PROTOCOL
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.supervision import supervised
from tickwork.runtime.workers.failure_detector import LOST_AFTER_MS
from tickwork.version import VERSION

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine
    from tickwork.runtime.maintenance.auditor import Auditor

PARTITIONS = 8
WATCH_S = 0.2  # how often failed partitions are looked for
INBOX_S = 1.0  # how often inboxes and routes are read at least
INBOX_GAP_S = 0.02  # between two readings: what is enqueued meanwhile is taken together
BACKLOG_FAR = 5_000  # inputs that wait: from here on new runs are spread over all nodes, not kept here
NOT_WANTED = "takes_nothing_over"


class Node:
    def __init__(
        self,
        *,
        store: Store,
        leases: Leases,
        peers: Peers,
        clock: Clock,
        ids: Ids,
        artifacts: Artifacts,
        member: Member,
        make_engine: "Callable[[int], Engine]",
        cluster: str,
        partitions: int = PARTITIONS,
        ttl_ms: int = TTL_MS,
        retry_ms: int = RETRY_MS,
        lost_after_ms: int = LOST_AFTER_MS,
        attend: "Callable[[Engine], EngineCompanion] | None" = None,
        zones: Zones = UTC_ONLY,
    ) -> None:
        """`cluster` and `partitions` count where the store is new; `make_engine` gets a partition's number."""
        self.member = member
        self.store = store
        self.leases = leases
        self.artifacts = artifacts
        self.ids = ids
        self.zones = zones
        self.alarms = Alarms(clock)
        self.cluster, self.partitions = cluster, partitions
        self.store_id = ""  # identity of the store, known once it is open
        self.order = asyncio.Lock()  # held at home for what concerns all partitions of a tenant, and for spreading it
        self.auditors: list[Auditor] = []  # of partitions that others own
        self.draining = False
        self.routes = TenantRoutes(store, clock, partitions=partitions)
        self.definitions = HomeDefinitions(
            routes=self.routes,
            peers=peers,
            owned=self.owned,
            address_of=lambda partition: self.owners.address_of(partition),
        )
        self.inbox = SharedInbox(
            store=store, routes=self.routes, definitions=self.definitions, new_id=ids.new, alarms=self.alarms
        )
        self._hosted = HostedEngines(
            make_engine=make_engine,
            attend=attend,
            inbox=self.inbox,
            peers=peers,
            alarms=self.alarms,
            neighbours=CommandDelivery(
                routes=self.routes,
                peers=peers,
                owned=self.owned,
                address_of=lambda partition: self.owners.address_of(partition),
                refresh=lambda: self.owners.refresh(),
            ),
        )
        self.engines = self._hosted.running  # those that tick
        self._peers = peers
        self._clock = clock
        self._ttl_ms, self._retry_ms, self._lost_after_ms = ttl_ms, retry_ms, lost_after_ms
        self._ownership: Ownership | None = None  # these from the start on
        self._owners: OwnerLookup | None = None
        self._authentication: NodeAuthentication | None = None
        self._workers: WorkerExchange | None = None
        self._jobs: list[asyncio.Task[None]] = []
        self._enqueued = asyncio.Event()

    # ---- life

    async def start(self) -> None:
        """Join the cluster. On return, whatever is free and this node's own by placement ticks."""
        await self.store.open()
        try:
            await self._join()
        except BaseException:
            await self.leases.close()
            await self.store.close()
            raise
        loop = asyncio.get_running_loop()
        jobs = {"failed partitions": self._watch, "routes": self._refresh_routes, "inboxes": self._read_inboxes}
        if isinstance(self.store, HasInboxNotices):
            jobs["notices of enqueued runs"] = functools.partial(self.store.await_notices, self._enqueued.set)
        self._jobs = [
            loop.create_task(supervised(job, name=name, on_alarm=self.alarms.add)) for name, job in jobs.items()
        ]

    async def _join(self) -> None:
        identity = await self.store.establish_identity(cluster=self.cluster, partitions=self.partitions)
        self.cluster, self.partitions = identity.cluster, identity.partitions
        self.store_id = self._hosted.store_id = self.cluster
        self.routes.partitions = self.partitions
        if isinstance(self.leases, ClusterScoped):
            self.leases.of_cluster(self.cluster)
        await self.leases.open()
        _check_protocols(self.member, await self.leases.members())
        await self.routes.load()
        credentials = Credentials(self.ids.token, now_ms=self._clock.mono_ms())
        self.member = msgspec.structs.replace(self.member, secrets=credentials.accepted)
        self._peers.identify(credentials.sent)
        ownership = self._ownership = Ownership(
            leases=self.leases,
            member=self.member,
            partitions=self.partitions,
            clock=self._clock,
            duties=self._ownership_callbacks(),
            ttl_ms=self._ttl_ms,
            retry_ms=self._retry_ms,
        )
        owners = self._owners = OwnerLookup(ownership, session=self.member.session)
        self._authentication = NodeAuthentication(
            credentials, ownership=ownership, owners=owners, clock=self._clock, identify=self._peers.identify
        )
        self._workers = WorkerExchange(
            engines=self.engines,
            owners=owners,
            peers=self._peers,
            clock=self._clock,
            alarms=self.alarms,
            session=self.member.session,
            partitions=self.partitions,
            store_id=self.store_id,
            lost_after_ms=self._lost_after_ms,
        )
        self._workers.start()
        await ownership.start()

    def _ownership_callbacks(self) -> OwnershipCallbacks:
        hosted = self._hosted
        return OwnershipCallbacks(
            own=lambda partition: hosted.start(partition, moved=self._owner_moved),
            announce=hosted.announce,
            finish=hosted.finish,
            drop=hosted.drop,
            give=hosted.give,
            moved=self._owner_moved,
            alarm=self.alarms.add,
        )

    async def hand_over(self) -> None:
        """Own nothing any more; requests and workers that come here are still brought to the owners."""
        if not self.draining:
            self.draining = True
            if self._ownership is not None:
                await self._ownership.stop()

    async def stop(self) -> None:
        """Hand over what it owns; workers go on at other nodes."""
        await self.hand_over()
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        if self._workers is not None:
            await self._workers.close()
        for partition in list(self.engines):
            await self._hosted.finish(partition)
        await self._peers.close()
        await self.leases.close()
        await self.store.close()

    # ---- its parts, from the start on

    @property
    def ownership(self) -> Ownership:
        assert self._ownership is not None, "the node is started"
        return self._ownership

    @property
    def owners(self) -> OwnerLookup:
        assert self._owners is not None, "the node is started"
        return self._owners

    @property
    def authentication(self) -> NodeAuthentication:
        assert self._authentication is not None, "the node is started"
        return self._authentication

    @property
    def workers(self) -> WorkerExchange:
        assert self._workers is not None, "the node is started"
        return self._workers

    # ---- its partitions

    @property
    def why_not_accepting(self) -> str:
        if self.draining:
            return "this node is shutting down"
        if not self.ownership.holdings and not self.engines:
            return "no partition has an owner yet"
        return next((why for why in (engine.context.why_not_accepting for engine in self.engines.values()) if why), "")

    def owned(self, partition: int) -> "Engine | None":
        """The engine of a partition that is ours beyond doubt: another owner may know more than one that is not."""
        return self.engines.get(partition) if self.ownership.renewal.certain else None

    def own_partition(self, tenant: str) -> int | None:
        """Return the least loaded of this node's partitions that may hold the tenant's runs; None where there is none,
        or where all are overloaded."""
        own = [partition for partition in self.routes.partitions_of(tenant) if self.owned(partition) is not None]
        best = min(own, key=lambda number: self.engines[number].context.live.backlog, default=None)
        return best if best is not None and self.engines[best].context.live.backlog < BACKLOG_FAR else None

    async def read_ahead(self, partition: int) -> None:
        """Its owner is about to hand it over to this node. Raises `Refused` where this node takes nothing over."""
        if self.draining or not self.member.engine or partition in self.member.unable:
            raise Refused(NOT_WANTED, f"node {self.member.node} takes over no partition now")
        if partition >= self.partitions:
            raise Refused("not_another", f"partition {partition} is not another node's to hand over")
        await self._hosted.read_ahead(partition)

    def _owner_moved(self, partition: int) -> None:
        self._peers.keep_only({member.address for member in self.ownership.members})
        self.workers.gateway.owner_moved(partition)

    async def _watch(self) -> None:
        """Release a partition that cannot go on here: another node may take it, or this one after a new round."""
        while True:
            await asyncio.sleep(WATCH_S)
            for partition, reason in self._hosted.failed():
                await self.ownership.lost(partition, reason)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(INBOX_S)
            self.authentication.rotate()
            with contextlib.suppress(TickworkError):
                await self.routes.refresh()

    async def _read_inboxes(self) -> None:
        """A notice of the store only makes it sooner."""
        while True:
            await asyncio.sleep(INBOX_GAP_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INBOX_S - INBOX_GAP_S):
                    await self._enqueued.wait()
            self._enqueued.clear()
            for partition, engine in list(self.engines.items()):
                with contextlib.suppress(TickworkError):
                    await self.inbox.submit_due(partition, engine)


def _check_protocols(own: Member, members: Sequence[Member]) -> None:
    """A node that the others cannot talk to would only take partitions out of their reach."""
    for member in members:
        if member.protocol < own.oldest or own.protocol < member.oldest:
            raise Refused(
                "protocol",
                f"node {member.node} ({member.version}) speaks protocols {member.oldest} to "
                f"{member.protocol}, this one "
                f"({own.version}) {own.oldest} to {own.protocol}: upgrade through a version between them",
            )


def member_of(*, session: str, node: str, address: str, started_ms: int, engine: bool = True) -> Member:
    return Member(session, node, address, VERSION, PROTOCOL, started_ms, engine=engine, oldest=OLDEST, machine=MACHINE)
