"""A worker that speaks to every owner by itself, and one that cannot."""

import asyncio
import time
from collections import Counter

import pytest
import pytest_asyncio

from cluster.cluster_fixture import Doing, Mute, TestCluster
from tickwork.cluster import direct_link as direct
from tickwork.cluster.direct_link import HttpOwnerConnections, OwnerUnreachable
from tickwork.cluster.multiplexed_connection import UpgradeRefused
from tickwork.core.state.state import NUMBER_BITS

SLOTS = 10


class Blocked(HttpOwnerConnections):
    """Some addresses lead nowhere, as behind a firewall."""

    def __init__(self, *addresses: str) -> None:
        super().__init__()
        self.blocked = set(addresses)

    def _connection(self, address):
        if address in self.blocked:
            raise OwnerUnreachable(f"{address} is blocked", retry_after_ms=50)
        return super()._connection(address)


@pytest_asyncio.fixture
async def cluster():
    found = TestCluster()
    yield found
    await found.close()


@pytest_asyncio.fixture
async def houses(cluster):
    found = [await cluster.add(partitions=2) for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    await cluster.spread(found[0], 2)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 2 for house in found))
    return found


def link_of(cluster, place=-1):
    return cluster.agents[place][2]


def seats(houses, worker):
    """Where it sits: the partition, and who stands for it."""
    engines = {number: engine for house in houses for number, engine in house.node.engines.items()}
    return {
        number: engine.workers.registered[worker].via
        for number, engine in engines.items()
        if worker in engine.workers.registered
    }


async def test_it_sits_at_every_owner_and_no_node_stands_for_it(cluster, houses):
    doing = Doing(slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=HttpOwnerConnections())
    ids = await cluster.submit(houses[0], 60) + await cluster.submit(houses[1], 60)
    runs = await cluster.ended(houses[0], ids)

    assert link_of(cluster).direct
    assert {run["state"] for run in runs} == {"completed"}
    assert set(doing.begun.values()) == {1}
    assert seats(houses, "w1") == {0: "", 1: ""}
    assert not houses[0].node.workers.gateway.workers and not houses[1].node.workers.gateway.workers
    assert {task >> NUMBER_BITS for task, _ in doing.begun} == {0, 1}, "both partitions had work"


async def test_its_credit_is_one_for_all_owners(cluster, houses):
    doing = Doing(seconds=0.2, slots=SLOTS)
    agent = await cluster.work(houses[0], "w1", doing, reach=HttpOwnerConnections())
    ids = await cluster.submit(houses[0], 40) + await cluster.submit(houses[1], 40)
    most = 0
    ended = asyncio.create_task(cluster.ended(houses[0], ids))
    while not ended.done():
        given = [
            engine.context.state.workers[engine.context.state.worker_numbers["w1"]]
            for house in houses
            for engine in house.node.engines.values()
            if "w1" in engine.context.state.worker_numbers
        ]
        most = max(most, sum(len(worker.tasks) for worker in given))
        assert most <= max(agent._announced, SLOTS)
        await asyncio.sleep(0.005)
    await ended

    assert most >= SLOTS, "what one partition does not need the other may have"
    assert set(doing.begun.values()) == {1}


@pytest.mark.proves("F16")
async def test_a_partition_that_moves_is_followed_and_nothing_begins_twice(cluster, houses):
    doing = Doing(seconds=0.01, slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=HttpOwnerConnections())
    ids: list[str] = []

    async def submitting():
        for _ in range(20):
            ids.extend(await cluster.submit(houses[0], 5))
            await asyncio.sleep(0.02)

    job = asyncio.create_task(submitting())
    await asyncio.sleep(0.1)
    await houses[1].stop()
    await job
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    assert set(doing.begun.values()) == {1}
    assert link_of(cluster).direct
    assert seats(houses[:1], "w1") == {0: "", 1: ""}


async def test_an_owner_that_dies_is_followed_also_where_it_was_the_given_server(cluster, houses):
    doing = Doing(slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=HttpOwnerConnections())
    await cluster.ended(houses[1], await cluster.submit(houses[1], 10))
    await houses[0].crash()
    await cluster.until(lambda: len(houses[1].node.engines) == 2)
    runs = await cluster.ended(houses[1], await cluster.submit(houses[1], 40, named="later"))

    assert {run["state"] for run in runs} == {"completed"}
    assert max(doing.begun.values()) == 1
    assert seats(houses[1:], "w1") == {0: "", 1: ""}


