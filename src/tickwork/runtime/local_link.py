"""The way from a worker to an engine in the same process: `ports.exchange.Link` without a network."""

from typing import TYPE_CHECKING

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import Call, Catalog, LogPiece, Reply

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


class LocalLink:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine

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

    async def publish(self, catalog: Catalog) -> str:
        """Publish nothing: the program that has the engine publishes directly."""
        return catalog.version
