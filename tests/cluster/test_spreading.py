"""When a tenant is spread over more partitions: one id is one run, limits are dealt out, versions are known."""

import asyncio
from collections import Counter

import pytest
import pytest_asyncio

from cluster.cluster_fixture import DOCUMENT, Doing, TestCluster
from tickwork.api.forwarding import ClusterRouter
from tickwork.cluster import node as module
from tickwork.cluster import tenant_routes
from tickwork.cluster.placement import drawn_ms, fitted_to, partition_of_run, partitions_of_run
from tickwork.core.base.errors import Refused
from tickwork.ports.store import Route
from tickwork.system.uuids import Uuids


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def houses(cluster):
    made = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    answer = await cluster.client.put(f"{made[0].server.address}/v1/workflows", json={"documents": [DOCUMENT]})
    assert answer.status_code == 200
    return made


async def spread(cluster, houses, count):
    await cluster.spread(houses[0], count)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == count for house in houses))


def wanted(*ids, **fields):
    return {"runs": [{"workflow": "flow", "id": one, **fields} for one in ids]}


async def sent(cluster, house, body):
    answer = await cluster.client.post(f"{house.server.address}/v1/runs/batch", json=body)
    assert answer.status_code == 200, answer.text
    assert {one["outcome"] for one in answer.json()["runs"]} == {"accepted"}, answer.text
    return {one["id"]: one.get("duplicate", False) for one in answer.json()["runs"]}


@pytest.mark.proves("I27", "F25")
@pytest.mark.parametrize("widths", [(4,), (2, 4)], ids=str)
async def test_an_id_is_one_run_however_wide_its_tenant_was_spread_then(cluster, houses, widths):
    ids = [f"order-{number}" for number in range(12)]
    assert not any((await sent(cluster, houses[0], wanted(*ids))).values())
    for width in widths:
        await spread(cluster, houses, width)
        again = await sent(cluster, houses[width % 2], wanted(*ids, f"new-{width}"))
        assert [one for one, duplicate in again.items() if not duplicate] == [f"new-{width}"]
        one = await cluster.client.post(
            f"{houses[1].server.address}/v1/runs", json={"workflow": "flow", "id": "order-3"}
        )
        assert (one.status_code, one.json()["duplicate"]) == (200, True)

    listed = (await cluster.get(houses[0], "/v1/runs?limit=100")).json()["runs"]
    assert sorted(run["id"] for run in listed) == sorted([*ids, *(f"new-{width}" for width in widths)])


async def test_a_search_and_a_bulk_job_reach_all_partitions_from_any_node(cluster, houses):
    waits = {"name": "waits", "nodes": [{"kind": "wait", "id": "w", "duration_ms": 3_600_000}]}
    url = houses[0].server.address
    answer = await cluster.client.put(f"{url}/v1/workflows", json={"documents": [waits]})
    assert answer.status_code == 200, answer.text
    await spread(cluster, houses, 4)
    ids = [f"wait-{number}" for number in range(24)]
    for at, tags in ((0, ["even", "all"]), (1, ["odd", "all"])):
        await sent(
            cluster, houses[at], {"runs": [{"workflow": "waits", "id": one, "tags": tags} for one in ids[at::2]]}
        )

    async def listed(house, query):
        found, cursor = [], ""
        while True:
            page = (await cluster.get(house, f"/v1/runs?limit=5&{query}{cursor}")).json()
            found += [run["id"] for run in page["runs"]]
            if not page.get("next"):
                return sorted(found)
            cursor = f"&cursor={page['next']}"

    for house in houses:
        assert await listed(house, "tag=even") == sorted(ids[::2])
        assert await listed(house, "tag=odd,all&state=waiting") == sorted(ids[1::2])
    search = {"action": "cancel", "search": {"tag": ["even"]}}
    shown = (await cluster.client.post(f"{houses[1].server.address}/v1/bulk/preview", json=search)).json()
    assert shown["count"] == 12 and len(shown["as_of"]) == 4
    begun = await cluster.client.post(
        f"{url}/v1/bulk", json=search | {"selection": shown["selection"], "per_second": 400, "reason": "stale"}
    )
    assert begun.status_code == 202, begun.text
    job = begun.json()["id"]

    async def report():
        return (await cluster.get(houses[1], f"/v1/bulk/{job}")).json()

    async with asyncio.timeout(60):
        while (await report())["state"] == "running":
            await asyncio.sleep(0.05)
    assert {name: (await report()).get(name) for name in ("count", "done", "changed", "left")} == {
        "count": 12, "done": 12, "changed": None, "left": None,
    }  # fmt: skip
    assert await listed(houses[0], "tag=all&state=cancelled") == sorted(ids[::2])
    [one] = (await cluster.get(houses[0], "/v1/bulk")).json()["operations"]
    assert one["id"] == job
    assert (await cluster.client.post(f"{url}/v1/bulk/{job}/cancel", json={})).status_code == 409


