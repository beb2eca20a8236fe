"""The store port over one SQLite file.

Nothing here decides anything: which thread does it is in `connections`, what a transaction does in
`writer` and `reader`, and its words are in `queries.sql`.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Literal

from tickwork.core.base.errors import Unavailable
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
    Payload,
    Route,
    Rows,
    RunFilter,
    RunPage,
    RunRow,
)
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.connections import Connections, WriterHandle, WriterThread
from tickwork.stores.sqlite.maintenance import SqliteMaintenance
from tickwork.stores.sqlite.reader import Reader
from tickwork.stores.sqlite.threads import ResultDispatcher
from tickwork.stores.sqlite.writer.client import WriterClient
from tickwork.stores.sqlite.writer.transactions import RETRY_MS, Failpoints, WriterTransactions

PORTION = 256  # a millisecond's work, for which a commit may have to wait


class SqliteStore(SqliteMaintenance):
    """`network_allowed` lets the file lie on a network file system. `synchronous` below FULL loses acknowledged
    commits when the power goes: OFF is for tests, NORMAL only by a deliberate choice.
    `failpoints` are called at named steps of what this process does; crash tests end it in them. `apart` writes in a
    process of its own, which pays where this one is busy. Without `upgrade` an older schema is refused: for who only
    reads."""

    portion = PORTION

    def __init__(
        self,
        path: Path | str,
        *,
        network_allowed: bool = False,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
        failpoints: Failpoints | None = None,
        apart: bool = False,
        upgrade: bool = True,
    ) -> None:
        self.path = Path(path).absolute()
        self._network_allowed = network_allowed
        self._synchronous = synchronous
        self._failpoints: Failpoints = {} if failpoints is None else failpoints
        self._apart = apart
        self._upgrade = upgrade
        self._opened: Connections | None = None

    async def open(self) -> None:
        assert self._opened is None, "a store is opened once"
        opening.require_version()
        lock = opening.lock_file(self.path, network_allowed=self._network_allowed)
        answers = ResultDispatcher(asyncio.get_running_loop())
        connections = Connections(self.path, lock, self._writing(answers), answers, synchronous=self._synchronous)
        try:
            await connections.connect()
        except BaseException:
            await connections.close()
            raise
        self._opened = connections

    def _writing(self, answers: ResultDispatcher) -> WriterHandle:
        if self._apart:
            assert self._upgrade, "a read-only store needs no writer process"
            return WriterClient(self.path, synchronous=self._synchronous, failpoints=self._failpoints)
        return WriterThread(
            self.path, answers, synchronous=self._synchronous, failpoints=self._failpoints, upgrade=self._upgrade
        )

    async def close(self) -> None:
        connections, self._opened = self._opened, None
        if connections is not None:
            await connections.close()

    @property
    def _connections(self) -> Connections:
        if self._opened is None:
            raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
        return self._opened

    # ---- what all nodes share

    async def establish_identity(self, *, cluster: str, partitions: int) -> ClusterIdentity:
        await self._connections.write(WriterTransactions.establish_identity, cluster, partitions)
        return await self._connections.read(Reader.identity)

    async def read_routes(self) -> list[Route]:
        return await self._connections.read(Reader.routes)

    async def put_route(self, route: Route, *, over: Route | None) -> bool:
        return await self._connections.write(WriterTransactions.put_route, route, over)

    async def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        await self._connections.write(WriterTransactions.add_inbox, rows)

    async def read_inbox(self, partition: int, *, limit: int) -> list[InboxRow]:
        return await self._connections.read(Reader.inbox, partition, limit)

    async def drop_inbox(self, partition: int, ids: Sequence[str]) -> None:
        await self._connections.write(WriterTransactions.drop_inbox, partition, ids)

    # ---- the truth

    async def claim(self, partition: int, *, owner: str, settings: bytes) -> Head:
        return await self._connections.write(WriterTransactions.claim, partition, owner, settings)

    async def read_head(self, partition: int) -> Head:
        return await self._connections.read(Reader.head, partition)

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], *, epoch: int) -> Awaitable[None]:
        return self._connections.begin(WriterTransactions.commit, partition, row, payloads, epoch)

    async def write_rows(self, partition: int, rows: Rows, *, epoch: int, through: int, head: bytes) -> None:
        await self._connections.write(WriterTransactions.write_rows, partition, rows, epoch, through, head)

    async def load(self, partition: int) -> LoadedPartition:
        return await self._connections.read(Reader.load, partition)

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        return await self._connections.read(Reader.journal, partition, after, limit)

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        return await self._connections.read(Reader.seqs_at, partition, ticks)

    async def read_index(
        self, partition: int, *, kind: int, subjects: tuple[int, int], after: int, through: int
    ) -> list[IndexEntry]:
        return await self._connections.read(Reader.index, partition, kind, subjects, after, through)

    async def last_index(self, partition: int, *, kind: int, subject: int, through: int) -> IndexEntry | None:
        return await self._connections.read(Reader.last_index, partition, kind, subject, through)

    async def read_payloads(self, digests: Sequence[str]) -> dict[str, bytes]:
        return await self._connections.read(Reader.payloads, digests)

    # ---- what people ask for

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        return await self._connections.read(Reader.find_runs, tenant, ids, keys)

    async def list_runs(self, query: RunFilter) -> RunPage:
        return await self._connections.read(Reader.list_runs, query)

    async def read_attempts(self, run: int) -> list[bytes]:
        return await self._connections.read(Reader.attempts, run)

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        return await self._connections.read(Reader.children, run, step)

    async def read_cache(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        return await self._connections.read(Reader.cache, keys)

    async def read_definition(self, tenant: str, digest: str) -> DefinitionRow | None:
        return await self._connections.read(Reader.definition, tenant, digest)

    async def read_fates(self, tenant: str, schedule: str, *, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        return await self._connections.read(Reader.fates, tenant, schedule, from_ms, to_ms, limit)

    async def list_backfills(self, tenant: str, *, limit: int) -> list[BackfillRow]:
        return await self._connections.read(Reader.backfills, tenant, limit)

    async def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        await self._connections.write(WriterTransactions.add_log_chunks, chunks)

    async def read_log_chunks(self, task: int, attempt: int, *, after: int = -1) -> list[LogChunk]:
        return await self._connections.read(Reader.log_chunks, task, attempt, after)
