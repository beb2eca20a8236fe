"""Endpoints: URLs that are called by cron or at an interval, and what they answered."""

import ipaddress
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

import msgspec

from tickwork.api.http.cursors import CURSOR, following, number_of, place_of
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.runs import DONE, KEY, said
from tickwork.executors.egress_policy import AddressRefused, closed_by, plain_host
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.text import STATE_NUMBERS

PAGE_MAX = 500
RUNS_MAX = 100

_ALL = "/v1/endpoints"
_PATH = "/v1/endpoints/{endpoint}"


async def list_endpoints(asked: Request) -> Response:
    query = asked.query
    found = await asked.engine.endpoints.page(
        after=place_of(asked), limit=query["limit"], group=query["group"], archived=query["archived"]
    )
    return as_json(msgspec.structs.replace(found, next=following(asked, found.next or "") or None))


async def put_all(asked: Request) -> Response:
    wanted = (await asked.body(wire.EndpointSet)).endpoints
    put = await asked.engine.endpoints.put_set(wanted, by=asked.by)
    return as_json(wire.EndpointPreviews(endpoints={name: _warned(one, wanted[name]) for name, one in put.items()}))


async def show(asked: Request) -> Response:
    return as_json(await asked.engine.endpoints.get(asked.name("endpoint")))


async def put(asked: Request) -> Response:
    wanted = await asked.body(wire.EndpointRequest)
    return as_json(_warned(await asked.engine.endpoints.put(asked.name("endpoint"), wanted, by=asked.by), wanted))


async def archive(asked: Request) -> Response:
    await asked.engine.endpoints.archive(asked.name("endpoint"), by=asked.by)
    return nothing()


async def run(asked: Request) -> Response:
    return await _trigger(asked, test=False)


async def test(asked: Request) -> Response:
    return await _trigger(asked, test=True)


async def _trigger(asked: Request, *, test: bool) -> Response:
    await asked.body(wire.Reason)
    name = _known(asked)
    return as_json(
        wire.Triggered(run_id=await asked.engine.schedules.trigger(name, test=test, by=asked.by, key=asked.key)), 202
    )


async def pause(asked: Request) -> Response:
    wanted, name = await asked.body(wire.PauseRequest), _known(asked)
    await asked.engine.admin.pause("schedule", name, by=asked.by, reason=said(wanted.reason), until=wanted.until)
    return nothing()


async def resume(asked: Request) -> Response:
    await asked.body(wire.Reason)
    await asked.engine.admin.resume("schedule", _known(asked), by=asked.by)
    return nothing()


async def reset_failures(asked: Request) -> Response:
    await asked.body(wire.Reason)
    await asked.engine.schedules.steer(_known(asked), "reset_failures", by=asked.by)
    return nothing()


async def hint(asked: Request) -> Response:
    wanted, name = await asked.body(wire.HintRequest), _known(asked)
    await asked.engine.schedules.advise(name, wanted, by=asked.by)
    return as_json(await asked.engine.endpoints.get(name))


async def clear_hints(asked: Request) -> Response:
    name = _known(asked)
    await asked.engine.schedules.clear_hints(name, by=asked.by)
    return as_json(await asked.engine.endpoints.get(name))


async def list_runs(asked: Request) -> Response:
    query = asked.query
    runs, last = await asked.engine.endpoints.runs(
        asked.name("endpoint"), before=number_of(asked), limit=query["limit"], states=tuple(query["state"])
    )
    return as_json(wire.EndpointRuns(runs=tuple(runs), next=following(asked, f"b{last}" if last else "")))


def _known(asked: Request) -> str:
    """What is a schedule but no endpoint is not reached from here."""
    name = asked.name("endpoint")
    asked.engine.endpoints.check(name)
    return name


def _warned(put: wire.EndpointPreview, wanted: wire.EndpointRequest) -> wire.EndpointPreview:
    refused = refused_by_default(wanted.url)
    return msgspec.structs.replace(put, warnings=(*put.warnings, *refused))


