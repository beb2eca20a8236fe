"""Nothing is tolerated: each fault has a status, a code and its place, and none is the server's."""

import httpx2
import pytest

from api.scripted_worker import MSGPACK, flow, publish
from tickwork.api.app import make_app

JSON = {"content-type": "application/json"}
DEEP = b"[" * 5000
SUBMIT = "/v1/runs"
BATCH = "/v1/runs/batch"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (SUBMIT, b"", 400, "json_empty"),
        (SUBMIT, b"{", 400, "json_syntax"),
        (SUBMIT, b'{"workflow": "greet", "workflow": "x"}', 400, "json_duplicate_key"),
        (SUBMIT, b'{"workflow": "greet", "inputs": {"n": NaN}}', 400, "json_number"),
        (SUBMIT, b'{"workflow": "greet", "inputs": {"n": 1e999}}', 400, "json_number"),
        (SUBMIT, b'{"workflow": "greet", "inputs": {"n": 123456789012345678901234567890}}', 400, "json_integer"),
        (SUBMIT, b'{"workflow": "\\ud800"}', 400, "json_text"),
        (SUBMIT, b"\xff\xfe{}", 400, "json_encoding"),
        (SUBMIT, DEEP, 400, "json_too_deep"),
        (SUBMIT, b"[]", 422, "invalid_body"),
        (SUBMIT, b"{}", 422, "invalid_body"),
        (SUBMIT, b'{"workflow": 7}', 422, "invalid_body"),
        (SUBMIT, b'{"workflow": "greet", "more": 1}', 422, "invalid_body"),
        (SUBMIT, b'{"workflow": "nobody"}', 404, "unknown_workflow"),
        (SUBMIT, '{"workflow": "grüße"}'.encode(), 404, "unknown_workflow"),
        (SUBMIT, b'{"workflow": "greet", "delay_ms": -1}', 422, "bad_delay"),
        (SUBMIT, b'{"workflow": "greet", "delay_ms": 18446744073709551615}', 422, "bad_delay"),
        (SUBMIT, b'{"workflow": "greet", "priority": 77}', 422, "bad_priority"),
        (SUBMIT, b'{"workflow": "greet", "start_at": "tomorrow"}', 422, "instant_syntax"),
        (SUBMIT, b'{"workflow": "greet", "id": "../x"}', 422, "bad_run_id"),
        (SUBMIT, b'{"workflow": "greet", "key": "' + b"k" * 256 + b'"}', 422, "key_too_long"),
        (SUBMIT, b'{"workflow": "greet", "inputs": {"unknown": 1}}', 422, "unknown_input"),
        (BATCH, b'{"runs": []}', 422, "batch_size"),
        (BATCH, b'{"runs": [' + b",".join([b'{"workflow":"greet"}'] * 1001) + b"]}", 422, "batch_size"),
        (BATCH, b'{"runs": [{"workflow": NaN}]}', 400, "malformed"),
        (BATCH, b'{"runs": [{"workflow": "x", "inputs": {"n": ' + DEEP, 400, "malformed"),
        (BATCH, b'{"runs": [{"workflow": "\\ud800x"}]}', 400, "malformed"),
        (BATCH, b'{"runs": [{"workflow": 1}]}', 422, "invalid_body"),
        (BATCH, b'{"runs": [{"workflow": "greet", "workflow": "x"}]}', 400, "json_duplicate_key"),
        (BATCH, b'{"runs": [], "runs": [{"workflow": "greet"}]}', 400, "json_duplicate_key"),
        (BATCH, b'{"runs": [{"workflow": "greet", "inputs": {"n": {"a": 1, "a": 2}}}]}', 400, "json_duplicate_key"),
        (BATCH, b'{"runs": [{"workflow": "greet", "inputs": {"\\u0061": 1, "a": 2}}]}', 400, "json_duplicate_key"),
        ("/v1/events", b'{"event": "a b"}', 422, "name_characters"),
        ("/v1/events", b'{"event": "e", "run": "nobody"}', 404, "unknown_run"),
        ("/v1/runs/nobody/cancel", b'{"reason": "' + b"x" * 1001 + b'"}', 422, "text_too_long"),
        ("/v1/runs/nobody/pause", b'{"until": "2020"}', 422, "instant_number"),
        ("/v1/runs/nobody/cancel", b"{}", 404, "unknown_run"),
        ("/v1/runs/nobody/retry", b"", 404, "unknown_run"),
        ("/v1/workflows/a%20b/pause", b"{}", 422, "name_characters"),
        ("/v1/queues/" + "q" * 129 + "/pause", b"{}", 422, "name_too_long"),
        ("/v1/tasks/x/cancel", b"{}", 404, "unknown_task"),
        ("/v1/tasks/" + "9" * 30 + "/cancel", b"{}", 404, "unknown_task"),
        ("/v1/workers/../exchange", b"{}", 404, "unknown_path"),
    ],
)  # fmt: skip
async def test_a_faulty_body_is_refused_by_name(http, path, body, status, code):
    await publish(http, flow())
    answer = await http.post(path, content=body, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "run",
    [
        {"workflow": "greet"},
        {"workflow": "greet", "inputs": {}, "key": ""},  # what it would be anyway
        {"workflow": "greet", "inputs": {"n": [{"a": 'one "quoted"'}, {"a": 1e5, "b": 10**18}]}},
    ],
)
async def test_a_batch_that_says_everything_once_is_taken(http, run):
    await publish(http, flow(inputs={"n": {"type": "any", "required": False}}))
    answer = await http.post(BATCH, json={"runs": [run, run]})

    assert [one["outcome"] for one in answer.json()["runs"]] == ["accepted", "accepted"], answer.text


