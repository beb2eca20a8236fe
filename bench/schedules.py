"""Schedules: what a million of them cost, and how late those start that are due at one instant.

Run `bench/schedules.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.

Held: 1,000,000 cron schedules in one partition, in many expressions and zones (`schedules_held.py`, in a process of
its own); beside 1,000 of them, what must not depend on their number is measured again. Restart: a server whose store
holds them, until it is ready. Lateness: server and worker are processes as a user starts them, SQLite with
synchronous=FULL; schedules that are due at one instant are put over HTTP, and a run is late by the time from its
nominal time to the first line of its function. The same through DBOS and APScheduler where they are installed
(`uv pip install --group peers`), in the same run; DBOS spreads its starts over a tenth of the period on purpose.

The full form has two instants, a minute apart. `--quick` has one for 1,000 and one for 5,000, holds 50,000
schedules, and asks of peers what time is left.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

import httpx2
import msgspec

from start import until_ready
from throughput import JSON, Bench, Process, benching, free_port, say
from tickwork.compose.server import make_engine
from tickwork.compose.settings import Settings
from tickwork.protocol import http_models as wire

HELD = 1_000_000
QUICK_S = 50
GATES: dict[str, tuple[str, float]] = {
    "next_us": ("<=", 10),
    "next_p95_us": ("<=", 10),
    "idle_ratio": ("<=", 1.3),
    "changed_ratio": ("<=", 1.5),
    "changed_rows": ("<=", 1),
    "header_growth": ("<=", 16),  # counters take a few bytes more
    "threads": ("<=", 1),
    "late_1000_p95_ms": ("<=", 50),
    "late_5000_p95_ms": ("<", 500),
}
WORDS = {
    "bytes_per_schedule": "memory per schedule, bytes",
    "threads": "threads that hold them",
    "put_us": "a put through the machine with its journal row, µs",
    "next_us": "the next time of an expression, mean µs",
    "next_p95_us": "the same, p95 µs",
    "idle_ratio": "an idle tick beside all of them, against 1,000",
    "changed_ratio": "finding the rows that one edit changed, the same",
    "changed_rows": "rows that one edit changed",
    "header_growth": "bytes by which all of them lengthen the header",
    "fire_us": "a scheduled run through the machine, due to done, µs",
    "restore_s": "rows to a machine again, s",
    "restart_s": "restart of a server that holds them until it is ready, s",
    "late_1000_p50_ms": "1,000 due at one instant, lateness, median ms",
    "late_1000_p95_ms": "1,000 due at one instant, lateness, p95 ms",
    "late_5000_p50_ms": "5,000 due at one instant, lateness, median ms",
    "late_5000_p95_ms": "5,000 due at one instant, lateness, p95 ms",
}
PEERS = {"DBOS": "dbos", "APScheduler": "apscheduler"}
PER_CALL = 20_000  # schedules of a publication
APART_S = 60
AT_ONCE = 32  # questions about ended runs, while nothing is due


def held(count: int) -> dict[str, float]:
    command = [sys.executable, str(HERE / "schedules_held.py"), str(count)]
    figures: dict[str, float] = json.loads(subprocess.check_output(command).splitlines()[-1])
    figures["idle_ratio"] = figures["idle_us"] / figures["idle_few_us"]
    figures["changed_ratio"] = figures["changed_us"] / figures["changed_few_us"]
    return figures


# ---- restart


async def fill(folder: Path, count: int) -> None:
    from schedules_held import ZONES, expression

    begin = time.perf_counter()
    engine = make_engine(Settings(data=str(folder)), own_process=True)
    await engine.start()
    document = {"name": "one", "format": 1, "nodes": [{"kind": "task", "id": "a", "handler": "noop"}]}
    await engine.workflows.publish(wire.Publication(documents=(document,)), by="bench")
    for first in range(0, count, PER_CALL):
        wanted = {
            f"schedule-{number:07}": wire.ScheduleRequest(
                workflow="one", cron=expression(number), timezone=ZONES[number % len(ZONES)], catch_up="none"
            )
            for number in range(first, min(first + PER_CALL, count))
        }
        await engine.workflows.publish(wire.Publication(schedules=wanted), by="bench")
        if first % 100_000 == 0:
            say(f"{first + len(wanted):,} stored after {time.perf_counter() - begin:.0f} s")
    await engine.stop()


def restart_s(count: int) -> float:
    with tempfile.TemporaryDirectory(prefix="tickwork-bench-") as folder:
        asyncio.run(fill(Path(folder) / "data", count))
        port, begin = free_port(), time.perf_counter()
        server = Process("server", "--data", f"{folder}/data", "--port", str(port), log=Path(folder) / "server")
        try:
            until_ready(port, "/readyz", seconds=300)
            return time.perf_counter() - begin
        finally:
            server.end()


# ---- lateness


async def lateness(bench: Bench, client: httpx2.AsyncClient, count: int, instants: int) -> list[float]:
    """Milliseconds of each run of each instant, in order. `instants` 0: one, as soon as may be."""
    if instants:
        first_s = (int(time.time()) // APART_S + (2 if time.time() % APART_S > 45 else 1)) * APART_S
        cron, times_s = "* * * * *", [first_s + APART_S * place for place in range(instants)]
    else:
        times_s = [int(time.time()) + 3 + count // 1_000]
        at = datetime.fromtimestamp(times_s[0], UTC)
        cron = f"{at.second} {at.minute} {at.hour} {at.day} {at.month} *"
    names = [f"due{count}-{number}" for number in range(count)]
    await put(client, {name: {"workflow": "started", "cron": cron} for name in names})
    assert time.time() < times_s[0], "they are there before they are due"
    found: list[float] = []
    for at_s in times_s:
        await asyncio.sleep(max(0, at_s - time.time()) + 2)
        text = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found += [late - at_s * 1e3 for late in await starts(client, [f"sched-{name}-{text}" for name in names])]
    await put(client, {})
    return sorted(found)


async def put(client: httpx2.AsyncClient, schedules: dict[str, Any]) -> None:
    """A whole set: what it lacks ends."""
    body = msgspec.json.encode({"application": "bench", "schedules": schedules})
    answer = await client.put("/v1/workflows", content=body, headers=JSON)
    assert answer.status_code == 200, answer.text


async def starts(client: httpx2.AsyncClient, runs: list[str]) -> list[float]:
    """When each run's function began, in milliseconds of the machine's clock."""
    found: list[float] = []
    left = iter(runs)

    async def ask() -> None:
        for run in left:
            while not (view := (await client.get(f"/v1/runs/{run}")).json()).get("ended_at"):
                await asyncio.sleep(0.05)
            assert view["state"] == "completed", view
            found.append(view["output"] / 1e6)

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return found


async def late(*, quick: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with benching() as (bench, client):
        bench.add_worker()
        await bench.ready(client, workflow="started")
        await starts(client, await warm(client))
        for count in (1_000, 5_000):
            found = await lateness(bench, client, count, 0 if quick else 2)
            figures[f"late_{count}_p50_ms"] = found[len(found) // 2]
            figures[f"late_{count}_p95_ms"] = found[int(len(found) * 0.95)]
            figures[f"late_{count}_max_ms"] = found[-1]
            assert found[0] >= 0, "nothing starts early"
            say(f"{count:,} due at one instant: p95 {figures[f'late_{count}_p95_ms']:.1f} ms")
            if count == 1_000:
                family = [bench.server, *bench.workers]
                figures["server_mb"] = memory_mb(bench.server.popen.pid)
                figures["server_threads"] = threads(bench.server.popen.pid)
                figures["family_mb"] = sum(memory_mb(process.popen.pid) for process in family)
    return figures


async def warm(client: httpx2.AsyncClient) -> list[str]:
    body = msgspec.json.encode({"runs": [{"workflow": "started"}] * 1_000})
    answer = (await client.post("/v1/runs/batch", content=body, headers=JSON)).json()
    return [run["id"] for run in answer["runs"]]


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


# ---- peers


def peer(module: str, *, quick: bool, limit_s: float) -> dict[str, Any]:
    """Its figures, or under `absent` why there are none."""
    if importlib.util.find_spec(module) is None:
        return {"absent": "not installed"}
    if limit_s < 12:
        return {"absent": "left out: no time"}
    instants = "0" if quick else "2"
    with tempfile.TemporaryDirectory(prefix="tickwork-peer-") as folder:
        command = [sys.executable, str(HERE / "peer_schedules.py"), module, "1000", instants]
        with (Path(folder) / "log").open("wb") as log:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder)
        try:
            output, _ = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return {"absent": f"not done within {limit_s:.0f} s"}
        if child.returncode:
            with contextlib.suppress(OSError):
                say((Path(folder) / "log").read_text(errors="replace")[-1500:])
            return {"absent": "failed; its words are on standard error"}
        figures: dict[str, Any] = json.loads(output.splitlines()[-1])
        return figures


def measure(*, quick: bool) -> dict[str, Any]:
    begin = time.monotonic()
    count = HELD // 20 if quick else HELD
    report: dict[str, Any] = {"load": os.getloadavg()[0], "quick": quick}
    say("lateness")
    report |= asyncio.run(late(quick=quick))
    say("held")
    report |= held(count)
    report["restart_count"] = count // 5 if quick else count
    say("restart")
    report["restart_s"] = restart_s(report["restart_count"])
    report["peers"] = {}
    for name, module in PEERS.items():
        say(name)
        limit_s = QUICK_S - 2 - (time.monotonic() - begin) if quick else 400
        report["peers"][name] = peer(module, quick=quick, limit_s=limit_s)
    return report


def missed(report: dict[str, Any]) -> list[str]:
    return [
        f"{WORDS[name]}: {report[name]:,.2f}, wanted {sign} {gate:,}"
        for name, (sign, gate) in GATES.items()
        if not (report[name] < gate if sign == "<" else report[name] <= gate)
    ]


def show(report: dict[str, Any]) -> None:
    print(f"load of the machine before: {report['load']:.2f}")
    print(f"schedules held: {report['held']:,.0f}; at the restart: {report['restart_count']:,}")
    for name, words in WORDS.items():
        sign, gate = GATES.get(name, ("", 0))
        print(f"{words:58} {report[name]:>12,.2f}   {f'{sign} {gate:,}' if sign else ''}")
    print(
        f"\n{'1,000 schedules due at one instant':36}{'p95 late ms':>12}{'started':>10}{'memory MB':>11}{'threads':>9}"
    )
    ours = (report["late_1000_p95_ms"], "all", report["server_mb"], report["server_threads"])
    print(f"{'tickwork server (own worker process)':36}{ours[0]:>12,.1f}{ours[1]:>10}{ours[2]:>11,.0f}{ours[3]:>9,.0f}")
    for name, figures in report["peers"].items():
        if "absent" in figures:
            print(f"{name:36}   {figures['absent']}")
            continue
        started = f"{figures['started'] / figures['expected']:.0%}"
        label = f"{name} {figures['version']}"
        late_ms, memory = figures["late_p95_ms"], figures["memory_mb"]
        print(f"{label:36}{late_ms:>12,.1f}{started:>10}{memory:>11,.0f}{figures['threads']:>9,.0f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    report = measure(quick=options.quick)
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        show(report)
    wrong = missed(report) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
