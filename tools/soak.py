"""The load rows that take long: real server, worker and PostgreSQL with fsync, at half of the rate that they can do.

    make soak                                            # all three, in full: two and a half hours and a few minutes
    python tools/soak.py --row L12 --check               # 1,000,000 dispatches without faults: lost and doubled
    python tools/soak.py --row L14 --minutes 30 --check  # with old snapshots held: commits, and growth of tables
    python tools/soak.py --row L15 --minutes 120 --check # memory, descriptors, and a restart at the end

It shows where it stands, ends with a table, and with `--check` exits 1 and names what missed its gate.
"""

import argparse
import asyncio
import json
import operator
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TASKS = 1_000_000
MINUTES = {"L14": 30.0, "L15": 120.0}
EVERY_S = 10.0
MINUTE_S = 60.0
MIB = 1 << 20
# These keep what has been and grow with it; everything else holds only what lives.
KEPT = frozenset(
    {"journal", "attempts", "children", "payloads", "cache", "log_chunks", "fates", "archived"}
    | {"run_blocks", "run_clues", "run_keys", "run_groups"}
)
GATES: dict[str, tuple[str, float]] = {
    "never_begun": ("<=", 0),
    "begun_twice": ("<=", 0),
    "not_completed": ("<=", 0),
    "completed_twice": ("<=", 0),
    "results_doubled": ("<=", 0),
    "results_missing": ("<=", 0),
    "commit_p95_ratio": ("<=", 1.5),
    "live_growth_share": ("<=", 0.25),  # a row written while it lives leaves a dead copy as long as a snapshot is held
    "server_mib_10min": ("<", 1.0),
    "worker_mib_10min": ("<", 1.0),
    "server_descriptors_more": ("<=", 2),
    "worker_descriptors_more": ("<=", 2),
    "restart_s": ("<", 10.0),
    "rate_held": (">=", 0.95),
}
WORDS = {
    "tasks": "tasks, each submitted and acknowledged",
    "rate": "tasks a second, wanted",
    "rate_held": "of these, in the slowest of its minutes",
    "never_begun": "never begun, by the tasks' own lines",
    "begun_twice": "begun more than once, by the same",
    "retried": "lines of a second attempt",
    "not_completed": "without a completed run in the store",
    "completed_twice": "with two of them",
    "results_missing": "without an accepted result in the journal",
    "results_doubled": "with two of them",
    "asked_again": "calls that were told to wait",
    "first_commit_p95_ms": "commit p95 in the first minute, ms",
    "last_commit_p95_ms": "commit p95 in the last minute, ms",
    "commit_p95_ratio": "last against first",
    "first_ack_p95_ms": "acknowledgement p95 in the first minute, ms",
    "last_ack_p95_ms": "acknowledgement p95 in the last minute, ms",
    "kept_growth_bytes": "bytes a task that tables of what has been have grown",
    "live_growth_bytes": "bytes a task that tables of what lives have grown",
    "live_growth_share": "these against those",
    "server_mib": "memory of the server at the end, MiB",
    "worker_mib": "memory of the worker at the end, MiB",
    "server_mib_10min": "slope of the server's memory after warm-up, MiB in 10 min",
    "worker_mib_10min": "slope of the worker's memory after warm-up, MiB in 10 min",
    "server_descriptors_more": "descriptors of the server, more than after warm-up",
    "worker_descriptors_more": "descriptors of the worker, more than after warm-up",
    "restart_s": "from kill -9 to a task done by the server started anew, s",
}
KEEPS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, "<": operator.lt, ">=": operator.ge}
Figures = dict[str, float]


class Row:
    """What all of them share: the site, the load, and its rate."""

    def __init__(self, parts: Any, site: Any, load: Any, asked: argparse.Namespace, rate: float) -> None:
        self.parts, self.site, self.load, self.asked, self.rate = parts, site, load, asked, rate

    def minutes(self, row: str) -> float:
        return float(self.asked.minutes or MINUTES[row])

    async def run_for(self, seconds: float, look: Callable[[], Awaitable[None]]) -> Figures:
        """Under load, with a look every now and then. How much of the wanted rate was kept."""
        began, counts = time.monotonic(), [(0.0, self.load.count)]
        loading = asyncio.create_task(self.load.run(self.rate, lambda: time.monotonic() >= began + seconds))
        try:
            while not loading.done():
                await look()
                counts.append((time.monotonic() - began, self.load.count))
                _say(f"{counts[-1][0]:6.0f} of {seconds:.0f} s, {counts[-1][1]:,} tasks")
                await asyncio.wait([loading], timeout=min(EVERY_S, seconds / 10))
            await loading
        finally:
            loading.cancel()
        return {"rate_held": _slowest(counts, min(MINUTE_S, seconds / 3)) / self.rate}


