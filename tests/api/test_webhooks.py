"""Signed webhooks: who may send one, what it becomes, and how often."""

import json

import httpx2
import pytest

from api.scripted_worker import flow, publish
from api.signed_webhooks import KEYS, declared, secret, signed, variables
from api.test_schedules import get, put
from tickwork.api.app import make_app
from tickwork.api.http.webhook_signatures import is_signed, secret_bytes, sign
from tickwork.api.server import HttpServer
from tickwork.sdk.client.async_client import AsyncClient

BODY = b'{"total" : 500,\n "name":"caf\\u00e9"}'  # other bytes than any encoder makes of it
TOKEN = "a-token-of-this-test"
CAUSED = {"event": {"type": "any", "required": False}, "because": {"type": "array", "required": False}}
WAITER = {
    "name": "waiter",
    "inputs": {"number": {"type": "string"}},
    "nodes": [{"kind": "event", "id": "e", "event": "answer", "key": "inputs.number"}],
    "output": "nodes.e",
}


def client_of(app):
    transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 5000))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
async def http(engine, tmp_path):
    async with client_of(make_app(engine, webhooks=declared(tmp_path))) as client:
        yield client


async def send(http, body=BODY, *, to="shop", **signing):
    return await http.post(f"/v1/webhooks/{to}", content=body, headers=signed(body, **signing))


async def runs(http):
    return (await get(http, "/v1/runs"))["runs"]


async def listening(http):
    await publish(http, flow(inputs=CAUSED))
    await put(http, "orders", listen_to=[{"event": "order", "where": "event.total > 100"}])


def test_the_signature_is_that_of_the_published_example():
    key = secret_bytes("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    message = {"message_id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "timestamp": "1614265330", "body": b'{"test": 2432232314}'}
    published = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    assert sign(key, **message) == published
    assert is_signed(f"v1a,c2ln v1,AAAA {published} v2,AAAA", [b"other" * 5, key], **message)
    for header in ("", "v1,", published.removeprefix("v1,"), published.replace("v1,", "v2,"), published[:-1]):
        assert not is_signed(header, [key], **message)
    assert not is_signed(published, [], **message)


async def test_a_signed_request_starts_a_run_with_what_was_sent(http):
    await listening(http)

    answer = await send(http)

    assert (answer.status_code, answer.json()["schedules"]) == (200, 1)
    (run,) = await runs(http)
    inputs = (await get(http, f"/v1/runs/{run['id']}"))["inputs"]
    assert inputs["event"] == {"total": 500, "name": "café"}
    because = inputs["because"][0]
    assert (because["by"], because["id"]) == ("webhook shop", "shop/msg-1")


async def test_a_repeated_id_is_one_event_also_when_it_is_signed_again_and_other_ids_are_others(http):
    await listening(http)

    answers = [await send(http, age_s=age_s) for age_s in (60, 30, 0)]
    other = await send(http, message="msg-2")

    assert [answer.status_code for answer in (*answers, other)] == [200] * 4
    assert [answer.json().get("duplicate", False) for answer in (*answers, other)] == [False, True, True, False]
    assert len(await runs(http)) == 2


REFUSED = [
    ({"webhook-signature": "v1," + "A" * 43 + "="}, BODY, 401, "bad_signature"),
    ({"webhook-signature": "v1,é"}, BODY, 401, "bad_signature"),
    ({"webhook-id": "msg-9"}, BODY, 401, "bad_signature"),
    ({}, BODY + b" ", 401, "bad_signature"),
    ({}, json.dumps(json.loads(BODY)).encode(), 401, "bad_signature"),
    ({"webhook-id": ""}, BODY, 400, "bad_webhook"),
    ({"webhook-signature": ""}, BODY, 400, "bad_webhook"),
    ({"webhook-timestamp": ""}, BODY, 400, "bad_webhook"),
    ({"webhook-timestamp": "soon"}, BODY, 400, "bad_webhook"),
    ({"webhook-timestamp": "9" * 5_000}, BODY, 400, "bad_webhook"),
    ({"webhook-id": "m" * 200}, BODY, 422, "text_too_long"),
    ({"content-type": "text/plain"}, BODY, 415, "content_type"),
    ({}, b" " * (1024 * 1024 + 1), 413, "body_too_large"),
]


@pytest.mark.parametrize(("headers", "body", "status", "code"), REFUSED)
async def test_what_was_not_signed_so_is_refused_and_changes_nothing(http, headers, body, status, code):
    await listening(http)

    sent = signed(BODY) | headers
    answer = await http.post("/v1/webhooks/shop", content=body, headers={k: v.encode() for k, v in sent.items()})

    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert await runs(http) == []
    assert (await send(http)).json().get("duplicate", False) is False


@pytest.mark.parametrize(("to", "key", "age_s", "status"), [
    ("shop", "shop", 240, 200), ("shop", "shop", 360, 401), ("shop", "shop", -240, 200), ("shop", "shop", -360, 401),
    ("keyed", "new", 540, 200), ("keyed", "new", 660, 401),
])  # fmt: skip
async def test_a_message_counts_within_the_window_of_its_webhook(http, to, key, age_s, status):
    answer = await send(http, b'{"order": {"number": 7}}', to=to, key=key, age_s=age_s)

    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["code"] == "webhook_too_old"


