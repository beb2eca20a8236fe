"""What running code may know and say: who it is, how far it is, and which steps it has done already.

A step that has finished never runs again in this task: its result is saved before the next one begins, and
an attempt that comes later gets the result instead of the call. What a step returns is always the
recorded value, also the first time, so a retry sees nothing new.
"""

import inspect
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

import msgspec

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.sdk.values.encode import encode, sized

if TYPE_CHECKING:
    import logging
    from pathlib import Path

P = ParamSpec("P")
T = TypeVar("T")

PROGRESS_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_current: ContextVar["Context | None"] = ContextVar("tickwork_context", default=None)
_within: ContextVar["_Scope | None"] = ContextVar("tickwork_step", default=None)


class StepsChanged(TickworkError):
    """A retry asked for other steps, or in another order, than the attempt before it recorded."""

    code = "steps_changed"


class NoContext(Refused):
    """`context()` was asked outside of a task."""

    def __init__(self) -> None:
        message = "there is no task here: call tickwork.context() inside a function that runs as a task"
        super().__init__("no_context", message)


class Channel(Protocol):
    """The way from running code to its host. A host whose event loop must not block may also have
    `async def save_async(value: bytes)`; without it, asynchronous code saves from a thread."""

    def save(self, value: bytes) -> None:
        """Durable when it returns."""

    def progress(self, done: int, total: int, message: str) -> None:
        """For people; never waits."""


class _Step(msgspec.Struct, array_like=True):
    place: str  # position among its siblings; of a step inside a step, after a dot
    name: str
    result: msgspec.Raw


class _Saved(msgspec.Struct):
    """What a checkpoint holds: the user's own value and the finished steps."""

    value: msgspec.Raw = msgspec.Raw(b"\xc0")
    steps: list[_Step] = []


class _Scope:
    """Where the next step stands: among the steps of the function, or inside another step."""

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
    """The attempt that is running now. Times are aware and in UTC."""

    _tw_is_context = True  # so that a signature knows a parameter of this type without importing it

    __slots__ = (
        "__weakref__",
        "_cancelled",
        "_channel",
        "_lock",
        "_log",
        "_saved",
        "_scheduled_ms",
        "_scope",
        "_submitted_ms",
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
        self._scope: _Scope | None = None
        self._workdir: Path | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this task, and no other's: hand it to what you call."""
        key = f"{self.tenant}/{self.run_id}/{self.node}"
        return key if self.child < 0 else f"{key}/{self.child}"

    @property
    def workdir(self) -> "Path":
        """A folder of this attempt's own, made when first asked for and removed when the attempt has ended."""
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
        """When a schedule meant this run to begin; None for one that was submitted."""
        return _EPOCH + timedelta(milliseconds=self._scheduled_ms) if self._scheduled_ms else None

    @property
    def submitted_at(self) -> datetime | None:
        """When the run arrived; None outside of a run."""
        return _EPOCH + timedelta(milliseconds=self._submitted_ms) if self._submitted_ms else None

    @property
    def cancelled(self) -> bool:
        """Whether this attempt has been called off: end soon, its result no longer counts."""
        return self._cancelled is not None and self._cancelled.is_set()

    def cancel(self) -> None:
        """For the host: from here on `cancelled` is true."""
        with self._lock:
            self._cancelled = self._cancelled or threading.Event()
        self._cancelled.set()

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry run, node and attempt."""
        if self._log is None:
            import logging

            facts = {"run_id": self.run_id, "node": self.node, "task_id": self.task_id, "attempt": self.attempt}
            self._log = logging.LoggerAdapter(logging.getLogger("tickwork.task"), facts)
        return self._log

    def progress(self, done: int, total: int, message: str = "") -> None:
        """How far the work is, for people: `done` of `total`."""
        if isinstance(done, bool) or not isinstance(done, int) or not isinstance(total, int):
            raise Refused("bad_progress", f"progress is two whole numbers, done and total, not {done!r} of {total!r}")
        if not 0 <= done <= total <= PROGRESS_MAX:
            raise Refused("bad_progress", f"progress of {done} out of {total} makes no sense; 0 <= done <= total")
        if self._channel is not None:
            self._channel.progress(done, total, message)

    @property
    def last_checkpoint(self) -> Any:
        """What `checkpoint` saved last, in this attempt or an earlier one, as plain data; None at first."""
        return _decode(self._state().value)

    def checkpoint(self, value: Any) -> None:
        """Saves `value` for the next attempt; it is durable when this returns."""
        self._save(self._with_value(value))

    async def checkpoint_async(self, value: Any) -> None:
        """The same in asynchronous code, without holding the event loop up."""
        await self._save_async(self._with_value(value))

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`fn(*args, **kwargs)`, once: an attempt after it gets the recorded result without a call.

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
        recorded, data = self._record(position, name, result)
        await self._save_async(data)
        return self._recalled(fn, recorded)  # type: ignore[no-any-return]  # as above

    async def _finish_awaitable(self, position: str, name: str, fn: Callable[..., Any], result: Awaitable[Any]) -> Any:
        recorded, data = self._record(position, name, await result)
        await self._save_async(data)
        return self._recalled(fn, recorded)

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
                " steps in the same order: undo the change, or run the workflow anew"
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
        if self._was is None:
            self._was = _Saved(steps=[]) if self._saved is None else _saved_decoder.decode(self._saved)
        return self._was

    def _save(self, data: bytes) -> None:
        if self._channel is not None:
            self._channel.save(data)

    async def _save_async(self, data: bytes) -> None:
        if self._channel is None:
            return
        save_async = getattr(self._channel, "save_async", None)
        if save_async is not None:
            await save_async(data)
            return
        import asyncio  # here, because it is large and most tasks are not asynchronous

        await asyncio.to_thread(self._channel.save, data)


def context() -> Context:
    """The context of the task that runs here. A task function that is called directly, as in a unit test,
    has one of its own, whose steps just run."""
    current = _current.get()
    if current is None:
        raise NoContext
    return current


def current() -> Context | None:
    """The same, or None outside of a task."""
    return _current.get()


class running:  # noqa: N801 - read as a word in a with statement; a class, because it is entered for every task
    """Makes a context the current one, for whoever runs the code of a task: `with running(context): ...`."""

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
