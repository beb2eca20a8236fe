"""The records of the data model, as everybody reads them: field by field through the API."""

import asyncio
from datetime import datetime, timedelta

import msgspec
import pytest

from api.scripted_worker import Worker, flow, log_line, publish, submit, task
from tickwork.protocol.worker_messages import Failed, WorkerProfile
from tickwork.runtime.workers.failure_detector import LOST_AFTER_MS

NOON = {"workflow": "greet", "cron": "0 12 * * *"}


@pytest.mark.proves("S001-105")
async def test_a_workflow_has_its_tenant_name_document_versions_and_the_time_of_each(http, engine):
    before_ms = engine.context.now_ms()
    await publish(http, flow("greet", task("hello")))
    await publish(http, flow("greet", task("goodbye")))
    found = (await http.get("/v1/workflows/greet")).json()
    async with asyncio.timeout(5):
        while (kept := await engine.context.store.read_definition("default", found["definition"])) is None:
            await asyncio.sleep(0.01)  # rows follow behind

    assert (found["name"], found["versions"]) == ("greet", 2)
    assert [node["id"] for node in found["document"]["nodes"]] == ["goodbye"]
    assert (kept.tenant, kept.name, before_ms <= kept.put_ms <= engine.context.now_ms()) == ("default", "greet", True)
    assert [node["id"] for node in msgspec.json.decode(kept.document)["nodes"]] == ["goodbye"]


@pytest.mark.proves("S001-106")
async def test_a_schedule_has_its_workflow_expression_zone_and_pause(http):
    request = {"workflow": "greet", "cron": "0 9 * * *", "timezone": "Europe/Berlin"}
    await publish(http, flow(), schedules={"mornings": request})
    await http.post("/v1/schedules/mornings/pause", json={"reason": "on holiday"})
    found = (await http.get("/v1/schedules/mornings")).json()

    assert {name: found[name] for name in ("name", "workflow", "expression", "timezone", "paused")} == {
        "name": "mornings", "workflow": "greet", "expression": "0 9 * * *", "timezone": "Europe/Berlin", "paused": True,
    }  # fmt: skip
    await http.post("/v1/schedules/mornings/resume")
    assert not (await http.get("/v1/schedules/mornings")).json().get("paused")


@pytest.mark.proves("S001-107")
async def test_a_run_has_its_workflow_nominal_time_state_and_deadline(http):
    definition = (await publish(http, flow(sla={"breach": "90s"}), schedules={"noon": NOON}))[0]["definition"]
    run_id = (await http.post("/v1/schedules/noon/trigger")).json()["run_id"]
    live = (await http.get(f"/v1/runs/{run_id}")).json()
    worker = Worker(http)
    await worker.finish(*await worker.work())
    ended = (await http.get(f"/v1/runs/{run_id}")).json()

    for run, state in ((live, "active"), (ended, "completed")):
        assert (run["id"], run["workflow"], run["definition"]) == (run_id, "greet", definition)
        assert (run["state"], run["schedule"]) == (state, "noon")
        due = datetime.fromisoformat(run["scheduled_at"])
        assert datetime.fromisoformat(run["sla_deadline"]) == due + timedelta(seconds=90)
    await publish(http, flow("free"))
    assert "sla_deadline" not in (await http.get(f"/v1/runs/{await submit(http, 'free')}")).json()


@pytest.mark.proves("S001-108")
async def test_a_task_has_its_run_node_attempt_state_key_priority_and_lease(http, engine):
    await publish(http, flow("greet", task("hello", retry=2, priority=7)))
    run_id = await submit(http)
    [waiting] = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]
    worker = Worker(http)
    [work] = await worker.work()
    run = (await http.get(f"/v1/runs/{run_id}")).json()
    [running] = run["tasks"]

    assert (waiting["state"], "lease_ends_at" in waiting) == ("ready", False)
    assert (running["id"], running["node"], running["state"]) == (str(work.task), "hello", "running")
    assert (running["attempts"][0]["attempt"], running["priority"]) == (1, 7)
    assert running["dedupe_key"] == f"default/{run_id}/hello"
    ends_ms = datetime.fromisoformat(running["lease_ends_at"]).timestamp() * 1000
    assert 0 < ends_ms - engine.context.now_ms() <= LOST_AFTER_MS
    await worker.finish(work)
    [ended] = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]
    assert ("lease_ends_at" in ended, ended["dedupe_key"]) == (False, running["dedupe_key"])


@pytest.mark.proves("S001-109")
async def test_an_attempt_has_its_task_worker_times_exit_code_and_logs(http):
    await publish(http, flow("greet", task("hello", retry=2)))
    run_id = await submit(http)
    worker = Worker(http)
    [work] = await worker.work()
    path = f"/v1/tasks/{work.task}/attempts/1/logs"
    line = log_line(1000, "stderr", "no such file")
    await http.post(path, params={"chunk": 0, "first": 0}, content=line, headers=worker.sender)
    began_ms, ended_ms = 1_800_000_000_000, 1_800_000_001_500
    await worker.call(Failed(work.task, 1, "Boom", "it broke", True, 3, began_ms, ended_ms))
    [shown] = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]
    [attempt] = shown["attempts"]

    assert (shown["id"], attempt["attempt"], attempt["worker"]) == (str(work.task), 1, "w1")
    assert (attempt["started_at"], attempt["ended_at"]) == ("2027-01-15T08:00:00Z", "2027-01-15T08:00:01.500Z")
    assert (attempt["exit_code"], attempt["state"]) == (3, "failed")
    lines = (await http.get(attempt["log"])).json()["lines"]
    assert [one["text"] for one in lines] == ["no such file"]


@pytest.mark.proves("S001-110")
async def test_a_worker_has_its_labels_last_beat_and_capacity(http, engine):
    worker = Worker(http, "gpu-1", credit=7)
    await worker.call(profile=WorkerProfile(queues=("default",), labels={"gpu": "true"}, slots=7))
    before = (await http.get("/v1/workers")).json()["workers"][0]
    engine.workers.registered["gpu-1"].session.heard_ms -= 5_000
    later = (await http.get("/v1/workers")).json()["workers"][0]
    await worker.call()
    beaten = (await http.get("/v1/workers")).json()["workers"][0]

    assert (before["id"], before["labels"], before["credit"]) == ("gpu-1", {"gpu": "true"}, 7)
    heard = [datetime.fromisoformat(one["last_heard_at"]) for one in (before, later, beaten)]
    assert heard[1] < heard[0] - timedelta(seconds=4) and heard[2] >= heard[0]
