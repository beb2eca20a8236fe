"""Reports of workers, translated into inputs for the machine.

A fact has one name in both, and two structs: the message also carries what only people read (start and end by the
worker's clock, exit code, progress), which is kept in memory and in rows but must not enter the journal. Texts and
values of workers are checked and cut here, before they are journalled.
"""

import re
from collections.abc import Sequence
from sys import intern
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value
from tickwork.core.definition.forms import check_form
from tickwork.core.definition.model import InputField
from tickwork.core.definition.problems import Problems
from tickwork.core.state import history
from tickwork.core.state import inputs as core
from tickwork.core.state import messages as core_messages
from tickwork.core.state.inputs import Input, Offer
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.core.state.state import Task
from tickwork.ports.store import Payload
from tickwork.protocol import worker_messages as messages
from tickwork.protocol.task_commands import COMMANDS_BYTES_MAX
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX, Call, Report
from tickwork.runtime.partition.write_behind import InFlightAttempt
from tickwork.runtime.storage.payloads import PayloadStore
from tickwork.runtime.storage.store_retry import retry_until_available

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import Partition

MESSAGE_CHARACTERS_MAX = 4_000
NAME_CHARACTERS_MAX = 255
DIGEST_CHARACTERS_MAX = 64
_DIGEST = re.compile(r"[0-9a-f]{64}")
BASES_MAX = 16  # of one error


class TranslatedCall(NamedTuple):
    """The inputs of a call, and the payloads committed with them."""

    inputs: list[Input]
    payloads: list[Payload]
    reports: Sequence[Report]  # those that became inputs, in their order
    first: int  # index of the first of these inputs
    plain: bool  # all of them are results without commands

    def report_of(self, index: int) -> Report | None:
        """The report that became this input; None: the input says something else."""
        return self.reports[index - self.first] if 0 <= index - self.first < len(self.reports) else None


class CommandReader(Protocol):
    """Translates the commands of a task's code. Raises `Refused`."""

    async def __call__(
        self, data: bytes, task: Task, attempt: int, payloads: list[Payload]
    ) -> tuple[core.TaskCommand, ...]: ...


