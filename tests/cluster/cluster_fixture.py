"""Real nodes on loopback, over one memory disk: the API, the exchange between nodes and the agent are the real ones."""

import asyncio
import contextlib
import json
import time
from collections import Counter

import httpx2
import msgspec

from tickwork.api.app import make_app
from tickwork.api.http.request import NO_WEBHOOKS
from tickwork.api.http.webhooks import Webhooks
from tickwork.api.server import HttpServer, listen
from tickwork.cluster.direct_link import OwnerConnections, OwnerLink
from tickwork.cluster.node import Node, member_of
from tickwork.cluster.peers import HttpPeers
from tickwork.core.base.errors import Unavailable
from tickwork.core.base.values import pack
from tickwork.protocol.worker_messages import Catalog, Succeeded
from tickwork.runtime.engine import Engine
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import SystemClock, SystemIds
from tickwork.worker.agent import Agent
from tickwork.worker.http_link import HttpLink

DOCUMENT = {"name": "flow", "nodes": [{"kind": "task", "id": "only", "handler": "do", "retry": {"attempts": 3}}]}
TTL_MS, RETRY_MS = 1_500, 200


class Doing:
    """An executor that takes `seconds` for each attempt and writes down what began."""

    kinds, isolation = frozenset({"task"}), "none"

    def __init__(self, *, seconds: float = 0.0, slots: int = 8, documents=(DOCUMENT,)) -> None:
        self.slots, self.seconds = slots, seconds
        self.begun: Counter = Counter()
        self.documents = documents
        self._running: dict = {}

    async def start(self, sink):
        self._sink = sink
        return Catalog(tuple(json.dumps(one).encode() for one in self.documents))

    def run(self, work, spec):
        self.begun[work.task, work.attempt] += 1
        loop = asyncio.get_running_loop()
        handle = loop.call_later(self.seconds, self._done, work) if self.seconds else loop.call_soon(self._done, work)
        self._running[work.task, work.attempt] = handle

    def _done(self, work):
        del self._running[work.task, work.attempt]
        self._sink.report(Succeeded(work.task, work.attempt, pack("done"), 1, 2))

    def saved(self, task, attempt): ...

    def stop(self, task, attempt):
        if (handle := self._running.pop((task, attempt), None)) is not None:
            handle.cancel()

    def recall(self):
        return ()

    async def close(self, *, grace_s):
        until = time.monotonic() + grace_s
        while self._running and time.monotonic() < until:
            await asyncio.sleep(0.01)
        for handle in self._running.values():
            handle.cancel()


class House:
    """One node with its server."""

    def __init__(
        self,
        cluster: "TestCluster",
        name: str,
        *,
        engine: bool = True,
        partitions: int = 4,
        made_of: type[Engine] = Engine,
        port: int = 0,
        attend=None,
        token: str = "",
        webhooks: Webhooks = NO_WEBHOOKS,
        **member,
    ) -> None:
        self.cluster, self.name = cluster, name
        self.inner = listen("127.0.0.1", 0)
        address = f"http://127.0.0.1:{self.inner.getsockname()[1]}"
        store, clock, ids = cluster.new_store(), SystemClock(), SystemIds()
        self.alarms: list = []

        def make_engine(number: int) -> Engine:
            return made_of(
                store=store, artifacts=cluster.artifacts, clock=clock, ids=ids, owner=name, number=number, shared=True
            )

        self.node = Node(
            store=store,
            leases=cluster.new_leases(),
            peers=HttpPeers(token=token),
            clock=clock,
            ids=ids,
            artifacts=cluster.artifacts,
            member=msgspec.structs.replace(
                member_of(
                    session=f"{name}~{ids.new()}",
                    node=name,
                    address=address,
                    started_ms=clock.wall_ms(),
                    engine=engine,
                ),
                machine=made_of.rules_known,
                **member,
            ),
            make_engine=make_engine,
            cluster="test",
            partitions=partitions,
            ttl_ms=TTL_MS,
            retry_ms=RETRY_MS,
            lost_after_ms=5_000,
            attend=attend,
        )
        self.node.alarms.on_alarm = self.alarms.append
        self.app = make_app(self.node, token=token or None, webhooks=webhooks)
        self.server = HttpServer(self.app, self.node, port=port, inner=self.inner)
        self.up = False

    async def start(self) -> "House":
        await self.node.start()
        await self.server.start()
        self.up = True
        return self

    async def stop(self) -> None:
        self.up = False
        await self.node.hand_over()
        await self.server.stop()
        await self.node.stop()

    async def crash(self) -> None:
        """Gone without a word: connections cut, nothing handed over, leases left to run out."""
        self.up = False
        node = self.node
        ownership = node.ownership
        ownership._task.cancel()
        ownership._guard.cancel()
        for job in node._jobs:
            job.cancel()
        self.server._server.force_exit = True
        for engine in list(node.engines.values()):
            await engine.abandon("crashed")
        node.engines.clear()
        await node.workers.gateway.close()
        await self.server.stop()
        await node._peers.close()


