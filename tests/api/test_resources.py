"""Workflows, schedules, queues, workers, artifacts, tasks, logs, journal, status."""

import msgspec
import pytest

from api.scripted_worker import MSGPACK, Worker, flow, log_line, publish, submit, task
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest
from tickwork.journal.export import read
from tickwork.journal.replay import replay
from tickwork.ports.artifacts import digest_of
from tickwork.protocol.worker_messages import Call, Succeeded, WorkerProfile, encoder

NDJSON = {"content-type": "application/x-ndjson"}
OCTETS = {"content-type": "application/octet-stream"}


async def test_a_workflow_is_published_shown_paused_and_resumed(http):
    [published] = await publish(http, flow(description="says hello"))
    shown = (await http.get("/v1/workflows/greet")).json()

    assert shown["definition"] == published["definition"] and shown["document"] == flow(description="says hello")
    assert [(await http.post("/v1/workflows/greet/pause")).status_code for _ in range(2)] == [204, 409]
    assert (await http.get("/v1/workflows")).json()["workflows"][0]["paused"] is True
    assert (await http.post("/v1/workflows/greet/resume")).status_code == 204
    assert (await http.get("/v1/workflows/nobody")).json()["code"] == "unknown_workflow"


@pytest.mark.proves("S001-124")
async def test_what_running_tasks_take_of_a_worker_is_shown_and_what_it_lacks_is_reported(http):
    fits = task("fits", resources={"cpu_milli": 500, "gpu": 1})
    await publish(http, flow("fits", fits), flow("large", task("large", resources={"memory_mb": 64}), fits))
    worker = Worker(http)
    await worker.call(profile=WorkerProfile(queues=("default",), cpu_milli=4_000, memory_mb=32, gpu=1), held=())
    await submit(http, "fits")
    [work] = await worker.work()
    submitted = (await http.post("/v1/runs", json={"workflow": "large"})).json()

    [shown] = (await http.get("/v1/workers")).json()["workers"]
    assert shown["resources"] == {"slots": 10, "cpu_milli": 4_000, "memory_mb": 32, "gpu": 1}
    assert shown["in_use"] == {"slots": 1, "cpu_milli": 500, "gpu": 1}
    [warning] = submitted["warnings"]
    assert warning.startswith("large wants memory 64 MB, and")
    assert warning.endswith("w1 comes nearest with memory 32 MB")
    run = (await http.get(f"/v1/runs/{submitted['id']}")).json()
    assert ["comes nearest" in one.get("reason", "") for one in run["tasks"]] == [True, False]
    await worker.finish(work)
    assert "warnings" not in (await http.post("/v1/runs", json={"workflow": "fits"})).json()


async def test_a_publication_is_all_or_nothing(http):
    good = {"workflow": "greet", "every": "5m"}
    for schedules in (
        {"good": good, "worse": {"workflow": "nobody", "every": "5m"}},
        {"good": good, "worse": {"workflow": "greet", "cron": "61 * * * *"}},
        {"good": good, "worse": {"workflow": "greet", "every": "5m", "inputs": {"x": 1}}},
        {"good": good, "bad name": {"workflow": "greet", "every": "5m"}},
        {"good": good, "worse": {"workflow": "greet"}},
    ):
        answer = await http.put("/v1/workflows", json={"documents": [flow()], "schedules": schedules})

        assert answer.status_code in (404, 422), answer.text
        assert (await http.get("/v1/workflows")).json()["workflows"] == []


async def test_a_publication_answers_with_its_own_schedules(http):
    often = {"workflow": "greet", "every": "5m"}
    [first] = await publish(http, flow(), schedules={"b": often, "a": often})
    [second] = await publish(http, schedules={"c": often})
    [every] = (await http.get("/v1/workflows")).json()["workflows"]

    assert [one["schedules"] for one in (first, second, every)] == [["a", "b"], ["c"], ["a", "b", "c"]]


async def test_an_invalid_definition_names_every_problem(http):
    answer = await http.put("/v1/workflows", json={"documents": [flow("greet", task("a", needs=["x"]), task("a"))]})

    assert answer.status_code == 422 and answer.headers["content-type"] == "application/problem+json"
    assert len(answer.json()["problems"]) >= 2 and {"path", "code", "message"} == set(answer.json()["problems"][0])


