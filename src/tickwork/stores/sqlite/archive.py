"""Keeping less: what the writer and the reader do about archives and old logs."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

import apsw
from msgspec.structs import astuple

from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.store import ChildRow, LogChunk, RunRow
from tickwork.ports.store_maintenance import JOURNAL, ArchivedRun, ArchiveObject, LogAddress
from tickwork.stores import checksums
from tickwork.stores.fencing import journal_needed, not_the_owner
from tickwork.stores.sqlite.run_blocks import RunBlocks

T = TypeVar("T")


class ArchiveWrites:
    """The writer's share; each method is one transaction."""

    connection: apsw.Connection
    _sql: dict[str, str]
    _run_blocks: RunBlocks
    _transaction: Callable[[Callable[[], Any]], Any]
    hit: Callable[[str], None]
    _execute_one: Callable[..., int]
    _many: Callable[[str, Iterable[tuple[Any, ...]]], None]

    def move_runs(self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], epoch: int) -> None:
        self._transaction(lambda: self._move_runs(partition, archive, runs, epoch))

    def _move_runs(self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], epoch: int) -> None:
        self._watermark(partition, epoch)
        self._put_archive(archive)
        self.hit("after_archive")
        ends = {run.number: run.ended_ms for run in runs}
        # Only as it was read: one that was brought back and ended again is another.
        taken = self._run_blocks.take_out(ends, lambda row: ends.get(row.number) == row.ended_ms)
        gone = {row.number for row in taken}
        for run in runs:
            if run.number not in gone:
                continue
            row = (run.tenant, run.id, run.number, run.object)
            self._execute_one("put_archived", *row, checksums.of_fields(*row))
            self._execute_one("drop_attempts", run.number)
            self._execute_one("drop_children", run.number, run.number + run.steps)
        self.hit("after_moved")

    def drop_journal(self, partition: int, archive: ArchiveObject, epoch: int) -> None:
        self._transaction(lambda: self._drop_journal(partition, archive, epoch))

    def _drop_journal(self, partition: int, archive: ArchiveObject, epoch: int) -> None:
        watermark = self._watermark(partition, epoch)
        if archive.last >= watermark:
            raise journal_needed(partition, watermark=watermark)
        self._put_archive(archive)
        self.hit("after_archive")
        self._execute_one("drop_journal", partition, archive.last)
        self.hit("after_moved")

    def _watermark(self, partition: int, epoch: int) -> int:
        row = self.connection.execute(self._sql["read_owner"], (partition, epoch)).fetchone()
        if row is None:
            raise not_the_owner(partition, epoch)
        return int(row[0])

    def _put_archive(self, archive: ArchiveObject) -> None:
        self._execute_one("put_archive", *astuple(archive), checksums.of_row(archive))

    def drop_archive(self, object_: str) -> None:
        def work() -> None:
            for kind, partition, last in self.connection.execute(self._sql["read_archive"], (object_,)).fetchall():
                if kind == JOURNAL:
                    self._execute_one("drop_index", partition, last)
            self._execute_one("drop_archived", object_)
            self._execute_one("drop_archive", object_)

        self._transaction(work)

    def drop_log_chunks(self, places: Sequence[LogAddress], archive: ArchiveObject | None = None) -> None:
        def work() -> None:
            if archive is not None:
                self._put_archive(archive)
            self._many("drop_log_chunk", [tuple(index) for index in places])

        self._transaction(work)

    def renew_payloads(self, digests: Sequence[str]) -> list[str]:
        def work() -> list[str]:
            self._many("renew_payload", [(digest,) for digest in digests])
            has = self._sql["has_payload"]
            return [digest for digest in digests if self.connection.execute(has, (digest,)).fetchone()]

        renewed: list[str] = self._transaction(work)
        return renewed

    def drop_payloads(self, before: int, limit: int) -> int:
        count: int = self._transaction(lambda: self._execute_one("drop_payloads", before, max(limit, 0)))
        return count

    def note_renewal(self, partition: int, epoch: int) -> None:
        def work() -> None:
            self._watermark(partition, epoch)
            self._execute_one("note_renewal", partition)
            [(day,)] = self.connection.execute(self._sql["read_renewal"], (partition,)).fetchall()
            self._execute_one("sign_renewal", checksums.of_fields(partition, day), partition)

        self._transaction(work)


class ArchiveReads:
    """The reader's share."""

    _rows: Callable[..., list[Any]]
    _run_blocks: RunBlocks

    def runs_after(self, partition: int, number: int, limit: int) -> list[RunRow]:
        first, last = _span(partition)
        return list(islice(self._run_blocks.walk(max(number + 1, first), last), max(limit, 0)))

    def children_between(self, first: int, last: int) -> list[ChildRow]:
        rows = []
        for run, step, child, value, checksum in self._rows("children_between", first, last):
            checksums.checked("children", (run, step, child, value), checksum)
            rows.append(ChildRow(run, step, child, value))
        return rows

    def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        rows = self._rows("attempts_between", first, last)
        for run, data, checksum in rows:
            checksums.require(checksum == checksums.of_bytes(run, data), f"an attempt of run {run}")
        return [(run, data) for run, data, _ in rows]

    def journal_cut(self, partition: int) -> int:
        return int(self._rows("read_journal_cut", partition)[0][0])

    def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        rows = [row for run_id in ids for row in self._rows("read_archived", tenant, run_id)]
        return [ArchivedRun(*checksums.checked("archived", row, checksum)) for *row, checksum in rows]

    def journal_archive(self, partition: int, seq: int) -> ArchiveObject | None:
        archives = [checked_archive(row) for row in self._rows("read_journal_archive", partition, seq)]
        return archives[0] if archives and archives[0].first <= seq else None

    def journal_archive_at(self, partition: int, tick: int) -> ArchiveObject | None:
        archives = [checked_archive(row) for row in self._rows("read_journal_archive_at", partition, tick)]
        return archives[0] if archives else None

    def archives_over(self, partition: int, kind: str, number: int) -> list[ArchiveObject]:
        return [checked_archive(row) for row in self._rows("read_archives_over", partition, kind, number, number)]

    def old_archives(self, before_ms: int, limit: int) -> list[ArchiveObject]:
        return [checked_archive(row) for row in self._rows("read_old_archives", before_ms, max(limit, 0))]

    def log_chunks_after(self, partition: int, after: LogAddress, limit: int) -> list[LogChunk]:
        first, last = _span(partition)
        start = max(tuple(after), (first - 1, 0, 0))
        rows = self._rows("log_chunks_after", *start, last, max(limit, 0))
        return [LogChunk(*checksums.checked("log_chunks", row, checksum)) for *row, checksum in rows]

    def named_logs(self, digests: Sequence[str], since_ms: int) -> frozenset[str]:
        return frozenset(digest for digest in digests if self._rows("read_named_log", digest, since_ms))

    def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        return frozenset(digest for digest in digests if self._rows("read_named_object", digest))

    def renewals(self) -> dict[int, int]:
        days = {}
        for partition, day, checksum in self._rows("read_renewals"):
            known = checksums.of_fields(partition, day) if day else 0
            checksums.require(checksum == known, f"the renewal of partition {partition}")
            days[partition] = day
        return days


def _span(partition: int) -> tuple[int, int]:
    return partition << NUMBER_BITS, (partition + 1 << NUMBER_BITS) - 1


def checked_archive(record: tuple[Any, ...]) -> ArchiveObject:
    row = ArchiveObject(*record[:-1])
    checksums.require(record[-1] == checksums.of_row(row), f"the archive {row.object}")
    return row
