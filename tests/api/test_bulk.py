"""Bulk operations over HTTP: a frozen selection, an action on each of its runs, and a report."""

import asyncio

import httpx2
import pytest

from api.scripted_worker import Worker, flow, publish, submit
from tickwork.api.app import make_app
from tickwork.api.http.request import ShutdownSignal
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import SystemClock, SystemIds

WAITS = flow("waits", {"kind": "wait", "id": "w", "duration_ms": 3_600_000})


async def preview(http, action, **search):
    answer = await http.post("/v1/bulk/preview", json={"action": action, "search": search})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def start(http, shown, **changes):
    body = {name: shown[name] for name in ("action", "search", "selection")} | {"per_second": 1_000} | changes
    return await http.post("/v1/bulk", json=body)


async def reported(http, job):
    """With the fields that are left out where they have their defaults."""
    answer = await http.get(f"/v1/bulk/{job}")
    assert answer.status_code == 200, answer.text
    return {"done": 0, "changed": 0, "refused": {}, "left": 0} | answer.json()


async def ended(http, job):
    for _ in range(600):
        report = await reported(http, job)
        if report["state"] != "running":
            return report
        await asyncio.sleep(0.05)
    raise AssertionError(f"the job goes on: {report}")


async def acted(http, action, **search):
    job = await start(http, await preview(http, action, **search))
    assert job.status_code == 202, job.text
    return await ended(http, job.json()["id"])


async def states(http, **query):
    runs = (await http.get("/v1/runs", params=query)).json()["runs"]
    return sorted(run["state"] for run in runs)


async def test_a_preview_shows_what_a_job_would_act_on_and_does_nothing(http):
    await publish(http, WAITS)
    for number in range(12):
        await submit(http, "waits", tags=["old"] if number < 11 else [])
    shown = await preview(http, "cancel", tag=["old"])

    assert (shown["count"], shown["states"]) == (11, {"waiting": 11})
    assert len(shown["sample"]) == 10
    assert shown["as_of"]["0"] > 0
    assert await states(http) == ["waiting"] * 12


@pytest.mark.proves("S001-30")
async def test_runs_are_cancelled_as_selected_and_later_ones_are_left_alone(http):
    await publish(http, WAITS)
    first = [await submit(http, "waits", tags=["old"]) for _ in range(3)]
    shown = await preview(http, "cancel", tag=["old"])
    later = await submit(http, "waits", tags=["old"])
    await http.post(f"/v1/runs/{first[0]}/cancel", json={})
    job = (await start(http, shown, reason="wrong data")).json()
    report = await ended(http, job["id"])

    assert (report["count"], report["done"], report["changed"], report["refused"], report["left"]) == (3, 2, 1, {}, 0)
    assert (report["state"], report["reason"], report["by"]) == ("done", "wrong data", "api")
    assert await states(http, tag="old") == ["cancelled"] * 3 + ["waiting"]
    assert (await http.get(f"/v1/runs/{later}")).json()["state"] == "waiting"
    assert f"wrong data (bulk operation {job['id']})" in (await http.get(f"/v1/runs/{first[1]}/why")).text
    assert [each["id"] for each in (await http.get("/v1/bulk")).json()["operations"]] == [job["id"]]


async def test_a_lost_or_changed_filter_is_refused(http):
    await publish(http, WAITS)
    await submit(http, "waits", tags=["old"])
    shown = await preview(http, "cancel", tag=["old"])

    for changes, status, code in (
        ({"search": {}}, 422, "no_filter"),
        ({"search": {"workflow": "waits"}}, 409, "selection_changed"),
        ({"action": "pause"}, 409, "selection_changed"),
        ({"selection": "0." + "0" * 64}, 404, "unknown_selection"),
        ({"selection": "all"}, 404, "unknown_selection"),
        ({"selection": ""}, 422, "empty_selection"),
        ({"per_second": 0}, 422, "bad_rate"),
    ):
        refused = await start(http, shown, **changes)
        assert (refused.status_code, refused.json()["code"]) == (status, code), changes
    assert (await http.get("/v1/bulk")).json()["operations"] == []
    empty = await preview(http, "cancel", tag=["absent"])
    assert (empty["count"], empty["selection"]) == (0, "")
    nothing = await http.post("/v1/bulk/preview", json={"action": "cancel", "search": {}})
    assert nothing.json()["code"] == "no_filter"
    wrong = await http.post("/v1/bulk/preview", json={"action": "retry", "search": {"state": ["completed"]}})
    assert wrong.json()["code"] == "bad_state"


