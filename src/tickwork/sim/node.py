"""A node of the simulated cluster, made of the real engine and the real API.

It owns by claiming: whoever claims fences the other. An owner looks at the head from time to time and steps back
where another epoch stands there; a standby watches the others through the network and claims when none of them
has said for a while that it owns.
"""

import asyncio
import contextlib
from collections.abc import Callable

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from tickwork.api.app import make_app
from tickwork.api.asked import Closing
from tickwork.core.errors import Corrupt, Refused, Unavailable
from tickwork.core.model import Clock, Settings
from tickwork.core.snapshot import digest
from tickwork.ports import wire
from tickwork.ports.exchange import Call, Catalog, Reply, encoder, reply_decoder
from tickwork.ports.store import Fenced
from tickwork.runtime.engine import Engine
from tickwork.runtime.ground import PARTITION, Alarm
from tickwork.runtime.recovery import recover
from tickwork.sim.asgi import PORT, HttpService, Request
from tickwork.sim.cluster import Alive, Cluster, NodeSeat
from tickwork.sim.report import Violation
from tickwork.sim.store import at_once
from tickwork.sim.world import ORIGIN_MS
from tickwork.stores.memory import MemoryStore

SETTINGS = Settings(clock=Clock(origin_ms=ORIGIN_MS - 86_400_000))
WATCH_S, WATCH_PATIENCE_S = 2.0, 3.0
SILENT_S, SILENT_S_MORE = 10.0, 5
OWNER, STANDBY = b"owner", b"standby"
MSGPACK = "application/msgpack"
# What faults may bring about. Anything else is a defect.
EXPECTED_ALARMS = frozenset(
    {
        "late",
        "worker_lost",
        "store_unavailable",
        "store_full",
        "rows_late",
        "fenced",
        "clock_gap",
        "dead_letter",
        "run_failed",
    }
)
DEFECTS = ("BadArgument", "HandlerMissing", "UnknownHandler", "TypeError", "KeyError")  # no workflow here earns these
EXPECTED_ENDS = (Fenced,)


