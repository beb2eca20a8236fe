"""HTTP requests as tasks."""

import json

import httpx2
import msgspec
import pytest

from executors.stage import playing
from tickwork.core.values import Ref
from tickwork.executors.http import HttpExecutor
from tickwork.ports.artifacts import digest_of
from tickwork.ports.exchange import Broke, Done, Fetch


def node(**fields) -> dict:
    document = {"kind": "http", "id": "node", "url": "http://there.test/path", **fields}
    return {"kind": "http", "document": json.dumps(document).encode()}


class There:
    def __init__(self, answer) -> None:
        self.answer, self.requests = answer, []

    def executor(self) -> HttpExecutor:
        return HttpExecutor(transport=httpx2.MockTransport(self.handle))

    def handle(self, request):
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_the_answer_is_the_result():
    there = There(httpx2.Response(200, json={"rate": 4}))
    async with playing(executor=there.executor()) as stage:
        done = await stage.end(stage.start("h", args={"day": "monday", "n": 3}, **node(headers={"X-A": "b"})))

    assert msgspec.msgpack.decode(done.value) == {"status": 200, "body": {"rate": 4}, "cut": False}
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

    assert isinstance(report, Done) if error is None else isinstance(report, Broke) and report.error == error, report


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
        await stage.end(stage.start("h", fetch=(Fetch("q", digest, ("a", "1")),), **node()))
        broke = await stage.end(stage.start("h", fetch=(Fetch("q", digest_of(b"gone")),), **node()))

    assert there.requests[0].url.query == b"q=y" and isinstance(broke, Broke)
