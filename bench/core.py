"""What the core costs: a task through the machine, growth, pauses, timers, replay.

Run `bench/core.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.

Every figure has everything on: four tenants of different weights with limits, a queue with a rate,
fairness, events, the hash chain and compression. Times are CPU times of this thread. The speed of a shared
machine changes by a factor of two within milliseconds, so the same history is driven many times and the
cost of each of its ticks is the smallest that was seen; no figure is scaled. How fast the machine was is
printed beside (a MessagePack round trip of eight fields). As a partition's owner does, the bench calls
`gc.freeze()` every few ticks: it costs nothing and keeps the collector away from what lives long; the core
makes no cycles.
"""

import argparse
import gc
import json
import sys
from pathlib import Path
from time import thread_time

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src"), str(Path(__file__).resolve().parent)]

import msgspec

import wheel
from tickwork.core.machine import Machine, Outcome
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Dispatch
from tickwork.journal.record import GENESIS, SealedRow
from tickwork.journal.replay import Recorder, replay

TENANTS = ("acme", "beta", "coop", "dune")
BATCH = 250  # submissions per tick
GATES: dict[str, tuple[str, float]] = {
    "task_us": ("<=", 12),
    "graph_task_us": ("<=", 15),
    "doubling": ("<=", 2.2),
    "tick_with_waiting": ("<=", 1.2),
    "longest_pause_ms": ("<=", 20),
    "replay_tasks_per_s": (">=", 50_000),
    "bytes_per_timer": ("<=", 250),
    "insert_ratio": ("<=", 1.3),
    "cancel_ratio": ("<=", 1.3),
    "fire_ratio": ("<=", 1.3),
    "nothing_due_us": ("<=", 50),
    "idle_jump_us": ("<=", 100),
}
WORDS = {
    "task_us": "a task through the machine, µs",
    "graph_task_us": "a task of a 1 -> 10 -> 1 graph, µs",
    "doubling": "time for twice the tasks",
    "tick_with_waiting": "a tick beside all of them waiting, against none",
    "longest_pause_ms": "longest tick with all of them live, ms",
    "draining_ratio": "a start from the far end of their line, against fresh",
    "replay_tasks_per_s": "replay, tasks per second",
    "bytes_per_timer": "bytes per timer at 2,000,000",
    "insert_ratio": "insert at 2,000,000 against 20,000",
    "cancel_ratio": "cancel, the same",
    "fire_ratio": "fire, the same",
    "nothing_due_us": "a look at timers with nothing due, µs",
    "idle_jump_us": "a jump over 30 idle days, µs",
}


def task(node: str, *needs: str) -> dict[str, object]:
    return {"kind": "task", "id": node, "handler": "noop", "needs": list(needs)}


ONE = json.dumps({"name": "one", "nodes": [task("a")]}).encode()
LATER = json.dumps({"name": "later", "nodes": [task("a") | {"queue": "later"}]}).encode()
MIDDLE = [f"b{i}" for i in range(10)]
GRAPH = json.dumps(
    {"name": "graph", "nodes": [task("a"), *(task(node, "a") for node in MIDDLE), task("z", *MIDDLE)]}
).encode()


class Sample(msgspec.Struct, array_like=True):
    a: int = 1
    b: int = 2
    c: str = "abc"
    d: str = "defgh"
    e: int = 5
    f: bytes = b"xyz"
    g: int = 7
    h: str = "hello"


_encoder, _decoder, _sample = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Sample), Sample()


def round_trip_ns(count: int = 20_000) -> float:
    began = thread_time()
    for _ in range(count):
        _decoder.decode(_encoder.encode(_sample))
    return (thread_time() - began) / count * 1e9


class Ticks:
    """The same ticks driven again and again: of each, the least time that it took."""

    def __init__(self) -> None:
        self.least: list[float] = []
        self.tasks = 0

    def note(self, took: list[float], tasks: int) -> None:
        assert not self.least or (len(took), tasks) == (len(self.least), self.tasks), "the history is always the same"
        self.least = took if not self.least else [min(pair) for pair in zip(self.least, took, strict=True)]
        self.tasks = tasks

    @property
    def us_per_task(self) -> float:
        return sum(self.least) / self.tasks * 1e6


class Partition:
    """One machine with its journal, fed and answered without a shell."""

    def __init__(self, *, credit: int = 50_000) -> None:
        self.machine, self.recorder, self.tick = Machine(), Recorder(), 0
        self.rows: list[SealedRow] = []
        self.running: list[inp.Input] = []
        self.submitted = 0
        self.took = 0.0  # seconds of CPU in the last tick
        set_up = [inp.PutTenant("ops", name, place + 1, 1_000_000) for place, name in enumerate(TENANTS)]
        documents = [inp.PutDefinition("ops", name, text) for name in TENANTS for text in (ONE, GRAPH, LATER)]
        queues = [inp.PutQueue("ops", "default", 1_000_000, 1_000_000, 1_000), inp.PutQueue("ops", "later")]
        self.apply([*set_up, *queues, *documents, inp.Offer("w1", credit), inp.Pause("ops", "queue", "", "later")])

    def apply(self, asked: list[inp.Input]) -> Outcome:
        self.tick += 1
        began = thread_time()
        if not self.tick & 63:
            gc.freeze()
        outcome = self.machine.apply(self.tick, asked)
        row = self.recorder.row(self.tick, asked, outcome.events)
        self.took = thread_time() - began
        assert outcome.taken == len(asked), "a batch fits into a tick"
        self.rows.append(row)
        for effect in outcome.effects:
            assert isinstance(effect, Dispatch)
            self.running.append(inp.Succeeded(effect.task, effect.attempt))
        return outcome

    def results(self) -> list[inp.Input]:
        """Everything that runs succeeds."""
        done, self.running = self.running, []
        return done

    def submissions(self, workflow: str, count: int) -> list[inp.Input]:
        first = self.submitted
        self.submitted += count
        return [
            inp.Submit("api", TENANTS[number % 4], f"018f2c4e-{number:012x}", workflow)
            for number in range(first, first + count)
        ]