class Node:
    def __init__(self, seat: NodeSeat) -> None:
        self._seat, self._host, self._net = seat, seat.host, seat.cluster.net
        self._chance = seat.host.chance.stream(f"node/{seat.host.starts}")
        self._engine: Engine | None = None  # while it owns
        self._app: ASGIApp | None = None
        self._http = HttpService(lambda: self._app)
        seat.show = self._show

    async def main(self) -> None:
        self._seat.serve(self)
        self._net.listen(self._host, self._http, port=PORT)
        self._net.listen(self._host, Watched(lambda: self._engine is not None), port="watch")
        while True:
            await self._stand_by()
            await self._own()

    # ---- owning

    async def _stand_by(self) -> None:
        loop = asyncio.get_running_loop()
        heard, patience_s = loop.time(), SILENT_S + self._chance.below(SILENT_S_MORE * 1000) / 1000
        others = [node.name for node in self._seat.cluster.nodes if node is not self._host]
        while loop.time() - heard < patience_s:
            for other in others:
                with contextlib.suppress(Unavailable, TimeoutError):
                    async with asyncio.timeout(WATCH_PATIENCE_S):
                        if await self._net.request(self._host, other, b"", port="watch") == OWNER:
                            heard = loop.time()
            await asyncio.sleep(WATCH_S)

    async def _own(self) -> None:
        engine = self._new_engine()
        try:
            await engine.start()
            self._open(engine)
            await self._until_over(engine)
        except Unavailable as error:
            self._note("cannot own", str(error))
        finally:
            self._engine = self._app = None
        self._look_at_end(engine)
        await engine.stop()

    def _new_engine(self) -> Engine:
        engine = Engine(
            store=self._seat.store,
            artifacts=self._seat.artifacts,
            clock=self._host.clock,
            ids=self._host.ids,
            owner=self._host.name,
            settings=SETTINGS,
        )
        engine.on_alarm = self._hear_alarm
        return engine

    def _open(self, engine: Engine) -> None:
        live = engine.partition
        assert live is not None
        self._note("owns", f"epoch {live.epoch}, from seq {live.durable_seq}")
        self._engine, self._app = engine, Deeds(engine, make_app(engine, closing=Closing()))

    async def _until_over(self, engine: Engine) -> None:
        """Until the partition has stopped, another epoch is in the store, or it is time for a planned restart."""
        live = engine.partition
        assert live is not None
        loop = asyncio.get_running_loop()
        until = loop.time() + self._chance.between(30, 1_200) if self._chance.happens(0.2) else None
        while live.failed is None and (until is None or loop.time() < until):
            await asyncio.sleep(WATCH_S)
            with contextlib.suppress(Unavailable):
                if (await self._seat.store.read_head(PARTITION)).epoch != live.epoch:
                    self._note("sees another epoch")
                    return

    def _look_at_end(self, engine: Engine) -> None:
        failed = engine.partition.failed if engine.partition is not None else None
        self._note("owns no longer", "" if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None and not isinstance(failed, EXPECTED_ENDS):
            self._violated("ALARM", f"{self._host.name} stopped: {type(failed).__name__}: {failed}")

    def _show(self) -> list[Alive]:
        engine = self._engine
        if engine is None or engine.partition is None or engine.partition.failed is not None:
            return []
        return [Alive(PARTITION, engine.partition.decided_seq, SETTINGS, engine.state)]

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

    def _owner(self) -> Engine:
        if self._engine is None:
            raise Unavailable("this node owns nothing now: ask another one", retry_after_ms=100)
        return self._engine

    async def exchange(self, call: Call, peer: str) -> Reply:
        """Through the route that real workers use."""
        self._owner()
        request = Request("POST", f"/v1/workers/{call.worker}/exchange", encoder.encode(call), MSGPACK)
        answer = await self._http.answer(request, peer)
        if answer.status == 200:
            return reply_decoder.decode(answer.body)
        said = answer.json()
        if answer.status in (503, 507):
            raise Unavailable(said["detail"], retry_after_ms=100)
        self._violated("ANSWER", f"an exchange is answered with {said}")
        raise Refused(said["code"], said["detail"])

    def connection_closed(self, peer: str) -> None:
        self._http.closed(peer)
        if self._engine is not None:
            self._engine.connection_closed(peer.replace("#", ":"))

    async def fetch(self, digest: str) -> bytes:
        data = await self._owner().artifacts.get(digest)
        if data is None:
            raise Refused("unknown_artifact", f"there is no artifact {digest}")
        return data

    async def store(self, data: bytes) -> str:
        return await self._owner().artifacts.put(data)

    async def log(self, task: int, attempt: int, chunk: int, first: int, lines: bytes) -> None:
        await self._owner().logs.append(task, attempt, chunk=chunk, first=first, data=lines)

    async def publish(self, catalog: Catalog) -> str:
        documents = tuple(msgspec.json.decode(document) for document in catalog.documents)
        await self._owner().publish(wire.Publication(documents=documents), by="worker")
        return catalog.version


class Deeds:
    """The API, and beside it what it has no routes for yet: signals, and taking a schedule away."""

    def __init__(self, engine: Engine, app: ASGIApp) -> None:
        self._engine, self._app = engine, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope["path"].startswith("/deeds/"):
            await self._app(scope, receive, send)
            return
        asked = msgspec.json.decode((await receive())["body"])
        status = 200
        try:
            if scope["path"] == "/deeds/signal":
                await self._engine.signal(msgspec.convert(asked, wire.Signal), by="client")
            else:
                await self._engine.remove_schedule(asked["name"], by="client")
        except Refused:
            status = 404
        except Unavailable:
            status = 503
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Watched:
    """What a standby asks."""

    def __init__(self, owns: Callable[[], bool]) -> None:
        self._owns = owns

    async def serve(self, _request: bytes, _peer: str) -> bytes:
        return OWNER if self._owns() else STANDBY

    def closed(self, peer: str) -> None:
        pass


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
