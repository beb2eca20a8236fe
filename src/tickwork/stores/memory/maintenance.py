"""The part of the memory store that keeps less, and that is taken elsewhere."""

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import astuple

from tickwork.core.state.schedule import FateRange
from tickwork.core.state.state import NUMBER_BITS
from tickwork.journal.record import SealedRow
from tickwork.ports.store import (
    BackfillRow,
    CacheRow,
    ChildRow,
    ClusterIdentity,
    DefinitionRow,
    Head,
    InboxRow,
    IndexEntry,
    LogChunk,
    Route,
    RunRow,
    run_row,
)
from tickwork.ports.store_maintenance import (
    JOURNAL,
    KEPT_KINDS,
    ArchivedRun,
    ArchiveObject,
    LogAddress,
    StoreNotEmpty,
    TableBatch,
    Take,
)
from tickwork.stores.fencing import journal_needed, not_the_owner

if TYPE_CHECKING:
    from tickwork.stores.memory.store import MemoryDisk, Partition

_encode = msgspec.msgpack.Encoder().encode
_decode_range = msgspec.msgpack.Decoder(FateRange).decode
Row = tuple[Any, ...]


class MemoryMaintenance:
    @property
    def _disk(self) -> "MemoryDisk":
        raise NotImplementedError

    # ---- keeping less

    async def runs_after(self, partition: int, *, number: int, limit: int) -> list[RunRow]:
        runs = self._disk.runs
        own = (run for run in sorted(runs) if run > number and run >> NUMBER_BITS == partition)
        return [runs[run] for run in islice(own, max(limit, 0))]

    async def children_between(self, first: int, last: int) -> list[ChildRow]:
        return [
            ChildRow(run, step, child, value)
            for (run, step), children in sorted(self._disk.children.items())
            if first <= run <= last
            for child, value in sorted(children.items())
        ]

    async def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        attempts = self._disk.attempts
        return [(run, data) for run in sorted(attempts) if first <= run <= last for data in attempts[run]]

    async def move_runs(
        self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], *, epoch: int
    ) -> None:
        disk = self._disk
        self._own(partition, epoch)
        disk.archives[archive.object] = archive
        for run in runs:
            row = disk.runs.get(run.number)
            if row is None or row.ended_ms != run.ended_ms:
                continue
            disk.drop_run(run.number)
            disk.attempts.pop(run.number, None)
            for key in [child for child in disk.children if run.number <= child[0] < run.number + run.steps]:
                del disk.children[key]
            disk.archived[run.tenant, run.id] = ArchivedRun(run.tenant, run.id, run.number, run.object)

    async def drop_journal(self, partition: int, archive: ArchiveObject, *, epoch: int) -> None:
        disk, own = self._disk, self._own(partition, epoch)
        if archive.last >= own.head.watermark:
            raise journal_needed(partition, watermark=own.head.watermark)
        disk.archives[archive.object] = archive
        count = max(0, archive.last - own.cut.seq)
        del own.journal[:count], own.epochs[:count]
        if count:
            own.cut = SealedRow(archive.last, archive.tick, archive.hash, b"")

    def _own(self, partition: int, epoch: int) -> "Partition":
        own = self._disk.partitions.get(partition)
        if own is None or own.head.epoch != epoch:
            raise not_the_owner(partition, epoch)
        return own

    async def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        archived = self._disk.archived
        return [archived[tenant, run_id] for run_id in ids if (tenant, run_id) in archived]

    async def journal_cut(self, partition: int) -> int:
        own = self._disk.partitions.get(partition)
        return own.cut.seq if own else 0

    async def journal_archive(self, partition: int, *, seq: int) -> ArchiveObject | None:
        for archive in self._disk.archives.values():
            if archive.kind == JOURNAL and archive.partition == partition and archive.first <= seq <= archive.last:
                return archive
        return None

    async def journal_archive_at(self, partition: int, *, tick: int) -> ArchiveObject | None:
        pieces = [
            archive
            for archive in self._disk.archives.values()
            if (archive.kind, archive.partition) == (JOURNAL, partition)
        ]
        return min((piece for piece in pieces if piece.tick >= tick), key=lambda piece: piece.last, default=None)

    async def archives_over(self, partition: int, *, kind: str, number: int) -> list[ArchiveObject]:
        archives = [
            archive
            for archive in self._disk.archives.values()
            if (archive.kind, archive.partition) == (kind, partition)
        ]
        over = (archive for archive in archives if archive.first <= number <= archive.last)
        return sorted(over, key=lambda archive: (archive.to_ms, archive.object))

    async def old_archives(self, *, before_ms: int, limit: int) -> list[ArchiveObject]:
        old = [archive for archive in self._disk.archives.values() if archive.to_ms < before_ms]
        return sorted(old, key=lambda archive: (archive.to_ms, archive.object))[: max(limit, 0)]

    async def drop_archive(self, object_: str) -> None:
        disk = self._disk
        archive = disk.archives.pop(object_, None)
        if archive is not None and archive.kind == JOURNAL:
            for (kind, _), by_seq in disk.index[archive.partition].items():
                old = sorted(seq for seq in by_seq if seq <= archive.last)
                for seq in old[:-1] if kind in KEPT_KINDS else old:
                    del by_seq[seq]
        for key in [key for key, run in disk.archived.items() if run.object == object_]:
            del disk.archived[key]

    async def log_chunks_after(self, partition: int, *, after: LogAddress, limit: int) -> list[LogChunk]:
        every = chain.from_iterable(chunk.values() for chunk in self._disk.log_chunks.values())
        chunks = {
            (chunk.task, chunk.attempt, chunk.chunk): chunk for chunk in every if chunk.task >> NUMBER_BITS == partition
        }
        addresses = (address for address in sorted(chunks) if address > after)
        return [chunks[address] for address in islice(addresses, max(limit, 0))]

    async def named_logs(self, digests: Sequence[str], *, since_ms: int) -> frozenset[str]:
        every = chain.from_iterable(chunk.values() for chunk in self._disk.log_chunks.values())
        return frozenset(digests) & {chunk.digest for chunk in every if chunk.written_ms >= since_ms}

    async def drop_log_chunks(self, places: Sequence[LogAddress], *, archive: ArchiveObject | None = None) -> None:
        if archive is not None and places:
            self._disk.archives[archive.object] = archive
        for task, attempt, chunk in places:
            self._disk.log_chunks.get((task, attempt), {}).pop(chunk, None)

    async def renew_payloads(self, digests: Sequence[str]) -> frozenset[str]:
        disk = self._disk
        here = frozenset(digest for digest in digests if digest in disk.payloads)
        disk.payload_days.update(dict.fromkeys(here, disk.day))
        return here

    async def drop_payloads(self, *, before: int, limit: int) -> int:
        disk = self._disk
        old = sorted(digest for digest, day in disk.payload_days.items() if day < before)
        named = await self.named_objects(old)
        gone = [digest for digest in old if digest not in named][: max(limit, 0)]
        for digest in gone:
            del disk.payloads[digest], disk.payload_days[digest]
        return len(gone)

    async def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        return (frozenset(digests) & self._disk.archives.keys()) | await self.named_logs(digests, since_ms=0)

    async def note_renewal(self, partition: int, *, epoch: int) -> None:
        self._own(partition, epoch)
        self._disk.renewals[partition] = self._disk.day

    async def renewals(self) -> dict[int, int]:
        disk = self._disk
        return {number: disk.renewals.get(number, 0) for number in sorted(disk.partitions)}

    # ---- taking it elsewhere

    async def export(self, take: Take) -> None:
        moment = [TableBatch(table, list(rows)) for table, rows in _tables(self._disk)]
        for batch in moment:
            if batch.rows:
                await take(batch)

    async def bring_in(self, batches: AsyncIterator[TableBatch]) -> None:
        disk = self._disk
        if any(rows for _, rows in ((table, list(rows)) for table, rows in _tables(disk))):
            raise StoreNotEmpty("the memory")
        taken = [batch async for batch in batches]  # first all of it: what comes may break off
        for batch in sorted(taken, key=lambda part: part.table != "partitions"):
            for row in batch.rows:
                _add(disk, batch.table, tuple(row))