def drive(partition: Partition, batches: list[list[inp.Input]]) -> tuple[list[float], int]:
    """Feed batches, answer whatever was started, until nothing runs. The time of each tick, and how many tasks."""
    took, tasks, left = list[float](), 0, iter(batches)
    while True:
        batch = next(left, None)
        if batch is None and not partition.running:
            return took, tasks
        tasks += len(partition.running)
        partition.apply(partition.results() + (batch or []))
        took.append(partition.took)


def fed(workflow: str, runs: int) -> tuple[Partition, list[list[inp.Input]]]:
    partition = Partition()
    per_tick = BATCH if workflow == "one" else BATCH // 12
    return partition, [partition.submissions(workflow, per_tick) for _ in range(runs // per_tick)]


def through(workflow: str, runs: int, rounds: int) -> float:
    """CPU microseconds per task, submit to done, journal row included."""
    ticks = Ticks()
    for _ in range(rounds):
        ticks.note(*drive(*fed(workflow, runs)))
    return ticks.us_per_task


def doubling(runs: int, rounds: int) -> float:
    """Time for twice the tasks."""
    return 2 * through("one", 2 * runs, rounds) / through("one", runs, rounds)


def waiting(count: int) -> dict[str, float]:
    """The same traffic beside `count` runs that wait in a paused queue; then the queue is opened and drained."""
    empty, full = Partition(), Partition()
    full.rows = empty.rows = NoRows()
    longest = 0.0
    while full.submitted < count:
        full.apply(full.submissions("later", BATCH))
        longest = max(longest, full.took)
    alone, beside = Ticks(), Ticks()
    for _ in range(40):  # in turn, so that both see the same machine
        steady(empty, alone)
        longest = max(longest, steady(full, beside))
    full.apply([inp.Offer("w1", 10, ("default", "later")), inp.Resume("ops", "queue", "", "later")])
    drained = Ticks()
    for _ in range(15):
        steady(full, drained)
    return {
        "tick_with_waiting": beside.us_per_task / alone.us_per_task,
        "longest_pause_ms": longest * 1e3,
        "draining_ratio": drained.us_per_task / alone.us_per_task,
    }


def steady(partition: Partition, ticks: Ticks) -> float:
    """A hundred ticks of ten submissions and ten results. The time of the longest."""
    took = []
    for _ in range(100):
        partition.apply(partition.results() + partition.submissions("one", 10))
        took.append(partition.took)
    ticks.note(took, 1_000)
    return max(took)


class NoRows(list[SealedRow]):
    """Where the journal goes when only its cost is of interest."""

    def append(self, row: SealedRow) -> None:
        pass


def replayed(runs: int, rounds: int) -> float:
    """Tasks per second, to verify, decode and decide a journal again."""
    partition, batches = fed("one", runs)
    _, tasks = drive(partition, batches)
    ticks = Ticks()
    for _ in range(rounds):
        machine, head, took = Machine(), GENESIS, []
        for row in partition.rows:
            began = thread_time()
            head = replay([row], machine, head=head, seq=row.seq - 1)
            took.append(thread_time() - began)
        assert head == partition.recorder.head
        ticks.note(took, tasks)
    return 1e6 / ticks.us_per_task


def measure(*, quick: bool) -> dict[str, float]:
    """The two figures that are absolute are sampled between the others: a slow minute must not decide them."""
    rounds, runs = (12, 3_000) if quick else (20, 5_000)
    one, graph = Ticks(), Ticks()
    figures: dict[str, float] = {"machine_round_trip_ns": min(round_trip_ns(1_000) for _ in range(50))}

    def note(name: str, value: float) -> None:
        figures[name] = value
        progress(f"{WORDS[name]}: {value:,.2f}")
        for _ in range(rounds):
            one.note(*drive(*fed("one", runs)))
            graph.note(*drive(*fed("graph", runs // 4)))

    note("replay_tasks_per_s", replayed(runs, rounds))
    note("doubling", doubling(runs, rounds))
    figures["live_tasks"] = 200_000 if quick else 1_000_000
    for name, value in waiting(int(figures["live_tasks"])).items():
        note(name, value)
    figures |= {name: value for name, value in wheel.measure(quick=quick).items() if name in GATES}
    note("graph_task_us", graph.us_per_task)
    note("task_us", one.us_per_task)
    figures["graph_task_us"], figures["task_us"] = graph.us_per_task, one.us_per_task
    return figures


def progress(words: str) -> None:
    print(f"… {words}", file=sys.stderr, flush=True)


def missed(figures: dict[str, float]) -> list[str]:
    wrong = []
    for name, (sign, gate) in GATES.items():
        value = figures[name]
        if (value > gate) if sign == "<=" else (value < gate):
            wrong.append(f"{WORDS[name]}: {value:,.2f}, the gate is {sign} {gate:,}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    figures = measure(quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        print(f"machine: {figures['machine_round_trip_ns']:.0f} ns a round trip")
        print(f"live tasks for waiting and pauses: {figures['live_tasks']:,.0f}")
        print(f"{WORDS['draining_ratio']}: {figures['draining_ratio']:.2f}")
        for name, (sign, gate) in GATES.items():
            print(f"{WORDS[name]:48} {figures[name]:>12,.2f}   {sign} {gate:,}")
    wrong = missed(figures) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
