"""Submit runs: one, or up to a thousand in one call. The response is sent when their tick is durable."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.api.http.errors import OUTCOME_UNKNOWN, refusal
from tickwork.api.http.request import Request, decoded
from tickwork.api.http.response import (
    JSON,
    MSGPACK,
    Header,
    Response,
    StreamingResponse,
    as_json,
    as_msgpack,
    json_encoder,
    msgpack_encoder,
)
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.cluster.placement import ids_in
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import OutcomeUnknown, Refused, Unavailable
from tickwork.core.base.names import TENANT
from tickwork.ports.store import StoreFull
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler
    from tickwork.cluster.node import Node

BATCH_MAX = 1_000
_AWAY = (503, OUTCOME_UNKNOWN)  # if an owner did not accept a part: with the same id, a retry is accepted once

_names_of = attrgetter("id", "key", "debounce")
_decoders: dict[str, Any] = {
    JSON: msgspec.json.Decoder(wire.Batch),
    MSGPACK: msgspec.msgpack.Decoder(wire.Batch),
}


async def submit(request: Request) -> Response:
    submission = _under_header(await request.body(wire.Submission), request.key)
    return _outcome_response(request, (await _submitted(request, [submission]))[0])


async def _submitted(request: Request, runs: Sequence[wire.Submission]) -> list[wire.Submitted | wire.Rejected]:
    if request.node is None:
        return await request.engine.runs.submit(runs, by=request.by)
    return await request.node.definitions.submit(request.engine, runs, by=request.by, tenant=TENANT)


def _outcome_response(request: Request, outcome: wire.Submitted | wire.Rejected) -> Response:
    if isinstance(outcome, wire.Rejected):
        return refusal(outcome.code, outcome.detail, path=outcome.path)
    encode = as_msgpack if request.wants(MSGPACK) else as_json
    location = f"/v1/runs/{outcome.id}".encode()
    return encode(outcome, 200 if outcome.duplicate else 201, (b"location", location))


async def submit_batch(request: Request) -> Response:
    return _batch_response(request, await _submitted(request, await _runs_of(request)))


def _batch_response(request: Request, outcomes: Sequence[wire.Submitted | wire.Rejected]) -> Response:
    answer = wire.BatchAnswer(runs=tuple(outcomes))
    return as_msgpack(answer) if request.wants(MSGPACK) else as_json(answer)


async def _runs_of(request: Request) -> tuple[wire.Submission, ...]:
    kind, data = request.kind(), await request.data()
    batch: wire.Batch = decoded(data, kind, _decoders[kind])
    if kind == JSON and not _whole(data, batch):
        strictjson.check_keys(data)
    if not 1 <= len(batch.runs) <= BATCH_MAX:
        raise Refused("batch_size", f"a batch has 1 to {BATCH_MAX} runs, this one has {len(batch.runs)}", path="runs")
    runs, key = batch.runs, request.key
    if key:
        # The key includes the index, so a repeated batch makes no run twice.
        runs = tuple(_under_header(run, f"{key}.{index}") for index, run in enumerate(runs))
    return runs


def _whole(data: bytes, batch: wire.Batch) -> bool:
    """Return whether the body contains only known fields, and no field twice.

    A decoder reads a repeated name once. Each text has two quotes: if none is missing, no name was repeated.
    """
    return b"\\" not in data and data.count(b'"') == json_encoder.encode(batch).count(b'"')


def _under_header(submission: wire.Submission, key: str) -> wire.Submission:
    """Return the submission with the key of the header, unless the body has a key or id, which takes precedence."""
    named = submission.key or submission.id
    return submission if named or not key else msgspec.structs.replace(submission, key=key)


# ---- over several partitions


async def spread_one(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    given = _under_header(await request.body(wire.Submission), request.key)
    kept_here = await _here(router.node, [given], by=request.by) if _may_wait(given) else None
    if kept_here is not None:
        return _outcome_response(request, kept_here[0])
    submission = _named(given, router.node)
    [partition] = await _places(router, [submission])
    sent = json_encoder.encode(submission)
    scope = {**request.scope, "headers": _as(request.scope["headers"], JSON)}
    answer = await router.at(partition, handler, request.route, scope, sent)
    if answer is not None and answer.status in _AWAY and _may_wait(given):
        kept = (await router.node.inbox.add([submission], by=request.by, tenant=TENANT))[0]
        return as_json(kept, 201, (b"location", f"/v1/runs/{kept.id}".encode()))
    return answer


async def spread_batch(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Runs without a name stay here where possible; every other part goes to its owner. The response lists the outcomes
    in the order of the request."""
    runs = await _runs_of(request)
    named_some = any(map(any, map(_names_of, runs)))  # rarely true, and checked for every run: without a line of Python
    free = [run for run in runs if _may_wait(run)] if named_some else runs
    local_outcomes = await _here(router.node, free, by=request.by) if free else None
    if local_outcomes is not None and len(free) == len(runs):
        return _batch_response(request, local_outcomes)
    outcomes: dict[int, wire.Submitted | wire.Rejected] = {}
    if local_outcomes is not None:
        outcomes.update(zip((number for number, run in enumerate(runs) if _may_wait(run)), local_outcomes, strict=True))
    named = [run if number in outcomes else _named(run, router.node) for number, run in enumerate(runs)]
    parts: dict[int, list[int]] = {}
    left = [number for number in range(len(named)) if number not in outcomes]
    for number, where in zip(left, await _places(router, [named[number] for number in left]), strict=True):
        parts.setdefault(where, []).append(number)
    scope = {**request.scope, "headers": _as(request.scope["headers"], MSGPACK, accept=MSGPACK)}

    alone = len(parts) == 1 and not outcomes  # otherwise a part may have been accepted where another one fails

    async def send(partition: int, numbers: list[int]) -> None:
        some = [named[number] for number in numbers]
        sent = msgpack_encoder.encode(wire.Batch(runs=tuple(some)))
        answer = await router.at(partition, handler, request.route, scope, sent)
        replies: Sequence[wire.Submitted | wire.Rejected]
        if isinstance(answer, Response) and answer.status == 200:
            replies = msgspec.msgpack.decode(answer.body, type=wire.BatchAnswer).runs
        elif answer is not None and answer.status in _AWAY:
            if not all(_may_wait(runs[number]) for number in numbers):
                kind = Unavailable if alone and answer.status == 503 else OutcomeUnknown
                raise kind("an owner cannot be reached; send the batch again with the same key", retry_after_ms=500)
            replies = await router.node.inbox.add(some, by=request.by, tenant=TENANT)
        else:
            problem = msgspec.json.decode(answer.body, type=wire.Problem) if isinstance(answer, Response) else None
            if problem is not None and problem.status >= 500:  # nothing was refused: the client must send it again
                trouble = (StoreFull if problem.status == 507 else Unavailable) if alone else OutcomeUnknown
                raise trouble(
                    f"{problem.detail or problem.title}; send it again with the same key", retry_after_ms=1_000
                )
            replies = [
                wire.Rejected(code=problem.code if problem else "gone", detail=problem.detail if problem else "")
                for _ in numbers
            ]
        outcomes.update(zip(numbers, replies, strict=True))

    await asyncio.gather(*(send(partition, numbers) for partition, numbers in parts.items()))
    return _batch_response(request, [outcomes[number] for number in range(len(named))])


