"""How a world runs tasks: the application's own functions, in this process, on the world's loop.

A plain function runs from beginning to end while time stands still. An asynchronous one is a task of the loop, so what
it sleeps passes in virtual time. Stand-ins take the place of functions; planned failures come before either.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar, TypeVarTuple

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.values import Ref
from tickwork.ports.executor import ReportSink
from tickwork.ports.system import Clock
from tickwork.protocol.worker_messages import (
    VALUE_BYTES_MAX,
    AttemptJob,
    Catalog,
    Checkpointed,
    Continued,
    Failed,
    NodeSpec,
    Progressed,
    StepsRecorded,
    Succeeded,
    Suspended,
)
from tickwork.sdk.authoring.app_loader import Handler
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client
from tickwork.sdk.client.reading import Direct, async_reading_client, reading_client
from tickwork.sdk.context import Startable, commands_of, running, targets_of
from tickwork.sdk.durable.calls import StepCall
from tickwork.sdk.durable.outcomes import Cancelled
from tickwork.sdk.runner.attempt import AttemptContext, failed, items_in
from tickwork.sdk.runner.function_attempt import FunctionAttempt, FunctionResult, history_of, perform
from tickwork.sdk.values.encode import NULL, encode
from tickwork.testing.virtual_loop import VirtualLoop

SLOTS = 10_000
ALL_KINDS = frozenset({"task", "http", "shell", "send"})
Key = tuple[int, int]
T = TypeVar("T")
Args = TypeVarTuple("Args")
_decode = msgspec.msgpack.Decoder().decode


class TestLoop(VirtualLoop):
    """`asyncio.to_thread` works: the function runs at once, and time stands still meanwhile."""

    __test__ = False  # pytest collects what is named so

    def run_in_executor(
        self,
        executor: Any,  # noqa: ARG002 - asyncio's signature
        func: Callable[[*Args], T],
        *args: *Args,
    ) -> "asyncio.Future[T]":
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class HandlerPlan:
    """What a test has said about one function or node."""

    def __init__(self) -> None:
        self.stand_in: Any = None
        self.replaced = False
        self.failures: list[tuple[int | None, BaseException]] = []  # how often (None: always), and with what

    def __bool__(self) -> bool:
        return self.replaced or bool(self.failures)

    def next_failure(self) -> BaseException | None:
        if not self.failures:
            return None
        times, error = self.failures[0]
        if times is not None:
            self.failures[:1] = [(times - 1, error)] if times > 1 else []
        return error


class HandlerPlans:
    """Handlers and plans, shared by the executors of one world."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.plans: dict[str, HandlerPlan] = {}
        self._calls: dict[str, list[dict[str, Any]]] = {}

    def plan(self, name: str) -> HandlerPlan:
        return self.plans.setdefault(name, HandlerPlan())

    def plan_for(self, spec: NodeSpec) -> HandlerPlan:
        """By its node, where the test has said something about that; else by its function."""
        return self.plans.get(spec.node) or self.plan(spec.handler or spec.node)

    def note_call(self, spec: NodeSpec, given: dict[str, Any]) -> None:
        for name in dict.fromkeys((spec.node, spec.handler or spec.node)):
            self.note(name, given)

    def note(self, name: str, given: dict[str, Any]) -> None:
        self._calls.setdefault(name, []).append(given)

    def calls(self, name: str) -> list[dict[str, Any]]:
        return list(self._calls.get(name, ()))


class LocalChannel:
    """From running code to its executor. A plain function does not wait for its checkpoint: nothing can come between
    it and the end of the attempt, which is reported behind it."""

    def __init__(self, executor: "LocalExecutor", key: Key) -> None:
        self._executor, self._key = executor, key

    def save(self, value: bytes) -> None:
        self._executor.expect(self._key)
        self._executor.say(Checkpointed(*self._key, value))

    async def save_async(self, value: bytes) -> None:
        saved = self._executor.expect(self._key)
        self._executor.say(Checkpointed(*self._key, value))
        await saved

    def folder(self) -> Path:
        return self._executor.folder(self._key)

    def stream(self, number: int, text: str) -> None:
        self._executor.piece(self._key, number, text)

    def client(self) -> Client:
        return reading_client(self._executor.reader)

    def async_client(self) -> AsyncClient:
        return async_reading_client(self._executor.reader)

    def progress(self, done: int, total: int, message: str) -> None:
        self._executor.say(Progressed(*self._key, done, total, message))


