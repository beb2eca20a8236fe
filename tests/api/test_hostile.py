"""Requests that nobody sends by mistake: none ends the server, whatever its answer.

The whole table is asked with ids, texts, numbers and nesting that break parsers, drivers and databases, on a store
that reads and writes SQL. `TICKWORK_LONG=1` does so for ten minutes.
"""

import asyncio
import json
import random
import time
from urllib.parse import quote

import httpx2
import msgspec
import pytest

from api.scripted_worker import MSGPACK, Worker, flow, publish, submit, task
from campaign import LONG
from tickwork.api.app import TABLE
from tickwork.api.openapi import document
from tickwork.protocol.worker_messages import Failed, Succeeded
from tickwork.runtime.engine import Engine
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds
from tickwork.system.zone_data import load_zones

SECONDS = 200.0 if LONG else 20.0
PARTS = 3 if LONG else 1  # ten minutes in all; no test may take more than five
ANSWER_S = 20.0
DIGITS = "9" * 4_301  # more than int() takes
DEEP = "[" * 5_000 + "]" * 5_000
TEXTS = [
    DIGITS, "0" * 8_000, "-" + DIGITS, "1e400", "9" * 18, "9" * 19, str(2**63), str(2**64), "-1", "0", "",
    "\0", "a\0b", "\ud800", "\udfff\ud800", "\ufeff", "\u202e", "\x1b[31m", "\r\nx: y", "é" * 5_000, "a" * 70_000,
    "../../etc/passwd", "..", ".", "/", "%", "%00", "%ff", "'; drop table runs; --", "{{x}}", "${x}", "\u2028",
    "sched-often-2026-01-01T00:00Z", f"sched-often-{DIGITS}Z", "0190a5b0-0000-7000-8000-" + DIGITS,
    f"a-{DIGITS}-01-01T00:00Z", "a-9999-99-99T99:99Z", "\u0661\u0662\u0663", "²", "nan", "Infinity", "null", "true",
]  # fmt: skip
NUMBERS = [
    0, -1, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30, 10**400, 0.1, -0.0,
    1e308, True,
]  # fmt: skip
KNOWN = {
    "attempt": "1", "backfill": "1", "endpoint": "shop", "group": "all", "holidays": "bank", "node": "hello",
    "partition": "0", "queue": "default", "run": "alive", "schedule": "often", "task": "2", "worker": "w1",
    "workflow": "greet", "webhook": "shop",
}  # fmt: skip


@pytest.fixture
async def engine(tmp_path):
    engine = Engine(
        store=SqliteStore(tmp_path / "s.db"),
        artifacts=FolderArtifacts(tmp_path / "artifacts"),
        clock=SystemClock(),
        ids=SystemIds(),
        owner="test",
        zones=load_zones(),
    )
    await engine.start()
    yield engine
    await engine.stop()


async def prepare(http) -> None:
    often = {"often": {"workflow": "greet", "every": "1h", "group": "all"}}
    await publish(http, flow("greet", task("hello"), inputs={"n": {"type": "any", "required": False}}), schedules=often)
    await http.put("/v1/holidays/bank", json={"dates": ["2026-12-25"]})
    await submit(http, id="alive")
    await submit(http, id="ended")
    assert (await http.post("/v1/runs/ended/cancel")).status_code == 204


async def still_works(http, engine) -> bool:
    """A run goes all the way: accepted, worked on, ended."""
    await publish(http, flow("after"))
    run_id = await submit(http, "after")
    worker = Worker(http, f"w{engine.context.ids.new()}", credit=1_000)
    for _ in range(100):
        await worker.finish(*(await worker.call(wait_ms=200)).work)
        if (await http.get(f"/v1/runs/{run_id}")).json()["state"] == "completed":
            return engine.context.partition.failed is None and (await http.get("/readyz")).status_code == 200
    return False


DEEDS = ("cancel", "pause", "resume", "retry", "resolve", "rerun")


@pytest.mark.parametrize("word", DEEDS)
@pytest.mark.parametrize("run_id", [DIGITS, "a\0b", f"sched-often-{DIGITS}Z", "a" * 9_000, "ü"], ids=range(5))
async def test_an_id_that_no_run_can_have_is_unknown_and_the_server_goes_on(http, engine, word, run_id):
    await prepare(http)

    answer = await http.post(f"/v1/runs/{quote(run_id, safe='')}/{word}")

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_run")
    assert await still_works(http, engine)


@pytest.mark.parametrize("word", ["", "/output", "/logs", "/events", "/why"])
async def test_reading_a_run_of_thousands_of_digits_answers_that_there_is_none(http, engine, word):
    await prepare(http)

    answer = await http.get(f"/v1/runs/{DIGITS}{word}")

    assert (answer.status_code, answer.json()["code"]) == (404, "unknown_run")
    assert await still_works(http, engine)