@pytest.mark.parametrize(
    "inputs",
    [b'{"n": 123456789012345678901234567890}', b'{"n": "\\u0000"}', b'{"n": ' + b"[" * 80 + b"]" * 80 + b"}"],
)
async def test_what_a_batch_cannot_store_is_rejected_one_by_one(http, inputs):
    await publish(http, flow(inputs={"n": {"type": "any"}}))
    body = b'{"runs": [{"workflow": "greet", "inputs": ' + inputs + b'}, {"workflow": "greet", "inputs": {"n": 1}}]}'
    answer = await http.post(BATCH, content=body, headers=JSON)

    assert [one["outcome"] for one in answer.json()["runs"]] == ["rejected", "accepted"], answer.text


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "bad_parameter"),
        ("limit=-1", "bad_parameter"),
        ("limit=501", "bad_parameter"),
        ("limit=99999999999999999999999", "bad_parameter"),
        ("limit=1.5", "bad_parameter"),
        ("limit=%D9%A1", "bad_parameter"),
        ("limit=1&limit=2", "repeated_parameter"),
        ("nonsense=1", "unknown_parameter"),
        ("state=asleep", "bad_parameter"),
        ("state=failed,asleep", "bad_parameter"),
        ("cursor=x", "bad_cursor"),
        ("cursor=b-1", "bad_cursor"),
        ("workflow=%FF", "bad_parameter"),
        ("workflow=a%00b", "bad_parameter"),
    ],
)
async def test_a_faulty_query_is_refused_by_name(http, query, code):
    answer = await http.get(f"/v1/runs?{query}")

    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert answer.json()["path"].startswith("query")


@pytest.mark.parametrize(("said", "status"), [("-1", 400), ("511", 400), ("-2", 422), ("512", 422), ("--1", 422)])
async def test_a_number_within_its_documented_bounds_is_read(http, said, status):
    """Garbage in the body is what is found next."""
    path = f"/v1/workers/w/exchange?partition={said}"

    assert (await http.post(path, content=b"\xc1", headers=MSGPACK)).status_code == status


async def test_wrong_methods_kinds_and_paths(http):
    assert (await http.delete("/v1/runs")).headers["allow"] == "GET, HEAD, POST"
    assert (await http.delete("/v1/runs")).status_code == 405
    assert (await http.get("/v1/nothing")).json()["code"] == "unknown_path"
    assert (await http.post(SUBMIT, content=b"{}")).json()["code"] == "content_type"
    assert (await http.post("/v1/workers/w/exchange", content=b"\xc1", headers=MSGPACK)).json()["code"] == "malformed"
    head = await http.head("/v1/runs")
    assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)


@pytest.mark.proves("B3")
@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
async def test_a_packed_body_is_refused_unread(http, encoding):
    answer = await http.post(SUBMIT, content=b"\x1f\x8b", headers=JSON | {"content-encoding": encoding})

    assert (answer.status_code, answer.json()["code"]) == (415, "content_encoding")


@pytest.mark.proves("B3")
async def test_a_body_beyond_the_limit_is_refused(http):
    answer = await http.post("/v1/runs/x/cancel", content=b" " * 70_000, headers=JSON)

    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


@pytest.mark.parametrize("by", [" ", "x" * 129, "\u202eevil".encode(), b"\xff"])
async def test_who_asks_is_one_readable_line(http, by):
    await publish(http, flow())
    answer = await http.post(SUBMIT, json={"workflow": "greet"}, headers={"x-tickwork-by": by})

    assert answer.status_code in (400, 422)


async def test_what_nobody_expected_gives_a_number_and_nothing_else(http, engine, caplog):
    async def broken():
        raise RuntimeError("the secret inside")

    engine.overview.status = broken
    answer = await http.get("/v1/status")

    assert answer.status_code == 500 and "secret" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.json()["request_id"] in caplog.text and "the secret inside" in caplog.text


# ---- who may come in


@pytest.fixture
async def locked(engine):
    transport = httpx2.ASGITransport(app=make_app(engine, token="s3cret"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://example.org") as client:
        yield client


async def test_with_a_token_only_health_and_the_empty_page_are_open(locked):
    assert [(await locked.get(path)).status_code for path in ("/healthz", "/readyz", "/")] == [200, 200, 200]
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "Basic s3cret"},
        {"authorization": b"\xff"},
    ):
        for path in ("/v1/runs", "/metrics", "/openapi.json", "/v1/nothing"):
            answer = await locked.get(path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await locked.get("/v1/runs", headers={"authorization": "Bearer s3cret"})).status_code == 200


@pytest.mark.proves("B21")
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]:80", "localhost.evil:8440"])
async def test_without_a_token_only_loopback_names_are_answered(http, host):
    answer = await http.get("/v1/runs", headers={"host": host})

    assert (answer.status_code, answer.json()["code"]) == (403, "bad_host")


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:81", 403), ("http://127.0.0.1", 201)],
)
async def test_another_origin_may_change_nothing(http, origin, status):
    await publish(http, flow())
    answer = await http.post(SUBMIT, json={"workflow": "greet"}, headers={"origin": origin})

    assert answer.status_code == status


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/runs", "/v1/nothing", "/openapi.json"])
async def test_every_answer_carries_the_security_headers(http, path):
    headers = (await http.get(path)).headers

    assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] in ("no-store", "no-cache")
