"""Occurrences: upcoming ones, the fates of past ones, and late ones."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import QueryParam, ResponseSpec, Route
from tickwork.protocol import http_models as wire

FATES_MAX = 1_000
DUE_MAX = 10_000
DAYS_MAX = 3_660
CURSOR_CHARACTERS_MAX = 160


async def fates(request: Request) -> Response:
    query = request.query
    return as_json(
        await request.engine.schedules.fates(
            request.name("schedule"), start=query["start"], end=query["end"], limit=query["limit"]
        )
    )


async def expected(request: Request) -> Response:
    query = request.query
    if query["schedule"]:
        request.engine.schedules.get(query["schedule"])  # an unknown name is an error, not an empty list
    return as_json(
        request.engine.schedules.next_occurrences(
            days=query["days"], name=query["schedule"], after=query["cursor"], limit=query["limit"]
        )
    )


async def late(request: Request) -> Response:
    return as_json(wire.CatchUps(schedules=tuple(request.engine.schedules.catch_ups(policy=request.query["policy"]))))


async def zones(request: Request) -> Response:
    zones = request.host.zones
    return as_json(wire.ZoneNames(zones=tuple(zones.names), tzdata=zones.version))


ROUTES = (
    Route(
        method="GET",
        path="/v1/schedules/{schedule}/occurrences",
        handler=fates,
        summary="List the fates of a schedule's occurrences, oldest first; also those of a deleted schedule.",
        tag="occurrences",
        query=(
            QueryParam("start", "From this instant on (RFC 3339), or `next` of the previous page."),
            QueryParam("end", "Before this instant; default: now."),
            QueryParam("limit", "Maximum number of ranges.", int, FATES_MAX, 1, FATES_MAX),
        ),
        responses={200: ResponseSpec(wire.Occurrences)},
    ),
    Route(
        method="GET",
        path="/v1/occurrences",
        handler=expected,
        summary="List the occurrences expected in the next days, by time.",
        tag="occurrences",
        query=(
            QueryParam("days", "Number of days to look ahead.", int, 30, 1, DAYS_MAX),
            QueryParam("schedule", "Only this schedule.", characters_max=128),
            QueryParam("cursor", "`next` of the previous page.", characters_max=CURSOR_CHARACTERS_MAX),
            QueryParam("limit", "Maximum number of occurrences.", int, DUE_MAX, 1, DUE_MAX),
        ),
        responses={200: ResponseSpec(wire.Upcoming)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/catchup",
        handler=late,
        summary="List late occurrences and what would run, under each schedule's own policy or under another one.",
        tag="occurrences",
        query=(
            QueryParam(
                "policy",
                "Assume this policy for all schedules; window:6h and spread:30m take a duration.",
                characters_max=64,
            ),
        ),
        responses={200: ResponseSpec(wire.CatchUps)},
    ),
    Route(
        method="GET",
        path="/v1/zones",
        routed_to="here",
        handler=zones,
        summary="List the time zones that a schedule can use.",
        tag="occurrences",
        responses={200: ResponseSpec(wire.ZoneNames)},
    ),
)
