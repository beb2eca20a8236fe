"""A TCP proxy that tests put between a client and a server, to cut connections at a chosen moment.

`cut_after(needle)`: bytes that hold it still reach the server; then nothing of what the server answers comes back, and
when it has answered the client's connection is closed. So the server has done what it was asked, and the client
cannot know.
"""

import asyncio
import contextlib
from typing import Self


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._needle = b""
        self._before = b""
        self._refusing = False
        self._silent = False
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.cuts = self.accepted = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut_all()
        for link in list(self._links):
            link.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await link

    # ---- what tests ask for

    def cut_after(self, needle: bytes) -> None:
        """Once: what holds this reaches the server, its answer does not come back."""
        self._needle = needle

    def cut_before(self, needle: bytes) -> None:
        """Once: what holds this does not reach the server, and the connection ends."""
        self._before = needle

    def cut_all(self) -> None:
        """Every connection that there is."""
        for writer in list(self._writers):
            writer.transport.abort()

    def refuse(self, refusing: bool = True) -> None:
        """New connections end at once; those that are there go on."""
        self._refusing = refusing

    def be_silent(self, silent: bool = True) -> None:
        """Nothing comes back from the server any more; connections stay."""
        self._silent = silent

    # ---- connections

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self._writers.add(writer)
        try:
            if not self._refusing:
                self.accepted += 1
                await self._link(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._links.discard(task)
            self._writers.discard(writer)
            writer.transport.abort()

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*self._target)
        struck = asyncio.Event()
        back = asyncio.create_task(self._back(from_server, writer, struck))
        try:
            while data := await reader.read(1 << 16):
                if self._before and self._before in data:
                    self._before = b""
                    self.cuts += 1
                    return
                if self._needle and self._needle in data:
                    self._needle = b""
                    struck.set()
                to_server.write(data)
                await to_server.drain()
        finally:
            if not struck.is_set():
                back.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await back
            to_server.transport.abort()

    async def _back(
        self, from_server: asyncio.StreamReader, writer: asyncio.StreamWriter, struck: asyncio.Event
    ) -> None:
        while data := await from_server.read(1 << 16):
            if struck.is_set():  # it has answered, so it has done it
                self.cuts += 1
                writer.transport.abort()
                return
            if not self._silent:
                writer.write(data)
                await writer.drain()
