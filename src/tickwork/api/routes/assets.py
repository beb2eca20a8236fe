"""Assets: data by its name, with its lineage and its updates."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.protocol import http_models as wire

KEY = ("Idempotency-Key", "Repeated within a day, it is the same update.")


async def list_assets(request: Request) -> Response:
    return as_json(await request.engine.assets.assets())


async def show(request: Request) -> Response:
    return as_json(await request.engine.assets.asset(request.name("asset")))


async def update(request: Request) -> Response:
    body = await request.body(wire.AssetUpdateRequest)
    return as_json(await request.engine.assets.update(request.name("asset"), body, by=request.by, key=request.key))


ROUTES = (
    Route(
        method="GET",
        path="/v1/assets",
        handler=list_assets,
        summary="List assets: what tasks make and schedules listen to, with the last update of each.",
        tag="assets",
        responses={200: ResponseSpec(wire.Assets)},
    ),
    Route(
        method="GET",
        path="/v1/assets/{asset}",
        handler=show,
        summary="Show an asset: what makes it, what listens to it, and its latest updates.",
        tag="assets",
        responses={200: ResponseSpec(wire.Asset)},
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path="/v1/assets/{asset}",
        handler=update,
        summary="Say that an asset has new data. Schedules that listen to it count the update.",
        tag="assets",
        body=BodySpec(wire.AssetUpdateRequest, optional=True, bytes_max=64 * 1024),
        headers=(KEY,),
        responses={200: ResponseSpec(wire.AssetHeard)},
        refusals=(409,),
    ),
)
