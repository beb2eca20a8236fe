"""A browser speaks to one node, and what other nodes own is within its reach as well."""

import httpx2
import pytest
import pytest_asyncio

from cluster.cluster_fixture import DOCUMENT, TestCluster
from tickwork.api.http.browser_sessions import BrowserSessions

TOKEN = "a token that the nodes share"
BEARER = {"authorization": f"Bearer {TOKEN}"}
NAMES = [f"run-{number}" for number in range(8)]


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def two_nodes(cluster, *, token):
    made = [await cluster.add(token=token) for _ in range(2)]
    if token:
        cluster.client.headers.update(BEARER)
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    answer = await cluster.client.put(f"{made[0].server.address}/v1/workflows", json={"documents": [DOCUMENT]})
    assert answer.status_code == 200, answer.text
    await cluster.spread(made[0], 4)
    return made


@pytest.mark.parametrize("token", [TOKEN, ""], ids=["with a token", "without a token"])
async def test_a_page_changes_and_reads_what_another_node_owns(cluster, token):
    """The owner compared the page's origin with its own address, and answered 401 or 403."""
    for house in await two_nodes(cluster, token=token):
        address = house.server.address
        async with httpx2.AsyncClient(base_url=address, timeout=20.0, trust_env=False) as browser:
            if token:
                opened = await browser.get(BrowserSessions(TOKEN).link(address))
                assert opened.status_code == 303 and browser.cookies
            page = {
                "origin": address,
                "referer": f"{address}/",
                "sec-fetch-site": "same-origin",
                "sec-fetch-mode": "cors",
                "x-tickwork-by": "ana",
            }
            for name in NAMES:
                run = f"{house.name}-{name}"
                made = await browser.post("/v1/runs", json={"workflow": "flow", "id": run}, headers=page)
                assert made.status_code == 201, made.text
                found = await browser.get(f"/v1/runs/{run}", headers={"sec-fetch-site": "same-origin"})
                assert (found.status_code, found.json()["by"]) == (200, "ana"), found.text
                cancelled = await browser.post(f"/v1/runs/{run}/cancel", json={"reason": "page"}, headers=page)
                assert cancelled.status_code < 300, cancelled.text
            listed = await browser.get("/v1/runs?limit=100")
            assert {f"{house.name}-{name}" for name in NAMES} <= {one["id"] for one in listed.json()["runs"]}
            paused = await browser.post("/v1/workflows/flow/pause", json={"reason": "page"}, headers=page)
            assert paused.status_code < 300, paused.text
            resumed = await browser.post("/v1/workflows/flow/resume", headers=page)
            assert resumed.status_code < 300, resumed.text


async def test_a_request_that_no_node_lets_in_is_not_forwarded_with_the_nodes_token(cluster):
    houses = await two_nodes(cluster, token=TOKEN)
    for house in houses:
        address = house.server.address
        async with httpx2.AsyncClient(base_url=address, timeout=20.0, trust_env=False) as stranger:
            for name in NAMES:
                body = {"workflow": "flow", "id": name}
                assert (await stranger.post("/v1/runs", json=body)).status_code == 401
                assert (
                    await stranger.post("/v1/runs", json=body, headers={"cookie": "tickwork_1=x"})
                ).status_code == 401
                other = {"origin": "http://127.0.0.1:1", "cookie": "tickwork_1=x", "sec-fetch-site": "same-site"}
                assert (await stranger.post("/v1/runs", json=body, headers=other)).status_code == 401
                assert (await stranger.get(f"/v1/runs/{name}")).status_code == 401
    assert (await cluster.get(houses[0], "/v1/runs")).json()["runs"] == []