async def _here(
    node: "Node", runs: Sequence[wire.Submission], *, by: str
) -> list[wire.Submitted | wire.Rejected] | None:
    """Accept the runs in a partition of this node, under ids that belong there. None: the node owns none."""
    partition = node.own_partition(TENANT)
    engine = node.owned(partition) if partition is not None else None
    if partition is None or engine is None:
        return None
    new_id = ids_in(node.ids.new, node.routes.of(TENANT), partition, node.partitions)
    return await node.definitions.submit(engine, runs, by=by, tenant=TENANT, new_id=new_id)


def _named(submission: wire.Submission, node: "Node") -> wire.Submission:
    """Return the run with an id. The id determines the partition, so it is chosen before the run is sent there."""
    if submission.id or submission.key:
        return submission
    return msgspec.structs.replace(submission, id=node.ids.new())


def _may_wait(submission: wire.Submission) -> bool:
    """Return whether a run can be accepted without its owner. It cannot if only the owner knows whether the run exists
    already, or what came before it."""
    return not (submission.id or submission.key or submission.debounce)


async def _places(router: "ClusterRouter", runs: Sequence[wire.Submission]) -> list[int]:
    """Return the partition of each run. An existing id may have been placed differently, before the tenant was spread
    or because it had a key: the owner of that partition is queried first, so that one id is one run."""
    node = router.node
    places = [_partition(node, run) for run in runs]
    doubted: dict[int, list[int]] = {}
    for number, run in enumerate(runs):
        for other in node.routes.earlier_partitions_of_run(TENANT, run.id) if run.id else ():
            if other != places[number]:
                doubted.setdefault(other, []).append(number)

    async def look(partition: int, numbers: list[int]) -> None:
        known = await router.known(partition, [runs[number].id for number in numbers])
        for number in numbers:
            if runs[number].id in known:
                places[number] = partition

    await asyncio.gather(*(look(partition, numbers) for partition, numbers in doubted.items()))
    return places


def _partition(node: "Node", submission: wire.Submission) -> int:
    """Only the home partition knows the keys."""
    at_home = submission.key or submission.debounce or not submission.id
    return node.routes.home(TENANT) if at_home else node.routes.partition_of_run(TENANT, submission.id)


def _as(headers: list[Header], kind: str, accept: str = "") -> list[Header]:
    left = [(name, value) for name, value in headers if name not in (b"content-type", b"idempotency-key")]
    if accept:
        left = [(name, value) for name, value in left if name != b"accept"] + [(b"accept", accept.encode())]
    return [*left, (b"content-type", kind.encode())]


_KEY = "Idempotency-Key"
ROUTES = (
    Route(
        method="POST",
        path="/v1/runs/batch",
        routed_to="runs",
        gather=spread_batch,
        handler=submit_batch,
        summary="Submit up to 1,000 runs at once. Each is accepted or refused on its own, in the order of the request.",
        tag="runs",
        body=BodySpec(wire.Batch, (JSON, MSGPACK)),
        headers=((_KEY, "A batch sent again with the same key creates no run twice, for 24 hours."),),
        responses={200: ResponseSpec(wire.BatchAnswer, (JSON, MSGPACK), "The outcome of each submission.")},
    ),
    Route(
        method="POST",
        path="/v1/runs",
        routed_to="runs",
        gather=spread_one,
        handler=submit,
        summary="Submit one run. The response is sent when the run is durable, so that it can be read at once.",
        tag="runs",
        body=BodySpec(wire.Submission, (JSON, MSGPACK)),
        headers=(
            (
                _KEY,
                "The same key returns the same run for 24 hours. A `key` or `id` in the body takes precedence.",
            ),
        ),
        responses={
            201: ResponseSpec(wire.Submitted, (JSON, MSGPACK), "Accepted.", ("Location",)),
            200: ResponseSpec(
                wire.Submitted, (JSON, MSGPACK), "Accepted before, under the same id or key.", ("Location",)
            ),
        },
        refusals=(404, 409, 429),
    ),
)
