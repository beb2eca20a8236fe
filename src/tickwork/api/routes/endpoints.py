"""Endpoints: URLs that are called by cron or at an interval, and their responses."""

import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from tickwork.api.http.cursors import CURSOR, following, number_of, place_of
from tickwork.api.http.etags import IF_MATCH, etag_of, of_several
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, KEY, checked_text
from tickwork.core.base.names import TENANT
from tickwork.executors.egress_policy import AddressRefused, closed_by, plain_host
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.schedules import edited as edited_of
from tickwork.runtime.views.text import STATE_NUMBERS

PAGE_MAX = 500
RUNS_MAX = 100

_ALL = "/v1/endpoints"
_PATH = "/v1/endpoints/{endpoint}"


async def list_endpoints(request: Request) -> Response:
    query = request.query
    page = await request.engine.endpoints.page(
        after=place_of(request), limit=query["limit"], group=query["group"], archived=query["archived"]
    )
    return as_json(msgspec.structs.replace(page, next=following(request, page.next or "") or None))


async def put_all(request: Request) -> Response:
    endpoints = (await request.body(wire.EndpointSet)).endpoints
    put = await request.engine.endpoints.put_set(endpoints, by=request.by)
    return as_json(
        wire.EndpointPreviews(endpoints={name: _warned(preview, endpoints[name]) for name, preview in put.items()})
    )


def _edited(request: Request) -> bytes | None:
    return edited_of(request.engine.context.state, TENANT, request.name("endpoint"))


async def show(request: Request) -> Response:
    shown = await request.engine.endpoints.get(request.name("endpoint"))
    return as_json(msgspec.structs.replace(shown, etag=etag_of(_edited(request))))


async def put(request: Request) -> Response:
    body = await request.body(wire.EndpointRequest)
    return as_json(_warned(await request.engine.endpoints.put(request.name("endpoint"), body, by=request.by), body))