@pytest.mark.parametrize("document", [flow(policy=["gate"]), flow("greet", task("a", policy=["gate"]))])
async def test_a_workflow_whose_policy_does_not_exist_is_refused_when_it_is_published(http, document):
    answer = await http.put("/v1/workflows", json={"documents": [document]})

    assert answer.status_code == 422 and answer.json()["code"] == "policy_missing"
    assert "the policy gate does not exist" in answer.json()["detail"]


async def test_a_schedule_is_put_paused_and_removed(http):
    await publish(http, flow())
    assert (await http.put("/v1/schedules/often", json={"workflow": "greet", "every": "1h"})).status_code == 200
    [shown] = (await http.get("/v1/schedules")).json()["schedules"]
    assert shown["next_at"] and shown["expression"] == "every 1h"
    assert (await http.post("/v1/schedules/often/pause")).status_code == 204
    assert (await http.post("/v1/schedules/often/resume")).status_code == 204
    assert (await http.delete("/v1/schedules/often")).status_code == 204
    assert (await http.delete("/v1/schedules/often")).status_code == 404


async def test_a_queue_is_declared_and_paused(http):
    assert (await http.put("/v1/queues/gpu", json={"limit": 2, "rate": 5, "per": "1m"})).status_code == 204
    assert (await http.post("/v1/queues/gpu/pause", json={"reason": "repair"})).status_code == 204

    queues = {one["name"]: one for one in (await http.get("/v1/queues")).json()["queues"]}
    assert queues["gpu"]["limit"] == 2 and queues["gpu"]["paused"] is True
    assert (await http.post("/v1/queues/gpu/resume")).status_code == 204


async def test_a_rate_says_how_it_is_counted(http):
    for name, window in (("exact", {"window": "sliding"}), ("even", {})):
        assert (await http.put(f"/v1/queues/{name}", json={"rate": 5, "per": "2s"} | window)).status_code == 204
    refused = await http.put("/v1/queues/exact", json={"rate": 5, "burst": 9, "window": "sliding"})

    queues = {one["name"]: one for one in (await http.get("/v1/queues")).json()["queues"]}
    assert (queues["exact"]["window"], queues["exact"].get("burst")) == ("sliding", None)
    assert (queues["even"]["window"], queues["even"]["burst"]) == ("bucket", 5)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_rate")
    assert "no burst" in refused.json()["detail"]


async def test_workers_are_listed(http):
    await Worker(http, "w9").call()

    [worker] = (await http.get("/v1/workers")).json()["workers"]
    assert (worker["id"], worker["host"], worker["pid"], worker["credit"]) == ("w9", "here", 7, 10)


async def test_a_call_that_names_another_worker_is_refused(http):
    call = encoder.encode(Call("other", "s", 1, profile=WorkerProfile(), held=()))
    answer = await http.post("/v1/workers/w1/exchange", content=call, headers=MSGPACK)

    assert (answer.status_code, answer.json()["code"]) == (422, "wrong_worker")


@pytest.mark.proves("B18")
async def test_an_artifact_is_stored_under_its_own_digest_only(http):
    data = b"large" * 1000
    path = f"/v1/artifacts/{digest_of(data)}"

    assert (await http.get(path)).json()["code"] == "unknown_artifact"
    assert (await http.put(path, content=data + b"!", headers=OCTETS)).json()["code"] == "digest_mismatch"
    assert (await http.put(path, content=data, headers=OCTETS)).status_code == 201
    got = await http.get(path)
    assert (got.content, got.headers["content-disposition"]) == (data, "attachment")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert (await http.get("/v1/artifacts/..%2f..%2fetc")).status_code == 404
    assert (await http.get("/v1/artifacts/" + "g" * 64)).json()["code"] == "bad_digest"


