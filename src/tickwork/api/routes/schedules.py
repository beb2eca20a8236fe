"""Schedules: what starts by itself, when next, and by hand."""

from collections.abc import Awaitable, Callable

import msgspec

from tickwork.api.http.cursors import CURSOR, following, place_of
from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.pause import pausing
from tickwork.api.routes.runs import DONE, KEY, REASON, said
from tickwork.core.base.names import check_name
from tickwork.protocol import http_models as wire

PAGE_MAX = 1_000
NAME_CHARACTERS_MAX = 128

_PATH = "/v1/schedules/{schedule}"
_BEGUN = {202: ResponseSpec(wire.Triggered, summary="The run has begun; its id.")}
_SHOWN = {200: ResponseSpec(wire.Schedule)}
_TOLD = {200: ResponseSpec(wire.SchedulePreview, summary="What it will do: in words, its next times, and warnings.")}


# ---- one and all


async def list_schedules(request: Request) -> Response:
    query = request.query
    page = request.engine.schedules.page(
        after=place_of(request), limit=query["limit"], group=query["group"], archived=query["archived"]
    )
    return as_json(msgspec.structs.replace(page, next=following(request, page.next or "") or None))


async def show(request: Request) -> Response:
    return as_json(request.engine.schedules.get(request.name("schedule")))


async def put(request: Request) -> Response:
    name, match = request.name("schedule"), request.header(b"if-none-match")
    if match not in ("", "*"):
        raise HttpRefused(400, "bad_header", "If-None-Match is * here: only create it", path="header.if-none-match")
    body = await request.body(wire.ScheduleRequest)
    return as_json(await request.engine.schedules.put(name, body, by=request.by, new=bool(match)))


async def apply(request: Request) -> Response:
    schedules = await request.engine.schedules.apply(await request.body(wire.ScheduleSet), by=request.by)
    return as_json(wire.Schedules(schedules=tuple(schedules)))


async def preview(request: Request) -> Response:
    body = await request.body(wire.PreviewRequest)
    name = check_name(body.name, path="name", kind="schedule") if body.name else ""
    return as_json(request.engine.schedules.preview(name, body))


async def remove(request: Request) -> Response:
    await request.engine.schedules.remove(request.name("schedule"), by=request.by)
    return nothing()


# ---- actions


def _steering(action: str, summary: str) -> Route:
    async def handler(request: Request) -> Response:
        await request.body(wire.Reason)
        await request.engine.schedules.steer(request.name("schedule"), action, by=request.by)
        return nothing()

    return _action_route(action, handler, summary, responses=DONE)


def _beginning(action: str, summary: str, *, test: bool) -> Route:
    async def handler(request: Request) -> Response:
        await request.body(wire.Reason)
        run_id = await request.engine.schedules.trigger(
            request.name("schedule"), by=request.by, test=test, key=request.key
        )
        return as_json(wire.Triggered(run_id=run_id), 202)

    return _action_route(action, handler, summary, responses=_BEGUN, headers=(KEY,))


def _action_route(
    action: str,
    handler: Callable[[Request], Awaitable[Response]],
    summary: str,
    *,
    responses: dict[int, ResponseSpec],
    headers: tuple[tuple[str, str], ...] = (),
) -> Route:
    return Route(
        method="POST",
        path=f"{_PATH}/{action}",
        handler=handler,
        summary=summary,
        tag="schedules",
        body=REASON,
        headers=headers,
        responses=responses,
        refusals=(404, 409, 429),
    )


async def advise(request: Request) -> Response:
    body = await request.body(wire.HintRequest)
    said(body.reason)
    return as_json(await request.engine.schedules.advise(request.name("schedule"), body, by=request.by))


async def clear_hints(request: Request) -> Response:
    return as_json(await request.engine.schedules.clear_hints(request.name("schedule"), by=request.by))


ROUTES = (
    Route(
        method="GET",
        path="/v1/schedules",
        handler=list_schedules,
        summary="Schedules by name, with the time at which each fires next.",
        tag="schedules",
        query=(
            QueryParam("group", "Only those of this group.", characters_max=NAME_CHARACTERS_MAX),
            QueryParam("archived", "Those that are archived, instead of those that are not.", bool, False),
            CURSOR,
            QueryParam("limit", "How many at most.", int, PAGE_MAX, 1, PAGE_MAX),
        ),
        responses={200: ResponseSpec(wire.Schedules)},
    ),
    Route(
        method="PUT",
        path="/v1/schedules",
        handler=apply,
        summary="Apply all schedules of an owner, all or none. Those that it had and the set lacks are removed.",
        tag="schedules",
        body=BodySpec(wire.ScheduleSet),
        responses={200: ResponseSpec(wire.Schedules)},
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/schedules/preview",
        handler=preview,
        summary="What a schedule would do. Nothing is put.",
        tag="schedules",
        body=BodySpec(wire.PreviewRequest, bytes_max=1024 * 1024),
        responses=_TOLD,
        refusals=(404,),
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=show,
        summary="One schedule: its terms, its times, and how its occurrences ended.",
        tag="schedules",
        responses=_SHOWN,
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path=_PATH,
        handler=put,
        summary="Create a schedule, or replace it.",
        tag="schedules",
        body=BodySpec(wire.ScheduleRequest, bytes_max=1024 * 1024),
        headers=(("If-None-Match", "`*`: only create it; refused where there is one of this name."),),
        responses=_TOLD,
        refusals=(404, 409),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        handler=remove,
        summary="Remove a schedule. Runs that it began go on; the fates of its occurrences are kept.",
        tag="schedules",
        responses=DONE,
        refusals=(404,),
    ),
    *pausing(
        "schedule",
        pause="Let a schedule begin nothing, until it is resumed or `until` has come.",
        resume="Let a paused schedule go on, from now.",
        until=True,
    ),
    *pausing("group", pause="Let no schedule of this group begin anything.", resume="Let them go on, from now."),
    _steering("archive", "Put a schedule away: it begins nothing and is not listed, and keeps its history."),
    _steering("restore", "Take a schedule back from the archive."),
    _steering("reset_failures", "Count its failures from zero."),
    _beginning("trigger", "Begin one run now, beside its times.", test=False),
    _beginning("test", "Begin one run now that leaves the schedule as it is: nothing counts it.", test=True),
    Route(
        method="PUT",
        path=f"{_PATH}/hints",
        handler=advise,
        summary="Advise the Governor of an endpoint: an interval, one time, or both, for a while.",
        tag="schedules",
        body=BodySpec(wire.HintRequest, bytes_max=64 * 1024),
        responses=_SHOWN,
        refusals=(404, 409),
    ),
    Route(
        method="DELETE",
        path=f"{_PATH}/hints",
        handler=clear_hints,
        summary="Take all advice back.",
        tag="schedules",
        responses=_SHOWN,
        refusals=(404, 409),
    ),
)
