"""What starts work, and what is kept for it: transactional enqueue, events, and what each live key costs.

Run `bench/reach.py [--quick] [--json] [--check] [--only PART]`; `--check` exits 1 and names what misses its gate. Each
part is one function in `PARTS`, which returns its figures; a part adds its gates and words to the tables here.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import re
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import perf_counter

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

import asyncpg

import peer_servers
import reach_search
from tickwork.cluster.node import Node
from tickwork.compose.cluster import serving_node
from tickwork.compose.ephemeral_server import EphemeralServer
from tickwork.compose.settings import Settings
from tickwork.core.base.values import pack
from tickwork.core.machine import Machine
from tickwork.core.state import inputs as inp
from tickwork.core.state.state import Settings as MachineSettings
from tickwork.protocol import http_models as wire
from tickwork.sdk.client.client import Client

PARTITIONS = 8
CONNECTIONS = 8
DOCUMENT = {
    "name": "flow",
    "inputs": {"order": {"type": "integer"}},
    "nodes": [{"kind": "wait", "id": "later", "duration_ms": 3_600_000}],
}
RATED = {
    "name": "rated",
    "inputs": {"customer": {"type": "string"}},
    "rate": {"limit": 1, "per_ms": 3_600_000, "key": "inputs.customer"},
    "nodes": [{"kind": "wait", "id": "moment", "duration_ms": 1}],
}
EVENT_APP = """
import tickwork as tw


@tw.workflow(schedule=tw.on(tw.incoming("order"), name="on_order"))
def flow(event: dict) -> None:
    tw.wait("1h")
"""
GATES: dict[str, tuple[str, float]] = {
    "enqueue_per_s": (">=", 5_000),
    "rate_key_bytes": ("<=", 300),
    "debounce_key_bytes": ("<=", 300),
    "event_p50_ms": ("<=", 4.0),
    "search_sqlite_p95_ms": ("<=", 50),
    "search_postgres_p95_ms": ("<=", 50),
}
WORDS = {
    "enqueue_per_s": "transactions with an insert and `enqueue`, 8 connections, per second",
    "insert_per_s": "the same without `enqueue`, per second",
    "taken_per_s": "enqueued runs that a node takes, per second",
    "rate_key_bytes": "memory of a key of a rate, in bytes",
    "event_p50_ms": "from an event to its durable run, half of the time within ms",
    "event_p99_ms": "the same, 99 of 100 times within ms",
    "debounce_key_bytes": "memory of a debounce key beside its run, in bytes",
    "search_sqlite_build_s": "seconds to write the runs, SQLite",
    "search_sqlite_bytes": "bytes of the database for each run, SQLite",
}
for _store in ("sqlite", "postgres"):
    WORDS[f"search_{_store}_p95_ms"] = f"a page of a search among a million runs, worst p95 of five, ms, {_store}"
    for _kind in ("input", "tag", "error", "time", "both"):
        WORDS[f"search_{_store}_{_kind}_ms"] = f"the same by {_kind}, p95, ms, {_store}"
_TRANSACTION = "insert into orders (item) values ('x') \\; {} commit;\n"


def enqueue(*, quick: bool) -> dict[str, float]:
    """`enqueue` in transactions of an application, by pgbench; then a node takes what they left."""
    with peer_servers.postgres() as server:
        dsn = server.database("reach")
        asyncio.run(_found(dsn))
        seconds = 3 if quick else 15
        insert = _pgbench(server, "", seconds)
        enqueued = _pgbench(server, "select tickwork.enqueue('flow', '{\"order\": 7}') \\;", seconds)
        return {"insert_per_s": insert, "enqueue_per_s": enqueued, "taken_per_s": asyncio.run(_take(dsn))}


async def _found(dsn: str) -> None:
    """A node makes the schema and learns the workflow, and ends."""
    async with _node(dsn) as node:
        engine = node.engines[node.routes.home("default")]
        await engine.workflows.publish(wire.Publication(documents=(DOCUMENT,)), by="bench")
    connection = await asyncpg.connect(dsn)
    await connection.execute("create table orders (id bigint generated always as identity primary key, item text)")
    await connection.close()


@contextlib.asynccontextmanager
async def _node(dsn: str) -> AsyncIterator[Node]:
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(store=dsn, port=0, token="x" * 32, data=folder, partitions=PARTITIONS)
        async with serving_node(settings) as (node, _):
            yield node


def _pgbench(server: peer_servers.Postgres, enqueue: str, seconds: int) -> float:
    """Transactions per second; each travels as one message, as from a driver with pipelining."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script")
        script.write_text(f"begin \\; {_TRANSACTION.format(enqueue)}")
        words = ["-n", "-c", str(CONNECTIONS), "-j", "2", "-T", str(seconds), "-f", str(script), "reach"]
        said = server.run("pgbench", *words, timeout_s=seconds + 60)
    match = re.search(r"tps = ([\d.]+)", said)
    assert match is not None, said
    return float(match[1])


