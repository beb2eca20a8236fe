"""The routes that the requirements name: a workflow is a DAG here, and its name is its id."""

import pytest

from api.scripted_worker import Worker, task

DEFINITION = {"nodes": [task("extract"), task("load", needs=["extract"])]}


async def create(http, name="etl", definition=DEFINITION):
    return await http.post("/v1/dags", json={"name": name, "definition": definition})


@pytest.mark.proves("S001-111")
async def test_a_dag_is_created_from_its_name_and_definition(http):
    made = await create(http)
    again = await create(http)
    changed = await create(http, definition={"nodes": [task("extract")]})

    assert (made.status_code, made.headers["location"]) == (201, "/v1/workflows/etl")
    assert (made.json()["name"], again.json(), changed.json()["versions"]) == ("etl", made.json(), 2)
    shown = (await http.get("/v1/workflows/etl")).json()
    assert [node["id"] for node in shown["document"]["nodes"]] == ["extract"]
    for body, path in (
        ({"name": "etl", "definition": {"name": "other", "nodes": []}}, "definition.name"),
        ({"name": "a b", "definition": DEFINITION}, "name"),
        ({"name": "etl", "definition": {"nodes": [{"kind": "none"}]}}, "nodes[0].kind"),
    ):
        refused = await http.post("/v1/dags", json=body)
        assert refused.status_code == 422 and refused.json().get("path", "") == path, refused.text


@pytest.mark.proves("S001-112")
async def test_a_dag_gets_a_schedule_with_a_cron_expression_and_a_zone(http):
    await create(http)
    made = await http.post("/v1/dags/etl/schedules", json={"cron": "0 9 * * *", "timezone": "Europe/Berlin"})
    named = await http.post("/v1/dags/etl/schedules", json={"cron": "0 9 * * *", "name": "mornings"})
    twice = await http.post("/v1/dags/etl/schedules", json={"cron": "0 10 * * *"})
    unknown = await http.post("/v1/dags/none/schedules", json={"cron": "0 9 * * *"})

    assert (made.status_code, made.headers["location"]) == (201, "/v1/schedules/etl")
    shown = (await http.get("/v1/schedules/etl")).json()
    assert (shown["workflow"], shown["expression"], shown["timezone"]) == ("etl", "0 9 * * *", "Europe/Berlin")
    assert named.json()["name"] == "mornings"
    assert (twice.status_code, twice.json()["code"]) == (409, "exists")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_workflow")


@pytest.mark.proves("S001-113")
async def test_a_dag_is_triggered_now_or_at_a_time_and_once_under_a_key(http):
    await create(http)
    now = await http.post("/v1/dags/etl/triggers")
    later = await http.post("/v1/dags/etl/triggers", json={"time": "2099-01-01T00:00:00Z"})
    keyed = [await http.post("/v1/dags/etl/triggers", headers={"idempotency-key": "k"}) for _ in range(2)]
    worker = Worker(http)
    works = await worker.work(2)

    assert (now.status_code, later.status_code, [answer.status_code for answer in keyed]) == (201, 201, [201, 200])
    assert keyed[0].json() == keyed[1].json()
    assert {work.run_id for work in works} == {now.json()["run_id"], keyed[0].json()["run_id"]}
    waiting = (await http.get(later.headers["location"])).json()
    assert waiting["state"] == "pending"
    bad = await http.post("/v1/dags/etl/triggers", json={"time": "tomorrow"})
    assert (bad.status_code, bad.json()["path"]) == (422, "time")
    assert (await http.post("/v1/dags/none/triggers")).status_code == 404
