"""Partitions of one tenant, decided by two nodes: each of them alone gives the same decisions again."""

import msgspec
import pytest
import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.core.base.errors import ReplayDiffers
from tickwork.core.machine import Machine
from tickwork.journal.replay import replay
from tickwork.runtime.partition.recovery import settings_of


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest.mark.proves("S000-30", "I8")
async def test_each_partition_is_deterministic_on_its_own(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(cluster.owners()) == 4 and len(set(cluster.owners().values())) == 2)
    await cluster.spread(houses[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))
    await cluster.work(houses[0], "w1", Doing())
    await cluster.ended(houses[1], await cluster.submit(houses[1], 30, named="run"))
    store = cluster.new_store()
    await store.open()

    for partition in range(4):
        rows = await store.journal(partition, after=0, limit=100_000)
        settings = settings_of((await store.load(partition)).settings)
        changed = sum(1 for row in rows if row.seq > 2)

        assert changed, "work was done in every partition"
        assert replay(rows, Machine(settings=settings)) == rows[-1].hash
        other = msgspec.structs.replace(settings, partition=(partition + 1) % 4)
        with pytest.raises(ReplayDiffers):
            replay(rows, Machine(settings=other))