class Mute:
    """A listening socket of a stopped process."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.heard = b""
        self.first = b""  # what it answers, once

    async def start(self, port: int = 0) -> str:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader, writer):
        self.writers.append(writer)
        while data := await reader.read(65_536):
            self.heard += data
            if self.first and b"\r\n\r\n" in self.heard:
                writer.write(self.first)
                self.first = b""

    async def close(self) -> None:
        self.server.close()
        for writer in self.writers:
            writer.close()


class Direct(OwnerLink):
    def __init__(self, given: HttpLink, reach: OwnerConnections) -> None:
        super().__init__(given, reach, clock=SystemClock())
        self.given = given

    async def close(self) -> None:
        await super().close()
        await self.given.close()


class TestCluster:
    __test__ = False

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.leases = MemoryLeases(lambda: time.monotonic_ns() // 1_000_000)
        self.artifacts = MemoryArtifacts()
        self.houses: list[House] = []
        self.agents: list = []
        self.client = httpx2.AsyncClient(timeout=20.0, trust_env=False)

    def new_store(self):
        return MemoryStore(self.disk)

    def new_leases(self):
        return self.leases

    async def add(self, name: str = "", **options) -> House:
        house = House(self, name or f"n{len(self.houses) + 1}", **options)
        self.houses.append(house)
        return await house.start()

    async def work(
        self, house: House, name: str, executor, *, reach: OwnerConnections | None = None, **options
    ) -> Agent:
        """With `reach`, it speaks to every owner by itself."""
        given = HttpLink(house.server.address)
        link = given if reach is None else Direct(given, reach)
        agent = Agent(link, [executor], clock=SystemClock(), ids=SystemIds(), name=name, **options)
        task = asyncio.get_running_loop().create_task(agent.run())
        self.agents.append((agent, task, link))
        await asyncio.wait_for(agent.reached.wait(), 10)
        return agent

    async def submit(self, house: House, count: int, **fields) -> list[str]:
        named = fields.pop("named", "")  # ids that begin so; else the node gives them
        runs = [{"workflow": "flow"} | fields for _ in range(count)]
        body = {"runs": [run | ({"id": f"{named}-{at}"} if named else {}) for at, run in enumerate(runs)]}
        answer = await self.client.post(f"{house.server.address}/v1/runs/batch", json=body)
        assert answer.status_code == 200, answer.text
        return [one["id"] for one in answer.json()["runs"]]

    async def get(self, house: House, path: str):
        return await self.client.get(house.server.address + path)

    async def ended(self, house: House, ids, *, seconds: float = 20.0) -> list[dict]:
        until = time.monotonic() + seconds
        found: dict = {}
        while len(found) < len(ids):
            assert time.monotonic() < until, f"{len(found)} of {len(ids)} ended; {await self.stuck(house, ids, found)}"
            for one in ids:
                if one not in found:
                    with contextlib.suppress(httpx2.TransportError):
                        answer = await self.get(house, f"/v1/runs/{one}")
                        if answer.status_code == 200 and answer.json().get("ended_at"):
                            found[one] = answer.json()
            await asyncio.sleep(0.01)
        return [found[one] for one in ids]

    async def stuck(self, house, ids, found):
        left = [one for one in ids if one not in found][:2]
        return [(await self.get(house, f"/v1/runs/{one}")).text[:600] for one in left]

    async def until(self, condition, *, seconds: float = 15.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "it did not happen in time"
            await asyncio.sleep(0.01)

    async def spread(self, house: House, count: int) -> None:
        """Until it is done: a partition may just be on its way to another node."""
        until = time.monotonic() + 15.0
        path = f"{house.server.address}/v1/cluster/spread"
        while (answer := await self.client.put(path, json={"spread": count})).status_code != 204:
            assert answer.status_code == 503 and time.monotonic() < until, answer.text
            await asyncio.sleep(0.05)

    def owners(self) -> dict[int, str]:
        return {number: house.name for house in self.houses if house.up for number in house.node.engines}

    async def close(self) -> None:
        for agent, task, link in self.agents:
            await agent.drain(grace_s=1.0)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(task, 5)
            await link.close()
        for house in reversed(self.houses):
            if house.up:
                with contextlib.suppress(Unavailable):
                    await house.stop()
        await self.client.aclose()
