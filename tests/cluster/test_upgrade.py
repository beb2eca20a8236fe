"""Versions side by side: who may own what, who may talk to whom; nodes are replaced and nothing is refused."""

import asyncio

import httpx2
import pytest
import pytest_asyncio

from cluster.cluster_fixture import RETRY_MS, Doing, TestCluster
from tickwork.cluster.placement import place
from tickwork.core.base.errors import Newer, Refused
from tickwork.core.rules import MACHINE
from tickwork.protocol.worker_messages import OLDEST, PROTOCOL, WorkerProfile, protocol_mismatch
from tickwork.runtime.engine import Engine
from tickwork.runtime.partition.recovery import check_rules, recover
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import SystemClock, SystemIds
from tickwork.worker.agent import Agent
from tickwork.worker.http_link import HttpLink

NEXT = MACHINE + 1


class NextEngine(Engine):
    """Of the version to come: it knows one more set of rules, and decides by it."""

    rules_known = NEXT

    async def _recover(self):
        return by_the_next(await super()._recover())

    async def _caught_up(self, head):
        return by_the_next(await super()._caught_up(head))


def by_the_next(recovered):
    recovered.machine.rules = recovered.machine.rules.replace(f"machine {MACHINE}", f"machine {NEXT}")
    return recovered


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def decided_by(cluster, partition):
    """The latest rules in a partition's journal."""
    store = cluster.new_store()
    await store.open()
    for known in range(MACHINE, NEXT + 1):
        try:
            await check_rules(store, partition, known=known)
        except Newer:
            continue
        return known
    raise AssertionError("nobody knows these rules")


# ---- placement

OLD, NEW, THIRD = ("a", "1"), ("b", "1"), ("c", "1")


def test_a_partition_goes_only_to_nodes_that_are_able_to_own_it():
    found = place(8, [OLD, NEW], {OLD: {0, 1, 2, 3, 4, 5}})

    assert {found[partition] for partition in range(6)} == {NEW}  # more than its share, because nobody else can
    assert {found[partition] for partition in (6, 7)} == {OLD}


def test_nobody_owns_what_nobody_is_able_to():
    assert place(3, [OLD, NEW], {OLD: {1}, NEW: {1}}).keys() == {0, 2}


def test_placement_is_as_before_where_all_are_able():
    nodes = [OLD, NEW, THIRD]

    assert place(16, nodes, {OLD: set(), NEW: ()}) == place(16, nodes)
    assert max(list(place(16, nodes).values()).count(node) for node in nodes) == 6


# ---- rules


async def test_newer_rules_are_refused_also_where_rows_have_caught_up_with_the_journal():
    disk = MemoryDisk()
    engine = Engine(
        store=MemoryStore(disk), artifacts=MemoryArtifacts(), clock=SystemClock(), ids=SystemIds(), owner="n1"
    )
    await engine.start()
    await engine.stop()
    store = MemoryStore(disk)
    await store.open()
    assert not (await store.load(0)).tail

    await recover(store, 0, known=MACHINE)
    with pytest.raises(Newer, match="newer rules"):
        await recover(store, 0, known=MACHINE - 1)


async def test_what_the_next_version_decided_stays_with_nodes_of_that_version(cluster):
    old = await cluster.add("old")
    new = await cluster.add("new", made_of=NextEngine)
    await cluster.until(lambda: len(cluster.owners()) == 4 and len(set(cluster.owners().values())) == 2)
    await cluster.work(old, "w1", Doing())
    await cluster.ended(new, await cluster.submit(old, 4))
    owned = dict(cluster.owners())
    epochs = {partition: (await old.node.store.read_head(partition)).epoch for partition in owned}

    await cluster.add("old2")
    await cluster.until(lambda: len(old.node.ownership.members) == 3)
    await asyncio.sleep(4 * RETRY_MS / 1000)  # several looks: had anybody been mistaken, it would have moved by now

    for partition in [one for one in owned if owned[one] == "new"]:
        assert cluster.owners()[partition] == "new"
        assert (await new.node.store.read_head(partition)).epoch == epochs[partition]
    assert not [alarm for house in cluster.houses for alarm in house.alarms if alarm.kind == "cannot_own"]


@pytest.mark.proves("F25")
async def test_a_partition_of_newer_rules_waits_for_a_node_that_knows_them_and_loses_nothing(cluster):
    new = await cluster.add("new", made_of=NextEngine)
    await cluster.until(lambda: len(cluster.owners()) == 4)
    theirs = list(cluster.owners())
    assert {await decided_by(cluster, partition) for partition in theirs} == {NEXT}
    old = await cluster.add("old")
    await cluster.work(old, "w1", Doing())
    heads = {partition: await old.node.store.read_head(partition) for partition in theirs}
    await new.crash()
    await cluster.until(lambda: set(old.node.ownership.member.unable) == set(theirs))
    accepted = await cluster.submit(old, 3)

    assert {alarm.text.partition(":")[0] for alarm in old.alarms if alarm.kind == "cannot_own"} == {
        f"partition {partition}" for partition in theirs
    }
    assert all("newer rules" in alarm.text for alarm in old.alarms if alarm.kind == "cannot_own")
    for partition in theirs:  # it was looked at and not claimed: an owner that knows the rules is not fenced by this
        assert (await old.node.store.read_head(partition)).epoch == heads[partition].epoch
        assert partition not in cluster.owners()
    assert len(cluster.disk.inbox[old.node.routes.home("default")]) == 3

    await cluster.add("new2", made_of=NextEngine)
    runs = await cluster.ended(old, accepted)
    assert {run["state"] for run in runs} == {"completed"}
    assert {cluster.owners()[partition] for partition in theirs} == {"new2"}


