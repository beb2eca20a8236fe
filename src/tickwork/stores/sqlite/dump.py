"""Everything of one database as plain rows, and back; and a copy of a database that is being written.

SQLite makes the copy itself, because it knows which part of the log is valid: files copied by hand are not a backup.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import apsw
from msgspec.structs import astuple

from tickwork.core.base.errors import Corrupt
from tickwork.journal.record import GENESIS
from tickwork.ports.store import StoreUnusable, run_row
from tickwork.ports.store_maintenance import COLUMNS, StoreNotEmpty, TableBatch
from tickwork.stores import checksums
from tickwork.stores.run_blocks import NUMBER_MAX, Counts, require_outline, stretch_of
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.run_blocks import RunBlocks
from tickwork.stores.sqlite.writer.transactions import explained
from tickwork.system.private_files import private_file

ROWS = 500  # of a batch
PAGES_PER_STEP = 2_000

Row = tuple[Any, ...]
# The checksum of a row that has one; that of a payload is over its bytes, which its digest names.
SUMS: Mapping[str, Callable[[Row], int]] = MappingProxyType({
    **checksums.SUMS,
    "payloads": lambda row: checksums.of_bytes(0, row[1]),
})  # fmt: skip
_ORDER = {"attempts": "place", "archives": "object"}  # where the first columns are not the key


class Dump:
    """One moment, read on one thread. `close` it."""

    def __init__(self, path: Path) -> None:
        self._connection = opening.connect_reader(path, "OFF")
        self._connection.execute("begin")
        self._run_blocks = RunBlocks(self._connection)
        self._own = {"partitions": self._partitions, "runs": self._runs}
        self._batches = self._all()

    def next(self) -> TableBatch | None:
        try:
            return next(self._batches, None)
        except UnicodeDecodeError:
            raise Corrupt("a text in the database was damaged on disk: stop, and restore a backup") from None
        except apsw.Error as error:
            raise explained(error, system_errno=self._connection.system_errno) from error

    def close(self) -> None:
        self._connection.close()

    def _all(self) -> Iterator[TableBatch]:
        for table in COLUMNS:
            rows = self._own[table]() if table in self._own else self._plain(table)
            portion: list[Row] = []
            for row in rows:
                portion.append(row)
                if len(portion) == ROWS:
                    yield TableBatch(table, portion)
                    portion = []
            if portion:
                yield TableBatch(table, portion)

    def _plain(self, table: str) -> Iterator[Row]:
        if table == "payloads":
            odd = self._connection.execute("select digest from payloads where day <> day_again limit 1").fetchall()
            checksums.require(not odd, f"the day of payload {odd[0][0] if odd else ''}")
        names, summed = ", ".join(COLUMNS[table]), SUMS.get(table)
        order = _ORDER.get(
            table, names if table in ("journal", "children", "fates", "log_chunks", "journal_index") else "1, 2"
        )
        extra = ", checksum" if summed is not None else ""
        sql = f"select {names}{extra} from {table} order by {order}"  # noqa: S608 - names of our own
        for row in self._connection.execute(sql):
            if summed is None:
                yield row
                continue
            checksums.require(summed(row[:-1]) == row[-1], f"a row of {table} ({row[0]!r})")
            yield row[:-1]

    def _partitions(self) -> Iterator[Row]:
        of = checksums.of_bytes
        heads = (
            "select id, epoch, owner, seq, tick, hash, watermark, watermark_hash, checksum from partitions order by 1"
        )
        machines = "select settings, settings_checksum, header, header_checksum from machines where partition_id = ?"
        rows: list[Any] = self._connection.execute(heads).fetchall()
        for *head, checksum in rows:
            number = head[0]
            checksums.require(checksum == checksums.of_epoch(*head[:3]), f"the epoch of partition {number}")
            machine: Any = self._connection.execute(machines, (number,)).fetchone()
            checksums.require(machine is not None, f"the machine of partition {number}")
            settings, sum_, header, header_sum = machine
            checksums.require(sum_ == of(0, settings), f"the settings of partition {number}")
            checksums.require(header_sum == of(0, header), f"the header of partition {number}")
            yield (*head, settings, header, *self._cut(number))

    def _runs(self) -> Iterator[Row]:
        """What leads to runs is in tables of ours, so SQLite's own check does not compare the two."""
        counts = Counts()
        for _, some in groupby(self._run_blocks.checked(0, NUMBER_MAX), key=lambda block: stretch_of(block[0].first)):
            blocks = list(some)
            rows = sorted((row for _, rows in blocks for row in rows), key=lambda row: row.number)
            for outline, own in blocks:
                require_outline(outline, own)
            checksums.require(self._run_blocks.leads(rows), f"the index entry of run {rows[0].id} and its neighbours")
            counts.add(rows)
            yield from map(astuple, rows)
        for table, count in counts.expected().items():
            [(there,)] = self._connection.execute(f"select count(*) from {table}").fetchall()  # noqa: S608
            checksums.require(count == there, f"the index of runs ({table})")

    def _cut(self, partition: int) -> Row:
        """The last row that is only in the archive."""
        sql = """select last, tick, hash from archives
                  where partition_id = ? and kind = 'journal' order by last desc limit 1"""
        return self._connection.execute(sql, (partition,)).fetchone() or (0, 0, GENESIS)


