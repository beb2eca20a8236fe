"""What the API adds to a batch of submissions: CPU time of the handler without the engine, per submission.

python bench/api_batch.py [--runs 100] [--calls 2000]
"""

import argparse
import asyncio
import time
from collections.abc import MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

from tickwork.api.app import make_app
from tickwork.protocol import http_models as wire


class Runs:
    """Accepts everything at once, so that what remains is the API's own time."""

    async def submit(self, submissions: Sequence[object], *, by: str) -> list[wire.Submitted]:  # noqa: ARG002 - as the engine has it
        return [wire.Submitted(id="01930000-0000-7000-8000-000000000000") for _ in submissions]


class Engine:
    runs = Runs()
    context = SimpleNamespace(ids=None)


async def measure(kind: str, body: bytes, *, calls: int) -> float:
    app = make_app(Engine())  # type: ignore[arg-type]  # only what a batch asks for
    headers = [(b"host", b"127.0.0.1"), (b"content-type", kind.encode()), (b"accept", kind.encode())]
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {"type": "http", "method": "POST", "path": "/v1/runs/batch", "query_string": b"", "root_path": ""}

    async def call() -> None:
        await app({**scope, "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)

    for _ in range(50):
        await call()
    assert status == 200
    began = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - began) / calls


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--calls", type=int, default=2_000)
    options = parser.parse_args()
    batch = wire.Batch(runs=tuple(wire.Submission(workflow="noop", inputs={"n": n}) for n in range(options.runs)))
    for kind, codec in (("application/json", msgspec.json), ("application/msgpack", msgspec.msgpack)):
        taken = await measure(kind, codec.encode(batch), calls=options.calls)
        print(f"{kind}: {taken * 1e6:.0f} µs a call, {taken * 1e6 / options.runs:.2f} µs a submission")


if __name__ == "__main__":
    asyncio.run(main())
