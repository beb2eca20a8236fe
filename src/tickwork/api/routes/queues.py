"""Queues: nodes name them, workers serve them, and limits apply to them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE
from tickwork.api.routes.pause import pausing
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

_PATH = "/v1/queues/{queue}"


async def list_queues(request: Request) -> Response:
    return as_json(wire.Queues(queues=tuple(request.engine.overview.queues())))


async def spread_queues(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """List the queues of all partitions; limits and rates are added up."""
    answers = await router.collect(handler, request, router.node.routes.partitions_of(TENANT))
    return as_json(wire.Queues(queues=tuple(whole(answers)))) if isinstance(answers, list) else answers


def whole(answers: Sequence[bytes]) -> list[wire.Queue]:
    """Merge the parts that the partitions of a tenant report into whole queues."""
    parts: dict[str, list[wire.Queue]] = {}
    for answer in answers:
        for queue in msgspec.json.decode(answer, type=wire.Queues).queues:
            parts.setdefault(queue.name, []).append(queue)
    return [
        wire.Queue(
            name=name,
            ready=sum(part.ready for part in some),
            running=sum(part.running for part in some),
            limit=sum_of(part.limit for part in some),
            rate=sum_of(part.rate for part in some),
            per=next((part.per for part in some if part.per), ""),
            burst=sum_of(part.burst for part in some),
            paused=any(part.paused for part in some),
            window=next((part.window for part in some if part.window), ""),
        )
        for name, some in sorted(parts.items())
    ]


def sum_of(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


async def remove(request: Request) -> Response:
    await request.engine.admin.remove_queue(request.name("queue"), by=request.by)
    return nothing()


async def put(request: Request) -> Response:
    name = request.name("queue")
    await request.engine.admin.put_queue(name, await request.body(wire.QueueRequest), by=request.by)
    return nothing()


def _dealt(body: bytes, number: int, count: int) -> bytes:
    """Return this partition's part of a limit and a rate; the sum of the parts never exceeds the whole."""
    try:
        whole_request = msgspec.convert(strictjson.loads(body), wire.QueueRequest)
    except (Refused, msgspec.ValidationError):
        return body  # the first partition refuses it before any other gets it
    return msgspec.json.encode(part_of(whole_request, number, count))


def part_of(request: wire.QueueRequest, number: int, count: int) -> wire.QueueRequest:
    parts = {name: share(getattr(request, name), number, count, path=name) for name in ("limit", "rate", "burst")}
    return msgspec.structs.replace(request, **parts)


def share(limit: int | None, number: int, count: int, *, path: str) -> int | None:
    """One partition's part of a limit. Raises `Refused` where a part would be 0 and the whole is not."""
    if limit is not None and 0 < limit < count:
        message = f"{limit} cannot be dealt out to the {count} partitions that this tenant is spread over"
        raise Refused("limit_too_small", message, path=path)
    return None if limit is None else limit // count + (number < limit % count)


ROUTES = (
    Route(
        method="GET",
        path="/v1/queues",
        routed_to="runs",
        gather=spread_queues,
        handler=list_queues,
        summary="List all queues with their waiting and running tasks.",
        tag="queues",
        responses={200: ResponseSpec(wire.Queues)},
    ),
    Route(
        method="PUT",
        path=_PATH,
        routed_to="all",
        split_body=_dealt,
        handler=put,
        summary="Declare a queue, or change its limits.",
        tag="queues",
        body=BodySpec(wire.QueueRequest, optional=True, bytes_max=64 * 1024),
        responses=DONE,
    ),
    Route(
        method="DELETE",
        path=_PATH,
        routed_to="all",
        handler=remove,
        summary="Delete a queue that no workflow or schedule names and that has no tasks.",
        tag="queues",
        responses=DONE,
        refusals=(404, 409),
    ),
    *pausing("queue", pause="Pause a queue: start none of its tasks.", resume="Resume a paused queue."),
)