async def test_one_that_is_gone_is_noticed_by_its_connection_at_every_owner(cluster, houses):
    stuck, doing = Doing(seconds=60, slots=4), Doing(slots=SLOTS)
    await cluster.work(houses[0], "w1", stuck, reach=HttpOwnerConnections())
    ids = await cluster.submit(houses[0], 2) + await cluster.submit(houses[1], 2)
    await cluster.until(lambda: len(stuck.begun) == 4)
    await cluster.work(houses[1], "w2", doing, reach=HttpOwnerConnections())
    _, task, link = cluster.agents.pop(0)
    begin = time.monotonic()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await link.close()
    runs = await cluster.ended(houses[1], ids)

    assert time.monotonic() - begin < 4.9, "before silence alone would have told"
    assert {run["state"] for run in runs} == {"completed"}
    assert len(doing.begun) == 4


async def test_one_that_says_goodbye_is_known_nowhere(cluster, houses):
    await cluster.work(houses[0], "w1", Doing(), reach=HttpOwnerConnections())
    await cluster.until(lambda: seats(houses, "w1") == {0: "", 1: ""})
    agent, task, link = cluster.agents.pop(0)
    await agent.drain(grace_s=1.0)
    await asyncio.wait_for(task, 5)
    await link.close()

    assert seats(houses, "w1") == {}
    known = [engine.context.state.worker_numbers for house in houses for engine in house.node.engines.values()]
    assert not any("w1" in names for names in known)


@pytest.mark.parametrize("secure", [False, True], ids=["an owner behind a firewall", "a token that needs TLS"])
async def test_where_an_owner_cannot_be_reached_the_given_server_stands_for_it(cluster, houses, secure):
    blocked = HttpOwnerConnections(secure=True) if secure else Blocked(houses[1].node.member.address)
    doing = Doing(slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=blocked)
    runs = await cluster.ended(houses[0], await cluster.submit(houses[0], 20) + await cluster.submit(houses[1], 20))

    assert not link_of(cluster).direct
    assert {run["state"] for run in runs} == {"completed"}
    assert seats(houses, "w1") == dict.fromkeys((0, 1), houses[0].node.member.session)


async def test_it_goes_from_one_way_to_the_other_with_what_it_holds(cluster, houses, monkeypatch):
    monkeypatch.setattr(direct, "LOOK_S", 0.3)
    monkeypatch.setattr(direct, "FALL_BACK_S", 0.3)
    there = houses[1].node.member.address
    reach, doing = Blocked(there), Doing(seconds=0.1, slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=reach)
    ways: Counter = Counter()
    ids: list[str] = []
    until = time.monotonic() + 20
    while len(ways) < 2 or sum(ways.values()) < 3:
        assert time.monotonic() < until, ways
        before = link_of(cluster).direct
        ids += await cluster.submit(houses[0], 2) + await cluster.submit(houses[1], 2)
        await asyncio.sleep(0.05)
        if link_of(cluster).direct != before:
            ways[before] += 1
        if link_of(cluster).direct and there not in reach.blocked:
            reach.blocked.add(there)
            reach.keep_only(())
        elif not link_of(cluster).direct:
            reach.blocked.clear()
    reach.blocked.clear()
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    assert set(doing.begun.values()) == {1}


async def test_a_cluster_that_forms_after_its_worker_came_is_found(cluster):
    first = await cluster.add(partitions=2)
    doing = Doing()
    await cluster.work(first, "w1", doing, reach=HttpOwnerConnections(), beat_ms=200)
    assert not link_of(cluster).direct

    await cluster.add(partitions=2)

    await cluster.until(lambda: link_of(cluster).direct)
    await cluster.ended(first, await cluster.submit(first, 10))
    assert set(doing.begun.values()) == {1}


async def test_a_node_that_does_not_know_the_way_is_not_asked_twice(cluster, houses, monkeypatch):
    async def not_spoken(self, address):
        raise UpgradeRefused

    monkeypatch.setattr(HttpOwnerConnections, "open", not_spoken)
    await cluster.work(houses[0], "w1", Doing(), reach=HttpOwnerConnections())
    await cluster.ended(houses[0], await cluster.submit(houses[0], 5))

    assert not link_of(cluster).direct
    assert set(seats(houses, "w1").values()) == {houses[0].node.member.session}


