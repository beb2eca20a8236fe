"""How soon it is there: import, cold start of `tickwork dev`, a restart with many timers, and what idling costs.

Run `bench/start.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate. `--quick` takes
200,000 timers instead of 2,000,000, and scales the gate with them.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

import httpx2

from throughput import APP, Process, free_port, say
from tickwork.compose.server import make_engine
from tickwork.compose.settings import Settings
from tickwork.protocol import http_models as wire

TIMERS = 2_000_000
GATES: dict[str, tuple[str, float]] = {
    "import_ms": ("<=", 150),
    "dev_s": ("<=", 2.0),
    "restart_s": ("<=", 30.0),
    "idle_core": ("<=", 0.01),
}
WORDS = {
    "import_ms": "import tickwork, with its decorators, ms",
    "dev_s": "tickwork dev until it answers, s",
    "restart_s": "restart with so many timers until it is ready, s",
    "idle_core": "share of a core that an idle server takes",
}
PER_CALL = 1_000
DAY_MS = 86_400_000


def import_ms() -> float:
    code = "import time; t=time.perf_counter(); import tickwork as t_; t_.task; print(time.perf_counter()-t)"
    runs = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(5)]
    return min(runs) * 1e3


def until_ready(port: int, path: str, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=1).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.01)
    raise SystemExit(f"nothing answered within {seconds} s")


def dev_s(folder: Path) -> float:
    port = free_port()
    begin = time.perf_counter()
    dev = Process("dev", str(APP), "--data", str(folder / "dev"), "--port", str(port), log=folder / "dev.log")
    try:
        until_ready(port, "/readyz", seconds=20)
        return time.perf_counter() - begin
    finally:
        dev.end()


async def fill(folder: Path, timers: int) -> None:
    """Delayed runs, each with a timer, spread over a month."""
    engine = make_engine(Settings(data=str(folder)), own_process=True)
    await engine.start()
    document = {"name": "later", "format": 1, "nodes": [{"kind": "task", "id": "a", "handler": "noop"}]}
    await engine.workflows.publish(wire.Publication(documents=(document,)), by="bench")
    for number in range(0, timers, PER_CALL):
        delays = (DAY_MS + (number + place) * 7919 % (30 * DAY_MS) for place in range(PER_CALL))
        await engine.runs.submit([wire.Submission(workflow="later", delay_ms=delay) for delay in delays], by="bench")
        if number % 200_000 == 0:
            say(f"{number:,} timers")
    await engine.stop()


def restart(folder: Path, timers: int) -> tuple[float, float]:
    """Seconds until ready, and the share of a core that the idle server takes then."""
    asyncio.run(fill(folder, timers))
    port = free_port()
    begin = time.perf_counter()
    server = Process("server", "--data", str(folder), "--port", str(port), log=folder.parent / "restart.log")
    try:
        until_ready(port, "/readyz", seconds=120)
        passed = time.perf_counter() - begin
        live = httpx2.get(f"http://127.0.0.1:{port}/v1/status", timeout=10).json()["live_runs"]
        assert live == timers, f"{live} of {timers} came back"
        time.sleep(1)
        before, since = server.cpu_s(), time.perf_counter()
        time.sleep(5)
        return passed, (server.cpu_s() - before) / (time.perf_counter() - since)
    finally:
        server.end()


def measure(*, quick: bool) -> dict[str, float]:
    timers = TIMERS // 10 if quick else TIMERS
    with tempfile.TemporaryDirectory(prefix="tickwork-bench-") as folder:
        figures = {"import_ms": import_ms(), "dev_s": min(dev_s(Path(folder) / str(n)) for n in made(folder, 2))}
        figures["restart_s"], figures["idle_core"] = restart(Path(folder) / "restart", timers)
    figures["timers"] = timers
    return figures


def made(folder: str, count: int) -> range:
    for number in range(count):
        (Path(folder) / str(number)).mkdir()
    return range(count)


def missed(figures: dict[str, float]) -> list[str]:
    scale = figures["timers"] / TIMERS
    return [
        f"{WORDS[name]}: {figures[name]:,.3f}, wanted {sign} {gate:,}"
        for name, (sign, gate) in GATES.items()
        if figures[name] > (gate * scale if name == "restart_s" else gate)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    figures = measure(quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"timers at the restart: {figures['timers']:,.0f}")
        for name, (sign, gate) in GATES.items():
            print(f"{WORDS[name]:52} {figures[name]:>10,.3f}   {sign} {gate:,}")
    wrong = missed(figures) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
