"""Mailboxes and signals in a cluster: any node takes them to the partition that has them, which is one."""

from collections import Counter

import pytest_asyncio

from cluster.cluster_fixture import TestCluster

WAITER = {"name": "waiter", "nodes": [{"kind": "event", "id": "e", "event": "reply"}], "output": "nodes.e"}


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def nodes(cluster):
    made = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    return made


async def published(cluster, node):
    body = {"documents": [WAITER], "mailboxes": {"reply": {"keep": "1h"}}}
    return await cluster.client.put(f"{node.server.address}/v1/workflows", json=body)


async def test_each_node_gives_to_the_mailbox_and_lists_it(cluster, nodes):
    assert (await published(cluster, nodes[0])).status_code == 200
    for number, node in enumerate(nodes):
        signal = {"event": "reply", "payload": {"n": number}}
        answer = await cluster.client.post(f"{node.server.address}/v1/events", json=signal)
        assert answer.json()["kept"] is True, answer.text
    for node in nodes:
        run = {"workflow": "waiter"}
        assert (await cluster.client.post(f"{node.server.address}/v1/runs", json=run)).status_code == 201

    for node in nodes:
        listed = (await cluster.get(node, "/v1/mailboxes/reply/messages")).json()["messages"]
        assert [message["fate"] for message in listed] == ["taken", "taken"]
        assert len({message["run"] for message in listed}) == 2


async def test_runs_are_not_spread_while_there_is_a_mailbox(cluster, nodes):
    assert (await published(cluster, nodes[0])).status_code == 200
    answer = await cluster.client.put(f"{nodes[1].server.address}/v1/cluster/spread", json={"spread": 2})
    assert (answer.status_code, answer.json()["code"]) == (409, "mailbox_spread")


async def test_no_mailbox_is_declared_while_runs_are_spread(cluster, nodes):
    await cluster.spread(nodes[0], 2)
    answer = await published(cluster, nodes[1])
    assert (answer.status_code, answer.json()["code"]) == (409, "mailbox_spread")
    answer = await cluster.client.put(f"{nodes[0].server.address}/v1/mailboxes/reply", json={})
    assert (answer.status_code, answer.json()["code"]) == (409, "mailbox_spread")
