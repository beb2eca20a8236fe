"""Runs: list and show them, and act on them."""

import asyncio
from heapq import merge
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec

from tickwork.api.http.cursors import CURSOR, bad_cursor, following, number_of, place_of
from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import INNER, Request
from tickwork.api.http.response import JSON, MSGPACK, Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, KEY, REASON, checked_text
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire
from tickwork.runtime.views.runs import AttemptPage
from tickwork.runtime.views.text import STATE_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

    Gather = Callable[[ClusterRouter, LocalHandler, Request], Awaitable[Response | StreamingResponse | None]]

PAGE_MAX = 500
ATTEMPTS_SHOWN, ATTEMPTS_MAX = 100, 10_000  # of each task
UPDATE_KEY = ("Idempotency-Key", "The same key is the same update. The body may name it instead.")

_values = msgspec.msgpack.Decoder()


async def list_runs(request: Request) -> Response:
    criteria = request.engine.queries.filter(
        search=search_of(request), before=number_of(request), limit=request.query["limit"]
    )
    runs, last = await request.engine.queries.runs(criteria)
    return as_json(wire.Page(runs=tuple(runs), next=following(request, f"b{last}" if last else "")))


def search_of(request: Request) -> wire.RunSearch:
    given = {name: value for name in wire.RunSearch.__struct_fields__ if (value := request.query[name])}
    return wire.RunSearch(**given | {"where": _inputs_of(given["where"])} if "where" in given else given)


def _inputs_of(parts: tuple[str, ...]) -> dict[str, str]:
    pairs = [part.partition("=") for part in parts]
    if not all(name and middle for name, middle, _ in pairs):
        raise Refused("bad_where", "write name=value, and %2C for a comma inside the value", path="query.where")
    return {unquote(name): unquote(value) for name, _, value in pairs}


def merged_pages(model: type[wire.Page]) -> "Gather":
    """Merge the pages of all partitions, newest first. The cursor holds the position in each partition."""

    async def spread_list(
        router: "ClusterRouter", handler: "LocalHandler", request: Request
    ) -> Response | StreamingResponse | None:
        return await _merged(router, handler, request, model)

    return spread_list


async def _merged(
    router: "ClusterRouter", handler: "LocalHandler", request: Request, model: type[wire.Page]
) -> Response | StreamingResponse | None:
    partitions = router.node.routes.partitions_of(TENANT)
    if len(partitions) == 1:  # the cursor is the owner's, on every node
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
        pages[partition] = msgspec.json.decode(answer.body, type=model)
    # Each page keeps its own order, by number: the cursor points after the last run taken from it.
    entries = list(
        merge(
            *([(run, partition) for run in page.runs] for partition, page in pages.items()),
            key=lambda entry: entry[0].submitted_at,
            reverse=True,
        )
    )
    taken = entries[:limit]
    last = {partition: run.number for run, partition in taken}
    waiting = {partition for _, partition in entries[limit:]}
    left: dict[int, str] = {}
    for partition, page in pages.items():
        if partition in waiting:
            left[partition] = f"b{last[partition]}" if partition in last else places[partition]
        elif page.next:  # it may be further on than its last run, where few runs fit
            left[partition] = page.next.rpartition("~")[0]
    behind = "s" + "-".join(f"{partition}.{at}" for partition, at in left.items()) if left else ""
    return as_json(model(runs=tuple(run for run, _ in taken), next=following(request, behind)))


def _places(behind: str) -> dict[int, str]:
    parts = [part.partition(".") for part in behind[1:].split("-")]
    if behind[0] != "s" or not all(number.isascii() and number.isdigit() and len(number) < 4 for number, _, _ in parts):
        raise bad_cursor()
    return {int(number): at for number, _, at in parts}


async def ids(request: Request) -> Response:
    return as_json(await request.engine.queries.ids_with_prefix(request.query["prefix"]))


