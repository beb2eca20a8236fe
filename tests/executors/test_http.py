"""HTTP requests as tasks."""

import hashlib
import hmac
import json
import re
import time
from pathlib import Path

import httpx2
import msgspec
import pytest

from executors.executor_fixture import playing
from executors.web_servers import plain, raw, site
from tickwork.core.base.errors import Refused
from tickwork.core.base.strict_json import check
from tickwork.core.base.values import Ref
from tickwork.executors.concurrency import ConcurrentExecutor
from tickwork.executors.egress_client import EgressClient
from tickwork.executors.egress_policy import LOOPBACK, EgressPolicy
from tickwork.executors.http import MESSAGE_CHARACTERS_MAX, http_executor
from tickwork.executors.secrets import SecretMissing, Secrets
from tickwork.ports.artifacts import digest_of
from tickwork.protocol.worker_messages import ArtifactArgument, Failed, Succeeded


def node(**fields) -> dict:
    document = {"kind": "http", "id": "node", "url": "http://there.test/path", **fields}
    return {"kind": "http", "document": json.dumps(document).encode()}


class There:
    def __init__(self, answer) -> None:
        self.answer, self.requests = answer, []

    def executor(self) -> ConcurrentExecutor:
        return http_executor(outbound=EgressClient(EgressPolicy(), transport=httpx2.MockTransport(self.handle)))

    def handle(self, request):
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.proves("S003-15", "S003-17", "S003-20", "S003-21", "S003-22", "S003-23")
async def test_the_answer_is_the_result():
    there = There(httpx2.Response(200, json={"rate": 4}))
    async with playing(executor=there.executor()) as stage:
        done = await stage.end(stage.start("h", args={"day": "monday", "n": 3}, **node(headers={"X-A": "b"})))

    value = msgspec.msgpack.decode(done.value)
    assert value.pop("duration_ms") >= 0
    assert value == {"status": 200, "body": {"rate": 4}, "cut": False}
    assert str(there.requests[0].url) == "http://there.test/path?day=monday&n=3"
    assert there.requests[0].headers["x-a"] == "b"


async def test_arguments_are_the_body_of_a_post_and_the_effect_has_a_key():
    there = There(httpx2.Response(201))
    async with playing(executor=there.executor()) as stage:
        await stage.end(stage.start("h", args={"day": "monday"}, **node(method="POST")))
        await stage.end(stage.start("h2", args={"day": "monday"}, **node(method="PUT", body=[1, 2])))

    first, second = there.requests
    assert json.loads(first.content) == {"day": "monday"} and json.loads(second.content) == [1, 2]
    assert first.headers["idempotency-key"] == "acme/run/h/-1"


@pytest.mark.parametrize(
    ("answer", "fields", "error"),
    [
        (httpx2.Response(500, text="broken"), {}, "HttpStatus"),
        (httpx2.Response(404), {"success": "status == 404"}, None),
        (httpx2.Response(200, json={"ok": False}), {"success": "status == 200 && body.ok"}, "HttpStatus"),
        (httpx2.Response(200, json=[]), {"success": "body.ok"}, "ConditionFailed"),
        (httpx2.ConnectError("refused"), {}, "ConnectError"),
        (httpx2.ReadTimeout("slow"), {}, "TimeoutError"),
    ],
)
async def test_success_is_2xx_or_what_the_node_says(answer, fields, error):
    async with playing(executor=There(answer).executor()) as stage:
        report = await stage.end(stage.start("h", **node(**fields)))

    assert isinstance(report, Succeeded) if error is None else isinstance(report, Failed) and report.error == error, (
        report
    )


async def test_a_long_answer_is_cut_and_becomes_an_artifact():
    async with playing(executor=There(httpx2.Response(200, text="y" * 1_000_000)).executor()) as stage:
        done = await stage.end(stage.start("h", **node()))

    assert isinstance(done.value, Ref)
    value = msgspec.msgpack.decode(stage.artifacts[done.value.digest])
    assert value["cut"] and len(value["body"]) == 100_000


async def test_arguments_come_from_artifacts_too():
    there = There(httpx2.Response(200))
    async with playing(executor=there.executor()) as stage:
        digest = await stage.store(msgspec.msgpack.encode({"a": ["x", "y"]}))
        await stage.end(stage.start("h", fetch=(ArtifactArgument("q", digest, ("a", "1")),), **node()))
        broke = await stage.end(stage.start("h", fetch=(ArtifactArgument("q", digest_of(b"gone")),), **node()))

    assert there.requests[0].url.query == b"q=y" and isinstance(broke, Failed)


# ---- against servers


def local(**secrets) -> ConcurrentExecutor:
    return http_executor(outbound=EgressClient(EgressPolicy(networks=LOOPBACK)), secrets=Secrets(secrets))


