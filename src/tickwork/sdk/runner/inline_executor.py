"""Tasks run inside this very process: for an engine that lives in a user's script or application, and for tests.

Functions run in threads, asynchronous ones each with a loop of its own in a thread. With `threads=0` everything runs
on the agent's own loop, one after the other where it is synchronous: nothing runs beside it, so a simulated loop gives
the same history every time. Nothing can be ended by force here: what is stopped or takes too long sees it in its
context, half a second later an error is raised in it, and no other attempt of its task begins before it has ended.
"""

import asyncio
import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.values import Ref
from tickwork.ports.executor import ReportSink, lacking
from tickwork.protocol.child_messages import LargeAttemptJob, OutputLines, filled
from tickwork.protocol.worker_messages import (
    VALUE_BYTES_MAX,
    AttemptJob,
    Catalog,
    Checkpointed,
    Failed,
    HandedBack,
    NodeSpec,
    Progressed,
    Reading,
    ReadRequest,
    Report,
    Started,
    StepsRecorded,
    Succeeded,
)
from tickwork.sdk.authoring.app_loader import App, Handler
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client
from tickwork.sdk.client.reading import Direct, async_reading_client, reading_client
from tickwork.sdk.context import Context, commands_of, running
from tickwork.sdk.runner.attempt import AttemptContext, Cancelled, failed, items_in
from tickwork.sdk.runner.attempt_line import AttemptLine
from tickwork.sdk.runner.function_attempt import FunctionAttempt, FunctionOutcome, FunctionResult, history_of
from tickwork.sdk.runner.output_capture import Output
from tickwork.sdk.values.encode import NULL, encode
from tickwork.system.private_files import ScratchDirectory

BEGUN_S = 1.0
SWEEP_S = 0.1
INSIST_S = 0.5  # so long a function may look by itself whether it was called off
Key = tuple[int, int]
T = TypeVar("T")


class RunningAttempt:
    """One attempt that runs."""

    __slots__ = ("begun", "cancel", "context", "kept", "over", "reported_s", "since", "spec", "thread")

    def __init__(self, spec: NodeSpec, since: float) -> None:
        self.spec, self.since, self.reported_s = spec, since, since
        self.begun = self.over = False  # over: it was abandoned
        self.context: AttemptContext | None = None
        self.cancel: Callable[[], object] = lambda: None
        self.kept: list[Callable[[], object]] = []  # waiters, in the order of what was sent
        self.thread = 0  # in which its function runs, while it does; -1: in none any more


