"""A lane that loses, repeats, delays and goes away, from one number, in simulated time: only latency changes."""

import asyncio
import random
from collections import Counter

import pytest

from brokers.broker_fixture import Line
from tickwork.brokers.memory import MemoryBroker, MemoryBrokerState
from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import BrokerOptions
from tickwork.testing.virtual_loop import VirtualLoop
from worker.scripted_server import Puppet


class BadLane(MemoryBroker):
    """Each word between it and the broker may go wrong in either direction."""

    def __init__(self, broker: MemoryBrokerState, rng: random.Random) -> None:
        super().__init__(broker, BrokerOptions(redeliver_ms=2_000))
        self.rng = rng

    async def _trouble(self) -> None:
        await asyncio.sleep(self.rng.choice([0, 0, 0.001, 0.05, 3.0]))  # the last one is longer than a message is left
        if self.rng.random() < 0.05:
            raise Unavailable("cut off", retry_after_ms=1)

    async def publish(self, envelopes):
        await self._trouble()
        kept = [one for one in envelopes for _ in range(self.rng.choice([0, 1, 1, 1, 1, 2]))]
        self.rng.shuffle(kept)
        await super().publish(kept)
        await self._trouble()

    async def receive(self, queues, labels, *, limit, wait_ms):
        found = await super().receive(queues, labels, limit=limit, wait_ms=wait_ms)
        await self._trouble()
        return found

    async def accept(self, deliveries):
        await self._trouble()
        await super().accept([one for one in deliveries if self.rng.random() < 0.9])


class Slow(Puppet):
    """Takes some time for each, and counts what began."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(slots=4)
        self.rng = rng

    def run(self, work, spec) -> None:
        super().run(work, spec)
        key = (work.task, work.attempt)
        loop = asyncio.get_running_loop()
        loop.call_later(self.rng.choice([0.0, 0.1, 5.0]), lambda: self.end(*key) if key in self.runs else None)


async def live(seed: int) -> tuple[Counter, MemoryBrokerState]:
    rng, broker = random.Random(seed), MemoryBrokerState()
    async with Line(lambda: BadLane(broker, rng), untaken_ms=20_000, credit=10) as line:
        workers = [Slow(rng) for _ in range(3)]
        for place, one in enumerate(workers):
            await line.worker(f"w{place}", executor=one)
        runs = []
        for _ in range(6):
            runs += await line.submit(5)
            await asyncio.sleep(rng.choice([0, 0.5, 4]))
            draw = rng.random()
            if draw < 0.3:
                broker.wipe()
            elif draw < 0.6:
                broker.up = False
                await asyncio.sleep(rng.choice([1, 10, 60]))
                broker.up = True
        await line.completed(runs, seconds=2_000)
        begun = Counter(key for one in workers for key in one.seen)
        await line.until(lambda: line.keeper.untaken == 0, seconds=600)
        return begun, broker


@pytest.mark.proves("I25", "I29", "I34", "I35", "F19", "F20")
@pytest.mark.parametrize("seed", range(12))
def test_a_bad_lane_loses_nothing_and_starts_no_attempt_twice(seed):
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    try:
        begun, broker = loop.run_until_complete(live(seed))
    finally:
        loop.close()
        asyncio.set_event_loop(None)

    assert set(begun.values()) == {1}, "an attempt began twice"
    assert Counter(task for task, _ in begun).total() == len({task for task, _ in begun}) == 30
    assert not broker.dead