@pytest.mark.proves("F25", "I61")
async def test_nodes_are_replaced_one_by_one_without_a_refused_submission(cluster):
    names = ["n1", "n2", "n3"]
    houses = {name: await cluster.add(name) for name in names}
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3)
    workers = [Doing(seconds=0.01), Doing(seconds=0.01)]
    link = ",".join(house.server.address for house in houses.values())
    for number, doing in enumerate(workers):
        await attend(cluster, link, f"w{number}", doing)
    accepted, refused, done = [], [], asyncio.Event()

    async def submit():
        turn = 0
        while not done.is_set():
            up = [house for house in houses.values() if house.up]
            house = up[turn % len(up)]
            turn += 1
            try:
                answer = await cluster.client.post(f"{house.server.address}/v1/runs", json={"workflow": "flow"})
            except httpx2.TransportError:
                if house.up:  # one that ends closes its connections: whoever asks asks the next
                    raise
                continue
            if answer.status_code == 201:
                accepted.append(answer.json()["id"])
            elif house.up:
                refused.append((house.name, answer.status_code, answer.text))
            await asyncio.sleep(0.005)

    submitting = asyncio.get_running_loop().create_task(submit())
    for name in names:
        await houses[name].stop()
        cluster.houses.remove(houses[name])
        port = int(houses[name].server.address.rpartition(":")[2])
        houses[name] = await cluster.add(name, made_of=NextEngine, port=port)
        await cluster.until(lambda name=name: len(cluster.owners()) == 4 and name in cluster.owners().values())
        before = len(accepted)
        await cluster.until(lambda before=before: len(accepted) >= before + 10)
    done.set()
    await submitting
    runs = await cluster.ended(houses["n1"], accepted)

    assert refused == []
    assert len(accepted) >= 30
    assert {run["state"] for run in runs} == {"completed"}
    assert {await decided_by(cluster, partition) for partition in cluster.owners()} == {NEXT}
    begun = workers[0].begun + workers[1].begun
    assert all(begun[one] == 1 for one in begun)


async def attend(cluster, link, name, doing):
    found = HttpLink(link)
    agent = Agent(found, [doing], clock=SystemClock(), ids=SystemIds(), name=name)
    cluster.agents.append((agent, asyncio.get_running_loop().create_task(agent.run()), found))
    await asyncio.wait_for(agent.reached.wait(), 10)


# ---- protocol


@pytest.mark.proves("B23")
@pytest.mark.parametrize(("speaks", "advice"), [(PROTOCOL + 1, "upgrade the server first"), (OLDEST - 1, "upgrade it")])
async def test_a_worker_of_an_unknown_protocol_is_told_what_to_do(cluster, speaks, advice):
    house = await cluster.add()
    link = HttpLink(house.server.address)
    agent = Agent(
        link, [Doing()], clock=SystemClock(), ids=SystemIds(), name="w1", profile=WorkerProfile(protocol=speaks)
    )

    with pytest.raises(Refused, match=f"speaks protocol {speaks}.*{advice}"):
        await asyncio.wait_for(agent.run(), 10)
    await link.close()


def test_the_protocol_before_is_still_spoken():
    assert (
        protocol_mismatch(PROTOCOL)
        == protocol_mismatch(OLDEST)
        == protocol_mismatch(4, oldest=4, latest=5)
        == protocol_mismatch(5, oldest=4, latest=5)
        == ""
    )
    assert protocol_mismatch(3, oldest=4, latest=5) and protocol_mismatch(6, oldest=4, latest=5)


@pytest.mark.parametrize(
    ("oldest", "protocol", "joins"),
    [
        (PROTOCOL, PROTOCOL + 1, True),  # the next version speaks with the one before
        (PROTOCOL + 1, PROTOCOL + 1, False),  # two versions at once: not
    ],
)
async def test_a_node_joins_only_nodes_that_it_can_talk_to(cluster, oldest, protocol, joins):
    await cluster.add("n1")

    if joins:
        await cluster.add("n2", oldest=oldest, protocol=protocol)
        await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
        return
    with pytest.raises(Refused, match=r"node n1 .* speaks protocols .* upgrade through a version between them"):
        await cluster.add("n2", oldest=oldest, protocol=protocol)
    cluster.houses.pop().inner.close()
    assert set(cluster.owners().values()) == {"n1"}