class ReportTranslator:
    """Reads the write-behind of the partition at each call: a machine that is rebuilt has a new one."""

    def __init__(self, partition: "Partition", payload_store: PayloadStore, read_commands: CommandReader) -> None:
        self._partition = partition
        self._payload_store = payload_store
        self._read_commands = read_commands

    async def inputs_of(self, call: Call, offer: Offer | None) -> "TranslatedCall":
        worker, opened = call.worker, self._partition.write_behind.open
        # Before the reports: the machine must know a worker that takes an attempt.
        inputs: list[Input] = [offer] if offer is not None else []
        first, payloads, reports = len(inputs), list[Payload](), call.reports
        results = _small_results(opened, reports, worker)
        if results is not None:
            inputs.extend(results)
        else:
            reports = await self._translate(worker, reports, inputs, payloads)
        if call.goodbye or call.lost:
            inputs.append(core.WorkerLost(worker, clean=call.goodbye))
        return TranslatedCall(inputs, payloads, reports, first, plain=results is not None)

    async def _translate(
        self, worker: str, reports: Sequence[Report], inputs: list[Input], payloads: list[Payload]
    ) -> tuple[Report, ...]:
        """Append the inputs of these reports. Returns the reports that have one."""
        translated: list[Report] = []
        for report in reports:
            item = await self._input_of(worker, report, payloads)
            if item is not None:
                translated.append(report)
                inputs.append(item)
        return tuple(translated)

    async def _input_of(self, worker: str, report: Report, payloads: list[Payload]) -> Input | None:
        held = self._partition.write_behind.open.get(report.task)
        row = held.row if held is not None and held.row.attempt == report.attempt else None
        if row is not None and row.worker != worker:
            row = None
        # Named only where another worker holds the attempt: the machine compares, and the journal keeps it.
        sender = worker if row is None else ""
        match report:
            case messages.Succeeded():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                value = await self._value(report.value, payloads)
                if report.commands is None:
                    return core.Succeeded(report.task, report.attempt, value, sender)
                return await self._with_commands(report, value, sender, payloads)
            case messages.Failed():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                    row.exit_code = report.exit_code
                error, message = _line(report.error, 128) or "Error", _line(report.message, MESSAGE_CHARACTERS_MAX)
                bases = tuple(_line(base, 128) for base in report.bases[:BASES_MAX])
                return core.Failed(
                    report.task, report.attempt, error, message, report.permanent, sender, report.position, bases,
                    report.skip,
                )  # fmt: skip
            case messages.Started():
                if row is not None:
                    row.started_worker_ms = report.started_ms
                return core.Started(report.task, report.attempt, sender)
            case messages.Checkpointed():
                return core.Checkpointed(report.task, report.attempt, await self._value(report.value, payloads), sender)
            case messages.StepsRecorded():
                steps = await self._steps(report.steps, payloads)
                recorded = core.StepsRecorded(
                    report.task, report.attempt, steps, report.versions, sender,
                    await self._replies(report.replies, payloads), await self._published(report.published, payloads),
                )  # fmt: skip
                return (
                    recorded if report.commands is None else await self._steps_with_commands(recorded, report, payloads)
                )
            case messages.Suspended():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                return core.Suspended(
                    report.task,
                    report.attempt,
                    await self._steps(report.steps, payloads),
                    await self._awaits(report.awaits, payloads),
                    report.withdrawn,
                    report.together,
                    report.versions,
                    sender,
                    await self._replies(report.replies, payloads),
                    await self._published(report.published, payloads),
                )
            case messages.Continued():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                value = await self._value(report.value, payloads)
                return core.Continued(report.task, report.attempt, value, sender, report.withdrawn)
            case messages.HandedBack():
                holder = worker if is_broker_worker(worker) else sender
                return core.HandedBack(report.task, report.attempt, holder, report.begun)
            case messages.Taken():
                return core.Taken(report.task, report.attempt, worker)
            case messages.Progressed():
                if held is not None and row is not None:
                    held.progress, held.progress_message = (report.done, report.total), shortened(report.message, 500)
                return None

    async def _steps(
        self, steps: tuple[messages.StepEntry, ...], payloads: list[Payload]
    ) -> tuple[history.StepEntry, ...]:
        return tuple([await self._step(step, payloads) for step in steps])

    async def _step(self, step: messages.StepEntry, payloads: list[Payload]) -> history.StepEntry:
        return history.StepEntry(
            step.position,
            _line(step.name, NAME_CHARACTERS_MAX),
            _line(step.digest, DIGEST_CHARACTERS_MAX),
            await self._value(step.value, payloads),
            _line(step.error, NAME_CHARACTERS_MAX),
            _line(step.message, MESSAGE_CHARACTERS_MAX),
            step.at_ms,
            step.took_ms,
            step.tries,
            step.retry,
            step.cost,
        )

    async def _awaits(self, awaits: tuple[messages.Await, ...], payloads: list[Payload]) -> tuple[history.Await, ...]:
        return tuple([await self._await(request, payloads) for request in awaits])

    async def _await(self, request: messages.Await, payloads: list[Payload]) -> history.Await:
        terms = _approval_terms(request.value) if request.kind == "approval" else ApprovalTerms()
        return history.Await(
            request.position,
            intern(request.kind),
            _label(request.name),
            _line(request.digest, DIGEST_CHARACTERS_MAX),
            request.delay_ms,
            request.until_ms,
            _line(request.key, MESSAGE_CHARACTERS_MAX),
            await self._value(request.value, payloads) if request.kind == "call" else None,
            _line(terms.message, MESSAGE_CHARACTERS_MAX),
            terms.approvers,
            terms.four_eyes,
            _label(request.line),
            tuple(_line(name, NAME_CHARACTERS_MAX) for name in request.names),
            terms.fields,
        )

    async def _replies(
        self, replies: tuple[messages.UpdateReply, ...], payloads: list[Payload]
    ) -> tuple[core_messages.UpdateReply, ...]:
        return tuple(
            [
                core_messages.UpdateReply(
                    _line(reply.update, MESSAGE_CHARACTERS_MAX),
                    await self._value(reply.value, payloads),
                    reply.refused,
                    _line(reply.reason, MESSAGE_CHARACTERS_MAX),
                )
                for reply in replies
            ]
        )

    async def _published(
        self, published: tuple[messages.PublishedValue, ...], payloads: list[Payload]
    ) -> tuple[core_messages.PublishedValue, ...]:
        return tuple(
            [
                core_messages.PublishedValue(
                    _line(value.name, NAME_CHARACTERS_MAX),
                    _line(value.digest, DIGEST_CHARACTERS_MAX),
                    await self._value(value.value, payloads),
                )
                for value in published
            ]
        )

    async def _with_commands(
        self, report: messages.Succeeded, value: Value, sender: str, payloads: list[Payload]
    ) -> Input:
        """Handle a result with commands. If they can never be executed, the task has failed."""
        try:
            commands = await self._commands(report, payloads)
        except Refused as refused:
            message = _line(str(refused), MESSAGE_CHARACTERS_MAX)
            return core.Failed(report.task, report.attempt, refused.code, message, True, sender)
        return core.Succeeded(report.task, report.attempt, value, sender, commands)

    async def _steps_with_commands(
        self, recorded: core.StepsRecorded, report: messages.StepsRecorded, payloads: list[Payload]
    ) -> Input:
        """Handle steps with commands. If they can never be executed, the function fails: its attempt goes on only when
        its steps are recorded."""
        try:
            return msgspec.structs.replace(recorded, commands=await self._commands(report, payloads))
        except Refused as refused:
            reason = (refused.code, _line(refused.message, MESSAGE_CHARACTERS_MAX))
            return msgspec.structs.replace(recorded, refused=reason)

    async def _commands(
        self, report: messages.Succeeded | messages.StepsRecorded, payloads: list[Payload]
    ) -> tuple[core.TaskCommand, ...]:
        task = self._partition.machine.state.tasks.get(report.task)
        if task is None or report.commands is None:  # no caller waits for this report
            return ()
        count = len(payloads)
        try:
            return await self._read_commands(await self._bytes(report.commands), task, report.attempt, payloads)
        except Refused:
            del payloads[count:]
            raise

    async def _bytes(self, value: bytes | Ref) -> bytes:
        if isinstance(value, bytes):
            return value
        if value.size > COMMANDS_BYTES_MAX:
            raise Refused("commands_too_large", f"commands have at most {COMMANDS_BYTES_MAX} bytes", path="commands")
        checked = await self._value(value, [])
        return await retry_until_available(lambda: self._payload_store.bytes_of(checked))

    async def _value(self, value: bytes | Ref | None, payloads: list[Payload]) -> Value:
        if isinstance(value, Ref):
            if value.place != "artifact" or not _DIGEST.fullmatch(value.digest) or value.size < 0:
                raise Refused("bad_value", "a value elsewhere is an artifact, named by its digest", path="reports")
            return value
        if value is None:
            return None
        if len(value) <= VALUE_BYTES_MAX:
            return self._payload_store.take(value, payloads)
        return await self._payload_store.take_any(value, payloads)