async def test_a_worker_finds_back_to_every_partition_when_two_of_three_owners_hang(cluster, monkeypatch):
    """The connection to one of them is still being opened when the worker learns who owns its partitions now."""
    monkeypatch.setattr("tickwork.cluster.multiplexed_connection.CONNECT_S", 4.0)
    houses = [await cluster.add(partitions=6) for _ in range(3)]
    await cluster.until(lambda: Counter(cluster.owners().values()) == dict.fromkeys(("n1", "n2", "n3"), 2))
    await cluster.spread(houses[0], 6)
    await cluster.work(houses[0], "w1", Doing(slots=SLOTS), reach=HttpOwnerConnections())
    await cluster.until(lambda: seats(houses, "w1") == dict.fromkeys(range(6), ""))
    hung = []
    for house in houses[1:]:
        port = house.inner.getsockname()[1]
        await house.crash()
        hung.append(Mute())
        await hung[-1].start(port)
        await asyncio.sleep(0.5)
    await cluster.until(lambda: len(houses[0].node.engines) == 6)
    floors = [engine.workers for engine in houses[0].node.engines.values()]
    await cluster.until(lambda: all(floor.registered["w1"].session.id for floor in floors))
    runs = await cluster.ended(houses[0], await cluster.submit(houses[0], 60))
    for server in hung:
        await server.close()

    assert link_of(cluster).direct, "it was not rescued by falling back to the given server"
    assert {run["state"] for run in runs} == {"completed"}


async def test_a_call_that_something_else_cancels_does_not_end_the_way_to_its_partition(cluster, houses):
    """Whatever the cause: reports that were under way are sent again, and the next call waits for work."""
    doing = Doing(seconds=0.3, slots=SLOTS)
    await cluster.work(houses[0], "w1", doing, reach=HttpOwnerConnections())
    ids = await cluster.submit(houses[0], 10) + await cluster.submit(houses[1], 10)
    (worker,) = link_of(cluster)._gateway.workers.values()
    for _ in range(30):
        for owner in worker.owners:
            for call in (owner._exchange._poll, owner._exchange._post):
                if call is not None:
                    call.cancel()
        await asyncio.sleep(0.02)
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    assert set(doing.begun.values()) == {1}
    assert all(owner._exchange._poll is not None for owner in worker.owners)


class Talking(Doing):
    """Each attempt writes lines, one of them just before its end."""

    def run(self, work, spec):
        self._sink.log(work.task, work.attempt, "stdout", f"begins {work.run_id}", 1)
        super().run(work, spec)

    def _done(self, work):
        self._sink.log(work.task, work.attempt, "stdout", f"ends {work.run_id}", 2)
        super()._done(work)


@pytest.mark.parametrize("reach", [HttpOwnerConnections, lambda: None], ids=["direct", "by a node"])
async def test_its_log_lines_reach_the_owner_of_each_task_and_those_of_others_are_refused(cluster, houses, reach):
    doing = Talking(slots=SLOTS)
    agent = await cluster.work(houses[0], "w1", doing, reach=reach())
    await cluster.work(houses[1], "w2", Doing(slots=1))
    ids = await cluster.submit(houses[0], 10) + await cluster.submit(houses[1], 10)
    runs = await cluster.ended(houses[0], ids)
    await asyncio.wait_for(agent.logs.flush(), 10)

    assert agent.logs.refused == 0
    mine = [(run["id"], one) for run in runs for one in run["tasks"] if one["attempts"][0]["worker"] == "w1"]
    assert {int(one["id"]) >> NUMBER_BITS for _, one in mine} == {0, 1}, "both partitions had work"
    for house in houses:
        for run_id, one in mine:
            lines = (await cluster.get(house, f"/v1/runs/{run_id}/logs")).json()["lines"]
            assert [line["text"] for line in lines] == [f"begins {run_id}", f"ends {run_id}"]
            path = f"{house.server.address}/v1/tasks/{one['id']}/attempts/1/logs?chunk=9&first=9"
            headers = {"content-type": "application/x-ndjson"}
            for sender in ({}, {"x-tickwork-worker": "w2", "x-tickwork-session": cluster.agents[1][0].session}):
                answer = await cluster.client.post(path, content=b"", headers=headers | sender)
                assert (answer.status_code, answer.json()["code"]) == (403, "not_holder")