def _tables(disk: "MemoryDisk") -> Iterator[tuple[str, Iterator[Row]]]:
    """Yield the tables in the order and with the columns of `COLUMNS`."""
    parts = disk.partitions
    yield "founded", iter([astuple(disk.identity)] if disk.identity is not None else [])
    yield "routes", (astuple(disk.routes[tenant]) for tenant in sorted(disk.routes))
    yield "partitions", (_partition_row(number, parts[number]) for number in sorted(parts))
    yield (
        "journal",
        (
            (number, row.seq, epoch, row.tick, row.hash, row.data)
            for number in sorted(parts)
            for row, epoch in zip(parts[number].journal, parts[number].epochs, strict=True)
        ),
    )
    yield "payloads", iter(sorted(disk.payloads.items()))
    for table in ("live_runs", "live_tasks", "schedules"):
        yield table, (pair for number in sorted(parts) for pair in sorted(getattr(parts[number], table).items()))
    yield "definitions", _definitions(disk)
    yield "runs", (astuple(disk.runs[number]) for number in sorted(disk.runs))
    yield "attempts", ((run, data) for run in sorted(disk.attempts) for data in disk.attempts[run])
    yield (
        "children",
        (
            (*address, child, value)
            for address in sorted(disk.children)
            for child, value in sorted(disk.children[address].items())
        ),
    )
    yield "cache", (astuple(disk.cache[key]) for key in sorted(disk.cache))
    yield (
        "fates",
        (
            (*names, *address, span.to_ms, _encode(span))
            for names in sorted(disk.fates)
            for address, span in sorted(disk.fates[names].items())
        ),
    )
    yield "backfills", (astuple(disk.backfills[number]) for number in sorted(disk.backfills))
    yield (
        "log_chunks",
        (
            astuple(disk.log_chunks[address][chunk])
            for address in sorted(disk.log_chunks)
            for chunk in sorted(disk.log_chunks[address])
        ),
    )
    yield "archives", (astuple(disk.archives[name]) for name in sorted(disk.archives))
    yield "archived", ((run.tenant, run.id, run.number, run.object) for _, run in sorted(disk.archived.items()))
    yield (
        "inbox",
        (
            (number, message.id, message.tenant, message.data, message.by)
            for number in sorted(disk.inbox)
            for message in disk.inbox[number].values()
        ),
    )
    yield (
        "journal_index",
        (
            (number, *address, seq, entry.data)
            for number in sorted(disk.index)
            for address in sorted(disk.index[number])
            for seq, entry in sorted(disk.index[number][address].items())
        ),
    )


