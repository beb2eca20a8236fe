"""The writer with its connection, and the checkpointer beside it.

It is used by one thread at a time, which may be one of ours (`threads`) or the only one of a process (`process`).
`beside` hands a job to the checkpointer's thread, `here` hands one back to be done between two jobs.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.writer.checkpointer import Checkpointer
from tickwork.stores.sqlite.writer.transactions import Failpoints, WriterTransactions, explained, is_sync, sync_failed

Post = Callable[[Callable[[], None]], None]


class WriterRuntime:
    def __init__(
        self, path: Path, synchronous: str, failpoints: Failpoints, *, beside: Post, here: Post, upgrade: bool = True
    ) -> None:
        self._path = path
        self._upgrade = upgrade
        self._synchronous = synchronous
        self._failpoints = failpoints
        self._beside = beside
        self._here = here
        self.writer: WriterTransactions | None = None
        self._checkpointer: Checkpointer | None = None

    def do(self, name: str, *args: Any) -> Any:
        """Run a method of the writer, by its name."""
        checkpointer = self._checkpointer
        if checkpointer is not None and checkpointer.failed is not None and is_sync(checkpointer.failed):
            raise sync_failed(checkpointer.failed)  # pages that the log may soon write over are perhaps not on disk
        return getattr(self.writer, name)(*args)

    def open(self) -> None:
        """Open for the first time, with all checks."""
        self._use(opening.bring_up(self._path, self._synchronous, upgrade=self._upgrade))

    def reopen(self) -> None:
        """After a commit of unknown outcome. Only a whole checkpoint brings what the log holds to disk for certain."""
        try:
            connection = opening.connect(self._path, self._synchronous)
        except apsw.Error as error:
            raise explained(error) from error
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            system_errno = connection.system_errno
            connection.close()
            raise (sync_failed(error) if is_sync(error) else explained(error, system_errno=system_errno)) from error
        self._use(connection)

    def _use(self, connection: apsw.Connection) -> None:
        writer = WriterTransactions(connection, self._failpoints, synchronous=self._synchronous)
        try:
            copying = opening.connect(self._path, self._synchronous)
        except apsw.Error as error:
            connection.close()
            raise explained(error) from error
        self.writer, self._checkpointer = writer, Checkpointer(copying, writer.hit)
        if self._synchronous != "OFF":  # without syncs there is nothing to be gained by it
            opening.reserve_log(self._path)
        connection.set_wal_hook(self._committed)

    def close(self, whole: bool) -> None:
        writer, checkpointer = self.writer, self._checkpointer
        self.writer = self._checkpointer = None
        if checkpointer is not None:
            checkpointer.close()
        if writer is not None:
            _close(writer.connection, whole=whole)

    # ---- the log

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """After each commit."""
        if (checkpointer := self._checkpointer) is not None and checkpointer.due(pages):
            self._beside(lambda: self._copy(checkpointer))
        return apsw.SQLITE_OK

    def _copy(self, checkpointer: Checkpointer) -> None:
        if checkpointer.copy():
            self._here(lambda: self._finish(checkpointer))

    def _finish(self, checkpointer: Checkpointer) -> None:
        if checkpointer is self._checkpointer and self.writer is not None:
            checkpointer.finish(self.writer.connection)


def _close(connection: apsw.Connection, *, whole: bool) -> None:
    if whole:
        with suppress(apsw.Error):  # then the log stays beside the database; the next to open it reads it
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.set_wal_hook(None)
    connection.close(force=True)
