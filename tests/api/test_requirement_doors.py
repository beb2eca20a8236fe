"""Requirements about tasks, load, policies, ticks and storage, each seen through the API of a server."""

import asyncio
from datetime import datetime, timedelta

import httpx2
import msgspec
import pytest

from api.scripted_worker import flow, publish, submit, task
from api.test_operator_doors import Worker, client
from tickwork.compose.server import DATABASE, serving
from tickwork.compose.settings import Settings
from tickwork.core.base.stable_hash import stable_hash
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest
from tickwork.journal.export import read
from tickwork.journal.replay import replay
from tickwork.protocol.worker_messages import Succeeded, WorkerProfile

__all__ = ["client"]


def reaching(server):
    return httpx2.AsyncClient(base_url=server.address, trust_env=False)


async def states(http, run_id):
    return {node["node"]: node["state"] for node in (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]}


async def by_node(http, run_id, works):
    numbers = {node["id"]: node["node"] for node in (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]}
    return {numbers[str(work.task)]: work for work in works}


@pytest.mark.proves("S001-191", "S001-116", "S001-117")
async def test_retry_and_cancel_of_one_task_leave_its_siblings_alone(http):
    nodes = [task(name, retry=1) for name in ("a", "b", "c")]
    await publish(http, flow("greet", *nodes, task("last", needs=["a", "b", "c"])))
    run_id = await submit(http)
    worker = Worker(http)
    works = await by_node(http, run_id, await worker.work(3))
    assert (await http.post(f"/v1/tasks/{works['c'].task}/cancel", json={"reason": "no use"})).status_code == 204
    assert await states(http, run_id) == {"a": "running", "b": "running", "c": "failed", "last": "pending"}

    await worker.fail(works["a"], works["b"])
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "failed"
    assert (await http.post(f"/v1/tasks/{works['a'].task}/retry", json={"reason": "mended"})).status_code == 204
    [again] = await worker.work()
    assert (again.task, await worker.has_none()) == (works["a"].task, True), "nothing else of the run begins again"
    await worker.finish(again)
    assert await states(http, run_id) == {"a": "succeeded", "b": "failed", "c": "failed", "last": "blocked"}
    attempts = {
        node["node"]: len(node.get("attempts", ())) for node in (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]
    }
    assert attempts == {"a": 2, "b": 1, "c": 1, "last": 0}


@pytest.mark.proves("S001-190")
async def test_what_a_person_answers_is_the_result_that_the_next_step_gets(http):
    form = {"kind": "approval", "id": "count", "message": "How many?", "fields": {"n": {"type": "integer"}}}
    after = task("use", needs=["count"], args={"n": {"from": "nodes.count.n"}})
    await publish(http, flow("greet", form, after))
    run_id = await submit(http)
    worker = Worker(http)
    assert await worker.has_none(), "it waits for the person"
    path = f"/v1/runs/{run_id}/approvals/count"
    assert (await http.post(path, json={"approve": True, "values": {"n": 7}})).status_code == 204

    [work] = await worker.work()
    assert msgspec.msgpack.decode(work.args) == {"n": 7}


@pytest.mark.proves("S001-163", "S001-157")
async def test_while_important_work_lags_other_work_is_held_though_a_worker_is_free(client, http):
    await publish(http, flow("vital", task("v", queue="vital")), flow())
    await client.put_settings(shed_lag_ms=50)
    vital, free = Worker(http, name="vital"), Worker(http, name="free")
    vital.credit = 1
    await vital.call(profile=WorkerProfile(queues=("vital",), host="here", pid=8), held=())
    await free.call()
    first, second = [await submit(http, "vital", priority=5) for _ in range(2)]
    [work] = await vital.work()
    async with asyncio.timeout(20):
        while "load_shed" not in {alarm.kind for alarm in await client.alarms()}:
            await client.put_tenant(weight=1)  # whatever happens gives a tick
            await asyncio.sleep(0.01)
    low = await submit(http, priority=0)
    assert await free.has_none()
    [reason] = (await http.get(f"/v1/runs/{low}/why")).json()["waiting_for"]
    assert reason.startswith("hello: important work lagged by ")
    assert "priorities below 3 are held, and this has 0" in reason

    await vital.finish(work)
    await vital.finish(*await vital.work())
    await free.finish(*await free.work())
    assert {(await client.wait(run, timeout=20)).state for run in (first, second, low)} == {"completed"}


