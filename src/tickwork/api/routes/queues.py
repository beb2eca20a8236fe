"""Queues: what nodes name and workers serve, with their limits."""

import msgspec

from tickwork.api.asked import Asked
from tickwork.api.messages import Answer, as_json, nothing
from tickwork.api.routes.pausing import pausing
from tickwork.api.routes.runs import DONE
from tickwork.api.table import Body, Gives, Route
from tickwork.core import strictjson
from tickwork.core.errors import Refused
from tickwork.ports import wire

_PATH = "/v1/queues/{queue}"


async def list_queues(asked: Asked) -> Answer:
    return as_json(wire.Queues(queues=tuple(asked.engine.queues())))


async def put(asked: Asked) -> Answer:
    name = asked.name("queue")
    await asked.engine.put_queue(name, await asked.body(wire.QueueRequest), by=asked.by)
    return nothing()


def _dealt(body: bytes, number: int, count: int) -> bytes:
    """Its part of a limit and of a rate; the parts together are no more than the whole."""
    try:
        wanted = msgspec.convert(strictjson.loads(body), wire.QueueRequest)
    except (Refused, msgspec.ValidationError):
        return body  # whoever reads it says what is wrong, before any other has heard of it

    def part(whole: int | None, path: str) -> int | None:
        if whole is not None and 0 < whole < count:
            message = f"{whole} cannot be dealt out to the {count} partitions that this tenant is spread over"
            raise Refused("limit_too_small", message, path=path)
        return None if whole is None else whole // count + (number < whole % count)

    return msgspec.json.encode(
        msgspec.structs.replace(
            wanted,
            limit=part(wanted.limit, "limit"),
            rate=part(wanted.rate, "rate"),
            burst=part(wanted.burst, "burst"),
        )
    )


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
        lives="all",
        deals=_dealt,
        does=put,
        says="Declare a queue, or change its limits.",
        tag="queues",
        body=Body(wire.QueueRequest, optional=True, bytes_max=64 * 1024),
        gives=DONE,
    ),
    *pausing("queue", pause="Let no task of this queue start.", resume="Let its tasks start again."),
)
