"""Three threads with a connection each, over one locked file.

After a commit whose outcome is not known, all three are closed and opened again before anybody reads: what a
log holds after an error is settled only by reading it anew, and only a whole checkpoint brings it to disk for certain,
because the system may count pages as written whose writing failed.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tickwork.core.errors import Unavailable
from tickwork.stores.sqlite import opening
from tickwork.stores.sqlite.checkpoints import Checkpointer
from tickwork.stores.sqlite.lock import FileLock
from tickwork.stores.sqlite.reading import Reader
from tickwork.stores.sqlite.threads import Answers, JobThread
from tickwork.stores.sqlite.writing import RETRY_MS, Failpoints, Writer, explained

T = TypeVar("T")


class Connections:
    def __init__(self, path: Path, lock: FileLock, *, synchronous: str, failpoints: Failpoints) -> None:
        self._path = path
        self._lock = lock
        self._synchronous = synchronous
        self._failpoints = failpoints
        self._mending = asyncio.Lock()
        self._closed = False
        answers = Answers(asyncio.get_running_loop())
        self._writing = JobThread("sqlite writer", answers)
        self._reading = JobThread("sqlite reader", answers)
        self._copying = JobThread("sqlite checkpointer", answers)
        self._writer: Writer | None = None
        self._reader: Reader | None = None
        self._checkpointer: Checkpointer | None = None

    async def write(self, name: str, *args: Any) -> Any:
        writer = self._writer if self._sound() else await self._mended()
        assert writer is not None
        return await self._writing.ask(getattr(writer, name), *args)

    async def read(self, name: str, *args: Any) -> Any:
        if not self._sound():
            await self._mended()
        assert self._reader is not None
        return await self._reading.ask(self._reader.read, name, *args)

    async def connect(self) -> None:
        connection = await self._writing.ask(opening.bring_up, self._path, self._synchronous)
        await self._take_up(connection)

    async def _take_up(self, connection: apsw.Connection) -> None:
        writer = Writer(connection, self._failpoints)
        try:
            reader = await self._reading.ask(opening.connect_reader, self._path, self._synchronous)
            copying = await self._copying.ask(opening.connect, self._path, self._synchronous)
        except apsw.Error as error:
            await self._writing.ask(connection.close)
            raise explained(error) from error
        self._reader, self._checkpointer = Reader(reader), Checkpointer(copying, writer.hit)
        self._writer = writer
        connection.set_wal_hook(self._committed)

    async def close(self) -> None:
        """What was asked before is done first. The log goes into the database, so that one file is all there is."""
        async with self._mending:
            self._closed = True
            await self._put_down(whole=self._sound())
        await self.stop()

    async def stop(self) -> None:
        for thread in (self._writing, self._reading, self._copying):
            await thread.stop()
        self._lock.release()

    def _sound(self) -> bool:
        return self._writer is not None and not self._writer.suspect

    async def _mended(self) -> Writer:
        async with self._mending:
            if self._closed:
                raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
            if not self._sound():
                await self._put_down(whole=False)
                await self._take_up(await self._writing.ask(self._reopened))
            assert self._writer is not None
            return self._writer

    def _reopened(self) -> apsw.Connection:
        try:
            connection = opening.connect(self._path, self._synchronous)
        except apsw.Error as error:
            raise explained(error) from error
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            system_errno = connection.system_errno
            connection.close()
            raise explained(error, system_errno=system_errno) from error
        return connection

    async def _put_down(self, *, whole: bool) -> None:
        writer, reader, checkpointer = self._writer, self._reader, self._checkpointer
        self._writer = self._reader = self._checkpointer = None
        if checkpointer is not None:
            await self._copying.ask(checkpointer.connection.close)
        if reader is not None:
            await self._reading.ask(reader.connection.close)
        if writer is not None:
            await self._writing.ask(_close, writer.connection, whole)

    # ---- the log

    def _committed(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """On the writer's thread, after each commit."""
        if (checkpointer := self._checkpointer) is not None and checkpointer.due(pages):
            self._copying.post(lambda: self._copy(checkpointer))
        return apsw.SQLITE_OK

    def _copy(self, checkpointer: Checkpointer) -> None:
        if checkpointer is self._checkpointer and checkpointer.copy():
            self._writing.post(lambda: self._finish(checkpointer))

    def _finish(self, checkpointer: Checkpointer) -> None:
        if checkpointer is self._checkpointer and self._writer is not None:
            checkpointer.finish(self._writer.connection)


def _close(connection: apsw.Connection, whole: bool) -> None:
    if whole:
        with suppress(apsw.Error):  # then the log stays beside the database; the next to open it reads it
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.set_wal_hook(None)
    connection.close(force=True)