@pytest.mark.proves("S001-115", "S001-34", "S001-18")
async def test_logs_come_in_chunks_and_go_out_in_order(http):
    await publish(http, flow())
    run_id = await submit(http)
    worker = Worker(http)
    [work] = await worker.work()
    path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
    first = log_line(1000, "stdout", "one") + log_line(2000, "stderr", "two")
    second = log_line(3000, "log", "three")
    for chunk, line, data in ((0, 0, first), (0, 0, first), (1, 2, second)):
        answer = await http.post(path, params={"chunk": chunk, "first": line}, content=data, headers=worker.sender)
        assert answer.status_code == 204, answer.text
    await worker.finish(work)

    lines = (await http.get(f"/v1/runs/{run_id}/logs")).json()["lines"]
    assert [line["text"] for line in lines] == ["one", "two", "three"]
    assert lines[0] | {"at": "1970-01-01T00:00:01Z", "node": "hello", "attempt": 1, "stream": "stdout"} == lines[0]
    assert len((await http.get(f"/v1/runs/{run_id}/logs", params={"node": "hello"})).json()["lines"]) == 3
    nobody = await http.get(f"/v1/runs/{run_id}/logs", params={"node": "nobody"})
    assert (nobody.status_code, nobody.json()["code"]) == (404, "unknown_node")
    assert len((await http.get(f"/v1/tasks/{work.task}/logs", params={"attempt": 1})).json()["lines"]) == 3
    wrong = await http.post(path, params={"chunk": 2, "first": 3}, content=b"what\n", headers=worker.sender)
    assert (wrong.status_code, wrong.json()["code"]) == (422, "bad_log_chunk")


@pytest.mark.proves("S001-115", "S001-34")
async def test_a_run_that_is_tried_again_keeps_its_log_and_gets_more(http, engine):
    await publish(http, flow("greet", task("hello", retry=1)))
    run_id = await submit(http)
    worker = Worker(http)
    for life in ("one", "two", "three"):
        [work] = await worker.work()
        path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
        for chunk in (0, 0, 1, 1):  # each is sent again, as where an answer was lost
            data = log_line(1000, "stdout", f"{life} {chunk}")
            sent = await http.post(path, params={"chunk": chunk, "first": chunk}, content=data, headers=worker.sender)
            assert sent.status_code == 204
            engine.context.logs._offsets.clear()  # another node is asked, or the server was started again
        await worker.fail(work)
        await http.post(f"/v1/runs/{run_id}/retry")

    told = [f"{life} {chunk}" for life in ("one", "two", "three") for chunk in (0, 1)]
    for path in (f"/v1/runs/{run_id}/logs", f"/v1/tasks/{work.task}/logs"):
        assert [line["text"] for line in (await http.get(path)).json()["lines"]] == told


@pytest.mark.proves("B23")
@pytest.mark.parametrize(("attempt", "chunk"), [(2**31, 0), (10**17, 0), (1, 2**31), (1, 2**53)])
async def test_a_log_chunk_with_a_number_that_no_store_can_keep_is_refused(http, attempt, chunk):
    path, params = f"/v1/tasks/1/attempts/{attempt}/logs", {"chunk": chunk, "first": 0}
    answer = await http.post(path, params=params, content=log_line(1, "stdout", "x"), headers=NDJSON)

    assert answer.status_code in (404, 422), answer.text


@pytest.mark.proves("S001-115")
async def test_the_log_of_a_task_has_all_its_attempts(http):
    await publish(http, flow("greet", task("hello", retry={"attempts": 30, "delay_ms": 1, "delay_ms_max": 1})))
    await submit(http)
    worker = Worker(http)
    for number in range(22):
        [work] = await worker.work()
        path = f"/v1/tasks/{work.task}/attempts/{work.attempt}/logs"
        data = log_line(1000 * number, "stdout", f"try {work.attempt}")
        await http.post(path, params={"chunk": 0, "first": 0}, content=data, headers=worker.sender)
        await worker.fail(work, permanent=False)

    lines = (await http.get(f"/v1/tasks/{work.task}/logs")).json()["lines"]
    assert [line["text"] for line in lines] == [f"try {number}" for number in range(1, 23)]


@pytest.mark.proves("B6")
@pytest.mark.parametrize("number", [0, 10**6, 10**17, "9" * 30, "x"])
async def test_the_log_of_a_task_that_never_was_is_not_found(http, number):
    await publish(http, flow())
    await submit(http)
    answer = await http.get(f"/v1/tasks/{number}/logs")

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_task")


@pytest.mark.proves("S001-116", "S001-117", "S001-30")
async def test_a_task_is_retried_and_cancelled(http):
    await publish(http, flow("greet", task("hello", retry=1)))
    run_id = await submit(http)
    worker = Worker(http)
    [work] = await worker.work()
    assert (await http.post(f"/v1/tasks/{work.task}/retry")).json()["code"] == "illegal_move"
    await worker.fail(work)

    assert (await http.post(f"/v1/tasks/{work.task}/retry")).status_code == 204
    [again] = await worker.work()
    assert (await http.post(f"/v1/tasks/{again.task}/cancel")).status_code == 204
    assert (await http.get(f"/v1/runs/{run_id}")).json()["error"] == "hello: cancelled: by api"
    assert (await http.post(f"/v1/tasks/{again.task}/cancel")).json()["code"] == "illegal_move"
    assert (await http.post("/v1/tasks/999999999/cancel")).json()["code"] == "unknown_task"


