"""Submitting runs: one, or up to a thousand in one call. Answered when their tick is durable."""

from typing import Any

import msgspec

from tickwork.api.asked import Asked, decoded
from tickwork.api.messages import JSON, MSGPACK, Answer, as_json, as_msgpack
from tickwork.api.problems import refusal
from tickwork.api.table import Body, Gives, Route
from tickwork.core.errors import Refused
from tickwork.ports import wire

BATCH_MAX = 1_000

_decoders: dict[str, Any] = {
    JSON: msgspec.json.Decoder(wire.Batch),
    MSGPACK: msgspec.msgpack.Decoder(wire.Batch),
}


async def submit(asked: Asked) -> Answer:
    submission = _under_header(await asked.body(wire.Submission), asked.header(b"idempotency-key"))
    outcome = (await asked.engine.submit([submission], by=asked.by))[0]
    if isinstance(outcome, wire.Rejected):
        return refusal(outcome.code, outcome.detail, path=outcome.path)
    encode = as_msgpack if asked.wants(MSGPACK) else as_json
    location = f"/v1/runs/{outcome.id}".encode()
    return encode(outcome, 200 if outcome.duplicate else 201, (b"location", location))


async def submit_batch(asked: Asked) -> Answer:
    kind = asked.kind()
    batch: wire.Batch = decoded(await asked.data(), kind, _decoders[kind])
    if not 1 <= len(batch.runs) <= BATCH_MAX:
        raise Refused("batch_size", f"a batch has 1 to {BATCH_MAX} runs, this one has {len(batch.runs)}", path="runs")
    runs, key = batch.runs, asked.header(b"idempotency-key")
    if key:
        runs = tuple(_in_batch(run, f"{key}.{place}") for place, run in enumerate(runs))
    answer = wire.BatchAnswer(runs=tuple(await asked.engine.submit(runs, by=asked.by)))
    return as_msgpack(answer) if asked.wants(MSGPACK) else as_json(answer)


def _under_header(submission: wire.Submission, key: str) -> wire.Submission:
    """A client may send the header with each request, to be safe when it asks again; a key of the user goes first."""
    return msgspec.structs.replace(submission, key=key) if key and not submission.key else submission


def _in_batch(submission: wire.Submission, key: str) -> wire.Submission:
    """What has neither id nor key of its own gets one by its place, so that a batch sent again makes nothing twice."""
    return submission if submission.id else _under_header(submission, key)


_KEY = "Idempotency-Key"
ROUTES = (
    Route(
        method="POST",
        path="/v1/runs/batch",
        does=submit_batch,
        says="Submit up to 1,000 runs at once. Each is accepted or refused on its own, in the order of the request.",
        tag="runs",
        body=Body(wire.Batch, (JSON, MSGPACK)),
        headers=((_KEY, "A batch sent again under the same key makes no run twice, for 24 hours."),),
        gives={200: Gives(wire.BatchAnswer, (JSON, MSGPACK), "What became of each.")},
    ),
    Route(
        method="POST",
        path="/v1/runs",
        does=submit,
        says="Submit one run. Answered when it is durable, so that whoever asked finds it at once.",
        tag="runs",
        body=Body(wire.Submission, (JSON, MSGPACK)),
        headers=(
            (
                _KEY,
                "The same key gives the same run for 24 hours. It stands for `key` where the body has none.",
            ),
        ),
        gives={
            201: Gives(wire.Submitted, (JSON, MSGPACK), "Accepted.", ("Location",)),
            200: Gives(wire.Submitted, (JSON, MSGPACK), "Accepted before, under the same id or key.", ("Location",)),
        },
        refusals=(404, 409, 429),
    ),
)
