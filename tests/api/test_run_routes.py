"""Runs over HTTP: submitted, worked on, found, decided."""

import msgspec
import pytest

from api.scripted_worker import MSGPACK, Worker, flow, publish, submit, task
from tickwork.cli.output import tinted


@pytest.mark.proves("S001-114", "S001-32")
async def test_a_submitted_run_is_worked_on_and_found(http):
    await publish(http, flow())
    run_id = await submit(http)
    worker = Worker(http)
    [work] = await worker.work()
    await worker.finish(work, value={"said": "hello"})

    run = (await http.get(f"/v1/runs/{run_id}")).json()
    assert (run["state"], run["tasks_total"], run["tasks"][0]["attempts"][0]["worker"]) == ("completed", 1, "w1")
    assert run["tasks"][0]["result"] == {"said": "hello"}


async def test_a_child_is_found_however_deep_it_lies(http):
    name = "n" * 100
    inner = flow("inner")
    middle = flow("middle", {"kind": "workflow", "id": name, "workflow": "inner"})
    outer = flow("outer", {"kind": "workflow", "id": name, "workflow": "middle"})
    await publish(http, inner, middle, outer)
    await submit(http, "outer", id="r" * 255)
    await Worker(http).work()
    [deepest] = (await http.get("/v1/runs?workflow=inner")).json()["runs"]
    found = await http.get(f"/v1/runs/{deepest['id']}")

    assert len(deepest["id"]) > 450
    assert (found.status_code, found.json()["workflow"]) == (200, "inner")
    assert (await http.get(f"/v1/runs/{'x' * 8_193}")).status_code == 404


async def test_a_submission_may_say_what_its_workflow_says_otherwise(http):
    await publish(http, flow())
    own = {"timeout_ms": 3_600_000, "queue": "default", "retry": {"attempts": 2, "delay_ms": 1}}
    accepted = await http.post("/v1/runs", json={"workflow": "greet", "id": "own", **own})
    assert accepted.status_code == 201
    for field, wrong in (("timeout_ms", 0), ("queue", "nobody"), ("retry", {"attempts": 0}), ("retry", {"tries": 2})):
        refused = await http.post("/v1/runs", json={"workflow": "greet", field: wrong})
        assert 400 <= refused.status_code < 500 and field in refused.text


async def test_one_submission_answers_with_its_place(http):
    await publish(http, flow())
    answer = await http.post("/v1/runs", json={"workflow": "greet"})

    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/runs/{answer.json()['id']}"
    assert (await http.get(answer.headers["location"])).json()["by"] == "api"


