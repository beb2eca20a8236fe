"""Bulk operations: preview a selection, act on it, follow and cancel the operation.

A tenant that is spread over partitions has a part of each selection, and of each operation, in every partition.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import INNER, Request
from tickwork.api.http.response import JSON, Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire
from tickwork.runtime.services.bulk import SAMPLE, joined, parts_of

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

BODY_BYTES_MAX = 256 * 1024
KEY = ("Idempotency-Key", "Names the operation: the same key is the same one.")

_encode = msgspec.json.Encoder().encode


async def preview(request: Request) -> Response:
    body = await request.body(wire.BulkPreviewRequest)
    return as_json(await request.engine.bulk.preview(body.action, body.search))


async def start(request: Request) -> Response:
    body = await request.body(wire.BulkRequest)
    checked_text(body.reason)
    job = await request.engine.bulk.start(body, by=request.by, job=request.key or request.host.ids.new())
    return as_json(job, 202, (b"location", f"/v1/bulk/{job.id}".encode()))


async def jobs(request: Request) -> Response:
    return as_json(await request.engine.bulk.jobs())


async def show(request: Request) -> Response:
    return as_json(await request.engine.bulk.job(request.name("operation")))


async def cancel(request: Request) -> Response:
    body = await request.body(wire.Reason)
    await request.engine.bulk.cancel(request.name("operation"), by=request.by, reason=checked_text(body.reason))
    return nothing()


# ---- over several partitions

Answer = Response | StreamingResponse | None


async def spread_preview(router: "ClusterRouter", handler: "LocalHandler", request: Request) -> Answer:
    data = await request.data()
    answers = await _ask(router, handler, request, dict.fromkeys(_partitions(router), data))
    if (failed := _failed(answers)) is not None:
        return failed
    parts = [msgspec.json.decode(answer.body, type=wire.BulkPreview) for answer in answers.values()]
    newest = sorted((run for part in parts for run in part.sample), key=lambda run: run.submitted_at, reverse=True)
    selected = {number: digest for part in parts if part.count for number, digest in parts_of(part.selection).items()}
    return as_json(
        wire.BulkPreview(
            action=parts[0].action,
            search=parts[0].search,
            selection=joined(selected.items()),
            count=sum(part.count for part in parts),
            states=_sum(part.states for part in parts),
            sample=tuple(newest[:SAMPLE]),
            as_of={number: seq for part in parts for number, seq in part.as_of.items()},
        )
    )


async def spread_start(router: "ClusterRouter", handler: "LocalHandler", request: Request) -> Answer:
    """The parts are started under one id, so a start that was cut short can be repeated."""
    body = await request.body(wire.BulkRequest)
    parts = parts_of(body.selection)
    unknown = parts.keys() - set(_partitions(router))
    if unknown:
        raise HttpRefused(404, "unknown_selection", "the selection names a partition that this tenant is not in")
    rate = max(1, body.per_second // len(parts)) if body.per_second > 0 else body.per_second
    bodies = {
        number: _encode(msgspec.structs.replace(body, selection=joined([(number, digest)]), per_second=rate))
        for number, digest in parts.items()
    }
    key = request.key or router.node.ids.new()
    answers = await _ask(router, handler, request, bodies, key=key)
    if (failed := _failed(answers)) is not None:
        return failed
    job = _merged([msgspec.json.decode(answer.body, type=wire.BulkOperation) for answer in answers.values()])
    return as_json(job, 202, (b"location", f"/v1/bulk/{job.id}".encode()))


async def spread_jobs(router: "ClusterRouter", handler: "LocalHandler", request: Request) -> Answer:
    answers = await _ask(router, handler, request, dict.fromkeys(_partitions(router), b""))
    if (failed := _failed(answers)) is not None:
        return failed
    parts: dict[str, list[wire.BulkOperation]] = {}
    for answer in answers.values():
        for job in msgspec.json.decode(answer.body, type=wire.BulkOperations).operations:
            parts.setdefault(job.id, []).append(job)
    merged = sorted(map(_merged, parts.values()), key=lambda job: job.started_at, reverse=True)
    return as_json(wire.BulkOperations(operations=tuple(merged)))


async def spread_show(router: "ClusterRouter", handler: "LocalHandler", request: Request) -> Answer:
    answers = await _ask(router, handler, request, dict.fromkeys(_partitions(router), b""))
    known = {number: answer for number, answer in answers.items() if answer.status != 404}
    if (failed := _failed(known or answers)) is not None:
        return failed
    return as_json(_merged([msgspec.json.decode(answer.body, type=wire.BulkOperation) for answer in known.values()]))


async def spread_cancel(router: "ClusterRouter", handler: "LocalHandler", request: Request) -> Answer:
    """Parts that have ended, or were never there, leave nothing to cancel."""
    data = await request.data()
    answers = await _ask(router, handler, request, dict.fromkeys(_partitions(router), data))
    others = {number: answer for number, answer in answers.items() if answer.status not in (204, 404, 409)}
    if (failed := _failed(others)) is not None:
        return failed
    if any(answer.status == 204 for answer in answers.values()):
        return nothing()
    return next((answer for answer in answers.values() if answer.status == 409), next(iter(answers.values())))


def _partitions(router: "ClusterRouter") -> tuple[int, ...]:
    return tuple(router.node.routes.partitions_of(TENANT))


async def _ask(
    router: "ClusterRouter", handler: "LocalHandler", request: Request, bodies: Mapping[int, bytes], *, key: str = ""
) -> dict[int, Response]:
    """Ask partitions one after the other: what one refuses, no later one has begun."""
    headers = request.scope["headers"]
    if key:
        headers = [pair for pair in headers if pair[0] != b"idempotency-key"] + [(b"idempotency-key", key.encode())]
    answers: dict[int, Response] = {}
    for partition, body in bodies.items():
        scope = {**request.scope, "headers": headers, INNER: True}
        answer = await router.at(partition, handler, request.route, scope, body)
        if not isinstance(answer, Response):
            raise HttpRefused(503, "unavailable", "the owner of a partition gave no answer; try again")
        answers[partition] = answer
        if answer.status >= 500:
            break
    return answers


def _failed(answers: Mapping[int, Response]) -> Response | None:
    return next((answer for answer in answers.values() if answer.status >= 300), None)


def _merged(parts: list[wire.BulkOperation]) -> wire.BulkOperation:
    first = parts[0]
    states = {part.state for part in parts}
    ends = [part.ended_at for part in parts if part.ended_at is not None]
    return msgspec.structs.replace(
        first,
        state=next(state for state in ("running", "cancelled", "done") if state in states),
        count=sum(part.count for part in parts),
        done=sum(part.done for part in parts),
        changed=sum(part.changed for part in parts),
        left=sum(part.left for part in parts),
        refused=_sum(part.refused for part in parts),
        refused_runs=tuple(refusal for part in parts for refusal in part.refused_runs),
        per_second=sum(part.per_second for part in parts),
        cancelled=next((part.cancelled for part in parts if part.cancelled), ""),
        started_at=min(part.started_at for part in parts),
        ended_at=max(ends) if len(ends) == len(parts) else None,
    )


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


ROUTES = (
    Route(
        method="POST",
        path="/v1/bulk/preview",
        routed_to="runs",
        gather=spread_preview,
        handler=preview,
        summary="Freeze the runs that fit a search: their number, a sample, and the selection that an operation names.",
        tag="bulk",
        body=BodySpec(wire.BulkPreviewRequest, bytes_max=BODY_BYTES_MAX),
        responses={200: ResponseSpec(wire.BulkPreview)},
    ),
    Route(
        method="POST",
        path="/v1/bulk",
        routed_to="runs",
        gather=spread_start,
        handler=start,
        summary="Act on every run of a selection. Refused where the search is not that of its preview, or no run fits.",
        tag="bulk",
        body=BodySpec(wire.BulkRequest, bytes_max=BODY_BYTES_MAX),
        headers=(KEY,),
        responses={202: ResponseSpec(wire.BulkOperation, (JSON,), "Begun.", ("Location",))},
        refusals=(404, 409, 429),
    ),
    Route(
        method="GET",
        path="/v1/bulk",
        routed_to="runs",
        gather=spread_jobs,
        handler=jobs,
        summary="List bulk operations with their reports, the latest first.",
        tag="bulk",
        responses={200: ResponseSpec(wire.BulkOperations)},
    ),
    Route(
        method="GET",
        path="/v1/bulk/{operation}",
        routed_to="runs",
        gather=spread_show,
        handler=show,
        summary="Show a bulk operation: how many runs are done, had already changed, were refused, and are left.",
        tag="bulk",
        responses={200: ResponseSpec(wire.BulkOperation)},
        refusals=(404,),
    ),
    Route(
        method="POST",
        path="/v1/bulk/{operation}/cancel",
        routed_to="runs",
        gather=spread_cancel,
        handler=cancel,
        summary="End a bulk operation before its next run. What is done stays done.",
        tag="bulk",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
)
