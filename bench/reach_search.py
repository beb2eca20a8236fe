"""How fast runs are found among a million: the part `search` of `bench/reach.py`.

The runs are written straight into each store, since nothing decides them again. They ended over 28 hours, ten a
second. Each has one of 10,000 customers, so a customer has a hundred runs far from each other; one in ten has the tag
`nightly`, one in 20,000 the tag `rare`, one in two hundred failed. Each filter is asked for through the engine, with
other values each time, so that no range was opened for the same one before.
"""

import random
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

import peer_servers
from tickwork.core.calendar.durations import instant_text
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.journal.record import GENESIS
from tickwork.ports.store import Rows, RunRow, Store
from tickwork.protocol.http_models import RunSearch
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import SystemClock, SystemIds

RUNS, RUNS_QUICK = 1_000_000, 100_000
PORTION = 4_096
BEGIN_MS = 1_760_000_000_000
STEP_MS = 100
ASKED = 40  # questions of each kind
CUSTOMERS = 10_000
ERRORS = ("TimeoutError: the bank", "ValueError: no such order", "ConnectionError: refused by shard")
COMPLETED, FAILED = int(RunState.COMPLETED), int(RunState.FAILED)
_RECORD = msgspec.msgpack.encode((b"\x80", 1, 2, -1, b"\x06", (), "", 0, "", 0, "", ""))
_DEFINITION = "sha256:" + "d" * 64


def run_row(number: int, ids: random.Random) -> RunRow:
    failed, submitted_ms = number % 200 == 7, BEGIN_MS + number * STEP_MS
    tags = ("nightly",) if number % 10 == 3 else ()
    return RunRow(
        number, _id(submitted_ms, ids), "default", f"flow-{number % 20}", _DEFINITION, FAILED if failed else COMPLETED,
        "submit", "bench", submitted_ms, submitted_ms + 5, submitted_ms + 400, "",
        f"charge: {ERRORS[number % 3]} {number}" if failed else "", "", _RECORD, b"\xc0", b"",
        (*tags, "rare") if number % 20_000 == 13 else tags, (("customer", f"c{number * 7919 % CUSTOMERS}"),), "",
    )  # fmt: skip


def _id(at_ms: int, ids: random.Random) -> str:
    text = f"{at_ms:012x}7{ids.getrandbits(76):019x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


async def fill(store: Store, runs: int) -> None:
    settings = Settings(clock=LogicalClock(origin_ms=BEGIN_MS - 1_000))
    await store.open()
    await store.establish_identity(cluster="c" * 24, partitions=0)
    epoch = (await store.claim(0, owner="bench", settings=msgspec.msgpack.encode(settings))).epoch
    ids = random.Random(7)
    for first in range(1, runs + 1, PORTION):
        rows = [run_row(number, ids) for number in range(first, min(first + PORTION, runs + 1))]
        await store.write_rows(0, Rows(runs=rows), epoch=epoch, through=0, head=GENESIS)
    await store.close()


def questions(kind: str, chance: random.Random, runs: int) -> RunSearch:
    at_ms = BEGIN_MS + chance.randrange(runs) * STEP_MS
    hour: dict[str, Any] = {"submitted_from": instant_text(at_ms), "submitted_to": instant_text(at_ms + 3_600_000)}
    match kind:
        case "input":
            return RunSearch(where={"customer": f"c{chance.randrange(CUSTOMERS)}"})
        case "tag":
            return RunSearch(tag=("rare",), workflow=f"flow-{chance.randrange(20)}")
        case "error":
            return RunSearch(error=ERRORS[chance.randrange(3)].split(":")[0], **hour)
        case "time":
            return RunSearch(state=("failed",), **hour)
        case _:
            return RunSearch(tag=("nightly",), where={"customer": f"c{chance.randrange(CUSTOMERS)}"})


async def ask(store: Store, runs: int) -> tuple[float, dict[str, float]]:
    """The 95th percentile of all kinds together, and of each, in milliseconds."""
    engine = Engine(store=store, artifacts=MemoryArtifacts(), clock=SystemClock(), ids=SystemIds(), owner="asks")
    await engine.start()
    chance, times = random.Random(11), dict[str, list[float]]()
    try:
        for kind in ("input", "tag", "error", "time", "both"):
            for _ in range(ASKED):
                search = questions(kind, chance, runs)
                began = perf_counter()
                await engine.queries.runs(engine.queries.filter(search=search))
                times.setdefault(kind, []).append((perf_counter() - began) * 1_000)
    finally:
        await engine.stop()
    each = {kind: sorted(some)[len(some) * 95 // 100] for kind, some in times.items()}
    return max(each.values()), each


async def on_sqlite(runs: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "many.db")
        began = perf_counter()
        await fill(SqliteStore(path, synchronous="OFF"), runs)
        figures = {"search_sqlite_build_s": perf_counter() - began, "search_sqlite_bytes": path.stat().st_size / runs}
        worst, each = await ask(SqliteStore(path, synchronous="OFF"), runs)
    return {"search_sqlite_p95_ms": worst, **figures, **{f"search_sqlite_{kind}_ms": ms for kind, ms in each.items()}}


async def on_postgres(runs: int) -> dict[str, float]:
    with peer_servers.postgres() as server:
        dsn = server.database("search")
        await fill(PostgresStore(dsn), runs)
        worst, each = await ask(PostgresStore(dsn), runs)
    return {"search_postgres_p95_ms": worst, **{f"search_postgres_{kind}_ms": ms for kind, ms in each.items()}}
