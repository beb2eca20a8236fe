"""The whole product, end to end: HTTP in, SQLite with full durability or PostgreSQL with fsync on, results durable.

Run `bench/throughput.py [--store sqlite|postgres] [--quick] [--json] [--check]`; `--check` exits 1 and names what
misses its gate. What only PostgreSQL has is in `clustered.py`.

Server and worker are processes of their own, started as a user starts them, with beats, time limits and logs on;
this process is the client. Everything shares the machine. CPU times are those of the kernel for each process and
its children. A rate is tasks divided by the time from the first call until every result is durable.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

SOURCE = Path(os.environ.get("BENCH_SOURCE") or Path(__file__).resolve().parents[1] / "src")
sys.path[:0] = [str(SOURCE), str(Path(__file__).resolve().parent)]

import httpx2
import msgspec

from tickwork.worker.http1 import PostClient

APP = Path(__file__).resolve().parent / "noop_app.py"
GATES: dict[str, tuple[str, float]] = {
    "tasks_per_s": (">=", 20_000),
    "graph_tasks_per_s": (">=", 15_000),
    "start_p50_ms": ("<=", 2.0),
    "start_p95_ms": ("<=", 3.5),
    "hop_ms": ("<=", 1.5),
    "single_p95_ms": ("<=", 5.0),
    "single_server_core": ("<=", 0.5),
    "killed_worker_s": ("<=", 5.0),
}
WORDS = {
    "tasks_per_s": "no-op tasks a second, calls of 100 by 4 callers",
    "tasks_per_s_1": "the same, calls of 1",
    "tasks_per_s_1000": "the same, calls of 1,000",
    "graph_tasks_per_s": "tasks a second in 1 -> 10 -> 1 graphs",
    "start_p50_ms": "submit to start, idle, median ms",
    "start_p95_ms": "submit to start, idle, p95 ms",
    "hop_ms": "a hop of a chain, ms",
    "single_p95_ms": "500 single submits a second, acknowledged, p95 ms",
    "single_server_core": "server's share of a core meanwhile",
    "killed_worker_s": "a task of a killed worker runs elsewhere after, s",
}
CALLERS = 4
JSON = {"content-type": "application/json"}
START_GAP_S = 0.025  # between two idle starts
CHAIN_S = 0.05  # what a chain takes, and some
LOOK_S = 0.05  # how often is looked whether all is done: looking costs the server, and counts


class Process:
    """A process of ours, with the CPU time of it and its children."""

    def __init__(self, *words: str, log: Path) -> None:
        self.log = log.open("wb")
        command = [sys.executable, "-m", "tickwork", *words]
        environment = os.environ | {
            "PYTHONPATH": f"{SOURCE}:{os.environ.get('PYTHONPATH', '')}"
        }  # this tree, whatever is installed
        if "unprotected:" in (SOURCE / "tickwork" / "compose" / "settings.py").read_text():
            environment["TICKWORK_UNPROTECTED"] = "true"  # older trees know no other way; requests stay comparable
        self.popen = subprocess.Popen(
            command, stdout=self.log, stderr=subprocess.STDOUT, cwd=log.parent, env=environment
        )

    def cpu_s(self) -> float:
        return sum(_cpu_s(pid) for pid in family(self.popen.pid))

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(10)
        if self.popen.poll() is None:
            self.popen.kill()
            self.popen.wait()
        self.log.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def family(pid: int) -> list[int]:
    found = [pid]
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            found += family(int(child))
    return found


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    """A server and its workers. `words` are flags of the server beside its folder and port."""

    def __init__(self, folder: Path, *words: str, app: Path = APP) -> None:
        self.port = free_port()
        self.folder, self.app = folder, app
        self.url = f"http://127.0.0.1:{self.port}"
        place = ("--data", str(folder / "data"), "--port", str(self.port))
        self.server = Process("server", *place, *words, log=folder / "server")
        self.workers: list[Process] = []
        self.poster = PostClient(
            self.url, headers=JSON
        )  # the client of the workers: lean, so that the server is measured

    def connect_anew(self) -> None:
        self.poster.close()
        self.poster = PostClient(self.url, headers=JSON)

    def add_worker(self, *words: str) -> Process:
        log = self.folder / f"worker{len(self.workers)}"
        self.workers.append(Process("worker", str(self.app), "--url", self.url, *words, log=log))
        return self.workers[-1]

    def end(self) -> None:
        self.poster.close()
        for worker in self.workers:
            worker.end()
        self.server.end()

    async def ready(self, client: httpx2.AsyncClient, *, workers: int = 1, workflow: str = "one") -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx2.HTTPError, KeyError):
                seated = (await client.get("/v1/workers")).json()["workers"]
                if len(seated) >= workers and (await client.get(f"/v1/workflows/{workflow}")).status_code == 200:
                    return
            await asyncio.sleep(0.05)
        raise SystemExit(f"the server did not become ready:\n{(self.folder / 'server').read_text()[-2000:]}")

    async def rest(self) -> None:
        """Until nobody has anything to do: rows are written, and every child of the workers has started."""
        deadline, before = time.monotonic() + 10, -1.0
        while (spent := sum(one.cpu_s() for one in (self.server, *self.workers))) > before + 0.01:
            assert time.monotonic() < deadline, "it does not come to rest"
            before = spent
            await asyncio.sleep(0.3)

    async def completed(self, client: httpx2.AsyncClient) -> int:
        status = (await client.get("/v1/status")).json()
        return sum(status.get("runs", {}).values()) if not status["live_runs"] else -1


@contextlib.asynccontextmanager
async def benching(*words: str, app: Path = APP) -> AsyncIterator[tuple[Bench, httpx2.AsyncClient]]:
    with tempfile.TemporaryDirectory(prefix="tickwork-bench-") as folder:
        bench = Bench(Path(folder), *words, app=app)
        limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
        async with httpx2.AsyncClient(base_url=bench.url, limits=limits, timeout=60) as client:
            try:
                yield bench, client
            finally:
                bench.end()


async def rate(
    bench: Bench, client: httpx2.AsyncClient, workflow: str, runs: int, per_call: int, *, callers: int = CALLERS
) -> dict[str, float]:
    """Runs a second, from the first call until the last result is durable."""
    body = msgspec.json.encode({"runs": [{"workflow": workflow}] * per_call})
    single = msgspec.json.encode({"workflow": workflow})
    before = sum((await client.get("/v1/status")).json().get("runs", {}).values())
    left = runs // per_call
    cpu = [process.cpu_s() for process in (bench.server, *bench.workers)]
    own = time.process_time()
    begin = time.perf_counter()

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            if per_call == 1:
                status, _ = await bench.poster.post("/v1/runs", single, timeout_s=60)
            else:
                status, _ = await bench.poster.post("/v1/runs/batch", body, timeout_s=60)
            assert status < 300, status

    await asyncio.gather(*(caller() for _ in range(callers)))
    submitted = time.perf_counter() - begin
    total = runs // per_call * per_call
    while True:
        status = (await client.get("/v1/status")).json()
        if not status["live_runs"]:
            break
        await asyncio.sleep(LOOK_S)
    passed = time.perf_counter() - begin
    while sum((await client.get("/v1/status")).json().get("runs", {}).values()) < before + total:
        await asyncio.sleep(LOOK_S)  # the rows follow; all of them must be there
    after = [process.cpu_s() for process in (bench.server, *bench.workers)]
    spent = [later - earlier for later, earlier in zip(after, cpu, strict=True)]
    return {
        "runs_per_s": total / passed,
        "submit_s": submitted,
        "server_us": spent[0] / total * 1e6,
        "worker_us": sum(spent[1:]) / total * 1e6,
        "client_us": (time.process_time() - own) / total * 1e6,
    }


async def latency(bench: Bench, client: httpx2.AsyncClient, samples: int) -> tuple[float, float]:
    """From the submission leaving the client to the first line of the function, on an idle system."""
    await bench.rest()
    begun: list[tuple[int, str]] = []
    for _ in range(samples):
        await asyncio.sleep(START_GAP_S)
        begin = time.time_ns()
        _, answer = await bench.poster.post("/v1/runs", b'{"workflow":"started"}', timeout_s=60)
        begun.append((begin, json.loads(answer)["id"]))
    found = sorted([(await output(client, run) - begin) / 1e6 for begin, run in begun])  # asked when all is over
    return statistics.median(found), found[int(len(found) * 0.95)]


async def hop(client: httpx2.AsyncClient, samples: int) -> float:
    """Median time from one function of a chain to the next."""
    found: list[float] = []
    for _ in range(samples):
        run = (await client.post("/v1/runs", content=b'{"workflow":"chain"}', headers=JSON)).json()["id"]
        await asyncio.sleep(CHAIN_S)  # nobody asks while it goes on
        await output(client, run)
        tasks = (await client.get(f"/v1/runs/{run}")).json()["tasks"]
        stamps = [task["result"] for task in tasks]
        found += [(later - earlier) / 1e6 for earlier, later in pairwise(stamps)]
    return statistics.median(found)


async def output(client: httpx2.AsyncClient, run: str) -> Any:
    while True:
        view = (await client.get(f"/v1/runs/{run}")).json()
        if view.get("ended_at"):
            assert view["state"] == "completed", view
            return view["output"]
        await asyncio.sleep(0.002)


async def singles(bench: Bench, seconds: float, *, per_s: int = 500) -> tuple[float, float]:
    """Single submits, evenly spaced: p95 of the acknowledgement, and the server's share of a core."""
    gap, found, jobs = 1 / per_s, [], []

    async def submit() -> None:
        begin = time.perf_counter()
        status, _ = await bench.poster.post("/v1/runs", b'{"workflow":"one"}', timeout_s=60)
        assert status == 201, status
        found.append((time.perf_counter() - begin) * 1e3)

    cpu, begin = bench.server.cpu_s(), time.perf_counter()
    for number in range(int(seconds * per_s)):
        wait = begin + number * gap - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        jobs.append(asyncio.create_task(submit()))
    await asyncio.gather(*jobs)
    share = (bench.server.cpu_s() - cpu) / (time.perf_counter() - begin)
    found.sort()
    return found[int(len(found) * 0.95)], share


