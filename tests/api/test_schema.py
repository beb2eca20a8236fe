"""The API against its own document: whatever is sent, the answer is one that the document names."""

import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.python import asgi
from schemathesis.specs.openapi import checks as openapi_checks
from starlette.applications import Starlette

from api.scripted_worker import flow, task
from api.signed_webhooks import declared
from api.test_hostile import Stranger
from campaign import LONG, examples
from tickwork.api.app import TABLE, make_app
from tickwork.api.openapi import document
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds
from tickwork.system.zone_data import load_zones

CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]
SECONDS = 200.0 if LONG else 40.0
PARTS = 3 if LONG else 1  # ten minutes in all; no test may take more than five
KNOWN = {
    "endpoint": "shop",
    "group": "all",
    "holidays": "bank",
    "node": "hello",
    "queue": "default",
    "run": "alive",
    "schedule": "often",
    "worker": "w1",
    "workflow": "greet",
}


@schemathesis.serializer("application/msgpack")
def as_msgpack(_context, value):
    try:
        return value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    except OverflowError:
        return b"\xc1"  # such numbers have no form in it; garbage is as good a test


@schemathesis.serializer("application/x-ndjson")
def as_lines(_context, value):
    return value if isinstance(value, bytes) else msgspec.json.encode(value)


