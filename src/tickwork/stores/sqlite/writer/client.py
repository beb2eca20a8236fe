"""Where the scribe is asked: one frame for each job, answers in the same order. What the pen can commit at once, while
the scribe has nothing to do, is not asked.

A scribe that is gone leaves the outcome of what it was asked unknown; the next job finds the desk unsound, and the
store is opened anew with another scribe.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

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
from tickwork.stores.sqlite.writer.transactions import Failpoints

SCRIBE = (sys.executable, "-m", "tickwork.stores.sqlite.writer.process")
SOURCE = str(Path(__file__).resolve().parents[4])
STOP_S = 60.0  # to finish what it was asked


class WriterClient(asyncio.Protocol):
    def __init__(self, path: Path, *, synchronous: str, failpoints: Failpoints) -> None:
        self._path = path
        self._synchronous = synchronous
        self._pen = InlineWriter(path, synchronous, failpoints)
        self._process: subprocess.Popen[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._rest = b""
        self.sound = False

    # ---- the process

    async def bring_up(self) -> None:
        await self._start()
        await self._ask(Open())
        self._pen.take_up()
        self.sound = True

    async def reopen(self) -> None:
        if self._transport is None:
            await self.stop()
            await self._start()
        await self._ask(Reopen())
        self._pen.take_up()
        self.sound = True

    async def put_down(self, *, whole: bool) -> None:
        self.sound = False
        self._pen.put_down()
        if self._transport is not None:
            with suppress(OutcomeUnknown):
                await self._ask(Close(whole))

    async def stop(self) -> None:
        if self._transport is not None:
            self._transport.close()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, _bury, process)

    async def _start(self) -> None:
        ours, theirs = socket.socketpair()
        paths = [SOURCE, os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [*SCRIBE, str(theirs.fileno()), str(self._path), self._synchronous]
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

    def ask(self, name: str, *args: Any) -> Awaitable[Any]:
        job = WRITES[name](*args)
        if type(job) is Commit and not self._asked and self._pen.fits(job.row, job.payloads):
            return self._commit_at_once(job)
        return self._ask(job)

    def _commit_at_once(self, job: Commit) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            self._pen.commit(job.partition, job.row, job.payloads, job.epoch)
        except TickworkError as error:
            if isinstance(error, OutcomeUnknown):
                self.sound = False
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def _ask(self, job: Any) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            future.set_exception(_gone())
            return future
        self._asked.append(future)
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
            self._answered(answer_decoder.decode(data[at + SIZE.size : after]))
            at = after
        self._rest = data[at:]

    def _answered(self, answered: JobResult) -> None:
        future = self._asked.popleft()
        failed = error_of(answered) if answered.message else None
        if isinstance(failed, OutcomeUnknown):
            self.sound = False
        if future.done():
            return  # whoever asked was cancelled
        if failed is None:
            future.set_result(answered.result)
        else:
            future.set_exception(failed)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - there is one reason only
        self._transport, self.sound = None, False
        while self._asked:
            future = self._asked.popleft()
            if not future.done():
                future.set_exception(_gone())


def _gone() -> OutcomeUnknown:
    return OutcomeUnknown("the writer process of the database has ended: read the head", retry_after_ms=0)


def _bury(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
