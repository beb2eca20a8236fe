"""`If-Match`: a change counts only for what its sender has read."""

import asyncio

import pytest

from api.scripted_worker import flow, publish

WHEN = {"workflow": "greet", "cron": "0 9 * * *"}
CALL = {"url": "http://127.0.0.1/none", "every": "1h"}
EDITED = [
    ("/v1/schedules/s", WHEN, WHEN | {"description": "mine"}, WHEN | {"description": "yours"}),
    ("/v1/endpoints/e", CALL, CALL | {"method": "POST"}, CALL | {"every": "2h"}),
    ("/v1/holidays/h", {"dates": ["2026-12-25"]}, {"dates": ["2026-12-26"]}, {"dates": ["2026-12-24"]}),
    ("/v1/mailboxes/m", {"max": 3}, {"max": 4}, {"max": 5}),
]


async def put(http, path, body, etag=""):
    return await http.put(path, json=body, headers={"if-match": etag} if etag else {})


async def leave(http, path, etag):
    """An endpoint is archived, everything else deleted."""
    archived = path.startswith("/v1/endpoints")
    method, path = ("POST", f"{path}/archive") if archived else ("DELETE", path)
    return await http.request(method, path, headers={"if-match": etag})


@pytest.mark.parametrize(("path", "first", "mine", "yours"), EDITED, ids=[path for path, *_ in EDITED])
async def test_of_two_people_who_edit_what_both_have_read_the_second_is_refused(http, path, first, mine, yours):
    await publish(http, flow())
    etag = (await put(http, path, first)).headers["etag"]
    assert (await put(http, path, first, etag)).headers["etag"] == etag, "putting the same again changes nothing"
    changed = await put(http, path, mine, etag)
    refused = await put(http, path, yours, etag)

    assert changed.status_code < 300 and changed.headers["etag"] != etag
    assert (refused.status_code, refused.json()["code"], refused.json()["path"]) == (412, "changed", "header.if-match")
    assert changed.headers["etag"] in refused.json()["detail"]
    assert (await leave(http, path, etag)).status_code == 412
    assert (await put(http, path, yours, f"{etag}, {changed.headers['etag']}")).status_code < 300
    assert (await leave(http, path, "*")).status_code == 204


async def test_of_many_edits_at_once_with_one_etag_a_single_one_counts(http):
    await publish(http, flow())
    etag = (await put(http, "/v1/schedules/s", WHEN)).headers["etag"]
    answers = await asyncio.gather(
        *(put(http, "/v1/schedules/s", WHEN | {"description": str(number)}, etag) for number in range(20))
    )

    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 19


async def test_what_happens_to_a_schedule_keeps_its_etag_and_what_is_not_there_matches_nothing(http):
    await publish(http, flow())
    etag = (await put(http, "/v1/schedules/s", WHEN)).headers["etag"]
    await http.post("/v1/schedules/s/trigger")
    await http.post("/v1/schedules/s/pause")
    shown = await http.get("/v1/schedules/s")

    assert shown.headers["etag"] == shown.json()["etag"] == etag
    for wanted in ("*", etag):
        assert (await put(http, "/v1/schedules/none", WHEN, wanted)).status_code == 412
    assert (await http.get("/v1/schedules/none")).status_code == 404
