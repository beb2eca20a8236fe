"""What only nodes may say is refused to everybody else, and secrets change without anybody noticing."""

import asyncio

import msgspec
import pytest
import pytest_asyncio

from cluster.cluster_fixture import DOCUMENT, Doing, TestCluster
from tickwork.cluster import node as module
from tickwork.cluster.direct_link import HttpOwnerConnections
from tickwork.cluster.multiplexed_connection import MultiplexedConnection
from tickwork.cluster.node_credentials import KEPT_MS, Credentials
from tickwork.cluster.peers import HttpPeers
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.ports.leases import Member
from tickwork.protocol.worker_messages import Call, Heartbeats, WorkerProfile, encoder

MSGPACK = {"content-type": "application/msgpack"}
GUESSED = {"x-tickwork-node": "0" * 64}


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def houses(cluster):
    made = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    answer = await cluster.client.put(f"{made[0].server.address}/v1/workflows", json={"documents": [DOCUMENT]})
    assert answer.status_code == 200
    await cluster.spread(made[0], 4)
    return made


async def refused(answering):
    answer = await answering
    return (answer.status_code, answer.json().get("code")) == (403, "not_a_node")


@pytest.mark.parametrize("proof", [{}, GUESSED, {"x-tickwork-node": ""}], ids=["none", "guessed", "empty"])
async def test_a_client_does_not_choose_the_partition(cluster, houses, proof):
    """One key made a run in each partition that somebody named."""
    for partition in range(4):
        for house in houses:
            headers = proof | {"x-tickwork-partition": str(partition)}
            body = {"workflow": "flow", "key": "order-1"}
            path = f"{house.server.address}/v1/runs"
            assert await refused(cluster.client.post(path, json=body, headers=headers))
            assert await refused(cluster.client.get(path, headers=headers))
    ids = {(await cluster.submit(house, 1, key="order-1"))[0] for house in houses}
    assert len(ids) == 1
    assert len((await cluster.get(houses[0], "/v1/runs")).json()["runs"]) == 1


@pytest.mark.parametrize("proof", [{}, GUESSED], ids=["none", "guessed"])
async def test_what_nodes_say_to_each_other_is_refused_to_clients(cluster, houses, proof):
    before = cluster.owners()
    for house in houses:
        for partition in range(4):
            for path in ("announce", "give", "published", "commands"):
                url = f"{house.server.address}/v1/cluster/{path}?partition={partition}"
                assert await refused(cluster.client.post(url, headers=proof))
        beats = encoder.encode(Heartbeats("n1~1", ("w1",)))
        url = f"{house.server.address}/v1/cluster/beats"
        assert await refused(cluster.client.post(url, content=beats, headers=proof | MSGPACK))
    await asyncio.sleep(0.3)
    assert cluster.owners() == before


async def test_only_a_node_stands_for_a_worker(cluster, houses):
    address = houses[0].node.member.address
    call = Call("w1", "s@1.n1", 1, 1, held=(), profile=WorkerProfile(slots=1), via="n2~1")
    for query in ("", "?partition=0"):
        url = f"{address}/v1/workers/w1/exchange{query}"
        assert await refused(cluster.client.post(url, content=encoder.encode(call), headers=MSGPACK))
    stranger = HttpPeers()
    with pytest.raises(Unavailable):
        await stranger.exchange(address, 0, call)
    await stranger.close()
    worker = MultiplexedConnection(address, headers={}, path="/v1/workers/trunk")
    (place, *_) = houses[0].node.engines
    with pytest.raises(Refused, match="only a node may call on behalf of a worker"):
        await worker.send(place, call, timeout_s=5)
    itself = msgspec.structs.replace(call, via="", share=True)
    assert not (await worker.send(place, itself, timeout_s=5)).refused
    worker.close()


async def test_workers_need_no_proof_whether_a_node_stands_for_them_or_not(cluster, houses):
    doing = Doing()
    await cluster.work(houses[0], "w1", doing)
    await cluster.work(houses[1], "w2", doing, reach=HttpOwnerConnections())
    runs = await cluster.ended(houses[0], await cluster.submit(houses[0], 20) + await cluster.submit(houses[1], 20))

    assert {run["state"] for run in runs} == {"completed"}


async def test_secrets_change_while_everything_goes_on(cluster, houses, monkeypatch):
    monkeypatch.setattr(module, "INBOX_S", 0.05)
    await asyncio.sleep(1.1)  # the pause that had begun
    first = [house.node.authentication.credentials.sent for house in houses]
    for house in houses:
        house.node.authentication.rotate_ms = 400
    doing = Doing()
    await cluster.work(houses[0], "w1", doing)
    seen = set(first)
    for _ in range(15):
        runs = await cluster.ended(houses[0], await cluster.submit(houses[1], 4))
        assert {run["state"] for run in runs} == {"completed"}
        assert (await cluster.get(houses[1], "/v1/runs?limit=5")).status_code == 200
        seen |= {house.node.authentication.credentials.sent for house in houses}
        await asyncio.sleep(0.1)

    assert len(seen) >= 6, "each changed at least twice"
    old = {"x-tickwork-node": first[0], "x-tickwork-partition": "0"}
    for house in houses:
        house.node.authentication.credentials._known.pop(first[0], None)  # as after a minute
    assert await refused(cluster.client.get(f"{houses[1].server.address}/v1/runs", headers=old))


async def test_no_secret_is_shown(cluster, houses):
    secrets = {secret for house in houses for one in house.node.ownership.members for secret in one.secrets}
    assert len(secrets) == 2
    for path in ("/v1/cluster", "/v1/cluster/owners", "/v1/status", "/metrics", "/openapi.json"):
        text = (await cluster.get(houses[0], path)).text
        assert not any(secret in text for secret in secrets), path


def test_a_new_secret_is_sent_only_when_others_can_know_it():
    drawn = iter(("a", "b", "c"))
    own = Credentials(lambda: next(drawn), now_ms=0)
    assert not own.rotate(now_ms=99, published_ms=99, every_ms=100)
    assert own.rotate(now_ms=100, published_ms=99, every_ms=100)
    assert (own.accepted, own.sent) == (("b", "a"), "a")
    own.rotate(now_ms=150, published_ms=100, every_ms=100)
    assert own.sent == "a"
    own.rotate(now_ms=160, published_ms=101, every_ms=100)
    assert own.sent == "b"


def test_the_secret_of_a_node_that_left_is_forgotten_after_a_while():
    own = Credentials(lambda: "own", now_ms=0)
    own.note([Member("s", "n", "http://n", secrets=("new", "old"))], now_ms=0)
    assert own.proves("new") and own.proves("old") and own.proves("own") and not own.proves("other")
    own.note([], now_ms=KEPT_MS)
    assert own.proves("new")
    own.note([], now_ms=KEPT_MS + 1)
    assert not own.proves("new")