async def test_what_waits_for_a_person_is_listed_from_all_partitions_newest_first(cluster, houses):
    form = {"kind": "approval", "id": "ok", "fields": {"how": {"type": "string"}}}
    url = houses[0].server.address
    answer = await cluster.client.put(f"{url}/v1/workflows", json={"documents": [{"name": "ask", "nodes": [form]}]})
    assert answer.status_code == 200, answer.text
    await spread(cluster, houses, 4)
    ids = [f"ask-{number}" for number in range(12)]
    await sent(cluster, houses[0], {"runs": [{"workflow": "ask", "id": one} for one in ids]})

    for house in houses:
        listed = (await cluster.get(house, "/v1/inbox")).json()["entries"]
        assert sorted(entry["run"] for entry in listed) == sorted(ids)
        times = [entry["submitted_at"] for entry in listed]
        assert times == sorted(times, reverse=True)
    part = (await cluster.get(houses[1], "/v1/inbox?limit=5")).json()
    assert len(part["entries"]) == 5 and part["more"] is True
    path = f"{houses[1].server.address}/v1/runs/ask-3/approvals/ok"
    filled = await cluster.client.post(path, json={"approve": True, "values": {"how": "so"}})
    assert filled.status_code == 204, filled.text


@pytest.mark.proves("I27", "F25", "I61")
async def test_an_owner_that_does_not_know_the_question_yet_is_asked_in_another_way(cluster, houses, monkeypatch):
    """As while nodes are replaced by a later version."""
    ids = [f"order:{number}@a" for number in range(8)]
    await sent(cluster, houses[0], wanted(*ids))
    await spread(cluster, houses, 4)
    asked = []

    async def older(ways, partition, method, path, value=None, ask=ClusterRouter.ask):
        if path.endswith("/known"):
            asked.append(partition)
            raise Refused("unknown_path", f"there is nothing at {path}")
        return await ask(ways, partition, method, path, value)

    monkeypatch.setattr(ClusterRouter, "ask", older)
    for house in houses:
        again = await sent(cluster, house, wanted(*ids, f"new-{house.name}"))
        assert [one for one, duplicate in again.items() if not duplicate] == [f"new-{house.name}"]
    assert asked


@pytest.mark.proves("I27")
async def test_an_id_whose_run_has_a_key_and_lives_at_home_is_one_run(cluster, houses):
    await spread(cluster, houses, 4)
    ids = [f"order-{number}" for number in range(8)]
    for one in ids:
        assert not (await sent(cluster, houses[0], wanted(one, key=f"key-of-{one}")))[one]

    again = await sent(cluster, houses[1], wanted(*ids))

    assert all(again.values())


async def test_new_ids_of_clients_are_not_looked_for_elsewhere(cluster, houses, monkeypatch):
    """Each look is a call to another node."""
    monkeypatch.setattr(tenant_routes, "SKEW_MS", -1)
    await spread(cluster, houses, 4)
    looks = []
    for house in houses:
        for number, engine in house.node.engines.items():
            monkeypatch.setattr(engine.queries, "known", lambda ids, at=number: looks.append((at, ids)))
    await asyncio.sleep(0.01)

    ids = [Uuids().new() for _ in range(20)]
    assert not any((await sent(cluster, houses[0], wanted(*ids))).values())
    assert looks == []


def test_where_a_run_may_live_has_its_place_of_every_width():
    for spread_over in range(1, 9):
        route = Route("acme", 3, spread_over)
        for number in range(50):
            places = partitions_of_run(route, f"r{number}", 8)
            assert places == tuple(
                dict.fromkeys(
                    partition_of_run(Route("acme", 3, width), f"r{number}", 8) for width in range(1, 1 + spread_over)
                )
            )
            assert places[0] == 3


@pytest.mark.parametrize(
    "text", ["", "order-1", "x" * 36, "00000000-0000-4000-8000-000000000000", "zzzzzzzz-zzzz-7zzz-"]
)
def test_an_id_that_tells_no_time_is_of_no_time(text):
    assert drawn_ms(text) == 0
    assert drawn_ms("01a1ec0a-fc3c-7000-a79f-3d9d2e7fbdc4") == 0x01A1EC0AFC3C


