"""Everything that only reads, on the reader's thread and connection.

What recovery builds on is checked against its checksum and against the journal before it is handed out:
a machine that goes on from a damaged row would seal the damage into the chain.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import apsw
import msgspec

from tickwork.core.base.errors import Corrupt
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import SealedRow
from tickwork.ports.store import (
    BackfillRow,
    CacheRow,
    ClusterIdentity,
    DefinitionRow,
    Head,
    InboxRow,
    IndexEntry,
    LoadedPartition,
    LogChunk,
    Route,
    RunFilter,
    RunPage,
    RunRow,
)
from tickwork.stores import checksums
from tickwork.stores.sqlite.archive import ArchiveReads
from tickwork.stores.sqlite.run_blocks import RunBlocks
from tickwork.stores.sqlite.statements import queries
from tickwork.stores.sqlite.writer.transactions import explained

T = TypeVar("T")
LIMIT_MAX = 2**63 - 1
NUMBER_BITS = 44  # of a number below its partition
_NO_PARTITION = Head(0)
_decode_range = msgspec.msgpack.Decoder(FateRange).decode


class Reader(ArchiveReads):
    """Each method sees one moment: several statements are inside one read transaction."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection
        self._sql = queries()
        self._run_blocks = RunBlocks(connection)

    def read(self, method: Callable[..., T], *args: Any) -> T:
        """Run a method of this class in a transaction, with its errors translated."""
        try:
            self.connection.execute("begin")
            try:
                return method(self, *args)
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("commit")
        except UnicodeDecodeError:
            raise Corrupt("a text in the database was damaged on disk: stop, and restore a backup") from None
        except apsw.Error as error:
            raise explained(error, system_errno=self.connection.system_errno) from error

    def _rows(self, name: str, *bindings: Any) -> list[Any]:
        return self.connection.execute(self._sql[name], bindings).fetchall()

    # ---- what all nodes share

    def identity(self) -> ClusterIdentity:
        *row, checksum = self._rows("read_founded")[0]
        return ClusterIdentity(*checksums.checked("founded", row, checksum))

    def routes(self) -> list[Route]:
        return [Route(*checksums.checked("routes", row, checksum)) for *row, checksum in self._rows("read_routes")]

    def inbox(self, partition: int, limit: int) -> list[InboxRow]:
        rows = []
        for *fields, checksum in self._rows("read_inbox", partition, max(limit, 0)):
            row = InboxRow(*fields)
            checksums.require(checksum == checksums.of_row(row), f"the inbox row {row.id}")
            rows.append(row)
        return rows

    # ---- the truth

    def head(self, partition: int) -> Head:
        return self._head(partition)[0]

    def _head(self, partition: int) -> tuple[Head, bytes]:
        rows = self._rows("read_head", partition)
        if not rows:
            return _NO_PARTITION, _NO_PARTITION.hash
        epoch, seq, tick, hash_, watermark, watermark_hash, checksum, owner = rows[0]
        known = checksums.of_epoch(partition, epoch, owner)
        checksums.require(checksum == known, f"the epoch of partition {partition}")
        return Head(epoch, seq, tick, hash_, watermark), watermark_hash

    def load(self, partition: int) -> LoadedPartition:
        head, watermark_hash = self._head(partition)
        settings, header = self._machine(partition)
        tail = self.journal(partition, head.watermark, LIMIT_MAX)
        self._vouch(partition, head, watermark_hash, tail)
        return LoadedPartition(
            head,
            settings,
            header,
            watermark_hash,
            self._documents(partition),
            self._live("read_live_runs", partition),
            self._live("read_live_tasks", partition),
            self._live("read_schedules", partition),
            tail,
        )

    def _machine(self, partition: int) -> tuple[bytes, bytes]:
        rows = self._rows("read_machine", partition)
        if not rows:
            return b"", b""
        settings, settings_checksum, header, header_checksum = rows[0]
        of = checksums.of_bytes
        checksums.require(settings_checksum == of(0, settings), f"the settings of partition {partition}")
        checksums.require(header_checksum == of(0, header), f"the header of partition {partition}")
        return settings, header

    def _vouch(self, partition: int, head: Head, watermark_hash: bytes, tail: list[SealedRow]) -> None:
        """The head is what the journal ends with, the tail reaches from the watermark to it."""
        rows = self._rows("read_last_row", partition)
        seq, tick, hash_, epoch = rows[0] if rows else (0, 0, Head(0).hash, 0)
        agrees = (seq, tick, hash_) == (head.seq, head.tick, head.hash) and epoch <= head.epoch
        checksums.require(agrees, f"the head of partition {partition}")
        whole = len(tail) == head.seq - head.watermark and (tail != [] or watermark_hash == head.hash)
        checksums.require(whole, f"the watermark of partition {partition}")

    def _live(self, name: str, partition: int) -> list[bytes]:
        of, live = checksums.of_bytes, []
        bounds = (partition << NUMBER_BITS, (partition + 1 << NUMBER_BITS) - 1)
        for number, data, checksum in self.connection.execute(self._sql[name], bounds):
            if of(number, data) != checksum:  # a message for each of millions would cost more than the check
                checksums.require(False, f"number {number} of {name.removeprefix('read_')}")
            live.append(data)
        return live

    def _documents(self, partition: int) -> list[tuple[str, bytes]]:
        documents: dict[str, bytes] = {}
        for digest, document, checksum, tenant, name, put_ms in self._rows("read_documents", partition):
            checksums.checked("definitions", (tenant, digest, partition, name, document, put_ms), checksum)
            documents[digest] = document
        return list(documents.items())

    def journal(self, partition: int, after: int, limit: int) -> list[SealedRow]:
        rows = [SealedRow(*row) for row in self._rows("read_journal", partition, after, limit)]
        if rows and (rows[0].seq != after + 1 or rows[-1].seq != after + len(rows)):
            raise Corrupt(f"the journal of partition {partition} has a gap after seq {after}: restore a backup")
        return rows

    def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        """Binary search from tick to tick; the seqs of a run's ticks are near each other."""
        [(first, last)] = self._rows("read_journal_ends", partition)
        seqs: dict[int, int] = {}
        if first is None:
            return seqs
        low, step = int(first), 1
        for tick in sorted(ticks):
            high = low
            while high < last and self._tick(partition, high) < tick:
                low, high, step = high + 1, min(high + step, last), step * 2
            while low < high:
                middle = (low + high) // 2
                if self._tick(partition, middle) < tick:
                    low = middle + 1
                else:
                    high = middle
            if self._tick(partition, low) == tick:
                seqs[tick] = low
            step = 1
        return seqs

    def _tick(self, partition: int, seq: int) -> int:
        [(tick,)] = self._rows("read_tick", partition, seq)
        return int(tick)

    def index(self, partition: int, kind: int, subjects: tuple[int, int], after: int, through: int) -> list[IndexEntry]:
        rows = self._rows("read_index", partition, kind, *subjects, after, through)
        return [_index_entry(row) for row in rows]

    def last_index(self, partition: int, kind: int, subject: int, through: int) -> IndexEntry | None:
        rows = self._rows("last_index", partition, kind, subject, through)
        return _index_entry(rows[0]) if rows else None

    def fates(self, tenant: str, schedule: str, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        rows = self._rows("read_fates", tenant, schedule, to_ms, from_ms, max(limit, 0))
        return [_decode_range(checksums.checked("fates", row, checksum)[-1]) for *row, checksum in rows]

    def backfills(self, tenant: str, limit: int) -> list[BackfillRow]:
        rows = self._rows("list_backfills", tenant, max(limit, 0))
        return [BackfillRow(*checksums.checked("backfills", row, checksum)) for *row, checksum in rows]

    def payloads(self, digests: Sequence[str]) -> dict[str, bytes]:
        payloads = {}
        for digest in digests:
            for data, checksum in self._rows("read_payload", digest):
                checksums.require(checksum == checksums.of_bytes(0, data), f"the payload {digest}")
                payloads[digest] = data
        return payloads

    # ---- what people ask for

    def find_runs(self, tenant: str, ids: Sequence[str], keys: Sequence[str]) -> list[RunRow]:
        return self._run_blocks.find(tenant, ids, keys)

    def list_runs(self, query: RunFilter) -> RunPage:
        return self._run_blocks.listed(query)

    def attempts(self, run: int) -> list[bytes]:
        rows = self._rows("read_attempts", run)
        for data, checksum in rows:
            checksums.require(checksum == checksums.of_bytes(run, data), f"an attempt of run {run}")
        last = [row.attempts for row in self._run_blocks.numbered([run]).values()]
        return [data for data, _ in rows] + [data for data in last if data]

    def children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        rows = self._rows("read_children", run, step)
        for child, value, checksum in rows:
            checksums.checked("children", (run, step, child, value), checksum)
        return [(child, value) for child, value, _ in rows]

    def cache(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        cached = {}
        for key in keys:
            for *fields, checksum in self._rows("read_cache", key):
                row = CacheRow(*fields)
                checksums.require(checksum == checksums.of_row(row), "a cached value")
                cached[key] = row
        return cached

    def definition(self, tenant: str, digest: str) -> DefinitionRow | None:
        for *fields, partition, checksum in self._rows("read_definition", tenant, digest):
            row = DefinitionRow(*fields)
            whole = (row.tenant, row.hash, partition, row.name, row.document, row.put_ms)
            checksums.checked("definitions", whole, checksum)
            return row
        return None

    def log_chunks(self, task: int, attempt: int, after: int) -> list[LogChunk]:
        rows = self._rows("read_log_chunks", task, attempt, after)
        return [LogChunk(*checksums.checked("log_chunks", row, checksum)) for *row, checksum in rows]


def _index_entry(row: Any) -> IndexEntry:
    *fields, checksum = row
    _, kind, subject, seq, data = checksums.checked("journal_index", tuple(fields), checksum)
    return IndexEntry(kind, subject, seq, data)
