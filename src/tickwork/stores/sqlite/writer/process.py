"""The writer in a process of its own: `python -m tickwork.stores.sqlite.writer.process SOCKET PATH SYNCHRONOUS`.

Beside a busy interpreter a writing thread waits for it at every statement; a process does not. Jobs are
answered in order. It ends when the socket closes. Jobs that are in the socket then are still done; a new owner of the
partition has fenced them.
"""

import gc
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from msgspec.structs import astuple

from tickwork.core.base.errors import TickworkError
from tickwork.ports.store import Head
from tickwork.stores.sqlite.writer.messages import (
    SIZE,
    WRITES,
    Close,
    Job,
    JobResult,
    Open,
    Reopen,
    framed,
    job_decoder,
)
from tickwork.stores.sqlite.writer.runtime import WriterRuntime

READ_BYTES = 1024 * 1024
_NAMES = {kind: name for name, kind in WRITES.items()}


class WriterProcess:
    def __init__(self, path: Path, synchronous: str) -> None:
        self._between: deque[Callable[[], None]] = deque()  # jobs of our own
        self._copies: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._runtime = WriterRuntime(path, synchronous, {}, beside=self._copies.put, here=self._between.append)
        Thread(target=self._copy, name="sqlite checkpointer", daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        frames = connection.makefile("rb", buffering=READ_BYTES)
        with suppress(ConnectionError):  # the client was killed meanwhile
            while len(head := frames.read(SIZE.size)) == SIZE.size:
                job = job_decoder.decode(frames.read(*SIZE.unpack(head)))
                connection.sendall(framed(self._answer(job)))
                del job
                while self._between:
                    self._between.popleft()()
        self._runtime.close(whole=False)

    def _answer(self, job: Job) -> JobResult:
        try:
            return JobResult(self._do(job))
        except TickworkError as error:
            return JobResult(None, type(error).__name__, str(error), getattr(error, "retry_after_ms", 0))
        except Exception as error:
            return JobResult(None, "", f"{type(error).__name__}: {error}", 1_000)

    def _do(self, job: Job) -> Head | bool | None:
        match job:
            case Open():
                self._runtime.open()
            case Reopen():
                self._runtime.reopen()
            case Close():
                self._runtime.close(job.whole)
            case _:
                result: Head | bool | None = self._runtime.do(_NAMES[type(job)], *astuple(job))
                return result
        return None

    def _copy(self) -> None:
        while True:
            self._copies.get()()


def main(handle: str, path: str, synchronous: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to the whole group; ours is to end with the socket
        signal.signal(number, signal.SIG_IGN)
    writer = WriterProcess(Path(path), synchronous)
    gc.freeze()
    gc.disable()  # jobs are trees
    with socket.socket(fileno=int(handle)) as connection:
        writer.serve(connection)


if __name__ == "__main__":
    main(*sys.argv[1:])
