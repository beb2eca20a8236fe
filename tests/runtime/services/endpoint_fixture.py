"""Endpoints for real: an engine, an agent that makes requests, and a web server on loopback; the test moves time."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from executors.web_servers import site
from runtime.engine_fixture import House
from tickwork.core.base.errors import Unavailable
from tickwork.core.state.state import Schedule
from tickwork.executors.egress_client import EgressClient
from tickwork.executors.egress_policy import LOOPBACK, EgressPolicy
from tickwork.executors.http import http_executor
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Call, Reply
from tickwork.runtime.engine import Engine
from tickwork.runtime.local_link import LocalLink
from tickwork.stores.memory.store import MemoryStore
from tickwork.system.zone_data import load_zones
from tickwork.worker.agent import Agent

NEVER_MS = 10**12
WAIT_S = 10.0
SECOND, MINUTE = 1_000, 60_000


class Server:
    """What the other side answers, and how often it was asked."""

    def __init__(self) -> None:
        self.status, self.body = "200 OK", b'{"queue_depth": 7}'
        self.open = asyncio.Event()  # while it is closed, answers wait
        self.open.set()
        self.asked_ms: list[int] = []
        self.at_once = self.at_once_max = 0
        self.clock: Any = None

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        self.asked_ms.append(self.clock.wall_ms())
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            await self.open.wait()
        finally:
            self.at_once -= 1
        head = f"HTTP/1.1 {self.status}\r\ncontent-type: application/json\r\ncontent-length: {len(self.body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + self.body)

    def fail(self, status: str = "503 Busy", body: bytes = b'{"load": 0.99}') -> None:
        self.status, self.body = status, body

    def work(self) -> None:
        self.status, self.body = "200 OK", b'{"queue_depth": 7}'


class HouseLink(LocalLink):
    """Leads to whichever engine the house has now."""

    def __init__(self, house: "CallingHouse") -> None:
        self._house = house

    @property
    def _engine(self) -> Engine:  # type: ignore[override]  # it changes with the house
        return self._house.engine

    async def call(self, call: Call) -> Reply:
        try:
            return await super().call(call)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Unavailable("the engine crashed under this call", retry_after_ms=1) from None


class CallingHouse(House):
    def __init__(self, *, lost_after_ms: int = NEVER_MS) -> None:
        super().__init__()
        self.lost_after_ms = lost_after_ms
        self.server = Server()
        self.server.clock = self.clock
        self.url = ""
        self.agents: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> Engine:
        self.store = MemoryStore(self.disk)
        self.engine = Engine(
            store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1",
            lost_after_ms=self.lost_after_ms, zones=load_zones(),
        )  # fmt: skip
        await self.engine.start()
        return self.engine

    async def hire(self, name: str = "w1") -> None:
        executor = http_executor(outbound=EgressClient(EgressPolicy(networks=LOOPBACK)))
        agent = Agent(HouseLink(self), [executor], clock=self.clock, ids=self.ids, name=name)
        self.agents[name] = asyncio.create_task(agent.run())
        async with asyncio.timeout(WAIT_S):
            await agent.reached.wait()

    async def kill(self, name: str = "w1") -> None:
        """Without a word to anybody."""
        agent = self.agents.pop(name)
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)

    # ---- asking

    async def put(self, name: str = "shop", **fields: Any) -> wire.EndpointPreview:
        given = {"every": "5m"} if "cron" not in fields else {}
        wanted = wire.EndpointRequest(**{"url": f"{self.url}/queue", **given, **fields})
        return await self.engine.endpoints.put(name, wanted, by="alice")

    async def hint(self, name: str = "shop", **fields: Any) -> None:
        await self.engine.schedules.advise(name, wire.HintRequest(**fields), by="planner")

    async def runs(self, name: str = "shop", **fields: Any) -> list[wire.EndpointRun]:
        return (await self.engine.endpoints.runs(name, **fields))[0]

    def one(self, name: str = "shop") -> Schedule:
        found = self.engine.context.state.tenants["default"].schedules.get(name)
        assert found is not None
        return found

    def next_in_ms(self, name: str = "shop") -> int:
        decision = self.one(name).decision
        assert decision is not None and decision.next_ms is not None
        return decision.next_ms - decision.decided_ms

    def after_start_ms(self, name: str = "shop") -> int:
        """How long after the start of its last run it is due again."""
        one = self.one(name)
        assert one.decision is not None and one.decision.next_ms is not None
        return one.decision.next_ms - one.begun_ms

    # ---- time

    def pass_ms(self, ms: int) -> None:
        self.clock.pass_ms(ms)
        assert self.engine.context.partition is not None
        self.engine.context.partition.refresh()

    async def until_true(self, holds: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.002)

    async def begun(self, name: str = "shop") -> None:
        await self.until_true(lambda: bool(self.one(name).active))

    async def rest(self, name: str = "shop") -> None:
        """Until no run of it goes on and the Governor has said what comes next."""
        one = self.one(name)
        await self.until_true(lambda: not one.active and not one.ended and one.decision is not None)

    async def due(self, name: str = "shop") -> None:
        """To its next time, and through that run."""
        fired = self.one(name).fired
        self.pass_ms(max(0, self.one(name).next_ms - self.clock.wall_ms()))
        await self.until_true(lambda: self.one(name).fired > fired)
        await self.rest(name)


@asynccontextmanager
async def calling(*, worker: bool = True, **terms: Any):
    house = CallingHouse(**terms)
    async with site(house.server) as there:
        house.url = there.url
        await house.open()
        if worker:
            await house.hire()
        try:
            yield house
        finally:
            house.server.open.set()
            for name in list(house.agents):
                await house.kill(name)
            await house.engine.stop()