async def spread_ids(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    answers = await router.collect(handler, request, router.node.routes.partitions_of(TENANT))
    if not isinstance(answers, list):
        return answers
    parts = [msgspec.json.decode(answer, type=wire.RunIds) for answer in answers]
    found = tuple(run for part in parts for run in part.ids)
    whole = request.query["prefix"]
    return as_json(wire.RunIds(ids=(whole,) if whole in found else found, more=any(part.more for part in parts)))


async def show(request: Request) -> Response:
    page = AttemptPage(request.query["attempts"], request.query["attempts_before"])
    return as_json(await request.engine.queries.run(request.run_id, page=page))


async def history(request: Request) -> Response:
    """JSON for people; MessagePack is what a worker gets, for `tickwork check`."""
    if request.wants(MSGPACK):
        return Response(200, await request.engine.queries.history_bytes(request.run_id), MSGPACK)
    return as_json(await request.engine.queries.history(request.run_id))


async def output(request: Request) -> Response:
    """Return the whole value. It is stored as MessagePack, so that form needs no conversion."""
    return _value_response(request, await request.engine.queries.value_bytes(request.run_id, request.query["node"]))


def _value_response(request: Request, data: bytes) -> Response:
    if request.wants(MSGPACK):
        return Response(200, data, MSGPACK)
    try:
        return as_json(_values.decode(data))
    except (TypeError, ValueError, RecursionError) as error:
        raise HttpRefused(406, "not_json", f"this value is not JSON ({error}); accept {MSGPACK}") from None


async def published(request: Request) -> Response:
    """Return a published value, as `output` does."""
    return _value_response(request, await request.engine.queries.published_bytes(request.run_id, request.text("name")))


async def ask(request: Request) -> Response:
    """A server that stops ends the call; the caller repeats it under the same key."""
    body = await request.body(wire.UpdateRequest)
    key = body.key or request.key or request.host.ids.new()
    asking = asyncio.ensure_future(
        request.engine.updates.ask(request.run_id, request.text("name"), body, key=key, by=request.by)
    )
    closing = asyncio.ensure_future(request.closing.wait())
    try:
        await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done():
            raise Unavailable("the server is shutting down; repeat the call under the same key", retry_after_ms=1_000)
        result = asking.result()
    finally:
        asking.cancel()
        closing.cancel()
    try:
        return as_json(result, 202 if result.state == "waiting" else 200)
    except (TypeError, ValueError, RecursionError) as error:
        raise HttpRefused(406, "not_json", f"the reply is not JSON ({error})") from None


async def cancel(request: Request) -> Response:
    reason = await request.body(wire.Reason)
    await request.engine.runs.cancel(request.run_id, by=request.by, reason=checked_text(reason.reason))
    return nothing()


async def pause(request: Request) -> Response:
    body = await request.body(wire.PauseRequest)
    await request.engine.admin.pause(
        "run", request.run_id, by=request.by, reason=checked_text(body.reason), until=body.until
    )
    return nothing()


async def resume(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.admin.resume("run", request.run_id, by=request.by)
    return nothing()


async def retry(request: Request) -> Response:
    reason = await request.body(wire.Reason)
    await request.engine.runs.resolve(request.run_id, by=request.by, reason=checked_text(reason.reason))
    return nothing()


async def resolve(request: Request) -> Response:
    body = await request.body(wire.ResolveRequest)
    await request.engine.runs.resolve(
        request.run_id, by=request.by, reason=checked_text(body.reason), decisions=body.decisions, values=body.values
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
        comment=checked_text(decision.comment, path="comment"),
        values=decision.values,
    )
    return nothing()


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
        gather=merged_pages(wire.Page),
        handler=list_runs,
        summary="List runs, newest first, one page per request.",
        tag="runs",
        query=(
            QueryParam("workflow", "Only runs of this workflow."),
            QueryParam(
                "state",
                "Only runs in this state, or in one of several, comma-separated.",
                choices=tuple(STATE_NUMBERS),
                many=True,
            ),
            QueryParam("schedule", "Only runs that this schedule started."),
            QueryParam("tag", "Only runs with this tag, or with all of several, comma-separated.", many=True),
            QueryParam(
                "where",
                "Only runs with this value of an input that their workflow declares searchable, as name=value; several "
                "are comma-separated. Write %2C for a comma and %25 for a percent sign inside a value, before the "
                "whole query is encoded.",
                many=True,
                characters_max=1_024,
            ),
            QueryParam("version", "Only runs pinned to this version, as version or application@version."),
            QueryParam("error", "Only failed runs whose error has all of these words."),
            *(
                QueryParam(f"{name}_{end}", f"Only runs that were {name} {words} this time (RFC 3339).")
                for name in ("submitted", "started", "ended")
                for end, words in (("from", "at or after"), ("to", "before"))
            ),
            CURSOR,
            QueryParam("limit", "Maximum number of runs.", int, 50, 1, PAGE_MAX),
        ),
        responses={200: ResponseSpec(wire.Page)},
    ),
    Route(
        method="GET",
        path="/v1/run-ids",
        routed_to="runs",
        gather=spread_ids,
        handler=ids,
        summary="List the ids that begin with a prefix: of unfinished runs and of the latest 10,000.",
        tag="runs",
        query=(QueryParam("prefix", "The beginning of an id.", required=True),),
        responses={200: ResponseSpec(wire.RunIds)},
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}",
        routed_to="run",
        handler=show,
        summary="Show a run with its tasks and their attempts.",
        tag="runs",
        query=(
            QueryParam("attempts", "Maximum number of attempts of each task.", int, ATTEMPTS_SHOWN, 1, ATTEMPTS_MAX),
            QueryParam("attempts_before", "Show attempts with smaller numbers than this; 0: the latest.", int, 0),
        ),
        responses={200: ResponseSpec(wire.RunDetail)},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/history",
        routed_to="run",
        handler=history,
        summary="Show what the durable function of a run has recorded, and what it waits for.",
        tag="runs",
        responses={200: ResponseSpec(wire.FunctionHistory, (JSON, MSGPACK))},
        refusals=(404,),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/output",
        routed_to="run",
        handler=output,
        summary="Return the whole output of a run, or the result of one of its nodes.",
        tag="runs",
        query=(QueryParam("node", "Return the result of this node instead."),),
        responses={200: ResponseSpec(None, (JSON, MSGPACK), "The value.")},
        refusals=(404, 406),
    ),
    Route(
        method="GET",
        path="/v1/runs/{run}/values/{name}",
        routed_to="run",
        handler=published,
        summary="Return the value that a run has published last under this name.",
        tag="runs",
        responses={200: ResponseSpec(None, (JSON, MSGPACK), "The value.")},
        refusals=(404, 406),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/updates/{name}",
        routed_to="run",
        handler=ask,
        summary="Send an update to the durable function of a run, and wait for its reply.",
        tag="runs",
        body=BodySpec(wire.UpdateRequest, optional=True),
        headers=(UPDATE_KEY,),
        responses={
            200: ResponseSpec(wire.UpdateResult, (JSON,), "The function has replied, or refused."),
            202: ResponseSpec(wire.UpdateResult, (JSON,), "Accepted, without a reply so far: call again."),
        },
        refusals=(404, 406, 409, 422, 429),
    ),
    _action_route("cancel", cancel, "Cancel a run and stop its attempts."),
    _action_route(
        "pause",
        pause,
        "Pause a run: start none of its tasks.",
        BodySpec(wire.PauseRequest, optional=True, bytes_max=64 * 1024),
    ),
    _action_route("resume", resume, "Resume a paused run."),
    _action_route("retry", retry, "Retry everything that failed in a failed run."),
    _action_route(
        "resolve",
        resolve,
        "Resolve each failed node of a failed run: retry, accept (with a value) or skip.",
        BodySpec(wire.ResolveRequest, optional=True),
    ),
    Route(
        method="POST",
        path="/v1/runs/{run}/rerun",
        routed_to="run",
        handler=rerun,
        summary="Run an ended run again, as a new run: from the start, from a node on, or only what did not succeed.",
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
        summary="Approve or reject an approval that a run waits for, or fill in a form with `values`.",
        tag="runs",
        body=BodySpec(wire.Decision, bytes_max=64 * 1024),
        responses=DONE,
        refusals=(403, 404, 409),
    ),
)