async def test_a_signed_body_that_is_no_event_is_refused_with_the_reason(http):
    for body, to, key, status, code in (
        (b"{", "shop", "shop", 400, "json_syntax"),
        (b'{"a":1,"a":2}', "shop", "shop", 400, "json_duplicate_key"),
        (b"{}", "keyed", "old", 422, "bad_webhook_key"),
        (b"{}", "moon", "shop", 404, "unknown_webhook"),
    ):
        answer = await send(http, body, to=to, key=key)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


async def test_both_secrets_count_while_they_change_and_a_removed_one_no_longer(engine, tmp_path):
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name in ("old", "new"):
        (folder / name).write_text(secret(name) + "\n")
    webhooks = declared(tmp_path, '[shop]\nsecrets = ["old", "new"]\n', env={}, secrets=folder)
    async with client_of(make_app(engine, webhooks=webhooks)) as http:
        statuses = [(await send(http, key=name, message=name)).status_code for name in ("old", "new", "foreign")]
        both = await send(http, key="new", message="both", more="v1,AAAA ")
        (folder / "old").unlink()
        after = [(await send(http, key=name, message=f"{name}-2")).status_code for name in ("old", "new")]
        (folder / "new").unlink()
        none = await send(http, key="new", message="new-3")

    assert (statuses, both.status_code, after) == ([200, 200, 401], 200, [401, 200])
    assert none.status_code == 503 and "retry-after" in none.headers


async def test_a_webhook_wakes_the_run_that_waits_for_its_key(http):
    await publish(http, WAITER)
    run_id = (await http.post("/v1/runs", json={"workflow": "waiter", "inputs": {"number": "7"}})).json()["id"]

    first, second = [
        await send(http, b'{"order": {"number": %d}}' % number, to="keyed", key="new", message=f"m-{number}")
        for number in (8, 7)
    ]

    assert [answer.json().get("waiting", 0) for answer in (first, second)] == [0, 1]
    assert (await get(http, f"/v1/runs/{run_id}"))["state"] == "completed"


async def test_a_full_mailbox_refuses_and_the_same_message_is_taken_once_there_is_room(http):
    body = {"documents": [WAITER], "mailboxes": {"answer": {"keep": "1h", "max": 1}}}
    assert (await http.put("/v1/workflows", json=body)).status_code == 200
    payload = b'{"order": {"number": 7}}'

    first, second = [await send(http, payload, to="keyed", key="old", message=name) for name in ("a", "b")]
    await http.post("/v1/runs", json={"workflow": "waiter", "inputs": {"number": "7"}})
    again = await send(http, payload, to="keyed", key="old", message="b")

    assert (first.json()["kept"], second.status_code, second.json()["code"]) == (True, 409, "mailbox_full")
    assert (again.status_code, again.json().get("kept"), again.json().get("duplicate")) == (200, True, None)


async def test_the_signature_is_the_only_credential_and_opens_nothing_else(engine, tmp_path):
    app = make_app(engine, token=TOKEN, webhooks=declared(tmp_path))
    async with client_of(app) as http:
        assert (await send(http)).status_code == 200
        assert (await send(http, key="foreign")).status_code == 401
        for path in ("/v1/webhooks", "/v1/webhooks/shop/runs", "/v1/webhooks/shop%2Fruns", "/v1/runs"):
            answer = await http.get(path, headers=signed(BODY))
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized"), path
        twice = [(name, value) for name, value in signed(BODY).items()] + [("webhook-id", "msg-2")]
        assert (await http.post("/v1/webhooks/shop", content=BODY, headers=twice)).json()["code"] == "repeated_header"
        listed = await http.get("/v1/webhooks", headers={"authorization": f"Bearer {TOKEN}"})
        shown = {webhook["name"]: webhook for webhook in listed.json()["webhooks"]}

    assert shown["keyed"] == {
        "name": "keyed", "path": "/v1/webhooks/keyed", "event": "answer", "key": "event.order.number",
        "window": "10m", "secrets": ["old", "new"], "readable": 2,
    }  # fmt: skip
    for name in KEYS:
        assert secret(name) not in listed.text and secret(name).removeprefix("whsec_") not in repr(declared(tmp_path))


async def pieces(size):
    for _ in range(size // 50_000):
        yield b" " * 50_000
    yield BODY


async def test_a_body_without_a_length_is_limited_too(http):
    body = b" " * 100_000 + BODY
    taken = await http.post("/v1/webhooks/shop", content=pieces(100_000), headers=signed(body))
    refused = await http.post("/v1/webhooks/shop", content=pieces(2_000_000), headers=signed(body, message="m-2"))

    assert (taken.status_code, refused.status_code, refused.json()["code"]) == (200, 413, "body_too_large")


async def test_the_client_lists_webhooks_and_a_real_connection_takes_them(engine, tmp_path):
    webhooks = declared(tmp_path, env=variables("shop", "old", "new"))
    server = HttpServer(make_app(engine, webhooks=webhooks), engine, port=0)
    await server.start()
    client = AsyncClient(server.address)
    try:
        assert [webhook.name for webhook in await client.webhooks()] == ["keyed", "shop"]
        async with httpx2.AsyncClient(base_url=server.address, timeout=30) as http:
            answers = [await send(http, message=name) for name in ("a", "b", "a")]
            long = b" " * 100_000 + BODY
            answers.append(
                await http.post("/v1/webhooks/shop", content=pieces(100_000), headers=signed(long, message="c"))
            )
        assert [answer.status_code for answer in answers] == [200] * 4
        assert [answer.json().get("duplicate", False) for answer in answers] == [False, False, True, False]
    finally:
        await client.close()
        await server.stop()
