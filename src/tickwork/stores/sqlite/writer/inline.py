"""Small ticks committed at once, by the process that decided them, while the writer process has nothing to do.

To wake another process and be woken by it takes as long as the sync of a small commit. Under load the writer process
pays, because the next tick is decided meanwhile; at rest there is nothing else to do. After a slow commit a few are
left to that process, and twice as many each time that the one after them is slow too: the event loop seldom stands
still for a disk that is slow, and one hiccup of a fast one costs little. So are some while the log waits to start over,
because the writer process can do that only between two commits of its own.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from tickwork.journal.record import SealedRow
from tickwork.ports.store import Payload
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.writer.checkpointer import FULL_PAGES
from tickwork.stores.sqlite.writer.transactions import Failpoints, WriterTransactions, explained

SMALL_BYTES = 2_048  # of a row and its payloads
SLOW_S = 0.005  # a commit that takes longer
REST_COMMITS, REST_COMMITS_MAX = 4, 256  # is followed by so many of the writer process
CACHE_KIB = 1_024  # the end of the journal, and the head


class InlineWriter:
    def __init__(self, path: Path, synchronous: str, failpoints: Failpoints) -> None:
        self._path = path
        self._synchronous = synchronous
        self._failpoints = failpoints
        self._writer: WriterTransactions | None = None
        self._resting = 0
        self._rest = REST_COMMITS  # the next one

    def open(self) -> None:
        """Open after the writer process, which has brought the database up to date."""
        try:
            connection = opening.connect(self._path, self._synchronous, cache_kib=CACHE_KIB)
        except apsw.Error as error:
            raise explained(error) from error
        connection.set_wal_hook(self._committed)
        self._writer = WriterTransactions(connection, self._failpoints, synchronous=self._synchronous)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.connection.close()

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages >= FULL_PAGES:
            self._resting = REST_COMMITS
        return apsw.SQLITE_OK

    def fits(self, row: SealedRow, payloads: Sequence[Payload]) -> bool:
        if self._resting:
            self._resting -= 1
            return False
        size = len(row.data) + sum(len(payload.data) for payload in payloads)
        return self._writer is not None and size <= SMALL_BYTES

    def commit(self, partition: int, row: SealedRow, payloads: Sequence[Payload], epoch: int) -> None:
        assert self._writer is not None
        began = time.perf_counter()
        self._writer.commit(partition, row, payloads, epoch)
        if time.perf_counter() - began > SLOW_S:
            self._resting, self._rest = self._rest, min(self._rest * 2, REST_COMMITS_MAX)
        else:
            self._rest = REST_COMMITS
