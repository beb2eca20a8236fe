"""Converts an ended run to its row and back.

Fields that queries need are separate columns. The rest, which is needed only to restore a run, is packed into one
column; both together are the run's record.
"""

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.state.history import HistoryRecord, record_of_history
from tickwork.core.state.inputs import RunRecord, RunTerms
from tickwork.core.state.messages import RunMessages
from tickwork.core.state.state import Run
from tickwork.ports.store import RunRow


class EndedRunFields(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a row has no field for."""

    inputs: Value
    submitted: int  # tick, as `started`
    started: int
    priority: int
    phases: bytes
    results: tuple[tuple[int, Value], ...]
    body: str
    scheduled_ms: int
    queue: str
    backfill: int
    decided: str
    pin: str
    tried: int = 0
    history: HistoryRecord | None = None
    messages: RunMessages | None = None
    own: RunTerms | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(EndedRunFields).decode


def rest_of_run(run: Run) -> bytes:
    """A `EndedRunFields`, without the detour over one: every run ends once."""
    results = tuple(sorted(run.results.items(), key=_step_index)) if run.results else ()
    return _encode(
        (
            run.inputs, run.submitted, run.started, run.priority, run.phases, results, run.body, run.scheduled_ms,
            run.queue, run.backfill, run.decided, run.pin, run.tried,
            record_of_history(run.history) if run.history is not None else None, run.messages, run.own,
        )
    )  # fmt: skip


def _step_index(pair: tuple[int, Value]) -> int:
    return pair[0]


def rest_of(row: RunRow) -> EndedRunFields:
    return _decode(row.record)


def record_of(row: RunRow) -> RunRecord:
    rest = rest_of(row)
    return RunRecord(
        row.number,
        row.id,
        row.definition,
        row.state,
        rest.inputs,
        row.by,
        row.source,
        rest.submitted,
        rest.started,
        rest.priority,
        rest.phases,
        rest.results,
        row.key,
        rest.body,
        rest.scheduled_ms,
        row.schedule,
        rest.queue,
        rest.backfill,
        rest.decided,
        rest.pin,
        rest.tried,
        rest.history,
        rest.messages,
        rest.own,
    )
