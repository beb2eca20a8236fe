"""Temporal: its development server (one process, SQLite file), two worker processes without the sandbox, 200 at once.

The development server is what its makers give to try it on one machine; a cluster of it on PostgreSQL is another thing.
A run is a workflow of one activity and counts when the client has its result; 30 are under way at a time.
"""

import asyncio
import os
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from peer_kit import ITEMS, LINKS, STORE, WORKERS, Peer, measure

QUEUE = "work"
AT_ONCE = 200
UNDER_WAY = 30
LIMIT = timedelta(seconds=120)


@activity.defn
async def noop(number: int) -> None:
    return None


@activity.defn
async def stamp(number: int) -> int:
    return time.time_ns()


async def call(deed: Any, number: int = 0) -> Any:
    return await workflow.execute_activity(deed, number, start_to_close_timeout=LIMIT)


@workflow.defn
class One:
    @workflow.run
    async def run(self) -> None:
        await call(noop)


@workflow.defn
class Started:
    @workflow.run
    async def run(self) -> int:
        found: int = await call(stamp)
        return found


@workflow.defn
class Chain:
    @workflow.run
    async def run(self) -> list[int]:
        return [await call(stamp, number) for number in range(LINKS)]


@workflow.defn
class Graph:
    @workflow.run
    async def run(self) -> None:
        await call(noop)
        await asyncio.gather(*(call(noop, number) for number in range(10)))
        await call(noop)


@activity.defn
async def reserve(number: int) -> str:
    return f"reserved {number}"


@activity.defn
async def pack(item: int) -> str:
    return f"packed {item}"


@workflow.defn
class Order:
    def __init__(self) -> None:
        self.paid: dict[str, int] | None = None

    @workflow.signal
    def pay(self, payment: dict[str, int]) -> None:
        self.paid = payment

    @workflow.run
    async def run(self, number: int) -> int:
        await call(reserve, number)
        await workflow.wait_condition(lambda: self.paid is not None, timeout=timedelta(days=3))
        await asyncio.gather(*(call(pack, item) for item in range(ITEMS)))
        found: int = await call(stamp)
        return found


KINDS = {"one": One.run, "graph": Graph.run}


async def work() -> None:
    client = await Client.connect(STORE)
    worker = Worker(
        client,
        task_queue=QUEUE,
        workflows=[One, Started, Chain, Graph, Order],
        activities=[noop, stamp, reserve, pack],
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_concurrent_activities=AT_ONCE,
        max_concurrent_workflow_tasks=AT_ONCE,
    )
    await worker.run()


class Temporal(Peer):
    first = 100

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.client = self.runner.run(self._connect())
        self.done = dict.fromkeys(KINDS, 0)

    async def _connect(self) -> Client:
        while True:
            try:
                return await Client.connect(STORE)
            except RuntimeError:
                await asyncio.sleep(0.1)  # the server has just been started

    def workers(self) -> list[list[str | Path]]:
        return [[sys.executable, __file__, "work"]] * WORKERS

    def put(self, kind: str, runs: int) -> None:
        self.runner.run(self._put(kind, runs))

    async def _put(self, kind: str, runs: int) -> None:
        left = iter(range(runs))

        async def some() -> None:
            for _ in left:
                await self.client.execute_workflow(KINDS[kind], id=str(uuid.uuid4()), task_queue=QUEUE)
                self.done[kind] += 1

        await asyncio.gather(*(some() for _ in range(UNDER_WAY)))

    def stored(self, kind: str) -> int:
        return self.done[kind]

    def begin(self) -> Any:
        return self.runner.run(self.client.start_workflow(Started.run, id=str(uuid.uuid4()), task_queue=QUEUE))

    def stamp(self, begun: Any) -> int:
        found: int = self.runner.run(begun.result())
        return found

    def chain(self) -> list[int]:
        found: list[int] = self.runner.run(
            self.client.execute_workflow(Chain.run, id=str(uuid.uuid4()), task_queue=QUEUE)
        )
        return found

    def order(self, count: int) -> list[Any]:
        return self.runner.run(self._order(count))

    async def _order(self, count: int) -> list[Any]:
        return await asyncio.gather(
            *(
                self.client.start_workflow(Order.run, number, id=str(uuid.uuid4()), task_queue=QUEUE)
                for number in range(count)
            )
        )

    def pay(self, orders: list[Any]) -> None:
        self.runner.run(self._pay(orders))

    async def _pay(self, orders: list[Any]) -> None:
        await asyncio.gather(*(order.signal(Order.pay, {"amount": 1}) for order in orders))

    def shipped(self, order: Any) -> int:
        found: int = self.runner.run(order.result())
        return found


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        asyncio.run(work())
    else:
        measure(Temporal())
        os._exit(0)  # its threads do not end by themselves