async def killed_worker(bench: Bench, client: httpx2.AsyncClient) -> float:
    """Two workers; the one that holds a task is killed with its children; when does the task run elsewhere?"""
    bench.add_worker("--name", "second")
    await bench.ready(client, workers=2)
    body = b'{"workflow":"sleepy","inputs":{"seconds":1.0}}'
    run = (await client.post("/v1/runs", content=body, headers=JSON)).json()["id"]
    holder = ""
    while not holder:
        await asyncio.sleep(0.02)
        attempts = (await client.get(f"/v1/runs/{run}")).json()["tasks"][0].get("attempts", [])
        holder = attempts[0]["worker"] if attempts else ""
    victim = bench.workers[1] if holder == "second" else bench.workers[0]
    doomed = family(victim.popen.pid)
    begin = time.perf_counter()
    for pid in doomed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while True:
        await asyncio.sleep(0.02)
        attempts = (await client.get(f"/v1/runs/{run}")).json()["tasks"][0]["attempts"]
        if len(attempts) > 1:
            return time.perf_counter() - begin


async def measure(*, quick: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with benching() as (bench, client):
        bench.add_worker()
        await bench.ready(client)
        say("warm")
        await rate(bench, client, "one", 2_000, 100)
        figures["start_p50_ms"], figures["start_p95_ms"] = await latency(bench, client, 60 if quick else 300)
        say("submit to start")
        figures["hop_ms"] = await hop(client, 5 if quick else 30)
        say("chain")
        figures["single_p95_ms"], figures["single_server_core"] = await singles(bench, 3 if quick else 10)
        await asyncio.sleep(0.5)
        say("single submits")
        many = await rate(bench, client, "one", 60_000 if quick else 300_000, 100)
        figures["tasks_per_s"] = many["runs_per_s"]
        figures |= {name: many[name] for name in ("submit_s", "server_us", "worker_us", "client_us")}
        say("calls of 100")
        figures["tasks_per_s_1000"] = (await rate(bench, client, "one", 60_000 if quick else 200_000, 1_000))[
            "runs_per_s"
        ]
        say("calls of 1,000")
        figures["tasks_per_s_1"] = (await rate(bench, client, "one", 4_000 if quick else 20_000, 1))["runs_per_s"]
        say("calls of 1")
        graphs = await rate(bench, client, "graph", 3_000 if quick else 20_000, 100)
        figures["graph_tasks_per_s"] = graphs["runs_per_s"] * 12
        figures["graph_server_us"] = graphs["server_us"] / 12
        figures["graph_worker_us"] = graphs["worker_us"] / 12
        say("graphs")
        figures["killed_worker_s"] = await killed_worker(bench, client)
        say("killed worker")
    return figures


def say(text: str) -> None:
    print(f"… {text}", file=sys.stderr, flush=True)


def missed(figures: dict[str, float], gates: dict[str, tuple[str, float]], words: dict[str, str]) -> list[str]:
    return [
        f"{words[name]}: {figures[name]:,.2f}, wanted {sign} {gate:,}"
        for name, (sign, gate) in gates.items()
        if not keeps(figures[name], sign, gate)
    ]


def keeps(figure: float, sign: str, gate: float) -> bool:
    return {">=": figure >= gate, "<=": figure <= gate, "<": figure < gate}[sign]


def show(figures: dict[str, float], gates: dict[str, tuple[str, float]], words: dict[str, str]) -> None:
    for name, text in words.items():
        sign, gate = gates.get(name, ("", 0))
        print(f"{text:66} {figures[name]:>12,.2f}   {f'{sign} {gate:,}' if sign else ''}")
    for name in ("server_us", "worker_us", "client_us", "graph_server_us", "graph_worker_us"):
        print(f"CPU µs a task, {name.removesuffix('_us').replace('_', ' of ')}: {figures[name]:.1f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever ends it early leaves nothing running
    gates, words = GATES, WORDS
    if options.store == "postgres":
        import clustered

        gates, words = clustered.GATES, clustered.WORDS
        figures = asyncio.run(clustered.measure(quick=options.quick))
    else:
        figures = asyncio.run(measure(quick=options.quick))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures, gates, words)
        if options.store == "postgres":
            clustered.show_cost(figures)
    wrong = missed(figures, gates, words) if options.check else []
    for text in wrong:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.modules["throughput"] = sys.modules["__main__"]  # what `clustered` imports is this, not a second one
    sys.exit(main())
