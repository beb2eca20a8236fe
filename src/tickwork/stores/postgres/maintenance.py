"""The part of the port that keeps less, and that takes everything elsewhere.

Both ways elsewhere are one transaction: of a snapshot while it is read, and all or nothing where it is written.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import astuple

from tickwork.core.base.errors import TickworkError
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.store import ChildRow, LogChunk, RunRow, run_row
from tickwork.ports.store_maintenance import (
    COLUMNS,
    ArchivedRun,
    ArchiveObject,
    LogAddress,
    StoreNotEmpty,
    TableBatch,
    Take,
)
from tickwork.stores.checksums import SUMS, of_bytes, of_epoch, of_fields, of_row, require
from tickwork.stores.fencing import journal_needed, not_the_owner
from tickwork.stores.postgres import run_blocks
from tickwork.stores.postgres.connections import Address, PostgresConnection, Transaction
from tickwork.stores.postgres.rows import checked
from tickwork.stores.run_blocks import PendingRuns

if TYPE_CHECKING:
    from tickwork.stores.postgres.store import _Connections

ROWS = 500  # of a batch
PATIENCE_S = 3_600.0  # for what moves everything
_WHOLE = """
select p.id, p.epoch, p.owner, coalesce(j.seq, p.seq), coalesce(j.tick, p.tick), coalesce(j.hash, p.hash), w.watermark,
       w.hash, m.settings, m.header, p.seq, p.tick, p.hash,
       p.checksum, m.settings_checksum, m.header_checksum, w.epoch
  from partitions p
  join watermarks w on w.partition_id = p.id
  join machines m on m.partition_id = p.id
  left join lateral (select seq, tick, hash from journal
                      where partition_id = p.id and seq > p.seq order by seq desc limit 1) j on true
 order by p.id
