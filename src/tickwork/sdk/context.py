"""The context of running code: its run and attempt, its progress, and its finished steps.

A finished step never runs again in its task: its result is saved before the next step starts, and a later
attempt gets the saved result instead of a call. A step always returns the recorded value, also the first
time, so a retry sees the same values.
"""

import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import msgspec

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.core.base.values import TASK_COMMANDS_MAX
from tickwork.core.calendar.durations import duration_ms
from tickwork.protocol.http_models import AssetUpdateRequest, Signal, Submission
from tickwork.protocol.log_lines import sendable
from tickwork.protocol.task_commands import Command, GiveEvent, MarkUpdated, StartRun, encode_commands, started_run_id
from tickwork.sdk.values.encode import encode, plain, sized

if TYPE_CHECKING:
    import asyncio
    import logging
    from pathlib import Path

    from tickwork.sdk.client.async_client import AsyncClient
    from tickwork.sdk.client.client import Client

P = ParamSpec("P")
T = TypeVar("T")

PIECE_CHARACTERS_MAX = 16 * 1024
PROGRESS_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_current: ContextVar["Context | None"] = ContextVar("tickwork_context", default=None)
_within: ContextVar["_Scope | None"] = ContextVar("tickwork_step", default=None)


class StepsChanged(TickworkError):
    """A retry took other steps than an earlier attempt recorded, or took them in another order."""

    code = "steps_changed"


class Permanent(Exception):
    """Raised in a task, it fails the task at once, whatever its retries are: trying again cannot help."""

    permanent = True


class Skip(Exception):
    """Raised in a task, it ends the task without a result and without a failure: there is nothing to do. What comes
    after it is decided as after a node that was not taken."""

    permanent = True


class NoContext(Refused):
    """`context()` was called outside of a task."""

    def __init__(self) -> None:
        message = "there is no current task: call tickwork.context() inside a function that runs as a task"
        super().__init__("no_context", message)


class StepCommands:
    """What a step of a durable function asks of the engine. It travels with the record of that step."""

    def __init__(self, position: int) -> None:
        self.position = position  # -1: the function itself, outside of its steps
        self.commands: list[Command] = []

    def place(self) -> str:
        """Of the next command."""
        return f"{self.position}.{len(self.commands)}"


_step: ContextVar[StepCommands | None] = ContextVar("tickwork_step_commands", default=None)


class Startable(Protocol):
    """The part of a workflow that a task needs to start it."""

    name: str

    def checked_inputs(self, given: Mapping[str, Any], args: tuple[Any, ...] = ()) -> dict[str, Any]: ...


class Channel(Protocol):
    """The channel from running code to its host. A host whose event loop must not block can also provide
    `async def save_async(value: bytes)`; without it, asynchronous code saves from a thread."""

    def save(self, value: bytes) -> None:
        """Save the checkpoint; it is durable when this returns."""

    def progress(self, done: int, total: int, message: str) -> None:
        """Report progress for people. Never waits."""

    def stream(self, number: int, text: str) -> None:
        """For readers of the live stream; never waits for the server."""

    def client(self) -> "Client":
        """Reads over the worker's connection."""

    def async_client(self) -> "AsyncClient": ...


class _Step(msgspec.Struct, array_like=True):
    place: str  # position among its siblings; of a step inside a step, after a dot
    name: str
    result: msgspec.Raw


