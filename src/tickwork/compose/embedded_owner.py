"""Several processes of one application and one store: who owns it, and how the others use it.

On a data folder one process owns the store, and the others reach it through its port on loopback, with the folder's
token. The lock of the file says who owns it; when that process ends, however it does, the next one takes the folder.
On PostgreSQL every process is a node of one cluster, so each partition has its owner.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from tickwork.api.server import CannotServe
from tickwork.cluster.direct_link import HttpOwnerConnections, OwnerLink
from tickwork.compose.cluster import serving_node
from tickwork.compose.server import DATABASE, serving
from tickwork.compose.settings import BadSettings, Settings
from tickwork.core.base.errors import Unavailable
from tickwork.ports.store import StoreInUse
from tickwork.protocol.worker_messages import Call, Catalog, LogPiece, Reading, ReadRequest, Reply, shown
from tickwork.runtime.engine import Engine
from tickwork.runtime.local_link import LocalLink
from tickwork.stores.sqlite.file_lock import FileLock
from tickwork.system import local_token as localtoken
from tickwork.system.clock import SystemClock
from tickwork.system.private_files import private_file
from tickwork.worker.http_link import HttpLink, publication

RECORD = "owner"  # in the data folder: where its owner answers
LOOK_S = 0.2  # how often a process that does not own the store looks whether it may
UNKNOWN_S = 10.0  # the owner has to say so soon where it is, or it is another program
AGAIN_S = 1.0  # after the engine of this process failed
BY = "embedded"


class Link(Protocol):
    """`worker.agent.Link`, as far as an embedded worker needs it."""

    async def call(self, call: Call) -> Reply: ...
    async def fetch(self, digest: str) -> bytes: ...
    async def store(self, data: bytes) -> str: ...
    async def log(self, piece: LogPiece) -> None: ...
    async def read(self, request: ReadRequest) -> Reading: ...
    async def publish(self, catalog: Catalog) -> str: ...


class EmbeddedLink(LocalLink):
    """Publish the definitions of the application."""

    async def publish(self, catalog: Catalog) -> str:
        """Make this process's code the latest version: it is the whole installation."""
        with shown(catalog.schedules):
            await self._engine.workflows.publish(publication(catalog, latest=True), by=BY)
        return catalog.version


class SwitchedLink:
    """The connection to the current owner of the store."""

    def __init__(self) -> None:
        self.target: Link | None = None

    @property
    def _now(self) -> Link:
        if self.target is None:
            raise Unavailable("no process owns the store at the moment", retry_after_ms=200)
        return self.target

    async def call(self, call: Call) -> Reply:
        return await self._now.call(call)

    async def fetch(self, digest: str) -> bytes:
        return await self._now.fetch(digest)

    async def store(self, data: bytes) -> str:
        return await self._now.store(data)

    async def log(self, piece: LogPiece) -> None:
        await self._now.log(piece)

    async def read(self, request: ReadRequest) -> Reading:
        return await self._now.read(request)

    async def publish(self, catalog: Catalog) -> str:
        return await self._now.publish(catalog)


class OwnerRecord(msgspec.Struct, frozen=True):
    url: str
    pid: int
    term: str  # differs with each owner


