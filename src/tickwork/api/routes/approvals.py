"""Approvals and forms that wait for a person, in all runs."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json
from tickwork.api.http.route import QueryParam, ResponseSpec, Route
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

APPROVALS_MAX = 1_000


async def list_approvals(request: Request) -> Response:
    waiting, more = await request.engine.runs.approvals(request.query["workflow"], request.query["limit"])
    return as_json(wire.OpenApprovals(approvals=tuple(waiting), more=more))


async def spread_list(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Merge those of all partitions, newest run first. Each of them must respond."""
    partitions = router.node.routes.partitions_of(TENANT)
    answers = await asyncio.gather(
        *(router.at(partition, handler, request.route, request.scope, b"") for partition in partitions)
    )
    approvals: list[wire.OpenApproval] = []
    more = False
    for answer in answers:
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        part = msgspec.json.decode(answer.body, type=wire.OpenApprovals)
        approvals, more = [*approvals, *part.approvals], more or part.more
    limit = request.query["limit"]
    approvals.sort(key=lambda approval: approval.submitted_at, reverse=True)
    return as_json(wire.OpenApprovals(approvals=tuple(approvals[:limit]), more=more or len(approvals) > limit))


ROUTES = (
    Route(
        method="GET",
        path="/v1/approvals",
        routed_to="runs",
        gather=spread_list,
        handler=list_approvals,
        summary="List the approvals and forms that wait for a person, newest run first. A form has `fields`.",
        tag="runs",
        query=(
            QueryParam("workflow", "Only in runs of this workflow."),
            QueryParam("limit", "Maximum number of approvals.", int, 100, 1, APPROVALS_MAX),
        ),
        responses={200: ResponseSpec(wire.OpenApprovals)},
    ),
)
