"""The way from a worker to an engine in the same process: `ports.exchange.Link` without a network."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import Call, Catalog, LogPiece, Reading, ReadRequest, Reply

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


class LocalLink:
    def __init__(self, engine: "Engine", read: Callable[[ReadRequest], Awaitable[Reading]] | None = None) -> None:
        """`read` asks the API of the engine, for the code of tasks."""
        self._engine, self._read = engine, read

    async def call(self, call: Call) -> Reply:
        return await self._engine.workers.exchange(call, call.worker)

    async def fetch(self, digest: str) -> bytes:
        data = await self._engine.context.artifacts.get(digest)
        if data is None:
            raise Refused("unknown_artifact", f"there is no artifact {digest}")
        return data

    async def store(self, data: bytes) -> str:
        return await self._engine.context.artifacts.put(data)

    async def log(self, piece: LogPiece) -> None:
        await self._engine.logs.append(piece)

    async def read(self, request: ReadRequest) -> Reading:
        if self._read is None:
            raise Refused("no_api", "this worker has no API to read from")
        return await self._read(request)

    async def publish(self, catalog: Catalog) -> str:
        """Publish nothing: the program that has the engine publishes directly."""
        return catalog.version
