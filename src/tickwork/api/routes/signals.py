"""Events from outside, for the runs that wait for them."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.protocol import http_models as wire


async def signal(request: Request) -> Response:
    body = await request.body(wire.Signal)
    return as_json(await request.engine.runs.signal(body, by=request.by, key=request.key))


KEY = ("Idempotency-Key", "Repeated within a day, an event to which a schedule listens is the same event.")

ROUTES = (
    Route(
        method="POST",
        path="/v1/events",
        routed_to="any",
        handler=signal,
        summary="Send an event to one run, which keeps it until it waits, or to all runs that wait for its name and "
        "key and all schedules that listen to it.",
        tag="events",
        body=BodySpec(wire.Signal),
        headers=(KEY,),
        responses={200: ResponseSpec(wire.Heard)},
        refusals=(404, 429),
    ),
)
