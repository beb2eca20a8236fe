"""What a store promises beside its daily work: to keep less, and to be taken elsewhere.

Keeping less: what ended long ago leaves for an archive, which is objects in the artifact store and an index here. The
object is written first, then one transaction names it and takes the rows away; so a crash in between loses nothing,
and doing it again does no harm. Fates of occurrences are never taken away: they outlive runs.

Taking it elsewhere: everything, as of one moment, as plain rows of named tables, and the same into an empty store.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tickwork.core.base.errors import Refused

if TYPE_CHECKING:
    from tickwork.ports.store import ChildRow, LogChunk, RunRow

RUNS, JOURNAL, LOGS = "runs", "journal", "logs"  # kinds of archives
KEPT_KINDS = (1, 2, 3)  # kinds of index entries that say how something is until a later one says otherwise


class StoreNotEmpty(Refused):
    """There is something in the store that would be mixed with what comes."""

    def __init__(self, where: str) -> None:
        super().__init__("not_empty", f"{where} is not empty: name an empty folder or schema")


class ArchiveObject(msgspec.Struct, frozen=True, gc=False):
    """An object in the artifact store, and what is in it."""

    object: str  # its digest
    kind: str
    partition: int
    first: int  # number of the first run or task, or seq of the first row
    last: int
    rows: int
    size: int
    before: bytes  # hash of the row before the first; empty for runs
    hash: bytes  # of the last row; empty for runs
    tick: int  # of the last row
    from_ms: int
    to_ms: int  # when the latest in it ended, was decided, or became old
    written_ms: int


class ArchivedRun(msgspec.Struct, frozen=True, gc=False):
    tenant: str
    id: str
    number: int
    object: str
    ended_ms: int = 0  # as it was read; not kept in the index
    steps: int = 1  # numbers from its own on under which it may have children


class TableBatch(msgspec.Struct, frozen=True):
    """Rows of one table, each with the columns that `COLUMNS` names."""

    table: str
    rows: list[tuple[Any, ...]]


COLUMNS: "MappingProxyType[str, tuple[str, ...]]" = MappingProxyType({
    "founded": ("cluster", "partitions"),
    "routes": ("tenant", "home", "spread"),
    "partitions": (
        "id", "epoch", "owner", "seq", "tick", "hash", "watermark", "watermark_hash", "settings", "header",
        "cut_seq", "cut_tick", "cut_hash",  # up to here the journal was taken away
    ),
    "journal": ("partition_id", "seq", "epoch", "tick", "hash", "data"),
    "payloads": ("digest", "data"),
    "live_runs": ("number", "data"),
    "live_tasks": ("number", "data"),
    "schedules": ("number", "data"),
    "definitions": ("tenant", "hash", "partition_id", "name", "document", "put_ms"),
    "runs": (
        "number", "id", "tenant", "workflow", "definition", "state", "source", "by", "submitted_ms", "started_ms",
        "ended_ms", "key", "error", "schedule", "record", "output", "attempts", "tags", "fields", "version",
    ),
    "attempts": ("run", "data"),
    "children": ("run", "step", "child", "value"),
    "cache": ("key", "value", "kept_ms"),
    "fates": ("tenant", "schedule", "from_ms", "number", "backfill", "to_ms", "data"),
    "backfills": ("number", "tenant", "schedule", "data"),
    "log_chunks": ("task", "attempt", "chunk", "first", "lines", "size", "digest", "written_ms"),
    "archives": (
        "object", "kind", "partition_id", "first", "last", "rows", "size", "before", "hash", "tick", "from_ms",
        "to_ms", "written_ms",
    ),
    "archived": ("tenant", "id", "number", "object"),
    "inbox": ("partition_id", "id", "tenant", "data", "by"),
    "journal_index": ("partition_id", "kind", "subject", "seq", "data"),
})  # fmt: skip

Take = Callable[[TableBatch], Awaitable[None]]
LogAddress = tuple[int, int, int]  # task, attempt, chunk


class StoreMaintenance(Protocol):
    # ---- keeping less

    async def runs_after(self, partition: int, *, number: int, limit: int) -> "list[RunRow]":
        """Ended runs of a partition by number, those above `number` first."""

    async def children_between(self, first: int, last: int) -> "list[ChildRow]":
        """What is kept of children under these numbers."""

    async def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """What `Rows.attempts` held of runs with these numbers, by run, oldest first; not what their own rows hold."""

    async def move_runs(
        self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], *, epoch: int
    ) -> None:
        """The archive is known, and those of the runs that are still as they were read (by their end) are in it and
        no longer here, nor are their attempts and children. Raises `Fenced`."""

    async def drop_journal(self, partition: int, archive: ArchiveObject, *, epoch: int) -> None:
        """The archive is known, and the journal through its last row is no longer here. Raises `Fenced` also where
        that is not below the watermark: recovery needs the rest."""

    async def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        """Where runs of these ids are, in any order."""

    async def journal_cut(self, partition: int) -> int:
        """The seq behind which the journal begins here; 0 where nothing was taken away."""

    async def journal_archive(self, partition: int, *, seq: int) -> ArchiveObject | None:
        """The one that holds this row."""

    async def journal_archive_at(self, partition: int, *, tick: int) -> ArchiveObject | None:
        """The piece of the journal that holds the row of this tick, where there is such a row."""

    async def old_archives(self, *, before_ms: int, limit: int) -> list[ArchiveObject]:
        """Those in which everything is older, oldest first."""

    async def drop_archive(self, object_: str) -> None:
        """It is forgotten, with the runs in it. With a piece of the journal go the index entries through its last row;
        the latest of each subject of the kinds in `KEPT_KINDS` stays. Repeating it changes nothing."""

    async def log_chunks_after(self, partition: int, *, after: LogAddress, limit: int) -> "list[LogChunk]":
        """Log chunks of a partition's tasks beyond an address, in the order of their addresses."""

    async def named_logs(self, digests: Sequence[str], *, since_ms: int) -> frozenset[str]:
        """Those of the digests that a piece written since then names."""

    async def drop_log_chunks(self, places: Sequence[LogAddress], *, archive: ArchiveObject | None = None) -> None:
        """They are no longer here; where there is an archive, it is known, and they are in it."""

    async def archives_over(self, partition: int, *, kind: str, number: int) -> list[ArchiveObject]:
        """Those of a kind that may hold this number, of a run or a task, oldest first."""

    # Days are counted from 1970 on, by the store's own clock.

    async def renew_payloads(self, digests: Sequence[str]) -> frozenset[str]:
        """These are needed today, as are those that are committed today. Which of them are here."""

    async def drop_payloads(self, *, before: int, limit: int) -> int:
        """How many are gone, at most so many: those last needed before this day. What an archive or a piece of a log
        names stays."""

    async def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        """Those of the digests that an archive or a piece of a log names."""

    async def note_renewal(self, partition: int, *, epoch: int) -> None:
        """Everything that the partition names is needed today, and was renewed. Raises `Fenced`."""

    async def renewals(self) -> dict[int, int]:
        """The day of the last `note_renewal` of each partition that was ever claimed; 0: none."""

    # ---- taking it elsewhere

    async def export(self, take: Take) -> None:
        """Everything, as of one moment, in portions. Whatever has a checksum is checked on the way."""

    async def bring_in(self, batches: AsyncIterator[TableBatch]) -> None:
        """All of them or none. Raises `StoreNotEmpty`."""