def _slowest(counts: list[tuple[float, int]], window: float) -> float:
    """Tasks a second in the slowest stretch of at least this length; stretches end where somebody looked."""
    rates, first = [], 0
    for at, count in counts:
        while first + 1 < len(counts) and counts[first + 1][0] <= at - window:
            first += 1
        if counts[first][0] <= at - window:
            rates.append((count - counts[first][1]) / (at - counts[first][0]))
    return min(rates, default=0.0)


async def without_faults(row: Row) -> Figures:
    """L12."""
    first = row.load.count
    began = time.monotonic()
    telling = asyncio.create_task(_tell_count(row, first + row.asked.tasks))
    try:
        await row.load.run(row.rate, lambda: row.load.count >= first + row.asked.tasks)
    finally:
        telling.cancel()
    passed = time.monotonic() - began
    await row.site.drained()
    count = row.load.count
    found: Figures = row.parts.begun(row.site.ledger, count) | await row.parts.ended(row.site, count)
    found["results_missing"] = count - found.pop("results")
    return found | {"tasks": count, "rate": (count - first) / passed, "asked_again": row.load.asked_again}


async def _tell_count(row: Row, wanted: int) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        _say(f"{row.load.count:,} of {wanted:,} tasks")


async def with_old_snapshots(row: Row) -> Figures:
    """L14."""
    seconds = 60 * row.minutes("L14")
    window = min(60.0, seconds / 3)
    samples: list[tuple[float, dict[float, float]]] = []
    sizes: list[tuple[int, dict[str, int]]] = []

    async def look() -> None:
        samples.append((time.monotonic(), await row.site.commit_buckets()))
        if not sizes and time.monotonic() - samples[0][0] >= window:  # what a table takes to begin with is no growth
            sizes.append((row.load.count, await row.site.table_sizes()))

    async with row.parts.OldSnapshots(row.site):
        held = await row.run_for(seconds, look)
        samples.append((time.monotonic(), await row.site.commit_buckets()))
        await row.site.drained()
        sizes.append((row.load.count, await row.site.table_sizes()))
    return held | _commits(row, samples, window) | _growth(sizes[0], sizes[-1])


def _commits(row: Row, samples: list[tuple[float, dict[float, float]]], window: float) -> Figures:
    begin, end = samples[0][0], samples[-1][0]
    early = next(buckets for at, buckets in samples if at >= begin + window)
    late = next(buckets for at, buckets in reversed(samples) if at <= end - window)
    first, last = row.parts.p95_ms(samples[0][1], early), row.parts.p95_ms(late, samples[-1][1])
    acks = [[ms for at, ms in row.load.ack_ms if low <= at <= high] for low, high in _windows(begin, end, window)]
    return {
        "first_commit_p95_ms": first,
        "last_commit_p95_ms": last,
        "commit_p95_ratio": last / first if first else 0.0,
        "first_ack_p95_ms": _p95(acks[0]),
        "last_ack_p95_ms": _p95(acks[1]),
    }


def _windows(begin: float, end: float, window: float) -> list[tuple[float, float]]:
    return [(begin, begin + window), (end - window, end)]


def _p95(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.95)] if found else 0.0


def _growth(early: tuple[int, dict[str, int]], late: tuple[int, dict[str, int]]) -> Figures:
    tasks = late[0] - early[0]
    grown = {name: size - early[1].get(name, 0) for name, size in late[1].items()}
    for name, size in sorted(grown.items(), key=lambda one: -one[1]):
        if size:
            print(f"  {name:14} {early[1].get(name, 0) / MIB:9.2f} -> {late[1][name] / MIB:9.2f} MiB", flush=True)
    kept = sum(size for name, size in grown.items() if name in KEPT)
    live = sum(grown.values()) - kept
    return {
        "kept_growth_bytes": kept / tasks,
        "live_growth_bytes": live / tasks,
        "live_growth_share": live / kept if kept else 0.0,
    }