@pytest.mark.proves("S003-15", "S003-17", "S003-20", "S003-21", "S003-22", "S003-23")
async def test_a_real_answer_with_its_status_body_and_duration():
    async with (
        site(raw(b"HTTP/1.1 201 Made\r\ncontent-type: application/json\r\n", b'\r\n{"depth": 7}', pause_s=0.03)) as at,
        playing(executor=local()) as stage,
    ):
        done = await stage.end(stage.start("h", **node(url=f"{at.url}/queue", method="PATCH", body={"a": 1})))

    value = msgspec.msgpack.decode(done.value)
    assert value["duration_ms"] >= 30 and value["status"] == 201 and value["body"] == {"depth": 7}
    assert at.requests[0][0] == "PATCH /queue HTTP/1.1" and json.loads(at.requests[0][2]) == {"a": 1}
    assert at.requests[0][1]["content-type"] == "application/json" and at.requests[0][1]["user-agent"] == "tickwork"


@pytest.mark.proves("S003-20", "S003-22", "S003-23", "S003-24")
async def test_a_failure_keeps_status_message_and_the_answers_body():
    async with site(plain(b'{"error": "no stock"}', status="503 Busy")) as at, playing(executor=local()) as stage:
        broke = await stage.end(stage.start("h", **node(url=at.url)))

    assert (broke.error, broke.exit_code, broke.permanent) == ("HttpStatus", 503, False)
    assert broke.message == f'GET {at.url} answered 503: {{"error":"no stock"}}'
    assert broke.ended_ms >= broke.started_ms > 0


@pytest.mark.proves("S003-24")
async def test_the_message_of_a_failure_is_bounded():
    async with site(plain(b"z" * 50_000, status="500 No")) as at, playing(executor=local()) as stage:
        broke = await stage.end(stage.start("h", **node(url=at.url)))

    assert len(broke.message) == MESSAGE_CHARACTERS_MAX and broke.message.endswith("zzz…")


@pytest.mark.proves("S003-16", "S003-24")
async def test_an_endpoint_that_is_too_slow_fails_in_its_own_time():
    async with site(raw(b"", pause_s=3)) as at, playing(executor=local()) as stage:
        began = time.monotonic()
        broke = await stage.end(stage.start("h", running_ms=200, **node(url=at.url)))
        assert time.monotonic() - began < 2.8

    assert broke.error == "TimeoutError" and not broke.permanent


@pytest.mark.proves("S47")
@pytest.mark.parametrize(("limit", "kept", "cut"), [(10, 10, True), (300, 300, False), (1_000, 300, False)])
async def test_the_node_says_how_much_of_an_answer_is_kept(limit, kept, cut):
    async with site(plain(b"b" * 300, headers="content-type: text/plain")) as at, playing(executor=local()) as stage:
        done = await stage.end(stage.start("h", **node(url=at.url, body_limit=limit)))

    value = msgspec.msgpack.decode(done.value)
    assert (value["body"], value["cut"]) == ("b" * kept, cut)


@pytest.mark.proves("S47")
async def test_a_page_stays_text():
    page = b"<script>alert(1)</script>"
    async with site(plain(page, headers="content-type: text/html")) as at, playing(executor=local()) as stage:
        done = await stage.end(stage.start("h", **node(url=at.url)))

    assert msgspec.msgpack.decode(done.value)["body"] == page.decode()


@pytest.mark.proves("S003-22", "S003-23", "S47")
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(b"[" * 50_000, "[" * 50_000, id="deeper than a reader goes"),
        pytest.param(b"[" * 65 + b"]" * 65, "[" * 65 + "]" * 65, id="deeper than a value may be"),
        pytest.param(b"[" * 64 + b"]" * 64, None, id="as deep as a value may be"),
        pytest.param(b'{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}', id="a number"),
        pytest.param(b"1" * 90_000, "1" * 90_000, id="a very long number"),
        pytest.param(rb'{"n": "\u0000"}', r'{"n": "\u0000"}', id="a NUL in JSON"),
        pytest.param(b"a\0b", "a\ufffdb", id="a NUL in text"),
    ],
)
async def test_an_answer_that_cannot_be_stored_as_a_value_is_kept_as_text(body, kept):
    async with site(plain(body)) as at, playing(executor=local()) as stage:
        done = await stage.end(stage.start("h", **node(url=at.url)))

    data = stage.artifacts[done.value.digest] if isinstance(done.value, Ref) else done.value
    value = msgspec.msgpack.decode(data)
    assert (value["status"], value["body"]) == (200, json.loads(body) if kept is None else kept)
    check(value)


@pytest.mark.proves("S40", "S42", "B20")
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost:{port}/", "http://[::1]/", "http://10.0.0.1:22/"]
)
async def test_without_a_setting_an_inner_address_is_refused_for_good(url):
    async with site(plain()) as at, playing(executor=http_executor()) as stage:
        broke = await stage.end(stage.start("h", **node(url=url.format(port=at.port))))

    assert (broke.error, broke.permanent) == ("AddressRefused", True)
    assert "allow_networks" in broke.message and at.requests == []


async def test_the_headers_of_a_node_replace_ours_and_none_replaces_the_signature():
    given = {"User-Agent": "mine", "Content-Type": "text/plain", "X-Tickwork-Signature": "v1=forged"}
    async with site(plain()) as at, playing(executor=local(TICKWORK_SECRET_K="s3cret")) as stage:
        await stage.end(stage.start("h", **node(url=at.url, method="POST", body="x", headers=given, sign="k")))

    headers = at.requests[0][1]
    assert (headers["user-agent"], headers["content-type"]) == ("mine", "text/plain")
    assert headers["x-tickwork-signature"] != "v1=forged"


