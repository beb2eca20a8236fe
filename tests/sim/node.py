"""A node of the simulated cluster, made of the real node, engine and API.

Leases lie in the simulated store, the other nodes are reached through the simulated network. Now and then a node
ends cleanly and starts anew, as in a rolling deployment.
"""

import asyncio

import msgspec
from starlette.types import ASGIApp

from sim.asgi import PORT, HttpService, Request
from sim.cluster import Alive, Cluster, NodeSeat
from sim.hosts import ORIGIN_MS
from sim.peers import MSGPACK, SimCarrier, SimLeases, SimPeers, address_of
from sim.recorder import Belief
from sim.report import Violation
from sim.store import at_once
from sim.workload import ForeignResult
from tickwork.api.app import make_app
from tickwork.api.forwarding import ClusterRouter
from tickwork.api.http.request import ShutdownSignal
from tickwork.api.routes.logs import NDJSON
from tickwork.cluster import node as real
from tickwork.core.base.errors import Corrupt, Refused, Unavailable
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state.events import StaleReport
from tickwork.core.state.inputs import Failed
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.journal.record import GENESIS, unseal
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Call, Catalog, LogPiece, Reply, encoder, reply_decoder
from tickwork.runtime.alarms import Alarm
from tickwork.runtime.engine import Engine
from tickwork.runtime.partition.recovery import recover
from tickwork.stores.memory.store import MemoryStore
from tickwork.system.time_reference import StoreTime

SETTINGS = Settings(clock=LogicalClock(origin_ms=ORIGIN_MS - 86_400_000))
AGAIN_S = 1.0
# What faults may bring about. Anything else is a defect.
EXPECTED_ALARMS = frozenset(
    {
        "commands_wait",
        "late",
        "worker_lost",
        "store_unavailable",
        "unavailable",  # an owner that ends does not wait for the store for ever
        "store_full",
        "rows_late",
        "fenced",
        "clock_gap",
        "clock_step",
        "clock_ahead",
        "dead_letter",
        "run_failed",
        "leases_unavailable",
        "dropped",
        "cannot_own",
        "took_over",
        "inbox_refused",  # it stays there: home may be away when it is asked for what a partition lacks
    }
)
DEFECTS = ("BadArgument", "HandlerMissing", "UnknownHandler", "TypeError", "KeyError")  # no workflow here earns these


