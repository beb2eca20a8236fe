"""A node: the partitions it owns, the way to those it does not, and the workers that speak to it.

All nodes are equal, and everything durable is in the store, so any of them may die. What is asked of a node about
a partition is answered by its own engine, or by the node that owns it.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container, Sequence
from typing import Protocol

import msgspec

from tickwork.cluster.multiplexed_connection import MultiplexedServer
from tickwork.cluster.node_credentials import CODE as NOT_A_NODE
from tickwork.cluster.node_credentials import ROTATE_MS, Credentials
from tickwork.cluster.ownership import RETRY_MS, TTL_MS, Ownership, OwnershipCallbacks
from tickwork.cluster.placement import (
    END,
    drawn_ms,
    fitted_to,
    home_of,
    partition_of_run,
    partitions_of,
    partitions_of_run,
)
from tickwork.cluster.worker_gateway import WorkerGateway
from tickwork.core.base.errors import Conflict, Refused, TickworkError, Unavailable
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.machine import MACHINE
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.ids import Ids
from tickwork.ports.leases import ClusterScoped, Leases, Member
from tickwork.ports.store import InboxRow, Route, Store
from tickwork.ports.system import Clock
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import OLDEST, PROTOCOL, Call, Heartbeats, Reply
from tickwork.runtime.alarms import Alarms
from tickwork.runtime.engine import Engine
from tickwork.runtime.maintenance.auditor import Auditor
from tickwork.runtime.supervision import is_cancelled, supervised
from tickwork.runtime.workers.failure_detector import LOST_AFTER_MS, FailureDetector
from tickwork.version import VERSION

PARTITIONS = 8
WATCH_S = 0.2  # how often failed partitions and the inbox are looked at
INBOX_S = 1.0
INBOX_MAX = 500
REFUSED_AGAIN_S, REFUSED_AGAIN_S_MAX = 2.0, 600.0  # a refused row is tried again after so long, twice as long each time
BACKLOG_FAR = 5_000  # inputs that wait: from here on new runs are spread over all nodes, not kept here
READ_AHEAD_S = 5.0  # the next owner may take so long for it; then it begins from the rows when its time has come
AHEAD_KEPT_S = 30.0
GIVE_S = 2.0
FRESH_MS = 60_000  # an id that was drawn so short ago is new, or was sent a moment ago
SKEW_MS = 2_000
INBOX_READ_MAX = 10_000  # rows that are looked through for one
LOOK_AGAIN_S = 0.02  # the shortest time between two lookups of the owners after a missing answer


NOT_WANTED = "takes_nothing_over"


class Peers(Protocol):
    """The other nodes. Raises `Unavailable` where one cannot be reached or does not own what it is asked about."""

    async def exchange(self, address: str, partition: int, call: Call) -> Reply: ...

    async def beat(self, address: str, via: str, workers: Sequence[str]) -> None:
        """These workers live, says the node `via`, which stands for them."""

    def keep_only(self, addresses: Container[str]) -> None:
        """Nodes elsewhere are gone: calls to them that wait for an answer end."""

    async def announce(self, address: str, partition: int) -> None:
        """It is about to be that node's, which reads ahead. Raises `Refused` where that node owns nothing more."""

    async def give(self, address: str, partition: int) -> None:
        """It is free. Returns when it ticks there."""

    async def published(self, address: str, partition: int, tenant: str) -> list[wire.Publication]:
        """What that partition, the home of the tenant, has of it."""

    def identify(self, secret: str) -> None:
        """Sent with each request from now on."""

    async def close(self) -> None: ...


class EngineCompanion(Protocol):
    """Whatever goes with an engine while it ticks here, such as the keeper of a lane."""

    def start(self) -> None: ...

    async def close(self) -> None: ...


