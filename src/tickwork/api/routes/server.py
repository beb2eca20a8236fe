"""The state of the server: status, health probes, metrics, and the held clock step."""

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.errors import problem, retry_after
from tickwork.api.http.request import Request
from tickwork.api.http.response import METRICS, Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import ResponseSpec, Route
from tickwork.api.metrics import exposition
from tickwork.core.base.errors import TickworkError
from tickwork.core.base.names import TENANT
from tickwork.ports.store import HasHorizon
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.alarms import alarm_views

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler
    from tickwork.cluster.node import Node


async def status(request: Request) -> Response:
    status = await request.engine.overview.status()
    return as_json(msgspec.structs.replace(status, alarms=(*_node_alarms(request.node), *status.alarms)))


def _node_alarms(node: "Node | None") -> list[str]:
    """Those that belong to no partition."""
    return [alarm.line() for alarm in node.alarms.recent] if node is not None else []


async def spread_status(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Return the status of the home, with the counts of all partitions."""
    statuses: list[wire.Status] = []
    for partition in router.node.routes.partitions_of(TENANT):
        answer = await router.at(partition, handler, request.route, request.scope, b"")
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        statuses.append(msgspec.json.decode(answer.body, type=wire.Status))
    clocks = [part.clock for part in statuses if part.clock is not None]
    runs: dict[str, int] = {}
    for part in statuses:
        for state, count in part.runs.items():
            runs[state] = runs.get(state, 0) + count
    return as_json(
        msgspec.structs.replace(
            statuses[0],
            live_runs=sum(part.live_runs for part in statuses),
            live_tasks=sum(part.live_tasks for part in statuses),
            ready=sum(part.ready for part in statuses),
            running=sum(part.running for part in statuses),
            runs=runs,
            alarms=tuple(
                dict.fromkeys((*_node_alarms(router.node), *(alarm for part in statuses for alarm in part.alarms)))
            ),
            accepting=all(part.accepting for part in statuses),
            clock=next((clock for clock in clocks if clock.state != "steady"), statuses[0].clock),
        )
    )


async def alarms(request: Request) -> Response:
    of_node = alarm_views(request.node.alarms) if request.node is not None else []
    return as_json(wire.Alarms(alarms=tuple(_newest_first([*of_node, *request.engine.overview.alarms()]))))


async def spread_alerts(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """The alarms of the partitions, and of the nodes that own them."""
    answers = await router.collect(handler, request, router.node.routes.partitions_of(TENANT))
    if not isinstance(answers, list):
        return answers
    found = [alarm for answer in answers for alarm in msgspec.json.decode(answer, type=wire.Alarms).alarms]
    return as_json(wire.Alarms(alarms=tuple(_newest_first([*alarm_views(router.node.alarms), *found]))))


def _newest_first(found: list[wire.Alarm]) -> list[wire.Alarm]:
    """Each once: several partitions may tell the same of their node."""
    every = dict.fromkeys((alarm.at, alarm.kind, alarm.text, alarm.count, alarm.partition) for alarm in found)
    return [
        wire.Alarm(at=at, kind=kind, text=text, count=count, partition=partition)
        for at, kind, text, count, partition in sorted(every, reverse=True)
    ]


async def alive(request: Request) -> Response:  # noqa: ARG001 - responding is all that a liveness probe needs
    return as_json(wire.Health(status="alive"))


async def ready(request: Request) -> Response:
    why_not = "the server is shutting down" if request.closing else request.host.why_not_accepting
    if why_not:
        return problem(503, "not_ready", why_not, retry_after(1_000))
    engines = (
        [request.engine] if request.node is None else [engine for _, engine in sorted(request.node.engines.items())]
    )
    warnings = tuple(dict.fromkeys(text for engine in engines for text in engine.overview.warnings))
    return as_json(wire.Health(status="ready", warnings=warnings))


async def confirm_clock(request: Request) -> Response:
    await request.engine.admin.confirm_clock(by=request.by)
    return nothing()


async def metrics(request: Request) -> Response:
    engines = [request.engine] if request.node is None else [local for _, local in sorted(request.node.engines.items())]
    readings = [(engine, await engine.overview.status()) for engine in engines]
    return Response(200, exposition(readings, request.node, await _horizon_ms(request)), METRICS)


async def _horizon_ms(request: Request) -> int | None:
    """Return the status of a database shared by nodes. None for another kind, or if it does not respond."""
    store = request.node.store if request.node is not None else None
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
        summary="Show the status of the engine.",
        tag="server",
        responses={200: ResponseSpec(wire.Status)},
    ),
    Route(
        method="GET",
        path="/v1/alarms",
        routed_to="runs",
        gather=spread_alerts,
        handler=alarms,
        summary="List the latest alarms, newest first. They are kept while their server runs, and counted in metrics.",
        tag="server",
        responses={200: ResponseSpec(wire.Alarms)},
    ),
    Route(
        method="POST",
        path="/v1/clock/confirm",
        routed_to="all",
        handler=confirm_clock,
        summary="Confirm the wall clock: adopt a clock step that is held back. Without such a step, nothing happens.",
        tag="server",
        responses={204: ResponseSpec(None, (), "Done, and durable.")},
    ),
    Route(
        method="GET",
        path="/healthz",
        routed_to="here",
        handler=alive,
        summary="Liveness probe: the process responds.",
        tag="server",
        responses={200: ResponseSpec(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        routed_to="here",
        handler=ready,
        summary="Readiness probe: whether new work is accepted; if not, the reason.",
        tag="server",
        responses={200: ResponseSpec(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        routed_to="here",
        handler=metrics,
        summary="Metrics for Prometheus.",
        tag="server",
        responses={200: ResponseSpec(None, (METRICS,), "The Prometheus text format.")},
    ),
)
