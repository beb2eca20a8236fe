"""Workers: the exchange in which they get work and report results, and their list."""

import asyncio
from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.request import NODE, Request, decoded
from tickwork.api.http.response import MSGPACK, Response, StreamingResponse, as_json
from tickwork.api.http.route import BodySpec, QueryParam, ResponseSpec, Route
from tickwork.cluster.node_credentials import CODE
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Call, Reply, call_decoder, encoder
from tickwork.runtime.supervision import is_cancelled

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

CALL_BYTES_MAX = 64 * 1024 * 1024  # many reports with values just below the size of an artifact


async def exchange(request: Request) -> Response:
    """Handle a worker's call, which may wait for work. The HTTP protocol tells the engine if the worker hangs up."""
    request.kind()
    call: Call = decoded(await request.data(), MSGPACK, call_decoder)
    if call.worker != request.name("worker"):
        raise Refused("wrong_worker", "the call names another worker than its path", path="worker")
    reply = await _reply(request, call)
    return Response(200, encoder.encode(reply), MSGPACK)


async def _reply(request: Request, call: Call) -> Reply:
    node = request.node
    if call.via and (node is None or not await node.authentication.is_node(request.header(NODE))):
        raise HttpRefused(403, CODE, "only a node may call on behalf of a worker")
    try:
        if node is None:
            return await request.engine.workers.exchange(call, request.peer)
        if request.query["partition"] >= 0:
            return await node.workers.exchange_at(request.query["partition"], call, request.peer)
        return await node.workers.exchange(call, request.peer)
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        # The engine ended while the call waited; this request itself was not cancelled.
        raise Unavailable("the server is shutting down; try again in a moment", retry_after_ms=1_000) from None


async def list_workers(request: Request) -> Response:
    return as_json(wire.Workers(workers=tuple(request.engine.overview.workers())))


async def all_workers(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Merge the workers of all partitions: each has a share of its credit in each. Only the home must respond."""
    home, *others = router.node.routes.partitions_of(TENANT)
    rest = [
        *others,
        *(partition for partition in range(router.node.partitions) if partition != home and partition not in others),
    ]
    answers = [await router.at(home, handler, request.route, request.scope, b"")]
    if not isinstance(answers[0], Response) or answers[0].status != 200:
        return answers[0]
    answers += await asyncio.gather(
        *(router.at(partition, handler, request.route, request.scope, b"") for partition in rest)
    )
    workers: dict[str, wire.Worker] = {}
    for answer in answers:
        if isinstance(answer, Response) and answer.status == 200:
            for worker in msgspec.json.decode(answer.body, type=wire.Workers).workers:
                workers[worker.id] = _together(workers[worker.id], worker) if worker.id in workers else worker
    return as_json(wire.Workers(workers=tuple(entry for _, entry in sorted(workers.items()))))


def _together(first: wire.Worker, second: wire.Worker) -> wire.Worker:
    heard = max(first.last_heard_at or "", second.last_heard_at or "") or None
    return msgspec.structs.replace(
        first if first.pid else second,
        credit=first.credit + second.credit,
        running=first.running + second.running,
        last_heard_at=heard,
        resources=msgspec.structs.replace(first.resources, slots=first.resources.slots + second.resources.slots),
        in_use=_sum(first.in_use, second.in_use),
    )


def _sum(first: wire.WorkerResources, second: wire.WorkerResources) -> wire.WorkerResources:
    """Each partition counts all that a worker has, except slots, which follow the share of its credit."""
    return wire.WorkerResources(
        slots=first.slots + second.slots,
        cpu_milli=first.cpu_milli + second.cpu_milli,
        memory_mb=first.memory_mb + second.memory_mb,
        gpu=first.gpu + second.gpu,
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/workers/{worker}/exchange",
        routed_to="here",
        handler=exchange,
        summary="Exchange: a worker sends reports and receives work. MessagePack arrays: protocol/worker_messages.py.",
        tag="workers",
        query=(
            QueryParam("partition", "From a node that proxies a worker: the partition of the call.", int, -1, -1, 511),
        ),
        body=BodySpec(None, (MSGPACK,), CALL_BYTES_MAX, summary="A `Call`."),
        responses={200: ResponseSpec(None, (MSGPACK,), "A `Reply`.")},
    ),
    Route(
        method="GET",
        path="/v1/workers",
        routed_to="every",
        gather=all_workers,
        handler=list_workers,
        summary="List the registered workers.",
        tag="workers",
        responses={200: ResponseSpec(wire.Workers)},
    ),
)
