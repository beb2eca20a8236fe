"""A worker as a child process of this one.

It has a session of its own, so that Ctrl-C in a terminal reaches only us and we decide how it ends; it gets its
settings as variables, so that no token is an argument; and it ends when we do, however we end.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys

import msgspec

from tickwork.compose.settings import KEY_START, PREFIX, Settings, names
from tickwork.executors.egress_policy import LOOPBACK

PR_SET_PDEATHSIG = 1
PARENT = f"{PREFIX}PARENT"
# What a worker must hear from us rather than find for itself.
TOLD = (
    "token",
    "queues",
    "labels",
    "resources",
    "processes",
    "threads",
    "coroutines",
    "parked",
    "memory_mb",
    "pass_env",
    "grace_s",
    "allow_ports",
    "secrets",
)


def end_with_parent() -> None:
    """In a child: get a signal to end when the parent process is gone."""
    parent = os.environ.pop(PARENT, "")
    if not parent:
        return
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the line above
        os.kill(os.getpid(), signal.SIGTERM)


class WorkerProcess:
    """`start` returns when the process lives, `until_ready` when the server has heard of it."""

    def __init__(self, settings: Settings, app: str, *, url: str) -> None:
        self._settings, self._app, self._url = settings, app, url
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self.errors = ""  # what it printed on standard error

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tickwork", "worker", self._app, "--url", self._url),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
            start_new_session=True,
        )
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def until_ready(self) -> bool:
        """False where it ended instead; `errors` says why."""
        assert self._process is not None and self._reading is not None
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait((ready, self._reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        return self._ready.is_set()

    async def wait(self) -> int:
        assert self._process is not None and self._reading is not None
        await asyncio.shield(self._reading)
        return await self._process.wait()

    async def stop(self, *, grace_s: float) -> None:
        """Ask, wait, end it."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        await self.wait()

    @property
    def last_words(self) -> str:
        """Return why it ended, in its own words."""
        message = self.errors.strip().rpartition("tickwork: ")[2]
        return message.replace(": Refused: ", ": ") or "the worker ended without a message"

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None and self._process.stderr is not None
        await asyncio.gather(self._hear(self._process.stdout), self._collect(self._process.stderr))

    async def _hear(self, stream: asyncio.StreamReader) -> None:
        async for _ in stream:
            self._ready.set()  # its first line says that it is

    async def _collect(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(16 * 1024):
            text = data.decode(errors="replace")
            self.errors = (self.errors + text)[-16 * 1024 :]
            if self._ready.is_set():
                sys.stderr.write(text)
                sys.stderr.flush()

    def _environment(self) -> dict[str, str]:
        kept = PREFIX + KEY_START.upper()
        own = {
            name: value for name, value in os.environ.items() if name.startswith(kept) or not name.startswith(PREFIX)
        }
        values = msgspec.structs.asdict(self._settings)
        own.update({f"{PREFIX}{name.upper()}": str(values[name]) for name in TOLD})
        # Such a worker serves one person on one machine: requests may stay on it.
        own[f"{PREFIX}ALLOW_NETWORKS"] = ",".join((*LOOPBACK, *names(self._settings.allow_networks)))
        own[f"{PREFIX}APP_LATEST"] = "true"  # the code that is being written is the latest, also where it is undone
        if self._settings.app_version:
            own[f"{PREFIX}APP_VERSION"] = self._settings.app_version
        own[PARENT] = str(os.getpid())
        if os.environ.get("TICKWORK_DEBUG"):
            own["TICKWORK_DEBUG"] = os.environ["TICKWORK_DEBUG"]
        return own