def _partition_row(number: int, partition: "Partition") -> Row:
    head, cut = partition.head, partition.cut
    return (
        number, head.epoch, partition.owner, head.seq, head.tick, head.hash, head.watermark, partition.watermark_hash,
        partition.settings, partition.header, cut.seq, cut.tick, cut.hash,
    )  # fmt: skip


def _definitions(disk: "MemoryDisk") -> Iterator[Row]:
    for (tenant, digest), row in sorted(disk.definitions.items()):
        for number, partition in sorted(disk.partitions.items()):
            if digest in partition.documents:
                yield tenant, digest, number, row.name, row.document, row.put_ms


def _add(disk: "MemoryDisk", table: str, row: Row) -> None:
    from tickwork.stores.memory.store import Partition

    match table:
        case "founded":
            disk.identity = ClusterIdentity(*row)
        case "routes":
            disk.routes[row[0]] = Route(*row)
        case "partitions":
            number, epoch, owner, seq, tick, hash_, watermark, watermark_hash, settings, header, *cut = row
            head = Head(epoch, seq, tick, hash_, watermark)
            disk.partitions[number] = Partition(
                settings, head, owner, header, watermark_hash, cut=SealedRow(cut[0], cut[1], cut[2], b"")
            )
        case "journal":
            disk.partitions[row[0]].journal.append(SealedRow(row[1], *row[3:]))
            disk.partitions[row[0]].epochs.append(row[2])
        case "payloads":
            disk.put_payload(row[0], row[1])
        case "live_runs" | "live_tasks" | "schedules":
            getattr(disk.partitions[row[0] >> NUMBER_BITS], table)[row[0]] = row[1]
        case "definitions":
            tenant, digest, number, name, document, put_ms = row
            disk.definitions[tenant, digest] = DefinitionRow(digest, tenant, name, document, put_ms)
            disk.partitions[number].documents[digest] = document
        case "runs":
            disk.add_run(run_row(row))
        case "attempts":
            disk.attempts[row[0]].append(row[1])
        case "children":
            disk.children[row[0], row[1]][row[2]] = row[3]
        case "cache":
            disk.cache[row[0]] = CacheRow(*row)
        case "fates":
            disk.fates[row[0], row[1]][row[2], row[3], row[4]] = _decode_range(row[6])
        case "backfills":
            disk.backfills[row[0]] = BackfillRow(*row)
        case "log_chunks":
            disk.log_chunks[row[0], row[1]][row[2]] = LogChunk(*row)
        case "archives":
            disk.archives[row[0]] = ArchiveObject(*row)
        case "archived":
            disk.archived[row[0], row[1]] = ArchivedRun(*row)
        case "inbox":
            disk.inbox[row[0]][row[1]] = InboxRow(row[1], row[0], *row[2:])
        case "journal_index":
            number, kind, subject, seq, data = row
            disk.index[number][kind, subject][seq] = IndexEntry(kind, subject, seq, data)
        case _:
            raise AssertionError(f"a table without a place: {table}")
