"""A writer and a thread that reads, over one locked file.

After a commit whose outcome is not known, every connection is closed and opened again before anybody reads: what a
log holds after an error is settled only by reading it again, and only a whole checkpoint brings it to disk for certain,
because the system may count pages as written whose writing failed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar, TypeVarTuple

import apsw

from tickwork.core.base.errors import Unavailable
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.file_lock import FileLock
from tickwork.stores.sqlite.reader import Reader
from tickwork.stores.sqlite.threads import JobThread, ResultDispatcher
from tickwork.stores.sqlite.writer.runtime import WriterRuntime
from tickwork.stores.sqlite.writer.transactions import RETRY_MS, Failpoints, WriterTransactions, explained

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class WriterHandle(Protocol):
    """The writer, in a thread or a process. Its jobs run in the order of the calls."""

    @property
    def sound(self) -> bool:
        """It is open, and no commit's outcome is unknown."""

    async def open(self) -> None: ...

    async def reopen(self) -> None: ...

    async def close(self, *, whole: bool) -> None: ...

    async def stop(self) -> None: ...

    def run(self, method: Callable[[WriterTransactions, *Ts], T], *args: *Ts) -> Awaitable[T]:
        """Run a method of the writer, and return its result or raise its error."""


class WriterThread:
    """The writer in a thread of this process."""

    def __init__(
        self, path: Path, answers: ResultDispatcher, *, synchronous: str, failpoints: Failpoints, upgrade: bool = True
    ) -> None:
        self._thread = JobThread("sqlite writer", answers)
        self._copying = JobThread("sqlite checkpointer", answers)
        self.runtime = WriterRuntime(
            path, synchronous, failpoints, beside=self._copying.post, here=self._thread.post, upgrade=upgrade
        )

    @property
    def sound(self) -> bool:
        writer = self.runtime.writer
        return writer is not None and not writer.suspect

    async def open(self) -> None:
        await self._thread.ask(self.runtime.open)

    async def reopen(self) -> None:
        await self._thread.ask(self.runtime.reopen)

    async def close(self, *, whole: bool) -> None:
        await self._thread.ask(self.runtime.close, whole)

    async def stop(self) -> None:
        await self._thread.stop()
        await self._copying.stop()

    def run(self, method: Callable[[WriterTransactions, *Ts], T], *args: *Ts) -> Awaitable[T]:
        return self._thread.ask(self.runtime.do, method.__name__, *args)


class Connections:
    def __init__(
        self, path: Path, lock: FileLock, writing: WriterHandle, answers: ResultDispatcher, *, synchronous: str
    ) -> None:
        self._path = path
        self._lock = lock
        self._synchronous = synchronous
        self._reopening = asyncio.Lock()
        self._closed = False
        self.writing = writing
        self._reading = JobThread("sqlite reader", answers)
        self._reader: Reader | None = None

    def begin(self, method: Callable[[WriterTransactions, *Ts], T], *args: *Ts) -> Awaitable[T]:
        """Like `write`, but on its way when this returns, unless a connection must be opened again first."""
        return self.writing.run(method, *args) if self.writing.sound else self.write(method, *args)

    async def write(self, method: Callable[[WriterTransactions, *Ts], T], *args: *Ts) -> T:
        if not self.writing.sound:
            await self._reopen()
        return await self.writing.run(method, *args)

    async def read(self, method: Callable[[Reader, *Ts], T], *args: *Ts) -> T:
        if not self.writing.sound:
            await self._reopen()
        assert self._reader is not None
        return await self._reading.ask(self._reader.read, method, *args)

    async def connect(self) -> None:
        await self.writing.open()
        await self._open_reader()

    async def _open_reader(self) -> None:
        try:
            reader = await self._reading.ask(opening.connect_reader, self._path, self._synchronous)
        except apsw.Error as error:
            await self.writing.close(whole=False)
            raise explained(error) from error
        self._reader = Reader(reader)

    async def close(self) -> None:
        """Close after the jobs that were given before. The log goes into the database, so that one file remains."""
        async with self._reopening:
            self._closed = True
            await self._close_connections(whole=self.writing.sound)
        await self.stop()

    async def stop(self) -> None:
        await self.writing.stop()
        await self._reading.stop()
        self._lock.release()

    async def _reopen(self) -> None:
        async with self._reopening:
            if self._closed:
                raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
            if not self.writing.sound:
                await self._close_connections(whole=False)
                await self.writing.reopen()
                await self._open_reader()

    async def _close_connections(self, *, whole: bool) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await self._reading.ask(reader.connection.close)
        await self.writing.close(whole=whole)