class Served:
    """The application with an engine that lives on the event loop which serves it, and as long as that wants.

    schemathesis ends it with each test: every test has a store of its own, and so none depends on what another left."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.lives = 0
        self.life = Starlette(lifespan=self.begin)

    async def __call__(self, scope, receive, send) -> None:
        await (self.life if scope["type"] == "lifespan" else self.inner)(scope, receive, send)

    @contextlib.asynccontextmanager
    async def begin(self, _app) -> AsyncIterator[None]:
        self.lives += 1
        folder = self.folder / str(self.lives)
        folder.mkdir()
        engine = self.engine = Engine(
            store=SqliteStore(folder / "s.db"),
            artifacts=FolderArtifacts(folder / "artifacts"),
            clock=SystemClock(),
            ids=SystemIds(),
            owner="test",
            zones=load_zones(),
        )
        await engine.start()
        try:
            await self.fill(engine)
            self.inner = make_app(engine, hosts=("testserver",), webhooks=declared(folder))
            yield
        finally:
            await engine.stop()

    async def fill(self, engine) -> None:
        await engine.schedules.put_holidays("bank", ("2026-12-25",), by="test")
        documents = (flow("greet", task("hello", retry=1), inputs={"n": {"type": "any", "required": False}}),)
        schedules = {"often": wire.ScheduleRequest(workflow="greet", every="1h", group="all")}
        await engine.workflows.publish(wire.Publication(documents=documents, schedules=schedules), by="test")
        await engine.endpoints.put("shop", wire.EndpointRequest(url="https://shop.example", every="1h"), by="test")
        await engine.runs.submit([wire.Submission(workflow="greet", id=name) for name in ("alive", "ended")], by="test")
        await engine.runs.cancel("ended", by="test")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    return Served(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def schema(served):
    schema = schemathesis.openapi.from_asgi("/openapi.json", served)
    rejection = schema.config.checks.negative_data_rejection
    # The ETag is compared before the rest of a request is read, so 412 may come first: it changes nothing either.
    rejection.expected_statuses = [*rejection.expected_statuses, "412"]
    yield schema
    asgi.shutdown_lifespans()


@pytest.fixture(scope="module")
def operations(schema):
    return {(found.ok().method.upper(), found.ok().path): found.ok() for found in schema.get_all_operations()}


def drive(operation, count: int, *, checks=CHECKS, number: int | None = None) -> int:
    """How many answers were checked. With a `number` the requests differ from those of another one."""
    seen, hostile = 0, Stranger(number or 0)
    modes = list(schemathesis.GenerationMode)

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=number is None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(*[operation.as_strategy(generation_mode=mode) for mode in modes]), known=st.booleans())
    def check(case, known):
        nonlocal seen
        if number is not None and not known:
            case.path_parameters |= {part: hostile.pick() for part in case.path_parameters}
        if known and case.meta is not None and case.meta.generation.mode == schemathesis.GenerationMode.POSITIVE:
            # Names that nobody has lead to 404 only; a stream of a run that goes on would never end.
            named = KNOWN | ({"run": "ended"} if case.path.endswith(("/events", "/logs", "/stream")) else {})
            case.path_parameters |= {part: named[part] for part in case.path_parameters if part in named}
        case.call_and_validate(checks=checks, timeout=20)
        seen += 1

    (check if number is None else seed(number)(check))()
    return seen


ROUTES = [(route.method, route.path) for route in TABLE]
DRIVEN = [pair for pair in ROUTES if pair[1] != "/openapi.json"]  # which schemathesis leaves out itself


@pytest.mark.parametrize(("method", "path"), DRIVEN, ids=[f"{method} {path}" for method, path in DRIVEN])
def test_many_requests_to_each_route_find_nothing_undocumented(operations, method, path):
    assert drive(operations[method, path], examples(few=12, many=40)) >= 1


@pytest.mark.parametrize("part", range(PARTS))
def test_the_whole_api_under_schemathesis_does_not_end_the_server(operations, served, part):
    """Route after route, each time with other requests, and the hostile ids of `test_hostile` beside its own."""
    until, number, asked = time.monotonic() + SECONDS, 10_000 * part, 0
    while time.monotonic() < until or not asked:
        number += 1
        for pair in DRIVEN:
            asked += drive(operations[pair], 3, checks=[schemathesis.checks.not_a_server_error], number=number)
            assert served.engine.context.partition.failed is None, pair
            if time.monotonic() > until:
                break

    assert asked > len(DRIVEN)
    assert served.engine.context.accepting
    assert (
        "quarantined" not in served.engine.context.alarms.counts
        and "lookup_failed" not in served.engine.context.alarms.counts
    )


def test_the_document_has_every_route_and_every_route_an_id_of_its_own():
    paths = document(TABLE)["paths"]
    ids = [operation["operationId"] for methods in paths.values() for operation in methods.values()]

    assert sorted((method.upper(), path) for path, methods in paths.items() for method in methods) == sorted(ROUTES)
    assert len(set(ids)) == len(ids)


def test_every_route_that_the_table_lacks_is_missed():
    """The routes that command line, client and worker are written against."""
    wanted = {
        "GET /", "GET /healthz", "GET /metrics", "GET /openapi.json", "GET /readyz", "GET /v1/artifacts/{digest}",
        "PUT /v1/artifacts/{digest}", "GET /v1/backfills", "POST /v1/backfills/{backfill}/cancel",
        "POST /v1/backfills/{backfill}/pause", "POST /v1/backfills/{backfill}/resume", "GET /v1/catchup",
        "GET /v1/endpoints", "PUT /v1/endpoints", "GET /v1/endpoints/{endpoint}", "PUT /v1/endpoints/{endpoint}",
        "POST /v1/endpoints/{endpoint}/archive", "POST /v1/endpoints/{endpoint}/restore",
        "POST /v1/endpoints/{endpoint}/trigger", "POST /v1/endpoints/{endpoint}/test",
        "POST /v1/endpoints/{endpoint}/pause", "POST /v1/endpoints/{endpoint}/resume",
        "POST /v1/endpoints/{endpoint}/reset_failures", "PUT /v1/endpoints/{endpoint}/hints",
        "DELETE /v1/endpoints/{endpoint}/hints", "GET /v1/endpoints/{endpoint}/runs",
        "POST /v1/groups/{group}/pause", "POST /v1/groups/{group}/resume", "GET /v1/holidays",
        "GET /v1/holidays/{holidays}", "PUT /v1/holidays/{holidays}", "DELETE /v1/holidays/{holidays}",
        "GET /v1/occurrences", "GET /v1/zones", "PUT /v1/schedules", "POST /v1/schedules/preview",
        "GET /v1/schedules/{schedule}", "POST /v1/schedules/{schedule}/archive",
        "POST /v1/schedules/{schedule}/backfills", "PUT /v1/schedules/{schedule}/hints",
        "DELETE /v1/schedules/{schedule}/hints", "GET /v1/schedules/{schedule}/occurrences",
        "POST /v1/schedules/{schedule}/reset_failures", "POST /v1/schedules/{schedule}/restore",
        "POST /v1/schedules/{schedule}/test", "POST /v1/schedules/{schedule}/trigger",
        "GET /open", "GET /v1/cluster", "POST /v1/cluster/announce", "POST /v1/cluster/beats", "POST /v1/cluster/give",
        "DELETE /v1/cluster/inbox/{run}", "GET /v1/cluster/inbox", "POST /v1/cluster/published",
        "GET /v1/cluster/owners", "PUT /v1/cluster/spread", "GET /v1/partitions/{partition}",
        "GET /v1/partitions/{partition}/journal", "POST /v1/partitions/{partition}/known",
            "POST /v1/partitions/{partition}/pause",
        "POST /v1/partitions/{partition}/resume",
        "GET /v1/webhooks", "POST /v1/webhooks/{webhook}",
        "POST /v1/events", "GET /v1/mailboxes", "PUT /v1/mailboxes/{mailbox}", "DELETE /v1/mailboxes/{mailbox}",
            "GET /v1/mailboxes/{mailbox}/messages",
            "GET /v1/journal", "GET /v1/inbox", "GET /v1/queues", "PUT /v1/queues/{queue}",
        "POST /v1/queues/{queue}/pause", "POST /v1/queues/{queue}/resume", "GET /v1/runs", "POST /v1/runs",
        "POST /v1/runs/batch", "GET /v1/runs/{run}", "POST /v1/runs/{run}/approvals/{node}",
        "POST /v1/runs/{run}/cancel", "GET /v1/runs/{run}/events", "GET /v1/runs/{run}/logs",
        "GET /v1/runs/{run}/output", "POST /v1/runs/{run}/pause", "POST /v1/runs/{run}/rerun",
        "POST /v1/runs/{run}/resolve", "POST /v1/runs/{run}/resume", "POST /v1/runs/{run}/retry",
        "GET /v1/runs/{run}/values/{name}", "POST /v1/runs/{run}/updates/{name}",
        "GET /v1/runs/{run}/history", "GET /v1/runs/{run}/stream", "POST /v1/cluster/commands",
        "GET /v1/runs/{run}/why", "GET /v1/schedules", "PUT /v1/schedules/{schedule}",
        "DELETE /v1/schedules/{schedule}", "POST /v1/schedules/{schedule}/pause",
        "POST /v1/schedules/{schedule}/resume", "GET /v1/status",
        "POST /v1/dags", "POST /v1/dags/{dag}/schedules", "POST /v1/dags/{dag}/triggers",
        "POST /v1/clock/confirm", "POST /v1/tasks/{task}/attempts/{attempt}/logs",
        "POST /v1/tasks/{task}/cancel", "GET /v1/tasks/{task}/logs", "POST /v1/tasks/{task}/retry",
        "GET /v1/versions", "GET /v1/versions/latest", "PUT /v1/versions/latest", "GET /v1/workers",
        "POST /v1/workers/{worker}/exchange", "GET /v1/workflows", "PUT /v1/workflows",
        "GET /v1/workflows/{workflow}", "POST /v1/workflows/{workflow}/pause", "POST /v1/workflows/{workflow}/resume",
        "DELETE /v1/label-limits/{label}/{value}", "DELETE /v1/policies/{policy}", "DELETE /v1/queues/{queue}",
        "DELETE /v1/workflows/{workflow}", "GET /v1/alarms", "GET /v1/assets", "GET /v1/assets/{asset}",
        "GET /v1/bulk", "GET /v1/bulk/{operation}", "GET /v1/dead-letters", "GET /v1/label-limits",
        "GET /v1/partitions/{partition}/ticks/{tick}", "GET /v1/policies", "GET /v1/run-ids", "GET /v1/settings",
        "GET /v1/tenants", "POST /v1/bulk", "POST /v1/bulk/preview", "POST /v1/bulk/{operation}/cancel",
        "POST /v1/dead-letters/drop", "POST /v1/dead-letters/redrive", "POST /v1/policies/{policy}/test",
        "POST /v1/tenants/{tenant}/pause", "POST /v1/tenants/{tenant}/resume", "PUT /v1/assets/{asset}",
        "PUT /v1/label-limits/{label}/{value}", "PUT /v1/policies/{policy}", "PUT /v1/settings",
        "PUT /v1/tenants/{tenant}",
    }  # fmt: skip

    assert {f"{method} {path}" for method, path in ROUTES} == wanted
