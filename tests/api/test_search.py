"""Tags and searches over HTTP: what runs carry, and how they are found, live and ended."""

from datetime import UTC, datetime, timedelta

import pytest

from api.scripted_worker import Worker, flow, publish, submit, task

ORDER = {"customer": {"type": "string", "required": False}, "size": {"type": "integer", "required": False}}


async def listed(http, **query):
    """Ids of all runs that fit, over all pages, each page asked for with the cursor of the one before."""
    ids, cursor = [], ""
    for _ in range(20):
        answer = await http.get("/v1/runs", params=query | ({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.text
        page = answer.json()
        ids += [run["id"] for run in page["runs"]]
        cursor = page.get("next", "")
        if not cursor:
            return ids
    raise AssertionError("the list does not end")


async def test_a_run_carries_the_tags_of_its_workflow_and_of_its_submission(http):
    await publish(http, flow(tags=["greetings", "team:web"]))
    run_id = await submit(http, tags=["nightly", "team:web"])
    bare = await submit(http)
    worker = Worker(http)
    await worker.finish(*await worker.work(2))

    run = (await http.get(f"/v1/runs/{run_id}")).json()
    assert run["tags"] == ["greetings", "team:web", "nightly"]
    assert (await http.get(f"/v1/runs/{bare}")).json()["tags"] == ["greetings", "team:web"]
    assert "with the tags greetings, team:web, nightly" in (await http.get(f"/v1/runs/{run_id}/why")).text
    assert await listed(http, tag="nightly") == [run_id]
    assert await listed(http, tag="greetings,nightly") == [run_id]
    assert await listed(http, tag="team:web") == [bare, run_id]


async def test_scheduled_runs_carry_the_tags_of_their_schedule_and_children_none_of_their_parent(http):
    inner = flow("inner", tags=["below"])
    outer = flow("outer", {"kind": "workflow", "id": "call", "workflow": "inner"}, tags=["above"])
    schedule = {"workflow": "outer", "cron": "0 3 * * *", "tags": ["nightly"]}
    await publish(http, inner, outer, schedules={"night": schedule})
    assert (await http.get("/v1/schedules/night")).json()["request"]["tags"] == ["nightly"]
    started = (await http.post("/v1/schedules/night/trigger")).json()
    worker = Worker(http)
    await worker.finish(*await worker.work())

    assert await listed(http, tag="nightly") == await listed(http, tag="above") == [started["run_id"]]
    [child] = await listed(http, tag="below")
    assert child.startswith(started["run_id"] + ".")


async def test_a_rerun_keeps_the_tags_of_the_run_it_repeats(http):
    await publish(http, flow())
    first = await submit(http, tags=["nightly"])
    worker = Worker(http)
    await worker.finish(*await worker.work())
    again = (await http.post(f"/v1/runs/{first}/rerun", json={})).json()["id"]

    assert await listed(http, tag="nightly") == [again, first]


@pytest.mark.parametrize(
    ("tags", "code"),
    [
        (["two words"], "bad_tag"),
        ([""], "bad_tag"),
        (["a,b"], "bad_tag"),
        (["x" * 65], "bad_tag"),
        (["a", "a"], "repeated_tag"),
        ([f"t{n}" for n in range(17)], "too_many_tags"),
    ],
)
async def test_tags_are_short_few_and_plain(http, tags, code):
    await publish(http, flow())
    refused = await http.post("/v1/runs", json={"workflow": "greet", "tags": tags})
    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert refused.json()["path"].startswith("tags")
    document = await http.put("/v1/workflows", json={"documents": [flow("other", tags=tags)]})
    assert document.status_code == 422 and code in document.text
    schedule = {"workflow": "greet", "cron": "0 3 * * *", "tags": tags}
    assert (await http.put("/v1/schedules/night", json=schedule)).json()["code"] == code


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (["absent"], "no input"),
        (["token"], "secret"),
        (["many"], "text or a number"),
        (["customer", "customer"], "listed twice"),
    ],
)
async def test_only_small_plain_inputs_are_searchable(http, search, words):
    inputs = {
        "customer": {"type": "string"},
        "token": {"type": "string", "secret": True},
        "many": {"type": "array"},
    }
    refused = await http.put("/v1/workflows", json={"documents": [flow(inputs=inputs, search=search)]})
    assert refused.status_code == 422
    assert words in refused.text


@pytest.mark.proves("S001-33")
async def test_runs_are_found_by_searchable_inputs_while_they_go_on_and_after(http):
    await publish(http, flow(inputs=ORDER, search=["customer", "size"]), flow("hidden", inputs=ORDER))
    ed = await submit(http, inputs={"customer": "ed", "size": 3})
    comma = await submit(http, inputs={"customer": "a,b=c%"})
    large = await submit(http, inputs={"customer": "ed" + "x" * 2_000})  # not inline: the machine does not read it
    await submit(http, "hidden", inputs={"customer": "ed"})

    for worker in (None, Worker(http)):
        if worker is not None:
            await worker.finish(*await worker.work(4))
        assert await listed(http, where="customer=ed") == [ed]
        assert await listed(http, where="customer=ed,size=3") == [ed]
        assert await listed(http, where="customer=ed,size=4") == []
        assert await listed(http, where="customer=a%2Cb%3Dc%25") == [comma]
        assert await listed(http, where=f"customer=ed{'x' * 254}") == [large]
    assert (await http.get("/v1/runs?where=customer")).json()["code"] == "bad_where"


async def test_failed_runs_are_found_by_words_of_their_error(http):
    await publish(http, flow())
    first, second, _ = [await submit(http) for _ in range(3)]
    worker = Worker(http)
    works = {work.run_id: work for work in await worker.work(3)}
    await worker.fail(works[first], error="TimeoutError", message="order 17 took too long")
    await worker.fail(works[second], error="ValueError", message="order 18 is wrong")

    assert await listed(http, error="timeout") == [first]
    assert await listed(http, error="ORDER") == [second, first]
    assert await listed(http, error="order 18") == [second]
    assert await listed(http, error="rder") == []
    assert await listed(http, error="order", state="completed") == []
    assert (await http.get("/v1/runs", params={"error": "!"})).json()["code"] == "bad_error"


async def test_runs_are_found_by_when_they_were_submitted_and_ended(http):
    await publish(http, flow())
    begin = datetime.now(UTC) - timedelta(minutes=1)
    ended, live = await submit(http), await submit(http)
    worker = Worker(http)
    works = {work.run_id: work for work in await worker.work(2)}
    await worker.finish(works[ended])
    run = (await http.get(f"/v1/runs/{ended}")).json()

    assert await listed(http, submitted_from=begin.isoformat()) == [live, ended]
    assert await listed(http, submitted_to=begin.isoformat()) == []
    assert await listed(http, submitted_to=run["submitted_at"]) == []
    assert await listed(http, ended_from=run["ended_at"]) == [ended]
    assert await listed(http, ended_to=run["ended_at"]) == []
    assert ended in await listed(http, started_from=begin.isoformat(), state="completed")
    bad = {"submitted_from": "2026-01-02T00:00:00Z", "submitted_to": "2026-01-01T00:00:00Z"}
    assert (await http.get("/v1/runs", params=bad)).json()["code"] == "bad_range"
    assert (await http.get("/v1/runs?ended_to=yesterday")).json()["path"] == "ended_to"


async def test_pages_of_a_search_meet_each_run_once_and_keep_to_their_filters(http, monkeypatch):
    """Also where a page compares only a few live runs, and most of them do not fit."""
    monkeypatch.setattr("tickwork.runtime.views.runs.LIVE_MAX", 3)
    await publish(http, flow())
    wanted = []
    for number in range(12):
        tags = {"tags": ["a"]} if number % 4 == 0 else {}
        run_id = await submit(http, **tags)
        wanted += [run_id] if tags else []
    worker = Worker(http)
    works = await worker.work(10)
    await worker.finish(*works[:5])

    assert await listed(http, tag="a", limit="2") == wanted[::-1]
    page = (await http.get("/v1/runs?tag=a&limit=1")).json()
    other = await http.get("/v1/runs", params={"tag": "b", "limit": 1, "cursor": page["next"]})
    assert (other.status_code, other.json()["code"]) == (422, "bad_cursor")


async def test_a_debounced_run_is_found_by_its_latest_inputs(http):
    await publish(http, flow(inputs=ORDER, search=["customer"]))
    large = "ann" + "x" * 2_000
    for customer in ("ed", large, "bo"):
        fields = {"debounce": "k", "delay_ms": 60_000, "tags": ["d"]}
        await http.post("/v1/runs", json={"workflow": "greet", "inputs": {"customer": customer}, **fields})
        assert len(await listed(http, where=f"customer={customer[:256]}")) == 1
    assert await listed(http, where="customer=ed") == []
    assert len(await listed(http, tag="d")) == 1


async def test_a_task_of_another_workflow_is_no_reason_to_be_found(http):
    await publish(http, flow("one", task("hello")), flow("two", tags=["x"]))
    await submit(http, "one")

    assert await listed(http, tag="x", workflow="one") == []