class LocalExecutor:
    """`ports.executor.Executor`."""

    def __init__(
        self,
        book: HandlerPlans,
        clock: Clock,
        publish: Callable[[tuple[Startable, ...]], Awaitable[None]],
        reader: Direct,
    ) -> None:
        """`publish` makes the workflows known that a task starts; `reader` is for what tasks read."""
        self._book, self._clock, self.publish, self.reader = book, clock, publish, reader
        self._sink: ReportSink | None = None
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._saving: dict[Key, list[asyncio.Future[None]]] = {}  # in the order of what was sent
        self._folders: dict[Key, TemporaryDirectory[str]] = {}

    @property
    def kinds(self) -> frozenset[str]:
        return ALL_KINDS

    @property
    def slots(self) -> int:
        return SLOTS

    @property
    def isolation(self) -> str:
        return "none: functions run in the process of the test"

    async def start(self, sink: ReportSink) -> Catalog:
        self._sink = sink
        return Catalog()

    def run(self, work: AttemptJob, spec: NodeSpec) -> None:
        key = (work.task, work.attempt)
        self._tasks[key] = asyncio.get_running_loop().create_task(self._attempt(work, spec))

    def saved(self, task: int, attempt: int) -> None:
        waiting = self._saving.get((task, attempt))
        if waiting and not (saved := waiting.pop(0)).done():
            saved.set_result(None)

    def stop(self, task: int, attempt: int) -> None:
        self._saving.pop((task, attempt), None)
        running_task = self._tasks.pop((task, attempt), None)
        if running_task is not None:
            running_task.cancel()

    def recall(self) -> tuple[Key, ...]:
        return ()

    async def close(self, *, grace_s: float) -> None:
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_s)
        for key in list(self._tasks):
            self.stop(*key)

    # ---- one attempt

    def say(self, report: Any) -> None:
        assert self._sink is not None, "start comes first"
        self._sink.report(report)

    def piece(self, key: Key, number: int, text: str) -> None:
        assert self._sink is not None, "start comes first"
        self._sink.piece(*key, number, text, self._clock.wall_ms())

    def expect(self, key: Key) -> "asyncio.Future[None]":
        future = asyncio.get_running_loop().create_future()
        self._saving.setdefault(key, []).append(future)
        return future

    def folder(self, key: Key) -> Path:
        if key not in self._folders:
            self._folders[key] = TemporaryDirectory(prefix="tickwork-")
        return Path(self._folders[key].name)

    async def _attempt(self, work: AttemptJob, spec: NodeSpec) -> None:
        key, began_ms = (work.task, work.attempt), self._clock.wall_ms()
        report: Succeeded | Failed | Suspended | Continued
        try:
            report = await self._report(work, spec, began_ms)
        except asyncio.CancelledError:
            self._tasks.pop(key, None)
            raise
        except (Exception, SystemExit, Cancelled) as error:
            failure = failed(*key, error, started_ms=began_ms)
            report = msgspec.structs.replace(failure, ended_ms=self._clock.wall_ms())
        finally:
            if (folder := self._folders.pop(key, None)) is not None:
                folder.cleanup()
        self._tasks.pop(key, None)
        self.say(report)

    async def _report(self, work: AttemptJob, spec: NodeSpec, began_ms: int) -> Succeeded | Suspended | Continued:
        handler = self._book.handlers.get(spec.handler)
        if handler is not None and handler.durable and not self._book.plan_for(spec).replaced:
            return await self._function(work, spec, handler, began_ms)
        value, commands = await self._result(work, spec)
        return Succeeded(work.task, work.attempt, value, began_ms, self._clock.wall_ms(), commands)

    async def _function(
        self, work: AttemptJob, spec: NodeSpec, handler: Handler, began_ms: int
    ) -> Succeeded | Suspended | Continued:
        """Each attempt begins with a replay: what suspends is dropped."""
        assert self._sink is not None
        args = await self._arguments(work)
        history = await history_of(work.checkpoint, self._sink.fetch)
        if history is None or not (history.past or history.entries):
            self._note(args, spec)
        if (error := self._book.plan_for(spec).next_failure()) is not None:
            raise error
        here = AttemptContext((work, None, spec, lambda key: LocalChannel(self, key)))
        work = msgspec.structs.replace(work, args=args, fetch=())
        with running(here):
            host = _LocalHost(self, self._clock, here)
            attempt = FunctionAttempt(work, handler, here, host, history, perform_step=self._step, budget=spec.budget)
            ended = await attempt.run()
        if not isinstance(ended, FunctionResult):
            return ended
        data = encode(ended.value, what=f"result of {spec.handler}")
        value = await self._sent(None if data == NULL else data)
        return Succeeded(work.task, work.attempt, value, began_ms, self._clock.wall_ms())

    async def _step(self, name: str, step: StepCall) -> Any:
        """A step of a durable function, or what the test has planned for it."""
        given = named_arguments(step)
        self._book.note(name, given)
        plan = self._book.plans.get(name)
        if plan is not None and (error := plan.next_failure()) is not None:
            raise error
        if plan is None or not plan.replaced:
            return await perform(name, step)
        value = stand_in_value(plan.stand_in, given, name=name)
        return await value if inspect.isawaitable(value) else value

    async def _result(self, work: AttemptJob, spec: NodeSpec) -> tuple[bytes | Ref | None, bytes | Ref | None]:
        """The value, and the commands of the code."""
        assert self._sink is not None
        here = AttemptContext((work, None, spec, lambda key: LocalChannel(self, key)))
        with running(here):
            value = self._call(await self._arguments(work), spec, here)
            if inspect.isawaitable(value):
                value = await value
        await self.publish(targets_of(here))
        data = NULL if value is None else encode(value, what=f"result of {spec.handler or spec.node}")
        return await self._sent(None if data == NULL else data), await self._sent(commands_of(here))

    async def _sent(self, data: bytes | None) -> bytes | Ref | None:
        return await self.put(data) if data is not None and len(data) > VALUE_BYTES_MAX else data

    async def put(self, data: bytes) -> Ref:
        assert self._sink is not None
        return Ref(await self._sink.store(data), len(data), items_in(data), "artifact")

    def _note(self, args: bytes, spec: NodeSpec) -> dict[str, Any]:
        handler = self._book.handlers.get(spec.handler)
        given = handler.codec.unpack(args) if handler is not None else _decode(args or b"\x80")
        self._book.note_call(spec, dict(given))
        return given

    async def _arguments(self, work: AttemptJob) -> bytes:
        if not work.fetch:
            return work.args
        assert self._sink is not None
        named = _decode(work.args)
        for artifact in work.fetch:
            value = _decode(await self._sink.fetch(artifact.digest))
            for step in artifact.walk:
                value = value[int(step)] if isinstance(value, list) else value[step]
            named[artifact.name] = value
        return msgspec.msgpack.encode(named)

    def _call(self, args: bytes, spec: NodeSpec, here: AttemptContext) -> Any:
        handler = self._book.handlers.get(spec.handler)
        plan = self._book.plan_for(spec)
        given = self._note(args, spec)
        if (error := plan.next_failure()) is not None:
            raise error
        if plan.replaced:
            return _stand_in(plan.stand_in, given, handler, here, name=spec.node)
        if handler is None:
            what = f"{spec.handler!r} is not known here" if spec.handler else f"{spec.node!r} is a {spec.kind} node"
            message = f"{what}, and a test makes no external calls; give its result: world.replace({spec.node!r}, ...)"
            raise Refused("no_stand_in", message)
        return handler.call(args, here)


