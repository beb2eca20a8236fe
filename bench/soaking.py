"""The parts of `tools/soak.py`: a private PostgreSQL with one server and one worker, a paced client, and witnesses.

A run's id is a number, so what became of a million of them is counted in a million bytes. The witnesses are the files
that tasks write, rows and journal of the database, and the kernel; only the time of commits is the server's own word.
"""

import asyncio
import contextlib
import math
import re
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import msgspec

import peer_servers
from throughput import JSON, Process, family, free_port, say
from tickwork.core.state import events as ev
from tickwork.journal.record import GENESIS, SealedRow, unseal
from tickwork.stores.run_blocks import rows_of
from tickwork.worker.http1 import PostClient

APP = Path(__file__).with_name("soak_app.py")
COMPLETED = 4
READY_S = 60.0
IN_FLIGHT = 8  # calls
WAIT_AGAIN = (429, 503, 507)
PAGE = 2_000
MEASURED_S = 6.0
BUCKET = re.compile(r'^tickwork_commit_seconds_bucket\{.*?le="([^"]+)".*?\} (\S+)$', re.MULTILINE)


class Site:
    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder, self.dsn = folder, dsn
        self.ledger = folder / "ledger"
        self.ledger.touch()
        shutil.copy(APP, folder / "soak_app.py")
        self.url = f"http://127.0.0.1:{free_port()}"
        self.client = httpx2.AsyncClient(base_url=self.url, timeout=60, trust_env=False)
        self.poster = PostClient(self.url, headers=JSON)
        self.server: Process | None = None
        self.worker: Process | None = None

    async def start(self) -> None:
        self.start_server()
        await self.answering()
        words = ("worker", str(self.folder / "soak_app.py"), "--url", self.url)
        self.worker = Process(*words, log=self.folder / "worker.log")
        await self._until(self._has_worker)

    def start_server(self) -> None:
        words = ["server", "--store", self.dsn, "--partitions", "1", "--node", "soak", "--lease-ttl", "3s"]
        words += ["--data", str(self.folder / "data"), "--port", self.url.rsplit(":", 1)[1]]
        self.server = Process(*words, log=self.folder / "server.log")

    async def close(self) -> None:
        self.poster.close()
        await self.client.aclose()
        for one in (self.worker, self.server):
            if one is not None:
                one.end()

    async def answering(self) -> None:
        await self._until(self._answers)

    async def _answers(self) -> bool:
        return (await self.client.get("/v1/status")).status_code == 200

    async def _has_worker(self) -> bool:
        seated = (await self.client.get("/v1/workers")).json()["workers"]
        return bool(seated) and (await self.client.get("/v1/workflows/noted")).status_code == 200

    async def _until(self, holds: Callable[[], Any]) -> None:
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            with contextlib.suppress(httpx2.HTTPError, KeyError):
                if await holds():
                    return
            await asyncio.sleep(0.05)
        raise SystemExit(f"the server did not become ready:\n{(self.folder / 'server.log').read_text()[-2000:]}")

    async def drained(self, *, within_s: float = 600.0) -> None:
        """Nothing lives, and every row is written."""
        until = time.monotonic() + within_s
        while time.monotonic() < until:
            live = (await self.client.get("/v1/status")).json()["live_runs"]
            partitions = (await self.client.get("/v1/cluster")).json()["partitions"]
            if not live and not any(one["rows_behind"] for one in partitions):
                return
            await asyncio.sleep(0.1)

    async def ask(self, sql: str, *args: object) -> list[Any]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return list(await connection.fetch(sql, *args))
        finally:
            await connection.close()

    async def commit_buckets(self) -> dict[float, float]:
        text = (await self.client.get("/metrics")).text
        return {float(bound): float(count) for bound, count in BUCKET.findall(text)}

    async def table_sizes(self) -> dict[str, int]:
        """With their indexes, in bytes."""
        asked = "select relname, pg_total_relation_size(oid) from pg_class where relkind = 'r' and relnamespace = $1"
        [[schema]] = await self.ask("select oid from pg_namespace where nspname = 'tickwork'")
        return {name: int(size) for name, size in await self.ask(asked, schema)}


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[Site]:
    with peer_servers.postgres() as postgres, tempfile.TemporaryDirectory(prefix="tickwork-soak-") as folder:
        made = Site(Path(folder), postgres.database("soak"))
        try:
            await made.start()
            yield made
        finally:
            await made.close()


class Load:
    """Runs by number, in calls of `per_call`, at a steady rate; where the server is slower, at its own."""

    def __init__(self, site: Site) -> None:
        self.count = 0  # submitted and acknowledged, without a gap: the numbers below it
        self.asked_again = 0
        self.ack_ms: list[tuple[float, float]] = []  # when, and how long the acknowledgement of a call took
        self._site = site

    async def at_full_rate(self, seconds: float) -> float:
        """Tasks a second, from the first call until the last result."""
        began, first = time.monotonic(), self.count
        await self.run(1e9, lambda: time.monotonic() >= began + seconds)
        await self._site.drained()
        return (self.count - first) / (time.monotonic() - began)

    async def run(self, rate: float, over: Callable[[], bool]) -> None:
        per_call = max(1, min(100, round(rate / 20)))
        calls: set[asyncio.Task[None]] = set()
        due = time.monotonic()
        while not over():
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
                continue
            due = max(due, time.monotonic() - 1.0) + per_call / rate  # at most a second is made up for
            calls.add(asyncio.create_task(self._call(self.count, per_call)))
            self.count += per_call
            if len(calls) >= IN_FLIGHT:
                _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*calls)

    async def _call(self, first: int, count: int) -> None:
        """Until it is accepted: again under the same ids."""
        runs = [{"workflow": "noted", "id": f"soak-{number}"} for number in range(first, first + count)]
        body = msgspec.json.encode({"runs": runs})
        while True:
            asked = time.monotonic()
            status, answer = await self._site.poster.post("/v1/runs/batch", body, timeout_s=60)
            if status < 300:
                break
            assert status in WAIT_AGAIN, (status, answer[:500])
            self.asked_again += 1
            await asyncio.sleep(0.1)
        self.ack_ms.append((asked, (time.monotonic() - asked) * 1e3))
        told = [run.get("id") for run in msgspec.json.decode(answer)["runs"]]
        assert told == [run["id"] for run in runs], "every run is accepted under its own id"


