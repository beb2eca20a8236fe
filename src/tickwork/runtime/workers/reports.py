"""Reports of workers, translated into inputs for the machine.

A fact has one name in both, and two structs: the message also carries what only people read (start and end by the
worker's clock, exit code, progress), which is kept in memory and in rows but must not enter the journal. Texts and
values of workers are checked and cut here, before they are journalled.
"""

import re

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value
from tickwork.core.state import inputs as core
from tickwork.core.state.inputs import Input, Offer
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.ports.store import Payload
from tickwork.protocol import worker_messages as messages
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX, Call, Report
from tickwork.runtime.partition.partition import Partition
from tickwork.runtime.partition.write_behind import InFlightAttempt
from tickwork.runtime.storage.payloads import PayloadStore

MESSAGE_CHARACTERS_MAX = 4_000
_DIGEST = re.compile(r"[0-9a-f]{64}")
_Succeeded = core.Succeeded  # looked up once for each task


class ReportTranslator:
    """Reads the books of the partition at each call: a machine that is rebuilt has new ones."""

    def __init__(self, partition: Partition, vault: PayloadStore) -> None:
        self._partition = partition
        self._vault = vault

    async def inputs_of(self, call: Call, offer: Offer | None) -> tuple[list[Input], list[Payload], dict[int, Report]]:
        """Return the inputs of a call, the payloads committed with them, and the report of each input by its index."""
        worker, opened, succeeded = call.worker, self._partition.books.open, messages.Succeeded
        # Before the reports: the machine must know a worker that takes an attempt.
        inputs: list[Input] = [offer] if offer is not None else []
        payloads: list[Payload] = []
        reports: dict[int, Report] = {}
        for report in call.reports:
            # Nearly all are a result that needs no I/O: no coroutine for them.
            translated = _small_result(opened, report, worker) if type(report) is succeeded else None
            if translated is None:
                translated = await self._input_of(worker, report, payloads)
            if translated is not None:
                reports[len(inputs)] = report
                inputs.append(translated)
        if call.goodbye or call.lost:
            inputs.append(core.WorkerLost(worker, clean=call.goodbye))
        return inputs, payloads, reports

    async def _input_of(self, worker: str, report: Report, payloads: list[Payload]) -> Input | None:
        held = self._partition.books.open.get(report.task)
        row = held.row if held is not None and held.row.attempt == report.attempt else None
        if row is not None and row.worker != worker:
            row = None
        # Named only where another worker holds the attempt: the machine compares, and the journal keeps it.
        sender = worker if row is None else ""
        match report:
            case messages.Succeeded():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                return core.Succeeded(report.task, report.attempt, await self._value(report.value, payloads), sender)
            case messages.Failed():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                    row.exit_code = report.exit_code
                error, message = _line(report.error, 128) or "Error", _line(report.message, MESSAGE_CHARACTERS_MAX)
                return core.Failed(report.task, report.attempt, error, message, report.permanent, sender)
            case messages.Started():
                if row is not None:
                    row.started_worker_ms = report.started_ms
                return core.Started(report.task, report.attempt, sender)
            case messages.Checkpointed():
                return core.Checkpointed(report.task, report.attempt, await self._value(report.value, payloads), sender)
            case messages.HandedBack():
                holder = worker if is_broker_worker(worker) else sender
                return core.HandedBack(report.task, report.attempt, holder, report.begun)
            case messages.Taken():
                return core.Taken(report.task, report.attempt, worker)
            case messages.Progressed():
                if held is not None and row is not None:
                    held.progress, held.progress_message = (report.done, report.total), shortened(report.message, 500)
                return None

    async def _value(self, value: bytes | Ref | None, payloads: list[Payload]) -> Value:
        if isinstance(value, Ref):
            if value.place != "artifact" or not _DIGEST.fullmatch(value.digest) or value.size < 0:
                raise Refused("bad_value", "a value elsewhere is an artifact, named by its digest", path="reports")
            return value
        if value is None:
            return None
        if len(value) <= VALUE_BYTES_MAX:
            return self._vault.take(value, payloads)
        return await self._vault.take_any(value, payloads)


def _line(text: str, characters_max: int) -> str:
    """Text of a worker goes into the journal: make it valid Unicode of limited length."""
    return shortened(text, characters_max).encode("utf-8", "replace").decode()


def _small_result(opened: dict[int, InFlightAttempt], report: messages.Succeeded, worker: str) -> Input | None:
    value = report.value
    if value is not None and (type(value) is not bytes or len(value) > INLINE_BYTES_MAX):
        return None
    task, attempt = report.task, report.attempt
    held = opened.get(task)
    row = held.row if held is not None else None
    if row is not None and row.attempt == attempt and row.worker == worker:
        row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
        return _Succeeded(task, attempt, value)
    return _Succeeded(task, attempt, value, worker)