async def _take(dsn: str) -> float:
    """How fast a node turns the rows of the inbox into runs, its start included."""
    connection = await asyncpg.connect(dsn)
    rows = int(await connection.fetchval("select count(*) from tickwork.inbox"))
    began = perf_counter()
    async with _node(dsn):
        while await connection.fetchval("select exists (select from tickwork.inbox)"):
            await asyncio.sleep(0.02)
        took = perf_counter() - began
    await connection.close()
    return rows / took


def keys(*, quick: bool) -> dict[str, float]:
    """What a live key holds in memory: of a rate after its run has ended, of a debounce beside its pending run."""
    count = 20_000 if quick else 100_000
    rated, debounced, delayed = (_bytes_of(count, kind) for kind in ("rate", "debounce", "delay"))
    return {"rate_key_bytes": rated / count, "debounce_key_bytes": (debounced - delayed) / count}


def _bytes_of(count: int, kind: str) -> int:
    machine = Machine(settings=MachineSettings())
    document = RATED if kind == "rate" else DOCUMENT | {"inputs": {}}
    machine.apply(1, [inp.PutTenant("bench", "t"), inp.PutDefinition("bench", "t", json.dumps(document).encode())])
    tick = 1
    gc.collect()
    tracemalloc.start()
    for number in range(0, count, 500):
        tick += 1
        machine.apply(tick, [_submission(kind, one) for one in range(number, number + 500)])
    while (due := machine.next_tick()) is not None and due < 60_000:
        tick = max(tick + 1, due)
        machine.apply(tick, [])
    state = machine.state
    live = len(state.tenants["t"].rates.get("rated", ())) if kind == "rate" else state.live_runs
    assert live == count and (kind != "rate" or not state.live_runs), f"{live} of {count} {kind} keys are live"
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held


def _submission(kind: str, number: int) -> inp.Submit:
    key = f"customer-{number:08}"
    if kind == "rate":
        return inp.Submit("bench", "t", f"r{number}", "rated", pack({"customer": key}))
    terms = inp.SubmitOptions(delay_ms=3_600_000, debounce=key if kind == "debounce" else "")
    return inp.Submit("bench", "t", f"r{number}", "flow", None, terms)


def events(*, quick: bool) -> dict[str, float]:
    """From a client that sends an event until its run is durable, over HTTP to a server with SQLite."""
    count = 200 if quick else 1_000
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "app.py").write_text(EVENT_APP)
        server = EphemeralServer(Settings(data=f"{folder}/data", grace_s=2.0), f"{folder}/app.py")
        with server, Client(server.address, token=server.token) as client:
            took_ms = []
            for number in range(count):
                before = perf_counter()
                heard = client.send_event("order", {"n": number}, id=f"order-{number}")
                took_ms.append((perf_counter() - before) * 1_000)
                assert heard.schedules == 1, heard
            ran = client.schedule("on_order").fates.ran
            assert ran == count, f"{count} events started {ran} runs"
    took_ms.sort()
    return {"event_p50_ms": took_ms[count // 2], "event_p99_ms": took_ms[count * 99 // 100]}


def search(*, quick: bool) -> dict[str, float]:
    """Selective filters among a million runs (`quick`: 100,000), on both stores."""
    runs = reach_search.RUNS_QUICK if quick else reach_search.RUNS
    return asyncio.run(reach_search.on_sqlite(runs)) | asyncio.run(reach_search.on_postgres(runs))


PARTS: dict[str, Callable[..., dict[str, float]]] = {
    "enqueue": enqueue,
    "keys": keys,
    "events": events,
    "search": search,
}


def missed(figures: dict[str, float]) -> list[str]:
    def fails(name: str, sign: str, gate: float) -> bool:
        return figures[name] > gate if sign == "<=" else figures[name] < gate

    return [
        f"{WORDS[name]}: {figures[name]:,.1f}, not {sign} {gate:,}"
        for name, (sign, gate) in GATES.items()
        if name in figures and fails(name, sign, gate)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--only", choices=list(PARTS))
    options = parser.parse_args()
    figures: dict[str, float] = {}
    for name, part in PARTS.items():
        if options.only in (None, name):
            figures |= part(quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            gate = f"   {' '.join(map(str, GATES[name]))}" if name in GATES else ""
            print(f"{WORDS[name]:70} {value:>12,.1f}{gate}")
    wrong = missed(figures) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
