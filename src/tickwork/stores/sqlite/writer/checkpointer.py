"""Moving the write-ahead log into the database beside the commits, not in their way.

A thread of its own copies what is in the log every few MiB. Under steady load it never quite catches up, and a log
that is never caught up with never starts over; so the writer copies what has come meanwhile between two commits, if
that is little, or once the log is long. Then the next commit starts the log from its beginning, where the file has its
space already. The inline writer may commit at the same moment; then it is tried again a little later, while that rests.
"""

from collections.abc import Callable
from threading import Lock

import apsw

STEP_PAGES = 1024  # 4 MiB: how much is committed between two copies
FEW_PAGES = STEP_PAGES // 4  # that came during a copy: the writer finishes it
FULL_PAGES = STEP_PAGES + FEW_PAGES  # by now the log should have started over
LONG_PAGES = 8 * STEP_PAGES  # from here on the writer finishes, whatever came


class Checkpointer:
    def __init__(self, connection: apsw.Connection, hit: Callable[[str], None]) -> None:
        self.connection = connection
        self._hit = hit
        self._pages = self._copied_at = 0
        self._busy = False
        self._using = Lock()
        self._closed = False
        self.failed: apsw.Error | None = None  # the last copy

    def close(self) -> None:
        """When the copy that is under way has ended."""
        with self._using:
            self._closed = True
            self.connection.close()

    def due(self, pages: int) -> bool:
        """After each commit, on the writer's thread: is it time to copy?"""
        self._pages = pages
        if pages < self._copied_at:  # the log started over
            self._copied_at = 0
        if self._busy or pages - self._copied_at < STEP_PAGES:
            return False
        self._busy, self._copied_at = True, pages
        return True

    def copy(self) -> bool:
        """On the checkpointer's thread. True where the writer is to finish the copy."""
        with self._using:
            try:
                if self._closed:
                    return False
                copied = self._copy(self.connection)
                return self._pages - copied <= FEW_PAGES or copied >= LONG_PAGES
            finally:
                self._busy = False

    def finish(self, writer: apsw.Connection) -> None:
        copied = self._copy(writer)
        self._copied_at = max(0, copied + FEW_PAGES - STEP_PAGES)  # where the log goes on all the same

    def _copy(self, connection: apsw.Connection) -> int:
        self._hit("before_checkpoint")
        try:
            pages, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._hit("after_checkpoint")
        except apsw.Error as error:
            self.failed = error
            return 0  # a full or failing disk: the log keeps everything, and the next commit says so
        return pages