async def test_the_same_key_gives_the_same_run_and_another_body_a_conflict(http):
    await publish(http, flow(inputs={"n": {"type": "integer", "required": False}}))
    first = await http.post("/v1/runs", json={"workflow": "greet"}, headers={"idempotency-key": "k"})
    again = await http.post("/v1/runs", json={"workflow": "greet", "key": "k"})
    other = await http.post("/v1/runs", json={"workflow": "greet", "inputs": {"n": 1}, "key": "k"})
    both = await http.post("/v1/runs", json={"workflow": "greet", "key": "x"}, headers={"idempotency-key": "k"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"] and again.json()["duplicate"] is True
    assert (other.status_code, other.json()["code"]) == (409, "key_reused")
    assert both.status_code == 201, "a key in the body goes before the header"


async def test_a_debounced_submission_joins_the_run_that_still_waits(http):
    await publish(http, flow(inputs={"n": {"type": "integer"}}))
    waits = {"workflow": "greet", "debounce": "d", "delay_ms": 60_000, "at_most_ms": 90_000}
    first, again = [await http.post("/v1/runs", json=waits | {"inputs": {"n": n}}) for n in (1, 2)]
    refused = await http.post("/v1/runs", json=waits | {"inputs": {"n": 3}, "at_most_ms": 5})

    assert (first.status_code, again.status_code) == (201, 200)
    run = (await http.get(f"/v1/runs/{first.json()['id']}")).json()
    assert (again.json()["id"], run["state"], run["inputs"]) == (run["id"], "pending", {"n": 2})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_at_most")


async def test_a_batch_accepts_and_refuses_one_by_one(http):
    await publish(http, flow())
    runs = [{"workflow": "greet"}, {"workflow": "nobody"}, {"workflow": "greet", "id": "mine"}]
    answer = (await http.post("/v1/runs/batch", json={"runs": runs})).json()["runs"]

    assert [one["outcome"] for one in answer] == ["accepted", "rejected", "accepted"]
    assert answer[1]["code"] == "unknown_workflow" and answer[2]["id"] == "mine"


async def test_msgpack_bodies_and_answers(http):
    await publish(http, flow())
    headers = MSGPACK | {"accept": "application/msgpack"}
    one = await http.post("/v1/runs", content=msgspec.msgpack.encode({"workflow": "greet"}), headers=headers)
    many = await http.post(
        "/v1/runs/batch", content=msgspec.msgpack.encode({"runs": [{"workflow": "greet"}] * 2}), headers=headers
    )

    assert one.status_code == 201 and msgspec.msgpack.decode(one.content)["outcome"] == "accepted"
    assert len(msgspec.msgpack.decode(many.content)["runs"]) == 2


@pytest.mark.proves("S001-33")
async def test_pages_show_every_run_once_newest_first(http):
    await publish(http, flow())
    ids = [await submit(http) for _ in range(7)]
    seen, cursor = [], ""
    while True:
        page = (await http.get("/v1/runs", params={"limit": 3} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [run["id"] for run in page["runs"]]
        cursor = page.get("next", "")
        if not cursor:
            break

    assert seen == ids[::-1]


@pytest.mark.parametrize(
    ("first", "second", "path", "words"),
    [
        ({"id": "mine"}, {"id": "mine", "priority": 3}, "id", "the id mine was used for a different request"),
        ({"key": "k"}, {"key": "k", "priority": 3}, "key", "key k was used for a different request"),
        ({}, {"inputs": {"n": "one"}}, "inputs.n", "a value of type integer is expected"),
    ],
)
async def test_what_the_machine_refuses_says_which_field_and_why(http, first, second, path, words):
    await publish(http, flow(inputs={"n": {"type": "integer", "required": False}}))
    await submit(http, **first)
    alone = (await http.post("/v1/runs", json={"workflow": "greet", **second})).json()
    [among] = (await http.post("/v1/runs/batch", json={"runs": [{"workflow": "greet", **second}]})).json()["runs"]

    for refused in (alone, among):
        assert refused["path"] == path and refused["detail"].startswith(words), refused


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/batch"])
async def test_a_key_in_the_header_fits_one_run_and_many(http, path):
    await publish(http, flow())
    body = {"workflow": "greet"} if path == "/v1/runs" else {"runs": [{"workflow": "greet"}] * 1_000}
    fits = await http.post(path, json=body, headers={"idempotency-key": "k" * 250})
    longer = await http.post(path, json=body, headers={"idempotency-key": "k" * 251})

    assert fits.status_code in (200, 201) and "rejected" not in fits.text
    assert (longer.status_code, longer.json()["path"]) == (422, "header.idempotency-key")


async def test_a_deed_that_comes_too_late_names_the_run(http):
    await publish(http, flow())
    run_id = await submit(http)
    await http.post(f"/v1/runs/{run_id}/cancel")
    late = await http.post(f"/v1/runs/{run_id}/cancel")

    assert (late.status_code, late.json()["path"]) == (409, "run")
    assert (await http.get("/v1/runs/nobody")).json()["path"] == "run"


@pytest.mark.proves("B22")
async def test_a_cursor_belongs_to_the_list_that_it_came_from(http):
    await publish(http, flow())
    for _ in range(5):
        await submit(http)
    cursor = (await http.get("/v1/runs?limit=2&workflow=greet")).json()["next"]

    assert len((await http.get(f"/v1/runs?limit=1&workflow=greet&cursor={cursor}")).json()["runs"]) == 1
    place, _, seal = cursor.partition("~")
    for query in (
        f"cursor={cursor}",
        f"workflow=greet&state=failed&cursor={cursor}",
        f"workflow=greet&cursor={place}",
        f"workflow=greet&cursor=b1~{seal}",
        f"workflow=greet&cursor={cursor}0",
    ):
        answer = await http.get(f"/v1/runs?{query}")
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_cursor"), query


@pytest.mark.proves("B22")
async def test_a_cursor_by_name_belongs_to_its_list_too(http):
    await publish(http, flow(), schedules={f"s{n}": {"workflow": "greet", "every": "1h"} for n in range(3)})
    for n in range(3):
        await http.put(f"/v1/endpoints/e{n}", json={"url": "https://example.org/", "every": "1h"})
    schedules = (await http.get("/v1/schedules?limit=2")).json()["next"]
    endpoints = (await http.get("/v1/endpoints?limit=2")).json()["next"]

    for path in (
        f"/v1/schedules?cursor={endpoints}",
        f"/v1/schedules?archived=true&cursor={schedules}",
        "/v1/schedules?cursor=s1",
        f"/v1/endpoints?cursor={schedules}",
        f"/v1/endpoints/e1/runs?cursor={endpoints}",
    ):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_cursor"), path


async def test_a_form_shows_its_fields_and_checks_the_answer(http):
    fields = {"how": {"type": "string", "enum": ["all", "some"]}, "n": {"type": "integer", "default": 2}}
    await publish(http, flow("ask", {"kind": "approval", "id": "form", "message": "How?", "fields": fields}))
    run_id = await submit(http, "ask")
    [task] = (await http.get(f"/v1/runs/{run_id}")).json()["tasks"]
    assert (task["fields"], task["message"]) == (fields, "How?")

    path = f"/v1/runs/{run_id}/approvals/form"
    for values, code, at in (
        ({}, "missing_field", "values.how"),
        ({"how": "none"}, "wrong_value", "values.how"),
        ({"how": "all", "n": 1.5}, "wrong_type", "values.n"),
        ({"how": "x" * 2_000}, "value_too_large", "values"),
    ):
        answer = await http.post(path, json={"approve": True, "values": values})
        assert (answer.status_code, answer.json()["code"], answer.json()["path"]) == (422, code, at)
    assert (await http.post(path, json={"approve": True, "values": {"how": "all"}})).status_code == 204
    run = (await http.get(f"/v1/runs/{run_id}")).json()
    assert run["tasks"][0]["result"] == {"how": "all", "n": 2, "by": "api", "comment": ""}
    why = (await http.get(f"/v1/runs/{run_id}/why")).json()
    assert any("filled in by api" in step["text"] for step in why["steps"])


async def test_what_waits_for_a_person_is_listed_newest_first(http):
    form = {"kind": "approval", "id": "form", "message": "How, ${inputs.who}?", "fields": {"how": {"type": "string"}}}
    plain = {"kind": "approval", "id": "ok", "approvers": ["eve"], "four_eyes": True, "timeout": "2h"}
    inputs = {"who": {"type": "string"}}
    await publish(http, flow("ask", form, inputs=inputs), flow("release", plain), flow("none"))
    first, second, _ = [
        await submit(http, name, **more)
        for name, more in (("ask", {"inputs": {"who": "Ada"}}), ("release", {}), ("none", {}))
    ]

    waiting = (await http.get("/v1/inbox")).json()["entries"]
    assert [(entry["run"], entry["node"]) for entry in waiting] == [(second, "ok"), (first, "form")]
    assert [entry["kind"] for entry in waiting] == ["approval", "form"]
    assert waiting[0]["approvers"] == ["eve"] and waiting[0]["not_by"] == "api" and waiting[0]["due_at"]
    assert waiting[1]["message"] == "How, Ada?" and waiting[1]["fields"] == {"how": {"type": "string"}}
    assert (await http.get("/v1/inbox?workflow=none")).json() == {"entries": []}
    assert (await http.get("/v1/inbox?limit=1")).json()["more"] is True
    for filtered, runs in (("kind=form", [first]), ("person=ann", [first]), ("person=eve", [second, first])):
        assert [entry["run"] for entry in (await http.get(f"/v1/inbox?{filtered}")).json()["entries"]] == runs
    assert (await http.get("/v1/inbox?person=api")).json()["entries"][0]["run"] == first, "four eyes: not by this one"
    assert (await http.get("/v1/inbox?kind=nothing")).status_code == 422

    await http.post(f"/v1/runs/{first}/approvals/form", json={"approve": True, "values": {"how": "so"}})
    await http.post(f"/v1/runs/{second}/cancel", json={})
    assert (await http.get("/v1/inbox")).json()["entries"] == []


async def test_paused_and_failed_runs_are_in_the_inbox_until_somebody_answers(http):
    await publish(http, flow("greet", task("hello", retry=1)))
    failed, paused = await submit(http), await submit(http)
    worker = Worker(http)
    works = {work.run_id: work for work in await worker.work(2)}
    await worker.fail(works[failed])
    await http.post(f"/v1/runs/{paused}/pause", json={"reason": "the budget is spent"})

    entries = (await http.get("/v1/inbox")).json()["entries"]
    assert [(entry["kind"], entry["run"]) for entry in entries] == [("paused", paused), ("failed", failed)]
    assert entries[0]["message"] == "the budget is spent" and "it broke" in entries[1]["message"]
    await http.post(f"/v1/runs/{paused}/resume")
    await http.post(f"/v1/runs/{failed}/resolve", json={"reason": "it was right", "decisions": {"hello": "accept"}})
    assert (await http.get("/v1/inbox")).json()["entries"] == []


async def test_a_failed_run_is_retried_and_cancelled(http):
    await publish(http, flow("greet", task("hello", retry=1)))
    run_id = await submit(http)
    worker = Worker(http)
    await worker.fail(*await worker.work())
    failed = (await http.get(f"/v1/runs/{run_id}")).json()
    assert failed["state"] == "failed"

    assert (await http.post(f"/v1/runs/{run_id}/retry")).status_code == 204
    await worker.work()
    assert (await http.post(f"/v1/runs/{run_id}/cancel", json={"reason": "enough"})).status_code == 204
    again = await http.post(f"/v1/runs/{run_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "illegal_move")
    assert (await http.get("/v1/runs", params={"state": "cancelled"})).json()["runs"][0]["id"] == run_id


async def test_a_child_of_a_map_that_is_tried_again_has_not_failed(http):
    body = {"kind": "task", "handler": "work", "retry": {"attempts": 2, "delay_ms": 60_000}}
    each = {"kind": "map", "id": "each", "over": "inputs.all", "body": body}
    await publish(http, flow("greet", each, inputs={"all": {"type": "array"}}))
    run_id = await submit(http, inputs={"all": [1]})
    worker = Worker(http)
    await worker.fail(*await worker.work(), permanent=False)

    (child,) = [one for one in (await http.get(f"/v1/runs/{run_id}")).json()["tasks"] if one.get("child") == 0]
    assert child["state"] == "backoff" and child["attempts"][0]["state"] == "failed" and child["due_at"]
    assert "retrying" in tinted(child["state"])


async def test_the_output_comes_whole_in_either_form(http):
    await publish(http, flow(output="nodes.hello"))
    run_id = await submit(http)
    worker = Worker(http)
    await worker.finish(*await worker.work(), value=["x" * 100_000])

    shown = (await http.get(f"/v1/runs/{run_id}")).json()
    assert "output" not in shown and shown["output_size"] > 100_000
    assert (await http.get(f"/v1/runs/{run_id}/output")).json() == ["x" * 100_000]
    packed = await http.get(f"/v1/runs/{run_id}/output", headers={"accept": "application/msgpack"})
    assert msgspec.msgpack.decode(packed.content) == ["x" * 100_000]


@pytest.mark.proves("I27")
async def test_a_batch_sent_again_makes_nothing_twice(http):
    await publish(http, flow())
    body, key = {"runs": [{"workflow": "greet"}, {"workflow": "greet", "id": "mine"}]}, {"Idempotency-Key": "batch-1"}

    first = (await http.post("/v1/runs/batch", json=body, headers=key)).json()["runs"]
    again = (await http.post("/v1/runs/batch", json=body, headers=key)).json()["runs"]

    assert [one["id"] for one in again] == [one["id"] for one in first] and len({one["id"] for one in first}) == 2
    assert len((await http.get("/v1/runs")).json()["runs"]) == 2


@pytest.mark.parametrize("size", [2_000, 2_000_000])
async def test_an_event_of_any_size_reaches_the_run_that_waits_for_it(http, size):
    await publish(http, flow("order", {"kind": "event", "id": "paid", "event": "paid"}, output="nodes.paid"))
    run_id = await submit(http, "order")
    heard = await http.post("/v1/events", json={"event": "paid", "payload": {"text": "x" * size}})
    output = await http.get(f"/v1/runs/{run_id}/output")

    assert (heard.status_code, heard.json()["waiting"]) == (200, 1)
    assert (output.status_code, output.json()) == (200, {"text": "x" * size})


async def test_an_event_over_the_limit_is_refused_with_it(http):
    answer = await http.post("/v1/events", json={"event": "paid", "payload": "x" * (16 << 20)})

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert str(16 << 20) in answer.json()["detail"]
