"""Schedules that listen to events and to the ends of runs, through the application."""

import pytest

from api.scripted_worker import Worker, flow, publish
from api.test_schedules import get, put, refusal, until

CAUSED = {"event": {"type": "any", "required": False}, "because": {"type": "array", "required": False}}


@pytest.fixture
async def greet(http):
    await publish(http, flow(inputs=CAUSED))


async def send(http, event="order", key="", **body):
    headers = {"idempotency-key": key} if key else {}
    answer = await http.post("/v1/events", json={"event": event, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def runs(http):
    return (await get(http, "/v1/runs"))["runs"]


@pytest.mark.usefixtures("greet")
async def test_an_event_starts_a_run_and_the_sender_learns_it(http):
    told = await put(http, "orders", listen_to=[{"event": "order", "where": "event.total > 100"}])
    assert told["says"] == "on event order where event.total > 100" and "warnings" not in told

    assert "schedules" not in await send(http, payload={"total": 5})
    assert (await send(http, payload={"total": 500}))["schedules"] == 1

    (run,) = await runs(http)
    assert run["id"].startswith("sched-orders-")
    detail = await get(http, f"/v1/runs/{run['id']}")
    assert detail["inputs"]["event"] == {"total": 500}
    assert detail["inputs"]["because"][0]["name"] == "order"
    shown = await get(http, "/v1/schedules/orders")
    assert (shown["fates"], shown["updates"]["count"]) == ({"ran": 1}, 1)
    assert shown["request"]["listen_to"] == [{"event": "order", "where": "event.total > 100"}]
    why = await get(http, f"/v1/runs/{run['id']}/why")
    assert "schedule orders heard an update at" in str(why)


@pytest.mark.usefixtures("greet")
async def test_a_repeated_request_and_a_repeated_id_are_one_event(http):
    await put(http, "orders", listen_to=[{"event": "order"}])

    first = [await send(http, key="request-1"), await send(http, key="request-1")]
    second = [await send(http, id="o-1"), await send(http, id="o-1", key="request-2")]

    assert [answer.get("duplicate", False) for answer in (*first, *second)] == [False, True, False, True]
    assert len(await runs(http)) == 2


@pytest.mark.usefixtures("greet")
async def test_a_large_payload_is_filtered_and_given_to_the_run(http):
    await put(http, "large", listen_to=[{"event": "order", "where": "size(event.rows) == 900"}])
    await put(http, "other", listen_to=[{"event": "order", "where": "size(event.rows) == 1"}])
    rows = ["row"] * 900

    heard = await send(http, payload={"rows": rows}, id="o-1")

    (run,) = await runs(http)
    inputs = (await get(http, f"/v1/runs/{run['id']}"))["inputs"]
    assert (heard["schedules"], run["id"].startswith("sched-large-")) == (1, True)
    assert inputs["event"] == {"rows": rows}
    assert inputs["because"][0]["id"] == "o-1"


async def test_the_end_of_a_run_starts_one_and_what_is_missing_is_said(http, engine):
    await publish(http, flow(inputs=CAUSED), {**flow(), "name": "load"})
    worker = Worker(http)
    await put(http, "report", listen_to=[[{"ended": "load"}, {"event": "approved"}]], updates="coalesce")
    started = (await http.post("/v1/runs", json={"workflow": "load"})).json()["id"]
    await worker.finish(*await worker.work())

    async def heard():
        shown = await get(http, "/v1/schedules/report")
        return shown if shown["updates"].get("waiting") else None

    shown = await until(heard)
    assert [text.partition(": none since ")[0] for text in shown["updates"]["missing"]] == ["event approved"]
    await send(http, "approved")

    async def begun():
        return [run for run in await runs(http) if run["workflow"] == "greet"]

    (run,) = await until(begun)
    because = (await get(http, f"/v1/runs/{run['id']}"))["inputs"]["because"]
    assert [(cause["kind"], cause["name"]) for cause in because] == [("run", "load"), ("event", "approved")]
    assert because[0]["id"] == started
    assert engine.context.live.write_behind.ledger.differences == 0


@pytest.mark.usefixtures("greet")
@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"listen_to": [{"event": "order", "where": "event.("}]}, "bad_condition", "listen_to[0].where"),
        ({"listen_to": [{"event": "order", "where": "results.x"}]}, "bad_condition", "listen_to[0].where"),
        ({"listen_to": [{}]}, "bad_trigger", "listen_to[0]"),
        ({"listen_to": [{"asset": "a", "where": "true"}]}, "bad_trigger", "listen_to[0]"),
        ({"listen_to": [{"event": "a b"}]}, "name_characters", "listen_to[0].event"),
        ({"listen_to": [{"ended": "greet"}]}, "bad_trigger", "listen_to[0].ended"),
        (
            {"listen_to": [{"event": "a"}], "jitter": True, "max_runs": 1, "cron": "* * * * *"},
            "bad_trigger",
            "max_runs",
        ),
        ({"listen_to": [{"event": "a"}], "start": "2026-01-01T00:00:00Z"}, "bad_trigger", "start"),
        ({"cron": "* * * * *", "updates": "each"}, "bad_trigger", "updates"),
        ({}, "bad_schedule", "cron"),
    ],
)
async def test_a_trigger_that_cannot_work_is_refused_with_its_field(http, fields, code, path):
    answer = await http.put("/v1/schedules/s", json={"workflow": "greet", **fields})

    assert refusal(answer) == (422, code, path)


@pytest.mark.usefixtures("greet")
async def test_an_asset_is_listed_with_its_lineage_and_marked_as_updated_by_hand(http):
    await publish(http, flow("load", {"kind": "task", "id": "make", "handler": "work", "produces": ["orders"]}))
    await put(http, "report", listen_to=[{"asset": "orders"}])

    async def mark(**body):
        answer = await http.put("/v1/assets/orders", json=body, headers={"idempotency-key": "k-1"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert await mark(partition="01", details={"rows": 7}) == {"schedules": 1}
    assert await mark(partition="01", details={"rows": 7}) == {"duplicate": True}

    (listed,) = (await get(http, "/v1/assets"))["assets"]
    assert listed["produced_by"] == [{"workflow": "load", "node": "make"}]
    assert listed["consumed_by"] == [{"schedule": "report", "workflow": "greet"}]
    shown = await get(http, "/v1/assets/orders")
    assert [(update["partition"], update["details"]) for update in shown["updates"]] == [("01", {"rows": 7})]
    assert (await put(http, "report", listen_to=[{"asset": "orders"}]))["says"] == "on asset orders"

    async def begun():
        return await runs(http)

    (run,) = await until(begun)
    assert (await get(http, f"/v1/runs/{run['id']}"))["inputs"]["because"][0]["partition"] == "01"


async def test_what_is_no_asset_is_refused(http):
    assert refusal(await http.get("/v1/assets/nothing")) == (404, "unknown_asset", "asset")
    large = await http.put("/v1/assets/orders", json={"details": {"text": "x" * 2_000}})
    assert refusal(large) == (422, "value_too_large", "details")
    named = await http.put(
        "/v1/workflows", json={"documents": [flow("w", {**flow()["nodes"][0], "produces": ["a b"]})]}
    )
    assert named.status_code == 422
