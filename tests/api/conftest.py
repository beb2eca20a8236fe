"""An engine on memory behind the application, a client, and a worker that does what it is told."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from tickwork.api.app import make_app
from tickwork.api.http.request import ShutdownSignal
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds
from tickwork.system.zone_data import load_zones


@pytest.fixture
async def engine(tmp_path) -> AsyncIterator[Engine]:
    engine = Engine(
        store=MemoryStore(MemoryDisk()),
        artifacts=FolderArtifacts(tmp_path / "artifacts"),
        clock=SystemClock(),
        ids=SystemIds(),
        owner="test",
        zones=load_zones(),
    )
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
def closing() -> ShutdownSignal:
    return ShutdownSignal()


@pytest.fixture
async def http(engine, closing) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=make_app(engine, closing=closing), client=("127.0.0.1", 5000))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
