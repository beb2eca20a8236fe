"""A store as one host sees it: it takes time, and it fails in the ways that stores fail.

The real thing lies inside (a memory store over a disk that outlives its hosts), and each operation happens there at
one instant, wholly or not at all: also when its host dies while it is on the way. Operations of one host
happen in the order in which they were asked for, as on one connection; only what timed out may come late.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import TypeVar

from sim.hosts import MS, ORIGIN_MS, Host, World
from sim.recorder import Commit, Grant, Journals, RowsWritten
from tickwork.core.base.errors import Unavailable
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import SealedRow
from tickwork.ports.store import (
    PORTION,
    BackfillRow,
    CacheRow,
    ChildRow,
    ClusterIdentity,
    DefinitionRow,
    Head,
    InboxRow,
    IndexEntry,
    LoadedPartition,
    LogChunk,
    OutcomeUnknown,
    Payload,
    Route,
    Rows,
    RunFilter,
    RunPage,
    RunRow,
    Store,
    StoreFull,
)
from tickwork.ports.store_maintenance import ArchivedRun, ArchiveObject, LogAddress, TableBatch, Take
from tickwork.testing.virtual_loop import NS, SimulationError

T = TypeVar("T")
LATENCY_NS = MS
SLOW = 100
LATE_NS_MAX = 20 * NS
TIMEOUT_NS = 5 * NS
RETRY_AFTER_MS = 100
AT_ONCE = 0.3  # of commits while nothing else is under way, and all is well


class StoreTroubles:
    """Outages and full disks, shared by everybody who uses the same disk, and cuts of one host's way to it. Windows end
    by themselves."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.down_until_ns = 0
        self.full_until_ns = 0
        self._cut_until_ns: dict[str, int] = {}  # by host: nothing gets through
        self._deaf_until_ns: dict[str, int] = {}  # by host: what it asks for happens, and no answer comes back

    def go_down(self, seconds: float) -> None:
        self.world.fault("store", "store_outages", f"{seconds:.3f} s")
        self.down_until_ns = max(self.down_until_ns, self.world.loop.now_ns + round(seconds * NS))

    def fill(self, seconds: float) -> None:
        self.world.fault("store", "disk_full", f"{seconds:.3f} s")
        self.full_until_ns = max(self.full_until_ns, self.world.loop.now_ns + round(seconds * NS))

    def cut(self, host: str, seconds: float, *, answers_only: bool) -> None:
        self.world.fault(host, "store_cuts", f"{seconds:.3f} s{', answers only' if answers_only else ''}")
        windows = self._deaf_until_ns if answers_only else self._cut_until_ns
        windows[host] = max(windows.get(host, 0), self.world.loop.now_ns + round(seconds * NS))

    def heal(self) -> None:
        self.down_until_ns = self.full_until_ns = 0
        self._cut_until_ns.clear()
        self._deaf_until_ns.clear()

    def is_cut(self, host: str) -> bool:
        return self.world.loop.now_ns < self._cut_until_ns.get(host, 0)

    def is_deaf(self, host: str) -> bool:
        return self.world.loop.now_ns < self._deaf_until_ns.get(host, 0)

    @property
    def down(self) -> bool:
        return self.world.loop.now_ns < self.down_until_ns

    @property
    def full(self) -> bool:
        return self.world.loop.now_ns < self.full_until_ns


