"""What executors have in common that run each attempt as one coroutine: so many at once, the others in line."""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Protocol

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.values import Ref
from tickwork.ports.executor import ReportSink
from tickwork.protocol.child_messages import filled
from tickwork.protocol.worker_messages import (
    VALUE_BYTES_MAX,
    AttemptJob,
    Catalog,
    Failed,
    HandedBack,
    NodeSpec,
    Started,
    Succeeded,
)

BEGUN_S = 1.0
Key = tuple[int, int]


class AttemptFailure(Exception):
    """How an attempt ended badly, in the words of its report."""

    def __init__(self, error: str, message: str, *, permanent: bool = False, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.error, self.message, self.permanent, self.exit_code = error, message, permanent, exit_code


class Attempts(Protocol):
    """Attempts of one kind: how each of them runs."""

    @property
    def kinds(self) -> frozenset[str]: ...

    @property
    def isolation(self) -> str: ...

    async def attempt(self, work: AttemptJob, spec: NodeSpec, sink: ReportSink) -> bytes:
        """Run one, and return its result as MessagePack. Raises `AttemptFailure`. Cancelling ends everything that it
        has started."""

    async def close(self) -> None:
        """No attempt runs any more."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class ConcurrentExecutor:
    """Runs attempts concurrently, up to `at_once`; the others wait in line."""

    def __init__(self, attempts: Attempts, *, at_once: int) -> None:
        self.kinds = attempts.kinds
        self._attempts = attempts
        self._at_once = at_once
        self._line: deque[tuple[AttemptJob, NodeSpec]] = deque()
        self._running: dict[Key, asyncio.Task[Succeeded | Failed]] = {}
        self._silent: dict[Key, None] = {}  # stopped: nothing is reported

    @property
    def isolation(self) -> str:
        return self._attempts.isolation

    @property
    def slots(self) -> int:
        """Grows with what comes: a worker that gets no such work asks for little of it."""
        return min(self._at_once, 2 * len(self._running) + 2)

    async def start(self, sink: ReportSink) -> Catalog:
        self._sink = sink
        return Catalog()

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        self._line.append((work, spec))
        self._next()

    def saved(self, task: int, attempt: int) -> None:
        """Nothing here makes checkpoints."""

    def stop(self, task: int, attempt: int) -> None:
        key = (task, attempt)
        self._line = deque(entry for entry in self._line if (entry[0].task, entry[0].attempt) != key)
        running = self._running.get(key)
        if running is not None:
            self._silent[key] = None
            running.cancel()

    def recall(self) -> tuple[Key, ...]:
        keys = tuple((work.task, work.attempt) for work, _ in self._line)
        self._line.clear()
        return keys

    async def close(self, *, grace_s: float) -> None:
        for key in self.recall():
            self._sink.report(HandedBack(*key))
        if self._running and grace_s > 0:
            await asyncio.wait(list(self._running.values()), timeout=grace_s)
        left = list(self._running.values())
        for running in left:
            running.cancel()
        if left:
            await asyncio.wait(left)
            await asyncio.sleep(0)  # their ends are reported in the next turn of the loop
        await self._attempts.close()

    async def _filled(self, work: AttemptJob) -> AttemptJob:
        """Fill in the arguments that lie in the artifact store."""
        if not work.fetch:
            return work
        try:
            contents = {artifact.digest: await self._sink.fetch(artifact.digest) for artifact in work.fetch}
            args = filled(work.args, work.fetch, contents.__getitem__)
        except (Corrupt, Refused) as error:
            raise AttemptFailure(type(error).__name__, str(error)) from error
        return msgspec.structs.replace(work, args=args)

    async def _kept(self, value: bytes) -> bytes | Ref:
        if len(value) <= VALUE_BYTES_MAX:
            return value
        return Ref(await self._sink.store(value), len(value), None, "artifact")

    def _next(self) -> None:
        while self._line and len(self._running) < self._at_once:
            work, spec = self._line.popleft()
            key = (work.task, work.attempt)
            task = asyncio.get_running_loop().create_task(self._turn(key, work, spec))
            self._running[key] = task
            task.add_done_callback(partial(self._ended, key))

    def _ended(self, key: Key, task: "asyncio.Task[Succeeded | Failed]") -> None:
        """Also of one that was cancelled before it began."""
        del self._running[key]
        if key in self._silent:
            del self._silent[key]
        else:
            self._sink.report(HandedBack(*key, begun=True) if task.cancelled() else task.result())
        self._next()

    async def _turn(self, key: Key, work: AttemptJob, spec: NodeSpec) -> Succeeded | Failed:
        started_ms = wall_ms()
        begun = asyncio.get_running_loop().call_later(BEGUN_S, self._sink.report, Started(*key, started_ms))
        try:
            async with asyncio.timeout(spec.running_ms / 1000 if spec.running_ms else None):
                value = await self._attempts.attempt(await self._filled(work), spec, self._sink)
            return Succeeded(*key, await self._kept(value), started_ms, wall_ms())
        except TimeoutError:
            message = f"ran longer than {spec.running_ms} ms"
            return Failed(*key, "TimeoutError", message, False, None, started_ms, wall_ms())
        except AttemptFailure as failure:
            return Failed(
                *key, failure.error, failure.message, failure.permanent, failure.exit_code, started_ms, wall_ms()
            )
        except Exception as error:  # whatever it is, the attempt ends once
            return Failed(*key, type(error).__name__, str(error), False, None, started_ms, wall_ms())
        finally:
            begun.cancel()
