"""Durable functions over HTTP: what they recorded and await is shown, and approvals reach them."""

import msgspec

from api.scripted_worker import Worker, publish, submit
from tickwork.protocol.worker_messages import (
    Await,
    FunctionHistory,
    StepEntry,
    Suspended,
    history_decoder,
    recorded_decoder,
)

FUNCTION = {"name": "order", "nodes": [{"kind": "task", "id": "order", "handler": "order", "durable": True}]}
TERMS = {"message": "12 rows", "approvers": ["api"], "four_eyes": False}


async def suspended(http, *awaits):
    await publish(http, FUNCTION)
    run_id = await submit(http, "order")
    worker = Worker(http)
    [work] = await worker.work()
    step = StepEntry(0, "reserve", "d", msgspec.msgpack.encode({"seat": 7}), at_ms=1, took_ms=3, cost=5)
    await worker.call(Suspended(work.task, work.attempt, (step,), awaits, started_ms=1, ended_ms=2))
    return run_id, worker


async def test_a_run_shows_the_steps_of_its_function_and_what_it_waits_for(http):
    waits = Await(1, "event", "paid", "d", 60_000, key="k1", line="app.py:9")
    run_id, _ = await suspended(http, waits, Await(2, "sleep", "", "d", 500_000))
    run = (await http.get(f"/v1/runs/{run_id}")).json()

    assert (run["state"], run["tasks"][0]["kind"]) == ("waiting", "durable")
    assert run["tasks"][0]["attempts"][0]["state"] == "suspended"
    assert [(step["name"], step["state"], step["value"]) for step in run["steps"]] == [
        ("reserve", "succeeded", {"seat": 7})
    ]
    assert [(one["kind"], one["name"], one.get("key", "")) for one in run["awaits"]] == [
        ("event", "paid", "k1"),
        ("sleep", "", ""),
    ]
    why = (await http.get(f"/v1/runs/{run_id}/why")).json()
    assert "event paid with key 'k1'" in msgspec.json.encode(why).decode()


async def test_an_approval_reaches_the_function_and_the_next_attempt_gets_the_history(http):
    run_id, worker = await suspended(http, Await(1, "approval", "ok", "d", value=msgspec.msgpack.encode(TERMS)))
    run = (await http.get(f"/v1/runs/{run_id}")).json()
    assert (run["awaits"][0]["message"], run["awaits"][0]["approvers"]) == ("12 rows", ["api"])

    [waiting] = (await http.get("/v1/inbox")).json()["entries"]
    assert (waiting["run"], waiting["node"]) == (run_id, "ok")
    answer = await http.post(f"/v1/runs/{run_id}/approvals/ok", json={"approve": True, "comment": "go"})
    assert answer.status_code == 204, answer.text
    [work] = await worker.work()
    history = msgspec.msgpack.decode(work.checkpoint, type=FunctionHistory)
    assert [(entry.position, entry.kind) for entry in history.entries] == [(0, "step"), (1, "approval")]
    assert msgspec.msgpack.decode(history.entries[1].value) == {"approved": True, "by": "api", "comment": "go"}


async def test_the_history_of_a_run_is_found_while_it_lives_and_afterwards(http):
    run_id, worker = await suspended(http, Await(1, "event", "paid", "d"))
    live = (await http.get(f"/v1/runs/{run_id}/history")).json()
    assert [step["position"] for step in live["steps"]] == [0] and live["awaits"][0]["name"] == "paid"

    await http.post("/v1/events", json={"event": "paid", "payload": {"sum": 3}})
    [work] = await worker.work()
    await worker.finish(work, value="done")
    ended = (await http.get(f"/v1/runs/{run_id}/history")).json()
    assert [(step["kind"], step["value"]) for step in ended["steps"]] == [
        ("step", {"seat": 7}),
        ("event", {"sum": 3}),
    ]
    first = ended["steps"][0]
    assert (first["attempt"], first["took_ms"], first["cost"], first["value_size"]) == (1, 3, 5, 7)
    assert ended["cost"] == 5
    raw = await http.get(f"/v1/runs/{run_id}/history", headers={"accept": "application/msgpack"})
    assert len(history_decoder.decode(recorded_decoder.decode(raw.content).history).entries) == 2


async def test_a_run_without_a_function_has_no_history(http):
    await publish(http, {"name": "plain", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]})
    run_id = await submit(http, "plain")
    answer = await http.get(f"/v1/runs/{run_id}/history")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_history")
    assert (await http.get("/v1/runs/nobody/history")).json()["code"] == "unknown_run"


async def test_a_run_is_shown_with_the_latest_attempts_and_a_count_of_the_earlier_ones(http):
    run_id, worker = await suspended(http, Await(1, "event", "paid", "d"))
    for position in range(2, 6):
        await http.post("/v1/events", json={"event": "paid"})
        [work] = await worker.work()
        await worker.call(
            Suspended(work.task, work.attempt, (), (Await(position, "event", "paid", "d"),), started_ms=1, ended_ms=2)
        )

    async def shown(**query):
        answer = await http.get(f"/v1/runs/{run_id}", params=query)
        assert answer.status_code == 200, answer.text
        [task] = answer.json()["tasks"]
        return [attempt["attempt"] for attempt in task["attempts"]], task.get("attempts_earlier", 0)

    assert await shown() == ([1, 2, 3, 4, 5], 0)
    assert await shown(attempts=2) == ([4, 5], 3)
    assert await shown(attempts=2, attempts_before=4) == ([2, 3], 1)
    assert await shown(attempts=2, attempts_before=2) == ([1], 0)
    await http.post("/v1/events", json={"event": "paid"})
    [work] = await worker.work()
    await worker.finish(work, value="done")
    assert await shown(attempts=2) == ([5, 6], 4)
    assert await shown(attempts=2, attempts_before=5) == ([3, 4], 2)
    assert (await http.get(f"/v1/runs/{run_id}", params={"attempts": 0})).status_code == 422
