"""One partition: where it stands, its journal, and whether its work is given to workers.

For auditors, and for people who follow up on what an auditor found.
"""

from tickwork.api.http.request import Request
from tickwork.api.http.response import JOURNAL, Response, StreamingResponse, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.journal import AFTER, export
from tickwork.api.routes.pause import pausing
from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.protocol import http_models as wire


async def head(request: Request) -> Response:
    _must_be_ours(request)
    return as_json(await request.engine.overview.head())


async def tick(request: Request) -> Response:
    _must_be_ours(request)
    return as_json(await request.engine.overview.tick(request.number("tick")))


async def journal(request: Request) -> StreamingResponse:
    _must_be_ours(request)
    return await export(request)


async def known(request: Request) -> Response:
    _must_be_ours(request)
    ids = await request.body(wire.Ids)
    return as_json(wire.Ids(ids=tuple(await request.engine.queries.known(ids.ids))))


def _must_be_ours(request: Request) -> None:
    text = request.text("partition")
    if text != str(request.engine.context.number):
        raise Refused("unknown_partition", f"there is no partition {shortened(text, 32)!r}", path="partition")


ROUTES = (
    Route(
        method="GET",
        path="/v1/partitions/{partition}",
        routed_to="partition",
        handler=head,
        summary="Show a partition: the last row of its journal, its owner's epoch, and whether it is paused.",
        tag="partitions",
        responses={200: ResponseSpec(wire.PartitionHead)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/partitions/{partition}/ticks/{tick}",
        routed_to="partition",
        handler=tick,
        summary="Show what a tick did: its inputs, its events, and the runs that it processed, in order.",
        tag="partitions",
        responses={200: ResponseSpec(wire.TickTrace)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/partitions/{partition}/journal",
        routed_to="partition",
        handler=journal,
        summary="Export the journal of a partition after a seq: a head with the settings, then framed rows.",
        tag="partitions",
        query=(AFTER,),
        responses={200: ResponseSpec(None, (JOURNAL,), "Head and rows, as `tickwork.journal.export` reads them.")},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/partitions/{partition}/known",
        routed_to="partition",
        handler=known,
        summary="Internal, between nodes: return which of these ids belong to runs in a partition.",
        tag="partitions",
        body=BodySpec(wire.Ids, bytes_max=16 * 1024 * 1024),
        responses={200: ResponseSpec(wire.Ids)},
        refusals=(404,),
    ),
    *pausing(
        "partition",
        pause="Pause a partition: give none of its tasks to workers. Running tasks continue. `why` shows the reason.",
        resume="Resume a paused partition.",
    ),
)