"""
_ORDER = {"attempts": "place", "archives": "object", "children": "1, 2, 3", "log_chunks": "1, 2, 3",
          "fates": "1, 2, 3, 4, 5", "journal_index": "1, 2, 3, 4"}  # fmt: skip


class PostgresMaintenance:
    address: Address

    @property
    def _at(self) -> "_Connections":
        raise NotImplementedError

    # ---- keeping less

    async def runs_after(self, partition: int, *, number: int, limit: int) -> list[RunRow]:
        first, last = _span(partition)
        rows: list[RunRow] = []
        async for row in run_blocks.walk(self._at.readers.fetch, max(number + 1, first), last):
            if len(rows) >= limit:
                break
            rows.append(row)
        return rows

    async def children_between(self, first: int, last: int) -> list[ChildRow]:
        return [
            ChildRow(*checked("children", row)) for row in await self._at.readers.fetch("children_between", first, last)
        ]

    async def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        rows = [checked("attempts", row) for row in await self._at.readers.fetch("attempts_between", first, last)]
        return [(run, data) for run, data in rows]

    async def move_runs(
        self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], *, epoch: int
    ) -> None:
        ends = {run.number: run.ended_ms for run in runs}

        async def work(talk: Transaction) -> None:
            await _watermark(talk, partition, epoch)
            await talk.fetch("put_archive", *astuple(archive), of_row(archive))
            # Only as they were read: one that was brought back and ended again is another.
            taken = await run_blocks.take_out(talk, ends, lambda row: ends.get(row.number) == row.ended_ms)
            gone = {row.number for row in taken}
            moved = [
                (run.tenant, run.id, run.number, run.steps, of_fields(run.tenant, run.id, run.number, archive.object))
                for run in runs
                if run.number in gone
            ]
            await talk.fetch("move_runs", *run_blocks.columns(moved, 5), archive.object)

        await self._at.writers.together(work, "move_runs")

    async def drop_journal(self, partition: int, archive: ArchiveObject, *, epoch: int) -> None:
        async def work(talk: Transaction) -> None:
            watermark = await _watermark(talk, partition, epoch)
            if archive.last >= watermark:
                raise journal_needed(partition, watermark=watermark)
            await talk.fetch("put_archive", *astuple(archive), of_row(archive))
            await talk.fetch("cut_journal", partition, archive.last, archive.tick, archive.hash)
            await talk.fetch("drop_journal", partition, archive.last)

        await self._at.writers.together(work, "drop_journal")

    async def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        rows = await self._at.readers.fetch("read_archived", tenant, list(ids))
        return [ArchivedRun(*checked("archived", row)) for row in rows]

    async def journal_cut(self, partition: int) -> int:
        rows = await self._at.readers.fetch("read_journal_cut", partition)
        return int(rows[0][0]) if rows else 0

    async def journal_archive(self, partition: int, *, seq: int) -> ArchiveObject | None:
        archives = [_archive(row) for row in await self._at.readers.fetch("read_journal_archive", partition, seq)]
        return archives[0] if archives and archives[0].first <= seq else None

    async def journal_archive_at(self, partition: int, *, tick: int) -> ArchiveObject | None:
        archives = [_archive(row) for row in await self._at.readers.fetch("read_journal_archive_at", partition, tick)]
        return archives[0] if archives else None

    async def old_archives(self, *, before_ms: int, limit: int) -> list[ArchiveObject]:
        return [_archive(row) for row in await self._at.readers.fetch("read_old_archives", before_ms, max(limit, 0))]

    async def drop_archive(self, object_: str) -> None:
        await self._at.writers.fetch("drop_archive", object_)

    async def log_chunks_after(self, partition: int, *, after: LogAddress, limit: int) -> list[LogChunk]:
        first, last = _span(partition)
        start = max(tuple(after), (first - 1, 0, 0))
        rows = await self._at.readers.fetch("log_chunks_after", *start, last, max(limit, 0))
        return [LogChunk(*checked("log_chunks", row)) for row in rows]

    async def named_logs(self, digests: Sequence[str], *, since_ms: int) -> frozenset[str]:
        rows = await self._at.readers.fetch("read_named_logs", list(digests), since_ms)
        return frozenset(digest for (digest,) in rows)

    async def drop_log_chunks(self, places: Sequence[LogAddress], *, archive: ArchiveObject | None = None) -> None:
        async def work(talk: Transaction) -> None:
            if archive is not None:
                await talk.fetch("put_archive", *astuple(archive), of_row(archive))
            await talk.fetch("drop_log_chunks", *map(list, zip(*places, strict=True)))

        if places:
            await self._at.writers.together(work, "drop_log_chunks")

    async def archives_over(self, partition: int, *, kind: str, number: int) -> list[ArchiveObject]:
        return [_archive(row) for row in await self._at.readers.fetch("read_archives_over", partition, kind, number)]

    async def renew_payloads(self, digests: Sequence[str]) -> frozenset[str]:
        rows = await self._at.writers.fetch("renew_payloads", list(digests))
        return frozenset(digest for (digest,) in rows)

    async def drop_payloads(self, *, before: int, limit: int) -> int:
        return len(await self._at.writers.fetch("drop_payloads", before, max(limit, 0)))

    async def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        rows = await self._at.readers.fetch("read_named_objects", list(digests))
        return frozenset(digest for (digest,) in rows)

    async def note_renewal(self, partition: int, *, epoch: int) -> None:
        async def work(talk: Transaction) -> None:
            await _watermark(talk, partition, epoch)
            ((day,),) = await talk.fetch("note_renewal", partition)
            await talk.fetch("sign_renewal", partition, of_fields(partition, day))

        await self._at.writers.together(work, "note_renewal")

    async def renewals(self) -> dict[int, int]:
        days = {}
        for partition, day, checksum in await self._at.readers.fetch("read_renewals"):
            known = of_fields(partition, day) if day else 0
            require(checksum == known, f"the renewal of partition {partition}")
            days[partition] = day
        return days

    # ---- taking it elsewhere

    async def export(self, take: Take) -> None:
        async def work(talk: Transaction) -> None:
            odd = await talk.fetch("read_odd_days")
            require(not odd, f"the day of payload {odd[0][0] if odd else ''}")
            for table in COLUMNS:
                async for rows in _runs(talk) if table == "runs" else talk.stream(_select(table), ROWS):
                    batch = TableBatch(table, [_checked(table, row) for row in rows])
                    try:
                        await take(batch)
                    except Exception as error:
                        raise _RemoteError(error) from error

        await self._apart(work, "export", changes=False, mode="isolation level repeatable read read only")

    async def bring_in(self, batches: AsyncIterator[TableBatch]) -> None:
        async def work(talk: Transaction) -> None:
            for table in COLUMNS:
                held = "run_blocks" if table == "runs" else table
                if await talk.plain(f"select 1 from {held} limit 1"):  # noqa: S608 - names of our own
                    raise StoreNotEmpty(f"the schema {self.address.schema}")
            async for batch in _given(batches):
                if batch.table == "partitions":
                    await _add_partitions(talk, batch.rows)
                elif batch.table == "payloads":  # a digest names its bytes: a second write changes nothing
                    await talk.fetch("add_payloads", *map(list, zip(*batch.rows, strict=True)))
                elif batch.table == "runs":
                    await run_blocks.put(talk, PendingRuns([run_row(row) for row in batch.rows]))
                else:
                    sum_of = SUMS.get(batch.table)
                    rows = [tuple(row) for row in batch.rows]
                    if sum_of is None:
                        await talk.copy(batch.table, COLUMNS[batch.table], rows)
                    else:
                        names = (*COLUMNS[batch.table], "checksum")
                        await talk.copy(batch.table, names, [(*row, sum_of(row)) for row in rows])

        await self._apart(work, "bring_in", changes=True)

    async def _apart(self, work: Any, what: str, *, changes: bool, mode: str = "") -> None:
        """Over a connection of its own, which may take its time."""
        assert self._at is not None, "it is open"
        patient = replace(self.address, idle_ms=round(PATIENCE_S * 1000))
        line = PostgresConnection(patient, changes=changes, timeout_s=PATIENCE_S)
        try:
            await line.together(work, what, mode=mode)
        except _RemoteError as theirs:
            raise theirs.error from None
        finally:
            await line.close()


class _RemoteError(TickworkError):
    """An error that the other side raised: not one of ours, so it is passed on as it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


