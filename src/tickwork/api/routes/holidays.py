"""Holidays: named lists of dates that schedules leave out."""

import msgspec

from tickwork.api.http.etags import IF_MATCH
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire

_PATH = "/v1/holidays/{holidays}"


async def list_holidays(request: Request) -> Response:
    return as_json(wire.Holidays(lists=request.engine.schedules.holidays()))


def _edited(request: Request) -> bytes | None:
    dates = request.engine.schedules.holidays().get(request.name("holidays", "list of holidays"))
    return None if dates is None else msgspec.json.encode(sorted(dates))


async def show(request: Request) -> Response:
    name = request.name("holidays", "list of holidays")
    dates = request.engine.schedules.holidays().get(name)
    if dates is None:
        raise Refused("unknown_holidays", f"there is no list {name!r}", path="holidays")
    return as_json(wire.Holidays(lists={name: dates}))


async def put(request: Request) -> Response:
    name = request.name("holidays", "list of holidays")
    body = await request.body(wire.HolidaysRequest)
    await request.engine.schedules.put_holidays(name, body.dates, by=request.by)
    return nothing()


async def remove(request: Request) -> Response:
    await request.engine.schedules.put_holidays(request.name("holidays", "list of holidays"), None, by=request.by)
    return nothing()


ROUTES = (
    Route(
        method="GET",
        path="/v1/holidays",
        handler=list_holidays,
        summary="Show all lists of holidays.",
        tag="holidays",
        responses={200: ResponseSpec(wire.Holidays)},
    ),
    Route(
        method="GET",
        path=_PATH,
        edited=_edited,
        handler=show,
        summary="Show one list.",
        tag="holidays",
        responses={200: ResponseSpec(wire.Holidays)},
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path=_PATH,
        edited=_edited,
        handler=put,
        summary="Create or replace a list of dates such as 2026-12-25. Schedules that name it use it at once.",
        tag="holidays",
        body=BodySpec(wire.HolidaysRequest, bytes_max=1024 * 1024),
        headers=(IF_MATCH,),
        responses=DONE,
        refusals=(404, 409, 412),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        edited=_edited,
        handler=remove,
        summary="Delete a list that no schedule names.",
        tag="holidays",
        headers=(IF_MATCH,),
        responses=DONE,
        refusals=(404, 409, 412),
    ),
)
