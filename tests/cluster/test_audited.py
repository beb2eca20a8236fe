"""A partition of a cluster is audited, held and released from any node."""

import asyncio
import json

import pytest
import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.cli.main import main


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest.mark.proves("I8")
async def test_any_node_speaks_for_any_partition(cluster, capsys, tmp_path):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(cluster.owners()) == 4 and len(set(cluster.owners().values())) == 2)
    doing = Doing()
    await cluster.work(houses[0], "w1", doing)
    await cluster.ended(houses[0], await cluster.submit(houses[1], 5))
    home = houses[0].node.routes.home("default")
    stranger = next(house for house in houses if house.name != cluster.owners()[home])
    url = stranger.server.address

    for partition in range(4):
        code = await asyncio.to_thread(
            main, ["auditor", "--once", "--partition", str(partition), "--url", url, "--json"]
        )
        found = json.loads(capsys.readouterr().out.splitlines()[-1])
        head = (await cluster.get(stranger, f"/v1/partitions/{partition}")).json()
        assert (code, found["partition"], found["difference"]) == (0, partition, None)
        assert (found["seq"], found["hash"]) == (head["seq"], head["hash"])
    for command in ("auditor --once", "replay"):
        assert await asyncio.to_thread(main, [*command.split(), "--url", url]) == 0
        said = capsys.readouterr().out.splitlines()
        assert [line.partition(": equal: ")[0] for line in said] == [f"partition {number}" for number in range(4)]
    assert (
        await asyncio.to_thread(main, ["replay", "--partition", str(home), "--save", str(tmp_path / "j"), "--url", url])
        == 0
    )
    assert await asyncio.to_thread(main, ["replay", "--from", str(tmp_path / "j")]) == 0
    assert await asyncio.to_thread(main, ["replay", "--save", str(tmp_path / "k"), "--url", url]) == 2
    assert await asyncio.to_thread(main, ["replay", "--partition", "9", "--url", url]) == 3
    capsys.readouterr()
    answer = await cluster.client.post(f"{url}/v1/partitions/{home}/pause", json={"reason": "a difference"})
    assert answer.status_code == 204, answer.text
    assert (await cluster.get(stranger, f"/v1/partitions/{home}")).json()["dispatch_held"] == "a difference"
    ids = await cluster.submit(houses[1], 3)
    other = (home + 1) % 4
    assert "dispatch_held" not in (await cluster.get(stranger, f"/v1/partitions/{other}")).json()
    assert {(await cluster.get(stranger, f"/v1/runs/{one}")).json()["state"] for one in ids} == {"active"}
    assert await asyncio.to_thread(main, ["release", str(home), "--url", url]) == 0
    assert {run["state"] for run in await cluster.ended(houses[0], ids)} == {"completed"}
    for path in ("/v1/partitions/9", "/v1/partitions/x/journal"):
        assert (await cluster.client.get(f"{url}{path}")).status_code == 404
