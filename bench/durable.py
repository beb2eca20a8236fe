"""Durable functions, end to end: real server, real worker, SQLite with full durability.

Run `bench/durable.py [--quick] [--peers] [--json] [--check]`; `--check` exits 1 and names what misses its gate. Server
and worker are processes of their own, as in `throughput.py`; this process is the client.

`--peers` adds, in the same run, the step of a chain through Celery on Redis, and one story through DBOS (SQLite and
PostgreSQL) and Temporal's development server: an order reserves, waits for its payment, packs three items beside each
other, and ships. They are set up as their modules say; with DBOS, packing is a step of the same process, with Temporal
an activity and with tickwork a task, which any worker may run. `paid_ms` is the time from sending the payment to the
first line of the last step. Peers that are not installed are left out (see `peers.py`).
"""

import argparse
import asyncio
import contextlib
import json
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import httpx2
import msgspec

import peers
from throughput import CALLERS, Bench, benching, hop, missed, say

APP = Path(__file__).resolve().parent / "durable_app.py"
GATES: dict[str, tuple[str, float]] = {
    "again_p50_ms": ("<=", 5.0),
    "update_p50_ms": ("<=", 6.0),
    "sleepers_s": ("<=", 15.0),
    "steps_kb": ("<=", 1_000.0),
    "steps_growth": ("<=", 1.5),
    "suspended_bytes": ("<=", 2_048.0),
    "suspended_core": ("<=", 0.02),
    "hop_sqlite_ms": ("<=", 1.0),
    "hop_postgres_ms": ("<=", 1.0),
}
WORDS = {
    "again_p50_ms": "event sent to function suspended again, median ms",
    "again_p95_ms": "the same, p95 ms",
    "update_p50_ms": "update sent to its reply, median ms",
    "update_p95_ms": "the same, p95 ms",
    "sleepers_s": "functions that sleep twice for 2 s, all ended after, s",
    "steps_s": "1,600 steps of 100 bytes, one after the other, s",
    "steps_kb": "stored for them, KB",
    "steps_growth": "cost of the last 400 steps against the first 400",
    "suspended_bytes": "server's memory for each suspended function, bytes",
    "suspended_core": "server's share of a core while all are suspended",
    "hop_sqlite_ms": "a step of a chain of tasks, SQLite, ms",
    "hop_postgres_ms": "the same, PostgreSQL, ms",
    "paid_ms": "an order, from its payment to its last step, SQLite, median ms",
    "orders_per_s": "orders a second, SQLite",
    "paid_postgres_ms": "an order, from its payment to its last step, PostgreSQL, median ms",
    "orders_postgres_per_s": "orders a second, PostgreSQL",
}
PEERS = {  # name in peers.py: what is measured of it
    "Celery, Redis": "chain",
    "DBOS, SQLite": "story",
    "DBOS, PostgreSQL": "story",
    "Temporal, SQLite": "story",
}
PEER_LIMIT_S = 120
BATCH = 500


async def submit(client: httpx2.AsyncClient, workflow: str, count: int) -> list[str]:
    runs: list[str] = []
    while len(runs) < count:
        body = {"runs": [{"workflow": workflow}] * min(BATCH, count - len(runs))}
        answer = await client.post("/v1/runs/batch", json=body)
        answer.raise_for_status()
        runs += [accepted["id"] for accepted in answer.json()["runs"]]
    return runs


async def run_of(client: httpx2.AsyncClient, run: str) -> dict[str, Any]:
    return dict((await client.get(f"/v1/runs/{run}")).json())


async def until_waiting(client: httpx2.AsyncClient, run: str, steps: int) -> None:
    """Until so many outcomes are recorded and the function waits again."""
    while True:
        detail = await run_of(client, run)
        if detail.get("steps_total", 0) >= steps and detail["state"] == "waiting" and detail.get("awaits"):
            return


async def at_rest(client: httpx2.AsyncClient) -> None:
    """Until nothing is ready or runs. A tick that takes an event makes its function ready, so none is missed."""
    while True:
        status = (await client.get("/v1/status")).json()
        if not status["ready"] and not status["running"]:
            return
        await asyncio.sleep(0.001)  # whoever asks without a pause takes the time of those who work


