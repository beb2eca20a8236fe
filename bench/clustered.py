"""The benchmark of `throughput.py` on PostgreSQL: one node, two nodes, and one server of two processes.

A private PostgreSQL with its own defaults (fsync, full page writes and synchronous commit on) is started for it. CPU
times are those of the kernel: of the server, the worker and the client, and of PostgreSQL's processes by what they do
for us. Stored bytes are those of the database's files, journal, rows and indexes together; the log of PostgreSQL
(WAL) is counted apart, because it is recycled.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import httpx2

import peer_servers
from throughput import JSON, Bench, benching, family, latency, rate, say, singles

GATES: dict[str, tuple[str, float]] = {
    "tasks_per_s": (">=", 25_000),
    "graph_tasks_per_s": (">=", 20_000),
    "ten_runs_per_s": (">=", 833),
    "single_p95_ms": ("<=", 15.0),
    "start_p50_ms": ("<=", 2.0),
    "start_p95_ms": ("<=", 3.5),
    "across_p50_ms": ("<=", 6.0),
    "across_p95_ms": ("<=", 12.0),
    "late_5000_p95_ms": ("<", 500),
    "two_ratio": ("<=", 1.25),
}
WORDS = {
    "tasks_per_s": "no-op tasks a second, calls of 100 by 4 callers, 1 partition in 1 process",
    "two_tasks_per_s": "the same by 8 callers, 2 partitions in 2 processes",
    "graph_tasks_per_s": "tasks a second in 1 -> 10 -> 1 graphs",
    "ten_runs_per_s": "single submissions a second of graphs of 10 tasks, all done",
    "single_p95_ms": "2,000 single submits a second, acknowledged, p95 ms",
    "single_server_core": "server's share of a core meanwhile",
    "start_p50_ms": "submit to start, idle, at the owner, median ms",
    "start_p95_ms": "submit to start, idle, at the owner, p95 ms",
    "across_p50_ms": "submit to start, idle, client and worker at another node, median ms",
    "across_p95_ms": "submit to start, idle, client and worker at another node, p95 ms",
    "late_5000_p95_ms": "5,000 due at one instant, lateness, p95 ms",
    "two_ratio": "their servers' CPU a task, against one partition in one process, in turns, 8 callers",
    "wal_bytes": "bytes of WAL a task",
    "stored_bytes": "bytes stored a task",
}
SINGLES_PER_S = 2_000
CALLERS_OF_TWO = 8
BILLION_A_DAY = 1e9 / 86_400
TICKS = os.sysconf("SC_CLK_TCK")
# What a backend did last says what it is for; each of our connections always does the same.
DEEDS = {"insert into journal": "commits", "write_rows": "rows", "copy ": "rows", "commit": "rows"}


class Database:
    """A database of its own in the private server, and what it cost."""

    def __init__(self, server: peer_servers.Postgres, name: str) -> None:
        self.server = server
        self.dsn = server.database(name)

    async def cpu_s(self) -> dict[str, float]:
        """By family. What has ended (autovacuum, mostly) counts at its parent."""
        connection = await asyncpg.connect(self.dsn)
        try:
            asked = "select pid, query, backend_type from pg_stat_activity where pid <> pg_backend_pid()"
            found = await connection.fetch(asked)
        finally:
            await connection.close()
        spent = {"commits": 0.0, "rows": 0.0, "reads": 0.0, "background": 0.0}
        for pid, query, kind in found:
            deed = next((name for words, name in DEEDS.items() if words in (query or "").lower()), "reads")
            spent[deed if kind == "client backend" else "background"] += _cpu_s(pid)
        spent["background"] += _cpu_s(self.server.pid, ended=True)
        return spent

    async def sizes(self) -> tuple[int, int]:
        """Of the files and of the log so far, in bytes."""
        connection = await asyncpg.connect(self.dsn)
        try:
            asked = "select pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'::pg_lsn"
            row = await connection.fetchrow(asked)
            assert row is not None
            stored, wal = row
            return int(stored), int(wal)
        finally:
            await connection.close()


def _cpu_s(pid: int, *, ended: bool = False) -> float:
    """Of one process; with `ended`, of its dead children as well."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11 : 15 if ended else 13]) / TICKS


