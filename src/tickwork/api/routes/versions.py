"""Versions of applications: which are registered, and which one is the latest."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.protocol import http_models as wire

_PATH = "/v1/versions/latest"
_APPLICATION = QueryParam("application", "Only this application.", characters_max=128)


async def list_versions(request: Request) -> Response:
    return as_json(wire.AppVersions(versions=tuple(request.engine.workflows.versions(request.query["application"]))))


async def latest(request: Request) -> Response:
    return as_json(request.engine.workflows.latest_version(request.query["application"]))


async def set_latest(request: Request) -> Response:
    body = await request.body(wire.LatestRequest)
    return as_json(await request.engine.workflows.set_latest_version(body.version, body.application, by=request.by))


ROUTES = (
    Route(
        method="GET",
        path="/v1/versions",
        handler=list_versions,
        summary="List the versions of all applications or of one, newest first.",
        tag="versions",
        query=(_APPLICATION,),
        responses={200: ResponseSpec(wire.AppVersions)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path=_PATH,
        handler=latest,
        summary="Show the latest version: scheduled and new runs use its definitions.",
        tag="versions",
        query=(_APPLICATION,),
        responses={200: ResponseSpec(wire.AppVersion)},
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path=_PATH,
        routed_to="all",
        handler=set_latest,
        summary="Make a version the latest: from now on the application uses its definitions and schedules.",
        tag="versions",
        body=BodySpec(wire.LatestRequest),
        responses={200: ResponseSpec(wire.AppVersion)},
        refusals=(404, 409),
    ),
)
