"""Schedules: list, put, pause, trigger and remove them, and give hints."""

from collections.abc import Awaitable, Callable

import msgspec

from tickwork.api.http.cursors import CURSOR, following, place_of
from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.etags import IF_MATCH, etag_of, of_several
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, KEY, REASON, checked_text
from tickwork.api.routes.pause import pausing
from tickwork.core.base.names import TENANT, check_name
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.schedules import edited

PAGE_MAX = 1_000
NAME_CHARACTERS_MAX = 128

_PATH = "/v1/schedules/{schedule}"
_STARTED = {202: ResponseSpec(wire.Triggered, summary="The run has started; its id.")}
_SHOWN = {200: ResponseSpec(wire.Schedule)}
_PREVIEWED = {
    200: ResponseSpec(wire.SchedulePreview, summary="What it will do: a description, its next times, and warnings.")
}


def _edited(request: Request) -> bytes | None:
    return edited(request.engine.context.state, TENANT, request.name("schedule"))


# ---- one and all


async def list_schedules(request: Request) -> Response:
    query = request.query
    page = request.engine.schedules.page(
        after=place_of(request), limit=query["limit"], group=query["group"], archived=query["archived"]
    )
    return as_json(msgspec.structs.replace(page, next=following(request, page.next or "") or None))


async def show(request: Request) -> Response:
    shown = request.engine.schedules.get(request.name("schedule"))
    return as_json(msgspec.structs.replace(shown, etag=etag_of(_edited(request))))


async def put(request: Request) -> Response:
    name, match = request.name("schedule"), request.header(b"if-none-match")
    if match not in ("", "*"):
        raise HttpRefused(
            400, "bad_header", "If-None-Match supports only *, which means: create only", path="header.if-none-match"
        )
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

    return _action_route(action, handler, summary, responses=_STARTED, headers=(KEY,))


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
    checked_text(body.reason)
    return as_json(await request.engine.schedules.advise(request.name("schedule"), body, by=request.by))


async def clear_hints(request: Request) -> Response:
    return as_json(await request.engine.schedules.clear_hints(request.name("schedule"), by=request.by))


ROUTES = (
    Route(
        method="GET",
        path="/v1/schedules",
        handler=list_schedules,
        summary="List schedules by name, with the next time of each.",
        tag="schedules",
        query=(
            QueryParam("group", "Only schedules of this group.", characters_max=NAME_CHARACTERS_MAX),
            QueryParam("archived", "List archived schedules instead.", bool, False),
            CURSOR,
            QueryParam("limit", "Maximum number of schedules.", int, PAGE_MAX, 1, PAGE_MAX),
        ),
        responses={200: ResponseSpec(wire.Schedules)},
    ),
    Route(
        method="PUT",
        path="/v1/schedules",
        edited=of_several,
        handler=apply,
        summary="Replace all schedules of an owner, all or none. Schedules that are missing in the set are removed.",
        tag="schedules",
        body=BodySpec(wire.ScheduleSet),
        responses={200: ResponseSpec(wire.Schedules)},
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/schedules/preview",
        handler=preview,
        summary="Preview what a schedule would do. Nothing is stored.",
        tag="schedules",
        body=BodySpec(wire.PreviewRequest, bytes_max=1024 * 1024),
        responses=_PREVIEWED,
        refusals=(404,),
    ),
    Route(
        method="GET",
        path=_PATH,
        edited=_edited,
        handler=show,
        summary="Show a schedule: its policies, its times, and the fates of its occurrences.",
        tag="schedules",
        responses=_SHOWN,
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path=_PATH,
        handler=put,
        summary="Create or replace a schedule.",
        tag="schedules",
        body=BodySpec(wire.ScheduleRequest, bytes_max=1024 * 1024),
        headers=(("If-None-Match", "`*`: create only; refused if a schedule of this name exists."), IF_MATCH),
        edited=_edited,
        responses=_PREVIEWED,
        refusals=(404, 409, 412),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        edited=_edited,
        handler=remove,
        summary="Delete a schedule. Its runs continue; the fates of its occurrences are kept.",
        tag="schedules",
        headers=(IF_MATCH,),
        responses=DONE,
        refusals=(404, 412),
    ),
    *pausing(
        "schedule",
        pause="Pause a schedule until it is resumed, or until `until`.",
        resume="Resume a paused schedule, from now on.",
        until=True,
    ),
    *pausing("group", pause="Pause all schedules of a group.", resume="Resume the schedules of a group, from now on."),
    _steering("archive", "Archive a schedule: it no longer fires, is not listed, and keeps its history."),
    _steering("restore", "Restore a schedule from the archive."),
    _steering("reset_failures", "Reset its failure count."),
    _beginning("trigger", "Start a run now, in addition to its times.", test=False),
    _beginning("test", "Start a run now as a test, without any effect on the schedule.", test=True),
    Route(
        method="PUT",
        path=f"{_PATH}/hints",
        handler=advise,
        summary="Give the Governor of a schedule a hint: an interval, one time, or both, with an expiry.",
        tag="schedules",
        body=BodySpec(wire.HintRequest, bytes_max=64 * 1024),
        responses=_SHOWN,
        refusals=(404, 409),
    ),
    Route(
        method="DELETE",
        path=f"{_PATH}/hints",
        handler=clear_hints,
        summary="Withdraw all hints.",
        tag="schedules",
        responses=_SHOWN,
        refusals=(404, 409),
    ),
)