async def costed(
    database: Database, client: httpx2.AsyncClient, deed: Callable[[], Any], tasks: int
) -> dict[str, float]:
    """What `deed` says, with the CPU of PostgreSQL's families in µs a task and the bytes a task, rows and all."""
    await rows_written(client)
    before, sizes = await database.cpu_s(), await database.sizes()
    figures: dict[str, float] = await deed()
    await rows_written(client)
    after, later = await database.cpu_s(), await database.sizes()
    figures |= {f"pg_{name}_us": (after[name] - before[name]) / tasks * 1e6 for name in after}
    figures["stored_bytes"], figures["wal_bytes"] = ((b - a) / tasks for a, b in zip(sizes, later, strict=True))
    return figures


async def rows_written(client: httpx2.AsyncClient) -> None:
    while any(one["rows_behind"] for one in (await client.get("/v1/cluster")).json()["partitions"]):
        await asyncio.sleep(0.05)


async def one_node(server: peer_servers.Postgres, figures: dict[str, float], *, quick: bool) -> None:
    import schedules

    database = Database(server, "one")
    async with benching("--store", database.dsn, "--partitions", "1", "--node", "first") as (bench, client):
        bench.add_worker()
        await bench.ready(client)
        await rate(bench, client, "one", 2_000, 100)
        say("warm")
        figures["start_p50_ms"], figures["start_p95_ms"] = await latency(bench, client, 60 if quick else 300)
        say("submit to start")
        p95, share = await singles(bench, 2 if quick else 10, per_s=SINGLES_PER_S)
        figures["single_p95_ms"], figures["single_server_core"] = p95, share
        say("single submits")
        runs = 60_000 if quick else 300_000
        many = await costed(database, client, lambda: rate(bench, client, "one", runs, 100), runs)
        figures["tasks_per_s"] = many.pop("runs_per_s")
        figures |= many
        say("calls of 100")
        runs = 2_500 if quick else 20_000
        graphs = await costed(database, client, lambda: rate(bench, client, "graph", runs, 100), runs * 12)
        figures["graph_tasks_per_s"] = graphs["runs_per_s"] * 12
        figures |= {f"graph_{name}_us": graphs[f"{name}_us"] / 12 for name in ("server", "worker")}
        figures["graph_pg_us"] = sum(value for name, value in graphs.items() if name.startswith("pg_"))
        say("graphs")
        ten = await rate(bench, client, "ten", 1_500 if quick else 10_000, 1, callers=16)
        figures["ten_runs_per_s"] = ten["runs_per_s"]
        say("graphs of ten")
        found = await schedules.lateness(bench, client, 5_000, 0 if quick else 3)
        figures["late_5000_p95_ms"] = found[int(len(found) * 0.95)]
        say("5,000 at one instant")
        await two_processes(bench, client, Database(server, "two"), figures, quick=quick)
        await across(bench, database, figures, samples=40 if quick else 200)
        say("across nodes")


async def across(owner: Bench, database: Database, figures: dict[str, float], *, samples: int) -> None:
    """A second node, which owns nothing, takes the submissions and has the only worker."""
    for worker in owner.workers:
        worker.end()
    folder = owner.folder / "second"
    folder.mkdir()
    second = Bench(folder, "--store", database.dsn, "--node", "second", "--role", "api")
    try:
        second.add_worker("--name", "elsewhere")
        async with httpx2.AsyncClient(base_url=second.url, timeout=60) as client:
            await second.ready(client, workflow="started")
            await latency(second, client, 10)
            await owner.rest()
            figures["across_p50_ms"], figures["across_p95_ms"] = await latency(second, client, samples)
    finally:
        second.end()