async def limits(cluster, house):
    return {one["name"]: one for one in (await cluster.get(house, "/v1/queues")).json()["queues"]}


def parts(cluster, name):
    found = {}
    for house in cluster.houses:
        for number, engine in house.node.engines.items():
            found[number] = next((one for one in engine.overview.queues() if one.name == name), None)
    return found


@pytest.mark.proves("I43")
async def test_limits_are_dealt_out_when_a_tenant_is_spread_and_shown_as_one(cluster, houses):
    url = houses[1].server.address
    given = {"limit": 10, "rate": 50, "per": "1m", "burst": 20}
    assert (await cluster.client.put(f"{url}/v1/queues/default", json=given)).status_code == 204
    assert (await cluster.client.put(f"{url}/v1/queues/held", json={})).status_code == 204
    assert (await cluster.client.post(f"{url}/v1/queues/held/pause")).status_code == 204
    for width in (2, 4, 4):
        await spread(cluster, houses, width)
        found = parts(cluster, "default")
        places = [(houses[0].node.routes.home("default") + step) % 4 for step in range(width)]
        assert [sum(getattr(found[at], field) for at in places) for field in ("limit", "rate", "burst")] == [10, 50, 20]
        assert max(found[at].limit for at in places) <= -(-10 // width)
        held = parts(cluster, "held")
        assert all(held[at].paused for at in places)
        shown = (await limits(cluster, houses[0]))["default"]
        assert (shown["limit"], shown["rate"], shown["per"], shown["burst"]) == (10, 50, "1m", 20)

    assert (await cluster.client.post(f"{url}/v1/queues/held/resume")).status_code == 204
    assert not (await limits(cluster, houses[0]))["held"].get("paused")


async def test_a_limit_that_cannot_be_dealt_out_is_named_before_anything_is_spread(cluster, houses):
    url = houses[0].server.address
    assert (await cluster.client.put(f"{url}/v1/queues/default", json={"limit": 3})).status_code == 204

    answer = await cluster.client.put(f"{url}/v1/cluster/spread", json={"spread": 4})

    assert (answer.status_code, answer.json()["code"]) == (422, "limit_too_small")
    assert "queue default" in answer.json()["detail"]
    assert houses[0].node.routes.of("default").spread == 1


async def test_versions_of_before_are_known_everywhere_and_one_is_the_latest_everywhere(cluster, houses):
    url = houses[1].server.address
    older = DOCUMENT | {"description": "as it was"}
    for version, document in (("v1", older), ("v2", DOCUMENT)):
        body = {"documents": [document], "application": "shop", "version": version}
        assert (await cluster.client.put(f"{url}/v1/workflows", json=body)).status_code == 200
    await spread(cluster, houses, 4)
    answer = await cluster.client.put(f"{url}/v1/versions/latest", json={"version": "v1", "application": "shop"})
    assert answer.status_code == 200, answer.text
    hashes = {engine.queries.workflow("flow").definition for house in houses for engine in house.node.engines.values()}
    assert len(hashes) == 1
    assert {
        house.node.engines[at].workflows.latest_version("shop").version_name
        for house in houses
        for at in house.node.engines
    } == {"v1"}
    pinned = await sent(cluster, houses[0], wanted(*(f"p{number}" for number in range(8)), version="v2"))
    assert len(pinned) == 8


async def test_a_worker_is_shown_with_all_of_its_credit(cluster, houses):
    await cluster.work(houses[0], "w1", Doing(slots=8))

    async def whole():
        [found] = (await cluster.get(houses[1], "/v1/workers")).json()["workers"]
        return found["id"], found["credit"]

    for _ in range(100):
        if (shown := await whole()) == ("w1", 8):
            break
        await asyncio.sleep(0.05)
    assert shown == ("w1", 8)


# ---- publishing beside spreading

LATER = {"name": "later", "nodes": [{"kind": "task", "id": "only", "handler": "do"}]}


async def publish(cluster, house, document):
    answer = await cluster.client.put(f"{house.server.address}/v1/workflows", json={"documents": [document]})
    assert answer.status_code == 200, answer.text


def ids_in_each(house, partitions=4):
    """One id for each partition, of those that are new."""
    node, route = house.node, Route("default", house.node.routes.home("default"), partitions)
    drawn = [(place, node.ids.new()) for place in range(partitions)]
    return [one[:-4] + fitted_to(route, place, partitions)(one[-4:]) for place, one in drawn]


async def accepted_everywhere(cluster, house, workflow):
    ids = ids_in_each(house)
    for one in ids:
        answer = await cluster.client.post(f"{house.server.address}/v1/runs", json={"workflow": workflow, "id": one})
        assert answer.status_code == 201, answer.text
        assert (await cluster.get(house, f"/v1/runs/{one}")).status_code == 200


def owner_of_home(cluster, houses):
    return next(house for house in houses if house.node.routes.home("default") in house.node.engines)


async def test_what_a_node_publishes_that_has_not_heard_of_the_spread_is_known_everywhere(cluster, houses, monkeypatch):
    other = next(house for house in houses if house is not owner_of_home(cluster, houses))
    monkeypatch.setattr(module, "INBOX_S", 60.0)  # how often routes are read
    await asyncio.sleep(1.1)
    await cluster.spread(houses[0], 4)
    await publish(cluster, other, LATER)
    await cluster.until(lambda: True)
    for house in houses:
        await house.node.routes.refresh()

    await accepted_everywhere(cluster, houses[0], "later")


async def test_what_is_published_while_the_tenant_is_spread_is_known_everywhere(cluster, houses, monkeypatch):
    home = owner_of_home(cluster, houses)
    put_route, jobs = home.node.routes.put, []

    async def beside(route):
        """The definitions were brought to the new partitions; now another is published, then the route changes."""
        jobs.append(asyncio.create_task(publish(cluster, houses[1], LATER)))
        await asyncio.wait(jobs, timeout=0.5)
        await put_route(route)

    monkeypatch.setattr(home.node.routes, "put", beside)
    await spread(cluster, houses, 4)
    await asyncio.gather(*jobs)

    await accepted_everywhere(cluster, houses[0], "later")


async def test_a_partition_that_lacks_what_its_tenant_has_asks_for_it(cluster, houses):
    """As where whoever spread it died on the way."""
    home = houses[0].node.routes.home("default")
    cluster.disk.routes["default"] = Route("default", home, 4)
    for house in houses:
        await house.node.routes.refresh()

    await accepted_everywhere(cluster, houses[0], "flow")
    await accepted_everywhere(cluster, houses[1], "flow")
    answer = await cluster.client.post(f"{houses[0].server.address}/v1/runs", json={"workflow": "nothing"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_workflow")


async def unaware_of_the_spread(cluster, houses, monkeypatch):
    """Spread the tenant over four partitions; return a node that has not read the new route yet."""
    unaware = next(house for house in houses if house is not owner_of_home(cluster, houses))
    monkeypatch.setattr(module, "INBOX_S", 60.0)  # how often routes are read
    await asyncio.sleep(1.1)
    await cluster.spread(owner_of_home(cluster, houses), 4)
    assert unaware.node.routes.of("default").spread == 1
    return unaware


@pytest.mark.proves("I27")
async def test_a_node_that_has_not_read_the_new_route_finds_every_run(cluster, houses, monkeypatch):
    unaware = await unaware_of_the_spread(cluster, houses, monkeypatch)
    aware = owner_of_home(cluster, houses)
    ids = ids_in_each(aware)
    assert set(await sent(cluster, aware, wanted(*ids))) == set(ids)

    answers = [await cluster.get(unaware, f"/v1/runs/{run_id}") for run_id in ids]

    assert [answer.status_code for answer in answers] == [200] * 4
    assert (await cluster.get(unaware, "/v1/runs/never-submitted")).json()["code"] == "unknown_run"


@pytest.mark.proves("I27")
async def test_a_node_that_has_not_read_the_new_route_delivers_an_event_to_every_run(cluster, houses, monkeypatch):
    waits = {"name": "waits", "nodes": [{"kind": "event", "id": "paid", "event": "paid"}]}
    await publish(cluster, houses[0], waits)
    unaware = await unaware_of_the_spread(cluster, houses, monkeypatch)
    ids = ids_in_each(owner_of_home(cluster, houses))
    body = {"runs": [{"workflow": "waits", "id": run_id} for run_id in ids]}
    await sent(cluster, owner_of_home(cluster, houses), body)

    answer = await cluster.client.post(f"{unaware.server.address}/v1/events", json={"event": "paid"})

    assert answer.json()["waiting"] == 4, answer.text


async def test_policies_limits_and_settings_of_operators_reach_every_partition_before_and_after_a_spread(
    cluster, houses
):
    client, address = cluster.client, houses[1].server.address

    async def ok(method, path, body=None):
        answer = await client.request(method, f"{address}/v1/{path}", json=body)
        assert answer.status_code in (200, 204), answer.text
        return answer.json() if answer.content else None

    await ok("PUT", "policies/before", {"allow": "true"})
    await ok("PUT", "settings", {"settings": {"loss_allowance": 3}})
    await ok("PUT", "tenants/default", {"weight": 2, "limit": 7, "max_live_runs": 1_001})
    await ok("PUT", "label-limits/gpu/true", {"limit": 5})
    gated = {**DOCUMENT, "name": "gated", "policy": ["before"]}
    await ok("PUT", "workflows", {"documents": [gated]})
    await ok("POST", "tenants/default/pause", {"reason": "moving"})
    await spread(cluster, houses, 3)
    await ok("PUT", "policies/after", {"allow": "false"})
    await ok("PUT", "settings", {"settings": {"ageing_ms": 7_000}})

    engines = [engine for house in houses for number, engine in house.node.engines.items()
               if number in houses[0].node.routes.partitions_of("default")]  # fmt: skip
    states = [engine.context.state for engine in engines]
    assert len(states) == 3
    assert all(sorted(state.policies) == ["after", "before"] for state in states)
    assert {(state.settings.loss_allowance, state.settings.ageing_ms) for state in states} == {(3, 7_000)}
    assert sorted(state.tenants["default"].gauge.limit for state in states) == [2, 2, 3]
    assert sum(state.label_gauges["gpu", "true"].limit for state in states) == 5
    [tenant] = (await ok("GET", "tenants"))["tenants"]
    assert all(state.tenants["default"].gauge.paused for state in states)
    await ok("POST", "tenants/default/resume")
    assert not any(state.tenants["default"].gauge.paused for state in states)
    assert (tenant["limit"], tenant["weight"], tenant["max_live_runs"]) == (7, 2, 1_001)
    assert (await ok("GET", "label-limits"))["limits"] == [{"label": "gpu", "value": "true", "limit": 5}]

    await ok("DELETE", "policies/after")
    await ok("DELETE", "label-limits/gpu/true")
    assert all(sorted(state.policies) == ["before"] for state in states)
    refused = await client.delete(f"{address}/v1/policies/before")
    assert (refused.status_code, refused.json()["code"]) == (409, "in_use")
    small = await client.put(f"{address}/v1/tenants/default", json={"limit": 2})
    assert (small.status_code, small.json()["code"]) == (422, "limit_too_small")


@pytest.mark.proves("S001-192")
async def test_the_rate_of_a_tenant_holds_over_all_of_its_partitions(cluster, houses):
    address = houses[1].server.address
    await spread(cluster, houses, 4)
    rate = {"rate": 8, "per": "1h", "burst": 8}
    assert (await cluster.client.put(f"{address}/v1/tenants/default", json=rate)).status_code == 204
    doing = [Doing(), Doing()]
    for house, executor in zip(houses, doing, strict=True):
        await cluster.work(house, f"w-{house.name}", executor)
    await cluster.submit(houses[0], 60, named="run")

    async def waiting():
        [tenant] = (await cluster.get(houses[1], "/v1/tenants")).json()["tenants"]
        return tenant["ready"]

    async with asyncio.timeout(30):
        while await waiting() != 52 or sum(sum(one.begun.values()) for one in doing) < 8:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.3)  # several exchanges of both workers, each with credit left
    begun = doing[0].begun + doing[1].begun
    assert Counter(task >> 44 for task, _ in begun) == {0: 2, 1: 2, 2: 2, 3: 2}
    [tenant] = (await cluster.get(houses[0], "/v1/tenants")).json()["tenants"]
    assert (tenant["rate"], tenant["burst"], tenant["per"]) == (8, 8, "1h")


@pytest.mark.proves("S000-29")
async def test_the_hash_of_an_id_says_in_which_partition_its_run_lives_whoever_owns_it(cluster, houses):
    await spread(cluster, houses, 4)
    ids = await cluster.submit(houses[0], 40, named="run")

    async def partitions(house):
        return {one: int((await cluster.get(house, f"/v1/runs/{one}")).json()["number"]) >> 44 for one in ids}

    before = await partitions(houses[1])
    owners = cluster.owners()
    route = houses[0].node.routes.of("default")
    assert before == {one: partition_of_run(route, one, 4) for one in ids}
    assert len(set(before.values())) == 4
    third = await cluster.add()
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3 and len(cluster.owners()) == 4)

    assert cluster.owners() != owners, "a partition moved to the new node"
    assert await partitions(third) == before, "and no run to another partition"
