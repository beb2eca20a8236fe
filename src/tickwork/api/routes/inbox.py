"""The inbox: what waits for a person, in all runs."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json
from tickwork.api.http.route import QueryParam, ResponseSpec, Route
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.inbox import KINDS, in_order

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

ENTRIES_MAX = 1_000


async def list_inbox(request: Request) -> Response:
    query = request.query
    entries, more = await request.engine.inbox.entries(
        kinds=query["kind"] or KINDS, workflow=query["workflow"], person=query["person"], limit=query["limit"]
    )
    return as_json(wire.Inbox(entries=tuple(entries), more=more))


async def spread_list(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Merge those of all partitions. Each of them must respond."""
    partitions = router.node.routes.partitions_of(TENANT)
    answers = await asyncio.gather(
        *(router.at(partition, handler, request.route, request.scope, b"") for partition in partitions)
    )
    entries: list[wire.InboxEntry] = []
    more = False
    for answer in answers:
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        part = msgspec.json.decode(answer.body, type=wire.Inbox)
        entries, more = [*entries, *part.entries], more or part.more
    limit = request.query["limit"]
    return as_json(wire.Inbox(entries=tuple(in_order(entries)[:limit]), more=more or len(entries) > limit))


ROUTES = (
    Route(
        method="GET",
        path="/v1/inbox",
        routed_to="runs",
        gather=spread_list,
        handler=list_inbox,
        summary="List what waits for a person: approvals and forms (with `fields`), paused runs, and failed runs that "
        "nobody has resolved; of each kind the newest run first.",
        tag="runs",
        query=(
            QueryParam("kind", "Only of these kinds.", choices=KINDS, many=True),
            QueryParam("workflow", "Only in runs of this workflow."),
            QueryParam("person", "Without approvals and forms that this person may not decide.", characters_max=128),
            QueryParam("limit", "Maximum number of entries.", int, 100, 1, ENTRIES_MAX),
        ),
        responses={200: ResponseSpec(wire.Inbox)},
    ),
)
