"""An address of a cluster that leads to a node with another store: it gets no reports, and people are told."""

import pytest
import pytest_asyncio

from cluster.cluster_fixture import DOCUMENT, TestCluster
from tickwork.core.base.errors import Unavailable
from tickwork.protocol.worker_messages import Call, Reply


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def test_a_node_of_another_store_gets_no_reports_and_the_alarm_is_in_the_status(cluster, monkeypatch):
    first, _ = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    await cluster.client.put(f"{first.server.address}/v1/workflows", json={"documents": [DOCUMENT]})
    away = next(partition for partition in cluster.owners() if first.node.owned(partition) is None)
    sent = []

    async def foreign(address, partition, call):
        sent.append((address, partition))
        return Reply(call.seq, store="f" * 32)

    monkeypatch.setattr(first.node.workers._peers, "exchange", foreign)
    with pytest.raises(Unavailable, match="has another store"):
        await first.node.workers._exchange_with_owner(away, Call("w1", "start", 1))

    [(address, _)] = sent
    [alarm] = first.node.alarms.recent
    assert (alarm.kind, alarm.text) == (
        "other_store", f"the node at {address} has another store than this one; it gets no reports"
    )  # fmt: skip
    alarms = (await cluster.client.get(f"{first.server.address}/v1/status")).json()["alarms"]
    assert alarm.line() in alarms
