"""Moving the write-ahead log into the database beside the commits, not in their way.

A thread of its own copies what is in the log every few MiB. Under steady load it never quite catches up, and a log
that is never caught up with is never begun anew; so once it is long, the writer copies the little that is left
between two commits. Then the next commit starts the log from its beginning.
"""

from collections.abc import Callable
from threading import Lock

import apsw

STEP_PAGES = 1024  # 4 MiB: how much is committed between two copies
LONG_PAGES = 8 * STEP_PAGES  # from here on the writer helps


class Checkpointer:
    def __init__(self, connection: apsw.Connection, hit: Callable[[str], None]) -> None:
        self.connection = connection
        self._hit = hit
        self._asked_at = 0
        self._busy = False
        self._using = Lock()
        self._closed = False

    def close(self) -> None:
        """When the copy that is under way has ended."""
        with self._using:
            self._closed = True
            self.connection.close()

    def due(self, pages: int) -> bool:
        """After each commit, on the writer's thread: is it time to copy?"""
        if pages < self._asked_at:  # the log began anew
            self._asked_at = 0
        if self._busy or pages - self._asked_at < STEP_PAGES:
            return False
        self._busy, self._asked_at = True, pages
        return True

    def copy(self) -> bool:
        """On the checkpointer's thread. True where the log is long and the writer is to finish the copy."""
        with self._using:
            try:
                return not self._closed and self._copy(self.connection) >= LONG_PAGES
            finally:
                self._busy = False

    def finish(self, writer: apsw.Connection) -> None:
        self._copy(writer)

    def _copy(self, connection: apsw.Connection) -> int:
        self._hit("before_checkpoint")
        try:
            pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            return 0  # a full or failing disk: the log keeps everything, and the next commit that fails says so
        self._hit("after_checkpoint")
        return pages