async def two_processes(
    alone: Bench, of_alone: httpx2.AsyncClient, database: Database, figures: dict[str, float], *, quick: bool
) -> None:
    """In turns with one partition in one process: the machine's speed changes from minute to minute. What a tick costs
    whatever is in it is shared by what has gathered, so both have enough to do for two: eight callers, and two workers,
    because one alone gets the share of one process of the machine, and work would pile up before it."""
    words = ("--store", database.dsn, "--partitions", "2", "--processes", "2", "--node", "pair")
    async with benching(*words) as (bench, client):
        alone.add_worker("--name", "beside")
        for name in ("left", "right"):
            bench.add_worker("--name", name)
        await alone.ready(of_alone, workers=2)
        await bench.ready(client, workers=2)
        await both_own(client)
        await spread_over_two(client)
        await rate(alone, of_alone, "one", 4_000, 100, callers=CALLERS_OF_TWO)
        await until_both_take_part(bench, client)
        runs, turns = (40_000, 3) if quick else (100_000, 5)
        ones, twos = [], []
        before = each_cpu_s(bench)
        for _ in range(turns):
            ones.append(await rate(alone, of_alone, "one", runs, 100, callers=CALLERS_OF_TWO))
            await rows_written(of_alone)
            twos.append(await rate(bench, client, "one", runs, 100, callers=CALLERS_OF_TWO))
            await rows_written(client)
        after = each_cpu_s(bench)
        figures["two_tasks_per_s"] = max(one["runs_per_s"] for one in twos)
        figures["two_server_us"] = sum(one["server_us"] for one in twos) / turns
        figures["one_server_us"] = sum(one["server_us"] for one in ones) / turns
        figures["two_ratio"] = figures["two_server_us"] / figures["one_server_us"]
        spent = sorted((after[pid] - before[pid]) / runs / turns * 1e6 for pid in before)
        figures["two_less_us"], figures["two_more_us"] = spent[-2:]
        say("two processes")


async def spread_over_two(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while (
            answer := await client.put("/v1/cluster/spread", content=b'{"spread":2}', headers=JSON)
        ).status_code == 503:
            await asyncio.sleep(0.2)  # a partition is just moving
    assert answer.status_code < 300, answer.text
    await asyncio.sleep(1.2)  # every node has read the route


def each_cpu_s(bench: Bench) -> dict[int, float]:
    """Of a server of several processes: of each of them."""
    return {pid: _cpu_s(pid) for pid in family(bench.server.popen.pid)}


async def until_both_take_part(bench: Bench, client: httpx2.AsyncClient) -> None:
    """Which process a connection ends at is the kernel's choice, and where it gives all of them to one, one has all the
    work. Then they are made anew."""
    for _ in range(20):
        before = await seqs(client)
        await rate(bench, client, "one", 4_000, 100, callers=CALLERS_OF_TWO)
        grown = [later - earlier for earlier, later in zip(before, await seqs(client), strict=True)]
        if min(grown) * 4 >= sum(grown):
            return
        bench.connect_anew()
    raise SystemExit("one of the two processes gets all the work")


async def seqs(client: httpx2.AsyncClient) -> list[int]:
    return [one["seq"] for one in (await client.get("/v1/cluster")).json()["partitions"]]


async def both_own(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while len({one.get("node") for one in (await client.get("/v1/cluster")).json()["partitions"]} - {None, ""}) < 2:
            await asyncio.sleep(0.1)


async def measure(*, quick: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    with peer_servers.postgres() as server:
        await one_node(server, figures, quick=quick)
    figures["cores_server"] = figures["server_us"] * BILLION_A_DAY / 1e6
    figures["cores_postgres"] = postgres_us(figures) * BILLION_A_DAY / 1e6
    figures["cores_worker"] = figures["worker_us"] * BILLION_A_DAY / 1e6
    return figures


def postgres_us(figures: dict[str, float]) -> float:
    return sum(value for name, value in figures.items() if name.startswith("pg_"))


def show_cost(figures: dict[str, float]) -> None:
    parts = {name: figures[f"pg_{name}_us"] for name in ("commits", "rows", "reads", "background")}
    told = ", ".join(f"{name} {value:.1f}" for name, value in parts.items())
    print(f"CPU µs a task, postgres: {sum(parts.values()):.1f} ({told}); in graphs {figures['graph_pg_us']:.1f}")
    both, alone = figures["two_server_us"], figures["one_server_us"]
    each = f"{figures['two_more_us']:.1f} and {figures['two_less_us']:.1f} with the rows that follow"
    print(f"CPU µs a task, servers of two processes: {both:.1f} ({each}); of one, in turns with them: {alone:.1f}")
    cores = {name: figures[f"cores_{name}"] for name in ("server", "postgres", "worker")}
    told = ", ".join(f"{name} {value:.2f}" for name, value in cores.items())
    print(f"cores for 1,000,000,000 tasks a day: {sum(cores.values()):.2f} ({told})")