async def soaking(row: Row) -> Figures:
    """L15."""
    seconds = 60 * row.minutes("L15")
    parts, began = row.parts, time.monotonic()
    memory: dict[str, list[tuple[float, float]]] = {"server": [], "worker": []}
    opened: dict[str, list[tuple[float, int]]] = {"server": [], "worker": []}

    async def look() -> None:
        at = time.monotonic() - began
        for name in memory:
            process = getattr(row.site, name)
            memory[name].append((at, parts.memory_mib(process)))
            opened[name].append((at, parts.descriptors(process)))

    figures = await row.run_for(seconds, look)
    warm = min(600.0, seconds / 3)
    for name in memory:
        after = [one for one in memory[name] if one[0] >= warm]
        figures[f"{name}_mib"] = after[-1][1]
        figures[f"{name}_mib_10min"] = 600 * parts.slope(after)
        counts = [count for at, count in opened[name] if at >= warm]
        figures[f"{name}_descriptors_more"] = max(counts[len(counts) // 2 :]) - max(counts[: len(counts) // 2 + 1])
    await row.site.drained()
    figures["restart_s"] = await _restart(row)
    return figures


async def _restart(row: Row) -> float:
    row.site.server.end(signal.SIGKILL)
    began = time.monotonic()
    row.site.start_server()
    await row.site.answering()
    first = row.load.count
    await row.load.run(1.0, lambda: row.load.count > first)
    await row.site.drained()
    return time.monotonic() - began


ROWS: dict[str, Callable[[Row], Awaitable[Figures]]] = {
    "L12": without_faults,
    "L14": with_old_snapshots,
    "L15": soaking,
}


async def measure(asked: argparse.Namespace) -> dict[str, Figures]:
    parts: Any = import_module("soaking")
    found: dict[str, Figures] = {}
    for name in asked.row.split(","):
        async with parts.site() as site:
            load = parts.Load(site)
            rate = asked.rate or await parts.half_rate(load)
            _say(f"{name} at {rate:,.0f} tasks a second")
            found[name] = await ROWS[name](Row(parts, site, load, asked, rate))
            found[name].setdefault("tasks", load.count)
            found[name].setdefault("rate", rate)
    return found


def show(found: dict[str, Figures]) -> None:
    for row, figures in found.items():
        for name, text in WORDS.items():
            if name in figures:
                sign, gate = GATES.get(name, ("", 0))
                wanted = f"{sign} {gate:g}" if sign else ""
                print(f"{row}  {text:58} {figures[name]:>14,.2f}   {wanted}".rstrip())


def missed(found: dict[str, Figures]) -> list[str]:
    return [
        f"{row}: {WORDS[name]}: {figures[name]:,.2f}, wanted {sign} {gate:g}"
        for row, figures in found.items()
        for name, (sign, gate) in GATES.items()
        if name in figures and not KEEPS[sign](figures[name], gate)
    ]


def main() -> int:
    sys.path[0] = str(ROOT / "bench")  # in place of this folder
    asked = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # whoever ends it early leaves nothing running
    found = asyncio.run(measure(asked))
    show(found)
    if asked.json:
        Path(asked.json).write_text(json.dumps(found, indent=2) + "\n")
    wrong = missed(found) if asked.check else []
    for text in wrong:
        print(f"missed: {text}", file=sys.stderr)
    return 1 if wrong else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; several with commas")
    parser.add_argument("--minutes", type=float, default=0.0, help="of L14 and L15; 30 and 120 if not given")
    parser.add_argument("--tasks", type=int, default=TASKS, help="of L12")
    parser.add_argument("--rate", type=float, default=0.0, help="tasks a second, instead of half of what is measured")
    parser.add_argument("--json", default="", metavar="FILE", help="where the figures go as well")
    parser.add_argument("--check", action="store_true", help="exit 1 and name what misses its gate")
    asked = parser.parse_args()
    if unknown := set(asked.row.split(",")) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    return asked


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