class Load:
    """All or nothing, on one thread."""

    def __init__(self, path: Path) -> None:
        self._connection = opening.connect(path, "FULL")
        try:
            self._run_blocks = RunBlocks(self._connection)
            self._connection.execute("begin immediate")
            for table in COLUMNS:
                held = "run_blocks" if table == "runs" else table
                if self._connection.execute(f"select 1 from {held} limit 1").fetchone():  # noqa: S608
                    raise StoreNotEmpty(str(path))
        except BaseException:
            self._connection.close()
            raise

    def take(self, batch: TableBatch) -> None:
        try:
            if batch.table == "partitions":
                for row in batch.rows:
                    self._partition(tuple(row))
            elif batch.table == "runs":
                self._run_blocks.put([run_row(row) for row in batch.rows])
            else:
                self._plain(batch)
        except apsw.Error as error:
            raise explained(error, system_errno=self._connection.system_errno) from error

    def _plain(self, batch: TableBatch) -> None:
        columns, summed = COLUMNS[batch.table], SUMS.get(batch.table)
        names = [*columns, *(["checksum"] if summed is not None else [])]
        if batch.table == "founded":
            names.append("one")
        marks = ", ".join(["?"] * len(names))
        sql = f"insert into {batch.table} ({', '.join(names)}) values ({marks})"  # noqa: S608 - names of our own
        rows = [tuple(row) for row in batch.rows]
        if summed is not None:
            rows = [(*row, summed(row)) for row in rows]
        if batch.table == "founded":
            rows = [(*row, 1) for row in rows]
        self._connection.executemany(sql, rows)

    def _partition(self, row: Row) -> None:
        of, head, settings, header = checksums.of_bytes, row[:8], row[8], row[9]
        sql = """insert into partitions (id, epoch, owner, seq, tick, hash, watermark, watermark_hash, checksum)
                 values (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
        self._connection.execute(sql, (*head, checksums.of_epoch(*row[:3])))
        sql = """insert into machines (partition_id, settings, settings_checksum, header, header_checksum)
                 values (?, ?, ?, ?, ?)"""
        self._connection.execute(sql, (row[0], settings, of(0, settings), header, of(0, header)))

    def finish(self) -> None:
        try:
            self._connection.execute(
                "update payloads set day = unixepoch() / 86400, day_again = unixepoch() / 86400"
            )  # by its own clock
            self._connection.execute("commit")
        except apsw.Error as error:
            raise explained(error, system_errno=self._connection.system_errno) from error

    def close(self) -> None:
        """What was not finished never happened."""
        self._connection.close()


def copy_live(path: Path, to: Path, progress: Callable[[int, int], None]) -> None:
    """A database as of one moment, also while a server writes it. `to` is a new file."""
    os.close(private_file(to))
    try:
        with (
            contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as source,
            contextlib.closing(apsw.Connection(str(to))) as target,
        ):
            source.set_busy_timeout(opening.BUSY_MS)
            source.execute("begin")  # one snapshot: writes meanwhile do not make it start over
            source.execute("select count(*) from sqlite_schema").fetchall()
            with target.backup("main", source, "main") as copying:
                while not copying.done:
                    copying.step(PAGES_PER_STEP)
                    progress(copying.page_count - copying.remaining, copying.page_count)
    except apsw.Error as error:
        to.unlink(missing_ok=True)
        raise StoreUnusable(f"{path} cannot be copied: {error}") from error
    except BaseException:
        to.unlink(missing_ok=True)
        raise