async def test_an_approval_is_decided_by_whoever_may(http):
    await publish(http, flow("greet", {"kind": "approval", "id": "ok", "approvers": ["ann"]}))
    run_id = await submit(http)
    path = f"/v1/runs/{run_id}/approvals/ok"

    assert (await http.post(path, json={"approve": True})).json()["code"] == "not_entitled"
    by_ann = {"x-tickwork-by": "ann"}
    assert (await http.post(path, json={"approve": True, "comment": "fine"}, headers=by_ann)).status_code == 204
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "completed"


async def test_what_was_decided_before_is_a_conflict_that_says_what_it_is_now(http):
    approval = {"kind": "approval", "id": "ok"}
    await publish(http, flow("short", approval), flow("long", approval, task("hello", needs=["ok"], retry=1)))
    short, long = await submit(http, "short"), await submit(http, "long")
    for run in (short, long):
        assert (await http.post(f"/v1/runs/{run}/approvals/ok", json={"approve": True})).status_code == 204

    async def refusal(path, **body):
        answer = await http.post(path, json=body)
        return answer.status_code, answer.json()["code"], answer.json()["detail"]

    status, code, detail = await refusal(f"/v1/runs/{short}/approvals/ok", approve=True)
    assert (status, code) == (409, "run_ended") and "COMPLETED" in detail
    status, code, detail = await refusal(f"/v1/runs/{long}/approvals/ok", approve=False)
    assert (status, code) == (409, "already_decided") and "SUCCEEDED" in detail
    status, code, detail = await refusal(f"/v1/runs/{long}/rerun")
    assert (status, code) == (409, "illegal_move") and "has not ended" in detail
    worker = Worker(http)
    [work] = await worker.work()
    await worker.fail(work)
    for path in (f"/v1/runs/{long}/retry", f"/v1/tasks/{work.task}/retry", f"/v1/runs/{short}/retry"):
        if path.startswith(f"/v1/runs/{long}"):
            assert (await http.post(path)).status_code == 204
        assert (await refusal(path))[:2] == (409, "illegal_move"), path
    assert (await refusal("/v1/runs/never/approvals/ok", approve=True))[:2] == (404, "unknown_run")


async def test_an_event_reaches_the_run_that_waits(http):
    await publish(http, flow("greet", {"kind": "event", "id": "paid", "event": "order.paid"}))
    run_id = await submit(http)

    nobody = await http.post("/v1/events", json={"event": "order.paid", "key": "another"})
    answer = await http.post("/v1/events", json={"event": "order.paid", "run": run_id, "payload": {"sum": 3}})
    assert (nobody.json().get("waiting", 0), answer.status_code, answer.json()["waiting"]) == (0, 200, 1)
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "completed"


async def test_pause_resume_resolve_and_rerun(http):
    await publish(http, flow("greet", task("hello", retry=1)))
    run_id = await submit(http)
    assert (await http.post(f"/v1/runs/{run_id}/pause", json={"reason": "lunch"})).status_code == 204
    assert (await http.get(f"/v1/runs/{run_id}")).json()["reason"] == "lunch"
    assert (await http.post(f"/v1/runs/{run_id}/resolve")).json()["code"] == "illegal_move"
    assert (await http.post(f"/v1/runs/{run_id}/resume")).status_code == 204
    worker = Worker(http)
    await worker.fail(*await worker.work())
    decision = {"decisions": {"hello": "accept"}, "values": {"hello": 7}}
    assert (await http.post(f"/v1/runs/{run_id}/resolve", json=decision)).status_code == 204

    again = await http.post(f"/v1/runs/{run_id}/rerun", json={"from_node": "hello"})
    assert again.status_code == 201 and again.headers["location"] == f"/v1/runs/{again.json()['id']}"
    assert (await http.get(again.headers["location"])).json()["state"] == "active"


