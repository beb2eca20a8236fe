"""Attaches facts to inputs: what a decision needs to know about runs that have left memory, or are about to.

The lookup happens in the tick that decides, not before: with one writer, nothing can change in between. It reads first
what is not stored yet, then the store, in one batch.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tickwork.core.base.names import is_run_id
from tickwork.core.evolve import record_of_run
from tickwork.core.state.inputs import (
    Cancel,
    Decide,
    Delivered,
    DropDeadLetters,
    Input,
    KnownRun,
    Pause,
    Redrive,
    Resolve,
    Resume,
    RunRecord,
    StepsRecorded,
    Submit,
    SubmitOptions,
    Succeeded,
    Trigger,
)
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.store import RunRow
from tickwork.runtime.partition.input_queue import BatchSlice
from tickwork.runtime.partition.write_behind import WriteBehind
from tickwork.runtime.storage.run_records import record_of
from tickwork.runtime.storage.store_retry import retry_until_available

KEYED = (Submit, Trigger)  # inputs that start a run, and may have started it before


class EndedRunFinder(Protocol):
    """Reads ended runs: from a store, or from a store and its archives."""

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]: ...


class FactLookup:
    def __init__(self, runs: EndedRunFinder, write_behind: WriteBehind, partition: int) -> None:
        self._partition = partition
        self._runs = runs
        self._write_behind = write_behind

    def over(self, write_behind: WriteBehind) -> "FactLookup":
        """Return the same lookup with another write-behind buffer."""
        return FactLookup(self._runs, write_behind, self._partition)

    async def attach(self, parts: list[BatchSlice]) -> list[Input]:
        """Return the inputs of these parts, with the facts that they need."""
        inputs: list[Input] = []
        positions: list[int] = []
        for part in parts:
            if part.batch.facts:
                positions.extend(range(len(inputs), len(inputs) + part.count))
            inputs += part.batch.inputs[part.start : part.start + part.count]
        if positions:
            await retry_until_available(lambda: self._look_up(inputs, positions))
        return inputs

    async def _look_up(self, inputs: list[Input], positions: list[int]) -> None:
        lookups: list[tuple[int, int, str, str, str]] = []
        requests = [(position, *pair) for position in positions for pair in _requests(inputs[position])]
        keyed = {(position, command): type(request) in KEYED for position, command, request in requests}
        for position, command, request in requests:
            tenant, run_id, key = _wants(request)
            if run_id and not is_run_id(run_id):
                run_id = ""  # no run has it: the machine refuses it, and no store has to understand it
            live = self._live(tenant, run_id, key) if keyed[position, command] else None
            if live is None:
                lookups.append((position, command, tenant, run_id, key))
            else:
                inputs[position] = _with_fact_in(inputs[position], command, live)
        records = await self._find([(tenant, run_id, key) for *_, tenant, run_id, key in lookups])
        for (position, command, *_), record in zip(lookups, records, strict=True):
            # A run of another partition is none of ours to change; but its id and key are taken.
            own = record is not None and record.number >> NUMBER_BITS == self._partition
            if record is not None and (own or keyed[position, command]):
                inputs[position] = _with_fact_in(inputs[position], command, record)

    async def _find(self, lookups: Sequence[tuple[str, str, str]]) -> list[RunRecord | None]:
        records = [self._not_stored_yet(*lookup) for lookup in lookups]
        missing: dict[str, tuple[list[str], list[str]]] = {}
        for (tenant, run_id, key), record in zip(lookups, records, strict=True):
            if record is None and tenant:
                ids, keys = missing.setdefault(tenant, ([], []))
                if run_id:
                    ids.append(run_id)
                if key:
                    keys.append(key)
        for tenant, (ids, keys) in missing.items():
            rows = await self._runs.find_runs(tenant, ids=ids, keys=keys)
            by_id = {row.id: row for row in rows}
            by_key = {row.key: row for row in rows if row.key}
            for index, (owner, run_id, key) in enumerate(lookups):
                row = by_id.get(run_id) or (by_key.get(key) if key else None)
                if records[index] is None and owner == tenant and row is not None:
                    records[index] = record_of(row)
        return records

    def _live(self, tenant: str, run_id: str, key: str) -> RunRecord | None:
        """Include runs in memory: one may end in the same tick that requests it again."""
        known = self._write_behind.state.tenants.get(tenant)
        if known is None:
            return None
        run = known.runs.get(run_id) or (known.keys.get(key) if key else None)
        return None if run is None else record_of_run(run)

    def _not_stored_yet(self, tenant: str, run_id: str, key: str) -> RunRecord | None:
        row = self._write_behind.find_left(tenant, run_id) if run_id else None
        if row is None and key:
            row = self._write_behind.find_left_key(tenant, key)
        return None if row is None else record_of(row)


def _requests(item: Input) -> list[tuple[int, Input]]:
    """What of an input may need a fact: the commands of a result each for itself, by their index; -1: all of it."""
    if isinstance(item, Succeeded | StepsRecorded):
        commands = enumerate(command.request for command in item.commands)
        return [(index, request) for index, request in commands if isinstance(request, Submit) and request.terms]
    if isinstance(item, Redrive | DropDeadLetters):  # each record as it stands in the tick that decides
        records = enumerate(item.records)
        return [(index, Resolve(item.by, item.tenant, record.run_id, item.reason)) for index, record in records]
    return [(-1, item.request if isinstance(item, Delivered) else item)]


def _with_fact_in(item: Input, command: int, record: RunRecord) -> Input:
    if isinstance(item, Succeeded | StepsRecorded):
        commands = list(item.commands)
        request = _with_fact(commands[command].request, record)
        commands[command] = msgspec.structs.replace(commands[command], request=request)
        return msgspec.structs.replace(item, commands=tuple(commands))
    if isinstance(item, Redrive | DropDeadLetters):
        records = list(item.records)
        records[command] = record
        return msgspec.structs.replace(item, records=records)
    if isinstance(item, Delivered):
        return msgspec.structs.replace(item, request=_with_fact(item.request, record))
    return _with_fact(item, record)


def _wants(request: Input) -> tuple[str, str, str]:
    """Return the tenant, run id and key to look up; empty where there is nothing to look up."""
    match request:
        case Submit():
            return request.tenant, request.run_id, request.terms.key if request.terms is not None else ""
        case Trigger():
            return request.tenant, "", request.key
        case Cancel() | Resolve() | Decide():
            return request.tenant, request.run_id, ""
        case Pause() | Resume():
            return request.tenant, request.name if request.scope == "run" else "", ""
        case _:
            return "", "", ""


def _with_fact(request: Input, record: RunRecord) -> Input:
    match request:
        case Submit():
            known = KnownRun(record.run_id, record.body, record.submitted)
            return msgspec.structs.replace(
                request,
                terms=msgspec.structs.replace(request.terms, known=known)
                if request.terms
                else SubmitOptions(known=known),
            )
        case Trigger():
            return msgspec.structs.replace(request, known=KnownRun(record.run_id, record.body, record.submitted))
        case Cancel() | Pause() | Resume() | Decide():
            return msgspec.structs.replace(request, left_as=record.state)
        case Resolve():
            return msgspec.structs.replace(request, record=record)
        case _:
            return request
