"""Events from outside, for the runs that wait for them."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.protocol import http_models as wire


async def signal(request: Request) -> Response:
    body = await request.body(wire.Signal)
    return as_json(await request.engine.runs.signal(body, by=request.by))


ROUTES = (
    Route(
        method="POST",
        path="/v1/events",
        routed_to="any",
        handler=signal,
        summary="Send an event to one run, which keeps it until it waits, or to all that wait for its name and key.",
        tag="events",
        body=BodySpec(wire.Signal),
        responses={200: ResponseSpec(wire.Heard)},
        refusals=(404, 429),
    ),
)
