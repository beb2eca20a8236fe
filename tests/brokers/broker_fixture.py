"""An engine, the keeper of a lane, and workers that receive from it: everything but processes and HTTP."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AsyncExitStack

from runtime.engine_fixture import House, task
from tickwork.ports.broker import Broker
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.runtime.broker_publisher import BrokerPublisher
from tickwork.runtime.local_link import LocalLink
from tickwork.worker.agent import Agent
from tickwork.worker.broker_receiver import BrokerReceiver
from worker.scripted_server import Puppet


class Line:
    """`make` gives a lane to the broker under test, not open."""

    def __init__(self, make: Callable[[], Broker], **keeping) -> None:
        self.make, self.keeping = make, keeping
        self.house = House()
        self.stack = AsyncExitStack()
        self.alarms: list[str] = []
        self.keeper: BrokerPublisher = None  # type: ignore[assignment]

    async def __aenter__(self) -> "Line":
        await self.house.open()
        await self.house.define("flow", task("a", "noop", retry=3))
        self.lane = self.make()
        await self.lane.open()
        await self.keep()
        return self

    async def __aexit__(self, *_) -> None:
        await self.stack.aclose()
        await self.keeper.close()
        await self.lane.close()
        await self.house.engine.stop()

    async def keep(self) -> None:
        house = self.house
        self.keeper = BrokerPublisher(
            house.engine, self.lane, queues=["default"], clock=house.clock, ids=house.ids,
            on_trouble=lambda kind, _: self.alarms.append(kind), **self.keeping,
        )  # fmt: skip
        self.keeper.start()

    async def restart(self) -> None:
        """The server crashes and comes back; its lane is as it was."""
        await self.keeper.close()
        await self.house.crash()
        await self.house.open()
        await self.keep()

    async def worker(self, name: str = "w1", *, executor: Puppet | None = None, lane: Broker | None = None, **profile):
        executor = executor or Puppet(slots=20, at_once=True)
        link = LocalLink(self.house.engine)
        agent = Agent(
            link, [executor], clock=self.house.clock, ids=self.house.ids, name=name,
            profile=WorkerProfile(queues=(), **profile),
        )  # fmt: skip
        receiver = BrokerReceiver(agent, lane or self.make(), ["default"])
        jobs = [asyncio.create_task(agent.run()), asyncio.create_task(receiver.run())]
        self.stack.push_async_callback(_end, jobs)
        return executor, agent, receiver, jobs

    async def submit(self, count: int = 1, workflow: str = "flow") -> list[str]:
        return [await self.house.submit(workflow) for _ in range(count)]

    async def completed(self, runs: list[str], seconds: float = 20.0) -> None:
        for run in runs:
            await self.house.until(run, "completed", seconds=seconds)

    async def until(self, holds: Callable[[], bool], seconds: float = 10.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.005)


async def _end(jobs) -> None:
    for job in jobs:
        job.cancel()
    await asyncio.wait(jobs)
    for job in jobs:
        with contextlib.suppress(asyncio.CancelledError):
            job.result()
