"""Webhooks in a cluster: any node receives them, and the owner verifies the bytes that were sent."""

from collections import Counter

import httpx2
import pytest

from api.signed_webhooks import declared, secret, signed
from cluster.cluster_fixture import TestCluster

BODY = b'{"n" :  1}'
CAUSED = {
    "name": "caused",
    "inputs": {"event": {"type": "any", "required": False}},
    "nodes": [{"kind": "event", "id": "e", "event": "never"}],
}


@pytest.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def test_each_node_takes_a_webhook_and_a_repeat_elsewhere_is_the_same_event(cluster, tmp_path):
    webhooks = declared(tmp_path)
    nodes = [await cluster.add(webhooks=webhooks, token="a-token-of-this-test") for _ in range(2)]
    cluster.client.headers["authorization"] = "Bearer a-token-of-this-test"
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    schedule = {"workflow": "caused", "listen_to": [{"event": "order"}]}
    body = {"documents": [CAUSED], "schedules": {"orders": schedule}}
    assert (await cluster.client.put(f"{nodes[0].server.address}/v1/workflows", json=body)).status_code == 200
    del cluster.client.headers["authorization"]

    heard, refused = [], []
    for node in nodes:
        address = node.server.address
        url = f"{address}/v1/webhooks/shop"
        for headers in (signed(BODY, message="both"), signed(BODY, message=f"at {address}")):
            answer = await cluster.client.post(url, content=BODY, headers=headers)
            assert answer.status_code == 200, answer.text
            heard.append((answer.json().get("schedules", 0), answer.json().get("duplicate", False)))
        for content, headers in ((b'{"n": 1}', signed(BODY, message="x")), (BODY, signed(BODY, key="foreign"))):
            refused.append((await cluster.client.post(url, content=content, headers=headers)).status_code)

        async def pieces():
            for _ in range(40):
                yield b" " * 50_000

        transport = httpx2.ASGITransport(app=node.app)  # a connection may be cut before its answer is read
        async with httpx2.AsyncClient(transport=transport) as client:
            refused.append((await client.post(url, content=pieces(), headers=signed(BODY))).status_code)

    assert heard == [(1, False), (1, False), (0, True), (1, False)]
    assert refused == [401, 401, 413] * 2


async def test_a_webhook_that_one_of_several_partitions_refuses_is_refused_until_all_take_it(cluster, tmp_path):
    text = "[shop]\nevent = 'order'\n"
    (tmp_path / "shop").write_text(secret("foreign"))
    nodes = [await cluster.add(webhooks=declared(tmp_path, text))]
    nodes.append(await cluster.add(webhooks=declared(tmp_path, text, env={}, secrets=tmp_path)))
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    await cluster.spread(nodes[0], 4)
    await cluster.until(lambda: all(node.node.routes.of("default").spread == 4 for node in nodes))
    url = f"{nodes[0].server.address}/v1/webhooks/shop"

    refused = await cluster.client.post(url, content=BODY, headers=signed(BODY))
    (tmp_path / "shop").write_text(secret("shop"))
    taken = [await cluster.client.post(url, content=BODY, headers=signed(BODY)) for _ in range(2)]

    assert (refused.status_code, refused.json()["code"]) == (401, "bad_signature")
    assert [answer.status_code for answer in taken] == [200, 200]
    assert [answer.json().get("duplicate", False) for answer in taken] == [False, True]
