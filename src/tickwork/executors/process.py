"""Python functions of an application, run in child processes.

Three pools, each started when the application has functions for it: `process` (a function at a time per child),
`thread` (threads of one child) and `async` (one child whose loop runs many). The agent's process never loads the
application. Large values travel as files in the attempt's folder; what goes to the server goes through the sink.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Ref
from tickwork.core.definition.model import VALUE_HANDLER
from tickwork.executors.child_process import STOP_GRACE_S, ChildSettings, Key
from tickwork.executors.limits import Limits, hide_agent, isolation
from tickwork.executors.packet_queue import QueuedAttempt
from tickwork.executors.process_pool import ProcessPool
from tickwork.executors.process_tree import new_mark
from tickwork.executors.read_socket import ReadSocket
from tickwork.ports.executor import ReportSink, lacking
from tickwork.protocol.child_messages import (
    IN_FILE,
    PACKET_BYTES_MAX,
    PARKED_VARIABLE,
    READ_VARIABLE,
    AppLoaded,
    LargeAttemptJob,
    SpilledResult,
    head,
)
from tickwork.protocol.log_lines import ByteRateLimit
from tickwork.protocol.worker_messages import (
    HISTORY_HEADS,
    AttemptJob,
    Catalog,
    Checkpointed,
    Continued,
    Failed,
    HandedBack,
    NodeSpec,
    Report,
    StepsRecorded,
    Succeeded,
    Suspended,
    history_decoder,
)
from tickwork.system.private_files import ScratchDirectory

HOST = (sys.executable, "-m", "tickwork.sdk.runner.child_main")
SWEEP_S = 0.1
START_S_MAX = 60.0
ASYNC_SLOTS, THREAD_SLOTS = 64, 8


class ProcessExecutor:
    """`app` as `registry.load_app` takes it: a file, `file.py:name` or `package.module:name`."""

    kinds = frozenset({"task"})

    def __init__(
        self,
        app: str,
        *,
        processes: int = 0,
        threads: int = THREAD_SLOTS,
        coroutines: int = ASYNC_SLOTS,
        limits: Limits | None = None,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        folder: str | None = None,
        command: tuple[str, ...] = HOST,
        stop_grace_s: float = STOP_GRACE_S,
        parked: int = 0,
    ) -> None:
        self._processes = processes or max(2, os.cpu_count() or 2)
        self._widths = {"process": 1, "thread": threads, "async": coroutines}
        self._scratch: ScratchDirectory | None = None
        self._folder = folder or ""  # "": one of its own, from `start` to `close`
        self._settings = ChildSettings(
            app,
            folder=self._folder,
            cwd=cwd,
            limits=limits,
            env=(env or {}) | {PARKED_VARIABLE: str(parked)},
            command=command,
            stop_grace_s=stop_grace_s,
        )
        self._pools: dict[str, ProcessPool] = {}
        self._modes: dict[str, str] = {}  # handler -> how it is run
        self._offered: tuple[str, ...] = ()  # each way once
        self._heads: dict[int, tuple[NodeSpec, bytes]] = {}
        self._flows: dict[Key, ByteRateLimit] = {}
        self._folders: dict[Key, str] = {}
        self._moving: dict[Key, asyncio.Task[None]] = {}  # values on their way to or from the server
        self._loaded: asyncio.Future[AppLoaded] | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._reads: ReadSocket | None = None

    @property
    def slots(self) -> int:
        """Of threads and coroutines only somewhat more than are in use: they are cheap to offer, but a worker that
        offers them all would be sent as many functions that need a process."""
        if not self._modes:
            return self._processes
        return sum(
            self._processes if mode == "process" else min(self._widths[mode], 2 * self._busy(mode) + 2)
            for mode in self._offered
        )

    def _busy(self, mode: str) -> int:
        pool = self._pools.get(mode)
        return pool.busy if pool is not None else 0

    @property
    def isolation(self) -> str:
        return isolation("child processes, reused from attempt to attempt: weak")

    async def start(self, sink: ReportSink) -> Catalog:
        """Raises `Refused` with the user's line where the application cannot be loaded."""
        hide_agent()
        self._mark = new_mark()
        if not self._folder:
            self._scratch = ScratchDirectory()
            self._folder = self._settings.folder = self._scratch.path
        self._sink, self._report = sink, sink.report
        self._reads = ReadSocket(lambda request: sink.read(request))
        await self._reads.start()
        self._settings.env[READ_VARIABLE] = self._reads.path
        self._loaded = asyncio.get_running_loop().create_future()
        first = self._pool("process", processes=1)
        try:
            ready = await asyncio.wait_for(self._loaded, START_S_MAX)
        except (Refused, TimeoutError) as error:
            await self.close(grace_s=0)
            if isinstance(error, Refused):
                raise
            message = f"the application {self._settings.app} did not load within {START_S_MAX:.0f} s"
            raise Refused("application", message) from error
        self._modes = dict(ready.handlers)
        self._offered = tuple(dict.fromkeys(self._modes.values()))
        for name, mode in ready.handlers:
            if name != VALUE_HANDLER:  # seldom needed: the process for it starts when it is
                self._pool(mode)
        if "process" in self._modes.values():
            first.grow(self._processes)
        else:
            del self._pools["process"]
            await first.close(grace_s=0)
        handlers = tuple(name for name, _ in ready.handlers)
        return Catalog(ready.documents, ready.schedules, handlers, ready.application, ready.version, ready.mailboxes)

    def _pool(self, mode: str, processes: int | None = None) -> ProcessPool:
        pool = self._pools.get(mode)
        if pool is None:
            many = processes or (self._processes if mode == "process" else 1)
            pool = ProcessPool(mode, self, self._settings, processes=many, width=self._widths[mode], mark=self._mark)
            self._pools[mode] = pool
            pool.start()
        return pool

    # ---- what the agent asks

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        mode = self._modes.get(spec.handler)
        if mode is None:
            self._report(lacking(work, self._missing(spec.handler)))
            return
        known = self._heads.get(spec.id)
        if known is None or known[0] is not spec:
            known = self._heads[spec.id] = (spec, head(spec))
        size, checkpoint = len(work.args), work.checkpoint
        if type(checkpoint) is bytes:
            size += len(checkpoint)
        errand = QueuedAttempt((work.task, work.attempt), work, spec, known[1], size)
        elsewhere = checkpoint is not None and (type(checkpoint) is Ref or _artifacts_in(checkpoint))
        if work.fetch or elsewhere or size > PACKET_BYTES_MAX:
            self._move(errand.key, self._bring(errand, mode))
            return
        pool = self._pools.get(mode) or self._pool(mode)
        pool.submit(errand)
        if self._sweeping is None:
            self._sweep_soon()

    def saved(self, task: int, attempt: int) -> None:
        for pool in self._pools.values():
            pool.kept((task, attempt))

    def stop(self, task: int, attempt: int) -> None:
        key = (task, attempt)
        moving = self._moving.pop(key, None)
        if moving is not None:
            moving.cancel()
        for pool in self._pools.values():
            if key in pool:
                pool.stop(key)
        self._clean(key)

    def recall(self) -> tuple[Key, ...]:
        return tuple(key for pool in self._pools.values() for key in pool.recall())

    async def close(self, *, grace_s: float) -> None:
        await asyncio.gather(*(pool.close(grace_s=grace_s) for pool in self._pools.values()))
        for moving in list(self._moving.values()):
            if grace_s:
                await asyncio.wait([moving], timeout=grace_s)
            moving.cancel()
        if self._moving:
            await asyncio.wait(self._moving.values())
        if self._sweeping is not None:
            self._sweeping.cancel()
        for key in list(self._folders):
            self._clean(key)
        if self._scratch is not None:
            self._scratch.remove()
        if self._reads is not None:
            await self._reads.close()

    def _missing(self, handler: str) -> str:
        known = shortened(", ".join(sorted(self._modes)), 1_000) or "none at all"
        return f"this worker's application has no handler {handler!r}; it has {known}"

    # ---- what pools say

    def ended(self, report: Succeeded | Failed | HandedBack | Suspended | Continued) -> None:
        if isinstance(report, Suspended | Continued) and _files_in(report):
            self._move((report.task, report.attempt), self._send_function(report))
            return
        self._report(report)
        if self._flows or self._folders:
            self._clean((report.task, report.attempt))

    def done(self, reports: list[Succeeded]) -> None:
        self._sink.done(reports)
        if self._flows or self._folders:
            for report in reports:
                self._clean((report.task, report.attempt))

    def in_progress(self, report: Report) -> None:
        self._report(report)

    def saving(self, saved: Checkpointed | StepsRecorded) -> None:
        if isinstance(saved, StepsRecorded) and _files_in(saved):
            self._move((saved.task, saved.attempt), self._send_function(saved))
        else:
            self._report(saved)

    def spilled(self, spilled: SpilledResult) -> None:
        self._move((spilled.task, spilled.attempt), self._send(spilled))

    def folder(self, key: Key) -> None:
        self._folders[key] = str(Path(self._folder, f"{key[0]}-{key[1]}"))

    def printed(self, key: Key, stream: str, text: str, at_ms: int, number: int = -1) -> None:
        """Too much is dropped: of lines, one in their place says so; of pieces, the numbers do."""
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = ByteRateLimit()
        if flow.admit(len(text), now_ms=time.monotonic_ns() // 1_000_000):
            if flow.dropped:
                self._sink.log(*key, "log" if number >= 0 else stream, flow.note(), at_ms)
            if number >= 0:
                self._sink.piece(*key, number, text, at_ms)
            else:
                self._sink.log(*key, stream, text, at_ms)

    def loaded(self, mode: str, ready: AppLoaded) -> None:
        assert self._loaded is not None
        if mode == "process" and not self._loaded.done():
            self._loaded.set_result(ready)

    def unfit(self, mode: str, error: str, message: str) -> None:
        assert self._loaded is not None
        if mode == "process" and not self._loaded.done():
            text = f"the application {self._settings.app} cannot be loaded: {error}: {message}"
            self._loaded.set_exception(Refused("application", text))

    # ---- files

    def _path(self, key: Key) -> Path:
        folder = Path(self._folder, f"{key[0]}-{key[1]}")
        self._folders.setdefault(key, str(folder))
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder

    def _move(self, key: Key, moving: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(moving)
        self._moving[key] = task
        task.add_done_callback(lambda _: self._moving.pop(key, None) if self._moving.get(key) is task else None)

    async def _bring(self, errand: QueuedAttempt, mode: str) -> None:
        """Fetch what lies in the artifact store, and put down what is too large for a packet."""
        key, work = errand.key, errand.work
        try:
            folder = self._path(key)
            fetched: list[tuple[str, str]] = []
            checkpoint_file, checkpoint = "", work.checkpoint
            if isinstance(checkpoint, Ref):
                checkpoint = await self._sink.fetch(checkpoint.digest)
                checkpoint_file = _put(folder / "checkpoint", checkpoint)
            for digest in dict.fromkeys([*(artifact.digest for artifact in work.fetch), *_artifacts_in(checkpoint)]):
                fetched.append((digest, _put(folder / f"in-{len(fetched)}", await self._sink.fetch(digest))))
            job = LargeAttemptJob(work, "", checkpoint_file, tuple(fetched))
            if errand.size > PACKET_BYTES_MAX:
                job = self._slimmer(job, folder)
        except (Corrupt, Refused) as error:
            self.ended(Failed(*key, type(error).__name__, str(error)))
        except OSError as error:
            self.ended(Failed(*key, "StorageError", f"a large argument cannot be written to a file: {error}"))
        else:
            self._pool(mode).submit(msgspec.structs.replace(errand, job=job))
            if self._sweeping is None:
                self._sweep_soon()

    def _slimmer(self, job: LargeAttemptJob, folder: Path) -> LargeAttemptJob:
        work, checkpoint_file = job.work, job.checkpoint_file
        if isinstance(work.checkpoint, bytes):
            checkpoint_file = _put(folder / "checkpoint", work.checkpoint)
        args_file = _put(folder / "args", work.args)
        slim = msgspec.structs.replace(work, args=b"", checkpoint=None)
        return LargeAttemptJob(slim, args_file, checkpoint_file, job.fetched)

    async def _send(self, spilled: SpilledResult) -> None:
        key = (spilled.task, spilled.attempt)
        try:
            value = await self._stored(key, spilled.path, spilled.items) if spilled.path else spilled.value
            commands = await self._stored(key, spilled.commands_path) if spilled.commands_path else spilled.commands
        except (OSError, Refused) as error:
            if not spilled.checkpoint:
                self.ended(Failed(*key, "StorageError", f"the result cannot be stored: {error}"))
                return
            for pool in self._pools.values():  # its code waits for an answer that never comes
                pool.fail(key, "StorageError", f"the checkpoint cannot be stored: {error}")
            return
        if spilled.checkpoint:
            assert value is not None, "a checkpoint that is spilled has a file"
            self.saving(Checkpointed(*key, value))
        else:
            self.ended(Succeeded(*key, value, spilled.started_ms, spilled.ended_ms, commands))

    async def _stored(self, key: Key, path: str, items: int | None = None) -> Ref:
        """A file of an attempt as an artifact. Where it lies is for us to say: of what the child says, only the name
        counts."""
        data = await asyncio.to_thread((self._path(key) / Path(path).name).read_bytes)
        return Ref(await self._sink.store(data), len(data), items, "artifact")

    async def _send_function(self, report: StepsRecorded | Suspended | Continued) -> None:
        """What a durable function says, with its files as artifacts."""
        key = (report.task, report.attempt)
        try:
            stored = {file.digest: await self._stored(key, file.digest, file.items) for file in _files_in(report)}
        except (OSError, Refused) as error:
            message = f"a value of the function cannot be stored: {error}"
            if not isinstance(report, StepsRecorded):
                self.ended(Failed(*key, "StorageError", message))
            for pool in self._pools.values() if isinstance(report, StepsRecorded) else ():
                pool.fail(key, "StorageError", message)
            return
        sent = _with_stored(report, stored)
        if isinstance(sent, StepsRecorded):
            self._report(sent)
        else:
            self.ended(sent)

    def _clean(self, key: Key) -> None:
        flow = self._flows.pop(key, None)
        if flow is not None and flow.dropped:
            self._sink.log(*key, "stderr", flow.note(), time.time_ns() // 1_000_000)
        path = self._folders.pop(key, None)
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)

    # ---- time

    def _sweep_soon(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now_ns = time.monotonic_ns()
        for pool in self._pools.values():
            pool.sweep(now_ns)
        if any(not pool.idle or pool.ending for pool in self._pools.values()):
            self._sweep_soon()


def _artifacts_in(checkpoint: bytes | Ref | None) -> list[str]:
    """Digests of the values of a history that are artifacts."""
    if not isinstance(checkpoint, bytes) or checkpoint[:1] not in HISTORY_HEADS:
        return []
    return [entry.value.digest for entry in history_decoder.decode(checkpoint).entries if isinstance(entry.value, Ref)]


def _files_in(report: StepsRecorded | Suspended | Continued) -> list[Ref]:
    parts: list[Any] = [report]
    if not isinstance(report, Continued):
        parts = [*report.steps, *report.replies, *report.published]
    if isinstance(report, Suspended):
        parts += report.awaits
    values = [part.value for part in parts] + ([report.commands] if isinstance(report, StepsRecorded) else [])
    return [value for value in values if isinstance(value, Ref) and value.place == IN_FILE]


def _with_stored(
    report: StepsRecorded | Suspended | Continued, stored: dict[str, Ref]
) -> StepsRecorded | Suspended | Continued:
    def settled(part: Any) -> Any:
        value = part.value
        if isinstance(value, Ref) and value.place == IN_FILE:
            return msgspec.structs.replace(part, value=stored[value.digest])
        return part

    if isinstance(report, Continued):
        whole: Continued = settled(report)
        return whole
    if isinstance(report, StepsRecorded) and isinstance(report.commands, Ref):
        report = msgspec.structs.replace(report, commands=stored.get(report.commands.digest, report.commands))
    names = ("steps", "replies", "published") + (("awaits",) if isinstance(report, Suspended) else ())
    return msgspec.structs.replace(
        report, **{name: tuple(settled(part) for part in getattr(report, name)) for name in names}
    )


def _put(path: Path, data: bytes) -> str:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.write_bytes(data)
    return str(path)