class _LocalHost:
    """What an attempt of a durable function needs."""

    def __init__(self, executor: LocalExecutor, clock: Clock, here: AttemptContext) -> None:
        self._executor, self._clock, self._here = executor, clock, here

    async def record(self, report: StepsRecorded) -> None:
        await self._executor.publish(targets_of(self._here))
        recorded = self._executor.expect((report.task, report.attempt))
        self._executor.say(report)
        await recorded

    async def put(self, data: bytes) -> Ref:
        return await self._executor.put(data)

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


def _stand_in(stand_in: Any, given: dict[str, Any], handler: Handler | None, here: AttemptContext, *, name: str) -> Any:
    context_name = handler.codec.context_name if handler is not None else ""
    return stand_in_value(stand_in, given, name=name, context=(context_name, here) if context_name else None)


def stand_in_value(
    stand_in: Any, given: dict[str, Any], *, name: str, context: tuple[str, AttemptContext] | None = None
) -> Any:
    """Called by names where it takes them, else in the order of the parameters. What cannot be called is the answer."""
    if not callable(stand_in):
        return stand_in
    signature = inspect.signature(stand_in)
    named = given | {context[0]: context[1]} if context is not None and context[0] in signature.parameters else given
    for by_order, by_name in (((), named), (tuple(given.values()), {})):
        try:
            bound = signature.bind(*by_order, **by_name)
        except TypeError:
            continue
        return stand_in(*bound.args, **bound.kwargs)
    message = f"the stand-in for {name!r} takes {signature}, but is called with {', '.join(given) or 'nothing'}"
    raise Refused("bad_stand_in", f"{message}; give it the same parameters")


def named_arguments(step: StepCall) -> dict[str, Any]:
    """The arguments of a step by name."""
    try:
        return dict(inspect.signature(step.function).bind(*step.args, **step.kwargs).arguments)
    except (TypeError, ValueError):  # a built-in function without a signature, or wrong arguments: it raises itself
        return {str(position): value for position, value in enumerate(step.args)} | step.kwargs