class InlineExecutor:
    """`capture`: what tasks print becomes lines of their log and still appears where it did."""

    kinds = frozenset({"task"})
    isolation = "none: all tasks run in the process of the application"

    def __init__(self, app: App, *, threads: int = 8, capture: bool = True) -> None:
        self._app, self._threads = app, threads
        self._line = AttemptLine()
        self._turns: dict[Key, RunningAttempt] = {}
        self._stores: dict[asyncio.Task[None], None] = {}
        self._output = Output(self._on_output) if capture else None
        self._scratch: ScratchDirectory | None = None
        self._sweeping: asyncio.TimerHandle | None = None

    @property
    def slots(self) -> int:
        return self._threads or 8

    async def start(self, sink: ReportSink) -> Catalog:
        self._sink, self._loop = sink, asyncio.get_running_loop()
        if self._output is not None:
            self._output.capture(tee=True)
        return self._app.catalog()

    # ---- what the agent asks

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        handler = self._app.handlers.get(spec.handler)
        if handler is None:
            known = ", ".join(sorted(self._app.handlers)[:20]) or "none at all"
            message = f"this application has no handler {spec.handler!r}; it has {known}"
            self._sink.report(lacking(work, message))
            return
        self._line.add(work, spec)
        self._next()
        limits_ms = [limit for limit in (spec.running_ms, spec.silent_ms) if limit]
        if self._line and limits_ms and work.task in self._lingering():
            self._loop.call_later(min(limits_ms) / 2000, self._give_back, (work.task, work.attempt))

    def _lingering(self) -> set[int]:
        """Tasks with an attempt that was called off and has not ended: no other of theirs begins before that."""
        return {key[0] for key, turn in self._turns.items() if turn.over}

    def _give_back(self, key: Key) -> None:
        """The server counts the time limit from the dispatch: what waits for the attempt before it would time out
        without having begun."""
        if key[0] in self._lingering() and self._line.remove(*key):
            self._sink.report(HandedBack(*key))

    def saved(self, task: int, attempt: int) -> None:
        turn = self._turns.get((task, attempt))
        if turn is not None and turn.kept:
            turn.kept.pop(0)()

    def stop(self, task: int, attempt: int) -> None:
        self._line.remove(task, attempt)
        turn = self._turns.get((task, attempt))
        if turn is not None:
            self._give_up(turn)

    def recall(self) -> tuple[Key, ...]:
        keys = tuple((work.task, work.attempt) for work in self._line)
        self._line.clear()
        return keys

    async def close(self, *, grace_s: float) -> None:
        for key in self.recall():
            self._sink.report(HandedBack(*key))
        until = self._loop.time() + grace_s
        while any(not turn.over for turn in self._turns.values()) and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for key, turn in self._turns.items():
            if not turn.over:
                self._give_up(turn)
                self._sink.report(HandedBack(*key, begun=True))
        for store in list(self._stores):
            store.cancel()
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._output is not None:
            self._output.flush()
            self._output.release()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    # ---- running

    def _next(self) -> None:
        while self._line and len(self._turns) < self.slots:
            entry = self._line.take(without=self._lingering())
            if entry is None:
                return
            work, spec = entry
            key = (work.task, work.attempt)
            self._turns[key] = RunningAttempt(spec, self._loop.time())
            if self._sweeping is None:
                self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
            if work.fetch or isinstance(work.checkpoint, Ref):
                self._later(self._bring(key, work, spec))
            else:
                self._begin(key, work, spec)

    async def _bring(self, key: Key, work: AttemptJob, spec: NodeSpec) -> None:
        try:
            contents = {artifact.digest: await self._sink.fetch(artifact.digest) for artifact in work.fetch}
            args = filled(work.args, work.fetch, contents.__getitem__)
            checkpoint = work.checkpoint
            if isinstance(checkpoint, Ref):
                checkpoint = await self._sink.fetch(checkpoint.digest)
        except (Corrupt, Refused) as error:
            self._ended(key, Failed(*key, type(error).__name__, str(error)))
            return
        self._begin(key, msgspec.structs.replace(work, args=args, checkpoint=checkpoint, fetch=()), spec)

    def _begin(self, key: Key, work: AttemptJob, spec: NodeSpec) -> None:
        handler, turn = self._app.handlers[spec.handler], self._turns[key]
        if turn.over:
            self._finish(key, None)
            return
        job: LargeAttemptJob | None = None
        turn.context = AttemptContext((work, job, spec, lambda key: _Channel(self, key)))
        if self._threads:
            threading.Thread(
                target=self._in_thread, args=(key, work, handler, turn), name=f"task-{spec.node}", daemon=True
            ).start()
        elif handler.is_async:
            task = self._loop.create_task(self._awaited(key, work, handler, turn))
            turn.cancel = task.cancel
        else:
            self._loop.call_soon(self._on_loop, key, work, handler, turn)

    def _on_loop(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> None:
        if not turn.over:
            self._finish(key, self._called(key, work, handler, turn))
        else:
            self._finish(key, None)

    def _in_thread(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> None:
        outcome: Report | None = None
        reported = False
        while not reported:
            try:
                if outcome is None and not turn.thread and not turn.over:
                    if handler.is_async:
                        turn.thread = -1  # its loop is interrupted, not its thread
                        outcome = asyncio.run(self._awaited_in_thread(key, work, handler, turn))
                    else:
                        turn.thread = threading.get_ident()
                        outcome = self._called(key, work, handler, turn)
                turn.thread = -1
                if self._output is not None:
                    self._output.ended(key)
                with contextlib.suppress(RuntimeError):  # the loop may have ended before this task has
                    self._loop.call_soon_threadsafe(self._finish, key, outcome)
                reported = True
            except Cancelled:  # it came when the function had ended: what is left to do is done
                turn.thread = -1

    def _called(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> Report:
        started_ms = _wall_ms()
        assert turn.context is not None
        try:
            with running(turn.context):
                return _answer(key, handler.call(work.args, turn.context), handler, turn.context, started_ms)
        except BaseException as error:
            return failed(*key, error, started_ms=started_ms)

    async def _coroutine(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> Report:
        started_ms = _wall_ms()
        assert turn.context is not None
        try:
            with running(turn.context):
                if handler.durable:
                    outcome = await self._function(key, work, handler, turn.context)
                    if not isinstance(outcome, FunctionResult):
                        return outcome
                    return _answer(key, outcome.value, handler, turn.context, started_ms)
                return _answer(key, await handler.call(work.args, turn.context), handler, turn.context, started_ms)
        except BaseException as error:
            return failed(*key, error, started_ms=started_ms)

    async def _function(self, key: Key, work: AttemptJob, handler: Handler, context: AttemptContext) -> FunctionOutcome:
        host = _Channel(self, key)
        history = await history_of(work.checkpoint, lambda digest: self.on_agent(self._sink.fetch(digest)))
        budget = self._turns[key].spec.budget
        return await FunctionAttempt(work, handler, context, host, history, budget=budget).run()

    async def on_agent(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await it on the agent's loop, from whichever loop an attempt has."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def put(self, data: bytes) -> Ref:
        return Ref(await self.on_agent(self._sink.store(data)), len(data), items_in(data), "artifact")

    async def _awaited_in_thread(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> Report:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        turn.cancel = lambda: None if loop.is_closed() else loop.call_soon_threadsafe(task.cancel)
        if turn.over:
            task.cancel()
        return await self._coroutine(key, work, handler, turn)

    async def _awaited(self, key: Key, work: AttemptJob, handler: Handler, turn: RunningAttempt) -> None:
        outcome = await self._coroutine(key, work, handler, turn)
        if self._output is not None:
            self._output.ended(key)
        self._finish(key, outcome)

    def _finish(self, key: Key, outcome: Report | None) -> None:
        turn = self._turns.get(key)
        if turn is None:
            return
        if turn.over or outcome is None:
            del self._turns[key]
            self._next()
        elif _is_large(outcome):
            self._later(self._store(key, outcome))
        else:
            self._ended(key, outcome)

    async def _store(self, key: Key, report: Report) -> None:
        assert isinstance(report, Succeeded), "nothing else has values of its own"
        value, commands = [await self._stored(part) for part in (report.value, report.commands)]
        self._ended(key, msgspec.structs.replace(report, value=value, commands=commands))

    async def _stored(self, data: bytes | Ref | None) -> bytes | Ref | None:
        if not isinstance(data, bytes) or len(data) <= VALUE_BYTES_MAX:
            return data
        return Ref(await self._sink.store(data), len(data), items_in(data), "artifact")

    def _ended(self, key: Key, report: Report) -> None:
        turn = self._turns.pop(key, None)
        if turn is not None and not turn.over:
            self._sink.report(report)
        self._next()

    def _later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._stores[task] = None
        task.add_done_callback(lambda done: self._stores.pop(done, None))

    # ---- time

    def _sweep(self) -> None:
        self._sweeping = None
        now = self._loop.time()
        for key, turn in list(self._turns.items()):
            if not turn.over:
                self._look_at(key, turn, now)
        if self._turns:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)

    def _look_at(self, key: Key, turn: RunningAttempt, now: float) -> None:
        spec, reason = turn.spec, ""
        if spec.running_ms and now - turn.since >= spec.running_ms / 1000:
            reason = f"ran longer than {spec.running_ms} ms; it cannot be killed in this process"
        elif spec.silent_ms and now - turn.reported_s >= spec.silent_ms / 1000:
            reason = f"no progress and no checkpoint for {spec.silent_ms} ms"
        if reason:
            self._give_up(turn)
            self._sink.report(Failed(*key, "TimeoutError", reason))
        elif not turn.begun and now - turn.since >= BEGUN_S:
            turn.begun = True
            self._sink.report(Started(*key, _wall_ms() - round((now - turn.since) * 1000)))

    def _give_up(self, turn: RunningAttempt) -> None:
        """Once for each attempt: a second error would end the clean-up that the first one began."""
        if turn.over:
            return
        turn.over = True
        if turn.context is not None:
            turn.context.cancel()
        turn.cancel()
        self._loop.call_later(INSIST_S, _interrupt, turn)

    # ---- what running code says

    def say(self, key: Key, report: Report) -> None:
        """From any thread."""
        if self._threads:
            self._loop.call_soon_threadsafe(self._heard, key, report)
        else:
            self._heard(key, report)

    def _heard(self, key: Key, report: Report) -> None:
        turn = self._turns.get(key)
        if turn is None or turn.over:
            return
        turn.reported_s = self._loop.time()
        if isinstance(report, Checkpointed) and isinstance(report.value, bytes) and len(report.value) > VALUE_BYTES_MAX:
            self._later(self._save_large(key, report.value))
        else:
            self._sink.report(report)

    def stream(self, key: Key, number: int, text: str) -> None:
        """From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._sink.piece, *key, number, text, _wall_ms())

    async def _save_large(self, key: Key, data: bytes) -> None:
        ref = Ref(await self._sink.store(data), len(data), items_in(data), "artifact")
        self._sink.report(Checkpointed(*key, ref))

    def expect_kept(self, key: Key, kept: Callable[[], object]) -> None:
        turn = self._turns.get(key)
        if turn is not None:
            turn.kept.append(kept)

    def reader(self) -> Direct:
        """What tasks read, from any thread but the agent's."""

        def read(request: ReadRequest) -> Reading:
            if not self.blocks:
                raise Refused("no_server", "here nothing can wait for the server: use ctx.async_client()")
            return asyncio.run_coroutine_threadsafe(self._sink.read(request), self._loop).result()

        return Direct(read, lambda request: self.on_agent(self._sink.read(request)))

    @property
    def blocks(self) -> bool:
        """Whether code may wait for the agent: not on the agent's own loop."""
        return self._threads > 0

    def folder(self, key: Key) -> Path:
        self._scratch = self._scratch or ScratchDirectory()
        path = Path(self._scratch.path, f"{key[0]}-{key[1]}")
        path.mkdir(exist_ok=True)
        return path

    def _on_output(self, lines: OutputLines) -> None:
        for line in lines.lines:
            try:
                self._loop.call_soon_threadsafe(
                    self._sink.log, line.task, line.attempt, line.stream, line.text, line.at_ms
                )
            except RuntimeError:
                return  # the loop has ended


class _Channel:
    __slots__ = ("_executor", "_key", "_reported_ns")

    def __init__(self, executor: InlineExecutor, key: Key) -> None:
        self._executor, self._key, self._reported_ns = executor, key, 0

    def save(self, value: bytes) -> None:
        """On the agent's own loop nothing can wait: there it is sent, and durable soon after."""
        done = threading.Event()
        self._executor.expect_kept(self._key, done.set)
        self._executor.say(self._key, Checkpointed(*self._key, value))
        if self._executor.blocks:
            done.wait()

    async def save_async(self, value: bytes) -> None:
        await self._durable(Checkpointed(*self._key, value))

    async def record(self, report: StepsRecorded) -> None:
        await self._durable(report)

    async def put(self, data: bytes) -> Ref:
        return await self._executor.put(data)

    def wall_ms(self) -> int:
        return _wall_ms()

    async def _durable(self, report: Report) -> None:
        """Say it, and return when it is durable."""
        loop = asyncio.get_running_loop()
        kept = loop.create_future()
        self._executor.expect_kept(
            self._key, lambda: loop.call_soon_threadsafe(lambda: None if kept.done() else kept.set_result(None))
        )
        self._executor.say(self._key, report)
        await kept

    def progress(self, done: int, total: int, message: str) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._reported_ns >= 200_000_000 or done == total:
            self._reported_ns = now_ns
            self._executor.say(self._key, Progressed(*self._key, done, total, message[:1_000]))

    def stream(self, number: int, text: str) -> None:
        self._executor.stream(self._key, number, text)

    def folder(self) -> Path:
        return self._executor.folder(self._key)

    def client(self) -> Client:
        return reading_client(self._executor.reader())

    def async_client(self) -> AsyncClient:
        return async_reading_client(self._executor.reader())


def _interrupt(turn: RunningAttempt) -> None:
    """Raise an error in its function. It arrives with the next line of Python: what waits in the system goes on."""
    if turn.thread > 0:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(turn.thread), ctypes.py_object(Cancelled))


def _answer(key: Key, value: object, handler: Handler, here: Context, started_ms: int) -> Report:
    """What of it is too large to travel is stored before it is reported."""
    data = encode(value, what=f"result of {handler.name}")
    return Succeeded(*key, None if data == NULL else data, started_ms, _wall_ms(), commands_of(here))


def _is_large(report: Report) -> bool:
    return isinstance(report, Succeeded) and any(
        isinstance(part, bytes) and len(part) > VALUE_BYTES_MAX for part in (report.value, report.commands)
    )


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
