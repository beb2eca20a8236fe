"""What a worker reports, as inputs for the machine.

What only people want to know (when it began and ended by the worker's own clock, its exit code, how far it is) stays
in the books. Whatever comes from outside is checked and cut here, before it gets into the journal.
"""

import re

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value
from tickwork.core.state.inputs import Checkpointed, Failed, HandedBack, Input, Started, Succeeded, WorkerLost
from tickwork.core.state.inputs import Taken as TakenInput
from tickwork.core.state.ready_queues import is_broker_worker
from tickwork.ports.store import Payload
from tickwork.protocol import worker_messages
from tickwork.protocol.worker_messages import VALUE_BYTES_MAX, Call, Progressed, Report, Taken
from tickwork.runtime.partition.partition import Partition
from tickwork.runtime.partition.write_behind import InFlightAttempt
from tickwork.runtime.storage.payloads import PayloadStore
from tickwork.runtime.workers.seat import WorkerSession, offer_of

MESSAGE_CHARACTERS_MAX = 4_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ReportTranslator:
    """Reads the books of the partition at each call: a machine that is rebuilt has new ones."""

    def __init__(self, partition: Partition, vault: PayloadStore) -> None:
        self._partition = partition
        self._vault = vault

    async def inputs_of(self, seat: WorkerSession, call: Call) -> tuple[list[Input], list[Payload], dict[int, Report]]:
        """What a call says, what is committed with it, and which input is which report."""
        inputs: list[Input] = []
        payloads: list[Payload] = []
        places: dict[int, Report] = {}
        if call.profile is not None:
            seat.profile = call.profile
        opened, offer = self._partition.books.open, offer_of(seat, call.credit)
        if offer != seat.offer and not (call.goodbye or call.lost):
            seat.offer = offer
            inputs.append(offer)  # before what it takes: the machine must know who asks
        for report in call.reports:
            # Nearly all are a result that needs nobody to be asked: no coroutine for them.
            asked = _small_result(opened, report, seat.worker) if type(report) is worker_messages.Succeeded else None
            if asked is None:
                asked = await self._input_of(seat, report, payloads)
            if asked is not None:
                places[len(inputs)] = report
                inputs.append(asked)
        if call.goodbye or call.lost:
            inputs.append(WorkerLost(seat.worker, clean=call.goodbye))
        return inputs, payloads, places

    async def _input_of(self, seat: WorkerSession, report: Report, payloads: list[Payload]) -> Input | None:
        held = self._partition.books.open.get(report.task)
        row = held.row if held is not None and held.row.attempt == report.attempt else None
        if row is not None and row.worker != seat.worker:
            row = None
        # Named only where it is another one than holds the attempt: the machine compares, and the journal keeps it.
        sender = seat.worker if row is None else ""
        match report:
            case worker_messages.Succeeded():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                return Succeeded(report.task, report.attempt, await self._value(report.value, payloads), sender)
            case worker_messages.Failed():
                if row is not None:
                    row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
                    row.exit_code = report.exit_code
                error, message = _line(report.error, 128) or "Error", _line(report.message, MESSAGE_CHARACTERS_MAX)
                return Failed(report.task, report.attempt, error, message, report.permanent, sender)
            case worker_messages.Started():
                if row is not None:
                    row.started_worker_ms = report.started_ms
                return Started(report.task, report.attempt, sender)
            case worker_messages.Checkpointed():
                return Checkpointed(report.task, report.attempt, await self._value(report.value, payloads), sender)
            case worker_messages.HandedBack():
                holder = seat.worker if is_broker_worker(seat.worker) else sender
                return HandedBack(report.task, report.attempt, holder, report.begun)
            case Taken():
                return TakenInput(report.task, report.attempt, seat.worker)
            case Progressed():
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
    """What a worker says goes into the journal: valid Unicode, and not too much of it."""
    return shortened(text, characters_max).encode("utf-8", "replace").decode()


def _small_result(opened: dict[int, InFlightAttempt], report: worker_messages.Succeeded, worker: str) -> Input | None:
    value = report.value
    if value is not None and (type(value) is not bytes or len(value) > INLINE_BYTES_MAX):
        return None
    task, attempt = report.task, report.attempt
    held = opened.get(task)
    row = held.row if held is not None else None
    if row is not None and row.attempt == attempt and row.worker == worker:
        row.started_worker_ms, row.ended_worker_ms = report.started_ms, report.ended_ms
        return Succeeded(task, attempt, value)
    return Succeeded(task, attempt, value, worker)
