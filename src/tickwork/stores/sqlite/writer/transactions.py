"""Everything that changes the database, on the writer's thread and connection.

Each method is one transaction that takes the write lock at once and begins with the fence. An error before
the commit statement means that nothing happened. An error of the commit statement itself means that nobody
knows; the one exception is a full disk, which SQLite notices before the frame that would make it count is whole.
"""

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import apsw
import msgspec
from msgspec.structs import astuple

from tickwork.core.base.errors import Corrupt, TickworkError, Unavailable
from tickwork.core.state.schedule import FateRange
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.ports.store import (
    Head,
    InboxRow,
    LogChunk,
    OutcomeUnknown,
    Payload,
    Route,
    Rows,
    StoreFull,
    SyncFailed,
)
from tickwork.stores import checksums
from tickwork.stores.fencing import commit_fenced, rows_fenced
from tickwork.stores.sqlite.archive import ArchiveWrites
from tickwork.stores.sqlite.run_blocks import RunBlocks
from tickwork.stores.sqlite.statements import queries

T = TypeVar("T")
_encode = msgspec.msgpack.Encoder().encode
RETRY_MS = 1_000
_SYNCS = frozenset([apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC])
Failpoints = Mapping[str, Callable[[], object]]


class WriterTransactions(ArchiveWrites):
    def __init__(self, connection: apsw.Connection, failpoints: Failpoints, *, synchronous: str) -> None:
        self.connection = connection
        self._synchronous = synchronous
        self.suspect = False  # the outcome of a commit is unknown: the store must be opened again before a read
        self._failpoints = failpoints
        self._sql = queries()
        self._run_blocks = RunBlocks(connection)

    def establish_identity(self, cluster: str, partitions: int) -> None:
        self._transaction(
            lambda: self._execute_one("found", cluster, partitions, checksums.of_fields(cluster, partitions))
        )

    def put_route(self, route: Route, over: Route | None) -> bool:
        return self._transaction(lambda: self._put_route(route, over))

    def add_inbox(self, rows: Sequence[InboxRow]) -> None:
        bindings = [(*astuple(row), checksums.of_row(row)) for row in rows]
        self._transaction(lambda: self._many("add_inbox", bindings))

    def drop_inbox(self, partition: int, ids: Sequence[str]) -> None:
        self._transaction(lambda: self._many("drop_inbox", [(partition, message_id) for message_id in ids]))

    def claim(self, partition: int, owner: str, settings: bytes) -> Head:
        def work() -> Head:
            head = self._claim(partition, owner, settings)
            self.hit("claim")
            return head

        return self._transaction(work)

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], epoch: int) -> None:
        self.hit("before_commit")
        self._transaction(lambda: self._commit(partition, row, payloads, epoch))

    def write_rows(self, partition: int, rows: Rows, epoch: int, through: int, head: bytes) -> None:
        """Not synced by themselves: the log is a chain, so the next commit takes them to disk with it. Until then a
        loss of power takes back rows and watermark together, and the journal has everything behind it."""
        self.hit("before_rows")
        self._synced(False)
        try:
            self._transaction(lambda: self._write_rows(partition, rows, epoch, through, head))
        finally:
            self._synced(True)
        self.hit("after_rows")

    def add_log_chunks(self, chunks: Sequence[LogChunk]) -> None:
        rows = [(*astuple(chunk), checksums.of_fields(*astuple(chunk))) for chunk in chunks]
        self._transaction(lambda: self._many("add_log_chunk", rows))

    # ---- transactions

    def _transaction(self, work: Callable[[], T]) -> T:
        if self.suspect:
            raise Unavailable("the store is being reopened", retry_after_ms=RETRY_MS)
        try:
            self.connection.execute("begin immediate")
            result = work()
            self.hit("before_commit_statement")
        except apsw.Error as error:
            system_errno = self.connection.system_errno  # before the rollback, which overwrites it
            self._roll_back()
            raise explained(error, system_errno=system_errno) from error
        except BaseException as error:
            self._roll_back()
            if isinstance(error, UnicodeDecodeError):
                raise Corrupt("a text in the database was damaged on disk: stop, and restore a backup") from None
            raise
        try:
            self.connection.execute("commit")
            self.hit("after_commit")
        except apsw.FullError as error:
            self._roll_back()
            raise _full() from error
        except apsw.Error as error:
            self.suspect = True
            self._roll_back()
            if is_sync(error):
                raise sync_failed(error) from error
            raise OutcomeUnknown(
                f"the commit failed with a disk error ({error}): read the head to learn what is stored",
                retry_after_ms=0,
            ) from error
        return result

    def _synced(self, synced: bool) -> None:
        """A pragma acts when it is compiled, so it is compiled each time."""
        if self._synchronous == "FULL":
            self.connection.execute(f"pragma synchronous = {'FULL' if synced else 'NORMAL'}", can_cache=False)

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            with suppress(apsw.Error):  # a rollback in the WAL only forgets; what went wrong is already on its way up
                self.connection.execute("rollback")

    def hit(self, failpoint: str) -> None:
        if (action := self._failpoints.get(failpoint)) is not None:
            action()

    def _execute_one(self, name: str, *bindings: Any) -> int:
        self.connection.execute(self._sql[name], bindings)
        return self.connection.changes()

    def _many(self, name: str, bindings: Iterable[tuple[Any, ...]]) -> None:
        self.connection.executemany(self._sql[name], bindings)

    # ---- what they do

    def _put_route(self, route: Route, over: Route | None) -> bool:
        if over is None:
            return bool(self._execute_one("add_route", *astuple(route), checksums.of_fields(*astuple(route))))
        if over.tenant != route.tenant:
            return False
        checksum = checksums.of_fields(*astuple(route))
        return bool(self._execute_one("replace_route", route.home, route.spread, checksum, *astuple(over)))

    def _claim(self, partition: int, owner: str, settings: bytes) -> Head:
        row = self.connection.execute(self._sql["read_head"], (partition,)).fetchone()
        if row is None:
            fields = {"id": partition, "epoch": 1, "owner": owner, "genesis": GENESIS}
            fields["checksum"] = checksums.of_epoch(partition, 1, owner)
            self.connection.execute(self._sql["claim_new"], fields)
            self._execute_one(
                "add_machine", partition, settings, checksums.of_bytes(0, settings), checksums.of_bytes(0, b"")
            )
            return Head(1)
        epoch, seq, tick, hash_, watermark, _, checksum, before = row
        known = checksums.of_epoch(partition, epoch, before)
        checksums.require(checksum == known, f"the epoch of partition {partition}")
        fields = {"id": partition, "epoch": epoch + 1, "owner": owner}
        fields["checksum"] = checksums.of_epoch(partition, epoch + 1, owner)
        self.connection.execute(self._sql["claim_again"], fields)
        return Head(epoch + 1, seq, tick, hash_, watermark)

    def _commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], epoch: int) -> None:
        if not self._execute_one("advance_head", row.seq, row.tick, row.hash, partition, epoch, row.seq - 1):
            raise commit_fenced(partition, epoch, seq=row.seq)
        self.hit("after_head")
        self._execute_one("add_journal_row", partition, row.seq, epoch, row.tick, row.hash, row.data)
        self.hit("after_journal")
        if payloads:
            self._many("add_payload", [(p.digest, p.data, checksums.of_bytes(0, p.data)) for p in payloads])

    def _write_rows(self, partition: int, rows: Rows, epoch: int, through: int, head: bytes) -> None:
        fields = {"id": partition, "epoch": epoch, "through": through, "head": head}
        self.connection.execute(self._sql["advance_watermark"], fields)
        if not self.connection.changes():
            raise rows_fenced(partition, epoch, through=through)
        if rows.header:
            self._execute_one("put_header", rows.header, checksums.of_bytes(0, rows.header), partition)
        self._write_live(rows)
        self.hit("mid_rows")
        if rows.reopened:
            self._reopen(rows.reopened)
        if rows.runs:
            self._run_blocks.put(rows.runs)
        self._write_beside(partition, rows)

    def _write_live(self, rows: Rows) -> None:
        of = checksums.of_bytes
        self._many("drop_live_run", [(number,) for number in rows.gone_runs])
        self._many("put_live_run", [(number, data, of(number, data)) for number, data in rows.live_runs])
        self._many("drop_live_task", [(number,) for number in rows.gone_tasks])
        self._many("put_live_task", [(number, data, of(number, data)) for number, data in rows.live_tasks])
        self._many("drop_schedule", [(number,) for number in rows.gone_schedules])
        self._many("put_schedule", [(number, data, of(number, data)) for number, data in rows.schedules])

    def _reopen(self, numbers: Sequence[int]) -> None:
        reopened, of = frozenset(numbers), checksums.of_bytes
        taken = self._run_blocks.take_out(reopened, lambda row: row.number in reopened)
        self._many(
            "add_attempts", [(row.number, row.attempts, of(row.number, row.attempts)) for row in taken if row.attempts]
        )

    def _write_beside(self, partition: int, rows: Rows) -> None:
        of, of_row, of_fields = checksums.of_bytes, checksums.of_row, checksums.of_fields
        self._many("add_attempts", [(run, data, of(run, data)) for run, data in rows.attempts])
        self._many(
            "put_definition",
            [
                (*row, of_fields(*row))
                for d in rows.definitions
                for row in [(d.tenant, d.hash, partition, d.name, d.document, d.put_ms)]
            ],
        )
        self._many("put_child", [(*row, of_fields(*row)) for row in map(astuple, rows.children)])
        self._many("put_fate", map(_fate_bindings, rows.fates))
        self._many("put_backfill", [(*row, of_fields(*row)) for row in map(astuple, rows.backfills)])
        self._many(
            "put_index", [(*row, of_fields(*row)) for row in [(partition, *astuple(entry)) for entry in rows.index]]
        )
        self._many("put_cache", [(c.key, c.value, c.kept_ms, of_row(c)) for c in rows.cache])