async def archive(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.endpoints.archive(request.name("endpoint"), by=request.by)
    return nothing()


async def restore(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.schedules.steer(_known(request), "restore", by=request.by)
    return nothing()


async def trigger(request: Request) -> Response:
    return await _trigger(request, test=False)


async def test(request: Request) -> Response:
    return await _trigger(request, test=True)


async def _trigger(request: Request, *, test: bool) -> Response:
    await request.body(wire.Reason)
    name = _known(request)
    return as_json(
        wire.Triggered(run_id=await request.engine.schedules.trigger(name, test=test, by=request.by, key=request.key)),
        202,
    )


async def pause(request: Request) -> Response:
    body, name = await request.body(wire.PauseRequest), _known(request)
    await request.engine.admin.pause(
        "schedule", name, by=request.by, reason=checked_text(body.reason), until=body.until
    )
    return nothing()


async def resume(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.admin.resume("schedule", _known(request), by=request.by)
    return nothing()


async def reset_failures(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.schedules.steer(_known(request), "reset_failures", by=request.by)
    return nothing()


async def hint(request: Request) -> Response:
    body, name = await request.body(wire.HintRequest), _known(request)
    await request.engine.schedules.advise(name, body, by=request.by)
    return as_json(await request.engine.endpoints.get(name))


async def clear_hints(request: Request) -> Response:
    name = _known(request)
    await request.engine.schedules.clear_hints(name, by=request.by)
    return as_json(await request.engine.endpoints.get(name))


async def list_runs(request: Request) -> Response:
    query = request.query
    runs, last = await request.engine.endpoints.runs(
        request.name("endpoint"), before=number_of(request), limit=query["limit"], states=tuple(query["state"])
    )
    return as_json(wire.EndpointRuns(runs=tuple(runs), next=following(request, f"b{last}" if last else "")))


def _known(request: Request) -> str:
    """Refuse the name of a schedule that is not an endpoint."""
    name = request.name("endpoint")
    request.engine.endpoints.check(name)
    return name


def _warned(put: wire.EndpointPreview, request: wire.EndpointRequest) -> wire.EndpointPreview:
    refused = refused_by_default(request.url)
    return msgspec.structs.replace(put, warnings=(*put.warnings, *refused))


def refused_by_default(url: str) -> tuple[wire.ScheduleWarning, ...]:
    """Return a warning if a worker will refuse the address in the URL, as far as that is known without its settings.

    Only the worker resolves a host name, for each request.
    """
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(plain_host(host))
        rule = closed_by(address)
    except AddressRefused as refused:
        return (wire.ScheduleWarning(code="address_refused", text=f"workers refuse this: {refused}"),)
    except ValueError:
        return ()
    text = f"{address} is {rule}: only workers that name it in allow_networks call it"
    return (wire.ScheduleWarning(code="address_refused", text=text),) if rule else ()


_REASON = BodySpec(wire.Reason, optional=True, bytes_max=64 * 1024)
_TRIGGERED = {202: ResponseSpec(wire.Triggered, summary="The run has started.")}
_HINTED = {200: ResponseSpec(wire.Endpoint, summary="The endpoint with its new hints.")}


def _route(
    method: str,
    path: str,
    handler: Callable[[Request], Awaitable[Response]],
    summary: str,
    responses: dict[int, ResponseSpec],
    *,
    body: BodySpec | None = None,
    query: tuple[QueryParam, ...] = (),
    headers: tuple[tuple[str, str], ...] = (),
    refusals: tuple[int, ...] = (404,),
    edited: Callable[[Request], bytes | None] | None = None,
) -> Route:
    return Route(
        method=method, path=path, handler=handler, summary=summary, tag="endpoints", responses=responses, body=body,
        query=query,
        headers=headers, refusals=refusals, edited=edited,
    )  # fmt: skip


ROUTES = (
    _route(
        "GET",
        _ALL,
        list_endpoints,
        "List endpoints by name, with the time of the next call of each and its reason.",
        {200: ResponseSpec(wire.EndpointPage)},
        query=(
            QueryParam("group", "Only endpoints of this group."),
            QueryParam("archived", "List archived endpoints instead.", bool, False),
            CURSOR,
            QueryParam("limit", "Maximum number of endpoints.", int, 100, 1, PAGE_MAX),
        ),
        refusals=(),
    ),
    _route(
        "PUT",
        _ALL,
        put_all,
        "Create or replace several endpoints, all or none. Other endpoints do not change.",
        {200: ResponseSpec(wire.EndpointPreviews)},
        body=BodySpec(wire.EndpointSet),
        edited=of_several,
    ),
    _route(
        "GET", _PATH, show, "Show an endpoint with its last run.", {200: ResponseSpec(wire.Endpoint)}, edited=_edited
    ),
    _route(
        "PUT",
        _PATH,
        put,
        "Create or replace an endpoint. An archived endpoint is restored; an identical request changes nothing.",
        {200: ResponseSpec(wire.EndpointPreview, summary="A description of what it will do, and warnings.")},
        body=BodySpec(wire.EndpointRequest, bytes_max=1024 * 1024),
        headers=(IF_MATCH,),
        refusals=(404, 412),
        edited=_edited,
    ),
    _route(
        "POST", f"{_PATH}/archive", archive, "Archive an endpoint: it is no longer called, and its runs are kept.",
        DONE, body=_REASON, headers=(IF_MATCH,), refusals=(404, 412), edited=_edited,
    ),
    _route(
        "POST", f"{_PATH}/restore", restore, "Restore an endpoint from the archive.", DONE, body=_REASON,
        refusals=(404, 409),
    ),
    _route(
        "POST", f"{_PATH}/trigger", trigger, "Call it now, in addition to its times.", _TRIGGERED, body=_REASON,
        headers=(KEY,), refusals=(404, 409, 429),
    ),
    _route(
        "POST", f"{_PATH}/test", test, "Call it now as a test, without effect on times and failures.", _TRIGGERED,
        body=_REASON, headers=(KEY,), refusals=(404, 429),
    ),
    _route(
        "POST", f"{_PATH}/pause", pause, "Pause an endpoint until it is resumed, or until a time.", DONE,
        body=BodySpec(wire.PauseRequest, optional=True, bytes_max=64 * 1024), refusals=(404, 409),
    ),
    _route(
        "POST", f"{_PATH}/resume", resume, "Resume a paused endpoint.", DONE, body=_REASON, refusals=(404, 409),
    ),
    _route(
        "POST", f"{_PATH}/reset_failures", reset_failures, "Reset the failure count, and so the backoff.", DONE,
        body=_REASON,
    ),
    _route(
        "PUT", f"{_PATH}/hints", hint, "Give its Governor a hint: an interval, one time, or both.", _HINTED,
        body=BodySpec(wire.HintRequest, bytes_max=64 * 1024),
    ),
    _route("DELETE", f"{_PATH}/hints", clear_hints, "Withdraw its hints.", _HINTED),
    _route(
        "GET",
        f"{_PATH}/runs",
        list_runs,
        "List its calls, newest first, with the reason and the response of each; one page per request.",
        {200: ResponseSpec(wire.EndpointRuns)},
        query=(
            QueryParam(
                "state",
                "Only calls in this state, or in one of several, comma-separated.",
                choices=tuple(STATE_NUMBERS),
                many=True,
            ),
            CURSOR,
            QueryParam("limit", "Maximum number of calls; fewer if bodies are large.", int, 20, 1, RUNS_MAX),
        ),
    ),
)  # fmt: skip
