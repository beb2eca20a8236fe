"""Schedules, their occurrences and backfills, and lists of holidays, through the application."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from api.scripted_worker import Worker, flow, publish
from tickwork.protocol.worker_messages import WorkerProfile

NEVER = {"workflow": "greet", "cron": "0 0 1 1 *"}
CONTEXT = {"scheduled_time": {"type": "datetime", "required": False}, "context": {"type": "any", "required": False}}


@pytest.fixture
async def greet(http):
    await publish(http, flow(inputs=CONTEXT))


async def put(http, name="s", **fields):
    answer = await http.put(f"/v1/schedules/{name}", json={"workflow": "greet", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def get(http, path, **query):
    answer = await http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(http, path, status=204, **body):
    answer = await http.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def until(found, deadline_s=10.0):
    """What `found` answers, as soon as it is something."""
    async with asyncio.timeout(deadline_s):
        while not (value := await found()):
            await asyncio.sleep(0.02)
    return value


def refusal(answer):
    return answer.status_code, answer.json()["code"], answer.json().get("path", "")


def instant(text):
    return datetime.fromisoformat(text)


# ---- put, preview, list


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-35", "S004-80", "S004-54", "S001-81")
async def test_putting_a_schedule_answers_what_it_will_do(http):
    told = await put(http, cron="30 2 * * *", timezone="America/New_York")

    assert told["says"] and "New York" in told["says"]
    assert len(told["next"]) == 10 and told["tzdata"]
    for time in told["next"]:
        assert time["utc"].endswith("Z") and time["local"][10:16] in ("T02:30", "T03:30")
        assert instant(time["utc"]) == instant(time["local"])
    assert [one["code"] for one in told["warnings"]] and all(one["text"] for one in told["warnings"])
    shown = await get(http, "/v1/schedules/s")
    assert (shown["timezone"], shown["expression"]) == ("America/New_York", "30 2 * * *")
    assert shown["next_at"] == told["next"][0]["utc"]


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-08")
async def test_a_schedule_shows_everything_that_it_was_told(http):
    await put(http, cron="0 9 * * *", timezone="Europe/Berlin", automatic_backfill=True, context={"a": 1})
    await post(http, "/v1/schedules/s/pause", reason="rest")

    shown = await get(http, "/v1/schedules/s")
    told = {
        name: shown[name] for name in ("name", "workflow", "expression", "timezone", "automatic_backfill", "paused")
    }
    assert told == {
        "name": "s", "workflow": "greet", "expression": "0 9 * * *", "timezone": "Europe/Berlin",
        "automatic_backfill": True, "paused": True,
    }  # fmt: skip
    assert shown["request"]["context"] == {"a": 1} and "last_fired_at" not in shown


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-30", "S004-83", "S004-50", "S004-74")
async def test_a_schedule_that_says_nothing_is_in_utc_and_makes_up_for_nothing_by_itself(http):
    told = await put(http, cron="0 9 * * *")

    assert all(time["local"] == time["utc"] and "T09:00:00Z" in time["utc"] for time in told["next"])
    shown = await get(http, "/v1/schedules/s")
    assert "timezone" not in shown and "automatic_backfill" not in shown and "queue" not in shown  # all defaults
    worker = Worker(http)  # which serves the default queue alone
    run_id = (await post(http, "/v1/schedules/s/trigger", 202))["run_id"]
    assert (await worker.work())[0].run_id == run_id


@pytest.mark.usefixtures("greet")
async def test_a_preview_puts_nothing(http):
    told = await post(http, "/v1/schedules/preview", 200, name="later", workflow="greet", cron="H H * * *")

    assert len(told["next"]) == 10
    assert (await get(http, "/v1/schedules"))["schedules"] == []
    assert told["next"] == (await put(http, "later", cron="H H * * *"))["next"]  # H stands for the same time
    assert refusal(await http.put("/v1/schedules/preview", json=NEVER)) in [(405, "method_not_allowed", "")]
    assert refusal(
        await http.put("/v1/workflows", json={"documents": [], "schedules": {"preview": NEVER}})
    ) == (422, "reserved_name", "schedules.preview")  # fmt: skip


@pytest.mark.usefixtures("greet")
@pytest.mark.parametrize(
    ("wanted", "status", "code", "path"),
    [
        ({"cron": "0 9 * * *", "timezone": "Mars/Base"}, 422, "unknown_zone", "timezone"),
        ({"cron": "61 * * * *"}, 422, "invalid_cron", "cron"),
        ({"every": "5"}, 422, "duration_syntax", "every"),
        ({}, 422, "bad_schedule", "cron"),
        ({"cron": "0 9 * * *", "every": "5m"}, 422, "bad_schedule", "cron"),
        ({"cron": "0 9 * * *", "queue": "nowhere"}, 404, "unknown_queue", "queue"),
        ({"cron": "0 9 * * *", "workflow": "nobody"}, 404, "unknown_workflow", "workflow"),
        ({"cron": "0 9 * * *", "holidays": ["none"]}, 404, "unknown_holidays", "holidays[0]"),
        ({"cron": "0 9 * * *", "catch_up": "window"}, 422, "bad_catch_up", "catch_up_window"),
        ({"cron": "0 9 * * *", "max_runs": -1}, 422, "bad_terms", "max_runs"),
        ({"cron": "0 9 * * *", "overlap": "perhaps"}, 422, "invalid_body", "overlap"),
        ({"every": "5m", "dst_gap": "skip"}, 422, "schedule_clock_change", "dst_gap"),
        ({"every": "5m", "governor": {"min": "2m", "max": "1m"}}, 422, "min_above_max", "governor.min"),
        ({"cron": "0 9 * * *", "inputs": {"x": 1}}, 422, "unknown_input", "inputs.x"),
        ({"cron": "0 9 * * *", "start": "tomorrow"}, 422, "instant_syntax", "start"),
        ({"cron": "0 0 30 2 *"}, 422, "invalid_cron", "cron"),
    ],
)
@pytest.mark.proves("S004-38", "S004-63", "S004-65")
async def test_a_refusal_names_the_field_of_the_request(http, wanted, status, code, path):
    body = {"workflow": "greet", **wanted}
    one = await http.put("/v1/schedules/s", json=body)
    all_of_them = await http.put("/v1/schedules", json={"owner": "me", "schedules": {"fine": NEVER, "s": body}})

    assert refusal(one) == (status, code, path)
    if code != "invalid_body":
        assert refusal(all_of_them) == (status, code, f"schedules.s.{path}")
    assert (await get(http, "/v1/schedules"))["schedules"] == []


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-35")
async def test_put_replaces_and_can_be_told_to_create_only(http):
    new = {"if-none-match": "*"}
    assert (await http.put("/v1/schedules/s", json=NEVER, headers=new)).status_code == 200
    assert refusal(await http.put("/v1/schedules/s", json=NEVER, headers=new))[:2] == (409, "exists")
    await put(http, every="2h", description="more often")

    shown = await get(http, "/v1/schedules/s")
    assert (shown["expression"], shown["description"]) == ("every 2h", "more often")
    odd = await http.put("/v1/schedules/s", json=NEVER, headers={"if-none-match": '"abc"'})
    assert refusal(odd) == (400, "bad_header", "header.if-none-match")


@pytest.mark.usefixtures("greet")
async def test_schedules_come_in_pages_by_name_and_by_group(http):
    for number in range(5):
        await put(http, f"s{number}", cron="0 0 1 1 *", group="odd" if number % 2 else "even")
    first = await get(http, "/v1/schedules", limit=2)
    second = await get(http, "/v1/schedules", limit=2, cursor=first["next"])
    last = await get(http, "/v1/schedules", limit=2, cursor=second["next"])

    names = [[one["name"] for one in page["schedules"]] for page in (first, second, last)]
    assert names == [["s0", "s1"], ["s2", "s3"], ["s4"]]
    assert "next" not in last
    assert [one["name"] for one in (await get(http, "/v1/schedules", group="odd"))["schedules"]] == ["s1", "s3"]


@pytest.mark.usefixtures("greet")
async def test_a_set_is_answered_with_all_of_it_however_many_others_come_before_it(http):
    others = {"owner": "many", "schedules": {f"a{number:04}": NEVER for number in range(1_000)}}
    assert len((await http.put("/v1/schedules", json=others)).json()["schedules"]) == 1_000
    applied = await http.put("/v1/schedules", json={"owner": "shop", "schedules": {"y": NEVER, "b": NEVER}})

    assert [one["name"] for one in applied.json()["schedules"]] == ["b", "y"]


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-65")
async def test_a_set_is_applied_whole_or_not_at_all(http):
    def wanted(**schedules):
        return {"owner": "shop", "schedules": schedules}

    await put(http, "mine", cron="0 0 1 1 *")
    applied = await http.put("/v1/schedules", json=wanted(a=NEVER, b=NEVER))
    assert [(one["name"], one["owner"]) for one in applied.json()["schedules"]] == [("a", "shop"), ("b", "shop")]
    worse = await http.put("/v1/schedules", json=wanted(a={**NEVER, "cron": "@daily"}, c={**NEVER, "queue": "nowhere"}))
    assert refusal(worse) == (404, "unknown_queue", "schedules.c.queue")
    shown = {one["name"]: one["expression"] for one in (await get(http, "/v1/schedules"))["schedules"]}
    assert shown == {"a": "0 0 1 1 *", "b": "0 0 1 1 *", "mine": "0 0 1 1 *"}  # as if nobody had asked

    assert (await http.put("/v1/schedules", json=wanted(b=NEVER))).status_code == 200
    assert [one["name"] for one in (await get(http, "/v1/schedules"))["schedules"]] == ["b", "mine"]
    assert refusal(await http.put("/v1/schedules", json={"owner": "", "schedules": {}}))[2] == "owner"


# ---- deeds


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-40", "S004-53", "S004-54")
async def test_a_schedule_is_paused_with_a_reason_until_a_time_and_resumed(http):
    await put(http, every="1h")
    ends = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0).isoformat().replace("+00:00", "Z")
    await post(http, "/v1/schedules/s/pause", reason="repairs", until=ends)
    shown = await get(http, "/v1/schedules/s")
    assert (shown["paused"], shown["pause_reason"], shown["paused_until"]) == (True, "repairs", ends)
    assert "next_at" not in shown

    await post(http, "/v1/schedules/s/resume")
    shown = await get(http, "/v1/schedules/s")
    assert "paused" not in shown and shown["next_at"]
    assert refusal(await http.post("/v1/schedules/s/resume"))[:2] == (409, "illegal_move")
    assert (await http.delete("/v1/schedules/s")).status_code == 204
    assert refusal(await http.get("/v1/schedules/s"))[:2] == (404, "unknown_schedule")


@pytest.mark.usefixtures("greet")
async def test_a_group_is_paused_as_one(http):
    await put(http, every="1h", group="nightly")
    await put(http, "other", every="1h")
    await post(http, "/v1/groups/nightly/pause", reason="holidays")

    shown = {one["name"]: one for one in (await get(http, "/v1/schedules"))["schedules"]}
    assert shown["s"]["paused"] and "holidays" in shown["s"]["pause_reason"] and "paused" not in shown["other"]
    await post(http, "/v1/groups/nightly/resume")
    assert "paused" not in await get(http, "/v1/schedules/s")
    assert refusal(await http.post("/v1/groups/nobody/pause"))[:2] == (404, "unknown_group")


@pytest.mark.usefixtures("greet")
async def test_an_archived_schedule_keeps_its_history_and_comes_back(http):
    await put(http, every="1h")
    await post(http, "/v1/schedules/s/archive")

    assert (await get(http, "/v1/schedules"))["schedules"] == []
    assert [one["name"] for one in (await get(http, "/v1/schedules", archived="true"))["schedules"]] == ["s"]
    assert refusal(await http.post("/v1/schedules/s/archive"))[:2] == (409, "illegal_move")
    await post(http, "/v1/schedules/s/restore")
    assert [one["name"] for one in (await get(http, "/v1/schedules"))["schedules"]] == ["s"]
    await post(http, "/v1/schedules/s/reset_failures")


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-24", "S004-51", "S004-52")
async def test_a_trigger_begins_a_run_of_its_own_on_the_schedules_queue(http):
    assert (await http.put("/v1/queues/reports")).status_code == 204
    await put(http, "daily-report", cron="0 0 1 1 *", queue="reports", context={"kind": "summary"})
    before = datetime.now(UTC) - timedelta(seconds=2)
    first, second = [(await post(http, "/v1/schedules/daily-report/trigger", 202))["run_id"] for _ in range(2)]

    assert first != second
    head, _, time = first.partition("-trigger-")
    assert head == "sched-daily-report" and instant(time) >= before
    run = await get(http, f"/v1/runs/{first}")
    assert (run["schedule"], run["inputs"]["context"]) == ("daily-report", {"kind": "summary"})
    worker = Worker(http)
    works = []
    async with asyncio.timeout(10):  # a worker of this queue alone
        profile = {"profile": WorkerProfile(queues=("reports",)), "held": ()}
        while len(works) < 2:
            works += (await worker.call(wait_ms=200, **profile)).work
            profile = {}
    assert sorted(work.run_id for work in works) == sorted([first, second])


@pytest.mark.usefixtures("greet")
async def test_a_trigger_of_a_schedule_that_runs_one_at_a_time_is_refused_meanwhile(http):
    await put(http, every="1h", overlap="forbid")
    await post(http, "/v1/schedules/s/trigger", 202)

    assert refusal(await http.post("/v1/schedules/s/trigger"))[:2] == (409, "still_running")


@pytest.mark.usefixtures("greet")
async def test_a_test_fire_touches_nothing_of_the_schedule(http):
    await put(http, every="1h", pause_after=1, overlap="forbid")
    before = await get(http, "/v1/schedules/s")
    run_id = (await post(http, "/v1/schedules/s/test", 202))["run_id"]
    during = await get(http, "/v1/schedules/s")
    worker = Worker(http)
    await worker.fail(*await worker.work())

    async def ended():
        return (await get(http, f"/v1/runs/{run_id}"))["state"] == "failed"

    await until(ended)
    assert during == before == await get(http, "/v1/schedules/s")  # one failure would have paused it
    assert (await get(http, "/v1/schedules/s/occurrences"))["occurrences"] == []


@pytest.mark.usefixtures("greet")
async def test_hints_advise_a_governed_schedule_and_are_taken_back(http):
    await put(http, every="1h", governor={"min": "1m", "max": "2h"})
    body = {"interval": "5m", "ttl": "30m", "reason": "queue is long", "cost": 7}
    answer = await http.put("/v1/schedules/s/hints", json=body, headers={"X-Tickwork-By": "planner"})

    governed = answer.json()["governed"]
    assert answer.status_code == 200 and governed["source"] == "ai-interval"
    hints = governed["hints"]
    assert (hints["interval"], hints["reason"], hints["by"], hints["cost"]) == ("5m", "queue is long", "planner", 7)
    assert instant(hints["expires_at"]) > datetime.now(UTC) + timedelta(minutes=28)
    cleared = (await http.delete("/v1/schedules/s/hints")).json()["governed"]
    assert "hints" not in cleared and cleared["source"] == "baseline-interval"
    await put(http, "plain", every="1h")
    assert refusal(await http.put("/v1/schedules/plain/hints", json=body))[:2] == (422, "not_governed")


# ---- occurrences and backfills


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-22")
async def test_what_a_schedule_fired_has_its_id_and_its_fate(http):
    await put(http, every="1s")

    async def fired():
        return (await get(http, "/v1/schedules/s")).get("fired", 0) >= 2

    await until(fired)
    await post(http, "/v1/schedules/s/pause")
    shown = await get(http, "/v1/schedules/s")
    runs = (await get(http, "/v1/runs", schedule="s"))["runs"]
    assert len(runs) == shown["fired"]
    assert {run["id"] for run in runs} == {f"sched-s-{run['scheduled_at']}" for run in runs}
    assert shown["last_fired_at"] == max(run["scheduled_at"] for run in runs)

    spans = (await get(http, "/v1/schedules/s/occurrences"))["occurrences"]
    assert sum(one["count"] for one in spans if one["fate"] == "ran") == shown["fired"]
    assert (await get(http, "/v1/schedules/s/occurrences", end="2020-01-01T00:00:00Z"))["occurrences"] == []


@pytest.mark.usefixtures("greet")
async def test_what_is_expected_is_told_by_time_in_zone_and_utc(http):
    await put(http, "tokyo", cron="0 9 * * *", timezone="Asia/Tokyo")
    await put(http, "utc", cron="0 12 * * *")
    found = (await get(http, "/v1/occurrences", days=3))["occurrences"]

    assert sorted(found, key=lambda one: one["utc"]) == found
    assert [one["schedule"] for one in found].count("tokyo") == 3 == [one["schedule"] for one in found].count("utc")
    assert all(one["local"].endswith("T09:00:00+09:00") for one in found if one["schedule"] == "tokyo")
    only = (await get(http, "/v1/occurrences", days=1, schedule="utc"))["occurrences"]
    assert [one["schedule"] for one in only] == ["utc"]
    assert refusal(await http.get("/v1/occurrences", params={"schedule": "nobody"}))[:2] == (404, "unknown_schedule")


@pytest.mark.usefixtures("greet")
async def test_what_is_expected_comes_in_pages_and_none_of_it_is_left_out(http):
    await put(http, "often", cron="*/10 * * * *")
    await put(http, "rarely", cron="0 */6 * * *")
    whole = await get(http, "/v1/occurrences", days=2)
    found, cursor = [], ""
    while cursor is not None:
        page = await get(http, "/v1/occurrences", days=2, limit=50, **({"cursor": cursor} if cursor else {}))
        found += page["occurrences"]
        cursor = page.get("next")

    assert "next" not in whole and len(found) in (288 + 8, 288 + 7)
    assert found == whole["occurrences"]
    assert refusal(await http.get("/v1/occurrences", params={"cursor": "x"})) == (422, "bad_cursor", "query.cursor")


@pytest.mark.usefixtures("greet")
async def test_what_is_shown_ends_with_the_last_run_that_it_may_have(http):
    told = await put(http, cron="0 0 1 1 *", max_runs=2)
    assert len(told["next"]) == 2
    found = (await get(http, "/v1/occurrences", days=3660))["occurrences"]
    assert [one["utc"] for one in found] == [time["utc"] for time in told["next"]]

    await put(http, every="1s", max_runs=1)

    async def fired():
        return (await get(http, "/v1/schedules/s")).get("fired")

    assert await until(fired) == 1
    told = await put(http, every="1s", max_runs=1)
    assert "next" not in told and [one["code"] for one in told["warnings"]] == ["never_due"]


@pytest.mark.usefixtures("greet")
async def test_what_comes_after_a_pause_with_an_end_is_expected(http):
    await put(http, cron="0 0 * * *")
    ends = (datetime.now(UTC) + timedelta(days=5)).replace(hour=0, minute=0, second=0, microsecond=0)
    await post(http, "/v1/schedules/s/pause", until=ends.isoformat())
    found = [instant(one["utc"]) for one in (await get(http, "/v1/occurrences", days=7))["occurrences"]]

    assert found[0] == ends and found[1:] == [ends + timedelta(days=day + 1) for day in range(len(found) - 1)]
    past = await http.post("/v1/schedules/s/pause", json={"until": "2020-01-01T00:00:00Z"})
    assert refusal(past) == (422, "bad_time", "until")


@pytest.mark.usefixtures("greet")
async def test_a_preview_says_what_putting_it_would_refuse(http):
    async def previewed(**fields):
        wanted = {"name": "new", "workflow": "greet", "cron": "0 9 * * *", **fields}
        return await http.post("/v1/schedules/preview", json=wanted)

    assert refusal(await previewed(catch_up="window")) == (422, "bad_catch_up", "catch_up_window")
    assert refusal(await previewed(workflow="", catch_up="window")) == (422, "bad_catch_up", "catch_up_window")
    assert refusal(await previewed(workflow="nobody")) == (404, "unknown_workflow", "workflow")
    assert refusal(await previewed(queue="nowhere")) == (404, "unknown_queue", "queue")
    assert (await previewed(name="")).status_code == 200
    assert (await previewed(workflow="")).status_code == 200  # whoever only looks need not know what it will run


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-65")
async def test_a_dry_run_of_a_set_refuses_what_applying_it_would_and_changes_nothing(http):
    async def dry(**one):
        wanted = {"owner": "me", "dry_run": True, "schedules": {"good": NEVER, "other": NEVER | one}}
        return await http.put("/v1/schedules", json=wanted)

    assert refusal(await dry(queue="nowhere")) == (404, "unknown_queue", "schedules.other.queue")
    assert refusal(await dry(timezone="Mars/Base")) == (422, "unknown_zone", "schedules.other.timezone")
    assert (await dry()).json() == {"schedules": []}
    assert (await get(http, "/v1/schedules"))["schedules"] == []


@pytest.mark.usefixtures("greet")
async def test_whoever_replaces_the_schedule_of_an_owner_is_told_so(http):
    answer = await http.put("/v1/schedules", json={"owner": "reports", "schedules": {"s": NEVER}})
    assert answer.status_code == 200
    looked = await post(http, "/v1/schedules/preview", 200, name="s", **NEVER)
    told = await put(http, cron="17 4 * * *")

    assert "owned" in [one["code"] for one in looked["warnings"]]
    (warning,) = told["warnings"]
    assert warning["code"] == "owned" and "reports" in warning["text"]
    assert "warnings" not in await put(http, cron="17 4 * * *")


@pytest.mark.usefixtures("greet")
async def test_a_preview_of_a_backfill_names_what_has_not_run_and_counts_what_has(http):
    await put(http, "daily", cron="0 9 * * *")
    path = "/v1/schedules/daily/backfills"
    await post(http, path, 202, start="2026-03-02", end="2026-03-04")
    worker = Worker(http)
    works = await worker.work(2)
    await worker.finish(works[0])  # one has ended, the other goes on
    week = {"start": "2026-03-01", "end": "2026-03-06", "preview": True}
    planned = await post(http, path, 200, **week)
    newest = await post(http, path, 200, **week, newest_first=True)
    forced = await post(http, path, 200, **week, forced=True)

    wanted = [f"sched-daily-2026-03-0{day}T09:00:00Z" for day in (1, 4, 5)]
    assert (planned["run_ids"], planned["count"], planned["known"]) == (wanted, 5, 2)
    assert (newest["run_ids"], newest["count"], newest["known"]) == (wanted[::-1], 5, 2)
    assert (len(forced["run_ids"]), forced["count"], forced.get("known", 0)) == (5, 5, 0)
    await worker.finish(works[1])


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-42", "I22")
async def test_a_date_that_was_a_holiday_and_is_none_any_more_is_still_missing(http):
    await http.put("/v1/holidays/feast", json={"dates": ["2026-03-03"]})
    await put(http, "daily", cron="0 9 * * *", holidays=["feast"])
    path, window = "/v1/schedules/daily/backfills", {"start": "2026-03-01", "end": "2026-03-06"}
    await post(http, path, 202, **window)
    worker = Worker(http)
    await worker.finish(*await worker.work(4))
    assert (await http.put("/v1/holidays/feast", json={"dates": []})).status_code == 204
    planned = await post(http, path, 200, preview=True, **window)
    await post(http, path, 202, **window)

    assert (planned["run_ids"], planned["known"]) == (["sched-daily-2026-03-03T09:00:00Z"], 4)
    (work,) = await worker.work(1)
    assert work.run_id == "sched-daily-2026-03-03T09:00:00Z"
    await worker.finish(work)


@pytest.mark.usefixtures("greet")
async def test_what_became_of_occurrences_comes_in_pages_and_none_of_it_is_left_out(http):
    await put(http, "daily", cron="0 9 * * *")
    window = {"start": "2026-03-01", "end": "2026-03-08", "newest_first": True}  # so each is a range of its own
    await post(http, "/v1/schedules/daily/backfills", 202, **window)
    worker = Worker(http)
    await worker.finish(*await worker.work(7))
    path, found, start = "/v1/schedules/daily/occurrences", [], ""
    whole = await get(http, path)
    while start is not None:
        page = await get(http, path, limit=3, **({"start": start} if start else {}))
        found += [one for one in page["occurrences"] if one not in found]
        start = page.get("next")

    assert "next" not in whole and len(found) == 7
    assert found == whole["occurrences"]


@pytest.mark.usefixtures("greet")
async def test_a_window_of_centuries_is_looked_at_without_holding_others_up(http):
    await put(http, "busy", cron="* * * * * *", start="1990-01-01T00:00:00Z", end="2026-01-01T00:00:00Z")
    window = {"start": "1900-01-01", "end": "2026-01-01", "preview": True, "newest_first": True}
    asked = asyncio.create_task(post(http, "/v1/schedules/busy/backfills", 200, **window))
    meanwhile = 0
    while not asked.done():
        await asyncio.sleep(0.01)
        meanwhile += 1
    planned = await asked

    assert planned["run_ids"][0] == "sched-busy-2025-12-31T23:59:59Z", "the newest are the last of all"
    assert (planned["count"], planned["more"]) == (1_000_000, True)
    assert meanwhile >= 10


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-41", "S004-42", "S004-43", "S004-44", "S001-03")
async def test_a_backfill_runs_a_window_of_the_past_once_in_the_schedules_zone(http):
    await put(http, "daily", cron="0 9 * * *", timezone="America/New_York")
    window = {"start": "2026-03-06", "end": "2026-03-10"}  # the clock is changed on the 8th
    path = "/v1/schedules/daily/backfills"
    wanted = [f"sched-daily-2026-03-{day:02}T{hour}:00:00Z" for day, hour in ((6, 14), (7, 14), (8, 13), (9, 13))]
    planned = await post(http, path, 200, preview=True, **window)
    assert (planned["run_ids"], planned["count"], planned["state"]) == (wanted, 4, "preview")
    assert (await get(http, "/v1/runs"))["runs"] == [] and (await get(http, "/v1/backfills"))["backfills"] == []

    begun = await post(http, path, 202, **window)
    assert begun["run_ids"] == wanted
    worker = Worker(http)
    works = await worker.work(4)
    assert [work.run_id for work in works] == wanted  # the same ids as those of live runs
    await worker.finish(*works)
    again = await post(http, path, 202, **window)

    async def ended():
        found = {one["number"]: one for one in (await get(http, "/v1/backfills"))["backfills"]}
        return found if all(one["state"] == "done" for one in found.values()) else None

    found = await until(ended)
    assert (found[begun["number"]]["succeeded"], found[again["number"]].get("started", 0)) == (4, 0)
    assert found[again["number"]]["known"] == 4
    assert len((await get(http, "/v1/runs", schedule="daily"))["runs"]) == 4


@pytest.mark.usefixtures("greet")
async def test_a_backfill_keeps_to_its_concurrency_and_is_paused_resumed_and_cancelled(http):
    await put(http, "hourly", cron="0 * * * *")
    window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z", "concurrency": 2, "newest_first": True}
    begun = await post(http, "/v1/schedules/hourly/backfills", 202, **window)
    worker = Worker(http)
    works = await worker.work(2)
    assert {work.run_id for work in works} == {f"sched-hourly-2026-01-01T{hour}:00:00Z" for hour in (23, 22)}
    steer = f"/v1/backfills/{begun['number']}"
    await post(http, f"{steer}/pause")
    assert refusal(await http.post(f"{steer}/pause"))[:2] == (409, "illegal_move")
    await worker.finish(*works)
    assert (await worker.call(wait_ms=100)).work == ()  # paused: nothing more begins

    await post(http, f"{steer}/resume")
    works = await worker.work(2)
    assert {work.run_id[-9:] for work in works} == {"21:00:00Z", "20:00:00Z"}
    await post(http, f"{steer}/cancel")
    await worker.finish(*works)
    assert (await worker.call(wait_ms=100)).work == ()
    [shown] = (await get(http, "/v1/backfills"))["backfills"]
    assert (shown["state"], shown["started"]) == ("cancelled", 4)
    assert refusal(await http.post(f"{steer}/cancel"))[:2] == (404, "unknown_backfill")
    assert refusal(await http.post("/v1/backfills/x/cancel"))[:2] == (404, "unknown_backfill")


@pytest.mark.usefixtures("greet")
async def test_a_window_that_is_none_is_refused(http):
    await put(http, cron="0 * * * *")
    for start, end, code, path in (
        ("2026-01-02", "2026-01-01", "bad_window", "start"),
        ("soon", "2026-01-01", "instant_syntax", "start"),
        ("2026-01-01", "2026-02-30", "instant_range", "end"),
    ):
        for preview in (False, True):
            wanted = {"start": start, "end": end, "preview": preview}
            answer = await http.post("/v1/schedules/s/backfills", json=wanted)
            assert refusal(answer) == (422, code, path)


@pytest.mark.usefixtures("greet")
async def test_what_is_late_is_told_before_it_runs_under_any_policy(http):
    await put(http, every="1s", automatic_backfill=True, grace="0s")
    await post(http, "/v1/schedules/s/pause")

    async def late():
        return (await get(http, "/v1/catchup"))["schedules"]

    [found] = await until(late)
    assert found["paused"], "it runs when it is resumed, and not before"
    assert (found["schedule"], found["policy"]) == ("s", "all") and found["runs"] == found["late"] >= 1
    [other] = (await get(http, "/v1/catchup", policy="none"))["schedules"]
    assert other["policy"] == "all", "what is paused keeps its own policy"
    other = await http.put("/v1/schedules/s", json={"workflow": "greet", "every": "2s"})
    assert refusal(other)[:2] == (409, "resume_first")  # an edit may not lose what is owed
    await post(http, "/v1/schedules/s/resume")

    async def caught_up():
        shown = await get(http, "/v1/schedules/s")
        return shown if shown.get("fired", 0) >= found["late"] else None

    assert (await until(caught_up))["fates"].get("missed", 0) == 0


# ---- holidays and zones


@pytest.mark.usefixtures("greet")
async def test_a_list_of_holidays_is_uploaded_used_and_kept_while_it_is_used(http):
    assert (await http.put("/v1/holidays/bank", json={"dates": ["2031-01-02", "2031-01-01"]})).status_code == 204
    told = await put(http, cron="0 9 * * *", holidays=["bank"], start="2030-12-31T00:00:00Z")

    assert [time["utc"][:10] for time in told["next"][:2]] == ["2030-12-31", "2031-01-03"]
    assert (await get(http, "/v1/holidays"))["lists"] == {"bank": ["2031-01-01", "2031-01-02"]}
    assert (await get(http, "/v1/holidays/bank"))["lists"]["bank"] == ["2031-01-01", "2031-01-02"]
    assert refusal(await http.delete("/v1/holidays/bank"))[:2] == (409, "in_use")
    assert (await http.put("/v1/holidays/bank", json={"dates": ["2030-12-31"]})).status_code == 204
    assert (await get(http, "/v1/schedules/s"))["next_at"] == "2031-01-01T09:00:00Z"
    await http.delete("/v1/schedules/s")
    assert (await http.delete("/v1/holidays/bank")).status_code == 204
    assert refusal(await http.get("/v1/holidays/bank"))[:2] == (404, "unknown_holidays")
    assert refusal(await http.put("/v1/holidays/bank", json={"dates": ["soon"]}))[:2] == (422, "invalid_date")


@pytest.mark.proves("S004-80")
async def test_the_zones_are_those_of_the_pinned_data(http):
    found = await get(http, "/v1/zones")

    assert {"UTC", "America/New_York", "Europe/Berlin"} < set(found["zones"]) and len(found["zones"]) > 300
    assert found["tzdata"][:2] == "20"


# ---- applications


async def test_a_static_schedule_ends_when_its_application_declares_it_no_more(http):
    async def declare(application, **schedules):
        body = {"documents": [flow()], "schedules": schedules, "application": application}
        answer = await http.put("/v1/workflows", json=body)
        assert answer.status_code == 200, answer.text

    await declare("app", often={"workflow": "greet", "every": "1s"}, kept=NEVER)
    await declare("other", theirs=NEVER)
    await put(http, "by-hand", cron="0 0 1 1 *")

    async def fired():
        return (await get(http, "/v1/schedules/often")).get("fired", 0)

    await until(fired)
    await declare("app", kept=NEVER)

    names = {one["name"]: one.get("owner", "") for one in (await get(http, "/v1/schedules"))["schedules"]}
    assert names == {"by-hand": "", "kept": "app", "theirs": "other"}
    fates = (await get(http, "/v1/schedules/often/occurrences"))["occurrences"]
    assert sum(one["count"] for one in fates if one["fate"] == "ran") >= 1
    await declare("app")
    assert {one["name"] for one in (await get(http, "/v1/schedules"))["schedules"]} == {"by-hand", "theirs"}


@pytest.mark.usefixtures("greet")
@pytest.mark.proves("S004-95", "S004-99")
async def test_runs_of_a_schedule_go_to_its_queue_also_by_trigger_and_backfill(http):
    refused = await http.put("/v1/schedules/s", json=NEVER | {"queue": "reports"})
    assert refusal(refused)[1:] == ("unknown_queue", "queue")
    assert (await http.put("/v1/queues/reports", json={})).status_code == 204
    await put(http, every="1h", queue="reports", anchor="2026-01-01T00:00:00Z")
    await http.post("/v1/schedules/s/trigger")
    window = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T02:00:00Z"}
    assert (await http.post("/v1/schedules/s/backfills", json=window)).status_code == 202
    plain, other = Worker(http, "plain"), Worker(http, "other")
    assert (await plain.call(wait_ms=0)).work == ()
    works = list((await other.call(profile=WorkerProfile(queues=("reports",)), held=())).work)
    while len(works) < 3:
        works += await other.work()

    assert sorted(work.run_id.split("-")[2] for work in works) == ["2026", "2026", "trigger"]
