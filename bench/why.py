"""What `why` costs: the history of a run of ten tasks, in a partition that has had many runs.

Run `bench/why.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.

The partition is a SQLite file. Between the runs that are asked for lie rows and ended runs that are written straight
into the store, since nothing decides them again: that makes ten million runs affordable. Each run that is asked for
went through the machine, its rows are shared with a hundred others, and its index entries were written as an owner
writes them. Every run is asked for once, so nothing of it was read before. `--quick` has 300,000 runs instead of ten
million; both are compared with 3,000. A fold of the whole journal would fail on what lies between, so no figure can
come from one.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path
from time import perf_counter

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

import msgspec

from tickwork.core.machine import Machine
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.events import Event, RunMoved, RunSubmitted, TaskDispatched, TaskSucceeded
from tickwork.core.state.lifecycle import RunState, RunTrigger
from tickwork.core.state.state import Settings
from tickwork.journal.record import SealedRow
from tickwork.journal.replay import Recorder
from tickwork.ports.store import Rows, RunRow
from tickwork.runtime.engine import Engine
from tickwork.runtime.partition.write_behind import WriteBehind
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import SystemClock, SystemIds

TENANT, BY = "default", "bench"
COMPLETE, COMPLETED = int(RunTrigger.COMPLETE), int(RunState.COMPLETED)
FEW, QUICK, MANY = 3_000, 300_000, 10_000_000
TASKS = 10
BESIDE = 100  # runs that share a row with one that is asked for
ROW_RUNS = 100  # runs in a row between them
ASKED = 100  # runs that are asked for
FEW_ASKED = 2  # in each small partition; more would not fit into 3,000 runs
GATES: dict[str, tuple[str, float]] = {"why_p95_ms": ("<=", 50), "ratio": ("<=", 1.5)}
QUICK_ONLY = "ratio"  # required at 300,000 runs; at ten million it is printed, and only the 50 ms are required
WORDS = {
    "runs": "runs that have ended",
    "rows": "rows in the journal",
    "build_s": "seconds to build them",
    "why_p50_ms": "`why` of a run of ten tasks, median, ms",
    "why_p95_ms": "`why` of a run of ten tasks, p95, ms",
    "few_p50_ms": "the same after 3,000 runs, median, ms",
    "ratio": "median against that after 3,000 runs",
}


def document(name: str, tasks: int) -> bytes:
    nodes = [
        {"kind": "task", "id": f"t{number}", "handler": "h", **({"needs": [f"t{number - 1}"]} if number else {})}
        for number in range(tasks)
    ]
    return json.dumps({"name": name, "format": 1, "nodes": nodes}).encode()


class History:
    """A partition whose past is written, not lived."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.machine = Machine(settings=Settings())
        self.state = self.machine.state
        self.write_behind = WriteBehind(self.state)
        self.recorder = Recorder()
        self.last: SealedRow | None = None
        self.written: SealedRow | None = None  # through which rows are written
        self.tick, self.runs = 0, 0

    async def begin(self) -> None:
        await self.store.open()
        await self.store.establish_identity(cluster="c" * 24, partitions=0)
        settings = msgspec.msgpack.encode(self.state.settings)
        self.write_behind.epoch = self.epoch = (await self.store.claim(0, owner="bench", settings=settings)).epoch
        await self.live([
            inp.PutQueue(BY, "default"), inp.PutTenant(BY, TENANT), inp.PutDefinition(BY, TENANT, document("one", 1)),
            inp.PutDefinition(BY, TENANT, document("ten", TASKS)), inp.Offer("w0", 100_000),
        ])  # fmt: skip

    async def live(self, inputs: list[inp.Input]) -> list[Dispatch]:
        """A tick of the machine."""
        self.tick += 2
        outcome = self.machine.apply(self.tick, inputs)
        await self.commit(inputs, outcome.events)
        self.write_behind.observe(inputs, outcome.events)
        return [effect for effect in outcome.effects if isinstance(effect, Dispatch)]

    async def commit(self, inputs: list[inp.Input], events: list[Event]) -> None:
        self.last = self.recorder.row(self.tick, inputs, events)
        await self.store.commit(0, self.last, [], epoch=self.epoch)

    async def write(self) -> None:
        assert self.last is not None
        await self.store.write_rows(
            0, self.write_behind.rows(), epoch=self.epoch, through=self.last.seq, head=self.last.hash
        )
        self.write_behind.written()
        self.written = self.last

    async def ten(self, run_id: str) -> None:
        """A run of ten tasks from beginning to end; in each of its rows are a hundred other runs."""
        dispatched = await self.live([inp.Submit(BY, TENANT, run_id, "ten"), *self._beside()])
        while self.state.tenants[TENANT].runs.get(run_id) is not None:
            reports = [inp.Succeeded(one.task, one.attempt) for one in dispatched]
            dispatched = await self.live([*reports, *self._beside()])
        await self.live([inp.Succeeded(one.task, one.attempt) for one in dispatched])
        await self.write()

    def _beside(self) -> list[inp.Input]:
        first, self.runs = self.runs, self.runs + BESIDE
        return [inp.Submit(BY, TENANT, f"live-{number}", "one") for number in range(first, first + BESIDE)]

    async def past(self, count: int) -> None:
        """Runs that have ended, their rows in the journal and in the table of runs."""
        plan = self.state.tenants[TENANT].plans["one"]
        while count > 0:
            some, count = min(count, ROW_RUNS), count - ROW_RUNS
            first = self.state.next_number
            numbers = range(first, first + some)
            self.state.next_number = first + some
            self.runs += some
            rows = [
                RunRow(
                    number, f"past-{number}", TENANT, "one", plan.hash, COMPLETED, "submit", BY, 1, 2, 3, "", "", "",
                    _REST, b"\xc0", b"",
                )
                for number in numbers
            ]  # fmt: skip
            self.tick += 2
            submits: list[inp.Input] = [inp.Submit(BY, TENANT, row.id, "one") for row in rows]
            begun: list[Event] = [RunSubmitted(number, place) for place, number in enumerate(numbers)]
            await self.commit(submits, [*begun, *(TaskDispatched(number, 0) for number in numbers)])
            self.tick += 2
            reports: list[inp.Input] = [inp.Succeeded(number, 1) for number in numbers]
            ended: list[Event] = [TaskSucceeded(number, place) for place, number in enumerate(numbers)]
            await self.commit(reports, [*ended, *(RunMoved(number, COMPLETE) for number in numbers)])
            self.write_behind.index.seq += 2
            assert self.written is not None
            await self.store.write_rows(
                0, Rows(runs=rows), epoch=self.epoch, through=self.written.seq, head=self.written.hash
            )


