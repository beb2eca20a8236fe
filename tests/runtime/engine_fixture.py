"""An engine on a memory store with clocks that the test moves, and a worker that does what the test says."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from sim.store import at_once
from tickwork.core.base.values import pack
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Call,
    Failed,
    NodeSpec,
    Reply,
    Report,
    Started,
    Succeeded,
    WorkerProfile,
)
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore

TOKENS = itertools.count(1)


class AtOnceStore(MemoryStore):
    """Commits while the caller stands still, as SQLite's pen does."""

    def commit(self, *args: Any, **fields: Any) -> "asyncio.Future[None]":  # type: ignore[override]
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            at_once(super().commit(*args, **fields))
        except Exception as error:
            answer.set_exception(error)
        else:
            answer.set_result(None)
        return answer


class HandClock:
    """Follows the loop's time, plus whatever the test adds."""

    def __init__(self) -> None:
        self.wall_offset_ms = 1_800_000_000_000
        self.mono_offset_ms = 0

    def _now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return self._now_ms() + self.wall_offset_ms

    def mono_ms(self) -> int:
        return self._now_ms() + self.mono_offset_ms

    def pass_ms(self, ms: int) -> None:
        """Both clocks go on; nobody waits."""
        self.wall_offset_ms += ms
        self.mono_offset_ms += ms


class CountedIds:
    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"run-{self.count}"

    def token(self) -> str:
        return f"token-{next(TOKENS)}"


class House:
    """One disk; engines come and go on it."""

    def __init__(self, store: Callable[[MemoryDisk], Any] = MemoryStore) -> None:
        self.disk, self.artifacts, self.clock, self.ids = MemoryDisk(), MemoryArtifacts(), HandClock(), CountedIds()
        self.make_store = store
        self.engine: Engine = None  # type: ignore[assignment]

    async def open(self) -> Engine:
        self.store = self.make_store(self.disk)
        self.engine = Engine(store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1")
        await self.engine.start()
        return self.engine

    async def crash(self) -> None:
        """As if the process ended here: nothing is finished, nothing is written."""
        engine = self.engine
        tasks = [*engine.context.live._tasks, *engine.context._jobs, *engine.workers._jobs]
        for task in tasks:
            task.cancel()
        for worker in engine.workers.registered.values():
            if worker.session._wakeup is not None:
                worker.session._wakeup.cancel()  # its connection ends with the process
        await asyncio.gather(*tasks, return_exceptions=True)

    async def define(self, name: str, *nodes: dict[str, Any], **fields: Any) -> None:
        document = {"name": name, "format": 1, "nodes": list(nodes), **fields}
        await self.engine.workflows.publish(wire.Publication(documents=(document,)), by="test")

    async def submit(self, workflow: str, **fields: Any) -> str:
        answers = await self.engine.runs.submit([wire.Submission(workflow=workflow, **fields)], by="test")
        assert isinstance(answers[0], wire.Submitted), answers[0]
        return answers[0].id

    async def until(self, run_id: str, *states: str, seconds: float = 5.0) -> wire.RunDetail:
        async with asyncio.timeout(seconds):
            while True:
                run = await self.engine.queries.run(run_id)
                if run.state in states:
                    return run
                await asyncio.sleep(0.002)


class Hand:
    """A worker whose functions are given by handler name; it speaks the exchange directly."""

    def __init__(self, house: House, name: str = "w1", *, credit: int = 10, session: str = "s1") -> None:
        self.house, self.name, self.credit, self.session = house, name, credit, session
        self.seq = 0
        self.specs: dict[int, NodeSpec] = {}
        self.held: dict[tuple[int, int], AttemptJob] = {}
        self.stopped: list[tuple[int, int]] = []
        self.functions: dict[str, Callable[..., Any]] = {}
        self.peer = f"{name}:1"

    async def call(self, *reports: Report, wait_ms: int = 0, seq: int | None = None, **fields: Any) -> Reply:
        self.seq = self.seq + 1 if seq is None else seq
        call = Call(self.name, self.session, self.seq, self.credit, wait_ms, reports, **fields)
        reply = await self.house.engine.workers.exchange(call, self.peer)
        self.specs |= {spec.id: spec for spec in reply.specs}
        self.held |= {(work.task, work.attempt): work for work in reply.work}
        self.stopped += reply.stop
        for report in reports:
            if not isinstance(report, Started):
                self.held.pop((report.task, report.attempt), None)
        return reply

    async def sit_down(self, **profile: Any) -> Reply:
        return await self.call(profile=WorkerProfile(**profile), held=tuple(self.held))

    async def take(self, count: int = 1, *, seconds: float = 2.0) -> list[AttemptJob]:
        """Until it holds so much."""
        async with asyncio.timeout(seconds):
            while len(self.held) < count:
                await self.call(wait_ms=20)
        return list(self.held.values())

    def do(self, work: AttemptJob) -> Report:
        function = self.functions[self.specs[work.spec].handler]
        try:
            value = function(**msgspec.msgpack.decode(work.args))
        except Exception as error:
            return Failed(work.task, work.attempt, type(error).__name__, str(error))
        return Succeeded(work.task, work.attempt, pack(value), 1, 2)

    async def serve(self) -> None:
        """For ever: what it holds it does."""
        while True:
            reports = tuple(self.do(work) for work in list(self.held.values()))
            reply = await self.call(*reports, wait_ms=0 if reports else 50)
            if reply.resync:  # so much time has passed that it was given up
                await self.sit_down()


def task(id: str, handler: str = "", **fields: Any) -> dict[str, Any]:
    return {"kind": "task", "id": id, "handler": handler or id, **fields}