async def test_failed_runs_are_retried_paused_and_resumed_in_bulk(http):
    await publish(http, flow())
    for _ in range(3):
        await submit(http)
    worker = Worker(http)
    works = await worker.work(3)
    await worker.fail(*works[:2], message="the bank is away")
    await worker.finish(works[2])

    report = await acted(http, "retry", error="bank")
    assert (report["count"], report["done"]) == (2, 2)
    again = await worker.work(2)
    report = await acted(http, "pause", workflow="greet")
    assert (report["count"], report["done"]) == (2, 2)
    assert await states(http) == ["completed", "paused", "paused"]
    report = await acted(http, "resume", workflow="greet")
    assert report["done"] == 2
    await worker.finish(*again)
    assert await states(http) == ["completed"] * 3


async def test_ended_runs_are_rerun_once_each_also_if_the_job_is_started_again(http):
    await publish(http, flow())
    for _ in range(2):
        await submit(http, tags=["a"])
    worker = Worker(http)
    await worker.finish(*await worker.work(2))
    shown = await preview(http, "rerun", tag=["a"])
    body = {name: shown[name] for name in ("action", "search", "selection")}
    for _ in range(2):
        again = await http.post("/v1/bulk", json=body, headers={"idempotency-key": "redo"})
        assert again.json()["id"] == "redo"
        await ended(http, "redo")

    assert len(await worker.work(2)) == 2
    runs = (await http.get("/v1/runs?tag=a")).json()["runs"]
    assert len(runs) == 4
    assert sorted(run["source"].split(" ")[0] for run in runs) == ["rerun", "rerun", "submit", "submit"]


async def test_a_job_keeps_to_its_rate_and_can_be_cancelled(http):
    await publish(http, WAITS)
    for _ in range(6):
        await submit(http, "waits")
    job = (await start(http, await preview(http, "cancel", workflow="waits"), per_second=1)).json()
    while (await reported(http, job["id"]))["done"] == 0:
        await asyncio.sleep(0.02)
    assert (await http.post(f"/v1/bulk/{job['id']}/cancel", json={"reason": "enough"})).status_code == 204
    report = await ended(http, job["id"])

    assert report["state"] == "cancelled" and report["cancelled"] == "api: enough"
    assert report["done"] + report["left"] == 6 and report["left"] > 0
    assert (await states(http)).count("waiting") == report["left"]
    assert (await http.post(f"/v1/bulk/{job['id']}/cancel", json={})).status_code == 409
    assert (await http.get("/v1/bulk/none")).status_code == 404


async def test_a_job_goes_on_after_a_crash_and_acts_on_each_run_once():
    disk, artifacts = MemoryDisk(), MemoryArtifacts()

    def engine():
        settings = Settings(clock=LogicalClock(origin_ms=SystemClock().wall_ms()))
        store = MemoryStore(disk)
        return Engine(
            store=store, artifacts=artifacts, clock=SystemClock(), ids=SystemIds(), owner="n", settings=settings
        )

    def client(of):
        transport = httpx2.ASGITransport(app=make_app(of, closing=ShutdownSignal()), client=("127.0.0.1", 5000))
        return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    first = engine()
    await first.start()
    async with client(first) as http:
        await publish(http, WAITS)
        for _ in range(30):
            await submit(http, "waits", tags=["x"])
        job = (await start(http, await preview(http, "cancel", tag=["x"]), per_second=8)).json()["id"]
        while (await reported(http, job))["done"] < 2:
            await asyncio.sleep(0.02)
    await first.abandon("a crash")  # nothing is finished, and no rows are written
    second = engine()
    await second.start()
    async with client(second) as http:
        before = await reported(http, job)
        assert before["state"] == "running" and 2 <= before["done"] < 30
        report = await ended(http, job)
        assert (report["done"], report["changed"], report["refused"]) == (30, 0, {})
        assert await states(http, tag="x", limit="50") == ["cancelled"] * 30
    await second.stop()
