"""The store port over PostgreSQL.

Nothing here decides anything: connections are in `connections`, what an error means in `errors`, and the words are in
`queries.sql` and in the functions of `schema.sql`. Each partition commits over a connection of its own, rows go over
another, so that neither waits for the other. Whatever a decision rests on is read from the primary; only lists for
people may come from a replica.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import astuple, replace

from tickwork.core.base.errors import Corrupt, Unavailable
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.artifacts import digest_of
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
    OutcomeUnknown,
    Payload,
    Route,
    Rows,
    RunFilter,
    RunPage,
    RunRow,
    StoreUnusable,
)
from tickwork.stores.checksums import of_bytes, of_epoch, of_fields, of_row, require
from tickwork.stores.fencing import commit_fenced, rows_fenced
from tickwork.stores.postgres import inbox_notices, run_blocks, writing
from tickwork.stores.postgres import rows as reading
from tickwork.stores.postgres.connections import (
    GENERIC,
    SCHEMA,
    Address,
    ConnectionPool,
    PostgresConnection,
    Transaction,
    address,
    client,
)
from tickwork.stores.postgres.eager_coroutine import begun
from tickwork.stores.postgres.errors import RETRY_MS, UNIQUE, sqlstate
from tickwork.stores.postgres.maintenance import PostgresMaintenance
from tickwork.stores.postgres.open import bring_up
from tickwork.stores.run_blocks import PendingRuns

COMMIT_S = 10.0
ROWS_S = 30.0
READ_S = 30.0
_COMMIT = {False: "commit", True: "commit_with_payloads"}  # with payloads or without
PORTION = 1_024  # rows have a connection of their own; a round trip and a fence for each few would cost more than they


class PostgresStore(PostgresMaintenance):
    """`pgbouncer`: a PgBouncer in transaction mode is between (`?pgbouncer=1` in the address says the same).
    `schema`: where several share a database (`?schema=NAME` in the address counts before it); `make` it where it is
    not there; `upgrade` it where it is older, else that is refused.
    `replica_dsn`: where lists for people are read, some moments old. `notes`, once it is open, tells what a person
    should know about the server."""

    portion = PORTION

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = SCHEMA,
        replica_dsn: str = "",
        pgbouncer: bool | None = None,
        readers: int = 3,
        rows_lines: int = 1,
        commit_s: float = COMMIT_S,
        make: bool = True,
        upgrade: bool = True,
    ) -> None:
        self._make = make
        self._upgrade = upgrade
        self.address = address(dsn, schema=schema, pgbouncer=pgbouncer)
        of_ours = self.address.schema  # a replica has the same, unless its address says otherwise
        self._replica = address(replica_dsn, schema=of_ours, pgbouncer=pgbouncer) if replica_dsn else None
        self._counts = (readers, rows_lines)
        self._commit_s = commit_s
        self._opened: _Connections | None = None
        self._seen: dict[int, tuple[int, int]] = {}  # epoch and seq that were acknowledged, by partition
        self._doubts: set[int] = set()  # partitions with an outcome that is not known
        self._writes: dict[int, tuple[int, int, Rows | None]] = {}  # epoch, count, and what is in doubt
        self.notes: list[str] = []

    async def open(self) -> None:
        assert self._opened is None, "a store is opened once"
        client()
        self.notes = await bring_up(self.address, make=self._make, upgrade=self._upgrade)
        readers, rows_lines = self._counts
        self._opened = _Connections(self.address, self._replica, readers, rows_lines, self._commit_s)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    @property
    def _at(self) -> "_Connections":
        if self._opened is None:
            raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
        return self._opened

    # ---- what all nodes share

    async def establish_identity(self, *, cluster: str, partitions: int) -> ClusterIdentity:
        await self._at.writers.fetch("found", cluster, partitions, of_fields(cluster, partitions))
        return ClusterIdentity(*reading.checked("founded", (await self._at.readers.fetch("read_founded"))[0]))

    async def identity(self) -> ClusterIdentity | None:
        """Return the identity of the cluster; None: the store has none yet."""
        for row in await self._at.readers.fetch("read_founded"):
            return ClusterIdentity(*reading.checked("founded", row))
        return None

    async def read_routes(self) -> list[Route]:
        return [Route(*reading.checked("routes", row)) for row in await self._at.readers.fetch("read_routes")]

    async def put_route(self, route: Route, *, over: Route | None) -> bool:
        row = (*astuple(route), of_fields(*astuple(route)))
        if over is None:
            return bool(await self._at.writers.fetch("add_route", *row))
        return over.tenant == route.tenant and bool(
            await self._at.writers.fetch("replace_route", *row, over.home, over.spread)
        )

    async def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        if rows:
            columns = zip(
                *[(row.partition, row.id, row.tenant, row.data, row.by, of_row(row)) for row in rows], strict=True
            )
            await self._at.writers.fetch("add_inbox", *columns)

    async def read_inbox(self, partition: int, *, limit: int) -> list[InboxRow]:
        rows = []
        for *fields, checksum in await self._at.readers.fetch("read_inbox", partition, max(limit, 0)):
            row = InboxRow(*fields)
            require(checksum in (0, of_row(row)), f"the inbox row {row.id}")  # 0: it came by SQL
            rows.append(row)
        return rows

    async def drop_inbox(self, partition: int, ids: Sequence[str]) -> None:
        if ids:
            await self._at.writers.fetch("drop_inbox", partition, list(ids))

    async def await_notices(self, wake: Callable[[], None]) -> None:
        await inbox_notices.await_notices(self.address, wake)

    # ---- the truth

    async def claim(self, partition: int, *, owner: str, settings: bytes) -> Head:
        async def work(talk: Transaction) -> list[Any]:
            for before, by, checksum in await talk.fetch("lock_epoch", partition):
                require(checksum == of_epoch(partition, before, by), f"the epoch of partition {partition}")
            ((epoch,),) = await talk.fetch("claim", partition, owner, GENESIS)
            await talk.fetch("sign_claim", partition, of_epoch(partition, epoch, owner))
            await talk.fetch("claim_watermark", partition, epoch, GENESIS)
            await talk.fetch("add_machine", partition, settings, of_bytes(0, settings), of_bytes(0, b""))
            return await talk.fetch("read_head", partition)  # after the locks: what was under way has ended

        rows = await self._at.commits(partition).together(work, "claim")
        head = reading.head_of(partition, rows)
        self._must_not_go_back(partition, head, self._seen.get(partition, (0, 0)))
        self._seen[partition] = (head.epoch, head.seq)
        self._writes[partition] = (head.epoch, rows[0]["writes"], None)
        self._doubts.discard(partition)
        return head

    async def read_head(self, partition: int) -> Head:
        if partition in self._doubts:
            await self._at.commits(partition).fetch("settle", partition)
            self._doubts.discard(partition)
        seen = self._seen.get(partition, (0, 0))  # before it is read: a commit may be acknowledged meanwhile
        head = reading.head_of(partition, await self._at.readers.fetch("read_head", partition))
        self._must_not_go_back(partition, head, seen)
        return head

    def _must_not_go_back(self, partition: int, head: Head, seen: tuple[int, int]) -> None:
        """What was acknowledged is there, or this is not the database that acknowledged it."""
        if (head.epoch, head.seq) < seen or head.seq < seen[1]:
            raise StoreUnusable(
                f"partition {partition} stands at epoch {head.epoch}, seq {head.seq}, but epoch {seen[0]}, "
                f"seq {seen[1]} was acknowledged: this PostgreSQL has lost commits, as after a fail-over to "
                "a replica that lagged. "
                "Start the server that has them, or restart all nodes to go on without them"
            )

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], *, epoch: int) -> Awaitable[None]:
        """On its way when this returns, where nothing stands before it and its statement is known there."""
        line = self._opened.commits(partition) if self._opened is not None else None
        writing = self._commit(partition, row, payloads, epoch)
        return begun(writing) if line is not None and line.is_ready(_COMMIT[bool(payloads)]) else writing

    async def _commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], epoch: int) -> None:
        line = self._at.commits(partition)
        values = (partition, epoch, row.seq, row.tick, row.hash, row.data)
        try:
            if payloads:
                digests, data = zip(*[(payload.digest, payload.data) for payload in payloads], strict=True)
                done = await line.fetch(_COMMIT[True], *values, digests, data)
            else:
                done = await line.fetch(_COMMIT[False], *values)
        except OutcomeUnknown:
            self._doubts.add(partition)
            raise
        except Corrupt as error:
            if error.__cause__ is None or sqlstate(error.__cause__) != UNIQUE:
                raise
            done = []  # this seq is written already: by us, where an answer was lost, or by another
        if not done:
            raise commit_fenced(partition, epoch, seq=row.seq)
        self._seen[partition] = (epoch, row.seq)

    async def write_rows(self, partition: int, rows: Rows, *, epoch: int, through: int, head: bytes) -> None:
        """Not synced by themselves: the server's log is one, so the next commit takes them to disk with it. Until
        then a crash takes back rows and watermark together, and the journal has everything behind it."""
        portion = PendingRuns(rows.runs)
        near = await run_blocks.near(self._at.readers.fetch, portion) if rows.runs else []
        plain = not rows.reopened and portion.is_new(near) and not portion.crowded(near)
        count = await self._count(partition, epoch, rows)
        self._writes[partition] = (epoch, count, rows)
        fence = [partition, epoch, count, through, head]
        try:
            done = await (self._added(rows, fence, portion) if plain else self._replaced(rows, fence, portion))
        except OutcomeUnknown:
            self._doubts.add(partition)
            raise
        except BaseException:
            self._writes.pop(partition, None)
            raise
        if not done:
            self._writes.pop(partition, None)
            raise rows_fenced(partition, epoch, through=through)
        self._writes[partition] = (epoch, count + 1, None)

    async def _added(self, rows: Rows, fence: list[Any], portion: PendingRuns) -> int:
        name, args = writing.statement(rows, fence, portion)
        return int((await self._at.rows.fetch(name, *args))[0][0])

    async def _replaced(self, rows: Rows, fence: list[Any], portion: PendingRuns) -> int:
        """Some ended runs are live again, or may be there already, as after a crash; or small blocks are to be one.
        Behind the fence it is certain."""
        reopened = frozenset(rows.reopened)
        others = replace(rows, runs=[], attempts=[])
        name, args = writing.statement(others, fence, PendingRuns([]))

        async def work(talk: Transaction) -> int:
            done = int((await talk.fetch(name, *args))[0][0])
            if done != writing.WRITTEN:
                return done
            taken = await run_blocks.take_out(talk, reopened, lambda row: row.number in reopened)
            attempts = [(row.number, row.attempts) for row in taken if row.attempts] + rows.attempts
            if attempts:
                await talk.fetch("add_attempts", *run_blocks.columns(writing.summed(attempts), 3))
            if rows.runs:
                await run_blocks.put(talk, portion)
            return done

        return await self._at.rows.together(work, "write_rows")

    async def _count(self, partition: int, epoch: int, rows: Rows) -> int:
        """How many writes of rows there were. One whose answer was lost is tried under the same count, so that it
        happens once."""
        kept = self._writes.get(partition)
        if kept is not None and kept[0] == epoch and (kept[2] is None or kept[2] is rows):
            return kept[1]
        counts = await self._at.rows.fetch("read_writes", partition, epoch)
        return int(counts[0][0]) if counts else 0

    async def load(self, partition: int) -> LoadedPartition:
        await self._at.commits(partition).open()  # a partition that is loaded will be written soon
        return await self._at.readers.together(
            lambda talk: reading.load(talk, partition), "load", mode="isolation level repeatable read read only"
        )

    async def journal(self, partition: int, *, after: int, limit: int) -> list[SealedRow]:
        rows = await self._at.readers.fetch("read_journal", partition, after, limit)
        return reading.journal_of(partition, after, rows)

    async def seqs_at(self, partition: int, ticks: Sequence[int]) -> dict[int, int]:
        rows = await self._at.readers.fetch("seqs_at", partition, list(ticks))
        return dict(rows)

    async def read_index(
        self, partition: int, *, kind: int, subjects: tuple[int, int], after: int, through: int
    ) -> list[IndexEntry]:
        rows = await self._at.readers.fetch("read_index", partition, kind, *subjects, after, through)
        return [IndexEntry(*reading.checked("journal_index", row)[1:]) for row in rows]

    async def last_index(self, partition: int, *, kind: int, subject: int, through: int) -> IndexEntry | None:
        rows = await self._at.readers.fetch("last_index", partition, kind, subject, through)
        return IndexEntry(*reading.checked("journal_index", rows[0])[1:]) if rows else None

    async def read_payloads(self, digests: Sequence[str]) -> dict[str, bytes]:
        payloads: dict[str, bytes] = dict(await self._at.readers.fetch("read_payloads", list(digests)))
        for digest, data in payloads.items():
            require(digest_of(data) == digest, f"the payload {digest}")
        return payloads

    # ---- what people ask for

    async def find_runs(self, tenant: str, *, ids: Sequence[str] = (), keys: Sequence[str] = ()) -> list[RunRow]:
        return await run_blocks.find(self._at.readers.fetch, tenant, ids, keys)

    async def list_runs(self, query: RunFilter) -> RunPage:
        return await run_blocks.listed(self._at.list, query)

    async def read_attempts(self, run: int) -> list[bytes]:
        rows = await self._at.readers.fetch("read_attempts", run)
        earlier = [reading.checked("attempts", (run, *row))[1] for row in rows]
        last = await run_blocks.numbered(self._at.readers.fetch, [run])
        return earlier + [row.attempts for row in last if row.attempts]

    async def read_children(self, run: int, step: int) -> list[tuple[int, bytes]]:
        rows = await self._at.readers.fetch("read_children", run, step)
        return [reading.checked("children", (run, step, *row))[2:] for row in rows]

    async def read_cache(self, keys: Sequence[str]) -> dict[str, CacheRow]:
        rows = await self._at.readers.fetch("read_cache", list(keys))
        cached = {row["key"]: CacheRow(*reading.checked("cache", row)) for row in rows}
        return {key: cached[key] for key in keys if key in cached}

    async def read_definition(self, tenant: str, digest: str) -> DefinitionRow | None:
        rows = await self._at.readers.fetch("read_definition", tenant, digest)
        if not rows:
            return None
        owner, hash_, _, name, document, put_ms = reading.checked("definitions", rows[0])
        return DefinitionRow(hash_, owner, name, document, put_ms)

    async def read_fates(self, tenant: str, schedule: str, *, from_ms: int, to_ms: int, limit: int) -> list[FateRange]:
        rows = await self._at.list("read_fates", tenant, schedule, to_ms, from_ms, max(limit, 0))
        return [reading.decode_range(reading.checked("fates", row)[-1]) for row in rows]

    async def list_backfills(self, tenant: str, *, limit: int) -> list[BackfillRow]:
        rows = await self._at.list("list_backfills", tenant, max(limit, 0))
        return [BackfillRow(*reading.checked("backfills", row)) for row in rows]

    async def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        if chunks:
            rows = [(*row, of_fields(*row)) for row in map(astuple, chunks)]
            await self._at.writers.fetch("add_log_chunks", *zip(*rows, strict=True))

    async def read_log_chunks(self, task: int, attempt: int, *, after: int = -1) -> list[LogChunk]:
        rows = await self._at.list("read_log_chunks", task, attempt, after)
        return [LogChunk(*reading.checked("log_chunks", row)) for row in rows]

    # ---- for operators

    async def horizon_age_ms(self) -> int:
        """Return how long the oldest snapshot has been held: rows that died meanwhile cannot be cleared away."""
        return int((await self._at.readers.fetch("read_horizon"))[0][0])

    async def time_ms(self) -> int:
        """The time by the server's clock."""
        return int((await self._at.readers.fetch("read_time"))[0][0])