async def _given(batches: AsyncIterator[TableBatch]) -> AsyncIterator[TableBatch]:
    try:
        async for batch in batches:
            yield batch
    except Exception as error:
        raise _RemoteError(error) from error


async def _watermark(talk: Transaction, partition: int, epoch: int) -> int:
    rows = await talk.fetch("lock_owner", partition, epoch)
    if not rows:
        raise not_the_owner(partition, epoch)
    return int(rows[0][0])


async def _add_partitions(talk: Transaction, rows: Sequence[Sequence[Any]]) -> None:
    for number, epoch, owner, _, _, _, watermark, watermark_hash, settings, header, *cut in rows:
        await talk.fetch("add_partition", number, epoch, owner, *cut, of_epoch(number, epoch, owner))
        await talk.fetch("add_watermark", number, epoch, watermark, watermark_hash)
        await talk.fetch("add_whole_machine", number, settings, of_bytes(0, settings), header, of_bytes(0, header))


async def _runs(talk: Transaction) -> AsyncIterator[list[Any]]:
    async for rows in run_blocks.checked(talk):  # of a stretch: 256 at most
        yield [astuple(row) for row in rows]


def _select(table: str) -> str:
    if table == "partitions":
        return _WHOLE
    names = [*COLUMNS[table], *(["checksum"] if table in SUMS else [])]
    return f"select {', '.join(names)} from {table} order by {_ORDER.get(table, '1, 2')}"  # noqa: S608


def _checked(table: str, record: Any) -> tuple[Any, ...]:
    row = tuple(record)
    if table == "partitions":
        *row_, checksum, settings_checksum, header_checksum, rows_epoch = row
        number = row_[0]
        require(checksum == of_epoch(*row_[:3]), f"the epoch of partition {number}")
        require(rows_epoch == row_[1], f"the watermark of partition {number}")
        require(settings_checksum == of_bytes(0, row_[8]), f"the settings of partition {number}")
        require(header_checksum == of_bytes(0, row_[9]), f"the header of partition {number}")
        return tuple(row_)
    if table == "inbox" and row[-1] == 0:  # it came by SQL
        return row[:-1]
    return checked(table, row) if table in SUMS else row


def _archive(row: Any) -> ArchiveObject:
    return ArchiveObject(*checked("archives", row))


def _span(partition: int) -> tuple[int, int]:
    return partition << NUMBER_BITS, (partition + 1 << NUMBER_BITS) - 1