class Node:
    def __init__(self, seat: NodeSeat) -> None:
        self._seat, self._host, self._net = seat, seat.host, seat.cluster.net
        self._chance = seat.host.chance.stream(f"node/{seat.host.starts}")
        self._node: real.Node | None = None
        self._app: ASGIApp | None = None
        self._for_good: asyncio.Future[None] | None = None  # held here: nobody else would
        self._http = HttpService(lambda: self._app)
        seat.show = self._show
        seat.workers = self._workers

    async def main(self) -> None:
        self._seat.serve(self)
        self._net.listen(self._host, self._http, port=PORT)
        while True:
            node = self._new_node()
            closing = ShutdownSignal()
            ways = ClusterRouter(node, closing, SimCarrier(self._net, self._host))
            try:
                await node.start()
            except Unavailable as error:
                self._note("cannot join", str(error))
                await asyncio.sleep(AGAIN_S)
                continue
            self._node, self._app = node, make_app(node, closing=closing, ways=ways)
            self._note("joined", f"with {sorted(node.engines)}")
            await self._for_a_while()
            self._app = None
            closing.set()
            node.workers.release()
            await node.stop()
            await ways.close()
            self._node = None
            self._note("left")

    async def _for_a_while(self) -> None:
        """For good, or until it is time for a planned restart."""
        if self._chance.happens(0.2):
            await asyncio.sleep(self._chance.between(30, 1_200))
        else:
            self._for_good = asyncio.get_running_loop().create_future()
            await self._for_good

    def _new_node(self) -> real.Node:
        host = self._host

        def make_engine(number: int) -> Engine:
            return Engine(
                store=self._seat.store,
                artifacts=self._seat.artifacts,
                clock=host.clock,
                ids=host.ids,
                owner=host.name,
                settings=SETTINGS,
                reference=StoreTime(self._seat.store),
                number=number,
                shared=True,
            )

        node = real.Node(
            store=self._seat.store,
            leases=SimLeases(self._seat.store, self._seat.cluster.leases),
            peers=SimPeers(self._net, host),
            clock=host.clock,
            ids=host.ids,
            artifacts=self._seat.artifacts,
            member=real.member_of(
                session=f"{host.name}~{host.ids.new()}",
                node=host.name,
                address=address_of(host.name),
                started_ms=host.clock.wall_ms(),
            ),
            make_engine=make_engine,
            cluster="sim",
            partitions=self._seat.cluster.options.partitions,
            attend=lambda engine: Witness(self._seat.cluster, host.name, engine.context.number),
        )
        node.alarms.on_alarm = self._hear_alarm
        return node

    def _show(self) -> list[Alive]:
        found = []
        for number, engine in sorted(self._node.engines.items()) if self._node is not None else ():
            live = engine.context.partition
            if live is not None and live.failed is None:
                found.append(
                    Alive(
                        number, live.decided_seq, engine.context.state.settings, engine.context.state, live.decided_hash
                    )
                )
        return found

    def _workers(self) -> dict[int, set[str]]:
        engines = self._node.engines if self._node is not None else {}
        return {
            number: {
                name
                for name, worker in engine.workers.registered.items()
                if worker.session.id and not worker.session.closed_ms
            }
            for number, engine in engines.items()
        }

    def _hear_alarm(self, alarm: Alarm) -> None:
        self._note("alarm", f"{alarm.kind}: {alarm.text}")
        if alarm.kind not in EXPECTED_ALARMS or any(word in alarm.text for word in DEFECTS):
            self._violated("ALARM", f"{self._host.name}: {alarm.kind}: {alarm.text}")

    def _violated(self, name: str, text: str) -> None:
        at = self._seat.cluster.world.note(self._host.name, name, text)
        self._seat.cluster.violations.append(Violation(name, text, at))

    def _note(self, what: str, detail: str = "") -> None:
        self._seat.cluster.world.note(self._host.name, what, detail)

    # ---- workers

    def _serving(self) -> real.Node:
        if self._node is None or self._app is None:
            raise Unavailable("this node serves nobody now: ask another one", retry_after_ms=100)
        return self._node

    async def exchange(self, call: Call, peer: str, partition: int) -> Reply:
        """Through the route that real workers use."""
        self._serving()
        path = f"/v1/workers/{call.worker}/exchange{'' if partition < 0 else f'?partition={partition}'}"
        request = Request("POST", path, encoder.encode(call), MSGPACK)
        answer = await self._http.answer(request, peer)
        if answer.status == 200:
            return reply_decoder.decode(answer.body)
        said = answer.json()
        if answer.status in (503, 504, 507):
            raise Unavailable(said["detail"], retry_after_ms=100)
        self._violated("ANSWER", f"an exchange is answered with {said}")
        raise Refused(said["code"], said["detail"])

    async def owners(self) -> wire.Owners:
        self._serving()
        answer = await self._http.answer(Request("GET", "/v1/cluster/owners"), self._host.name)
        if answer.status != 200:
            raise Unavailable(str(answer.json()), retry_after_ms=100)
        return msgspec.json.decode(answer.body, type=wire.Owners)

    def connection_closed(self, peer: str) -> None:
        self._http.closed(peer)
        if self._node is not None:
            self._node.workers.connection_closed(peer.replace("#", ":"))

    async def fetch(self, digest: str) -> bytes:
        data = await self._serving().artifacts.get(digest)
        if data is None:
            raise Refused("unknown_artifact", f"there is no artifact {digest}")
        return data

    async def store(self, data: bytes) -> str:
        return await self._serving().artifacts.put(data)

    async def log(self, piece: LogPiece) -> None:
        """Through the route that real workers use."""
        self._serving()
        query = f"chunk={piece.chunk}&first={piece.first}&run={piece.run}"
        headers = (
            (b"x-tickwork-worker", piece.worker.encode()),
            (b"x-tickwork-session", piece.session.encode()),
            (b"x-tickwork-store", piece.store.encode()),
        )
        path = f"/v1/tasks/{piece.task}/attempts/{piece.attempt}/logs?{query}"
        answer = await self._http.answer(Request("POST", path, piece.lines, NDJSON, headers), self._host.name)
        if answer.status in (503, 504, 507):
            raise Unavailable(str(answer.json()), retry_after_ms=100)
        if answer.status >= 400:
            raise Refused(answer.json()["code"], answer.json()["detail"])

    async def publish(self, catalog: Catalog) -> str:
        documents = tuple(msgspec.json.decode(document) for document in catalog.documents)
        if documents:
            body = msgspec.json.encode(wire.Publication(documents=documents))
            self._serving()
            answer = await self._http.answer(Request("PUT", "/v1/workflows", body), self._host.name)
            if answer.status != 200:
                raise Unavailable(str(answer.json()), retry_after_ms=100)
        return catalog.version


