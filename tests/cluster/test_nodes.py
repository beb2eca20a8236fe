"""Nodes together: who owns what, how requests and workers reach the owner, and what happens when one goes."""

import asyncio
import contextlib
import time
from collections import Counter
from datetime import datetime
from itertools import cycle, pairwise

import httpx2
import msgspec
import pytest
import pytest_asyncio

from cluster.cluster_fixture import Doing, TestCluster
from tickwork.ports.store import InboxRow
from tickwork.protocol import http_models as wire


@pytest_asyncio.fixture
async def cluster():
    made = TestCluster()
    yield made
    await made.close()


async def test_partitions_are_shared_evenly_and_every_node_answers(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(cluster.owners()) == 4 and len(set(cluster.owners().values())) == 2)
    doing = Doing()
    await cluster.work(houses[0], "w1", doing)

    ids = await cluster.submit(houses[1], 20)
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    assert sorted(doing.begun.values()) == [1] * 20
    seen = (await cluster.get(houses[1], "/v1/cluster")).json()
    assert [one["node"] for one in seen["nodes"]] == ["n1", "n2"]
    assert {one["partition"]: one["node"] for one in seen["partitions"]} == cluster.owners()


async def paged(cluster, houses, *, limit):
    """All runs, each page at the next house in turn."""
    seen, cursor = [], ""
    for house in cycle(houses):
        answer = await cluster.get(house, f"/v1/runs?limit={limit}&cursor={cursor}")
        assert answer.status_code == 200, answer.text
        seen += answer.json()["runs"]
        cursor = answer.json().get("next", "")
        if not cursor:
            break
    return seen


