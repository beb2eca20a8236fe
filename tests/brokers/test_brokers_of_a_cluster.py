"""One lane under several nodes: whoever takes something may speak to any of them."""

import asyncio

import pytest
import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.brokers.memory import MemoryBroker, MemoryBrokerState
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.runtime.broker_publisher import BrokerPublisher
from tickwork.system.clock import SystemClock, SystemIds
from tickwork.worker.broker_receiver import BrokerReceiver


@pytest.fixture
def broker():
    return MemoryBrokerState()


@pytest.fixture
def attend(broker):
    """What gives each engine a keeper, as the server does."""

    def keeper(engine):
        return BrokerPublisher(engine, MemoryBroker(broker), queues=["default"], clock=SystemClock(), ids=SystemIds())

    return keeper


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def receive(cluster, broker):
    jobs = []

    async def receive(house, name, executor):
        agent = await cluster.work(house, name, executor, profile=WorkerProfile(queues=()))
        receiver = BrokerReceiver(agent, MemoryBroker(broker), ["default"])
        jobs.append(asyncio.create_task(receiver.run()))
        return receiver

    yield receive
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)


async def spread(cluster, houses):
    await cluster.until(lambda: len(set(cluster.owners().values())) == len(houses))
    answer = await cluster.client.put(f"{houses[0].server.address}/v1/cluster/spread", json={"spread": 4})
    assert answer.status_code == 204, answer.text
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))


@pytest.mark.proves("I34", "I35")
async def test_what_any_partition_dispatches_is_taken_through_any_node(cluster, broker, attend, receive):
    houses = [await cluster.add(attend=attend) for _ in range(2)]
    await spread(cluster, houses)
    workers = [Doing(), Doing()]
    receivers = [await receive(house, f"w-{house.name}", one) for house, one in zip(houses, workers, strict=True)]

    ids = await cluster.submit(houses[1], 60, named="run")
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    begun = workers[0].begun + workers[1].begun
    assert sorted(begun.values()) == [1] * 60
    assert {task >> 44 for task, _ in begun} == {0, 1, 2, 3}
    assert sum(one.taken for one in receivers) >= 60
    await cluster.until(lambda: not broker.messages)


@pytest.mark.proves("F1", "F20")
async def test_a_node_that_goes_leaves_its_lane_to_the_next_owner(cluster, broker, attend, receive):
    houses = [await cluster.add(attend=attend) for _ in range(2)]
    await spread(cluster, houses)
    await cluster.work(houses[0], "putter", Doing(slots=0), profile=WorkerProfile(queues=()))
    ids = await cluster.submit(houses[0], 30, named="run")
    await cluster.until(lambda: len(broker.messages) >= 30)  # more, where a partition still moved
    broker.wipe()  # and what it carried is lost with it
    await houses[1].stop()
    await cluster.until(lambda: len(cluster.owners()) == 4)
    doing = Doing()
    await receive(houses[0], "w1", doing)

    runs = await cluster.ended(houses[0], ids)
    assert {run["state"] for run in runs} == {"completed"}
    assert sorted(doing.begun.values()) == [1] * 30
