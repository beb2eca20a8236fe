"""Versions of an application over HTTP: rollout, rollback, and what waits for a version that nobody has."""

import pytest

from api.scripted_worker import Worker, flow, submit, task
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.protocol.worker_messages import WorkerProfile


async def publish(http, version, node, *schedules, application="shop", **fields):
    wanted = {
        "documents": [flow("greet", task(node))],
        "schedules": {name: {"workflow": "greet", "cron": "0 0 1 1 *"} for name in schedules},
        "application": application,
        "version": version,
        **fields,
    }
    answer = await http.put("/v1/workflows", json=wanted)
    assert answer.status_code == 200, answer.text
    return answer.json()["latest_version"]


async def nodes(http):
    document = (await http.get("/v1/workflows/greet")).json()["document"]
    return [node["id"] for node in document["nodes"]]


async def names(http):
    return [one["name"] for one in (await http.get("/v1/schedules")).json()["schedules"]]


async def versions(http, application="shop"):
    found = (await http.get("/v1/versions", params={"application": application})).json()["versions"]
    return [(one["version_name"], one.get("latest", False)) for one in found]


@pytest.mark.proves("S004-55", "S004-56", "S004-57", "S004-58", "S004-59", "S004-61", "S001-184")
async def test_rollout_and_rollback(http):
    assert await publish(http, "v1", "one", "hourly") == "v1"
    assert await publish(http, "v2", "two", "daily") == "v2"
    assert await publish(http, "v1", "one", "hourly") == "v2", "an older worker that restarts is told"
    assert (await versions(http), await names(http), await nodes(http)) == (
        [("v2", True), ("v1", False)], ["daily"], ["two"],
    )  # fmt: skip
    before = (await http.get("/v1/versions/latest")).json()
    assert before["version_name"] == "v2" and before["version_timestamp"] == before["created_at"]

    answer = await http.put("/v1/versions/latest", json={"version": "v1"})

    assert answer.status_code == 200, answer.text
    assert (await versions(http), await names(http), await nodes(http)) == (
        [("v1", True), ("v2", False)], ["hourly"], ["one"],
    )  # fmt: skip
    now = answer.json()
    assert now["created_at"] < before["created_at"] <= now["version_timestamp"]
    assert now["version_id"] != before["version_id"]


async def test_what_is_being_written_is_the_latest_also_where_it_is_undone(http):
    await publish(http, "v1", "one", "hourly")
    await publish(http, "v2", "two")

    assert await publish(http, "v1", "one", "hourly", latest=True) == "v1"
    assert (await names(http), await nodes(http)) == (["hourly"], ["one"])


async def test_a_pinned_run_waits_for_a_worker_of_its_version_and_that_is_said(http):
    await publish(http, "v1", "one")
    await publish(http, "v2", "two")
    new = Worker(http, "new")
    await new.call(profile=WorkerProfile(labels={PIN_LABEL: "shop@v2"}), held=())
    run = await submit(http, version="v1")
    reply = await new.call()

    assert reply.work == ()
    alarms = (await http.get("/v1/status")).json()["alarms"]
    assert any("stranded" in alarm and "shop@v1" in alarm for alarm in alarms)
    rows = (await http.get("/v1/versions")).json()["versions"]
    assert [(one["version_name"], one.get("workers", 0), one.get("stranded", 0)) for one in rows] == [
        ("v2", 1, 0), ("v1", 0, 1),
    ]  # fmt: skip
    shown = (await http.get("/v1/workers")).json()["workers"]
    assert [(one["id"], one["application"], one["version"], one["latest"]) for one in shown] == [
        ("new", "shop", "v2", True)
    ]

    old = Worker(http, "old")
    reply = await old.call(profile=WorkerProfile(labels={PIN_LABEL: "shop@v1"}), held=(), wait_ms=1_000)

    assert [work.run_id for work in reply.work] == [run]
    alarms = (await http.get("/v1/status")).json().get("alarms", [])
    assert not any("stranded" in alarm for alarm in alarms)


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), [
    ("PUT", "/v1/versions/latest", {"version": "v9"}, 404, "unknown_version"),
    ("PUT", "/v1/versions/latest", {"version": "v1", "application": "mart"}, 404, "unknown_application"),
    ("GET", "/v1/versions?application=mart", None, 404, "unknown_application"),
    ("POST", "/v1/runs", {"workflow": "greet", "version": "v9"}, 404, "unknown_version"),
])  # fmt: skip
async def test_what_nobody_knows_is_refused(http, method, path, body, status, code):
    await publish(http, "v1", "one")

    answer = await http.request(method, path, json=body)

    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_which_application_must_be_said_where_there_are_several(http):
    assert (await http.get("/v1/versions/latest")).json()["code"] == "unknown_application"
    await publish(http, "v1", "one")
    await publish(http, "v1", "one", application="mart")

    assert (await http.get("/v1/versions/latest")).json()["code"] == "which_application"
    assert (await http.get("/v1/versions/latest?application=mart")).json()["application"] == "mart"


# ---- scheduled runs


async def offer(worker, version):
    await worker.call(profile=WorkerProfile(labels={PIN_LABEL: f"shop@{version}"}), held=())


@pytest.mark.proves("S004-77", "S004-93")
async def test_a_triggered_run_carries_the_latest_version_and_goes_elsewhere_only_where_nobody_has_it(http):
    await publish(http, "v1", "one", "hourly")
    await publish(http, "v2", "two", "hourly")
    old = Worker(http, "old")
    await offer(old, "v1")
    run_id = (await http.post("/v1/schedules/hourly/trigger")).json()["run_id"]
    [work] = await old.work()
    run = (await http.get(f"/v1/runs/{run_id}")).json()
    why = [step["text"] for step in (await http.get(f"/v1/runs/{run_id}/why")).json()["steps"]]

    assert (run["version"], run.get("pinned", False)) == ("shop@v2", False)
    assert any("no worker of shop@v2 was there, so it went to a worker of another version" in text for text in why)
    await old.finish(work)
    new = Worker(http, "new")
    await offer(new, "v2")
    await http.post("/v1/schedules/hourly/trigger")
    [work] = await new.work()
    assert (await old.call()).work == ()
    await new.finish(work)
    assert (await http.get(f"/v1/runs/{run_id}")).json()["version"] == "shop@v2", "as an ended run, too"


@pytest.mark.proves("S004-77")
async def test_a_schedule_is_pinned_to_a_version(http):
    await publish(http, "v1", "one")
    await publish(http, "v2", "two")
    request = {"workflow": "greet", "cron": "0 0 1 1 *", "version": "v1"}
    assert (await http.put("/v1/schedules/pinned", json=request)).status_code == 200
    run_id = (await http.post("/v1/schedules/pinned/trigger")).json()["run_id"]
    run = (await http.get(f"/v1/runs/{run_id}")).json()

    assert (await http.get("/v1/schedules/pinned")).json()["request"]["version"] == "shop@v1"
    assert (run["version"], run["pinned"], [task["node"] for task in run["tasks"]]) == ("shop@v1", True, ["one"])
    refused = await http.put("/v1/schedules/pinned", json=request | {"version": "v9"})
    assert (refused.status_code, refused.json()["code"], refused.json()["path"]) == (404, "unknown_version", "version")