class StoreAccess(Protocol):
    """How a process uses the store. `moved` is called with each address at which the engine answers from then on."""

    link: SwitchedLink

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class FolderAccess:
    def __init__(self, settings: Settings, *, moved: Callable[[str], None]) -> None:
        self.link = SwitchedLink()
        self._settings = settings
        self._moved = moved
        self._record = settings.folder / RECORD
        self._stopping, self._settled = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._links: list[HttpLink] = []  # to each owner so far: a call over an earlier one may still be under way

    async def start(self) -> None:
        """Return when this process owns the store, or knows who does. Raises what prevents both."""
        loop = asyncio.get_running_loop()
        self._running = loop.create_task(self._run())
        settled = loop.create_task(self._settled.wait())
        await asyncio.wait({self._running, settled}, return_when=asyncio.FIRST_COMPLETED)
        settled.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        self._stopping.set()
        if self._running is not None:
            await self._running
        for link in self._links:
            await link.close()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                await self._own()
            except StoreInUse as used:
                await self._use(used)
            except CannotServe:
                if self._settings.port:
                    raise
                self._record.unlink(missing_ok=True)  # its port is another program's by now: take a new one
            except Exception as error:
                if not self._settled.is_set():
                    raise
                # Others use what this process owned, and one of them may own it by now.
                print(f"tickwork: the engine of this process failed: {error}", file=sys.stderr, flush=True)
                await self._pause(AGAIN_S)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    # ---- as the owner

    async def _own(self) -> None:
        """Until this process ends, or its engine fails. It answers where the owner before did, so that whoever knows
        that address goes on with it."""
        if _is_owned(self._settings.folder):
            raise StoreInUse(f"{self._settings.folder / DATABASE} is in use")
        before = _read(self._record)
        port = self._settings.port or (_port_of(before.url) if before is not None else 0)
        settings = msgspec.structs.replace(self._settings, port=port)
        async with serving(settings, own_process=False) as (engine, server), contextlib.AsyncExitStack() as stack:
            api = HttpLink(server.address, token=self._settings.token)  # for what tasks read
            stack.push_async_callback(api.close)
            _write(self._record, OwnerRecord(server.address, os.getpid(), os.urandom(8).hex()))
            self._go_on_at(server.address, EmbeddedLink(engine, api.read))
            try:
                await self._until_over(engine)
            finally:
                self.link.target = None

    async def _until_over(self, engine: Engine) -> None:
        while not self._stopping.is_set():
            await self._pause(0.5)
            failed = engine.context.partition.failed if engine.context.partition is not None else None
            if failed is not None:
                raise failed

    # ---- through the owner

    async def _use(self, used: StoreInUse) -> None:
        """Wait until the store has no owner."""
        clock = asyncio.get_running_loop()
        since, known = clock.time(), None
        while not self._stopping.is_set() and _is_owned(self._settings.folder):
            record = _read(self._record)
            if record is not None and record != known and record.pid == _holder(self._settings.folder):
                known = record
                self._links.append(HttpLink(record.url, token=self._settings.token, latest=True))
                self._go_on_at(record.url, self._links[-1])
            if known is None and not self._settled.is_set() and clock.time() - since > UNKNOWN_S:
                raise used
            await self._pause(LOOK_S)

    def _go_on_at(self, url: str, link: Link) -> None:
        self.link.target = link
        self._moved(url)
        self._settled.set()


class ClusterAccess:
    """This process is a node: it owns its share of the partitions, and knows who owns the others."""

    def __init__(self, settings: Settings, *, moved: Callable[[str], None]) -> None:
        self.link = SwitchedLink()
        self._settings = settings
        self._moved = moved
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            _, server = await stack.enter_async_context(serving_node(self._settings))
            token = self._settings.token
            given = HttpLink(server.address, token=token, latest=True)
            stack.push_async_callback(given.close)
            link = OwnerLink(given, HttpOwnerConnections(token=lambda: token, secure=False), clock=SystemClock())
            stack.push_async_callback(link.close)
            self.link.target = link
            self._moved(server.address)
            self._stack = stack.pop_all()

    async def stop(self) -> None:
        await self._stack.aclose()


def access_to(settings: Settings, *, moved: Callable[[str], None]) -> StoreAccess:
    return ClusterAccess(settings, moved=moved) if settings.store else FolderAccess(settings, moved=moved)


def shared_token(settings: Settings) -> str:
    """The token that all processes of this user at one store share."""
    try:
        path = localtoken.file_of_store(settings.store) if settings.store else settings.folder / localtoken.FILE
        return localtoken.own_token(path)
    except localtoken.Unsafe as unsafe:
        raise BadSettings("unsafe_token", str(unsafe), path="token") from None


def _is_owned(folder: Path) -> bool:
    """Whether a process holds the lock of the file."""
    path = folder / f"{DATABASE}.lock"
    if not path.exists():
        return False
    try:
        FileLock.take(path).release()
    except StoreInUse:
        return True
    return False


def _holder(folder: Path) -> int:
    """The process that took the lock last; 0 if nobody knows. What an earlier owner left says nothing of this one."""
    try:
        return int((folder / f"{DATABASE}.lock").read_text())
    except (OSError, ValueError):
        return 0


def _read(path: Path) -> OwnerRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=OwnerRecord)
    except (OSError, msgspec.DecodeError):
        return None


def _write(path: Path, record: OwnerRecord) -> None:
    """Whole or not at all: others read it at any moment."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(private_file(fresh), "wb") as file:
        file.write(msgspec.json.encode(record))
    fresh.replace(path)


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