@pytest.mark.proves("S002-43")
async def test_a_policy_and_its_step_read_one_snapshot_and_decide_the_same_again(client, http, engine):
    """An event and the result that starts the step come in one tick. The step's own condition does not see the event
    yet, and neither does its policy."""
    seen = "results.a.n == 7 && events.size() == 0"
    await client.put_policy("gate", seen, reason="not today")
    await publish(http, flow("flow", task("a"), task("b", needs=["a"], when=seen, policy=["gate"])))
    worker = Worker(http)
    for _ in range(20):
        run = await client.submit("flow")
        [work] = await worker.work()
        report = worker.call(Succeeded(work.task, work.attempt, b"\x81\xa1n\x07"))
        await asyncio.gather(client.signal("opened", run=run), report)
        ticks = [await client.tick(row.tick) for row in await engine.overview.journal(after=0, limit=500)]
        await worker.finish(*await worker.work())
        if any(tick.inputs.keys() >= {"Ingest", "Succeeded"} for tick in ticks):
            break
    else:
        raise AssertionError("event and result never came in one tick")
    assert (await client.wait(run, timeout=20)).state == "completed"
    assert await states(http, run.id) == {"a": "succeeded", "b": "succeeded"}
    assert "policy gate allowed" in " ".join(step.text for step in (await client.why(run)).steps)

    head, exported = read([(await http.get("/v1/journal")).content])
    machine = Machine(settings=head.settings)
    replay(exported, machine)
    assert digest(machine.state) == digest(engine.context.state)


@pytest.mark.proves("S000-11")
async def test_a_store_keeps_the_length_of_tick_that_it_was_created_with(tmp_path):
    settings = Settings(data=str(tmp_path), port=0, unprotected=True, resolution_ms=250)
    for given in (settings, msgspec.structs.replace(settings, resolution_ms=1)):
        async with serving(given, own_process=False) as (engine, server), reaching(server) as http:
            shown = {entry["name"]: entry for entry in (await http.get("/v1/settings")).json()["settings"]}
            assert (shown["resolution_ms"]["value"], shown["resolution_ms"]["default"]) == (250, 1)
            await publish(http, flow("greet", {"kind": "wait", "id": "w", "duration": "3d"}))
            run = (await http.get(f"/v1/runs/{await submit(http)}")).json()
            rows = await engine.overview.journal(after=0, limit=100)
            traces = [(await http.get(f"/v1/partitions/0/ticks/{row.tick}")).json() for row in rows]

    [wait] = run["tasks"]
    begun, due = (datetime.fromisoformat(text) for text in (run["started_at"], wait["due_at"]))
    assert due - begun == timedelta(days=3)
    ticks = [(trace["tick"], datetime.fromisoformat(trace["at"])) for trace in traces]
    assert len({tick for tick, _ in ticks}) >= 4
    assert all(at - ticks[0][1] == (tick - ticks[0][0]) * timedelta(milliseconds=250) for tick, at in ticks)


@pytest.mark.proves("S001-55")
async def test_a_task_takes_less_than_500_bytes_of_the_database(tmp_path):
    """The whole file counts: the journal, runs, attempts and results, with the indexes."""
    settings = Settings(data=str(tmp_path), port=0, unprotected=True)
    database, runs, width = tmp_path / DATABASE, 60, 40
    graph = [task("a"), *(task(f"b{number}", needs=["a"]) for number in range(width - 1))]
    async with serving(settings, own_process=False) as (_, server), reaching(server) as http:
        await publish(http, flow("greet", *graph))
    before = database.stat().st_size
    async with serving(settings, own_process=False) as (_, server), reaching(server) as http:
        batch = await http.post("/v1/runs/batch", json={"runs": [{"workflow": "greet"}] * runs})
        worker = Worker(http)
        worker.credit = runs * width
        for count in (runs, runs * (width - 1)):
            works = await worker.work(count)
            await worker.call(*[Succeeded(work.task, work.attempt, result_of(work)) for work in works])
        for entry in batch.json()["runs"]:
            assert (await http.get(f"/v1/runs/{entry['id']}")).json()["state"] == "completed"

    each = (database.stat().st_size - before) / (runs * width)
    assert 20 < each < 500, each


def result_of(work):
    """Twenty bytes that no compression makes smaller."""
    return msgspec.msgpack.encode(
        stable_hash("result", work.task).to_bytes(8) + stable_hash("more", work.task).to_bytes(8)
    )
