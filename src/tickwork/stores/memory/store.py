"""The store in memory: for tests, and for simulated nodes that crash and come back.

What is durable lives in a `MemoryDisk`, which outlives the stores opened over it; any number of them may share one,
as nodes share a database, and the fence keeps them apart. Each method checks first and changes afterwards,
so that it happens whole or not at all.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.store import (
    PORTION,
    BackfillRow,
    CacheRow,
    ClusterIdentity,
    DefinitionRow,
    Head,
    InboxRow,
    IndexEntry,
    LoadedPartition,
    LogChunk,
    Payload,
    Route,
    Rows,
    RunFilter,
    RunPage,
    RunRow,
)
from tickwork.ports.store_maintenance import ArchivedRun, ArchiveObject
from tickwork.stores.fencing import commit_fenced, rows_fenced
from tickwork.stores.memory.maintenance import MemoryMaintenance
from tickwork.stores.run_blocks import page_of


class Partition(msgspec.Struct):
    """What is durable of one partition."""

    settings: bytes
    head: Head
    owner: str
    header: bytes = b""
    watermark_hash: bytes = GENESIS
    journal: list[SealedRow] = []
    epochs: list[int] = []  # of the journal's rows
    documents: dict[str, bytes] = {}
    live_runs: dict[int, bytes] = {}
    live_tasks: dict[int, bytes] = {}
    schedules: dict[int, bytes] = {}
    cut: SealedRow = SealedRow(0, 0, GENESIS, b"")  # the last row that was taken away from the journal


class MemoryDisk:
    """What survives a crash."""

    def __init__(self) -> None:
        self.identity: ClusterIdentity | None = None
        self.routes: dict[str, Route] = {}
        self.inbox: dict[int, dict[str, InboxRow]] = defaultdict(dict)
        self.partitions: dict[int, Partition] = {}
        self.day = 1  # today; tests set it
        self.payloads: dict[str, bytes] = {}
        self.payload_days: dict[str, int] = {}
        self.renewals: dict[int, int] = {}
        self.definitions: dict[tuple[str, str], DefinitionRow] = {}
        self.runs: dict[int, RunRow] = {}
        self.ids: dict[tuple[str, str], int] = {}
        self.keys: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.tenants: dict[str, list[int]] = defaultdict(list)
        self.attempts: dict[int, list[bytes]] = defaultdict(list)
        self.children: dict[tuple[int, int], dict[int, bytes]] = defaultdict(dict)
        self.cache: dict[str, CacheRow] = {}
        self.fates: dict[tuple[str, str], dict[tuple[int, int, int], FateRange]] = defaultdict(dict)
        self.backfills: dict[int, BackfillRow] = {}
        self.index: defaultdict[int, defaultdict[tuple[int, int], dict[int, IndexEntry]]] = defaultdict(
            lambda: defaultdict(dict)
        )
        self.log_chunks: dict[tuple[int, int], dict[int, LogChunk]] = defaultdict(dict)
        self.archives: dict[str, ArchiveObject] = {}
        self.archived: dict[tuple[str, str], ArchivedRun] = {}

    def put_payload(self, digest: str, data: bytes) -> None:
        self.payloads.setdefault(digest, data)
        self.payload_days[digest] = self.day

    def add_run(self, row: RunRow) -> None:
        self.drop_run(row.number)
        self.runs[row.number] = row
        self.ids[row.tenant, row.id] = row.number
        insort(self.tenants[row.tenant], row.number)
        if row.key:
            insort(self.keys[row.tenant, row.key], row.number)

    def drop_run(self, number: int) -> RunRow | None:
        if (row := self.runs.pop(number, None)) is not None:
            del self.ids[row.tenant, row.id]
            self.tenants[row.tenant].remove(number)
            if row.key:
                self.keys[row.tenant, row.key].remove(number)
        return row


class MemoryStore(MemoryMaintenance):
    portion = PORTION

    def __init__(self, disk: MemoryDisk) -> None:
        self._held = disk
        self._open = False

    async def open(self) -> None:
        self._open = True

    async def close(self) -> None:
        self._open = False

    @property
    def _disk(self) -> MemoryDisk:
        if not self._open:
            raise Unavailable("the store is closed", retry_after_ms=1_000)
        return self._held

    # ---- what all nodes share

    async def establish_identity(self, *, cluster: str, partitions: int) -> ClusterIdentity:
        disk = self._disk
        if disk.identity is None:
            disk.identity = ClusterIdentity(cluster, partitions)
        return disk.identity

    async def read_routes(self) -> list[Route]:
        routes = self._disk.routes
        return [routes[tenant] for tenant in sorted(routes)]

    async def put_route(self, route: Route, *, over: Route | None) -> bool:
        routes = self._disk.routes
        if routes.get(route.tenant) != over:
            return False
        routes[route.tenant] = route
        return True

    async def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        for row in rows:
            self._disk.inbox[row.partition].setdefault(row.id, row)

    async def read_inbox(self, partition: int, *, limit: int) -> list[InboxRow]:
        return list(islice(self._disk.inbox[partition].values(), max(limit, 0)))

    async def drop_inbox(self, partition: int, ids: Sequence[str]) -> None:
        for message_id in ids:
            self._disk.inbox[partition].pop(message_id, None)

    # ---- the truth

    async def claim(self, partition: int, *, owner: str, settings: bytes) -> Head:
        own = self._disk.partitions.get(partition)
        if own is None:
            own = self._disk.partitions[partition] = Partition(settings, Head(0), owner)
        own.head = msgspec.structs.replace(own.head, epoch=own.head.epoch + 1)
        own.owner = owner
        return own.head

    async def read_head(self, partition: int) -> Head:
        own = self._disk.partitions.get(partition)
        return own.head if own else Head(0)

    async def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], *, epoch: int) -> None:
        disk = self._disk
        own = disk.partitions.get(partition)
        if own is None or (own.head.epoch, own.head.seq) != (epoch, row.seq - 1):
            raise commit_fenced(partition, epoch, seq=row.seq)
        own.head = Head(epoch, row.seq, row.tick, row.hash, own.head.watermark)
        own.journal.append(row)
        own.epochs.append(epoch)
        for payload in payloads:
            disk.put_payload(payload.digest, payload.data)

    async def write_rows(self, partition: int, rows: Rows, *, epoch: int, through: int, head: bytes) -> None:
        disk = self._disk
        own = disk.partitions.get(partition)
        if own is None or own.head.epoch != epoch or not own.head.watermark <= through <= own.head.seq:
            raise rows_fenced(partition, epoch, through=through)
        _require_new_ids(disk, rows)
        own.head = msgspec.structs.replace(own.head, watermark=through)
        own.watermark_hash = head
        own.header = rows.header or own.header
        _write_live(own, rows)
        _write_ended(disk, partition, rows)

    async def load(self, partition: int) -> LoadedPartition:
        own = self._disk.partitions.get(partition)
        if own is None:
            return LoadedPartition(Head(0), b"", b"", GENESIS, [], [], [], [], [])
        return LoadedPartition(
            own.head,
            own.settings,
            own.header,
            own.watermark_hash,
            sorted(own.documents.items()),
            [own.live_runs[number] for number in sorted(own.live_runs)],
            [own.live_tasks[number] for number in sorted(own.live_tasks)],
            [own.schedules[number] for number in sorted(own.schedules)],
            own.journal[own.head.watermark - own.cut.seq :],
        )

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        own = self._disk.partitions.get(partition)
        if own is None:
            return []
        begin = after - own.cut.seq
        if begin < 0:
            raise Corrupt(f"the journal of partition {partition} begins after seq {own.cut.seq}")
        return own.journal[begin : begin + limit]

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        own = self._disk.partitions.get(partition)
        rows = own.journal if own is not None else []
        seqs = {}
        for tick in ticks:
            index = bisect_left(rows, tick, key=lambda row: row.tick)
            if index < len(rows) and rows[index].tick == tick:
                seqs[tick] = rows[index].seq
        return seqs

    async def read_index(
        self, partition: int, *, kind: int, subjects: tuple[int, int], after: int, through: int
    ) -> list[IndexEntry]:
        index = self._disk.index[partition]
        entries = [
            entry
            for (of_kind, subject), by_seq in index.items()
            if of_kind == kind and subjects[0] <= subject <= subjects[1]
            for entry in by_seq.values()
            if after < entry.seq <= through
        ]
        return sorted(entries, key=lambda entry: (entry.seq, entry.subject))

    async def last_index(self, partition: int, *, kind: int, subject: int, through: int) -> IndexEntry | None:
        by_seq = self._disk.index[partition].get((kind, subject), {})
        return max(
            (entry for seq, entry in by_seq.items() if seq <= through), key=lambda entry: entry.seq, default=None
        )

    async def read_payloads(self, digests: Sequence[str]) -> dict[str, bytes]:
        payloads = self._disk.payloads
        return {digest: payloads[digest] for digest in digests if digest in payloads}

    # ---- what people ask for

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        disk = self._disk
        numbers = [disk.ids[tenant, run_id] for run_id in ids if (tenant, run_id) in disk.ids]
        numbers += [runs[-1] for key in keys if (runs := disk.keys.get((tenant, key)))]
        return [disk.runs[number] for number in dict.fromkeys(numbers)]

    async def list_runs(self, query: RunFilter) -> RunPage:
        limit = max(query.limit, 0)
        return page_of(list(islice(_matching(self._disk, query), limit + 1)), limit)

    async def read_attempts(self, run: int) -> list[bytes]:
        disk = self._disk
        last = [disk.runs[run].attempts] if run in disk.runs else []
        return [*disk.attempts.get(run, ()), *filter(None, last)]

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        return sorted(self._disk.children.get((run, step), {}).items())

    async def read_cache(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        cache = self._disk.cache
        return {key: cache[key] for key in keys if key in cache}

    async def read_definition(self, tenant: str, digest: str) -> DefinitionRow | None:
        return self._disk.definitions.get((tenant, digest))

    async def read_fates(self, tenant: str, schedule: str, *, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        fate = self._disk.fates.get((tenant, schedule), {})
        spans = (fate[key] for key in sorted(fate))
        return list(islice((span for span in spans if span.from_ms < to_ms and span.to_ms >= from_ms), max(limit, 0)))

    async def list_backfills(self, tenant: str, *, limit: int) -> list[BackfillRow]:
        backfills = self._disk.backfills
        own = (backfills[number] for number in sorted(backfills, reverse=True) if backfills[number].tenant == tenant)
        return list(islice(own, max(limit, 0)))

    async def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        for chunk in chunks:
            self._disk.log_chunks[chunk.task, chunk.attempt].setdefault(chunk.chunk, chunk)

    async def read_log_chunks(self, task: int, attempt: int, *, after: int = -1) -> list[LogChunk]:
        chunk = self._disk.log_chunks.get((task, attempt), {})
        return [chunk[number] for number in sorted(chunk) if number > after]


def _require_new_ids(disk: MemoryDisk, rows: Rows) -> None:
    """An id names one run for good. Before anything is changed, because afterwards is too late."""
    ids: dict[tuple[str, str], int] = {}
    reopened = frozenset(rows.reopened)
    freed: set[tuple[str, str]] = set()  # by rows before, which give their number another id
    for row in rows.runs:
        stored = disk.ids.get((row.tenant, row.id), row.number)
        if (row.tenant, row.id) in freed or stored in reopened:
            stored = row.number
        if (before := disk.runs.get(row.number)) is not None:
            freed.add((before.tenant, before.id))
        if stored != row.number or ids.setdefault((row.tenant, row.id), row.number) != row.number:
            raise Corrupt(f"run id {row.id} of {row.tenant} names two runs: two histories are mixed")


def _write_live(partition: Partition, rows: Rows) -> None:
    for number in rows.gone_runs:
        partition.live_runs.pop(number, None)
    partition.live_runs.update(rows.live_runs)
    for number in rows.gone_tasks:
        partition.live_tasks.pop(number, None)
    partition.live_tasks.update(rows.live_tasks)
    for number in rows.gone_schedules:
        partition.schedules.pop(number, None)
    partition.schedules.update(rows.schedules)
    partition.documents.update((row.hash, row.document) for row in rows.definitions)


def _write_ended(disk: MemoryDisk, partition: int, rows: Rows) -> None:
    for number in rows.reopened:
        row = disk.drop_run(number)
        if row is not None and row.attempts:
            disk.attempts[number].append(row.attempts)
    for row in rows.runs:
        disk.add_run(row)
    for run, data in rows.attempts:
        disk.attempts[run].append(data)
    for definition in rows.definitions:
        disk.definitions[definition.tenant, definition.hash] = definition
    for child in rows.children:
        disk.children[child.run, child.step][child.child] = child.value
    for kept in rows.cache:
        disk.cache[kept.key] = kept
    for span in rows.fates:
        disk.fates[span.tenant, span.name][span.from_ms, span.schedule, span.backfill] = span
    for backfill in rows.backfills:
        disk.backfills[backfill.number] = backfill
    for entry in rows.index:
        disk.index[partition][entry.kind, entry.subject][entry.seq] = entry


def _matching(disk: MemoryDisk, criteria: RunFilter) -> Iterator[RunRow]:
    numbers = disk.tenants.get(criteria.tenant, [])
    end = bisect_left(numbers, criteria.before) if criteria.before else len(numbers)
    for at in range(end - 1, -1, -1):
        row = disk.runs[numbers[at]]
        if criteria.fits(row):
            yield row
