"""Queues: what nodes name and workers serve, with their limits."""

from tickwork.api.asked import Asked
from tickwork.api.messages import Answer, as_json, nothing
from tickwork.api.routes.pausing import pausing
from tickwork.api.routes.runs import DONE
from tickwork.api.table import Body, Gives, Route
from tickwork.ports import wire

_PATH = "/v1/queues/{queue}"


async def list_queues(asked: Asked) -> Answer:
    return as_json(wire.Queues(queues=tuple(asked.engine.queues())))


async def put(asked: Asked) -> Answer:
    name = asked.name("queue")
    await asked.engine.put_queue(name, await asked.body(wire.QueueRequest), by=asked.by)
    return nothing()


ROUTES = (
    Route(
        method="GET",
        path="/v1/queues",
        does=list_queues,
        says="All queues, with what waits and runs in each.",
        tag="queues",
        gives={200: Gives(wire.Queues)},
    ),
    Route(
        method="PUT",
        path=_PATH,
        does=put,
        says="Declare a queue, or change its limits.",
        tag="queues",
        body=Body(wire.QueueRequest, optional=True, bytes_max=64 * 1024),
        gives=DONE,
    ),
    *pausing("queue", pause="Let no task of this queue start.", resume="Let its tasks start again."),
)