@pytest.mark.parametrize("body", [None, {"from_start": True}])
async def test_a_completed_run_is_run_again_from_the_start(http, body):
    await publish(http, flow("greet", task("hello"), task("there")))
    run_id = await submit(http)
    worker = Worker(http)
    await worker.finish(*await worker.work(2))
    assert (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "completed"

    again = await http.post(f"/v1/runs/{run_id}/rerun", json=body)
    assert again.status_code == 201
    found = (await http.get(again.headers["location"])).json()
    assert found["state"] == "active"
    assert {one["node"]: one["state"] for one in found["tasks"]} == {"hello": "running", "there": "running"}


async def test_why_tells_the_story_and_what_is_missing(http):
    await publish(http, flow())
    run_id = await submit(http)
    why = (await http.get(f"/v1/runs/{run_id}/why")).json()

    assert why["steps"][0]["text"].startswith("submitted")
    assert any("hello" in line and "worker" in line for line in why["waiting_for"])
    assert (await http.get("/v1/runs/nobody/why")).status_code == 404


async def test_an_exported_journal_is_decided_again_offline(http, engine):
    await publish(http, flow())
    for _ in range(5):
        await submit(http)
    answer = await http.get("/v1/journal")
    chunks = [answer.content[at : at + 100] for at in range(0, len(answer.content), 100)]
    head, rows = read(chunks)
    machine = Machine(settings=head.settings)
    replay(rows, machine)

    assert digest(machine.state) == digest(engine.context.state)
    tail, rest = read([(await http.get("/v1/journal", params={"after": 3})).content])
    assert (tail.after, next(rest).seq) == (3, 4)
    assert (await http.get("/v1/journal", params={"after": 999999})).status_code == 404


@pytest.mark.proves("S001-19")
async def test_status_health_and_metrics(http, engine):
    await publish(http, flow())
    await submit(http)
    status = (await http.get("/v1/status")).json()

    assert (status["live_runs"], status["ready"], status["seq"] >= status["watermark"]) == (1, 1, True)
    assert (await http.get("/healthz")).json() == {"status": "alive"}
    assert (await http.get("/readyz")).json() == {"status": "ready"}
    text = (await http.get("/metrics")).text
    assert 'tickwork_runs{state="live"} 1.0' in text and "tickwork_commit_seconds_bucket" in text
    assert "tickwork_inputs_total" in text


async def test_a_full_store_is_not_ready_and_says_why(http, engine):
    await publish(http, flow())
    engine.context.partition.writer.full = True

    ready, submitted = await http.get("/readyz"), await http.post("/v1/runs", json={"workflow": "greet"})
    assert (ready.status_code, ready.json()["code"]) == (503, "not_ready") and "no space" in ready.json()["detail"]
    assert (submitted.status_code, submitted.json()["code"]) == (507, "store_full")
    assert int(submitted.headers["retry-after"]) >= 1
    engine.context.partition.writer.full = False


async def test_what_a_worker_returns_is_shown_whatever_it_is(http):
    await publish(http, flow(output="nodes.hello"))
    for value in (b"\xc1garbage", msgspec.msgpack.encode({1: 2}), msgspec.msgpack.encode(float("nan"))):
        run_id = await submit(http)
        worker = Worker(http, f"w{value[0]}")
        [work] = await worker.work()
        await worker.call(Succeeded(work.task, work.attempt, value))

        shown, output = await http.get(f"/v1/runs/{run_id}"), await http.get(f"/v1/runs/{run_id}/output")
        assert (shown.status_code, output.status_code in (200, 406)) == (200, True), (shown.text, output.text)
        await worker.call(goodbye=True)


async def test_a_held_step_of_the_clock_is_shown_and_can_be_confirmed(http, engine, monkeypatch):
    clock, now_ms = engine.context.clock, engine.context.clock.wall_ms
    monkeypatch.setattr(clock, "wall_ms", lambda: now_ms() + 3_600_000)
    status = (await http.get("/v1/status")).json()["clock"]
    assert (status["state"], round(status["step_ms"], -4)) == ("held", 3_600_000)
    [warning] = (await http.get("/readyz")).json()["warnings"]
    assert "ahead of real time" in warning and "tickwork clock confirm" in warning

    assert (await http.post("/v1/clock/confirm")).status_code == 204
    assert (await http.get("/v1/status")).json()["clock"]["state"] == "steady"
    assert "warnings" not in (await http.get("/readyz")).json()
    assert engine.context.alarms.counts["clock_gap"] == 1
