"""`tw.Durable`: what a durable function can call.

Each call is a position in the function's history. A call that was recorded gives the recorded outcome; another one is
carried out by the worker (a step) or by the server (everything else).
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, Self, TypeVar, overload
from uuid import UUID

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.calendar.durations import duration_ms
from tickwork.core.definition.forms import filled
from tickwork.sdk.context import Context, Startable, context
from tickwork.sdk.durable.calls import ApprovalCall, EventCall, FormCall, ReceiveCall, RunCall, Sleep, StepCall, here
from tickwork.sdk.durable.driver import Driver
from tickwork.sdk.durable.outcomes import ContinueAsNew, Decision, First, FormResult, Message, StepFailed
from tickwork.sdk.durable.pending import Location, Pending
from tickwork.sdk.durable.steps import NAME_CHARACTERS_MAX, refuse_step, step_name
from tickwork.sdk.values.encode import EMPTY_MAP, Unsendable, encode, plain
from tickwork.sdk.values.form_fields import declared_fields, default_values, field_converters, form_terms

if TYPE_CHECKING:
    import logging
    from types import TracebackType

T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
Duration = str | int | float | timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Callee(Protocol):
    """What `ctx.call` takes beside a name: a task, a workflow, a durable function."""

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any], Any]:
        """Name of the workflow, its inputs by name, and what makes the result of the plain value."""


class Durable:
    """The context of a durable function."""

    _tw_is_context = True  # so that a signature knows a parameter of this type without importing it
    _tw_is_durable = True

    def __init__(self, driver: Driver, context: Context) -> None:
        self._driver, self._context = driver, context
        self._log: logging.LoggerAdapter[logging.Logger] | None = None

    def go_on(self, context: Context) -> None:
        """The function was kept in memory, and this is its next attempt."""
        self._context = context

    # ---- who it is

    @property
    def run_id(self) -> str:
        return self._context.run_id

    @property
    def tenant(self) -> str:
        return self._context.tenant

    @property
    def workflow(self) -> str:
        return self._context.workflow

    @property
    def attempt(self) -> int:
        """Which attempt this is; each suspension ends one."""
        return self._context.attempt

    @property
    def scheduled_time(self) -> datetime | None:
        """When a schedule meant this run to begin; None for one that was submitted."""
        return self._context.scheduled_time

    @property
    def submitted_at(self) -> datetime | None:
        return self._context.submitted_at

    @property
    def idempotency_key(self) -> str:
        return self._context.idempotency_key

    @property
    def replaying(self) -> bool:
        """Whether the function repeats what it did before. For display only: decide nothing by it."""
        return self._driver.replaying

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger that is silent while the function repeats what it did before."""
        if self._log is None:
            self._log = _replay_log(lambda: self._context.log, self._driver)
        return self._log

    # ---- calls

    @overload
    def step(
        self,
        fn: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        name: str | None = None,
        retries: int = 0,
        retry_delay: Duration = "1s",
        retry_factor: float = 2,
        retry_max: Duration = "5m",
        timeout: Duration | None = None,
        cost: str = "",
        **kwargs: Any,
    ) -> Pending[T]: ...
    @overload
    def step(
        self,
        fn: Callable[..., T],
        /,
        *args: Any,
        name: str | None = None,
        retries: int = 0,
        retry_delay: Duration = "1s",
        retry_factor: float = 2,
        retry_max: Duration = "5m",
        timeout: Duration | None = None,
        cost: str = "",
        **kwargs: Any,
    ) -> Pending[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Coroutine[Any, Any, T]],
        /,
        *args: Any,
        retries: int = 0,
        retry_delay: Duration = "1s",
        retry_factor: float = 2,
        retry_max: Duration = "5m",
        timeout: Duration | None = None,
        cost: str = "",
        **kwargs: Any,
    ) -> Pending[T]: ...
    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., T],
        /,
        *args: Any,
        retries: int = 0,
        retry_delay: Duration = "1s",
        retry_factor: float = 2,
        retry_max: Duration = "5m",
        timeout: Duration | None = None,
        cost: str = "",
        **kwargs: Any,
    ) -> Pending[T]: ...
    def step(
        self,
        fn: Any,
        /,
        *args: Any,
        name: str | None = None,
        retries: int = 0,
        retry_delay: Duration = "1s",
        retry_factor: float = 2,
        retry_max: Duration = "5m",
        timeout: Duration | None = None,
        cost: str = "",
        **kwargs: Any,
    ) -> Pending[Any]:
        """`fn(*args, **kwargs)`, run by this worker. Its outcome is recorded before the function goes on.

        A function runs in a thread, a coroutine function in an event loop. An error is recorded too, after `retries`
        further tries with growing delays, and raised as `tw.StepFailed`. `timeout` is for each try. `cost` names the
        field of the result that says what the step cost: a whole number, of tokens or cents, which counts for the
        `budget` of the function.
        """
        location = here()
        if isinstance(fn, str):
            if name is not None or not args:
                raise Refused("bad_step", f"a step is ctx.step(fn, ...) or ctx.step('name', fn, ...)\n    {location}")
            name, fn, args = fn, args[0], args[1:]
        if not callable(fn):
            what = "the coroutine is running code already; " if inspect.iscoroutine(fn) else ""
            raise Refused("bad_step", f"{what}a step takes a function and its arguments, not {fn!r}\n    {location}")
        refuse_step(fn)
        retry = _retry(retries, retry_delay, retry_factor, retry_max)
        detail = StepCall(fn, args, kwargs, None if timeout is None else _ms(timeout, "timeout"), retry, cost)
        return self._driver.call("step", step_name(fn, name), _digest([args, kwargs]), detail, location)

    def sleep(self, delay: Duration) -> Pending[None]:
        """Wait for this time: `"3d"`, a timedelta, or seconds. Nothing of the function runs anywhere meanwhile."""
        delay_ms = _ms(delay, "delay")
        return self._driver.call("sleep", "sleep", _digest(delay_ms), Sleep(delay_ms=delay_ms), here())

    def sleep_until(self, when: datetime) -> Pending[None]:
        """Wait until this time, which has a time zone."""
        if not isinstance(when, datetime) or when.tzinfo is None:
            raise Refused("bad_time", f"sleep_until takes a datetime with a time zone, not {when!r}\n    {here()}")
        until_ms = (when - _EPOCH) // timedelta(milliseconds=1)
        return self._driver.call("sleep", "until", _digest(until_ms), Sleep(until_ms=max(until_ms, 1)), here())

    def event(self, name: str, key: str = "", timeout: Duration | None = None) -> Pending[Any]:
        """Wait for an event and return its payload, `{}` if it has none; `None` if it did not come in time."""
        detail = EventCall(key, -1 if timeout is None else _ms(timeout, "timeout"))
        return self._driver.call("event", name, _digest(key), detail, here())

    @overload
    def receive(self, *names: str) -> Pending[Message]: ...
    @overload
    def receive(self, *names: str, timeout: Duration) -> Pending[Message | None]: ...
    def receive(self, *names: str, timeout: Duration | None = None) -> Pending[Any]:
        """Wait for a message to this run with one of these names: an update (`client.ask`), or an event that was sent
        to the run. Messages are received one at a time, in the order in which they came; `None` if none came in time.
        """
        location = here()
        if not names or not all(isinstance(name, str) for name in names):
            raise Refused("bad_receive", f"ctx.receive takes the names of messages\n    {location}")
        delay_ms = -1 if timeout is None else _ms(timeout, "timeout")
        detail = ReceiveCall(names, delay_ms, self._driver)
        return self._driver.call("receive", ", ".join(names)[:NAME_CHARACTERS_MAX], _digest(names), detail, location)

    def publish(self, name: str, value: Any) -> None:
        """Others read this value with `client.read(run, name)`, also when the run has ended. It is stored with the next
        step, the next wait or the end of the function."""
        check_name(name, path="name", kind="value")
        self._driver.publish(name, encode(value, what=f"published value {name}"))

    @overload
    def call(self, target: Callable[..., Coroutine[Any, Any, T]], /, *args: Any, **kwargs: Any) -> Pending[T]: ...
    @overload
    def call(self, target: Callable[..., T], /, *args: Any, **kwargs: Any) -> Pending[T]: ...
    @overload
    def call(self, target: str, /, *args: Any, **kwargs: Any) -> Pending[Any]: ...
    def call(self, target: Any, /, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Run a task, a workflow or a durable function as a child run and wait for its result. Failure raises
        `tw.CallFailed`."""
        location = here()
        name, given, result = _target(target, args, kwargs, location)
        inputs = encode(given, what=f"inputs of {name}") if given else EMPTY_MAP
        return self._driver.call("call", name, _hash(inputs), RunCall(inputs, result), location)

    def start(
        self,
        workflow: Startable | str,
        /,
        *args: Any,
        key: str = "",
        delay: str | timedelta | None = None,
        priority: int | None = None,
        **inputs: Any,
    ) -> Pending[str]:
        """Start a run and do not wait for it: a step, whose result is the id of the run. It starts when the step is
        recorded, exactly once. The same `key` gives the same run for 24 hours."""
        location = here()
        name = workflow if isinstance(workflow, str) else workflow.name
        terms = {"key": key, "delay": delay, "priority": priority}
        detail = StepCall(_start, (workflow, *args), terms | inputs, None, None)
        return self._driver.call(
            "step", step_name(_start, f"start {name}"), _digest([args, terms, inputs]), detail, location
        )

    def signal(self, event: str, payload: Any = None, /, *, key: str = "") -> Pending[None]:
        """Send an event to all runs that wait for its name and key: a step, sent when it is recorded, exactly once."""
        location = here()
        detail = StepCall(_signal, (event, payload), {"key": key}, None, None)
        return self._driver.call(
            "step", step_name(_signal, f"signal {event}"), _digest([payload, key]), detail, location
        )

    def stream(self, piece: str) -> None:
        """Send a piece of text to the readers of `client.stream(run)`. A replay does not send it again. In a
        step, use `tw.context().stream(piece)`."""
        self._driver.check_open()
        if not self._driver.replaying:
            self._context.stream(piece)

    def progress(self, done: int, total: int, message: str = "") -> None:
        """Report progress for people: `done` of `total`."""
        self._driver.check_open()
        if not self._driver.replaying:
            self._context.progress(done, total, message)

    def approval(
        self,
        name: str,
        message: str = "",
        approvers: "tuple[str, ...] | list[str]" = (),
        *,
        four_eyes: bool = False,
        timeout: Duration | None = None,
    ) -> Pending[Decision]:
        """Wait until a person decides. The decision is true if it is approved."""
        terms = encode({"message": message, "approvers": list(approvers), "four_eyes": four_eyes}, what="approval")
        detail = ApprovalCall(terms, -1 if timeout is None else _ms(timeout, "timeout"))
        return self._driver.call("approval", name, _digest(""), detail, here())

    def form(
        self,
        name: str,
        text: str = "",
        *,
        fields: Mapping[str, Any],
        approvers: "tuple[str, ...] | list[str]" = (),
        four_eyes: bool = False,
        timeout: Duration | None = None,
        default: Mapping[str, Any] | None = None,
    ) -> Pending[FormResult]:
        """Wait until a person has filled in a form. A field is a type, or a default value that says the type; the
        answer is checked when it is given. Where the time is over, the result has the values of `default`."""
        declared, values = declared_fields(fields), default_values(default)
        if unknown := [key for key in values if key not in declared]:
            message = f"the form {name!r} has no field {unknown[0]!r}; known: {', '.join(declared)}"
            raise Refused("bad_form", message, path="default")
        given = {"message": text, "approvers": list(approvers), "four_eyes": four_eyes, "fields": form_terms(declared)}
        delay_ms = -1 if timeout is None else _ms(timeout, "timeout")
        detail = FormCall(encode(given, what="form"), delay_ms, field_converters(fields), filled(declared, values))
        return self._driver.call("approval", name, _digest(""), detail, here())

    # ---- several at once

    @overload
    def gather(self, one: Awaitable[T1], /) -> Pending[tuple[T1]]: ...
    @overload
    def gather(self, one: Awaitable[T1], two: Awaitable[T2], /) -> Pending[tuple[T1, T2]]: ...
    @overload
    def gather(self, one: Awaitable[T1], two: Awaitable[T2], three: Awaitable[T3], /) -> Pending[tuple[T1, T2, T3]]: ...
    @overload
    def gather(
        self, one: Awaitable[T1], two: Awaitable[T2], three: Awaitable[T3], four: Awaitable[T4], /
    ) -> Pending[tuple[T1, T2, T3, T4]]: ...
    @overload
    def gather(self, *awaitables: Awaitable[T], return_errors: Literal[False] = ...) -> Pending[list[T]]: ...
    @overload
    def gather(self, *awaitables: Awaitable[T], return_errors: bool) -> Pending[list[T | Exception]]: ...
    def gather(self, *awaitables: Awaitable[Any], return_errors: bool = False) -> Pending[Any]:
        """The results of all, in this order, as a list. The first error is raised at once, and the others are
        withdrawn; with `return_errors` errors are among the results."""
        return self._driver.join(_members(awaitables), keep_errors=return_errors)

    @overload
    def first(self, *awaitables: Awaitable[T]) -> Pending[First[T]]: ...
    @overload
    def first(self, **awaitables: Awaitable[T]) -> Pending[First[T]]: ...
    def first(self, *awaitables: Awaitable[Any], **named: Awaitable[Any]) -> Pending[First[Any]]:
        """Whichever ends first; the others are withdrawn, and their child runs cancelled."""
        if not awaitables and not named:
            raise Refused("bad_first", f"ctx.first takes at least one call\n    {here()}")
        names = ("",) * len(awaitables) + tuple(named)
        members = _members((*awaitables, *named.values()))
        return self._driver.join(members, chosen=lambda index, value: First(index, names[index], value))

    # ---- values that every replay repeats

    def now(self) -> datetime:
        """The time of the latest outcome that the function has got, in UTC."""
        self._driver.check_open()
        return _EPOCH + timedelta(milliseconds=self._driver.now_ms)

    def random(self) -> float:
        """A number from 0 to below 1."""
        return (int.from_bytes(self._driver.draw()[:8], "big") >> 11) / (1 << 53)

    def randint(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        if high < low:
            raise Refused("bad_range", f"there is no number from {low} to {high}")
        return low + int.from_bytes(self._driver.draw(), "big") % (high - low + 1)

    def uuid(self) -> UUID:
        return UUID(bytes=self._driver.draw()[:16], version=4)

    def version(self, name: str, number: int) -> int:
        """Which version of the code this run has passed here: 0 where it came by before `name` was in the code, else
        the number that was recorded, or `number` where it comes by for the first time."""
        return self._driver.version(name, number)

    def continue_as_new(self, **inputs: Any) -> NoReturn:
        """End this history and begin the function again under the same run id with these inputs. Never returns."""
        raise ContinueAsNew(encode(inputs, what="inputs") if inputs else EMPTY_MAP, inputs)

    def undo(self) -> "Undo":
        """`async with ctx.undo() as undo: ...; undo(fn, *args)`: if the block is left by an error or a cancellation,
        the registered calls run as steps, the last one first."""
        return Undo(self)


class Undo:
    """Calls that reverse what a block has done."""

    def __init__(self, ctx: Durable) -> None:
        self._ctx = ctx
        self._calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, fn: Any, /, *args: Any, **kwargs: Any) -> None:
        """Takes what `ctx.step` takes."""
        self._calls.append(((fn, *args), kwargs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: "TracebackType | None"
    ) -> None:
        if error is None or isinstance(error, GeneratorExit | ContinueAsNew):
            return
        failures: list[StepFailed] = []
        for args, kwargs in reversed(self._calls):
            try:
                await self._ctx.step(*args, **kwargs)
            except StepFailed as failed:  # the others are undone all the same
                failures.append(failed)
        if failures:
            raise failures[0] from error


def _replay_log(
    of_attempt: "Callable[[], logging.LoggerAdapter[logging.Logger]]", driver: Driver
) -> "logging.LoggerAdapter[logging.Logger]":
    """Lines of the function that were logged in an earlier attempt are not logged again. A record names the attempt in
    which it was logged, also if the function keeps the logger over a wait."""
    import logging
    from collections.abc import MutableMapping

    class Adapter(logging.LoggerAdapter[logging.Logger]):
        def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name in logging
            return not (driver.replaying or driver.closed) and super().isEnabledFor(level)

        def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
            return of_attempt().process(msg, kwargs)

    return Adapter(of_attempt().logger)


async def _start(workflow: Startable | str, /, *args: Any, **terms: Any) -> str:
    return context().start(workflow, *args, **terms)


async def _signal(event: str, payload: Any, key: str) -> None:
    context().signal(event, payload, key=key)


def _members(awaitables: tuple[Any, ...]) -> list[Any]:
    for awaitable in awaitables:
        if not isinstance(awaitable, Pending) and not inspect.iscoroutine(awaitable):
            what = f"calls of the context, or coroutines that use it, not {awaitable!r}"
            raise Refused("bad_member", f"ctx.gather and ctx.first take {what}\n    {here()}")
    return list(awaitables)


def _target(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], location: Location
) -> tuple[str, dict[str, Any], Callable[[Any], Any]]:
    if isinstance(target, str):
        if args:
            raise Refused("bad_call", f"inputs of a workflow that is called by its name have names\n    {location}")
        return target, plain(kwargs, what=f"inputs of {target}"), _same
    called = getattr(target, "called", None)
    if called is None:
        message = f"ctx.call runs a task, a workflow or a durable function, not {target!r}; a plain function is a step"
        raise Refused("bad_call", f"{message}: ctx.step(...)\n    {location}")
    name, given, result = called(args, kwargs)
    return name, given, result


def _same(value: Any) -> Any:
    return value


def _retry(retries: int, delay: Duration, factor: float, delay_max: Duration) -> tuple[int, int, int, int] | None:
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise Refused("bad_step", f"retries is a whole number from 0, not {retries!r}")
    if not retries:
        return None
    delay_ms = _ms(delay, "retry_delay")
    return retries, delay_ms, max(delay_ms, _ms(delay_max, "retry_max")), round(factor * 100)


def _ms(value: Duration, what: str) -> int:
    """Milliseconds of `"3d"`, a timedelta, or a number of seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not 0 <= value < 1e10:
            raise Refused("bad_duration", f"{what} is a time from 0, not {value!r}")
        return round(value * 1000)
    return duration_ms(value, path=what, minimum_ms=0)


def _digest(value: Any) -> str:
    try:
        return _hash(encode(value, what="arguments"))
    except Unsendable:
        return _hash(_encode(_outline(value)))


def _outline(value: Any) -> Any:
    """Arguments of a step stay in the process, so they may be anything: what cannot travel counts by its type."""
    if isinstance(value, list | tuple):
        return [_outline(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _outline(item) for key, item in value.items()}
    try:
        return plain(value, what="argument")
    except Unsendable:
        return f"<{type(value).__qualname__}>"


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
