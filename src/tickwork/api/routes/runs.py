"""Runs: finding them, and deciding what becomes of them."""

from heapq import merge
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

import msgspec

from tickwork.api.http.cursors import CURSOR, bad_cursor, following, number_of, place_of
from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import INNER, Request
from tickwork.api.http.response import JSON, MSGPACK, Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import TENANT
from tickwork.runtime.views.text import STATE_NUMBERS

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

PAGE_MAX = 500
REASON_CHARACTERS_MAX = 1_000

_values = msgspec.msgpack.Decoder()


async def list_runs(request: Request) -> Response:
    query = request.query
    criteria = request.engine.queries.filter(
        workflow=query["workflow"],
        states=query["state"],
        schedule=query["schedule"],
        before=number_of(request),
        limit=query["limit"],
    )
    runs, last = await request.engine.queries.runs(criteria)
    return as_json(wire.Page(runs=tuple(runs), next=following(request, f"b{last}" if last else "")))


async def spread_list(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Merge the pages of all partitions, newest first. The cursor holds the position in each partition."""
    partitions = router.node.partitions_of(TENANT)
    if len(partitions) == 1:  # the cursor is that of its owner, whichever node is asked
        return await router.at(partitions[0], handler, request.route, request.scope, b"")
    limit, behind = request.query["limit"], place_of(request)
    places = _places(behind) if behind else dict.fromkeys(partitions, "")
    pages: dict[int, wire.Page] = {}
    for partition, at in places.items():
        words = {**dict(parse_qsl(request.scope["query_string"].decode("latin-1"))), "cursor": at}
        query = urlencode({name: value for name, value in words.items() if value}).encode()
        scope = {**request.scope, "query_string": query, INNER: True}
        answer = await router.at(partition, handler, request.route, scope, b"")
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        pages[partition] = msgspec.json.decode(answer.body, type=wire.Page)
    # Each page keeps its own order, by number: the cursor points behind the last that was taken of it.
    entries = list(
        merge(
            *([(run, partition) for run in page.runs] for partition, page in pages.items()),
            key=lambda entry: entry[0].submitted_at,
            reverse=True,
        )
    )
    taken = entries[:limit]
    last = {partition: run.number for run, partition in taken}
    left = {
        partition: f"b{last[partition]}" if partition in last else places[partition]
        for partition, page in pages.items()
        if page.next or any(partition == other for _, other in entries[limit:])
    }
    behind = "s" + "-".join(f"{partition}.{at}" for partition, at in left.items()) if left else ""
    return as_json(wire.Page(runs=tuple(run for run, _ in taken), next=following(request, behind)))


def _places(behind: str) -> dict[int, str]:
    parts = [part.partition(".") for part in behind[1:].split("-")]
    if behind[0] != "s" or not all(number.isascii() and number.isdigit() and len(number) < 4 for number, _, _ in parts):
        raise bad_cursor()
    return {int(number): at for number, _, at in parts}


async def show(request: Request) -> Response:
    return as_json(await request.engine.queries.run(request.run_id))


async def output(request: Request) -> Response:
    """The whole value; it is kept as MessagePack, so asking for that costs nothing."""
    data = await request.engine.queries.value_bytes(request.run_id, request.query["node"])
    if request.wants(MSGPACK):
        return Response(200, data, MSGPACK)
    try:
        return as_json(_values.decode(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise HttpRefused(406, "not_json", f"this value is not JSON ({error}); accept {MSGPACK}") from None


async def cancel(request: Request) -> Response:
    reason = await request.body(wire.Reason)
    await request.engine.runs.cancel(request.run_id, by=request.by, reason=said(reason.reason))
    return nothing()


async def pause(request: Request) -> Response:
    body = await request.body(wire.PauseRequest)
    await request.engine.admin.pause("run", request.run_id, by=request.by, reason=said(body.reason), until=body.until)
    return nothing()


async def resume(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.admin.resume("run", request.run_id, by=request.by)
    return nothing()


async def retry(request: Request) -> Response:
    reason = await request.body(wire.Reason)
    await request.engine.runs.resolve(request.run_id, by=request.by, reason=said(reason.reason))
    return nothing()


async def resolve(request: Request) -> Response:
    body = await request.body(wire.ResolveRequest)
    await request.engine.runs.resolve(
        request.run_id, by=request.by, reason=said(body.reason), decisions=body.decisions, values=body.values
    )
    return nothing()


async def rerun(request: Request) -> Response:
    body = await request.body(wire.RerunRequest)
    if request.key:
        made = await request.engine.runs.rerun_once(request.run_id, body, by=request.by, key=request.key)
    else:
        made = wire.Submitted(id=await request.engine.runs.rerun(request.run_id, body, by=request.by))
    return as_json(made, 200 if made.duplicate else 201, (b"location", f"/v1/runs/{made.id}".encode()))


async def decide(request: Request) -> Response:
    decision = await request.body(wire.Decision)
    await request.engine.runs.decide(
        request.run_id,
        request.name("node"),
        approve=decision.approve,
        by=request.by,
        comment=said(decision.comment, path="comment"),
    )
    return nothing()


def said(text: str, *, path: str = "reason") -> str:
    """Free text of people goes into the journal: not too much of it."""
    if len(text) > REASON_CHARACTERS_MAX:
        raise Refused("text_too_long", f"at most {REASON_CHARACTERS_MAX} characters", path=path)
    return text


KEY = ("Idempotency-Key", "The same key gives the same run, for at least 24 hours.")
DONE = {204: ResponseSpec(None, (), "Done, and durable.")}
REASON = BodySpec(wire.Reason, optional=True, bytes_max=64 * 1024)


def _action_route(word: str, handler: object, summary: str, body: BodySpec = REASON) -> Route:
    return Route(
        method="POST",
        path=f"/v1/runs/{{run}}/{word}",
        routed_to="run",
        handler=handler,
        summary=summary,
        tag="runs",
        body=body,
        responses=DONE,
        refusals=(403, 404, 409, 429),
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/runs",
        routed_to="runs",
        gather=spread_list,
        handler=list_runs,
        summary="Runs, newest first, a page at a time.",
        tag="runs",
        query=(
            QueryParam("workflow", "Runs of this workflow only."),
            QueryParam(
                "state",
                "Runs in this state, or in one of several, with commas between them.",
                choices=tuple(STATE_NUMBERS),
                many=True,
            ),
            QueryParam("schedule", "Runs that this schedule began."),
            CURSOR,
            QueryParam("limit", "How many at most.", int, 50, 1, PAGE_MAX),
        ),
        responses={200: ResponseSpec(wire.Page)},
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}",
        routed_to="run",
        handler=show,
        summary="One run with its tasks and their attempts.",
        tag="runs",
        responses={200: ResponseSpec(wire.RunDetail)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/output",
        routed_to="run",
        handler=output,
        summary="The whole output of a run, or the result of one of its nodes.",
        tag="runs",
        query=(QueryParam("node", "The result of this node instead."),),
        responses={200: ResponseSpec(None, (JSON, MSGPACK), "The value.")},
        refusals=(404, 406),
    ),
    _action_route("cancel", cancel, "End a run. Its attempts are told to stop."),
    _action_route(
        "pause", pause, "Let a run begin nothing new.", BodySpec(wire.PauseRequest, optional=True, bytes_max=64 * 1024)
    ),
    _action_route("resume", resume, "Let a paused run go on."),
    _action_route("retry", retry, "Try everything that failed in a failed run again."),
    _action_route(
        "resolve",
        resolve,
        "Decide for each failed node of a failed run: retry, accept (with a value) or skip.",
        BodySpec(wire.ResolveRequest, optional=True),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/rerun",
        routed_to="run",
        handler=rerun,
        summary="A new run like an ended one: from the start, from one node on, or of what did not end well.",
        tag="runs",
        body=BodySpec(wire.RerunRequest, optional=True),
        headers=(KEY,),
        responses={
            201: ResponseSpec(wire.Submitted, (JSON,), "Accepted.", ("Location",)),
            200: ResponseSpec(wire.Submitted, (JSON,), "Accepted before, under the same key.", ("Location",)),
        },
        refusals=(404, 409, 429),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/approvals/{node}",
        routed_to="run",
        handler=decide,
        summary="Answer an approval that a run waits for.",
        tag="runs",
        body=BodySpec(wire.Decision, bytes_max=64 * 1024),
        responses=DONE,
        refusals=(403, 404, 409),
    ),
)
