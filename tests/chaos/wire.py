"""A TCP proxy for faults between two programs: whole connections, no connections, silence, answers lost or late.

`lose_answer` waits for the next commit that passes: the server gets it and answers, and then, instead of the
answer, the client gets the end of its connection. So it happened, and nobody was told.
"""

import asyncio
from typing import Self

COMMIT = b"insert into journal"  # what a connection that commits has prepared


class Wire:
    def __init__(self, port: int) -> None:
        self.port = 0
        self.answers_lost = 0
        self._target = port
        self._answers_to_lose = 0
        self._cut = self._silent = self._deaf = False
        self._late_s = 0.0
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Link(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        await asyncio.sleep(0.01)  # what was aborted is closed in the next rounds of the loop

    def drop(self) -> None:
        """Every connection ends; new ones are welcome."""
        for link in list(self._links):
            link.end()

    def cut(self) -> None:
        """Connections end, and new ones are refused, until `mend`."""
        self._cut = True
        self.drop()

    def silence(self) -> None:
        """Nothing passes any more, in neither direction, and nobody is told, until `mend`."""
        self._silent = True

    def deafen(self) -> None:
        """What is asked arrives, and no answer comes back, until `mend`."""
        self._deaf = True

    def slow(self, seconds: float) -> None:
        """So much later comes every answer, until `mend`; they keep their order."""
        self._late_s = seconds

    def mend(self) -> None:
        """What was swallowed is gone, so its connections go too."""
        if self._silent or self._deaf:
            self.drop()
        self._cut = self._silent = self._deaf = False
        self._late_s = 0.0

    def lose_answer(self) -> None:
        self._answers_to_lose += 1


class _Link(asyncio.Protocol):
    """From a client; it opens the way to the server."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._transport: asyncio.Transport | None = None
        self._far: _Far | None = None
        self._early: list[bytes] = []
        self._commits = False
        self.asked = False  # a commit passed, and its answer has not
        self._late_until = 0.0  # what came back before is told at this time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self._wire._cut:
            transport.abort()
            return
        self._wire._links.add(self)
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_connection(lambda: _Far(self), "127.0.0.1", self._wire._target)
        except OSError:
            self.end()
            return
        if self._transport is None or self._transport.is_closing():
            far.end()
            return
        self._far = far
        for data in self._early:
            far.send(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._wire._silent:
            return
        if not self._commits and COMMIT in data:
            self._commits = True
        elif self._commits:
            self.asked = True
        if self._far is None:
            self._early.append(data)
        else:
            self._far.send(data)

    def back(self, data: bytes) -> None:
        wire = self._wire
        if wire._silent or wire._deaf:
            return
        if self.asked and wire._answers_to_lose:
            wire._answers_to_lose -= 1
            wire.answers_lost += 1
            self.end()
            return
        self.asked = False
        loop = asyncio.get_running_loop()
        if wire._late_s or self._late_until > loop.time():
            self._late_until = max(self._late_until, loop.time() + wire._late_s)
            loop.call_at(self._late_until, self._tell, data)
        else:
            self._tell(data)

    def _tell(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.end()

    def end(self) -> None:
        self._wire._links.discard(self)
        if self._transport is not None:
            self._transport.abort()
        if self._far is not None:
            self._far.end()


class _Far(asyncio.Protocol):
    def __init__(self, link: _Link) -> None:
        self._link = link

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._link.back(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._link.end()

    def end(self) -> None:
        self._transport.abort()