class Witness:
    """Goes with an engine while it ticks: from when to when this node believes that the partition is its own."""

    def __init__(self, cluster: Cluster, owner: str, partition: int) -> None:
        self._cluster = cluster
        self._belief = Belief(partition, owner, 0)

    def start(self) -> None:
        self._belief.begin_ns = self._cluster.world.loop.now_ns
        self._cluster.journals.beliefs.append(self._belief)

    async def close(self) -> None:
        self._belief.end_ns = self._cluster.world.loop.now_ns


def unserved(cluster: Cluster) -> list[str]:
    """Live workers that a partition has not, as its owner sees it."""
    served: dict[int, set[str]] = {number: set() for number in range(cluster.options.partitions)}
    for name, seat in cluster.seats.items():
        if cluster.world.hosts[name].up and not cluster.world.hosts[name].stopped:
            for number, workers in seat.workers().items():
                served[number] |= set(workers)
    live = [host.name for host in cluster.workers if host.up and not host.stopped]
    return [f"{name} not in {number}" for number, workers in served.items() for name in live if name not in workers]


def no_foreign_results(cluster: Cluster) -> list[Violation]:
    """Nothing that a worker brought from another store counts here."""
    found: list[Violation] = []
    for number, partition in sorted(cluster.disk.partitions.items()):
        head = GENESIS
        for sealed in partition.journal:
            row, head = unseal(sealed, head), sealed.hash
            for event in row.events:
                place = getattr(event, "input", -1)
                asked = row.inputs[place] if 0 <= place < len(row.inputs) else None
                if (
                    isinstance(asked, Failed)
                    and asked.error == ForeignResult.__name__
                    and type(event) is not StaleReport
                ):
                    text = f"partition {number}, seq {row.seq}: a result of another store counts for task {asked.task}"
                    found.append(Violation("FOREIGN", text))
    return found


def recovers_as_it_lives(cluster: Cluster) -> list[Violation]:
    """Recovering from the store gives the state that the owner has in memory."""
    found: list[Violation] = []
    for alive in cluster.alive():
        store = MemoryStore(cluster.disk)
        at_once(store.open())
        try:
            machine, *_ = at_once(recover(store, alive.partition))
        except Corrupt as error:
            found.append(Violation("RECOVERY", f"the store cannot be recovered from: {error}"))
            continue
        if (recovered := digest(machine.state)) != (lives := digest(alive.state)):
            text = f"recovered state {recovered} at tick {machine.state.tick}, live {lives} at {alive.state.tick}"
            found.append(Violation("RECOVERY", text))
    return found
