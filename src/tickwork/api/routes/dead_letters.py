"""Dead letters: list failed runs, bring them back at a rate, or drop them."""

from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.cursors import CURSOR, following, number_of
from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import checked_text
from tickwork.api.routes.runs import PAGE_MAX, merged_pages
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler


async def list_dead_letters(request: Request) -> Response:
    query = request.query
    letters, last = await request.engine.dead_letters.page(
        workflow=query["workflow"], before=number_of(request), limit=query["limit"]
    )
    return as_json(wire.DeadLetters(runs=tuple(letters), next=following(request, f"b{last}" if last else "")))


async def redrive(request: Request) -> Response:
    body = await request.body(wire.RedriveRequest)
    checked_text(body.reason)
    return as_json(await request.engine.dead_letters.redrive(body, by=request.by))


async def drop(request: Request) -> Response:
    body = await request.body(wire.DeadLetterRequest)
    checked_text(body.reason)
    return as_json(await request.engine.dead_letters.drop(body, by=request.by))


async def at_all(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Each partition acts on the runs that it has; they share the rate. A run is unknown if no partition knows it."""
    partitions, data = router.node.routes.partitions_of(TENANT), await request.data()
    if len(partitions) == 1:
        return await router.at(partitions[0], handler, request.route, request.scope, data)
    parts: list[wire.DeadLetterResult] = []
    for number, partition in enumerate(partitions):
        part = _part(data, number, len(partitions), is_rated=request.route.path.endswith("/redrive"))
        answer = await router.at(partition, handler, request.route, request.scope, part)
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        parts.append(msgspec.json.decode(answer.body, type=wire.DeadLetterResult))
    done = dict.fromkeys(run for part in parts for run in part.done)
    refused: dict[str, wire.DeadLetterProblem] = {}
    for problem in (problem for part in parts for problem in part.refused):
        if problem.run not in done and (problem.run not in refused or problem.code != "unknown_run"):
            refused[problem.run] = problem
    more = any(part.more for part in parts)
    return as_json(wire.DeadLetterResult(done=tuple(done), refused=tuple(refused.values()), more=more))


def _part(data: bytes, number: int, count: int, *, is_rated: bool) -> bytes:
    """The request with this partition's part of the rate, one run a second at least."""
    try:
        body = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data  # the first partition says what is wrong
    rate = body.get("per_second", 10) if isinstance(body, dict) else None
    if not is_rated or not isinstance(rate, int) or rate < 1:
        return data
    return msgspec.json.encode({**body, "per_second": max(1, rate // count + (number < rate % count))})


def _action(word: str, handler: object, summary: str, model: object) -> Route:
    return Route(
        method="POST",
        path=f"/v1/dead-letters/{word}",
        routed_to="runs",
        gather=at_all,
        handler=handler,
        summary=summary,
        tag="dead-letters",
        body=BodySpec(model, bytes_max=1024 * 1024),
        responses={200: ResponseSpec(wire.DeadLetterResult)},
        refusals=(429,),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/dead-letters",
        routed_to="runs",
        gather=merged_pages(wire.DeadLetters),
        handler=list_dead_letters,
        summary="List failed runs that nobody has brought back or dropped, newest first.",
        tag="dead-letters",
        query=(
            QueryParam("workflow", "Only runs of this workflow."),
            CURSOR,
            QueryParam("limit", "Maximum number.", int, 50, 1, PAGE_MAX),
        ),
        responses={200: ResponseSpec(wire.DeadLetters)},
    ),
    _action(
        "redrive",
        redrive,
        "Bring failed runs back: what failed in them is tried again, at a bounded rate.",
        wire.RedriveRequest,
    ),
    _action("drop", drop, "Drop failed runs: they end as cancelled, for a reason.", wire.DeadLetterRequest),
)