async def again(client: httpx2.AsyncClient, samples: int) -> tuple[float, float]:
    """From sending an event to a function that is suspended again; looking adds up to one request. The run itself is
    looked at once, at the end: its view has all attempts, and reading it takes longer than a wake-up."""
    (run,) = await submit(client, "entity", 1)
    await until_waiting(client, run, 0)
    times: list[float] = []
    for sample in range(samples):
        begun = time.perf_counter()
        await client.post("/v1/events", json={"event": "ping", "key": run, "payload": {"n": sample}})
        await at_rest(client)
        times.append((time.perf_counter() - begun) * 1_000)
    assert (await run_of(client, run))["steps_total"] == samples, "each event woke the function"
    await client.post("/v1/events", json={"event": "ping", "key": run, "payload": {"end": True}})
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)]


async def updates(client: httpx2.AsyncClient, samples: int) -> tuple[float, float]:
    """From sending an update to its reply, one after the other; the function waits for the next one then."""
    (run,) = await submit(client, "answers", 1)
    await until_waiting(client, run, 0)
    times: list[float] = []
    for sample in range(samples):
        begun = time.perf_counter()
        answer = await client.post(f"/v1/runs/{run}/updates/add", json={"payload": {"n": sample}})
        times.append((time.perf_counter() - begun) * 1_000)
        assert answer.json()["state"] == "replied", answer.text
    await client.post(f"/v1/runs/{run}/updates/add", json={"payload": {"n": -1}})
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.95)]


