"""Client of the writer process: one frame for each job, results in the same order. While that process has nothing to
do, a small commit is made here instead (`inline`).

If the process ends, the outcome of its jobs is unknown; before the next job, the store is opened again with another
process.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple, cast

from tickwork.core.base.errors import TickworkError
from tickwork.ports.store import OutcomeUnknown, StoreUnusable
from tickwork.stores.sqlite.writer.inline import InlineWriter
from tickwork.stores.sqlite.writer.messages import (
    SIZE,
    WRITES,
    Close,
    Commit,
    JobResult,
    Open,
    Reopen,
    answer_decoder,
    error_of,
    framed,
)
from tickwork.stores.sqlite.writer.transactions import Failpoints, WriterTransactions

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

COMMAND = (sys.executable, "-m", "tickwork.stores.sqlite.writer.process")
SOURCE = str(Path(__file__).resolve().parents[4])
STOP_S = 60.0  # to finish its jobs


class WriterClient(asyncio.Protocol):
    def __init__(self, path: Path, *, synchronous: str, failpoints: Failpoints) -> None:
        self._path = path
        self._synchronous = synchronous
        self._inline = InlineWriter(path, synchronous, failpoints)
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._futures: deque[asyncio.Future[Any]] = deque()
        self._rest = b""
        self.sound = False

    # ---- the process

    async def open(self) -> None:
        await self._start()
        await self._send(Open())
        self._inline.open()
        self.sound = True

    async def reopen(self) -> None:
        if self._transport is None:
            await self.stop()
            await self._start()
        await self._send(Reopen())
        self._inline.open()
        self.sound = True

    async def close(self, *, whole: bool) -> None:
        self.sound = False
        self._inline.close()
        if self._transport is not None:
            with suppress(OutcomeUnknown):
                await self._send(Close(whole))

    async def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, _reap, process)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        paths = [SOURCE, os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [*COMMAND, str(theirs.fileno()), str(self._path), self._synchronous]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, pass_fds=[theirs.fileno()], env=env, stdin=subprocess.DEVNULL
            )
        except OSError as error:
            ours.close()
            raise StoreUnusable(f"the process that writes the database cannot be started: {error}") from None
        finally:
            theirs.close()
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)

    # ---- jobs

    def run(self, method: Callable[[WriterTransactions, *Ts], T], *args: *Ts) -> Awaitable[T]:
        job = WRITES[method.__name__](*args)
        if type(job) is Commit and not self._futures and self._inline.fits(job.row, job.payloads):
            return self._commit_at_once(job)
        return self._send(job)

    def _commit_at_once(self, job: Commit) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            self._inline.commit(job.partition, job.row, job.payloads, job.epoch)
        except TickworkError as error:
            if isinstance(error, OutcomeUnknown):
                self.sound = False
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def _send(self, job: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(_gone())
            return future
        self._futures.append(future)
        self._transport.write(framed(job))
        return future

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._rest = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        data, at = self._rest + data, 0
        while len(data) - at >= SIZE.size:
            after = at + SIZE.size + SIZE.unpack_from(data, at)[0]
            if after > len(data):
                break
            self._resolve(answer_decoder.decode(data[at + SIZE.size : after]))
            at = after
        self._rest = data[at:]

    def _resolve(self, result: JobResult) -> None:
        future = self._futures.popleft()
        failed = error_of(result) if result.message else None
        if isinstance(failed, OutcomeUnknown):
            self.sound = False
        if future.done():
            return  # the caller was cancelled
        if failed is None:
            future.set_result(result.result)
        else:
            future.set_exception(failed)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - there is one reason only
        self._transport, self.sound = None, False
        while self._futures:
            future = self._futures.popleft()
            if not future.done():
                future.set_exception(_gone())


def _gone() -> OutcomeUnknown:
    return OutcomeUnknown("the writer process of the database has ended: read the head", retry_after_ms=0)


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