class HeldSubmission(msgspec.Struct):
    """A row of the inbox whose submission was refused. It stays until it is accepted, or an operator removes it."""

    row: InboxRow
    workflow: str
    refusal: wire.Rejected
    due_s: float  # when it is tried again
    pause_s: float


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
        make_engine: Callable[[int], Engine],
        cluster: str,
        partitions: int = PARTITIONS,
        ttl_ms: int = TTL_MS,
        retry_ms: int = RETRY_MS,
        lost_after_ms: int = LOST_AFTER_MS,
        attend: Callable[[Engine], "EngineCompanion"] | None = None,
        zones: Zones = UTC_ONLY,
    ) -> None:
        """`cluster` and `partitions` count where the store is new; `make_engine` gets a partition's number."""
        self.member = member
        self.store = store
        self.leases = leases
        self.engines: dict[int, Engine] = {}  # those that tick
        self.artifacts = artifacts
        self.ids = ids
        self.zones = zones
        self.alarms = Alarms(clock)
        self.cluster, self.partitions = cluster, partitions
        self.store_id = ""  # identity of the store, known once it is open
        self.routes: dict[str, Route] = {}
        self.credentials: Credentials | None = None  # once it is started
        self.order = asyncio.Lock()  # held at home for what concerns all partitions of a tenant, and for spreading it
        self.held: dict[int, dict[str, HeldSubmission]] = {}  # refused rows of inboxes, by partition
        self._completing: dict[int, asyncio.Task[bool]] = {}  # partitions that ask for what their tenant has
        self._unread: dict[int, set[str]] = {}  # rows of inboxes that this node cannot read, by partition
        self._rerouted_ms = 0  # when this node saw a route change
        self.auditors: list[Auditor] = []  # of partitions that others own
        self.draining = False
        self._peers = peers
        self._clock = clock
        self._make_engine = make_engine
        self._ttl_ms, self._retry_ms, self._lost_after_ms = ttl_ms, retry_ms, lost_after_ms
        self._ownership: Ownership | None = None
        self._gateway: WorkerGateway | None = None
        self._jobs: list[asyncio.Task[None]] = []
        self._looked_s = 0.0
        self._attend = attend
        self._attendants: dict[int, EngineCompanion] = {}
        self._trunks: set[MultiplexedServer] = set()  # of nodes and workers that call here
        self.rotate_ms = ROTATE_MS  # how often its secret changes
        self._ahead: dict[int, Engine] = {}  # read ahead, for partitions that are about to be ours

    # ---- life

    async def start(self) -> None:
        """Joined, and whatever is free and its own by placement ticks."""
        await self.store.open()
        try:
            founded = await self.store.found(cluster=self.cluster, partitions=self.partitions)
            self.cluster, self.partitions = founded.cluster, founded.partitions
            self.store_id = self.cluster
            if isinstance(self.leases, ClusterScoped):
                self.leases.of_cluster(self.cluster)
            await self.leases.open()
            self._check_company(await self.leases.members())
            await self._read_routes()
            self.credentials = Credentials(self.ids.token, now_ms=self._clock.mono_ms())
            self.member = msgspec.structs.replace(self.member, secrets=self.credentials.accepted)
            self._peers.identify(self.credentials.sent)
            duties = OwnershipCallbacks(
                self._own, self._announce, self._finish, self._drop, self._give, self._owner_moved, self.alarms.add
            )
            self._ownership = Ownership(
                leases=self.leases,
                member=self.member,
                partitions=self.partitions,
                clock=self._clock,
                duties=duties,
                ttl_ms=self._ttl_ms,
                retry_ms=self._retry_ms,
            )
            self._gateway = WorkerGateway(
                route=self._exchange_with_owner,
                heartbeats=self._send_heartbeats,
                session=self.member.session,
                partitions=self.partitions,
                clock=self._clock,
                on_alarm=self.alarms.add,
                detector=FailureDetector(lost_after_ms=self._lost_after_ms),
                store=self.cluster,
            )
            self._gateway.start()
            await self._ownership.start()
        except BaseException:
            await self.leases.close()
            await self.store.close()
            raise
        loop = asyncio.get_running_loop()
        jobs = {"failed partitions": self._watch, "inboxes": self._read_inboxes}
        self._jobs = [
            loop.create_task(supervised(job, name=name, on_alarm=self.alarms.add)) for name, job in jobs.items()
        ]

    def _check_company(self, members: Sequence[Member]) -> None:
        """A node that the others cannot talk to would only take partitions out of their reach."""
        own = self.member
        for member in members:
            if member.protocol < own.oldest or own.protocol < member.oldest:
                raise Refused(
                    "protocol",
                    f"node {member.node} ({member.version}) speaks protocols {member.oldest} to "
                    f"{member.protocol}, this one "
                    f"({own.version}) {own.oldest} to {own.protocol}: go by way of a version between them",
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
        if self._gateway is not None:
            await self._gateway.close()
        for partition in list(self.engines):
            await self._finish(partition)
        await self._peers.close()
        await self.leases.close()
        await self.store.close()

    @property
    def ownership(self) -> Ownership:
        assert self._ownership is not None, "the node is started"
        return self._ownership

    @property
    def gateway(self) -> WorkerGateway:
        assert self._gateway is not None, "the node is started"
        return self._gateway

    @property
    def why_not_accepting(self) -> str:
        if self.draining:
            return "this node is shutting down"
        if not self.ownership.holdings and not self.engines:
            return "nobody owns a partition yet"
        return next((why for why in (engine.context.why_not_accepting for engine in self.engines.values()) if why), "")

    # ---- what follows from owning

    async def read_ahead(self, partition: int) -> None:
        """Its owner is about to hand it over to this node."""
        if self.draining or not self.member.engine or partition in self.member.unable:
            raise Refused(NOT_WANTED, f"node {self.member.node} takes nothing over now")
        if partition in self.engines or partition >= self.partitions:
            raise Refused("not_another", f"partition {partition} is nobody else's to hand over")
        engine = self._make_engine(partition)
        await engine.read_ahead()
        self._ahead[partition] = engine
        asyncio.get_running_loop().call_later(AHEAD_KEPT_S, self._forget_ahead, partition, engine)

    def _forget_ahead(self, partition: int, engine: Engine) -> None:
        if self._ahead.get(partition) is engine:
            del self._ahead[partition]

    async def _own(self, partition: int) -> None:
        engine = self._ahead.pop(partition, None) or self._make_engine(partition)
        engine.context.store_id = self.cluster
        engine.context.alarms.on_alarm = lambda alarm: self.alarms.on_alarm(alarm)
        try:
            await engine.start()
        except BaseException:
            await engine.abandon("it did not start")
            raise
        with contextlib.suppress(TickworkError):
            await self._read_inbox(partition, engine)  # whoever asks for what was accepted there finds it
        self.engines[partition] = engine
        self._owner_moved(partition)
        if self._attend is not None:
            self._attendants[partition] = self._attend(engine)
            self._attendants[partition].start()

    async def _announce(self, partition: int, address: str) -> bool:
        """It goes on here meanwhile. From where the next owner begins to read, rows are left to it."""
        engine = self.engines.get(partition)
        if engine is None:
            return True
        try:
            async with asyncio.timeout(READ_AHEAD_S):
                await engine.context.live.pause_flushing()
                await self._peers.announce(address, partition)
        except (TickworkError, TimeoutError) as error:
            engine.context.live.resume_flushing()
            return isinstance(error, TimeoutError)  # it is there, and slow: it begins from the rows, when it has them
        return True

    async def _give(self, partition: int, address: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_S):
                await self._peers.give(address, partition)

    def _owner_moved(self, partition: int) -> None:
        self._peers.keep_only({member.address for member in self.ownership.members})
        if self._gateway is not None:
            self._gateway.owner_moved(partition)

    async def _leave(self, partition: int) -> None:
        attendant = self._attendants.pop(partition, None)
        if attendant is not None:
            await attendant.close()

    async def _finish(self, partition: int) -> None:
        await self._leave(partition)
        engine = self.engines.pop(partition, None)
        self.held.pop(partition, None)
        if engine is not None:
            await engine.stop()

    async def _drop(self, partition: int, reason: str) -> None:
        await self._leave(partition)
        engine = self.engines.pop(partition, None)
        self.held.pop(partition, None)
        if engine is not None:
            self.alarms.add("dropped", f"partition {partition}: {reason}")
            await engine.abandon(reason)

    async def _watch(self) -> None:
        """A partition that cannot go on here is let go: somebody else may, or this node after a fresh look."""
        while True:
            await asyncio.sleep(WATCH_S)
            for partition, engine in list(self.engines.items()):
                failed = engine.context.partition.failed if engine.context.partition is not None else None
                if failed is not None:
                    await self.ownership.lost(partition, str(failed))

    def owned(self, partition: int) -> Engine | None:
        """The engine of a partition that is ours beyond doubt: another owner may know more than one that is not."""
        return self.engines.get(partition) if self.ownership.proved else None

    # ---- where things live

    def route(self, tenant: str) -> Route:
        return self.routes.get(tenant) or Route(tenant, home_of(tenant, self.partitions))

    async def _read_routes(self) -> None:
        routes = {route.tenant: route for route in await self.store.read_routes()}
        if self._ownership is not None and routes != self.routes:
            self._rerouted_ms = self._clock.wall_ms()
        self.routes = routes

    async def refresh_routes(self) -> None:
        """As the store has them now. Raises `Unavailable`."""
        await self._read_routes()

    def check_route(self, route: Route) -> None:
        """Runs that live stay where they are: a home never moves, and `spread` only grows."""
        known = self.route(route.tenant)
        if route.home != known.home or not known.spread <= route.spread <= self.partitions:
            message = f"{route.tenant} is spread over {known.spread} of {self.partitions}; it can only grow"
            raise Refused("bad_spread", message, path="spread")

    async def put_route(self, route: Route) -> None:
        self.check_route(route)
        before = self.routes.get(route.tenant)
        if not await self.store.put_route(route, over=before):
            await self._read_routes()
            raise Conflict("somebody else changed this tenant's route; look again")
        self.routes[route.tenant] = route
        self._rerouted_ms = self._clock.wall_ms()

    def home(self, tenant: str) -> int:
        return self.route(tenant).home

    def partition_of_run(self, tenant: str, run_id: str) -> int:
        return partition_of_run(self.route(tenant), run_id, self.partitions)

    def places_of_run(self, tenant: str, run_id: str) -> tuple[int, ...]:
        """Wherever a run of this id may be already: nowhere, where the id is so new that it has only one place."""
        route = self.route(tenant)
        if route.spread <= 1:
            return ()
        drawn, now_ms = drawn_ms(run_id), self._clock.wall_ms()
        if abs(now_ms - drawn) < FRESH_MS and drawn > self._rerouted_ms + SKEW_MS:
            return ()
        return partitions_of_run(route, run_id, self.partitions)

    def own_partition(self, tenant: str) -> int | None:
        """Return the least loaded of this node's partitions that may hold the tenant's runs; None where there is none,
        or where all are overloaded."""
        own = [partition for partition in self.partitions_of(tenant) if self.owned(partition) is not None]
        best = min(own, key=lambda number: self.engines[number].context.live.backlog, default=None)
        return best if best is not None and self.engines[best].context.live.backlog < BACKLOG_FAR else None

    def new_id_in(self, tenant: str, partition: int) -> Callable[[], str]:
        """Make ids of runs that live in this partition. Ids of the same millisecond share their end, which is fitted
        once."""
        new, fitted = self.ids.new, fitted_to(self.route(tenant), partition, self.partitions)
        drawn = end = ""

        def draw() -> str:
            nonlocal drawn, end
            run_id = new()
            if run_id[-END:] != drawn:
                drawn = run_id[-END:]
                end = fitted(drawn)
            return run_id[:-END] + end

        return draw

    def partitions_of(self, tenant: str) -> tuple[int, ...]:
        return partitions_of(self.route(tenant), self.partitions)

    def partition_of_number(self, number: int) -> int:
        """Of a run, a task or a schedule."""
        return min(number >> NUMBER_BITS, self.partitions - 1)

    async def address_of(self, partition: int) -> str:
        """The node that owns a partition which this one does not."""
        holding = self.ownership.holdings.get(partition)
        if holding is None or holding.session == self.member.session:
            await self.refresh()
            holding = self.ownership.holdings.get(partition)
        if holding is None or holding.session == self.member.session:
            raise Unavailable(f"partition {partition} has no owner now; ask again in a moment", retry_after_ms=200)
        return holding.address

    async def refresh(self) -> None:
        """Whoever was thought to own something did not answer."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_s >= LOOK_AGAIN_S:
            self._looked_s = loop.time()
            await self.ownership.refresh()

    # ---- who is a node

    async def is_node(self, secret: str) -> bool:
        """Whether a request with this proof comes from a node. One that has just joined is looked for."""
        if not secret or self.credentials is None:
            return False
        if self.knows_node(secret):
            return True
        await self.refresh()
        return self.knows_node(secret)

    def knows_node(self, secret: str) -> bool:
        if not secret or self.credentials is None:
            return False
        self.credentials.note(self.ownership.members, now_ms=self._clock.mono_ms())
        return self.credentials.proves(secret)

    def _keep_credentials(self) -> None:
        credentials = self.credentials
        assert credentials is not None, "the node is started"
        now_ms, sent = self._clock.mono_ms(), credentials.sent
        credentials.note(self.ownership.members, now_ms=now_ms)
        if credentials.rotate(now_ms=now_ms, published_ms=self.ownership.proved_ms, every_ms=self.rotate_ms):
            self.ownership.identify(credentials.accepted)
        if credentials.sent != sent:
            self._peers.identify(credentials.sent)

    # ---- workers

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        only = self.engines.get(0) if self.partitions == 1 else None
        if only is not None:
            return await only.workers.exchange(call, peer)
        return await self.gateway.exchange(call, peer)

    async def exchange_at(self, partition: int, call: Call, peer: str = "") -> Reply:
        """Of a node that stands for a worker, or of a worker that speaks to every owner: then its connection counts."""
        engine = self.engines.get(partition)
        if engine is None:
            raise Unavailable(f"partition {partition} is not here; look again who owns it", retry_after_ms=50)
        if is_broker_worker(call.worker):  # a lane's keeper is beside its engine, and never calls from elsewhere
            return Reply(call.seq, refused=f"{call.worker!r} is the name of a lane; choose another name")
        return await engine.workers.exchange(call, "" if call.via else peer)

    def heartbeats(self, beats: Heartbeats) -> None:
        """Of a node that stands for workers."""
        for engine in self.engines.values():
            engine.workers.heartbeats(beats.via, beats.workers)

    async def _send_heartbeats(self, workers: Sequence[str]) -> None:
        self.heartbeats(Heartbeats(self.member.session, tuple(workers)))
        own = self.member.session
        owners = {holding.address for holding in self.ownership.holdings.values() if holding.session != own}
        beats = [self._peers.beat(address, own, workers) for address in sorted(owners)]
        for outcome in await asyncio.gather(*beats, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, TickworkError):
                raise outcome

    async def _exchange_with_owner(self, partition: int, call: Call) -> Reply:
        try:
            if partition in self.engines:
                return await self.exchange_at(partition, call)
            address = await self.address_of(partition)
            reply = await self._peers.exchange(address, partition, call)
            if reply.store and reply.store != self.cluster:
                self.alarms.add(
                    "other_store", f"the node at {address} has another store than this one; it gets no reports"
                )
                raise Unavailable(f"the node at {address} has another store", retry_after_ms=1_000)
            return reply
        except Unavailable:
            await self.refresh()
            raise
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise Unavailable(f"partition {partition} moved; ask again", retry_after_ms=50) from None

    def new_trunk(self, peer: str = "") -> MultiplexedServer:
        """Of a node that calls for many workers, or from `peer`, where a worker does so for itself."""

        def ended(end: MultiplexedServer) -> None:
            self._trunks.discard(end)
            if peer:
                self.connection_closed(peer)

        async def exchange(partition: int, call: Call) -> Reply:
            if peer and call.via:
                raise Refused(NOT_A_NODE, "only a node stands for a worker: a worker speaks for itself")
            return await self.exchange_at(partition, call, peer)

        end = MultiplexedServer(exchange, ended)
        self._trunks.add(end)
        return end

    def connection_closed(self, peer: str) -> None:
        for engine in self.engines.values():
            engine.workers.connection_closed(peer)
        if self._gateway is not None:
            self._gateway.connection_closed(peer)

    def release_workers(self) -> None:
        for engine in self.engines.values():
            engine.workers.release()
        if self._gateway is not None:
            self._gateway.release()
        for trunk in list(self._trunks):
            trunk.close()

    # ---- submissions, where a partition may lack what its tenant has

    async def submit(
        self,
        engine: Engine,
        submissions: Sequence[wire.Submission],
        *,
        by: str,
        tenant: str,
        new_id: Callable[[], str] | None = None,
    ) -> list[wire.Submitted | wire.Rejected]:
        """Submit to an engine of this node. Where the engine does not know a workflow, it gets the definitions from the
        tenant's home and tries again: the node that spread the tenant may have died before it had copied all of
        them."""
        outcomes = await engine.runs.submit(submissions, by=by, tenant=tenant, new_id=new_id)
        lacking = [index for index, outcome in enumerate(outcomes) if _is_lacking(outcome)]
        if not lacking or not await self.complete(engine, tenant):
            return outcomes
        again = await engine.runs.submit(
            [submissions[position] for position in lacking], by=by, tenant=tenant, new_id=new_id
        )
        for position, outcome in zip(lacking, again, strict=True):
            outcomes[position] = outcome
        return outcomes

    async def complete(self, engine: Engine, tenant: str) -> bool:
        """Bring what is published at home to this partition; one request for all who ask. False: nothing was missing,
        or home does not answer."""
        if engine.context.number == self.home(tenant):
            return False
        job = self._completing.get(engine.context.number)
        if job is None:
            job = self._completing[engine.context.number] = asyncio.get_running_loop().create_task(
                self._complete(engine, tenant)
            )
            job.add_done_callback(lambda _: self._completing.pop(engine.context.number, None))
        await asyncio.wait([job])
        return not job.cancelled() and job.result()

    async def _complete(self, engine: Engine, tenant: str) -> bool:
        home = self.home(tenant)
        own = self.owned(home)
        try:
            if own is not None:
                publications = own.workflows.published(tenant=tenant)
            else:
                publications = await self._peers.published(await self.address_of(home), home, tenant)
            known = engine.workflows.published(tenant=tenant)
            missing = [publication for publication in publications if publication not in known]
            for published in publications if missing else ():  # all of them: the last one is the latest
                await engine.workflows.publish(published, by="cluster", tenant=tenant)
        except TickworkError:
            return False  # the submission is refused as unknown here, and its sender may try again
        return bool(missing)

    # ---- the inbox: for submissions whose owner cannot be reached

    async def to_inbox(self, submissions: list[wire.Submission], *, by: str, tenant: str) -> list[wire.Submitted]:
        """Store the submissions durably, which accepts them; the next owner of the partition submits them."""
        rows = []
        for submission in submissions:
            known = submission if submission.id else msgspec.structs.replace(submission, id=self.ids.new())
            partition = self.home(tenant) if known.key else self.partition_of_run(tenant, known.id)
            rows.append(InboxRow(known.id, partition, tenant, msgspec.json.encode(known), by))
        await self.store.add_inbox(rows)
        return [wire.Submitted(id=row.id) for row in rows]

    async def _read_inboxes(self) -> None:
        while True:
            await asyncio.sleep(INBOX_S)
            self._keep_credentials()
            with contextlib.suppress(TickworkError):
                await self._read_routes()
            for partition, engine in list(self.engines.items()):
                with contextlib.suppress(TickworkError):
                    await self._read_inbox(partition, engine)

    async def _read_inbox(self, partition: int, engine: Engine) -> None:
        """Submit the rows and delete those that are accepted; a row that is submitted twice has the same id and makes
        one run. An unreadable row stays, because a node of a later version may have written it and can read it. A
        refused row stays as well, because its sender has been told that it is accepted."""
        while True:
            held, now_s = self.held.setdefault(partition, {}), asyncio.get_running_loop().time()
            limit = INBOX_MAX + len(self._unread.get(partition, ())) + len(held)
            rows = {row: self._read(row) for row in await self.store.read_inbox(partition, limit=limit)}
            self._unread[partition] = {row.id for row, submission in rows.items() if submission is None}
            for gone in held.keys() - {row.id for row in rows}:
                del held[gone]
            due = {
                row: submission
                for row, submission in rows.items()
                if submission is not None and (row.id not in held or held[row.id].due_s <= now_s)
            }
            if not due:
                return
            done: list[str] = []
            for tenant, by in dict.fromkeys((row.tenant, row.by) for row in due):
                some = {row: submission for row, submission in due.items() if (row.tenant, row.by) == (tenant, by)}
                outcomes = await self.submit(engine, list(some.values()), by=by or "inbox", tenant=tenant)
                for (row, submission), outcome in zip(some.items(), outcomes, strict=True):
                    if isinstance(outcome, wire.Rejected):
                        self._hold(row, submission.workflow, outcome, now_s)
                    else:
                        held.pop(row.id, None)
                        done.append(row.id)
            await self.store.drop_inbox(partition, done)

    def _hold(self, row: InboxRow, workflow: str, refusal: wire.Rejected, now_s: float) -> None:
        held = self.held[row.partition]
        before = held.get(row.id)
        if before is None:
            where = f"{refusal.path}: " if refusal.path else ""
            self.alarms.add("inbox_refused", f"{row.tenant}/{row.id} stays in the inbox: {where}{refusal.detail}")
        pause_s = REFUSED_AGAIN_S if before is None else min(2 * before.pause_s, REFUSED_AGAIN_S_MAX)
        held[row.id] = HeldSubmission(row, workflow, refusal, now_s + pause_s, pause_s)

    async def remove_from_inbox(self, run_id: str) -> bool:
        """An operator gives up on what was accepted and cannot begin. False: it is not there."""
        for partition in range(self.partitions):
            rows = await self.store.read_inbox(partition, limit=INBOX_READ_MAX)
            if any(row.id == run_id for row in rows):
                await self.store.drop_inbox(partition, [run_id])
                self.held.get(partition, {}).pop(run_id, None)
                return True
        return False

    def _read(self, row: InboxRow) -> wire.Submission | None:
        try:
            return msgspec.json.decode(row.data, type=wire.Submission)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if row.id not in self._unread.get(row.partition, ()):
                self.alarms.add("inbox_unreadable", f"{row.tenant}/{row.id} stays in the inbox: {error}")
            return None


def _is_lacking(outcome: wire.Submitted | wire.Rejected) -> bool:
    return isinstance(outcome, wire.Rejected) and outcome.code == "unknown_workflow"


def member_of(*, session: str, node: str, address: str, started_ms: int, engine: bool = True) -> Member:
    return Member(session, node, address, VERSION, PROTOCOL, started_ms, engine=engine, oldest=OLDEST, machine=MACHINE)
