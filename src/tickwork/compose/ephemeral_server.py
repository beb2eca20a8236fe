"""A server and a worker for one caller in this process, on a free port of loopback and on the data folder.

The server's loop has a thread of its own, so that the caller may wait as it likes. Both end with the block; what
they have not finished stays in the folder, for the next server. Without an application nothing goes on at all: the
folder is only read.
"""

import asyncio
import contextlib
import secrets
import threading
from types import TracebackType
from typing import Self

import msgspec

from tickwork.compose.server import looking, serving
from tickwork.compose.settings import Settings
from tickwork.compose.worker_process import WorkerProcess
from tickwork.core.base.errors import Refused

START_S = 60.0
MARGIN_S = 10.0


class EphemeralServer:
    """`with PrivateServer(settings, app) as server: Client(server.address, token=server.token)`."""

    def __init__(self, settings: Settings, app: str = "") -> None:
        # The port is open to everybody on this machine while it lasts: a token of its own keeps it private.
        self.token = secrets.token_urlsafe(32)
        self._settings = msgspec.structs.replace(settings, host="127.0.0.1", port=0, token=self.token, url="")
        self._app = app
        self._worker: WorkerProcess | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._begun = threading.Event()
        self._over = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="tickwork-server", daemon=True)
        self.address = ""

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            begun = self._begun.wait(START_S)
        except BaseException:
            self.close()
            raise
        if self._failed is not None:
            self._thread.join()
            raise self._failed
        if not begun:
            self.close()
            raise Refused("no_worker", f"{self._app or self._settings.folder} was not loaded within {START_S:g} s")
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._loop is not None and not self._over.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                self._loop.call_soon_threadsafe(self._stop.set)
        # A thread whose `join` is interrupted counts as ended from then on, so it says itself when it has.
        self._over.wait(self._settings.grace_s + 2 * MARGIN_S)

    def kill(self) -> None:
        """End without waiting: running attempts are stopped now, and are tried again later."""
        worker, loop = self._worker, self._loop
        if worker is not None and loop is not None and not self._over.is_set():
            with contextlib.suppress(RuntimeError):  # the loop has just ended
                asyncio.run_coroutine_threadsafe(worker.kill(), loop)
        self._over.wait(MARGIN_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._begun.set()
            self._over.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        if not self._app:
            async with looking(self._settings) as reader:
                self.address = reader.address
                self._begun.set()
                await self._stop.wait()
            return
        async with serving(self._settings, own_process=False) as (_, server):
            worker = self._worker = WorkerProcess(self._settings, self._app, url=server.address)
            await worker.start()
            try:
                if not await worker.until_ready():
                    raise Refused("application", worker.last_words)
                self.address = server.address
                self._begun.set()
                await self._stop.wait()
            finally:
                await worker.stop(grace_s=self._settings.grace_s + MARGIN_S)