def refused_by_default(url: str) -> tuple[wire.ScheduleWarning, ...]:
    """What a worker will say to a host that is an address, as far as it can be known without its settings. A name is
    looked up by the worker alone, for each request."""
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
_TRIGGERED = {202: ResponseSpec(wire.Triggered, summary="A run has begun.")}
_HINTED = {200: ResponseSpec(wire.Endpoint, summary="The endpoint as it stands.")}


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
) -> Route:
    return Route(
        method=method, path=path, handler=handler, summary=summary, tag="endpoints", responses=responses, body=body,
        query=query,
        headers=headers, refusals=refusals,
    )  # fmt: skip


ROUTES = (
    _route(
        "GET",
        _ALL,
        list_endpoints,
        "Endpoints by name, with the time at which each is called next, and why then.",
        {200: ResponseSpec(wire.EndpointPage)},
        query=(
            QueryParam("group", "Those of this group only."),
            QueryParam("archived", "Those that are archived instead.", bool, False),
            CURSOR,
            QueryParam("limit", "How many at most.", int, 100, 1, PAGE_MAX),
        ),
        refusals=(),
    ),
    _route(
        "PUT",
        _ALL,
        put_all,
        "Create or replace several endpoints, all or none. Others are left alone.",
        {200: ResponseSpec(wire.EndpointPreviews)},
        body=BodySpec(wire.EndpointSet),
    ),
    _route("GET", _PATH, show, "One endpoint, with its last run.", {200: ResponseSpec(wire.Endpoint)}),
    _route(
        "PUT",
        _PATH,
        put,
        "Create an endpoint, or replace it; one that is archived comes back. What is unchanged is left alone.",
        {200: ResponseSpec(wire.EndpointPreview, summary="What it will do, in words, and what looks like a mistake.")},
        body=BodySpec(wire.EndpointRequest, bytes_max=1024 * 1024),
    ),
    _route("DELETE", _PATH, archive, "Archive an endpoint: it is called no more, its runs are kept.", DONE),
    _route(
        "POST", f"{_PATH}/run", run, "Call it now, beside its times.", _TRIGGERED, body=_REASON, headers=(KEY,),
        refusals=(404, 409, 429),
    ),
    _route(
        "POST", f"{_PATH}/test", test, "Call it now as a test, which changes neither times nor failures.", _TRIGGERED,
        body=_REASON, headers=(KEY,), refusals=(404, 429),
    ),
    _route(
        "POST", f"{_PATH}/pause", pause, "Do not call it, for good or until a time.", DONE,
        body=BodySpec(wire.PauseRequest, optional=True, bytes_max=64 * 1024), refusals=(404, 409),
    ),
    _route(
        "POST", f"{_PATH}/resume", resume, "Let it be called again.", DONE, body=_REASON, refusals=(404, 409),
    ),
    _route(
        "POST", f"{_PATH}/reset_failures", reset_failures, "Forget its failures, and so its backoff.", DONE,
        body=_REASON,
    ),
    _route(
        "PUT", f"{_PATH}/hints", hint, "Advise its Governor: an interval, one time, or both.", _HINTED,
        body=BodySpec(wire.HintRequest, bytes_max=64 * 1024),
    ),
    _route("DELETE", f"{_PATH}/hints", clear_hints, "Take its hints back.", _HINTED),
    _route(
        "GET",
        f"{_PATH}/runs",
        list_runs,
        "Its calls, newest first, a page at a time: why then, and what came back.",
        {200: ResponseSpec(wire.EndpointRuns)},
        query=(
            QueryParam(
                "state",
                "Calls in this state, or in one of several, with commas between them.",
                choices=tuple(STATE_NUMBERS),
                many=True,
            ),
            CURSOR,
            QueryParam("limit", "How many at most; fewer where bodies are large.", int, 20, 1, RUNS_MAX),
        ),
    ),
)  # fmt: skip
