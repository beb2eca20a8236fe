"""Occurrences: what is expected, what became of it, and what is late."""

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
        request.engine.schedules.get(query["schedule"])  # an unknown one is an error, not an empty answer
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
        summary="What became of a schedule's occurrences, oldest first; also of a schedule that is no more.",
        tag="occurrences",
        query=(
            QueryParam("start", "From this instant on, RFC 3339; or `next` of the page before."),
            QueryParam("end", "Before this instant; now unless given."),
            QueryParam("limit", "How many ranges at most.", int, FATES_MAX, 1, FATES_MAX),
        ),
        responses={200: ResponseSpec(wire.Occurrences)},
    ),
    Route(
        method="GET",
        path="/v1/occurrences",
        handler=expected,
        summary="What is expected in the days to come, by time.",
        tag="occurrences",
        query=(
            QueryParam("days", "How far to look.", int, 30, 1, DAYS_MAX),
            QueryParam("schedule", "Of this schedule only.", characters_max=128),
            QueryParam("cursor", "`next` of the page before.", characters_max=CURSOR_CHARACTERS_MAX),
            QueryParam("limit", "How many at most.", int, DUE_MAX, 1, DUE_MAX),
        ),
        responses={200: ResponseSpec(wire.Upcoming)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/catchup",
        handler=late,
        summary="What is late, and what would run: under each schedule's own policy, or under another.",
        tag="occurrences",
        query=(
            QueryParam(
                "policy", "As if all had this policy; a length goes with window:6h and spread:30m.", characters_max=64
            ),
        ),
        responses={200: ResponseSpec(wire.CatchUps)},
    ),
    Route(
        method="GET",
        path="/v1/zones",
        routed_to="here",
        handler=zones,
        summary="The time zones that a schedule may name.",
        tag="occurrences",
        responses={200: ResponseSpec(wire.ZoneNames)},
    ),
)
