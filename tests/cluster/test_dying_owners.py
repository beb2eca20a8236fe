"""An owner that dies while it answers is one line in the log of the node that forwards, and no traceback."""

import asyncio
import logging

import httpx2
import pytest_asyncio

from cluster.cluster_fixture import DOCUMENT, TestCluster


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def test_an_owner_that_dies_during_an_answer_is_one_line_in_the_log(cluster, caplog):
    first, second = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    answer = await cluster.client.put(f"{first.server.address}/v1/workflows", json={"documents": [DOCUMENT]})
    assert answer.status_code == 200
    await cluster.spread(first, 4)
    runs = await cluster.submit(first, 12, named="run")
    opened, ended = 0, 0

    async def follow(run):
        nonlocal opened, ended
        try:
            async with cluster.client.stream("GET", f"{first.server.address}/v1/runs/{run}/events") as stream:
                async for _ in stream.aiter_bytes():
                    opened += 1
        except httpx2.TransportError:
            ended += 1

    assert {0, 1} == {int(first.node.owned(first.node.routes.partition_of_run("default", run)) is None) for run in runs}
    with caplog.at_level(logging.WARNING):
        following = [asyncio.create_task(follow(run)) for run in runs]
        await cluster.until(lambda: opened >= len(runs))
        for connection in list(second.server._server.server_state.connections):
            connection.transport.abort()  # as when its process is killed
        await cluster.until(lambda: ended > 0)
        await asyncio.sleep(0.2)
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)

    broke = [record for record in caplog.records if "broke off" in record.getMessage()]
    assert len(broke) == ended
    assert all("/events broke off: the connection closed" in record.getMessage() for record in broke)
    assert not [record for record in caplog.records if record.exc_info]
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")], caplog.text
