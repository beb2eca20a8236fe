"""The socket at which the code of tasks reads of the API.

Processes of tasks know neither the server's address nor its token. What they ask here, the agent asks over its own
connection. Only requests that change nothing pass, and only processes of this user reach the socket.
"""

import asyncio
import contextlib
import http
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tickwork.core.base.errors import Refused, TickworkError, Unavailable
from tickwork.protocol.http_models import Problem
from tickwork.protocol.worker_messages import Reading, ReadRequest

HEAD_BYTES_MAX = 64 * 1024
PATH_BYTES_MAX = 100  # the address of a socket has 104 to 108 bytes, whatever a path may have
FALLBACK_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - only a folder of ours is made in it
CARRIED = ("accept", "last-event-id")
DROPPED = frozenset(("connection", "content-encoding", "content-length", "date", "server", "transfer-encoding"))
PROBLEM = (("content-type", "application/problem+json"),)


class ReadSocket:
    def __init__(self, read: Callable[[ReadRequest], Awaitable[Reading]]) -> None:
        self._read = read
        self._folder = _short_folder()
        self.path = str(Path(self._folder, "read"))
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=HEAD_BYTES_MAX)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = None
        try:
            while (head := await _head(reader)) is not None:
                reading = await self._answer(head)
                writer.write(_encoded(reading))
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            return
        finally:
            del self._connections[task]
            with contextlib.suppress(OSError):
                writer.close()

    async def _answer(self, head: bytes) -> Reading:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = first.partition(" ")
        target = rest.rpartition(" ")[0]
        if method != "GET":
            return _problem(405, "read_only", "tasks read only")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        carried = tuple(pair for pair in headers if pair[0] in CARRIED or pair[0].startswith("x-tickwork-"))
        try:
            reading = await self._read(ReadRequest(target, carried))
        except Unavailable as error:
            return _problem(503, error.code, str(error))
        except TickworkError as error:
            return _problem(400, error.code, str(error))
        return reading


def _short_folder() -> str:
    """A new folder for this user only, with a path that the address of a socket has room for."""
    for parent in (tempfile.gettempdir(), *FALLBACK_FOLDERS):
        if len(os.fsencode(parent)) > PATH_BYTES_MAX - len("/tickwork-12345678/read"):
            continue
        with contextlib.suppress(OSError):
            return tempfile.mkdtemp(prefix="tickwork-", dir=parent)
    raise Refused("temporary_folder", "no writable folder has a short path: set TMPDIR to one, as /tmp")


async def _head(reader: asyncio.StreamReader) -> bytes | None:
    """None: the connection has ended, or what came is no request."""
    try:
        return (await reader.readuntil(b"\r\n\r\n"))[:-4]
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None


def _problem(status: int, code: str, detail: str) -> Reading:
    problem = Problem(title=http.HTTPStatus(status).phrase, status=status, code=code, detail=detail)
    return Reading(status, PROBLEM, msgspec.json.encode(problem))


def _encoded(reading: Reading) -> bytes:
    headers = [(name, value) for name, value in reading.headers if name.lower() not in DROPPED]
    lines = [f"{name}: {value}" for name, value in (*headers, ("content-length", str(len(reading.body))))]
    head = "\r\n".join((f"HTTP/1.1 {reading.status} {_phrase(reading.status)}", *lines))
    return head.encode("latin-1") + b"\r\n\r\n" + reading.body


def _phrase(status: int) -> str:
    return http.HTTPStatus(status).phrase if status in http.HTTPStatus._value2member_map_ else ""
