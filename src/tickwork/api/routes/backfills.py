"""Backfills: runs for a past window of a schedule."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.runs import DONE, REASON
from tickwork.protocol import http_models as wire

PAGE_MAX = 500


async def begin(request: Request) -> Response:
    wanted = await request.body(wire.BackfillRequest)
    found = await request.engine.schedules.backfill(request.name("schedule"), wanted, by=request.by)
    return as_json(found, 200 if wanted.preview else 202)


async def list_backfills(request: Request) -> Response:
    found = await request.engine.schedules.backfills(limit=request.query["limit"])
    return as_json(wire.Backfills(backfills=tuple(found)))


def _steering(deed: str, summary: str) -> Route:
    async def handler(request: Request) -> Response:
        await request.body(wire.Reason)
        await request.engine.schedules.steer_backfill(request.number("backfill"), deed, by=request.by)
        return nothing()

    return Route(
        method="POST",
        path=f"/v1/backfills/{{backfill}}/{deed}",
        handler=handler,
        summary=summary,
        tag="backfills",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/schedules/{schedule}/backfills",
        handler=begin,
        summary="Run what a schedule had in a window of the past, from `start` up to `end`. What has run is not "
        "repeated.",
        tag="backfills",
        body=BodySpec(wire.BackfillRequest, bytes_max=64 * 1024),
        responses={
            200: ResponseSpec(wire.Backfill, summary="A preview: nothing has begun."),
            202: ResponseSpec(wire.Backfill, summary="It has begun; the runs that it may begin are named."),
        },
        refusals=(404, 409, 429),
    ),
    Route(
        method="GET",
        path="/v1/backfills",
        handler=list_backfills,
        summary="Backfills under way, then those that ended, newest first.",
        tag="backfills",
        query=(QueryParam("limit", "How many at most.", int, 50, 1, PAGE_MAX),),
        responses={200: ResponseSpec(wire.Backfills)},
    ),
    _steering("pause", "Begin no more of its runs."),
    _steering("resume", "Go on with a paused backfill."),
    _steering("cancel", "Begin no more of its runs, ever. Those that run go on."),
)