@pytest.mark.proves("B22")
async def test_pages_go_on_at_any_node_and_a_cursor_of_another_list_is_refused(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    await cluster.work(houses[0], "w1", Doing())
    ids = await cluster.submit(houses[0], 10)
    await cluster.ended(houses[0], ids)

    assert sorted(run["id"] for run in await paged(cluster, houses, limit=3)) == sorted(ids)
    await cluster.spread(houses[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))
    cursor = (await cluster.get(houses[0], "/v1/runs?limit=3")).json()["next"]
    for wrong in (cursor.replace("s", "s9.b5-", 1), cursor[:-1] + "~", f"{cursor}&state=failed"):
        answer = await cluster.get(houses[1], f"/v1/runs?limit=3&cursor={wrong}")
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_cursor")


@pytest.mark.proves("B6")
async def test_numbers_that_nobody_has_are_unknown_at_every_node(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)

    for number in ("9" * 5_000, "9" * 18, "4000000", "x"):
        for house in houses:
            answer = await cluster.get(house, f"/v1/tasks/{number}/logs")
            assert (answer.status_code, answer.json()["code"]) == (404, "unknown_task"), number[:20]


async def test_a_node_without_partitions_names_the_time_zones(cluster):
    await cluster.add()
    reader = await cluster.add(engine=False)

    answer = await cluster.get(reader, "/v1/zones")

    assert (answer.status_code, answer.json()["zones"]) == (200, ["UTC"])


async def test_a_spread_tenant_runs_in_all_its_partitions(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: sorted(Counter(cluster.owners().values()).values()) == [2, 2])
    await cluster.spread(houses[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))
    workers = [Doing(), Doing()]
    for house, doing in zip(houses, workers, strict=True):
        await cluster.work(house, f"w-{house.name}", doing)

    own = {number for number, name in cluster.owners().items() if name == houses[1].name}
    ids = await cluster.submit(houses[1], 40, named="run")
    unnamed = await cluster.submit(houses[1], 20)
    ids += unnamed
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    assert {int(run["number"]) >> 44 for run in runs if run["id"] in unnamed} <= own, "they stay where they were given"
    begun = workers[0].begun + workers[1].begun
    assert sorted(begun.values()) == [1] * 60
    assert {task >> 44 for task, _ in begun} == {0, 1, 2, 3}
    seen = await paged(cluster, houses, limit=7)
    assert sorted(run["id"] for run in seen) == sorted(ids)
    assert [run["submitted_at"] for run in seen] == sorted((run["submitted_at"] for run in seen), reverse=True)
    status = (await cluster.get(houses[1], "/v1/status")).json()
    assert status["runs"] == {"completed": 60}
    assert (await cluster.submit(houses[0], 1, key="k")) == (await cluster.submit(houses[1], 1, key="k"))


async def test_a_clean_stop_hands_over_without_losing_or_repeating_anything(cluster):
    houses = [await cluster.add() for _ in range(3)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3)
    workers = [Doing(seconds=0.05), Doing(seconds=0.05)]
    for house, doing in zip(houses, workers, strict=False):
        await cluster.work(house, f"w-{house.name}", doing)
    await cluster.submit(houses[0], 1)
    home = houses[0].node.routes.home("default")
    ids: list[str] = []
    for turn in range(12):
        ids += await cluster.submit(houses[turn % 2], 10)
        if turn == 4:
            owner = next(house for house in houses if house.name == cluster.owners()[home])
            leaving = owner if owner is houses[2] else houses[2]
            await leaving.stop()
        await asyncio.sleep(0.02)
    runs = await cluster.ended(houses[0], ids)

    assert {run["state"] for run in runs} == {"completed"}
    begun = workers[0].begun + workers[1].begun
    assert set(begun.values()) == {1}
    assert all(attempt == 1 for _, attempt in begun)


@pytest.mark.proves("I25", "S001-162")
async def test_a_node_that_dies_is_replaced_and_nothing_accepted_is_lost(cluster):
    houses = [await cluster.add() for _ in range(3)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3)
    home = houses[0].node.routes.home("default")
    owner = next(house for house in houses if house.name == cluster.owners()[home])
    others = [house for house in houses if house is not owner]
    doing = Doing(seconds=0.02)
    await cluster.work(others[0], "w1", doing)
    ids = await cluster.submit(others[1], 40)
    await owner.crash()
    runs = await cluster.ended(others[1], ids, seconds=30)

    assert {run["state"] for run in runs} == {"completed"}
    assert cluster.owners()[home] != owner.name
    assert max(doing.begun.values()) == 1


async def test_what_cannot_reach_its_owner_waits_in_the_inbox_and_is_accepted(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    home = houses[0].node.routes.home("default")
    owner = next(house for house in houses if house.name == cluster.owners()[home])
    other = next(house for house in houses if house is not owner)
    await cluster.work(other, "w1", Doing())
    await owner.crash()

    ids = await cluster.submit(other, 5)
    single = await cluster.client.post(f"{other.server.address}/v1/runs", json={"workflow": "flow"})

    assert single.status_code == 201
    assert len(cluster.disk.inbox[home]) == 6
    runs = await cluster.ended(other, [*ids, single.json()["id"]], seconds=30)
    assert {run["state"] for run in runs} == {"completed"}
    await cluster.until(lambda: not cluster.disk.inbox[home])


@pytest.mark.proves("F28", "F25")
async def test_what_the_inbox_accepted_is_kept_where_it_is_refused_until_it_can_begin(cluster, monkeypatch):
    """Accepted without its owner, so nobody could say that its workflow is unknown."""
    monkeypatch.setattr("tickwork.cluster.shared_inbox.RETRY_S", 0.2)
    house = await cluster.add("n1", partitions=2)
    home = house.node.routes.home("default")
    [kept] = await house.node.inbox.add([wire.Submission(workflow="later")], by="alice", tenant="default")
    [bad] = await house.node.inbox.add([wire.Submission(workflow="flow", priority=9_999)], by="a", tenant="default")
    document = {"name": "flow", "nodes": [{"kind": "task", "id": "only", "handler": "do"}]}
    path = f"{house.server.address}/v1/workflows"
    assert (await cluster.client.put(path, json={"documents": [document]})).status_code == 200
    await cluster.until(lambda: Counter(one.kind for one in house.node.alarms.recent)["inbox_refused"] == 2)
    await asyncio.sleep(1.2)

    assert set(cluster.disk.inbox[home]) == {kept.id, bad.id}
    assert Counter(one.kind for one in house.node.alarms.recent)["inbox_refused"] == 2, "said once"
    answer = await cluster.get(house, f"/v1/runs/{kept.id}")
    assert (answer.status_code, answer.json()["code"]) == (409, "held_in_inbox")
    assert "there is no workflow 'later'" in answer.json()["detail"]
    held = (await cluster.get(house, "/v1/cluster/inbox")).json()["runs"]
    assert [(one["id"], one["workflow"], one["by"], one["code"]) for one in held] == [
        (kept.id, "later", "alice", "unknown_workflow"),
        (bad.id, "flow", "a", "bad_priority"),
    ]

    assert (await cluster.client.put(path, json={"documents": [document | {"name": "later"}]})).status_code == 200
    await cluster.until(lambda: kept.id not in cluster.disk.inbox[home])
    assert (await cluster.get(house, f"/v1/runs/{kept.id}")).status_code == 200
    gone = await cluster.client.delete(f"{house.server.address}/v1/cluster/inbox/{bad.id}")
    assert gone.status_code == 204
    assert (await cluster.client.delete(f"{house.server.address}/v1/cluster/inbox/{bad.id}")).status_code == 404
    assert (await cluster.get(house, f"/v1/runs/{bad.id}")).status_code == 404
    assert not cluster.disk.inbox[home]


async def test_a_row_of_the_inbox_that_cannot_be_read_stops_nobody(cluster):
    house = await cluster.add()
    home = house.node.routes.home("default")
    await cluster.work(house, "w1", Doing())
    await cluster.ended(house, await cluster.submit(house, 1))
    unreadable = [b"garbage", b'{"workflow": "flow", "of_a_later_version": 1}', b"\xff"]
    rows = [InboxRow(f"bad-{at}", home, "default", data, "") for at, data in enumerate(unreadable)]
    good = InboxRow("good", home, "default", b'{"workflow": "flow", "id": "good"}', "")
    await house.node.store.add_inbox([*rows, good])

    await cluster.ended(house, ["good"])
    await cluster.until(lambda: len(cluster.disk.inbox[home]) == 3)
    assert Counter(alarm.kind for alarm in house.node.alarms.recent)["inbox_unreadable"] == 3
    await house.stop()
    other = await cluster.add()
    await cluster.until(lambda: len(cluster.owners()) == 4)
    assert len(cluster.disk.inbox[home]) == 3
    await other.node.store.add_inbox(
        [msgspec.structs.replace(good, id="more", data=good.data.replace(b"good", b"more"))]
    )
    await cluster.ended(other, ["good"])
    await cluster.until(lambda: len(cluster.disk.inbox[home]) == 3)


async def test_a_node_without_an_engine_answers_and_serves_workers(cluster):
    first = await cluster.add()
    front = await cluster.add(engine=False)
    await cluster.work(front, "w1", Doing())

    runs = await cluster.ended(front, await cluster.submit(front, 5))

    assert {run["state"] for run in runs} == {"completed"}
    assert set(cluster.owners().values()) == {first.name}


async def test_a_lost_worker_is_noticed_where_it_was_heard_and_its_work_goes_elsewhere(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    stuck, able = Doing(seconds=60), Doing()
    await cluster.work(houses[0], "stuck", stuck)
    ids = await cluster.submit(houses[1], 3)
    await cluster.until(lambda: len(stuck.begun) == 3)
    await cluster.work(houses[1], "able", able)
    _, task, link = cluster.agents.pop(0)
    task.cancel()
    await link.close()
    await asyncio.gather(task, return_exceptions=True)
    for handle in stuck._running.values():
        handle.cancel()

    runs = await cluster.ended(houses[1], ids, seconds=20)
    assert {run["state"] for run in runs} == {"completed"}
    assert sorted(attempt for _, attempt in able.begun) == [2, 2, 2]


@pytest.mark.proves("F12")
async def test_a_full_store_refuses_nothing_for_good_also_at_another_node(cluster):
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 2)
    await cluster.work(houses[0], "w1", Doing())
    home = houses[0].node.routes.home("default")
    owner = next(house for house in houses if house.name == cluster.owners()[home])
    other = next(house for house in houses if house is not owner)
    owner.node.engines[home].context.partition.writer.full = True

    body = {"runs": [{"workflow": "flow", "key": "once"}]}
    answer = await cluster.client.post(f"{other.server.address}/v1/runs/batch", json=body)

    assert (answer.status_code, answer.json()["code"]) == (507, "store_full")
    owner.node.engines[home].context.partition.writer.full = False
    [run] = await cluster.submit(other, 1, key="once")
    assert (await cluster.ended(other, [run]))[0]["state"] == "completed"


async def test_a_partition_without_an_owner_holds_up_no_other(cluster):
    houses = [await cluster.add() for _ in range(3)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3)
    await cluster.spread(houses[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))
    home = houses[0].node.routes.home("default")
    victim = next(house for house in houses if cluster.owners()[home] != house.name)
    front = next(house for house in houses if house is not victim)
    doing = Doing(seconds=0.3, slots=100)
    await cluster.work(front, "w1", doing)
    lost = {number for number, name in cluster.owners().items() if name == victim.name}
    ids = await cluster.submit(front, 60)
    await cluster.until(lambda: len(doing.begun) > 40)
    await victim.crash()
    begin = asyncio.get_running_loop().time()
    numbers = {one: front.node.routes.partition_of_run("default", one) for one in ids}
    await cluster.ended(front, [one for one in ids if numbers[one] not in lost], seconds=10)
    assert asyncio.get_running_loop().time() - begin < 1.4, "before the lease of the others has run out"
    runs = await cluster.ended(front, ids, seconds=20)

    assert {run["state"] for run in runs} == {"completed"}
    assert max(doing.begun.values()) == 1


@pytest.mark.proves("S004-11")
async def test_any_node_manages_schedules_and_they_fire_on_after_their_owner_died(cluster):
    houses = [await cluster.add() for _ in range(3)]
    await cluster.until(lambda: len(set(cluster.owners().values())) == 3)
    home = houses[0].node.routes.home("default")
    owner = next(house for house in houses if house.name == cluster.owners()[home])
    one, other = (house for house in houses if house is not owner)
    await cluster.work(one, "w1", Doing())
    asked = {"workflow": "flow", "every": "1s", "catch_up": "all"}
    for house, name in ((one, "kept"), (other, "paused"), (owner, "gone")):
        assert (await done(cluster, house, "PUT", f"/v1/schedules/{name}", json=asked)).status_code == 200
    assert (await done(cluster, one, "POST", "/v1/schedules/paused/pause", json={})).status_code == 204
    assert (await done(cluster, other, "DELETE", "/v1/schedules/gone")).status_code == 204
    before = await fired(cluster, other, 1)
    await owner.crash()
    after = await fired(cluster, other, before + 3, seconds=30)

    assert cluster.owners()[home] != owner.name and after >= before + 3
    listed = (await done(cluster, one, "GET", "/v1/schedules")).json()["schedules"]
    shown = {schedule["name"]: schedule for schedule in listed}
    assert sorted(shown) == ["kept", "paused"] and shown["paused"]["paused"] and not shown["kept"].get("paused")
    runs = (await done(cluster, other, "GET", "/v1/runs?workflow=flow&limit=100")).json()["runs"]
    dues = sorted(datetime.fromisoformat(run["scheduled_at"]) for run in runs if run.get("schedule") == "kept")
    apart = {(later - earlier).total_seconds() for earlier, later in pairwise(dues)}
    assert apart == {1.0}, "none was left out and none came twice"
    assert (await done(cluster, one, "DELETE", "/v1/schedules/kept")).status_code == 204, "and goes on"


async def done(cluster, house, method, path, **fields):
    """The answer; whoever is told to ask again does so."""
    until = time.monotonic() + 15
    while True:
        answer = await cluster.client.request(method, house.server.address + path, **fields)
        if answer.status_code != 503:
            return answer
        assert time.monotonic() < until, answer.text
        await asyncio.sleep(0.05)


async def fired(cluster, house, count, *, seconds=10.0):
    """How often `kept` has fired, once it is at least so often."""
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx2.TransportError):
            answer = await cluster.get(house, "/v1/schedules/kept")
            if answer.status_code == 200 and (found := answer.json().get("fired", 0)) >= count:
                return found
        assert time.monotonic() < until, answer.text
        await asyncio.sleep(0.05)


async def told_silent(cluster, house, name, *, seconds=10.0):
    """The metrics of a node that has not heard `name` for 13 s; where the worker calls meanwhile, asked again."""
    session, until = house.node.workers.gateway.workers[name].session, time.monotonic() + seconds
    while True:
        session.heard_ms -= 13_000
        text = (await cluster.get(house, "/metrics")).text
        session.heard_ms = int(time.monotonic() * 1000)
        if "tickwork_attempts_orphaned 1.0" in text:
            return text
        assert time.monotonic() < until, text
        await asyncio.sleep(0.05)


@pytest.mark.proves("S001-129")
async def test_a_node_tells_how_fresh_its_workers_are(cluster):
    house = await cluster.add()
    await cluster.until(lambda: len(cluster.owners()) == 4)
    doing = Doing(seconds=60)
    await cluster.work(house, "w1", doing)
    await cluster.submit(house, 1)
    await cluster.until(lambda: len(doing.begun) == 1)
    fresh = (await cluster.get(house, "/metrics")).text
    silent = await told_silent(cluster, house, "w1")
    for handle in doing._running.values():
        handle.cancel()
    doing._running.clear()

    assert "tickwork_attempts_orphaned 0.0" in fresh
    ages = [line for line in silent.splitlines() if line.startswith('tickwork_worker_beat_age_seconds{quantile="1.0"}')]
    assert len(ages) == 1 and float(ages[0].split()[1]) >= 13
    assert 'tickwork_dispatch_wait_seconds_count{of="task",partition="' in fresh


async def test_an_event_says_how_many_waited_for_it_in_all_partitions(cluster):
    waits = {"name": "flow", "nodes": [{"kind": "event", "id": "paid", "event": "paid"}]}
    houses = [await cluster.add() for _ in range(2)]
    await cluster.until(lambda: len(cluster.owners()) == 4 and len(set(cluster.owners().values())) == 2)
    await cluster.spread(houses[0], 4)
    await cluster.until(lambda: all(house.node.routes.of("default").spread == 4 for house in houses))
    await cluster.work(houses[0], "w1", Doing(documents=(waits,)))
    ids = await cluster.submit(houses[1], 12)
    told = [
        (await cluster.client.post(f"{house.server.address}/v1/events", json={"event": "paid"})).json()
        for house in houses
    ]
    await cluster.ended(houses[0], ids)

    assert [one.get("waiting", 0) for one in told] == [12, 0]
