"""How the server is: for people, for what keeps it running, and for what measures it."""

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.errors import problem, retry_after
from tickwork.api.http.request import Request
from tickwork.api.http.response import METRICS, Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import ResponseSpec, Route
from tickwork.api.metrics import exposition
from tickwork.core.base.errors import TickworkError
from tickwork.ports.store import HasHorizon
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import TENANT

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler


async def status(asked: Request) -> Response:
    return as_json(await asked.engine.queries.status())


async def spread_status(
    ways: "ClusterRouter", place: "LocalHandler", asked: Request
) -> Response | StreamingResponse | None:
    """The home's, with the counts of all partitions."""
    found: list[wire.Status] = []
    for partition in ways.node.partitions_of(TENANT):
        answer = await ways.at(partition, place, asked.route, asked.scope, b"")
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        found.append(msgspec.json.decode(answer.body, type=wire.Status))
    clocks = [one.clock for one in found if one.clock is not None]
    runs: dict[str, int] = {}
    for one in found:
        for state, count in one.runs.items():
            runs[state] = runs.get(state, 0) + count
    return as_json(
        msgspec.structs.replace(
            found[0],
            live_runs=sum(one.live_runs for one in found),
            live_tasks=sum(one.live_tasks for one in found),
            ready=sum(one.ready for one in found),
            running=sum(one.running for one in found),
            runs=runs,
            alerts=tuple(dict.fromkeys(alert for one in found for alert in one.alerts)),
            accepting=all(one.accepting for one in found),
            clock=next((clock for clock in clocks if clock.state != "steady"), found[0].clock),
        )
    )


async def alive(asked: Request) -> Response:  # noqa: ARG001 - to answer is the answer
    return as_json(wire.Health(status="alive"))


async def ready(asked: Request) -> Response:
    why_not = "the server is shutting down" if asked.closing else asked.host.why_not_accepting
    if why_not:
        return problem(503, "not_ready", why_not, retry_after(1_000))
    engines = [asked.engine] if asked.node is None else [engine for _, engine in sorted(asked.node.engines.items())]
    warnings = tuple(dict.fromkeys(text for engine in engines for text in engine.queries.warnings))
    return as_json(wire.Health(status="ready", warnings=warnings))


async def confirm_clock(asked: Request) -> Response:
    await asked.engine.admin.confirm_clock(by=asked.by)
    return nothing()


async def metrics(asked: Request) -> Response:
    engines = [asked.engine] if asked.node is None else [one for _, one in sorted(asked.node.engines.items())]
    readings = [(one, await one.queries.status()) for one in engines]
    return Response(200, exposition(readings, asked.node, await _horizon_ms(asked)), METRICS)


async def _horizon_ms(asked: Request) -> int | None:
    """Of a database that nodes share; None where it is another kind, or does not answer."""
    store = asked.node.store if asked.node is not None else None
    with suppress(TickworkError):
        return await store.horizon_age_ms() if isinstance(store, HasHorizon) else None
    return None


ROUTES = (
    Route(
        method="GET",
        path="/v1/status",
        routed_to="runs",
        gather=spread_status,
        handler=status,
        summary="How the engine is.",
        tag="server",
        responses={200: ResponseSpec(wire.Status)},
    ),
    Route(
        method="POST",
        path="/v1/clock/confirm",
        routed_to="all",
        handler=confirm_clock,
        summary="Believe the wall clock: a step of it that is held is adopted now. Without such a step nothing "
        "happens.",
        tag="server",
        responses={204: ResponseSpec(None, (), "Done, and durable.")},
    ),
    Route(
        method="GET",
        path="/healthz",
        routed_to="here",
        handler=alive,
        summary="Whether the process answers.",
        tag="server",
        responses={200: ResponseSpec(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        routed_to="here",
        handler=ready,
        summary="Whether new work is accepted; if not, why.",
        tag="server",
        responses={200: ResponseSpec(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        routed_to="here",
        handler=metrics,
        summary="Figures for Prometheus.",
        tag="server",
        responses={200: ResponseSpec(None, (METRICS,), "Prometheus' text form.")},
    ),
)
