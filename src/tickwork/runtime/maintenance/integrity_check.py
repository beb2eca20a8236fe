"""Verifies a store: every checksum, every hash of the journal, and the rows against a fold of the journal.

The check changes and repairs nothing. It stops a partition at the first damage.
"""

from collections.abc import Callable, Iterable

import msgspec

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.core.calendar.zones import Zones
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest, restore
from tickwork.journal.record import GENESIS, unseal
from tickwork.ports.artifacts import Artifacts, digest_of
from tickwork.ports.store import Head, LoadedPartition, LogChunk, Store
from tickwork.ports.store_maintenance import LOGS, RUNS, ArchivedRun, ArchiveObject, TableBatch
from tickwork.runtime.partition.recovery import settings_of
from tickwork.runtime.partition.write_behind import attempts_decoder
from tickwork.runtime.storage.archive import ArchiveReader, RunBundle, unpacked, unpacked_logs
from tickwork.runtime.storage.logs import records

ROWS_PER_READ = 256


class PartitionCheck(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    seq: int
    hash: str
    verified: int  # rows of the journal whose position in the chain is right
    archived: int  # of them in the archive
    folded: bool  # the rows were compared with a fold of the journal
    damage: str = ""


class IntegrityReport(msgspec.Struct, frozen=True, kw_only=True):
    rows: dict[str, int]  # read, by table
    partitions: tuple[PartitionCheck, ...]
    damage: str = ""  # outside of any partition

    @property
    def sound(self) -> bool:
        return not self.damage and not any(partition.damage for partition in self.partitions)


async def check(
    store: Store,
    artifacts: Artifacts,
    zones: Zones,
    say: Callable[[str, int], None],
    beside: Iterable[tuple[str, bytes]] = (),
) -> IntegrityReport:
    """`beside`: artifacts that are stored in a folder, outside the database."""
    rows: dict[str, int] = {}
    numbers: list[int] = []
    odds = _RowProblems()

    async def take(batch: TableBatch) -> None:
        rows[batch.table] = rows.get(batch.table, 0) + len(batch.rows)
        if batch.table == "partitions":
            numbers.extend(row[0] for row in batch.rows)
        odds.look(batch)
        say(batch.table, rows[batch.table])

    damage = ""
    try:
        await store.export(take)
        await store.renewals()
        await _objects(store, artifacts, odds, say)
        for digest, data in beside:
            if digest_of(data) != digest:
                raise Corrupt(f"the artifact {digest} was damaged on disk: its bytes are not those of its name")
    except Corrupt as error:
        damage = str(error)
    except Unavailable:
        raise
    except Exception as error:  # a row that no reader was made for is damage as well
        damage = f"the store cannot be read: {type(error).__name__}: {error}"
    archives = ArchiveReader(store, artifacts)
    reports = [await _partition(store, archives, number, zones, say, odds) for number in numbers]
    return IntegrityReport(rows=rows, partitions=tuple(reports), damage=damage)


class _RowProblems:
    """What no checksum of one row tells: digests, the order of rows, and what rows say of objects elsewhere."""

    def __init__(self) -> None:
        self.chunks: list[LogChunk] = []
        self.archives: list[ArchiveObject] = []
        self.archived: dict[str, list[ArchivedRun]] = {}
        self.cuts: dict[int, tuple[int, int, bytes]] = {}
        self._epochs: dict[int, int] = {}  # of partitions
        self._last: dict[int, int] = {}  # the epoch of the last row of each journal
        self._ended: dict[int, int] = {}  # when the last attempt of a run ended, as far as it is read

    def look(self, batch: TableBatch) -> None:
        for row in batch.rows:
            match batch.table:
                case "partitions":
                    self._epochs[row[0]] = row[1]
                    self.cuts[row[0]] = (row[10], row[11], row[12])
                case "payloads" if digest_of(row[1]) != row[0]:
                    raise Corrupt(f"the payload {row[0]} was damaged on disk: its bytes are not those of its digest")
                case "journal":
                    self._row(row[0], row[1], row[2])
                case "attempts":
                    self._attempts(row[0], row[1])
                case "log_chunks":
                    self.chunks.append(LogChunk(*row))
                case "archives":
                    self.archives.append(ArchiveObject(*row))
                case "archived":
                    self.archived.setdefault(row[3], []).append(ArchivedRun(*row))

    def _row(self, partition: int, seq: int, epoch: int) -> None:
        if not self._last.get(partition, 0) <= epoch <= self._epochs.get(partition, -1):
            raise Corrupt(f"seq {seq} of partition {partition} has an epoch that is out of order: it was damaged")
        self._last[partition] = epoch

    def _attempts(self, run: int, data: bytes) -> None:
        """Rows are written as attempts end."""
        ends = [attempt.ended_ms for attempt in attempts_decoder.decode(data)] if data else []
        if ends and min(ends) < self._ended.get(run, 0):
            raise Corrupt(f"attempts of run {run} are out of order: their positions were damaged")
        if ends:
            self._ended[run] = max(ends)


async def _objects(store: Store, artifacts: Artifacts, odds: _RowProblems, say: Callable[[str, int], None]) -> None:
    """Everything that rows name elsewhere is there, and is what they say. Reading compares a digest with its bytes."""
    for count, chunk in enumerate(odds.chunks):
        data = await _object(store, artifacts, chunk.digest, chunk.size, f"log of task {chunk.task}")
        if data is not None and len(records(data)) != chunk.lines:
            raise Corrupt(
                f"a piece of the log of task {chunk.task} does not have the lines that its row says: it was damaged"
            )
        say("logs", count + 1)
    for count, archive in enumerate(odds.archives):
        data = await _object(store, artifacts, archive.object, archive.size, f"archive of {archive.kind}")
        named = odds.archived.pop(archive.object, [])
        if data is None:
            continue
        if archive.kind == RUNS:
            _require_runs(archive, unpacked(data), named)
        elif archive.kind == LOGS and len(unpacked_logs(data)) != archive.rows:
            raise Corrupt(f"the archive {archive.object} does not have the rows that its entry says: it was damaged")
        say("archives", count + 1)
    if odds.archived:
        raise Corrupt(f"runs refer to the archive {next(iter(odds.archived))}, which does not exist")


async def _object(store: Store, artifacts: Artifacts, digest: str, size: int, what: str) -> bytes | None:
    """None: nothing names it any more, because a server that goes on has just taken it away."""
    data = await artifacts.get(digest)
    if data is None and not await store.named_objects([digest]):
        return None
    if data is None or len(data) != size:
        raise Corrupt(f"the object {digest} ({what}) is gone, or has another size")
    return data


def _require_runs(archive: ArchiveObject, bundles: list[RunBundle], named: list[ArchivedRun]) -> None:
    there = {(bundle.row.tenant, bundle.row.id, bundle.row.number) for bundle in bundles}
    if len(bundles) != archive.rows or any((run.tenant, run.id, run.number) not in there for run in named):
        raise Corrupt(f"the archive {archive.object} does not have the runs that its entries say: they were damaged")


async def _partition(
    store: Store,
    archives: ArchiveReader,
    number: int,
    zones: Zones,
    say: Callable[[str, int], None],
    odds: _RowProblems,
) -> PartitionCheck:
    head, verified, archived, folded, damage = Head(0), 0, 0, False, ""
    try:
        head = await store.read_head(number)
        loaded = await store.load(number)
        head = loaded.head  # a server may have gone on meanwhile
        cut = await store.journal_cut(number)
        await _require_cut(store, number, odds)
        seq, hash_ = 0, GENESIS
        machine: Machine | None = Machine(settings=settings_of(loaded.settings), zones=zones)
        if cut and await store.journal_archive(number, seq=1) is None:  # its beginning is too old to be kept
            machine = None
            seq, hash_ = await _oldest(store, number, cut)
        while seq < head.seq:
            for sealed in await archives.journal(number, after=seq, limit=ROWS_PER_READ):
                if seq == head.watermark:
                    _require_hash(loaded, hash_)
                    folded = _compare(loaded, machine, zones)
                row = unseal(sealed, hash_)
                if machine is not None:
                    machine.fold(row.tick, row.inputs, row.events)
                seq, hash_, verified = sealed.seq, sealed.hash, verified + 1
                archived += sealed.seq <= cut
            say(f"partition {number}", seq)
        if seq == head.watermark:
            _require_hash(loaded, hash_)
            folded = _compare(loaded, machine, zones)
        if hash_ != head.hash:
            damage = f"the journal ends with another hash than the head of partition {number} names"
    except Corrupt as error:
        damage = str(error)
    except Unavailable:
        raise
    except Exception as error:  # events that cannot be applied are damage as well
        damage = f"the journal of partition {number} cannot be folded: {type(error).__name__}: {error}"
    return PartitionCheck(
        partition=number, seq=head.seq, hash=head.hash.hex(), verified=verified, archived=archived, folded=folded,
        damage=damage,
    )  # fmt: skip


async def _require_cut(store: Store, partition: int, odds: _RowProblems) -> None:
    """Where the journal was cut off is where its archive ends."""
    seq, tick, hash_ = odds.cuts[partition]
    archive = await store.journal_archive(partition, seq=seq) if seq else None
    if (seq, tick, hash_) != ((archive.last, archive.tick, archive.hash) if archive else (0, 0, GENESIS)):
        raise Corrupt(f"partition {partition} does not begin where its archive ends: one of them was damaged")


def _require_hash(loaded: LoadedPartition, hash_: bytes) -> None:
    if loaded.watermark_hash != hash_:
        raise Corrupt(f"the watermark at seq {loaded.head.watermark} has another hash than the journal there")


async def _oldest(store: Store, partition: int, cut: int) -> tuple[int, bytes]:
    """Behind which row the archive begins, and the hash of that one."""
    first = await store.journal_archive(partition, seq=cut)
    if first is None:
        raise Corrupt(f"the hash of seq {cut}, after which the journal begins, is unknown")
    while (earlier := await store.journal_archive(partition, seq=first.first - 1)) is not None:
        first = earlier
    return first.first - 1, first.before


def _compare(loaded: LoadedPartition, machine: Machine | None, zones: Zones) -> bool:
    if machine is None or not loaded.header:
        return False
    rows = (loaded.documents, loaded.live_runs, loaded.live_tasks, loaded.schedules)
    state = restore(loaded.header, *rows, zones=zones)
    if digest(state) != digest(machine.state):
        raise Corrupt(f"the rows at seq {loaded.head.watermark} are not what the journal makes of them")
    return True