def _fate_bindings(span: FateRange) -> tuple[Any, ...]:
    row = (span.tenant, span.name, span.from_ms, span.schedule, span.backfill, span.to_ms, _encode(span))
    return (*row, checksums.of_fields(*row))


def explained(error: apsw.Error, *, system_errno: int = 0) -> TickworkError:
    """An error outside the commit statement: it changed nothing."""
    match error:
        case apsw.FullError():
            return _full()
        case apsw.IOError() if system_errno == errno.ENOSPC:  # the shared index of the WAL could not grow
            return _full()
        case apsw.CorruptError() | apsw.NotADBError() | apsw.SQLError():  # of the last: its schema is not ours
            return Corrupt(f"the database is damaged ({error}): stop, and restore a backup")
        case apsw.ConstraintError():
            return Corrupt(f"the database already holds something else ({error}): two histories are mixed")
        case _:
            return Unavailable(f"the database cannot be reached ({error}): try again", retry_after_ms=RETRY_MS)


def is_sync(error: apsw.Error) -> bool:
    """The system said that it could not bring something to disk: it says so once, and forgets."""
    return getattr(error, "extendedresult", 0) in _SYNCS


def sync_failed(error: apsw.Error) -> SyncFailed:
    return SyncFailed(
        f"fsync failed ({error}): nothing more is written here. Check the disk, "
        "then start again: the start reads what is really stored"
    )


def _full() -> StoreFull:
    return StoreFull("no space is left on the disk of the database: free some space", retry_after_ms=RETRY_MS)
