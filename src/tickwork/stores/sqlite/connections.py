"""A hand that writes and a thread that reads, over one locked file.

After a commit whose outcome is not known, every connection is closed and opened again before anybody reads: what a
log holds after an error is settled only by reading it anew, and only a whole checkpoint brings it to disk for certain,
because the system may count pages as written whose writing failed.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, Protocol

import apsw

from tickwork.core.base.errors import Unavailable
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.file_lock import FileLock
from tickwork.stores.sqlite.reader import Reader
from tickwork.stores.sqlite.threads import JobThread, ResultDispatcher
from tickwork.stores.sqlite.writer.runtime import WriterRuntime
from tickwork.stores.sqlite.writer.transactions import RETRY_MS, Failpoints, explained


class WriterHandle(Protocol):
    """Where the hand is. Jobs are done in the order in which they were asked."""

    @property
    def sound(self) -> bool:
        """It is open, and no commit's outcome is unknown."""

    async def bring_up(self) -> None: ...

    async def reopen(self) -> None: ...

    async def put_down(self, *, whole: bool) -> None: ...

    async def stop(self) -> None: ...

    def ask(self, name: str, *args: Any) -> Awaitable[Any]:
        """A method of the writer, with its answer or its error."""


class WriterThread:
    """The hand in this process."""

    def __init__(
        self, path: Path, answers: ResultDispatcher, *, synchronous: str, failpoints: Failpoints, upgrade: bool = True
    ) -> None:
        self._thread = JobThread("sqlite writer", answers)
        self._copying = JobThread("sqlite checkpointer", answers)
        self.hand = WriterRuntime(
            path, synchronous, failpoints, beside=self._copying.post, here=self._thread.post, upgrade=upgrade
        )

    @property
    def sound(self) -> bool:
        writer = self.hand.writer
        return writer is not None and not writer.suspect

    async def bring_up(self) -> None:
        await self._thread.ask(self.hand.bring_up)

    async def reopen(self) -> None:
        await self._thread.ask(self.hand.reopen)

    async def put_down(self, *, whole: bool) -> None:
        await self._thread.ask(self.hand.put_down, whole)

    async def stop(self) -> None:
        await self._thread.stop()
        await self._copying.stop()

    def ask(self, name: str, *args: Any) -> Awaitable[Any]:
        return self._thread.ask(self.hand.do, name, *args)


class Connections:
    def __init__(
        self, path: Path, lock: FileLock, writing: WriterHandle, answers: ResultDispatcher, *, synchronous: str
    ) -> None:
        self._path = path
        self._lock = lock
        self._synchronous = synchronous
        self._mending = asyncio.Lock()
        self._closed = False
        self.writing = writing
        self._reading = JobThread("sqlite reader", answers)
        self._reader: Reader | None = None

    def begin(self, name: str, *args: Any) -> Awaitable[Any]:
        """On its way when this returns, unless something has to be mended first."""
        return self.writing.ask(name, *args) if self.writing.sound else self.write(name, *args)

    async def write(self, name: str, *args: Any) -> Any:
        if not self.writing.sound:
            await self._mend()
        return await self.writing.ask(name, *args)

    async def read(self, name: str, *args: Any) -> Any:
        if not self.writing.sound:
            await self._mend()
        assert self._reader is not None
        return await self._reading.ask(self._reader.read, name, *args)

    async def connect(self) -> None:
        await self.writing.bring_up()
        await self._open_reader()

    async def _open_reader(self) -> None:
        try:
            reader = await self._reading.ask(opening.connect_reader, self._path, self._synchronous)
        except apsw.Error as error:
            await self.writing.put_down(whole=False)
            raise explained(error) from error
        self._reader = Reader(reader)

    async def close(self) -> None:
        """What was asked before is done first. The log goes into the database, so that one file is all there is."""
        async with self._mending:
            self._closed = True
            await self._put_down(whole=self.writing.sound)
        await self.stop()

    async def stop(self) -> None:
        await self.writing.stop()
        await self._reading.stop()
        self._lock.release()

    async def _mend(self) -> None:
        async with self._mending:
            if self._closed:
                raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
            if not self.writing.sound:
                await self._put_down(whole=False)
                await self.writing.reopen()
                await self._open_reader()

    async def _put_down(self, *, whole: bool) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await self._reading.ask(reader.connection.close)
        await self.writing.put_down(whole=whole)
