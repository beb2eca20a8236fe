"""What a client is answered when nobody knows whether its request was carried out, and what a repeated one does."""

import asyncio

import pytest

from api.scripted_worker import Worker, flow, publish, submit, task
from tickwork.core.base.errors import Unavailable

KEY = {"idempotency-key": "k1"}


@pytest.fixture
async def greet(http):
    await publish(http, flow())


async def test_an_unknown_outcome_is_told_apart_from_a_refusal(http, engine, greet, monkeypatch):
    committed, released = asyncio.Event(), asyncio.Event()

    async def hangs(*_):
        committed.set()
        await released.wait()
        raise Unavailable("the commit was interrupted", retry_after_ms=0)

    monkeypatch.setattr(engine.context.partition.writer, "commit", hangs)
    decided = asyncio.ensure_future(http.post("/v1/runs", json={"workflow": "greet"}))
    await committed.wait()
    engine.context.partition._inbox.take = lambda **_: []  # what comes from here on reaches no tick
    untouched = asyncio.ensure_future(http.post("/v1/runs", json={"workflow": "greet"}))
    await asyncio.sleep(0.05)
    engine.context.partition._fail(Unavailable("another node has taken it", retry_after_ms=50))

    answer, other = await decided, await untouched
    assert (answer.status_code, answer.json()["code"]) == (504, "outcome_unknown")
    assert "retry-after" not in answer.headers
    assert (other.status_code, other.json()["code"]) == (503, "unavailable") and other.headers["retry-after"]
    released.set()


async def test_every_request_that_changes_something_documents_the_unknown_outcome(http):
    paths = (await http.get("/openapi.json")).json()["paths"]

    for path, methods in paths.items():
        for method, operation in methods.items():
            assert ("504" in operation["responses"]) == (method != "get"), (method, path)
    assert "outcome_unknown" in paths["/v1/runs"]["post"]["responses"]["504"]["description"]


@pytest.mark.parametrize("deed", ["schedules/s/trigger", "schedules/s/test", "endpoints/e/trigger", "endpoints/e/test"])
async def test_a_trigger_repeated_under_its_key_begins_one_run(http, greet, deed):
    never = {"workflow": "greet", "cron": "0 0 1 1 *", "overlap": "allow"}
    assert (await http.put("/v1/schedules/s", json=never)).status_code == 200
    endpoint = {"url": "https://example.org/", "cron": "0 0 1 1 *"}
    assert (await http.put("/v1/endpoints/e", json=endpoint)).status_code == 200
    first = await http.post(f"/v1/{deed}", headers=KEY)
    again = await http.post(f"/v1/{deed}", headers=KEY)

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    other = await http.post("/v1/schedules/s/trigger", headers=KEY)
    if deed != "schedules/s/trigger":
        assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert (await http.post("/v1/schedules/s/trigger")).json() != first.json()


async def test_a_trigger_repeated_after_its_run_ended_begins_nothing(http, greet):
    never = {"workflow": "greet", "cron": "0 0 1 1 *", "overlap": "allow"}
    assert (await http.put("/v1/schedules/s", json=never)).status_code == 200
    first = (await http.post("/v1/schedules/s/trigger", headers=KEY)).json()
    worker = Worker(http)
    await worker.finish(*await worker.work())
    while (await http.get(f"/v1/runs/{first['run_id']}")).json()["state"] != "completed":
        await asyncio.sleep(0.02)

    assert (await http.post("/v1/schedules/s/trigger", headers=KEY)).json() == first


async def test_a_rerun_repeated_under_its_key_makes_one_run(http):
    await publish(http, flow("greet", task("hello", retry=1)))
    run_id = await submit(http)
    worker = Worker(http)
    await worker.finish(*await worker.work())
    path = f"/v1/runs/{run_id}/rerun"
    first = await http.post(path, json={"from_node": "hello"}, headers=KEY)
    again = await http.post(path, json={"from_node": "hello"}, headers=KEY)
    await worker.finish(*await worker.work())
    ended = await http.post(path, json={"from_node": "hello"}, headers=KEY)
    other = await http.post(path, json={"from_node": "hello"}, headers={"idempotency-key": "k2"})

    assert [one.status_code for one in (first, again, ended, other)] == [201, 200, 200, 201]
    assert first.json()["id"] == again.json()["id"] == ended.json()["id"] != other.json()["id"]
    assert again.json()["duplicate"] and ended.json()["duplicate"]
