"""What a lost worker, a full tick and a pause do, seen from outside."""

import asyncio

import httpx2
import msgspec
import pytest

from api.scripted_worker import Worker, flow, publish, submit, task
from journals import read
from tickwork.api.app import make_app
from tickwork.core.state.events import Visited
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.protocol.worker_messages import Call, Succeeded, encoder
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds


@pytest.mark.proves("S001-164")
async def test_the_work_of_a_silent_worker_goes_to_another_and_its_late_result_counts_for_nothing(http, engine):
    await publish(http, flow())
    run_id = await submit(http)
    cut_off, other = Worker(http, "cut-off"), Worker(http, "other")
    [work] = await cut_off.work()
    first = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"][0]
    engine.workers.registered["cut-off"].session.heard_ms -= 60_000  # no heartbeat for a minute
    [again] = await other.work()
    second = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"][0]

    assert (again.task, again.attempt) == (work.task, 2)
    assert [attempt["state"] for attempt in second["attempts"]] == ["lost", "assigned"]
    assert second["dedupe_key"] == first["dedupe_key"], "so that an effect of both is one"
    late = await http.post(
        "/v1/workers/cut-off/exchange",
        content=cut_off_call(cut_off, Succeeded(work.task, work.attempt, msgspec.msgpack.encode("late"))),
        headers={"content-type": "application/msgpack"},
    )
    assert late.status_code == 200
    await other.finish(again, value="in time")
    assert (await http.get(f"/v1/runs/{run_id}/output")).json() == "in time"


def cut_off_call(worker, report):
    worker.seq += 1
    return encoder.encode(Call(worker.name, worker.session, worker.seq, worker.credit, 0, (report,)))


@pytest.mark.proves("S003-11")
async def test_a_tick_begins_no_more_due_endpoints_than_its_maximum(tmp_path):
    clock, store = SystemClock(), MemoryStore(MemoryDisk())
    settings = Settings(clock=LogicalClock(origin_ms=clock.wall_ms()), max_runs_per_tick=10)
    engine = Engine(
        store=store, artifacts=FolderArtifacts(tmp_path), clock=clock, ids=SystemIds(), owner="test", settings=settings
    )
    await engine.start()
    try:
        transport = httpx2.ASGITransport(app=make_app(engine), client=("127.0.0.1", 5000))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
            endpoints = {f"poll-{number}": {"url": "http://127.0.0.1/none", "every": "1h"} for number in range(25)}
            answer = await http.put("/v1/endpoints", json={"endpoints": endpoints})
            assert answer.status_code == 200, answer.text
            await asyncio.gather(*(http.post(f"/v1/endpoints/{name}/trigger") for name in endpoints))
            visits = await visits_of(store)
            async with asyncio.timeout(20):
                while len({number for some in visits for number in some}) < 25:
                    await asyncio.sleep(0.01)
                    visits = await visits_of(store)
    finally:
        await engine.stop()

    assert max(map(len, visits)) == 10


async def visits_of(store):
    rows = read(await store.journal(0, after=0, limit=10_000))
    return [event.runs for row in rows for event in row.events if isinstance(event, Visited)]


@pytest.mark.proves("S002-11")
async def test_a_person_pauses_an_active_run_and_nothing_of_it_starts_until_it_is_resumed(http):
    await publish(http, flow("greet", task("first"), task("second", needs=["first"])))
    run_id = await submit(http)
    worker = Worker(http)
    [work] = await worker.work()
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "active"
    await http.post(f"/v1/runs/{run_id}/pause", json={"reason": "look first"})
    await worker.finish(work)
    paused = (await http.get(f"/v1/runs/{run_id}")).json()

    assert (paused["state"], paused["reason"]) == ("paused", "look first")
    assert (await worker.call()).work == ()
    await http.post(f"/v1/runs/{run_id}/resume")
    [work] = await worker.work()
    await worker.finish(work)
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "completed"