class ApprovalTerms(msgspec.Struct, frozen=True):
    """What a function says about an approval that it awaits."""

    message: str = ""
    approvers: tuple[str, ...] = ()
    four_eyes: bool = False
    fields: tuple[tuple[str, InputField], ...] = ()


_decode_terms = msgspec.msgpack.Decoder(ApprovalTerms).decode


def _approval_terms(value: bytes | Ref | None) -> ApprovalTerms:
    if not isinstance(value, bytes):
        return ApprovalTerms()
    try:
        terms = _decode_terms(value)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("bad_await", f"the terms of an approval: {error}", path="reports") from None
    problems = Problems()
    check_form(dict(terms.fields), {}, "form", problems)
    for problem in problems.listed()[:1]:
        raise Refused("bad_await", f"{problem.path}: {problem.message}", path="reports")
    return terms


def _line(text: str, characters_max: int) -> str:
    """Text of a worker goes into the journal: make it valid Unicode of limited length."""
    return shortened(text, characters_max).encode("utf-8", "replace").decode()


def _label(text: str) -> str:
    """A name or a line of code, which thousands of suspended functions share."""
    return intern(_line(text, NAME_CHARACTERS_MAX))


def _small_results(
    opened: dict[int, InFlightAttempt], reports: Sequence[Report], worker: str
) -> list[core.Succeeded] | None:
    """The inputs of results that need no I/O, of attempts that this worker holds: nearly all are, so there is one loop
    without a call for each. None: one of them is something else."""
    kind, make, results = messages.Succeeded, core.Succeeded, list[core.Succeeded]()
    for report in reports:
        if type(report) is not kind or report.commands is not None:
            return None
        value, task, attempt = report.value, report.task, report.attempt
        if value is not None and (type(value) is not bytes or len(value) > INLINE_BYTES_MAX):
            return None
        held = opened.get(task)
        if held is None:
            return None
        row = held.row
        if row.attempt != attempt or row.worker != worker:
            return None
        row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
        results.append(make(task, attempt, value))
    return results