async def half_rate(load: Load) -> float:
    await load.at_full_rate(MEASURED_S / 3)  # warm
    measured = await load.at_full_rate(MEASURED_S)
    say(f"at full rate {measured:,.0f} tasks a second; half of it is used")
    return measured / 2


# ---- witnesses


def begun(ledger: Path, count: int) -> dict[str, float]:
    """By the tasks' own lines."""
    starts, again = bytearray(count), 0
    with ledger.open("rb") as lines:
        for line in lines:
            run, attempt = line.split()
            number = int(run[5:])  # after `soak-`
            starts[number] = min(starts[number] + 1, 255)
            again += attempt != b"1"
    return {"never_begun": starts.count(0), "begun_twice": count - starts.count(0) - starts.count(1), "retried": again}


async def ended(site: Site, count: int) -> dict[str, float]:
    """By the rows of runs, and by the results that the journal accepted."""
    seen = bytearray(count)
    connection = await asyncpg.connect(site.dsn)
    try:
        async with connection.transaction():
            async for (block,) in connection.cursor("select data from tickwork.run_blocks", prefetch=100):
                for number in (int(row.id[5:]) for row in rows_of(block) if row.state == COMPLETED):
                    seen[number] = min(seen[number] + 1, 255)
    finally:
        await connection.close()
    results, doubled = await _results(site)
    return {
        "not_completed": seen.count(0),
        "completed_twice": count - seen.count(0) - seen.count(1),
        "results": results,
        "results_doubled": doubled,
    }


async def _results(site: Site) -> tuple[int, int]:
    tasks: set[int] = set()
    doubled, seq, before = 0, 0, GENESIS
    asked = (
        "select seq, tick, hash, data from tickwork.journal where partition_id = 0 and seq > $1 order by seq limit $2"
    )
    connection = await asyncpg.connect(site.dsn)
    try:
        while page := await connection.fetch(asked, seq, PAGE):
            for row in page:
                sealed = SealedRow(*row)
                for event in unseal(sealed, before).events:
                    if isinstance(event, ev.TaskSucceeded):
                        doubled += event.task in tasks
                        tasks.add(event.task)
                before = sealed.hash
            seq = page[-1]["seq"]
    finally:
        await connection.close()
    return len(tasks), doubled


def p95_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """Of the commits between two readings, inside its bucket by proportion."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in sorted(after)}
    wanted = 0.95 * counts[math.inf]
    low = passed = 0.0
    for bound, count in counts.items():
        if count >= wanted:
            part = (wanted - passed) / (count - passed) if count > passed else 1.0
            return (low + part * ((2 * low if bound == math.inf else bound) - low)) * 1e3
        low, passed = bound, count
    return 0.0


def slope(samples: list[tuple[float, float]]) -> float:
    """Of a line through them: units a second."""
    if len(samples) < 2:
        return 0.0
    mean_x, mean_y = (sum(part) / len(samples) for part in zip(*samples, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def memory_mib(process: Process) -> float:
    """Resident, of it and everything it started, and what the machine has swapped out of it."""
    return sum(_status(pid, name) for pid in family(process.popen.pid) for name in ("VmRSS", "VmSwap")) / 1024


def descriptors(process: Process) -> int:
    found = 0
    for pid in family(process.popen.pid):
        with contextlib.suppress(OSError):
            found += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return found


def _status(pid: int, name: str) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
    return 0


class OldSnapshots:
    """One session that has done something and says no more, and readers that keep one view of everything: what they
    could still see, no vacuum may take away."""

    READERS = 4

    def __init__(self, site: Site) -> None:
        self._site = site
        self._idle: Any = None
        self._readers: list[Any] = []
        self._job: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "OldSnapshots":
        self._idle = await asyncpg.connect(self._site.dsn)
        await self._idle.execute("begin; create temporary table held (one integer); insert into held values (1)")
        for _ in range(self.READERS):
            reader = await asyncpg.connect(self._site.dsn)
            await reader.execute("begin isolation level repeatable read read only")
            self._readers.append(reader)
        await self._read()
        self._job = asyncio.create_task(self._read_on())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._job is not None
        self._job.cancel()
        await asyncio.gather(self._job, return_exceptions=True)
        for one in (self._idle, *self._readers):
            await one.close()

    async def _read(self) -> None:
        for reader in self._readers:
            await reader.fetch("select number, data from tickwork.live_runs limit 100")

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(2.0)
            await self._read()
