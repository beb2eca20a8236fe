"""Mailboxes and updates in a cluster: any node takes them to the partition that has them, which is one."""

import asyncio
from collections import Counter

import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.core.base.values import pack
from tickwork.protocol.worker_messages import Await, PublishedValue, Suspended, UpdateReply, history_decoder

WAITER = {"name": "waiter", "nodes": [{"kind": "event", "id": "e", "event": "reply"}], "output": "nodes.e"}

ENTITY = {"name": "entity", "nodes": [{"kind": "task", "id": "f", "handler": "f", "durable": True}]}


class Replying(Doing):
    """An entity that publishes how many updates it has received, and replies with that number."""

    def _done(self, work):
        del self._running[work.task, work.attempt]
        history = history_decoder.decode(work.checkpoint) if work.checkpoint is not None else None
        served = len(history.entries) if history is not None else 0
        replies = tuple(UpdateReply(key, pack(served)) for key in (history.open if history is not None else ()))
        awaits = (Await(served, "receive", "count", "d", names=("count",)),)
        published = (PublishedValue("served", f"d{served}", pack(served)),)
        self._sink.report(Suspended(work.task, work.attempt, awaits=awaits, replies=replies, published=published))


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


async def test_no_mailbox_is_declared_while_its_tenant_is_being_spread(cluster, nodes, monkeypatch):
    home = next(node for node in nodes if node.node.routes.home("default") in node.node.engines)
    put_route, jobs = home.node.routes.put, []

    async def beside(route):
        """The partitions have what runs need. Somebody declares a mailbox, then the route changes."""
        path = f"{nodes[1].server.address}/v1/mailboxes/reply"
        jobs.append(asyncio.create_task(cluster.client.put(path, json={})))
        await asyncio.wait(jobs, timeout=0.3)
        await put_route(route)

    monkeypatch.setattr(home.node.routes, "put", beside)
    await cluster.spread(nodes[0], 2)
    [answer] = await asyncio.gather(*jobs[:1])

    assert answer.status_code == 409 and answer.json()["code"] == "mailbox_spread"
    assert "mailboxes" not in (await cluster.get(nodes[0], "/v1/mailboxes")).json()


async def test_updates_are_replied_to_through_each_node_wherever_the_run_is(cluster, nodes):
    await cluster.work(nodes[0], "w1", Replying(documents=(ENTITY,)))
    await cluster.spread(nodes[0], 4)
    runs = [f"entity-{number}" for number in range(4)]
    for run in runs:
        body = {"workflow": "entity", "id": run}
        assert (await cluster.client.post(f"{nodes[0].server.address}/v1/runs", json=body)).status_code == 201

    async def ask(node, run, key):
        path = f"{node.server.address}/v1/runs/{run}/updates/count"
        while (answer := await cluster.client.post(path, json={"key": key})).status_code in (202, 503):
            await asyncio.sleep(0.05)
        return answer.json()

    for run in runs:
        replies = await asyncio.gather(*(ask(node, run, f"k{number}") for number, node in enumerate(nodes)))
        assert sorted(reply["value"] for reply in replies) == [1, 2]
        assert await ask(nodes[0], run, "k1") == replies[1]
        values = [(await cluster.get(node, f"/v1/runs/{run}/values/served")).json() for node in nodes]
        assert values == [2, 2]
    answer = await cluster.client.post(f"{nodes[0].server.address}/v1/runs/nobody/updates/count", json={})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_run")