class _Saved(msgspec.Struct):
    """Content of a checkpoint: the user's value and the finished steps."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    steps: list[_Step] = []


class _Scope:
    """Position of the next step: in the function, or inside another step."""

    __slots__ = ("context", "count", "place")

    def __init__(self, context: "Context", prefix: str) -> None:
        self.context = context
        self.place = prefix
        self.count = 0

    def next_place(self) -> str:
        self.count += 1
        return f"{self.place}{self.count}"


_saved_decoder = msgspec.msgpack.Decoder(_Saved)
_encoder = msgspec.msgpack.Encoder()
_decode = msgspec.msgpack.Decoder().decode


class Context:
    """The current attempt. Times are timezone-aware, in UTC."""

    _tw_is_context = True  # so that a signature knows a parameter of this type without importing it
    filled = True  # False: it is filled when code looks at it

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_channel",
        "_commands",
        "_lock",
        "_log",
        "_saved",
        "_saving",
        "_scheduled_ms",
        "_scope",
        "_streamed",
        "_submitted_ms",
        "_targets",
        "_turns",
        "_was",
        "_workdir",
        "attempt",
        "attempts_max",
        "child",
        "node",
        "run_id",
        "task_id",
        "tenant",
        "workflow",
    )

    def __init__(
        self,
        *,
        channel: Channel | None = None,
        tenant: str = "",
        run_id: str = "local",
        workflow: str = "",
        node: str = "",
        task_id: int = 0,
        attempt: int = 1,
        attempts_max: int = 1,
        child: int = -1,
        scheduled_ms: int = 0,
        submitted_ms: int = 0,
        checkpoint: bytes | None = None,
    ) -> None:
        self.tenant = tenant
        self.run_id = run_id
        self.workflow = workflow
        self.node = node
        self.task_id = task_id
        self.attempt = attempt  # counts from 1
        self.attempts_max = attempts_max
        self.child = child  # which child of a map; -1: none
        self._channel = channel
        self._scheduled_ms = scheduled_ms
        self._submitted_ms = submitted_ms
        self._saved = checkpoint
        self._was: _Saved | None = None
        self._cancelled: threading.Event | None = None
        self._log: logging.LoggerAdapter[logging.Logger] | None = None
        self._lock = threading.RLock()
        self._saving = threading.RLock()  # one checkpoint after the other, so that the last one is the newest
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None  # the same for coroutines
        self._scope: _Scope | None = None
        self._workdir: Path | None = None
        self._commands: list[Command] = []
        self._streamed = 0
        self._targets: dict[str, Startable] = {}

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task, or of this step of a durable function, and unique to it: pass it on
        to the services that you call."""
        key, step = f"{self.tenant}/{self.run_id}/{self.node}", _step.get()
        if step is not None and step.position >= 0:
            return f"{key}/{step.position}"
        return key if self.child < 0 else f"{key}/{self.child}"

    @property
    def workdir(self) -> "Path":
        """A folder for this attempt. It is created at first use and removed when the attempt ends."""
        import shutil  # here, because only a function that is called directly comes this way
        import tempfile
        import weakref
        from pathlib import Path

        with self._lock:
            if self._workdir is None:
                self._workdir = Path(tempfile.mkdtemp(prefix="tickwork-"))
                weakref.finalize(self, shutil.rmtree, self._workdir, ignore_errors=True)
        return self._workdir

    @property
    def scheduled_time(self) -> datetime | None:
        """The time for which a schedule planned this run; None for a submitted run."""
        return _EPOCH + timedelta(milliseconds=self._scheduled_ms) if self._scheduled_ms else None

    @property
    def submitted_at(self) -> datetime | None:
        """The time of the run's submission; None outside of a run."""
        return _EPOCH + timedelta(milliseconds=self._submitted_ms) if self._submitted_ms else None

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was cancelled. If so, return soon; the result is ignored."""
        return self._cancelled is not None and self._cancelled.is_set()

    def cancel(self) -> None:
        """For the host: set `cancelled`."""
        with self._lock:
            self._cancelled = self._cancelled or threading.Event()
        self._cancelled.set()

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records name the run, node and attempt."""
        if self._log is None:
            import logging

            facts = {"run_id": self.run_id, "node": self.node, "task_id": self.task_id, "attempt": self.attempt}
            self._log = logging.LoggerAdapter(logging.getLogger("tickwork.task"), facts)
        return self._log

    def progress(self, done: int, total: int, message: str = "") -> None:
        """Report progress for people: `done` of `total`."""
        if isinstance(done, bool) or not isinstance(done, int) or not isinstance(total, int):
            raise Refused("bad_progress", f"progress is two whole numbers, done and total, not {done!r} of {total!r}")
        if not 0 <= done <= total <= PROGRESS_MAX:
            raise Refused("bad_progress", f"progress of {done} out of {total} is invalid; 0 <= done <= total")
        if self._channel is not None:
            self._channel.progress(done, total, message)

    def start(
        self,
        workflow: Startable | str,
        /,
        *args: Any,
        key: str = "",
        delay: str | timedelta | None = None,
        priority: int | None = None,
        **inputs: Any,
    ) -> str:
        """Start a run when the result of this task is accepted, otherwise not at all. Return the id of the run.

        The same `key` gives the same run for 24 hours; then an earlier run keeps its id. Where the server refuses it,
        this task fails with the reason, and none of its commands is applied.
        """
        if isinstance(workflow, str):
            if args:
                raise Refused("bad_start", f"give the inputs of {workflow} by name; only a workflow knows their order")
            given = plain(inputs, what="inputs")
        else:
            given = workflow.checked_inputs(inputs, args)
            self._targets[workflow.name] = workflow
        with self._lock:
            step = _step.get()
            place = step.place() if step is not None else ""
            number = place or str(len(self._commands))
            run_id = started_run_id(self.run_id, self.node, self.child, self.attempt, number)
            submission = Submission(
                workflow=workflow if isinstance(workflow, str) else workflow.name,
                inputs=given,
                id=run_id,
                key=key,
                delay_ms=None if delay is None else _milliseconds(delay),
                priority=priority,
            )
            self._ask(StartRun(submission, place))
        return run_id

    def signal(self, event: str, payload: Any = None, /, *, key: str = "") -> None:
        """Send an event to all runs that wait for its name and key, when the result of this task is accepted."""
        with self._lock:
            self._ask(GiveEvent(Signal(event=event, key=key, payload=plain(payload, what="payload"))))

    def _update_asset(self, asset: str, partition: str, details: dict[str, Any]) -> None:
        """Say that an asset has new data, when the result of this task is accepted."""
        with self._lock:
            self._ask(
                MarkUpdated(asset, AssetUpdateRequest(partition=partition, details=plain(details, what="details")))
            )

    def _ask(self, command: Command) -> None:
        step = _step.get()
        if step is not None and step.position < 0:
            message = "a durable function starts and signals as a step: await ctx.start(...), await ctx.signal(...)"
            raise Refused("not_in_a_step", message)
        commands = self._commands if step is None else step.commands
        if len(commands) >= TASK_COMMANDS_MAX:
            message = f"a task starts and signals at most {TASK_COMMANDS_MAX} times; let several tasks do it"
            raise Refused("too_many_commands", message)
        commands.append(command)

    def stream(self, piece: str) -> None:
        """Send a piece of text to the readers of `client.stream(run)`, within 100 ms and without waiting. The
        result of the task is what counts: pieces may be lost, which their numbers tell."""
        if not isinstance(piece, str):
            raise Refused("bad_piece", f"a piece of a stream is text, not {type(piece).__name__}; use json.dumps")
        if len(piece) > PIECE_CHARACTERS_MAX:
            raise Refused("bad_piece", f"a piece has at most {PIECE_CHARACTERS_MAX} characters; send several")
        with self._lock:
            number, self._streamed = self._streamed, self._streamed + 1
            if self._channel is not None:
                self._channel.stream(number, sendable(piece))

    def client(self) -> "Client":
        """A client that reads: runs, outputs, published values, schedules. It needs no address and no token, because it
        uses the connection of the worker. Close it, or use it in a `with`."""
        return self._reader().client()

    def async_client(self) -> "AsyncClient":
        """The same for asynchronous code."""
        return self._reader().async_client()

    def _reader(self) -> Channel:
        step = _step.get()
        if step is not None and step.position < 0:
            message = "a durable function reads in a step, because a replay would read something else"
            raise Refused("not_in_a_step", f"{message}: await ctx.step(look), with tw.context().client() in look")
        if self._channel is None:
            raise Refused("no_server", "a function that is called directly has no server to read from: use tw.Client()")
        return self._channel

    @property
    def last_checkpoint(self) -> Any:
        """The value of the last `checkpoint` call in this or an earlier attempt, as plain data; None at first."""
        return _decode(self._state().value)

    def checkpoint(self, value: Any) -> None:
        """Save `value` for the next attempt. It is durable when this returns."""
        with self._saving:
            self._save(self._with_value(value))

    async def checkpoint_async(self, value: Any) -> None:
        """Like `checkpoint`, for asynchronous code: it does not block the event loop."""
        await self._save_async(lambda: self._with_value(value))

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` once: later attempts get the recorded result without a call.

        Names and order of steps must be the same in every attempt; otherwise `StepsChanged` is raised.
        Of a coroutine function, the step is to be awaited.
        """
        if inspect.iscoroutinefunction(inspect.unwrap(fn)):
            return self.step_async(name, fn, *args, **kwargs)
        position, known = self._begin(name)
        if known is not None:
            return self._recalled(fn, known)
        token = _within.set(_Scope(self, f"{position}."))
        try:
            result = fn(*args, **kwargs)
        finally:
            _within.reset(token)
        if inspect.isawaitable(result):
            return self._finish_awaitable(position, name, fn, result)
        with self._saving:
            recorded, data = self._record(position, name, result)
            self._save(data)
        return self._recalled(fn, recorded)

    async def step_async(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Like `step`, for a function that must be awaited."""
        position, known = self._begin(name)
        if known is not None:
            return self._recalled(fn, known)  # type: ignore[no-any-return]  # what was recorded is plain data
        token = _within.set(_Scope(self, f"{position}."))
        try:
            awaitable = fn(*args, **kwargs)
            result = await awaitable
        finally:
            _within.reset(token)
        return self._recalled(fn, await self._record_async(position, name, result))  # type: ignore[no-any-return]  # as above

    async def _finish_awaitable(self, position: str, name: str, fn: Callable[..., Any], result: Awaitable[Any]) -> Any:
        return self._recalled(fn, await self._record_async(position, name, await result))

    async def _record_async(self, position: str, name: str, result: Any) -> msgspec.Raw:
        recorded = msgspec.Raw()

        def data() -> bytes:
            nonlocal recorded
            recorded, state = self._record(position, name, result)
            return state

        await self._save_async(data)
        return recorded

    def _begin(self, name: str) -> tuple[str, msgspec.Raw | None]:
        if not isinstance(name, str) or not name:
            raise Refused("bad_step", f"a step is known by its name, a text; this one has {name!r}")
        with self._lock:
            scope = _within.get()
            if scope is None or scope.context is not self:
                scope = self._scope = self._scope or _Scope(self, "")
            position = scope.next_place()
            for step in self._state().steps:
                if step.place == position:
                    self._check_same(step, name)
                    return position, step.result
        return position, None

    def _check_same(self, step: _Step, name: str) -> None:
        if step.name != name:
            raise StepsChanged(
                f"step {step.place} was {step.name!r} in an earlier attempt and is {name!r} now; a retry takes the same"
                " steps in the same order: undo the change, or start a new run"
            )

    def _record(self, position: str, name: str, result: Any) -> tuple[msgspec.Raw, bytes]:
        raw = msgspec.Raw(encode(result, what=f"result of step {name!r}"))
        with self._lock:
            state = self._state()
            inner = f"{position}."  # a step that has ended stands for those inside it
            state.steps = [step for step in state.steps if not step.place.startswith(inner)]
            state.steps.append(_Step(position, name, raw))
            return raw, sized(_encoder.encode(state), what=f"results of all steps up to {name!r}")

    def _recalled(self, fn: Callable[..., Any], raw: msgspec.Raw) -> Any:
        if bytes(raw) == b"\xc0":
            return None
        from tickwork.sdk.values.signature_codec import result_of

        return result_of(fn, _decode(raw))

    def _with_value(self, value: Any) -> bytes:
        raw = msgspec.Raw(encode(value, what="checkpoint"))
        with self._lock:
            state = self._state()
            state.value = raw
            return sized(_encoder.encode(state), what="checkpoint and results of steps")

    def _state(self) -> _Saved:
        if _step.get() is not None:
            message = "a durable function and its steps have no checkpoints, because each step is recorded"
            advice = "make each part a step of the function, or call a task that has checkpoints: await ctx.call(...)"
            raise Refused("no_checkpoint", f"{message}: {advice}")
        if self._was is None:
            self._was = _Saved(steps=[]) if self._saved is None else _saved_decoder.decode(self._saved)
        return self._was

    def _save(self, data: bytes) -> None:
        if self._channel is not None:
            self._channel.save(data)

    async def _save_async(self, data: Callable[[], bytes]) -> None:
        """`data` is called in its turn, so that each checkpoint has what those before it have."""
        if self._channel is None:
            data()
            return
        import asyncio  # here, because it is large and most tasks are not asynchronous

        loop = asyncio.get_running_loop()
        if self._turns is None or self._turns[0] is not loop:
            self._turns = (loop, asyncio.Lock())
        async with self._turns[1]:
            save_async = getattr(self._channel, "save_async", None)
            if save_async is not None:
                await save_async(data())
            else:
                await asyncio.to_thread(self._channel.save, data())


def commands_of(here: Context) -> bytes | None:
    """Return the encoded commands of this context's code, to be reported with its result. This does not load a context
    that was not used. Raises `Refused` if the commands are too large."""
    return encode_commands(here._commands) if here.filled and here._commands else None


def targets_of(here: Context) -> tuple[Startable, ...]:
    """Return the workflows to start that were given as objects, not by name."""
    try:
        targets: dict[str, Startable] = object.__getattribute__(here, "_targets")
    except AttributeError:
        return ()
    return tuple(targets.values())


def _milliseconds(value: str | timedelta) -> int:
    if isinstance(value, timedelta):
        return round(value / timedelta(milliseconds=1))
    return duration_ms(value, path="delay")


def context() -> Context:
    """Return the context of the current task. A task function that is called directly, as in a unit test,
    has its own context, whose steps simply run."""
    current = _current.get()
    if current is None:
        raise NoContext
    return current


def current() -> Context | None:
    """Return the context of the current task, or None outside of a task."""
    return _current.get()


def enter_function(here: Context) -> None:
    """Make a context the current one of a durable function, from here on."""
    _current.set(here)
    _within.set(None)
    _step.set(_OUTSIDE)


def enter_step(here: Context, position: int) -> StepCommands:
    """Make a context the current one of a step. Return what the step will ask for."""
    _current.set(here)
    _within.set(None)
    commands = StepCommands(position)
    _step.set(commands)
    return commands


_OUTSIDE = StepCommands(-1)


class running:  # noqa: N801 - read as a word in a with statement; a class, because it is entered for every task
    """Make a context the current one while the code of a task runs: `with running(context): ...`."""

    __slots__ = ("_current", "_here", "_within")

    def __init__(self, here: Context) -> None:
        self._here = here

    def __enter__(self) -> Context:
        self._current = _current.set(self._here)
        self._within = _within.set(None)
        return self._here

    def __exit__(self, *_error: object) -> None:
        _within.reset(self._within)
        _current.reset(self._current)
