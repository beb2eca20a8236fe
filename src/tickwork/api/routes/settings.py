"""The machine's settings: those in force, and their changes."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE
from tickwork.protocol import http_models as wire


async def show(request: Request) -> Response:
    return as_json(await request.engine.settings.settings())


async def put(request: Request) -> Response:
    await request.engine.settings.put((await request.body(wire.SettingsRequest)).settings, by=request.by)
    return nothing()


ROUTES = (
    Route(
        method="GET",
        path="/v1/settings",
        handler=show,
        summary="Show the settings of the machine that are in force, with bounds and defaults.",
        tag="settings",
        responses={200: ResponseSpec(wire.Settings)},
    ),
    Route(
        method="PUT",
        path="/v1/settings",
        routed_to="all",
        handler=put,
        summary="Change settings; all others stay. A change is recorded, so a replay decides in the same way.",
        tag="settings",
        body=BodySpec(wire.SettingsRequest, bytes_max=64 * 1024),
        responses=DONE,
    ),
)
