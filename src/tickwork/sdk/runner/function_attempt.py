"""One attempt of a durable function: its history is replayed, its steps are run, and what it waits for is reported.

Steps that the function began together run beside each other: functions in threads, coroutine functions on the loop.
What ended is recorded before the function gets it. The attempt ends with a result, an error, or when it can only wait.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec

from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Ref
from tickwork.protocol.task_commands import Command, encode_commands
from tickwork.protocol.worker_messages import (
    VALUE_BYTES_MAX,
    AttemptJob,
    Await,
    Continued,
    FunctionHistory,
    HistoryEntry,
    PublishedValue,
    StepEntry,
    StepsRecorded,
    Suspended,
    UpdateReply,
    history_decoder,
)
from tickwork.sdk.authoring.app_loader import Handler
from tickwork.sdk.context import Context, enter_function, enter_step
from tickwork.sdk.durable.calls import ApprovalCall, EventCall, FormCall, ReceiveCall, RunCall, Sleep, StepCall
from tickwork.sdk.durable.driver import Driver, LocalStep, seed_of, value_digest
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.outcomes import ContinueAsNew
from tickwork.sdk.durable.parked import ParkedFunction
from tickwork.sdk.durable.pending import Operation
from tickwork.sdk.runner.attempt import error_text, is_permanent
from tickwork.sdk.values.encode import NULL, encode

PARALLEL_MAX = 64  # steps of one attempt at a time
ERROR_CHARACTERS_MAX, MESSAGE_CHARACTERS_MAX = 128, 4_000

log = logging.getLogger("tickwork.task")


class FunctionHost(Protocol):
    """What an attempt needs of the process that runs it."""

    async def record(self, report: StepsRecorded) -> None:
        """Returns when the steps are durable."""

    async def put(self, data: bytes) -> Ref:
        """A reference for a value that is too large for a message."""

    def wall_ms(self) -> int: ...


class FunctionResult(msgspec.Struct, frozen=True):
    """The function has returned."""

    value: Any


FunctionOutcome = FunctionResult | Suspended | Continued


async def history_of(
    checkpoint: bytes | Ref | None, fetch: Callable[[str], Awaitable[bytes]]
) -> FunctionHistory | None:
    """The history that came with an attempt. `fetch` gives the bytes of an artifact."""
    if checkpoint is None:
        return None
    data = await fetch(checkpoint.digest) if isinstance(checkpoint, Ref) else checkpoint
    history = history_decoder.decode(data)
    values = {entry.value.digest: b"" for entry in history.entries if isinstance(entry.value, Ref)}
    if not values:
        return history
    for digest in values:
        values[digest] = await fetch(digest)
    entries = tuple(
        msgspec.structs.replace(entry, value=values[entry.value.digest]) if isinstance(entry.value, Ref) else entry
        for entry in history.entries
    )
    return msgspec.structs.replace(history, entries=entries)


async def perform(_name: str, step: StepCall) -> Any:
    """Call the function of a step."""
    if inspect.iscoroutinefunction(inspect.unwrap(step.function)):
        return await step.function(*step.args, **step.kwargs)
    result = await asyncio.to_thread(step.function, *step.args, **step.kwargs)
    if inspect.isawaitable(result):
        awaited: Awaitable[Any] = result
        return await awaited
    return result


class FunctionAttempt:
    def __init__(
        self,
        work: AttemptJob,
        handler: Handler,
        context: Context,
        host: FunctionHost,
        history: FunctionHistory | None,
        *,
        perform_step: Callable[[str, StepCall], Awaitable[Any]] = perform,
        budget: int = 0,
        parked: ParkedFunction | None = None,
    ) -> None:
        """`perform_step` takes the name of a step and its call; tests replace steps by it. `budget`: what steps may
        cost until the server pauses the run, and again that much each time. `parked`: the function as an earlier
        attempt left it, which this history fits."""
        self._key = (work.task, work.attempt)
        self._perform_step = perform_step
        self._handler, self._context, self._host = handler, context, host
        if parked is None or history is None:
            self._driver = Driver(history, submitted_ms=work.submitted_ms, seed=seed_of(work))
            self._durable = Durable(self._driver, context)
            self._driver.begin(handler.call(work.args, self._durable))
        else:
            self._driver, self._durable = parked.driver, parked.context
            self._driver.extend(history)
            self._durable.go_on(context)
        self._driver.in_all_branches(partial(enter_function, context))
        self._cost = history.cost if history is not None else 0
        self._cost_max = (self._cost // budget + 1) * budget if budget else 0
        self._running: dict[asyncio.Task[StepEntry], LocalStep] = {}
        self._waiting: list[LocalStep] = []  # for a free place
        self._commands: dict[int, list[Command]] = {}  # of steps that have ended, by position
        self._retries: dict[int, StepEntry] = {}  # failed steps that the server may have run again
        self._started_ms = host.wall_ms()

    async def run(self, *, park: Callable[[ParkedFunction], None] | None = None) -> FunctionOutcome:
        """Raises what the function raises. `park` takes the function if it suspends; without it, it is dropped."""
        kept = False
        try:
            outcome = await self._run()
            if park is not None and isinstance(outcome, Suspended):
                kept = True
                park(ParkedFunction(self._driver, self._durable, outcome.attempt))
            return outcome
        except ContinueAsNew as left:
            self._handler.codec.bind((), left.names)
            await self._say_rest()
            value, withdrawn = await self._sent(left.inputs), self._driver.suspension().withdrawn
            return Continued(*self._key, value, self._started_ms, self._host.wall_ms(), withdrawn)
        finally:
            for task in self._running:
                task.cancel()
            if not kept:
                self._driver.close()

    async def _run(self) -> FunctionOutcome:
        driver = self._driver
        while not driver.advance():
            self._drop_abandoned()
            self._begin_steps()
            if not self._running and self._waiting:
                await asyncio.get_running_loop().create_future()  # the server pauses the run and ends this attempt
            if not self._running:
                return await self._suspended()
            await self._take_ended()
        if driver.failure is None and not isinstance(driver.error, ContinueAsNew):
            await self._say_rest()
        return FunctionResult(driver.outcome())

    async def _say_rest(self) -> None:
        """What the function replied and published at its end, before the end itself is reported."""
        if self._driver.has_more_to_say:
            await self._host.record(StepsRecorded(*self._key, (), (), await self._replies(), await self._published()))

    async def _replies(self) -> tuple[UpdateReply, ...]:
        return tuple(
            [
                UpdateReply(
                    reply.update,
                    None if reply.refusal is not None or reply.value == NULL else await self._sent(reply.value),
                    reply.refusal is not None,
                    shortened(reply.refusal or "", MESSAGE_CHARACTERS_MAX),
                )
                for reply in self._driver.take_replies()
            ]
        )

    async def _published(self) -> tuple[PublishedValue, ...]:
        published = self._driver.take_published()
        return tuple(
            [
                PublishedValue(name, value_digest(value), None if value == NULL else await self._sent(value))
                for name, value in published.items()
            ]
        )

    # ---- steps

    @property
    def _is_spent(self) -> bool:
        return 0 < self._cost_max <= self._cost and not self._driver.cancelled

    def _begin_steps(self) -> None:
        self._waiting += self._driver.start
        self._driver.start.clear()
        if self._is_spent:
            return
        while self._waiting and len(self._running) < PARALLEL_MAX:
            step = self._waiting.pop(0)
            variables = step.operation.variables
            task = asyncio.create_task(self._perform(step), context=variables and variables.copy())
            self._running[task] = step

    def _drop_abandoned(self) -> None:
        """Abandon these operations. A thread goes on to its end."""
        if not self._driver.abandoned:
            return
        dropped = set(self._driver.abandoned)
        self._driver.abandoned.clear()
        self._waiting = [step for step in self._waiting if step.operation.position not in dropped]
        for task, step in list(self._running.items()):
            if step.operation.position in dropped:
                task.cancel()
                del self._running[task]
        for position in dropped & self._retries.keys():
            del self._retries[position]

    async def _take_ended(self) -> None:
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        ended = sorted(((self._running.pop(task), task.result()) for task in done), key=lambda pair: pair[1].position)
        recorded: list[StepEntry] = []
        for step, entry in ended:
            if entry.error and entry.retry is not None:
                self._retries[step.operation.position] = entry
            else:
                recorded.append(entry)
        if not recorded:
            return
        sent = tuple([await self._step_sent(entry) for entry in recorded])
        replies, published = await self._replies(), await self._published()
        commands = await self._commands_of(recorded)
        await self._host.record(StepsRecorded(*self._key, sent, self._new_versions(), replies, published, commands))
        for entry in recorded:
            assert not isinstance(entry.value, Ref)
            self._cost += entry.cost
            self._driver.feed(
                HistoryEntry(
                    entry.position,
                    "step",
                    entry.name,
                    entry.digest,
                    entry.value,
                    entry.error,
                    entry.message,
                    entry.at_ms,
                    entry.tries,
                )
            )
            if self._driver.advance():
                break

    async def _commands_of(self, recorded: list[StepEntry]) -> bytes | Ref | None:
        """Return the commands of these steps. A step that failed starts nothing."""
        if not self._commands:
            return None
        taken = [(entry, self._commands.pop(entry.position, [])) for entry in recorded]
        commands = [command for entry, sent in taken if not entry.error for command in sent]
        return await self._sent(encode_commands(commands)) if commands else None

    async def _perform(self, step: LocalStep) -> StepEntry:
        operation, host = step.operation, self._host
        entered = enter_step(self._context, operation.position)
        detail: StepCall = operation.detail
        started_ms = host.wall_ms()
        value, error, message, retry, cost = b"", "", "", None, 0
        try:
            async with asyncio.timeout(None if detail.timeout_ms is None else detail.timeout_ms / 1000):
                result = await self._perform_step(operation.name, detail)
            value, cost = encode(result, what=f"result of step {operation.name!r}"), detail.cost_of(result)
        except asyncio.CancelledError as cancelled:
            if asyncio.current_task().cancelling():  # type: ignore[union-attr]  # this is a task
                raise
            error, message = "CancelledError", str(cancelled)
        except BaseException as failure:
            error = type(failure).__name__[:ERROR_CHARACTERS_MAX]
            message = shortened(error_text(failure), MESSAGE_CHARACTERS_MAX)
            if isinstance(failure, TimeoutError) and not message and detail.timeout_ms is not None:
                message = f"the step took longer than {detail.timeout_ms} ms"
            log.warning("step %s failed, try %d", operation.name, step.tries, exc_info=failure)
            if detail.retry is not None and step.tries <= detail.retry[0] and not is_permanent(failure):
                retry = detail.retry
        if entered.commands:
            self._commands[operation.position] = entered.commands
        ended_ms = host.wall_ms()
        took_ms = max(0, ended_ms - started_ms)
        return StepEntry(
            operation.position, operation.name, operation.digest, None if error or value == NULL else value, error,
            message, ended_ms, took_ms, step.tries, retry, 0 if error else cost,
        )  # fmt: skip

    # ---- reports

    async def _suspended(self) -> Suspended:
        suspension = self._driver.suspension()
        return Suspended(
            *self._key,
            tuple(self._retries.values()),
            tuple([await self._await_of(operation) for operation in suspension.awaits]),
            suspension.withdrawn,
            suspension.together,
            self._new_versions(),
            self._started_ms,
            self._host.wall_ms(),
            await self._replies(),
            await self._published(),
        )

    async def _await_of(self, operation: Operation) -> Await:
        position, kind, name, digest = operation.position, operation.kind, operation.name, operation.digest
        line = str(operation.location)
        match operation.detail:
            case Sleep(delay_ms=delay_ms, until_ms=until_ms):
                return Await(position, kind, name, digest, delay_ms, until_ms, line=line)
            case EventCall(key=key, delay_ms=delay_ms):
                return Await(position, kind, name, digest, delay_ms, key=key, line=line)
            case RunCall(inputs=inputs):
                return Await(position, kind, name, digest, value=await self._sent(inputs), line=line)
            case ReceiveCall(names=names, delay_ms=delay_ms):
                return Await(position, kind, name, digest, delay_ms, line=line, names=names)
            case ApprovalCall(terms=terms, delay_ms=delay_ms) | FormCall(terms=terms, delay_ms=delay_ms):
                return Await(position, kind, name, digest, delay_ms, value=terms, line=line)
        raise AssertionError(f"nobody awaits {operation!r} of the server")

    async def _step_sent(self, entry: StepEntry) -> StepEntry:
        if isinstance(entry.value, bytes) and len(entry.value) > VALUE_BYTES_MAX:
            return msgspec.structs.replace(entry, value=await self._host.put(entry.value))
        return entry

    async def _sent(self, value: bytes) -> bytes | Ref:
        return await self._host.put(value) if len(value) > VALUE_BYTES_MAX else value

    def _new_versions(self) -> tuple[tuple[str, int], ...]:
        versions = tuple(self._driver.new_versions.items())
        self._driver.new_versions.clear()
        return versions
