"""Two servers over one database, each of which believes that it owns the partition, seen through their API.

The first one does not know that it was replaced, and commits before its successor does. On SQLite the lock of the file
is taken away, as on a file system that does not keep locks: what is left is the store.
"""

import asyncio
import contextlib
import os

import httpx2
import pytest

from runtime.engine_fixture import CountedIds, HandClock
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.api.app import make_app
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import digest
from tickwork.journal.export import read
from tickwork.journal.replay import replay
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.file_lock import FileLock
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.zone_data import load_zones

DOCUMENT = {"name": "flow", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}
DAY_MS = 86_400_000
EIGHT_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z


class UnlockedFile(FileLock):
    @classmethod
    def take(cls, path):
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


class Server:
    """An engine, and a client of its API."""

    def __init__(self, store, clock, name):
        self.engine = Engine(
            store=store, artifacts=MemoryArtifacts(), clock=clock, ids=CountedIds(), owner=name, zones=load_zones()
        )
        transport = httpx2.ASGITransport(app=make_app(self.engine), client=("127.0.0.1", 5000))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")

    async def submit(self, name):
        return await self.http.post("/v1/runs", json={"workflow": "flow", "id": name})

    async def runs(self):
        return sorted(run["id"] for run in (await self.http.get("/v1/runs?limit=500")).json()["runs"])

    @property
    def failure(self):
        error = self.engine.context.live.failed
        return error.code if error is not None else ""

    async def at_rest(self):
        async with asyncio.timeout(30):
            while not self.failure and (
                not self.engine.context.idle or self.engine.context.live.write_behind.unwritten
            ):
                await asyncio.sleep(0.005)


@pytest.fixture(params=["sqlite", "postgresql"])
def make_store(request, tmp_path, monkeypatch):
    if request.param == "postgresql":
        address = [request.getfixturevalue(name) for name in ("postgres", "schema")]
        return lambda: PostgresStore(address[0], schema=address[1])
    monkeypatch.setattr("tickwork.stores.sqlite.open.FileLock", UnlockedFile)
    return lambda: SqliteStore(tmp_path / "store.db")


@pytest.fixture
async def clock():
    clock = HandClock()
    clock.wall_offset_ms = EIGHT_MS - clock._now_ms()
    return clock


@pytest.fixture
async def start(make_store, clock):
    async with contextlib.AsyncExitStack() as stack:

        async def start(name):
            server = Server(make_store(), clock, name)
            await server.engine.start()
            stack.push_async_callback(server.engine.abandon, "the test is over")
            stack.push_async_callback(server.http.aclose)
            return server

        yield start


@pytest.fixture
async def claim(make_store):
    """Claim the partition, and get the function that reads how many rows its journal has."""
    store = make_store()

    async def rows():
        return (await store.read_head(0)).seq

    async def claim():
        await store.open()
        await store.claim(0, owner="owner", settings=(await store.load(0)).settings)
        return rows

    yield claim
    await store.close()


@pytest.fixture
async def replaced(start, claim):
    """A server with a run and a schedule, whose partition was claimed by another since."""
    server = await start("replaced")
    assert (await server.http.put("/v1/workflows", json={"documents": [DOCUMENT]})).status_code == 200
    noon = {"workflow": "flow", "cron": "0 12 * * *", "catch_up": "all"}
    assert (await server.http.put("/v1/schedules/noon", json=noon)).status_code == 200
    assert (await server.submit("before")).status_code == 201
    await server.at_rest()
    server.rows = await claim()
    return server


@pytest.mark.proves("S000-16", "S000-17", "S000-20")
async def test_only_the_last_owner_changes_what_is_stored_whoever_believes_to_own_it(replaced, start):
    refused = await asyncio.gather(*(replaced.submit(f"lost-{number}") for number in range(8)))
    owner = await start("owner")
    accepted = await asyncio.gather(*(owner.submit(f"kept-{number}") for number in range(8)))
    await owner.at_rest()
    head, rows = read([(await owner.http.get("/v1/journal")).content])
    machine = Machine(settings=head.settings)
    replay(rows, machine)

    assert {answer.status_code for answer in refused} <= {503, 504}, [answer.text for answer in refused]
    assert {answer.status_code for answer in accepted} == {201}, [answer.text for answer in accepted]
    assert await owner.runs() == ["before", *(f"kept-{number}" for number in range(8))]
    assert replaced.failure == "fenced"
    assert digest(machine.state) == digest(owner.engine.context.state)


@pytest.mark.proves("S004-28", "S004-71")
async def test_two_servers_that_wake_at_one_occurrence_begin_one_run_on_every_database(replaced, start, clock):
    before = await replaced.rows()
    clock.pass_ms(DAY_MS)
    replaced.engine.context.live.refresh()
    await replaced.at_rest()
    after = await replaced.rows()
    owner = await start("owner")
    for _ in range(2):
        await owner.at_rest()
        clock.pass_ms(DAY_MS)
        owner.engine.context.live.refresh()
    await owner.at_rest()

    assert after == before and replaced.failure == "fenced"
    assert await owner.runs() == ["before", *(f"sched-noon-2027-01-{day}T12:00:00Z" for day in (15, 16, 17))]
