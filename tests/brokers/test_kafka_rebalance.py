"""Kafka deals its partitions out anew whenever a worker comes, goes, or does not poll for too long: nothing is skipped
by it, and nothing begins twice."""

import asyncio
import random

import pytest

from brokers.broker_fixture import Line
from brokers.fake_kafka import Cluster, Consumer, Producer
from brokers.test_broker_dispatch import SEAL
from campaign import seeds
from tickwork.brokers.kafka import KafkaBroker
from tickwork.ports.broker import BrokerOptions
from worker.scripted_server import Puppet

TASKS = 60
SOON_S = 30.0


class LocalLane(KafkaBroker):
    """The real lane; only what it speaks to is in this process."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__("kafka://nowhere/test", BrokerOptions(codec=SEAL, redeliver_ms=300))
        self._cluster = cluster

    async def _connect(self) -> None:
        self._producer, self._consumer = Producer(self._cluster), Consumer(self._cluster)


class Steady(Puppet):
    """Each attempt takes a moment."""

    def run(self, work, spec) -> None:
        super().run(work, spec)
        key = (work.task, work.attempt)
        asyncio.get_running_loop().call_later(0.005, lambda: self.end(*key) if key in self.runs else None)


@pytest.mark.proves("P16", "I25", "I34", "I35")
@pytest.mark.parametrize("seed", seeds(0, few=4, many=40))
async def test_partitions_dealt_out_anew_leave_no_task_out_and_begin_none_twice(seed):
    rng, cluster = random.Random(seed), Cluster()
    async with Line(lambda: LocalLane(cluster)) as line:
        workers = [await line.worker(f"w{number}", executor=Steady(slots=4)) for number in range(3)]
        runs = []
        for turn in range(12):
            runs += await line.submit(TASKS // 12)
            await asyncio.sleep(rng.choice([0, 0.01, 0.03]))
            cluster.rebalance()
            if turn % 4 == 1 and cluster.members:
                cluster.leave(rng.choice(cluster.members))  # it did not poll in time, and comes back when it does
            if turn == 6:
                await workers[0][1].drain(grace_s=1.0)  # it ends, with whatever it has fetched and not taken
        await line.completed(runs, SOON_S)

        begun = [pair for executor, *_ in workers for pair in executor.seen]
        assert len(begun) == len({task for task, _ in begun}) == TASKS, "each begins, and none of them twice"
        assert cluster.rebalances > 12


@pytest.mark.proves("P16", "I30", "I35")
async def test_a_worker_without_room_leaves_its_partitions_to_others_and_its_task_ends_once():
    """It polls no more while it is full, so the group goes on without it; what it runs is still its own."""
    cluster = Cluster()
    async with Line(lambda: LocalLane(cluster)) as line:
        busy, *_ = await line.worker("w1", executor=Puppet(slots=1))
        [long] = await line.submit(1)
        await line.until(lambda: len(busy.seen) == 1)
        for member in list(cluster.members):
            cluster.leave(member)
        free, *_ = await line.worker("w2")
        runs = await line.submit(20)
        await line.completed(runs, SOON_S)
        assert len(busy.seen) == 1
        busy.end(*busy.seen[0])
        await line.completed([long], SOON_S)

        begun = [*busy.seen, *free.seen]
        assert len(begun) == len(set(begun)) == 21