async def all_ended(bench: Bench, client: httpx2.AsyncClient, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while await bench.completed(client) < 0:
        if time.monotonic() > deadline:
            raise SystemExit(f"not all functions ended within {seconds} s")
        await asyncio.sleep(0.05)


async def sleepers(bench: Bench, client: httpx2.AsyncClient, count: int) -> float:
    begun = time.perf_counter()
    await submit(client, "sleeper", count)
    await all_ended(bench, client, seconds=300)
    return time.perf_counter() - begun


def stored_kb(bench: Bench) -> float:
    return sum(path.stat().st_size for path in (bench.folder / "data").rglob("*") if path.is_file()) / 1_000


async def steps(bench: Bench, client: httpx2.AsyncClient, figures: dict[str, float]) -> None:
    await bench.rest()
    before, begun = stored_kb(bench), time.perf_counter()
    (run,) = await submit(client, "stepper", 1)
    await all_ended(bench, client, seconds=120)
    figures["steps_s"] = time.perf_counter() - begun
    await bench.rest()
    figures["steps_kb"] = stored_kb(bench) - before
    history = msgspec.json.decode((await client.get(f"/v1/runs/{run}/history")).content)
    at = [_ms(step["at"]) for step in history["steps"]]
    figures["steps_growth"] = (at[-1] - at[-400]) / max(at[400] - at[0], 1)


def _ms(instant: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(instant).timestamp() * 1_000


def memory_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4_096


async def all_suspended(client: httpx2.AsyncClient, count: int) -> bool:
    status = (await client.get("/v1/status")).json()
    return bool(status["live_tasks"] >= count and not status["ready"] and not status["running"])


async def suspended(bench: Bench, client: httpx2.AsyncClient, count: int, figures: dict[str, float]) -> None:
    await bench.rest()
    before = memory_bytes(bench.server.popen.pid)
    await submit(client, "waiter", count)
    deadline = time.monotonic() + 300
    while not await all_suspended(client, count):
        if time.monotonic() > deadline:
            raise SystemExit("not all functions were suspended within 300 s")
        await asyncio.sleep(0.2)
    await bench.rest()
    figures["suspended_bytes"] = (memory_bytes(bench.server.popen.pid) - before) / count
    spent, begun = bench.server.cpu_s(), time.perf_counter()
    await asyncio.sleep(3)
    figures["suspended_core"] = (bench.server.cpu_s() - spent) / (time.perf_counter() - begun)


# ---- chains and orders, on both stores


async def orders(*words: str, quick: bool) -> tuple[float, float]:
    """Milliseconds from the payment of a waiting order to its last step; orders a second. `words` are for the server,
    which is one of its own."""
    async with benching(*words, app=APP) as (bench, client):
        bench.add_worker()
        await bench.ready(client, workflow="order")
        runs = await submit(client, "order", 20)
        await bench.rest()
        found = []
        for run in runs:
            begin = time.time_ns()
            await pay(bench, [run])
            found.append((await shipped(client, run) - begin) / 1e6)
        count = 200 if quick else 2_000
        begun = time.perf_counter()
        runs = await submit(client, "order", count)
        await pay(bench, runs)
        await all_ended(bench, client, seconds=120)
        return statistics.median(found), count / (time.perf_counter() - begun)


async def pay(bench: Bench, runs: list[str]) -> None:
    """Send each order the event that it waits for; one that does not wait yet keeps it."""
    left = iter(runs)

    async def some() -> None:
        for run in left:
            body = msgspec.json.encode({"event": "paid", "run": run, "payload": {"amount": 1}})
            status, _ = await bench.poster.post("/v1/events", body, timeout_s=60)
            assert status < 300, status

    await asyncio.gather(*(some() for _ in range(CALLERS)))


async def shipped(client: httpx2.AsyncClient, run: str) -> int:
    while (detail := await run_of(client, run)).get("ended_at") is None:
        await asyncio.sleep(0.002)
    return int(detail["output"])


async def on_postgres(address: str, figures: dict[str, float], *, quick: bool, story: bool) -> None:
    words = ("--store", address, "--partitions", "1")
    async with benching(*words) as (bench, client):
        figures["hop_postgres_ms"] = await chain(bench, client, quick=quick)
    if story:
        figures["paid_postgres_ms"], figures["orders_postgres_per_s"] = await orders(*words, quick=quick)


async def chain(bench: Bench, client: httpx2.AsyncClient, *, quick: bool) -> float:
    bench.add_worker()
    await bench.ready(client, workflow="chain")
    await hop(client, 3)
    await bench.rest()
    return await hop(client, 10 if quick else 30)


def of_peers(figures: dict[str, Any], addresses: peers.Addresses, *, quick: bool) -> None:
    figures["peers"] = {}
    for entry in peers.ENTRIES:
        if entry.name not in PEERS:
            continue
        if missing := entry.missing():
            figures["peers"][entry.name] = {"absent": f"not installed ({', '.join(missing)})"}
            continue
        say(entry.name)
        address = addresses.of(entry.store, f"story_{entry.module}")
        found = peers.theirs(entry, address, quick=quick, limit_s=PEER_LIMIT_S, parts=PEERS[entry.name])
        figures["peers"][entry.name] = found


def show_peers(figures: dict[str, Any]) -> None:
    """In brackets how many times as fast tickwork is, on the same kind of store."""
    for name, found in figures["peers"].items():
        if "absent" in found:
            print(f"{name}: {found['absent']}")
            continue
        store = "postgres" if "PostgreSQL" in name else "sqlite"
        ours = {
            "hop_ms": figures[f"hop_{store}_ms"],
            "paid_ms": figures["paid_postgres_ms" if store == "postgres" else "paid_ms"],
            "orders_per_s": figures["orders_postgres_per_s" if store == "postgres" else "orders_per_s"],
        }
        told = [
            f"{key} {value:,.2f} ({ours[key] / value if key == 'orders_per_s' else value / ours[key]:,.1f} x)"
            for key, value in found.items()
        ]
        print(f"{name}: {', '.join(told)}")


async def measure(*, quick: bool, story: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    async with benching() as (bench, client):
        figures["hop_sqlite_ms"] = await chain(bench, client, quick=quick)
        say("chain on SQLite")
    async with benching(app=APP) as (bench, client):
        bench.add_worker()
        await bench.ready(client, workflow="entity")
        figures["again_p50_ms"], figures["again_p95_ms"] = await again(client, 50 if quick else 300)
        say("event to suspended again")
        figures["update_p50_ms"], figures["update_p95_ms"] = await updates(client, 50 if quick else 300)
        say("update to reply")
        await steps(bench, client, figures)
        say("1,600 steps")
        count = 1_000 if quick else 10_000
        figures["sleepers"], figures["sleepers_s"] = count, await sleepers(bench, client, count)
        say(f"{count:,} sleepers")
        count = 3_000 if quick else 100_000
        figures["suspended"] = count
        await suspended(bench, client, count, figures)
        say(f"{count:,} suspended")
    if story:
        figures["paid_ms"], figures["orders_per_s"] = await orders(quick=quick)
        say("orders on SQLite")
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--peers", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    figures = asyncio.run(measure(quick=options.quick, story=options.peers))
    with contextlib.ExitStack() as servers:
        addresses = peers.Addresses(servers)
        address = addresses.of("postgres", "durable")
        asyncio.run(on_postgres(address, figures, quick=options.quick, story=options.peers))
        say("chain on PostgreSQL")
        if options.peers:
            of_peers(figures, addresses, quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, text in WORDS.items():
            sign, gate = GATES.get(name, ("", 0))
            if name in figures:
                print(f"{text:66} {figures[name]:>12,.2f}   {f'{sign} {gate:,}' if sign else ''}")
        if options.peers:
            show_peers(figures)
        print(f"{figures['sleepers']:,.0f} sleepers, {figures['suspended']:,.0f} suspended")
    wrong = missed(figures, GATES, WORDS) if options.check else []
    for text in wrong:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