@pytest.mark.parametrize("headers", [{"Content-Length": "5"}, {"Transfer-Encoding": "chunked"}, {"X-A": "\u20ac"}])
async def test_a_header_that_cannot_be_sent_fails_for_good_and_nothing_leaves(headers):
    async with site(plain()) as at, playing(executor=local()) as stage:
        broke = await stage.end(stage.start("h", **node(url=at.url, method="POST", body="longer", headers=headers)))

    assert (broke.error, broke.permanent) == ("HeaderRefused", True) and at.requests == []
    assert next(iter(headers)) in broke.message


async def test_a_signature_covers_time_method_path_and_body():
    async with site(plain()) as at, playing(executor=local(TICKWORK_SECRET_SHOP_KEY="s3cret")) as stage:
        asked = node(url=f"{at.url}/a%20b?c=d", method="POST", body={"x": [1, 2]}, sign="shop-key")
        assert isinstance(await stage.end(stage.start("h", **asked)), Succeeded)

    line, headers, body = at.requests[0]
    message = f"{headers['x-tickwork-timestamp']}\nPOST\n/a%20b?c=d\n".encode() + body
    assert line == "POST /a%20b?c=d HTTP/1.1"
    assert headers["x-tickwork-signature"] == "v1=" + hmac.new(b"s3cret", message, hashlib.sha256).hexdigest()
    assert abs(int(headers["x-tickwork-timestamp"]) - time.time()) < 60


async def test_a_signed_get_covers_its_arguments():
    async with site(plain()) as at, playing(executor=local(TICKWORK_SECRET_K="s3cret")) as stage:
        await stage.end(stage.start("h", args={"day": "mo&n"}, **node(url=f"{at.url}/p", sign="k")))

    line, headers, body = at.requests[0]
    message = f"{headers['x-tickwork-timestamp']}\nGET\n{line.split()[1]}\n".encode()
    assert "?day=mo%26n" in line and body == b""
    assert headers["x-tickwork-signature"] == "v1=" + hmac.new(b"s3cret", message, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("change", ["", "key", "method", "path", "body", "stamp", "signature"])
async def test_the_page_shows_how_to_check_a_signature(change):
    page = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text()
    (text,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def verified" in one)
    verified = eval_block(text)["verified"]
    async with site(plain()) as at, playing(executor=local(TICKWORK_SECRET_K="s3cret")) as stage:
        await stage.end(stage.start("h", **node(url=f"{at.url}/p?q=1", method="POST", body={"a": 1}, sign="k")))
    (method, path, _), headers, body = at.requests[0][0].split(), at.requests[0][1], at.requests[0][2]
    old = str(int(headers["x-tickwork-timestamp"]) - 301)
    headers |= {"stamp": {"x-tickwork-timestamp": old}, "signature": {"x-tickwork-signature": "v1="}}.get(change, {})

    assert (not change) == verified(
        b"other" if change == "key" else b"s3cret",
        "PUT" if change == "method" else method,
        "/p?q=2" if change == "path" else path,
        headers,
        b"{}" if change == "body" else body,
    )


def eval_block(text: str) -> dict:
    names = {"hashlib": hashlib, "hmac": hmac, "time": time}
    exec(text, names)
    return names


async def test_a_missing_secret_fails_for_good_and_says_what_to_set():
    async with site(plain()) as at, playing(executor=local(TICKWORK_SECRET_OTHER="s3cret")) as stage:
        broke = await stage.end(stage.start("h", **node(url=at.url, sign="shop-key")))

    assert (broke.error, broke.permanent) == ("SecretMissing", True) and at.requests == []
    assert "TICKWORK_SECRET_SHOP_KEY" in broke.message and "s3cret" not in broke.message


async def test_a_key_is_in_no_report_however_the_request_ends():
    answers = [plain(status="500 No"), raw(b"nonsense\r\n\r\n"), plain()]
    said = []
    for answer in answers:
        async with site(answer) as at, playing(executor=local(TICKWORK_SECRET_K="s3cret")) as stage:
            said.append(await stage.end(stage.start("h", **node(url=at.url, sign="k"))))
            said += stage.said + list(stage.lines.items())

    assert len(said) >= 3 and "s3cret" not in repr(said)


def test_secrets_come_from_the_environment_before_the_folder(tmp_path):
    (tmp_path / "file-key").write_text("from a file\n")
    (tmp_path / "both").write_text("from a file\n")
    secrets = Secrets({"TICKWORK_SECRET_BOTH": "from the environment"}, folder=tmp_path)

    assert secrets.get("file-key") == b"from a file" and secrets.get("both") == b"from the environment"
    (tmp_path / "file-key").write_text("changed")
    assert secrets.get("file-key") == b"changed"
    with pytest.raises(SecretMissing, match="put the file gone into"):
        secrets.get("gone")
    for name in ("../file-key", "a/b", ".."):
        with pytest.raises(Refused):
            secrets.get(name)
