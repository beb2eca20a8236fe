"""Backfills: runs for a past window of a schedule."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, REASON
from tickwork.protocol import http_models as wire

PAGE_MAX = 500


async def begin(request: Request) -> Response:
    body = await request.body(wire.BackfillRequest)
    backfill = await request.engine.schedules.backfill(request.name("schedule"), body, by=request.by)
    return as_json(backfill, 200 if body.preview else 202)


async def list_backfills(request: Request) -> Response:
    backfills = await request.engine.schedules.backfills(limit=request.query["limit"])
    return as_json(wire.Backfills(backfills=tuple(backfills)))


def _steering(action: str, summary: str) -> Route:
    async def handler(request: Request) -> Response:
        await request.body(wire.Reason)
        await request.engine.schedules.steer_backfill(request.number("backfill"), action, by=request.by)
        return nothing()

    return Route(
        method="POST",
        path=f"/v1/backfills/{{backfill}}/{action}",
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
        summary="Run the occurrences of a schedule in a past window, `start` up to `end`. What has already run is not "
        "repeated.",
        tag="backfills",
        body=BodySpec(wire.BackfillRequest, bytes_max=64 * 1024),
        responses={
            200: ResponseSpec(wire.Backfill, summary="A preview: nothing was started."),
            202: ResponseSpec(
                wire.Backfill, summary="The backfill has started; the response names the runs that it can start."
            ),
        },
        refusals=(404, 409, 429),
    ),
    Route(
        method="GET",
        path="/v1/backfills",
        handler=list_backfills,
        summary="List active backfills, then those that ended, newest first.",
        tag="backfills",
        query=(QueryParam("limit", "Maximum number of backfills.", int, 50, 1, PAGE_MAX),),
        responses={200: ResponseSpec(wire.Backfills)},
    ),
    _steering("pause", "Pause a backfill: start no more of its runs until it is resumed."),
    _steering("resume", "Resume a paused backfill."),
    _steering("cancel", "Cancel a backfill: start no more of its runs. Active runs continue."),
)
