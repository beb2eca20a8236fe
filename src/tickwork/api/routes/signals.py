"""Events from outside, for whoever waits for them."""

from tickwork.api.http.request import Asked
from tickwork.api.http.response import Answer, as_json
from tickwork.api.http.route import Body, Gives, Route
from tickwork.protocol import http_models as wire


async def signal(asked: Asked) -> Answer:
    wanted = await asked.body(wire.Signal)
    return as_json(await asked.engine.signal(wanted, by=asked.by))


ROUTES = (
    Route(
        method="POST",
        path="/v1/events",
        lives="any",
        does=signal,
        says="Tell one run, or whoever waits for this name and key. A run that does not wait yet keeps its event.",
        tag="events",
        body=Body(wire.Signal),
        gives={200: Gives(wire.Heard)},
        refusals=(404, 429),
    ),
)