async def test_ids_and_keys_of_a_batch_that_no_store_can_take_are_refused_one_by_one(http, engine):
    await prepare(http)
    runs = [
        {"workflow": "greet", "id": DIGITS},
        {"workflow": "greet", "key": "a\0b"},
        {"workflow": "greet", "id": "ok"},
    ]

    json_answer = await http.post("/v1/runs/batch", json={"runs": runs})
    packed = msgspec.msgpack.encode(
        {"runs": [{"workflow": "greet", "id": "a\0b"}, {"workflow": "greet", "id": "9" * 255}]}
    )
    packed_answer = await http.post("/v1/runs/batch", content=packed, headers=MSGPACK)

    assert [one.get("code", "ok") for one in json_answer.json()["runs"]] == ["bad_run_id", "key_too_long", "ok"]
    assert [one.get("code", "ok") for one in packed_answer.json()["runs"]] == ["bad_run_id", "ok"]
    assert await still_works(http, engine)


@pytest.mark.parametrize(
    "retry", [{"attempts": 10**30}, {"delay_ms": -(10**30)}, {"rules": [{"error": "E", "attempts": 10**30}]}]
)
@pytest.mark.parametrize("more", [{}, {"id": "own"}])
async def test_a_retry_policy_with_numbers_that_no_store_can_take_is_refused(http, engine, retry, more):
    await prepare(http)

    answer = await http.post("/v1/runs/batch", json={"runs": [{"workflow": "greet", "retry": retry, **more}]})

    assert answer.status_code == 200, answer.text
    assert [one["code"] for one in answer.json()["runs"]] == ["bad_value"]
    assert await still_works(http, engine)


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 2**63 - 1, 10**9, -1])
async def test_a_report_about_a_task_that_no_run_can_have_is_stale_and_its_rows_are_written(http, engine, number):
    await prepare(http)
    worker = Worker(http, "w1", credit=0)
    await worker.call()
    await worker.call(Succeeded(number, 1, b"\xc0"), Failed(number, number, "E", "no"))
    live = engine.context.live
    async with asyncio.timeout(20):
        while engine.context.partition.failed is None and live.writer.watermark < live.durable_seq:
            await asyncio.sleep(0.05)

    assert engine.context.partition.failed is None
    assert await still_works(http, engine)