_REST = msgspec.msgpack.encode((None, 1, 2, -1, b"\x06", (), "", 0, "", 0, "", ""))


async def build(path: Path, runs: int, asked: int) -> tuple[int, int]:
    """A partition with so many ended runs, of which some will be asked for; its runs and the rows of its journal."""
    store = SqliteStore(path, synchronous="OFF")
    history = History(store)
    await history.begin()
    await history.write()
    for number in range(asked):
        await history.past((runs - history.runs) // (asked - number) - BESIDE * (TASKS + 1))
        await history.ten(f"ten-{number}")
    await history.past(runs - history.runs)
    await history.live([])
    await history.write()
    await store.close()
    return history.runs + asked, history.recorder.seq


async def ask(path: Path, asked: int) -> list[float]:
    """Seconds for each of the runs, in random order."""
    engine = Engine(
        store=SqliteStore(path, synchronous="OFF"), artifacts=MemoryArtifacts(), clock=SystemClock(), ids=SystemIds(),
        owner="asks",
    )  # fmt: skip
    await engine.start()
    try:
        names = [f"ten-{number}" for number in range(asked)]
        random.Random(7).shuffle(names)
        times = []
        for name in names:
            began = perf_counter()
            history = await engine.queries.why(name, tenant=TENANT)
            times.append(perf_counter() - began)
            assert history is not None and len(history.entries) >= 3 * TASKS, f"the history of {name} has gaps"
        return times
    finally:
        await engine.stop()


async def measure(*, quick: bool) -> dict[str, float]:
    few: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        began = perf_counter()
        runs, rows = await build(Path(folder, "many.db"), QUICK if quick else MANY, ASKED)
        build_s = perf_counter() - began
        many = sorted(await ask(Path(folder, "many.db"), ASKED))
        for number in range(ASKED // FEW_ASKED // 4):
            path = Path(folder, f"few-{number}.db")
            await build(path, FEW, FEW_ASKED)
            few += await ask(path, FEW_ASKED)
    p50, p95, few_p50 = many[len(many) // 2], many[len(many) * 95 // 100], sorted(few)[len(few) // 2]
    return {
        "runs": runs,
        "rows": rows,
        "build_s": build_s,
        "why_p50_ms": p50 * 1000,
        "why_p95_ms": p95 * 1000,
        "few_p50_ms": few_p50 * 1000,
        "ratio": p50 / few_p50,
    }


def missed(figures: dict[str, float]) -> list[str]:
    return [
        f"{WORDS[name]}: {figures[name]:,.2f}, not {sign} {gate:,}"
        for name, (sign, gate) in GATES.items()
        if figures[name] > gate and (name != QUICK_ONLY or figures["runs"] < MANY)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(measure(quick=options.quick))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, words in WORDS.items():
            gate = f"   {' '.join(map(str, GATES[name]))}" if name in GATES else ""
            print(f"{words:44} {figures[name]:>14,.2f}{gate}")
    wrong = missed(figures) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
