"""Jobs for the writer process and their results: frames over a socket, four bytes of length and then MessagePack."""

import struct
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt, TickworkError, Unavailable
from tickwork.journal.record import SealedRow
from tickwork.ports.store import (
    Fenced,
    Head,
    InboxRow,
    LogChunk,
    OutcomeUnknown,
    Payload,
    Route,
    Rows,
    StoreFull,
    StoreInUse,
    StoreUnusable,
    SyncFailed,
)
from tickwork.ports.store_maintenance import ArchivedRun, ArchiveObject, LogAddress

SIZE = struct.Struct("<I")


class _Job(msgspec.Struct, array_like=True, tag=True):
    pass


class Open(_Job):
    pass


class Reopen(_Job):
    pass


class Close(_Job):
    whole: bool


class EstablishIdentity(_Job):
    cluster: str
    partitions: int


class PutRoute(_Job):
    route: Route
    over: Route | None


class AddInbox(_Job):
    rows: list[InboxRow]


class DropInbox(_Job):
    partition: int
    ids: list[str]


class Claim(_Job):
    partition: int
    owner: str
    settings: bytes


class Commit(_Job):
    partition: int
    row: SealedRow
    payloads: list[Payload]
    epoch: int


class WriteRows(_Job):
    partition: int
    rows: Rows
    epoch: int
    through: int
    head: bytes


class AddLogChunks(_Job):
    chunks: list[LogChunk]


class MoveRuns(_Job):
    partition: int
    archive: ArchiveObject
    runs: list[ArchivedRun]
    epoch: int


class DropJournal(_Job):
    partition: int
    archive: ArchiveObject
    epoch: int


class DropArchive(_Job):
    object_: str


class DropLogChunks(_Job):
    places: list[LogAddress]
    archive: ArchiveObject | None = None


class RenewPayloads(_Job):
    digests: list[str]


class DropPayloads(_Job):
    before: int
    limit: int


class NoteRenewal(_Job):
    partition: int
    epoch: int


Job = (
    Open | Reopen | Close | EstablishIdentity | PutRoute | AddInbox | DropInbox | Claim | Commit | WriteRows
    | AddLogChunks
    | MoveRuns | DropJournal | DropArchive | DropLogChunks | RenewPayloads | DropPayloads | NoteRenewal
)  # fmt: skip
WRITES: dict[str, type[Any]] = {
    "establish_identity": EstablishIdentity,
    "put_route": PutRoute,
    "add_inbox": AddInbox,
    "drop_inbox": DropInbox,
    "claim": Claim,
    "commit": Commit,
    "write_rows": WriteRows,
    "add_log_chunks": AddLogChunks,
    "move_runs": MoveRuns,
    "drop_journal": DropJournal,
    "drop_archive": DropArchive,
    "drop_log_chunks": DropLogChunks,
    "renew_payloads": RenewPayloads,
    "drop_payloads": DropPayloads,
    "note_renewal": NoteRenewal,
}


class JobResult(msgspec.Struct, array_like=True):
    """`error` is the name of its class; any other error becomes `Unavailable`."""

    result: Head | list[str] | bool | int | None = None
    error: str = ""
    message: str = ""
    retry_after_ms: int = 0


ERRORS: dict[str, type[TickworkError]] = {
    kind.__name__: kind
    for kind in (Corrupt, Fenced, OutcomeUnknown, StoreFull, StoreInUse, StoreUnusable, SyncFailed, Unavailable)
}
encoder = msgspec.msgpack.Encoder()
job_decoder: msgspec.msgpack.Decoder[Job] = msgspec.msgpack.Decoder(Job)
answer_decoder = msgspec.msgpack.Decoder(JobResult)


def framed(message: Any) -> bytes:
    data = encoder.encode(message)
    return SIZE.pack(len(data)) + data


def error_of(result: JobResult) -> TickworkError:
    kind = ERRORS.get(result.error, Unavailable)
    if issubclass(kind, Unavailable):
        return kind(result.message, retry_after_ms=result.retry_after_ms)
    return kind(result.message)