class SimStore:
    """`ports.store.Store` for one process of a host: a restarted process makes a new one over the same disk."""

    portion = PORTION

    def __init__(self, host: Host, inner: Store, journals: Journals, troubles: StoreTroubles) -> None:
        self.world = host.world
        self.host = host
        self.process = host.process
        self.inner = inner
        self.journals = journals
        self.troubles = troubles
        self.chance = host.chance.stream(f"store/{host.starts}")
        self._owner: dict[int, str] = {}  # of the epochs that this process was granted
        self._free_ns = 0  # when the operation before is done
        self.at_once = AT_ONCE

    # ---- the promises of ports.store.Store

    async def open(self) -> None:
        await self._read("open", self.inner.open)

    async def close(self) -> None:
        await self.inner.close()

    async def establish_identity(self, *, cluster: str, partitions: int) -> ClusterIdentity:
        return await self._write(
            "establish_identity",
            lambda: self.inner.establish_identity(cluster=cluster, partitions=partitions),
            lambda _: None,
        )

    async def read_routes(self) -> list[Route]:
        return await self._read("read_routes", self.inner.read_routes)

    async def put_route(self, route: Route, *, over: Route | None) -> bool:
        return await self._write("put_route", lambda: self.inner.put_route(route, over=over), lambda _: None)

    async def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        await self._write("add_inbox", lambda: self.inner.add_inbox(rows), lambda _: None)

    async def read_inbox(self, partition: int, *, limit: int) -> list[InboxRow]:
        return await self._read("read_inbox", lambda: self.inner.read_inbox(partition, limit=limit))

    async def drop_inbox(self, partition: int, ids: Sequence[str]) -> None:
        await self._write("drop_inbox", lambda: self.inner.drop_inbox(partition, ids), lambda _: None)

    async def claim(self, partition: int, *, owner: str, settings: bytes) -> Head:
        def granted(head: Head) -> None:
            at = self.world.note(self.host.name, "claims", f"partition {partition}, epoch {head.epoch}")
            self.journals.written.append(Grant(partition, head.epoch, owner, at))
            self._owner[head.epoch] = owner

        return await self._write(
            "claim", lambda: self.inner.claim(partition, owner=owner, settings=settings), granted, late=True
        )

    async def read_head(self, partition: int) -> Head:
        return await self._read("read_head", lambda: self.inner.read_head(partition))

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], *, epoch: int) -> Awaitable[None]:
        """Some of them while the caller stands still, as SQLite's pen does."""
        made: list[Commit] = []

        def committed(_: None) -> None:
            text = f"partition {partition}, seq {row.seq}, epoch {epoch}, {row.hash.hex()[:16]}"
            at = self.world.note(self.host.name, "commits", text)
            made.append(
                Commit(partition, epoch, self._owner.get(epoch, self.host.name), row, at, self.world.loop.now_ns)
            )
            self.journals.written.append(made[0])

        async def in_time() -> None:
            await self._write("commit", deed, committed, late=True)
            self.journals.acknowledged.extend(made)

        def deed() -> Awaitable[None]:
            return self.inner.commit(partition, row, payloads, epoch=epoch)

        if not self._may_at_once():
            return in_time()
        answer: asyncio.Future[None] = self.world.loop.create_future()
        self._do(deed, committed, answer)
        self.journals.acknowledged.extend(made)
        return answer

    async def write_rows(self, partition: int, rows: Rows, *, epoch: int, through: int, head: bytes) -> None:
        def written(_: None) -> None:
            at = self.world.note(self.host.name, "writes rows", f"partition {partition}, through {through}")
            owner = self._owner.get(epoch, self.host.name)
            self.journals.written.append(RowsWritten(partition, epoch, owner, through, at))

        await self._write(
            "write_rows",
            lambda: self.inner.write_rows(partition, rows, epoch=epoch, through=through, head=head),
            written,
            late=True,
        )

    async def load(self, partition: int) -> LoadedPartition:
        return await self._read("load", lambda: self.inner.load(partition))

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        return await self._read("journal", lambda: self.inner.journal(partition, after=after, limit=limit))

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        return await self._read("seqs_at", lambda: self.inner.seqs_at(partition, ticks))

    async def read_index(
        self, partition: int, *, kind: int, subjects: tuple[int, int], after: int, through: int
    ) -> list[IndexEntry]:
        return await self._read(
            "read_index",
            lambda: self.inner.read_index(partition, kind=kind, subjects=subjects, after=after, through=through),
        )

    async def last_index(self, partition: int, *, kind: int, subject: int, through: int) -> IndexEntry | None:
        return await self._read(
            "last_index", lambda: self.inner.last_index(partition, kind=kind, subject=subject, through=through)
        )

    async def read_payloads(self, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._read("read_payloads", lambda: self.inner.read_payloads(digests))

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        return await self._read("find_runs", lambda: self.inner.find_runs(tenant, ids=ids, keys=keys))

    async def list_runs(self, query: RunFilter) -> RunPage:
        return await self._read("list_runs", lambda: self.inner.list_runs(query))

    async def read_attempts(self, run: int) -> list[bytes]:
        return await self._read("read_attempts", lambda: self.inner.read_attempts(run))

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        return await self._read("read_children", lambda: self.inner.read_children(run, step))

    async def time_ms(self) -> int:
        """The database's clock is right. It is read over a connection of its own, so nothing waits behind it."""
        if self.troubles.down or self.troubles.is_cut(self.host.name) or self.troubles.is_deaf(self.host.name):
            raise Unavailable("the store does not answer", retry_after_ms=RETRY_AFTER_MS)
        return ORIGIN_MS + self.world.loop.now_ns // MS

    async def read_cache(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        return await self._read("read_cache", lambda: self.inner.read_cache(keys))

    async def read_definition(self, tenant: str, digest: str) -> DefinitionRow | None:
        return await self._read("read_definition", lambda: self.inner.read_definition(tenant, digest))

    async def read_fates(self, tenant: str, schedule: str, *, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        return await self._read(
            "read_fates", lambda: self.inner.read_fates(tenant, schedule, from_ms=from_ms, to_ms=to_ms, limit=limit)
        )

    async def list_backfills(self, tenant: str, *, limit: int) -> list[BackfillRow]:
        return await self._read("list_backfills", lambda: self.inner.list_backfills(tenant, limit=limit))

    async def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        await self._write("add_log_chunks", lambda: self.inner.add_log_chunks(chunks), lambda _: None)

    async def read_log_chunks(self, task: int, attempt: int, *, after: int = -1) -> list[LogChunk]:
        return await self._read("read_log_chunks", lambda: self.inner.read_log_chunks(task, attempt, after=after))

    # ---- upkeep

    async def runs_after(self, partition: int, *, number: int, limit: int) -> list[RunRow]:
        return await self._read("runs_after", lambda: self.inner.runs_after(partition, number=number, limit=limit))

    async def children_between(self, first: int, last: int) -> list[ChildRow]:
        return await self._read("children_between", lambda: self.inner.children_between(first, last))

    async def attempts_between(self, first: int, last: int) -> list[tuple[int, bytes]]:
        return await self._read("attempts_between", lambda: self.inner.attempts_between(first, last))

    async def move_runs(
        self, partition: int, archive: ArchiveObject, runs: Sequence[ArchivedRun], *, epoch: int
    ) -> None:
        await self._write(
            "move_runs", lambda: self.inner.move_runs(partition, archive, runs, epoch=epoch), lambda _: None, late=True
        )

    async def drop_journal(self, partition: int, archive: ArchiveObject, *, epoch: int) -> None:
        await self._write(
            "drop_journal", lambda: self.inner.drop_journal(partition, archive, epoch=epoch), lambda _: None, late=True
        )

    async def archived(self, tenant: str, ids: Sequence[str]) -> list[ArchivedRun]:
        return await self._read("archived", lambda: self.inner.archived(tenant, ids))

    async def journal_cut(self, partition: int) -> int:
        return await self._read("journal_cut", lambda: self.inner.journal_cut(partition))

    async def journal_archive(self, partition: int, *, seq: int) -> ArchiveObject | None:
        return await self._read("journal_archive", lambda: self.inner.journal_archive(partition, seq=seq))

    async def journal_archive_at(self, partition: int, *, tick: int) -> ArchiveObject | None:
        return await self._read("journal_archive_at", lambda: self.inner.journal_archive_at(partition, tick=tick))

    async def old_archives(self, *, before_ms: int, limit: int) -> list[ArchiveObject]:
        return await self._read("old_archives", lambda: self.inner.old_archives(before_ms=before_ms, limit=limit))

    async def drop_archive(self, object_: str) -> None:
        await self._write("drop_archive", lambda: self.inner.drop_archive(object_), lambda _: None)

    async def log_chunks_after(self, partition: int, *, after: LogAddress, limit: int) -> list[LogChunk]:
        return await self._read(
            "log_chunks_after", lambda: self.inner.log_chunks_after(partition, after=after, limit=limit)
        )

    async def named_logs(self, digests: Sequence[str], *, since_ms: int) -> frozenset[str]:
        return await self._read("named_logs", lambda: self.inner.named_logs(digests, since_ms=since_ms))

    async def drop_log_chunks(self, places: Sequence[LogAddress], *, archive: ArchiveObject | None = None) -> None:
        deed = lambda: self.inner.drop_log_chunks(places, archive=archive)  # noqa: E731
        await self._write("drop_log_chunks", deed, lambda _: None)

    async def archives_over(self, partition: int, *, kind: str, number: int) -> list[ArchiveObject]:
        return await self._read("archives_over", lambda: self.inner.archives_over(partition, kind=kind, number=number))

    async def renew_payloads(self, digests: Sequence[str]) -> frozenset[str]:
        return await self._write("renew_payloads", lambda: self.inner.renew_payloads(digests), lambda _: None)

    async def drop_payloads(self, *, before: int, limit: int) -> int:
        deed = lambda: self.inner.drop_payloads(before=before, limit=limit)  # noqa: E731
        return await self._write("drop_payloads", deed, lambda _: None)

    async def named_objects(self, digests: Sequence[str]) -> frozenset[str]:
        return await self._read("named_objects", lambda: self.inner.named_objects(digests))

    async def note_renewal(self, partition: int, *, epoch: int) -> None:
        deed = lambda: self.inner.note_renewal(partition, epoch=epoch)  # noqa: E731
        await self._write("note_renewal", deed, lambda _: None, late=True)

    async def renewals(self) -> dict[int, int]:
        return await self._read("renewals", self.inner.renewals)

    async def export(self, take: Take) -> None:
        await self.inner.export(take)

    async def bring_in(self, batches: AsyncIterator[TableBatch]) -> None:
        await self.inner.bring_in(batches)

    # ---- how an operation goes

    def _may_at_once(self) -> bool:
        troubles, name = self.troubles, self.host.name
        sound = not (troubles.down or troubles.full or troubles.is_cut(name) or troubles.is_deaf(name))
        return sound and self._free_ns <= self.world.loop.now_ns and self.chance.happens(self.at_once)

    async def _read(self, name: str, deed: Callable[[], Awaitable[T]]) -> T:
        await self._may_fail(name)
        answer = await self._happen(deed, lambda _: None, self._latency_ns(name))
        if self.troubles.is_deaf(self.host.name):
            await asyncio.sleep(TIMEOUT_NS / NS)
            raise Unavailable(f"{name} got no answer in time; try again", retry_after_ms=RETRY_AFTER_MS)
        return answer

    async def _write(
        self, name: str, deed: Callable[[], Awaitable[T]], done: Callable[[T], None], *, late: bool = False
    ) -> T:
        await self._may_fail(name)
        if self.troubles.full and name != "claim":
            raise StoreFull(f"{name}: no space is left; free some", retry_after_ms=RETRY_AFTER_MS)
        if late and self._strikes("store_late"):
            self._happen(deed, done, TIMEOUT_NS + self.chance.below(LATE_NS_MAX), in_order=False)
            await asyncio.sleep(TIMEOUT_NS / NS)
            raise OutcomeUnknown(f"{name} got no answer in time: read the head", retry_after_ms=RETRY_AFTER_MS)
        answer = await self._happen(deed, done, self._latency_ns(name))
        if self.troubles.is_deaf(self.host.name):
            await asyncio.sleep(TIMEOUT_NS / NS)
            raise OutcomeUnknown(f"{name} got no answer in time: read the head", retry_after_ms=RETRY_AFTER_MS)
        if self._strikes("store_answer_lost"):
            raise OutcomeUnknown(f"the answer to {name} was lost: read the head", retry_after_ms=RETRY_AFTER_MS)
        return answer

    async def look(self, name: str, deed: Callable[[], Awaitable[T]]) -> T:
        """Something beside the port that lies in the same store: a read of it."""
        return await self._read(name, deed)

    async def deed(self, name: str, deed: Callable[[], Awaitable[T]]) -> T:
        return await self._write(name, deed, lambda _: None)

    async def _may_fail(self, name: str) -> None:
        if self.troubles.is_cut(self.host.name):
            await asyncio.sleep(TIMEOUT_NS / NS)
            raise Unavailable(f"{name}: the store does not answer; try again", retry_after_ms=RETRY_AFTER_MS)
        if self.troubles.down or self._strikes("store_fails"):
            await asyncio.sleep(self.chance.delay_ns(LATENCY_NS) / NS)
            raise Unavailable(f"{name}: the store cannot be reached; try again", retry_after_ms=RETRY_AFTER_MS)

    def _happen(
        self, deed: Callable[[], Awaitable[T]], done: Callable[[T], None], latency_ns: int,
        *, in_order: bool = True,
    ) -> "asyncio.Future[T]":  # fmt: skip
        """The deed at one instant of the future, by the world: the host may be dead by then."""
        loop = self.world.loop
        when_ns = loop.now_ns + latency_ns
        if in_order:
            when_ns = self._free_ns = max(when_ns, self._free_ns + 1)
        answer: asyncio.Future[T] = loop.create_future()
        self.world.at_ns(when_ns, self._do, deed, done, answer)
        return answer

    def _do(self, deed: Callable[[], Awaitable[T]], done: Callable[[T], None], answer: "asyncio.Future[T]") -> None:
        if self.process.dead and self.chance.happens(0.5):
            return  # it was still on the way; the other half had arrived
        try:
            result = at_once(deed())
        except SimulationError:
            raise
        except Exception as error:
            if not answer.done() and not self.process.dead:
                answer.set_exception(error)
                answer.exception()  # who timed out never asks
            return
        done(result)
        if not answer.done():
            answer.set_result(result)

    def _latency_ns(self, name: str) -> int:
        latency_ns = self.chance.delay_ns(LATENCY_NS)
        if self.world.faults.store_slow and self.world.strikes(self.chance, f"{self.host.name} {name}", "store_slow"):
            latency_ns *= SLOW
        return latency_ns

    def _strikes(self, fault: str) -> bool:
        return self.world.strikes(self.chance, self.host.name, fault)


def at_once(deed: Awaitable[T]) -> T:
    """Run to its end what never really waits. A memory store has nothing to wait for."""
    steps = deed.__await__()
    try:
        while (waits_for := next(steps)) is None:
            pass
    except StopIteration as end:
        result: T = end.value
        return result
    if isinstance(deed, Coroutine):
        deed.close()
    raise SimulationError(f"a store inside SimStore must not wait, but it waits for {waits_for!r}")
