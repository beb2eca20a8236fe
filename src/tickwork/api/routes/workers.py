"""Workers: the exchange by which they get work and report it, and who is here."""

import asyncio

from tickwork.api.asked import Asked, decoded
from tickwork.api.messages import MSGPACK, Answer, as_json
from tickwork.api.table import Body, Gives, Param, Route
from tickwork.core.errors import Refused, Unavailable
from tickwork.ports import wire
from tickwork.ports.exchange import Call, Reply, call_decoder, encoder

CALL_BYTES_MAX = 64 * 1024 * 1024  # many reports with values just below the size of an artifact


async def exchange(asked: Asked) -> Answer:
    """It may be kept waiting. That its worker hung up, the server's protocol tells the engine."""
    asked.kind()
    call: Call = decoded(await asked.data(), MSGPACK, call_decoder)
    if call.worker != asked.name("worker"):
        raise Refused("wrong_worker", "the call names another worker than its path", path="worker")
    reply = await _reply(asked, call)
    return Answer(200, encoder.encode(reply), MSGPACK)


async def _reply(asked: Asked, call: Call) -> Reply:
    node = asked.node
    try:
        if node is None:
            return await asked.engine.exchange(call, asked.peer)
        if asked.query["partition"] >= 0:
            return await node.exchange_at(asked.query["partition"], call, asked.peer)
        return await node.exchange(call, asked.peer)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # The engine ended while the call waited; this request itself was not cancelled.
        raise Unavailable("the server is shutting down; ask again in a moment", retry_after_ms=1_000) from None


async def list_workers(asked: Asked) -> Answer:
    return as_json(wire.Workers(workers=tuple(asked.engine.workers())))


ROUTES = (
    Route(
        method="POST",
        path="/v1/workers/{worker}/exchange",
        lives="here",
        does=exchange,
        says="A worker's call: reports in, work out. MessagePack arrays, as ports/exchange.py has them.",
        tag="workers",
        query=(Param("partition", "Of a node that stands for a worker: which partition is meant.", int, -1, -1, 511),),
        body=Body(None, (MSGPACK,), CALL_BYTES_MAX, says="A `Call`."),
        gives={200: Gives(None, (MSGPACK,), "A `Reply`.")},
    ),
    Route(
        method="GET",
        path="/v1/workers",
        does=list_workers,
        says="The workers that are here.",
        tag="workers",
        gives={200: Gives(wire.Workers)},
    ),
)
