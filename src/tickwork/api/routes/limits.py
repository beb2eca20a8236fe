"""Limits of tenants and of labels. Where a tenant is spread, each partition gets a part, as for queues."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.api.routes.queues import share, sum_of
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

T = TypeVar("T", wire.TenantRequest, wire.LabelLimitRequest)

_TENANT = "/v1/tenants/{tenant}"
_LABEL = "/v1/label-limits/{label}/{value}"


async def list_tenants(request: Request) -> Response:
    return as_json(await request.engine.admin.tenants())


async def spread_tenants(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    answers = await router.collect(handler, request, router.node.routes.partitions_of(TENANT))
    return as_json(wire.Tenants(tenants=tuple(whole_tenants(answers)))) if isinstance(answers, list) else answers


def whole_tenants(answers: Sequence[bytes]) -> list[wire.Tenant]:
    """Merge the parts that the partitions report. The home is first, and has the weight."""
    parts: dict[str, list[wire.Tenant]] = {}
    for answer in answers:
        for tenant in msgspec.json.decode(answer, type=wire.Tenants).tenants:
            parts.setdefault(tenant.name, []).append(tenant)
    return [
        msgspec.structs.replace(
            some[0],
            limit=sum_of(part.limit for part in some),
            rate=sum_of(part.rate for part in some),
            burst=sum_of(part.burst for part in some),
            max_live_runs=sum_of(part.max_live_runs for part in some),
            paused=any(part.paused for part in some),
            ready=sum(part.ready for part in some),
            running=sum(part.running for part in some),
            live_runs=sum(part.live_runs for part in some),
        )
        for _, some in sorted(parts.items())
    ]


async def put_tenant(request: Request) -> Response:
    body = await request.body(wire.TenantRequest)
    await request.engine.admin.put_tenant(request.name("tenant"), body, by=request.by)
    return nothing()


async def pause_tenant(request: Request) -> Response:
    reason = checked_text((await request.body(wire.Reason)).reason)
    name = request.engine.context.tenant(request.name("tenant")).id
    await request.engine.admin.pause("tenant", name, by=request.by, reason=reason, tenant=name)
    return nothing()


async def resume_tenant(request: Request) -> Response:
    await request.body(wire.Reason)
    name = request.engine.context.tenant(request.name("tenant")).id
    await request.engine.admin.resume("tenant", name, by=request.by, tenant=name)
    return nothing()


async def list_label_limits(request: Request) -> Response:
    return as_json(await request.engine.admin.label_limits())


async def spread_label_limits(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    answers = await router.collect(handler, request, router.node.routes.partitions_of(TENANT))
    return as_json(wire.LabelLimits(limits=tuple(whole_limits(answers)))) if isinstance(answers, list) else answers


def whole_limits(answers: Sequence[bytes]) -> list[wire.LabelLimit]:
    parts: dict[tuple[str, str], list[wire.LabelLimit]] = {}
    for answer in answers:
        for limit in msgspec.json.decode(answer, type=wire.LabelLimits).limits:
            parts.setdefault((limit.label, limit.value), []).append(limit)
    return [
        wire.LabelLimit(
            label=label,
            value=value,
            limit=sum(part.limit for part in some),
            running=sum(part.running for part in some),
        )
        for (label, value), some in sorted(parts.items())
    ]


async def put_label_limit(request: Request) -> Response:
    body = await request.body(wire.LabelLimitRequest)
    label, value = request.name("label"), request.name("value", "label value")
    await request.engine.admin.put_label_limit(label, value, body.limit, by=request.by)
    return nothing()


async def remove_label_limit(request: Request) -> Response:
    label, value = request.name("label"), request.name("value", "label value")
    await request.engine.admin.put_label_limit(label, value, None, by=request.by)
    return nothing()


def _dealt_tenant(body: bytes, number: int, count: int) -> bytes:
    request = _decoded(body, wire.TenantRequest)
    return body if request is None else msgspec.json.encode(part_of_tenant(request, number, count))


def _dealt_label(body: bytes, number: int, count: int) -> bytes:
    request = _decoded(body, wire.LabelLimitRequest)
    return body if request is None else msgspec.json.encode(part_of_limit(request, number, count))


def _decoded(body: bytes, model: type[T]) -> T | None:
    """None: the first partition refuses it before any other gets it."""
    try:
        return msgspec.convert(strictjson.loads(body), model)
    except (Refused, msgspec.ValidationError):
        return None


def part_of_tenant(request: wire.TenantRequest, number: int, count: int) -> wire.TenantRequest:
    fields = ("limit", "rate", "burst", "max_live_runs")
    parts = {name: share(getattr(request, name), number, count, path=name) for name in fields}
    return msgspec.structs.replace(request, **parts)


def tenant_request(tenant: wire.Tenant) -> wire.TenantRequest:
    """What puts a tenant as it is."""
    fields = {name: getattr(tenant, name) for name in ("weight", "limit", "rate", "burst", "max_live_runs")}
    return wire.TenantRequest(per=tenant.per or "1s", window=tenant.window or "bucket", **fields)


def part_of_limit(request: wire.LabelLimitRequest, number: int, count: int) -> wire.LabelLimitRequest:
    return wire.LabelLimitRequest(limit=share(request.limit, number, count, path="limit") or 0)


ROUTES = (
    Route(
        method="GET",
        path="/v1/tenants",
        routed_to="runs",
        gather=spread_tenants,
        handler=list_tenants,
        summary="List tenants with their share, limits and work.",
        tag="tenants",
        responses={200: ResponseSpec(wire.Tenants)},
    ),
    Route(
        method="PUT",
        path=_TENANT,
        routed_to="all",
        split_body=_dealt_tenant,
        handler=put_tenant,
        summary="Replace the share and the limits of a tenant.",
        tag="tenants",
        body=BodySpec(wire.TenantRequest, optional=True, bytes_max=64 * 1024),
        responses=DONE,
        refusals=(404,),
    ),
    Route(
        method="POST",
        path=_TENANT + "/pause",
        routed_to="all",
        handler=pause_tenant,
        summary="Pause a tenant: start none of its tasks.",
        tag="tenants",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_TENANT + "/resume",
        routed_to="all",
        handler=resume_tenant,
        summary="Resume a paused tenant.",
        tag="tenants",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/label-limits",
        routed_to="runs",
        gather=spread_label_limits,
        handler=list_label_limits,
        summary="List the limits of labels.",
        tag="label-limits",
        responses={200: ResponseSpec(wire.LabelLimits)},
    ),
    Route(
        method="PUT",
        path=_LABEL,
        routed_to="all",
        split_body=_dealt_label,
        handler=put_label_limit,
        summary="Limit the number of concurrent tasks that require a label.",
        tag="label-limits",
        body=BodySpec(wire.LabelLimitRequest, bytes_max=64 * 1024),
        responses=DONE,
    ),
    Route(
        method="DELETE",
        path=_LABEL,
        routed_to="all",
        handler=remove_label_limit,
        summary="Delete the limit of a label.",
        tag="label-limits",
        responses=DONE,
        refusals=(404,),
    ),
)
