"""Runs that tasks start and events that they give in other partitions than their own."""

import asyncio
import time
from collections import Counter

import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.core.base.errors import Unavailable
from tickwork.core.base.values import pack
from tickwork.protocol.http_models import Signal, Submission
from tickwork.protocol.task_commands import GiveEvent, StartRun, encode_commands
from tickwork.protocol.worker_messages import Succeeded

PARENT = {"name": "flow", "nodes": [{"kind": "task", "id": "only", "handler": "do"}]}
TARGET = {"name": "target", "nodes": [{"kind": "task", "id": "only", "handler": "end"}]}
WAITER = {"name": "waiter", "nodes": [{"kind": "event", "id": "e", "event": "paid"}]}
RUNS = 12


class Starting(Doing):
    """Each task of `flow` starts a run under a key of its own, and one under the key of all, and gives an event."""

    def run(self, work, spec):
        self.starts = getattr(self, "starts", {})
        self.starts[work.task] = spec.handler == "do"
        self.names = getattr(self, "names", {})
        self.names[work.task] = work.run_id
        super().run(work, spec)

    def _done(self, work):
        if not self.starts[work.task]:
            super()._done(work)
            return
        del self._running[work.task, work.attempt]
        own, common = f"own-{work.run_id}", "common"
        commands = encode_commands([
            StartRun(Submission(workflow="target", key=own)), StartRun(Submission(workflow="target", key=common)),
            StartRun(Submission(workflow="target")), GiveEvent(Signal(event="paid")),
        ])  # fmt: skip
        self._sink.report(Succeeded(work.task, work.attempt, pack("done"), 1, 2, commands))


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def houses(cluster):
    made = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    body = {"documents": [PARENT, TARGET, WAITER]}
    answer = await cluster.client.put(f"{made[0].server.address}/v1/workflows", json=body)
    assert answer.status_code == 200
    await cluster.spread(made[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in made))
    return made


async def listed(cluster, house, workflow):
    answer = await cluster.get(house, f"/v1/runs?limit=200&workflow={workflow}")
    return answer.json()["runs"] if answer.status_code == 200 else []  # a partition is between two owners


async def until_listed(cluster, house, count):
    until = time.monotonic() + 20
    while len(runs := await listed(cluster, house, "target")) < count or any(not run.get("ended_at") for run in runs):
        assert time.monotonic() < until, f"{len(runs)} of {count}"
        await asyncio.sleep(0.05)
    return runs


def partitions_with(house, *, houses):
    return {number for one in houses for number, engine in one.node.engines.items() if engine.context.state.received}


async def test_each_partition_gets_what_is_for_it_once(cluster, houses):
    waiting = [f"waits-{number}" for number in range(RUNS)]
    answer = await cluster.client.post(
        f"{houses[0].server.address}/v1/runs/batch",
        json={"runs": [{"workflow": "waiter", "id": run} for run in waiting]},
    )
    assert answer.status_code == 200
    await cluster.work(houses[0], "w", Starting(documents=(PARENT, TARGET, WAITER)))
    parents = await cluster.submit(houses[1], RUNS, named="parent")

    await cluster.ended(houses[0], parents)
    runs = await until_listed(cluster, houses[1], 2 * RUNS + 1)
    assert len(runs) == 2 * RUNS + 1
    keys = Counter(run.get("key", "") for run in runs)
    assert keys == Counter({f"own-{parent}": 1 for parent in parents} | {"common": 1, "": RUNS})
    assert all(run["source"].startswith("task only of parent-") for run in runs)
    assert all(run["state"] == "completed" for run in await cluster.ended(houses[1], waiting))
    assert len(partitions_with(houses[0], houses=houses)) == 4
    await cluster.until(lambda: not any(
        engine.context.state.outbox for house in houses for engine in house.node.engines.values()
    ))  # fmt: skip


async def test_a_command_whose_acknowledgement_is_lost_is_sent_again_and_decided_once(cluster, houses, monkeypatch):
    lost: Counter = Counter()
    for house in houses:
        for engine in house.node.engines.values():
            neighbours = engine.context.neighbours

        async def deliver(partition, sender, commands, neighbours=neighbours, real=neighbours.deliver):
            outcomes = await real(partition, sender, commands)
            lost[sender, partition] += 1
            if lost[sender, partition] <= 3:
                raise Unavailable("the answer is lost", retry_after_ms=10)
            return outcomes

        monkeypatch.setattr(neighbours, "deliver", deliver)
    await cluster.work(houses[0], "w", Starting(documents=(PARENT, TARGET, WAITER)))
    parents = await cluster.submit(houses[1], RUNS, named="parent")

    await cluster.ended(houses[0], parents)
    await until_listed(cluster, houses[1], 2 * RUNS + 1)
    await cluster.until(lambda: not any(
        engine.context.state.outbox for house in houses for engine in house.node.engines.values()
    ))  # fmt: skip
    assert len(await listed(cluster, houses[1], "target")) == 2 * RUNS + 1
    assert lost and min(lost.values()) > 3


async def test_what_waits_is_sent_by_the_next_owner_when_this_one_dies(cluster, houses, monkeypatch):
    """Nothing that the first node sends arrives; then it dies."""
    dying, living = houses

    async def nothing(*_):
        raise Unavailable("nobody answers", retry_after_ms=10)

    for engine in dying.node.engines.values():
        monkeypatch.setattr(engine.context.neighbours, "deliver", nothing)
    await cluster.work(living, "w", Starting(documents=(PARENT, TARGET, WAITER)))
    parents = await cluster.submit(living, RUNS, named="parent")
    await cluster.ended(living, parents)
    waiting = [engine for engine in dying.node.engines.values() if engine.context.state.outbox]
    assert waiting
    await dying.crash()

    await until_listed(cluster, living, 2 * RUNS + 1)
    assert len(await listed(cluster, living, "target")) == 2 * RUNS + 1