class Stranger:
    """Requests to any route of the table, with parts that are right and parts that break things."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.described = document(TABLE)["components"]["schemas"]

    def request(self):
        pick = self.random
        route = pick.choice(TABLE)
        path = "/".join(self._part(part) for part in route.path.split("/"))
        words = [
            f"{param.name}={quote(self._encodable(self._query(param)), safe='')}"
            for param in route.query
            if param.required or pick.random() < 0.3
        ]
        headers, body = {}, b""
        if route.body is not None:
            kind = pick.choice(route.body.kinds) if pick.random() < 0.97 else "text/html"
            headers["content-type"], body = kind, self._body(route, kind)
        for name in ("idempotency-key", "x-tickwork-by", "last-event-id", "if-none-match", "accept"):
            if pick.random() < 0.05:
                text = self._encodable(pick.choice(TEXTS))[:4_000]
                headers[name] = text.encode("utf-8").translate(None, b"\r\n\0") or b"x"
        return route.method, path + ("?" + "&".join(words) if words else ""), headers, body

    def _part(self, part: str) -> str:
        if not part.startswith("{"):
            return part
        name = part.strip("{}")
        if self.random.random() < 0.5:
            return KNOWN.get(name, "x") if name != "run" or self.random.random() < 0.5 else "ended"
        return self.pick()

    def pick(self) -> str:
        """A part of a path."""
        return quote(self._encodable(self.random.choice(TEXTS)), safe="") or "x"

    def _query(self, param) -> str:
        pick = self.random
        if param.choices and pick.random() < 0.5:
            return pick.choice(param.choices)
        if param.kind is bool:
            return pick.choice(["true", "false", "maybe"])
        if param.kind is int and pick.random() < 0.5:
            return str(pick.choice([param.low, param.default or 1, 1]))
        return pick.choice(TEXTS)

    def _body(self, route, kind: str) -> bytes:
        pick = self.random
        if pick.random() < 0.1:
            return pick.choice(
                [b"", DEEP.encode(), b"\xc1", b"{", b"\xff\xfe{}", b"null", b"[]", b"0" * 5_000, b'"\\ud800"']
            )
        if route.path.endswith("/exchange"):
            return self._packed(self._call())
        if route.body.model is None:
            return pick.randbytes(pick.randrange(200))
        (schema,), _ = msgspec.json.schema_components([route.body.model], ref_template="#/components/schemas/{name}")
        value = self._value(schema, 0)
        return self._packed(value) if kind == "application/msgpack" else json.dumps(value).encode()

    def _call(self) -> list:
        """Of a worker, as `ports.exchange.Call` has it: reports of every kind about numbers that nobody has."""
        pick = self.random
        numbers = [0, 1, 2, 3, -1, 2**31, 2**63 - 1, 2**64 - 1]
        texts = [*TEXTS, "E"]
        reports = [
            [tag, pick.choice(numbers), pick.choice(numbers), *more]
            for tag, more in [
                (1, [b"\xc0"]), (1, [b"\xc1" * 300]), (2, [pick.choice(texts), pick.choice(texts), True]),
                (3, [pick.choice(numbers)]), (4, [b"\x01"]), (5, []), (6, [pick.choice(numbers), pick.choice(numbers)]),
                (7, []), (1, [[pick.choice(texts), pick.choice(numbers), None, "artifact"]]),
            ]
            if pick.random() < 0.4
        ]  # fmt: skip
        profile = [[pick.choice(texts)], {pick.choice(texts): pick.choice(texts)}, pick.choice(numbers)]
        held = [[pick.choice(numbers), pick.choice(numbers)] for _ in range(pick.randrange(3))]
        session = pick.choice(["s", "s", *texts])
        seq, credit = pick.choice([1, 2, 3, *numbers]), pick.choice(numbers)
        return ["w1", session, seq, credit, 0, reports, held, profile, pick.random() < 0.1]

    @staticmethod
    def _packed(value) -> bytes:
        try:
            return msgspec.msgpack.encode(value)
        except (OverflowError, UnicodeEncodeError, ValueError):
            return b"\xc1"

    def _value(self, schema, depth: int):
        """What the schema says, with something hostile in places."""
        pick = self.random
        if pick.random() < 0.12 or depth > 6:
            return self._hostile(depth)
        if "$ref" in schema:
            return self._value(self.described.get(schema["$ref"].rpartition("/")[2], {}), depth + 1)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return self._value(pick.choice(schema[several]), depth + 1)
        if "enum" in schema:
            return pick.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                fields = schema.get("properties", {})
                required = schema.get("required", ())
                found = {
                    name: KNOWN[name] if name in KNOWN and pick.random() < 0.7 else self._value(one, depth + 1)
                    for name, one in fields.items()
                    if name in required or pick.random() < 0.4
                }
                if isinstance(schema.get("additionalProperties"), dict):
                    for _ in range(pick.randrange(3)):
                        found[self._text()] = self._value(schema["additionalProperties"], depth + 1)
                return found
            case "array":
                return [self._value(schema.get("items", {}), depth + 1) for _ in range(pick.randrange(4))]
            case "string":
                return self._text()
            case "integer" | "number":
                return pick.choice(NUMBERS)
            case "boolean":
                return pick.random() < 0.5
            case "null":
                return None
        return self._hostile(depth)

    def _text(self) -> str:
        pick = self.random
        return (
            pick.choice(["greet", "alive", "ended", "often", "x", "1h", "2026-01-01T00:00:00Z"])
            if pick.random() < 0.5
            else pick.choice(TEXTS)
        )

    def _hostile(self, depth: int):
        pick = self.random
        kind = pick.randrange(6)
        if kind == 0:
            return pick.choice(NUMBERS)
        if kind == 1 and depth < 3:
            value = "deep"
            for _ in range(pick.choice([10, 70, 200])):
                value = [value] if pick.random() < 0.5 else {"a": value}
            return value
        if kind == 2:
            return None
        return pick.choice(TEXTS)

    @staticmethod
    def _encodable(text: str) -> str:
        return text.encode("utf-8", "replace").decode()


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_hostile_requests_to_every_route_do_not_end_the_server(http, engine, part):
    """Statuses of the server's own failures are looked at, too: each is a defect of ours."""
    await prepare(http)
    stranger, until, asked, failed = Stranger(14 + part), time.monotonic() + SECONDS, 0, []
    while time.monotonic() < until and len(failed) < 20:
        method, path, headers, body = stranger.request()
        stream = "follow=true" in path or (method == "GET" and path.partition("?")[0].endswith(("/events", "/stream")))
        if stream and not path.startswith("/v1/runs/ended/"):
            continue  # that of a run which goes on never ends
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await http.request(method, path, headers=headers, content=body)
        except TimeoutError:
            failed.append((method, path[:300], body[:2_000], "no answer"))
            continue
        except httpx2.InvalidURL:
            continue  # longer than our client takes
        asked += 1
        if answer.status_code >= 500:
            failed.append((method, path[:300], body[:2_000], answer.text[:300]))
        if engine.context.partition.failed is not None:
            failed.append((method, path[:300], body[:2_000], str(engine.context.partition.failed)))
            break

    assert asked > 300
    assert failed == []
    assert "quarantined" not in engine.context.alarms.counts and "lookup_failed" not in engine.context.alarms.counts
    await http.post("/v1/partitions/0/resume")  # some of the requests were quite right
    await http.post("/v1/queues/default/resume")
    await http.put("/v1/queues/default", json={})
    assert await still_works(http, engine)
