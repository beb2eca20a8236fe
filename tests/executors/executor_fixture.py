"""An executor on a stage: works go in, what it reports is written down."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.executors.process import ProcessExecutor
from tickwork.ports.artifacts import digest_of
from tickwork.protocol.worker_messages import (
    AttemptJob,
    Checkpointed,
    Failed,
    HandedBack,
    NodeSpec,
    Progressed,
    Started,
    Succeeded,
)
from tickwork.protocol.worker_messages import Report as AnyReport

APP = str(Path(__file__).with_name("tasks_app.py"))
ENDS = (Succeeded, Failed, HandedBack)


class Stage:
    """The sink. Checkpoints are durable at once unless `slow`."""

    def __init__(self) -> None:
        self.ends: dict[tuple[int, int], list[AnyReport]] = {}
        self.said: list[AnyReport] = []
        self.lines: dict[tuple[int, int], list[tuple[str, str]]] = {}
        self.pieces: dict[tuple[int, int], list[tuple[int, str]]] = {}
        self.artifacts: dict[str, bytes] = {}
        self.slow = False
        self._tasks = count(1)
        self._specs: dict[tuple, NodeSpec] = {}

    # ---- Sink

    def report(self, report: AnyReport) -> None:
        if isinstance(report, ENDS):
            self.ends.setdefault((report.task, report.attempt), []).append(report)
            return
        self.said.append(report)
        if isinstance(report, Checkpointed) and not self.slow:
            self.executor.saved(report.task, report.attempt)

    def done(self, reports) -> None:
        for report in reports:
            self.report(report)

    def log(self, task: int, attempt: int, stream: str, text: str, at_ms: int) -> None:
        self.lines.setdefault((task, attempt), []).append((stream, text))

    def piece(self, task: int, attempt: int, number: int, text: str, at_ms: int) -> None:
        self.pieces.setdefault((task, attempt), []).append((number, text))

    async def fetch(self, digest: str) -> bytes:
        await asyncio.sleep(0)
        if digest not in self.artifacts:
            raise Refused("no_artifact", f"there is no artifact {digest}")
        return self.artifacts[digest]

    async def store(self, data: bytes) -> str:
        await asyncio.sleep(0)
        self.artifacts[digest_of(data)] = data
        return digest_of(data)

    # ---- what a test does

    def start(
        self, handler: str, *, task: int = 0, attempt: int = 1, args: dict | None = None, **more
    ) -> tuple[int, int]:
        spec_fields = {name: more.pop(name) for name in ("running_ms", "silent_ms", "kind", "document") if name in more}
        key = (handler, *sorted(spec_fields.items()))
        spec = self._specs.get(key)
        if spec is None:
            kind = spec_fields.pop("kind", "task")
            spec = NodeSpec(len(self._specs), kind, "flow", handler, "sha256:0", handler, **spec_fields)
            self._specs[key] = spec
        work = AttemptJob(
            task or next(self._tasks), attempt, spec.id, "acme", "run", msgspec.msgpack.encode(args or {}), **more
        )
        self.executor.run(work, spec)
        return work.task, work.attempt

    async def end(self, key: tuple[int, int], *, seconds: float = 20.0) -> AnyReport:
        await self.until(lambda: key in self.ends, seconds=seconds)
        (report,) = self.ends[key]
        return report

    async def value(self, handler: str, **args):
        done = await self.end(self.start(handler, args=args))
        assert isinstance(done, Succeeded), done
        return None if done.value is None else msgspec.msgpack.decode(done.value)

    async def until(self, holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)

    def texts(self, key: tuple[int, int], stream: str = "stdout") -> list[str]:
        return [text for one, text in self.lines.get(key, []) if one == stream]

    def saved(self, key: tuple[int, int]) -> list[bytes]:
        """Its checkpoints, in the order in which they came."""
        return [
            report.value
            for report in self.said
            if isinstance(report, Checkpointed) and (report.task, report.attempt) == key
        ]

    def began(self, key: tuple[int, int]) -> bool:
        return any(isinstance(one, Started) and (one.task, one.attempt) == key for one in self.said)

    def progresses(self) -> list[Progressed]:
        return [one for one in self.said if isinstance(one, Progressed)]


@asynccontextmanager
async def playing(app: str = APP, *, executor=None, **options):
    stage = Stage()
    stage.executor = executor or ProcessExecutor(app, **{"processes": 2, **options})
    stage.catalog = await stage.executor.start(stage)
    try:
        yield stage
    finally:
        await stage.executor.close(grace_s=0)