class _Connections:
    """Which statement goes where."""

    def __init__(
        self, primary: Address, replica: Address | None, readers: int, rows_lines: int, commit_s: float
    ) -> None:
        self._primary = primary
        self._commit_s = commit_s
        self._commits: dict[int, PostgresConnection] = {}
        self.rows = ConnectionPool(
            lambda: PostgresConnection(primary, changes=True, timeout_s=ROWS_S, settings=GENERIC), count=rows_lines
        )
        self.writers = ConnectionPool(lambda: PostgresConnection(primary, changes=True, timeout_s=commit_s), count=1)
        self.readers = ConnectionPool(
            lambda: PostgresConnection(primary, changes=False, timeout_s=READ_S), count=readers
        )
        self.replica: ConnectionPool | None = None
        if replica is not None:
            self.replica = ConnectionPool(
                lambda: PostgresConnection(replica, changes=False, timeout_s=READ_S), count=readers
            )

    async def list(self, name: str, *args: Any) -> Sequence[Any]:
        """For people: from a replica where there is one, and from the primary while it is away."""
        if self.replica is not None:
            with suppress(Unavailable):
                return await self.replica.fetch(name, *args)
        return await self.readers.fetch(name, *args)

    def commits(self, partition: int) -> PostgresConnection:
        line = self._commits.get(partition)
        if line is None:
            line = PostgresConnection(self._primary, changes=True, timeout_s=self._commit_s, settings=GENERIC)
            self._commits[partition] = line
        return line

    async def close(self) -> None:
        for lines in (self.rows, self.writers, self.readers, self.replica):
            if lines is not None:
                await lines.close()
        for line in self._commits.values():
            await line.close()
