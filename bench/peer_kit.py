"""How any peer is measured: the same questions for all, in the client's process; a peer says how its own API does them.

`peers.py` starts one such process for each peer and store, with the settings in its environment, and reads the
figures from the last line it prints. Workers are processes of their own, children of this one.
"""

import abc
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STORE = os.environ.get("PEER_STORE", "")
FOLDER = Path(os.environ.get("PEER_FOLDER", "."))
SECONDS = float(os.environ.get("PEER_SECONDS", "3"))
SAMPLES = int(os.environ.get("PEER_SAMPLES", "100"))
TRIES = int(os.environ.get("PEER_TRIES", "3"))
PARTS = os.environ.get("PEER_PARTS", "tasks chain graph").split()  # of these and `story`
WORKERS = 2
LINKS = 10
PATIENCE_S = 40
GAP_S = 0.037  # between samples: no multiple of anybody's polling interval
REST_S = 1.0  # after what came before, as ours rests
ITEMS = 3  # of an order
STORIES = 20  # orders of the first try


class Peer(abc.ABC):
    first = 500  # runs of the first try; later tries are sized by it
    look_s = 0.05  # between two looks at what is stored
    stored_per_graph = 1
    has_chain = True
    has_graph = True

    @abc.abstractmethod
    def workers(self) -> list[list[str | Path]]:
        """The commands that start its workers."""

    def ready(self) -> None:
        """Wait until its workers run tasks."""
        self.stamp(self.begin())

    @abc.abstractmethod
    def put(self, kind: str, runs: int) -> None:
        """Submit so many runs of `one` or `graph` in the quickest way that it documents."""

    @abc.abstractmethod
    def stored(self, kind: str) -> int:
        """How many runs of that kind have ended with their result stored; `stored_per_graph` for each graph."""

    @abc.abstractmethod
    def begin(self) -> Any:
        """Submit one task that says when it started; the answer is for `stamp`."""

    @abc.abstractmethod
    def stamp(self, begun: Any) -> int:
        """When that task started, in nanoseconds; waits for it."""

    def chain(self) -> list[int]:
        """One chain, waited for: when each of its tasks started, in nanoseconds."""
        raise NotImplementedError

    def order(self, count: int) -> list[Any]:
        """Begin so many orders: each reserves, waits for its payment, packs `ITEMS` items beside each other, ships."""
        raise NotImplementedError

    def pay(self, orders: list[Any]) -> None:
        """Send each of them the event that it waits for."""
        raise NotImplementedError

    def shipped(self, order: Any) -> int:
        """When its last step began, in nanoseconds; waits for the end of the order."""
        raise NotImplementedError


@contextlib.contextmanager
def crew(commands: list[list[str | Path]]) -> Iterator[None]:
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (FOLDER / f"worker{number}").open("wb") as log:
                environment = os.environ | {"PYTHONPATH": str(HERE), "PEER_NUMBER": str(number)}
                running.append(
                    subprocess.Popen(command, stdout=log, stderr=log, cwd=FOLDER, env=environment, process_group=0)
                )
        yield
    finally:
        for process in running:
            _signal_group(process, signal.SIGTERM)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            _signal_group(process, signal.SIGKILL)  # with the children that it may have left
            process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def until(reached: Callable[[], bool], what: str, *, gap_s: float) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"gave up waiting after {PATIENCE_S} s for {what}")
        time.sleep(gap_s)


def rate(peer: Peer, kind: str, runs: int) -> float:
    """Runs a second from the first submission until every result is stored: the best of a few tries.

    The first try only sizes the others, so that each lasts; it counts where it lasted long enough itself.
    """
    passed = _try(peer, kind, runs)
    found = [runs / passed] if passed >= SECONDS else []
    while len(found) < TRIES:
        runs = max(10, int(runs / passed * SECONDS))
        passed = _try(peer, kind, runs)
        if passed >= SECONDS / 2:
            found.append(runs / passed)
    return max(found)


def _try(peer: Peer, kind: str, runs: int) -> float:
    wanted = peer.stored(kind) + runs * (peer.stored_per_graph if kind == "graph" else 1)
    begin = time.perf_counter()
    peer.put(kind, runs)
    until(lambda: peer.stored(kind) >= wanted, f"{runs} runs of {kind}", gap_s=peer.look_s)
    return time.perf_counter() - begin


def latencies(peer: Peer, samples: int) -> list[float]:
    """Milliseconds from the call of submit to the first line of the function, one at a time at an even pace."""
    time.sleep(REST_S)
    begun = []
    for _ in range(samples):
        begin = time.time_ns()
        begun.append((begin, peer.begin()))
        time.sleep(GAP_S)
    return sorted((peer.stamp(handle) - begin) / 1e6 for begin, handle in begun)


def hop(peer: Peer, samples: int) -> float:
    found: list[float] = []
    for _ in range(samples):
        stamps = peer.chain()
        assert len(stamps) == LINKS, stamps
        found += [(later - earlier) / 1e6 for earlier, later in pairwise(stamps)]
    return statistics.median(found)


def paid_to_shipped(peer: Peer, samples: int) -> float:
    """Median of the milliseconds from sending the payment of a waiting order to its last step."""
    orders = peer.order(samples)
    time.sleep(REST_S)
    found = []
    for order in orders:
        begin = time.time_ns()
        peer.pay([order])
        found.append((peer.shipped(order) - begin) / 1e6)
        time.sleep(GAP_S)
    return statistics.median(found)


def orders_per_s(peer: Peer) -> float:
    """Orders a second, from the first submission until the last has shipped. Each try is sized by the one before."""
    count = STORIES
    for _ in range(TRIES + 1):
        begin = time.perf_counter()
        orders = peer.order(count)
        peer.pay(orders)
        for order in orders:
            peer.shipped(order)
        passed = time.perf_counter() - begin
        done, count = count / passed, max(10, int(count / passed * SECONDS))
    return done


def measure(peer: Peer) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # out of time: the workers are ended all the same
    with crew(peer.workers()):
        peer.ready()
        figures = measured(peer)
    print(json.dumps(figures))
    sys.stdout.flush()


def measured(peer: Peer) -> dict[str, float]:
    figures: dict[str, float] = {}
    if "tasks" in PARTS:
        latencies(peer, 5)
        found = latencies(peer, SAMPLES)
        figures["start_p50_ms"] = statistics.median(found)
        figures["start_p95_ms"] = found[int(len(found) * 0.95)]
        figures["tasks_per_s"] = rate(peer, "one", peer.first)
    if "chain" in PARTS and peer.has_chain:
        peer.chain()
        figures["hop_ms"] = hop(peer, 10)
    if "graph" in PARTS and peer.has_graph:
        figures["graph_tasks_per_s"] = rate(peer, "graph", max(5, peer.first // 20)) * 12
    if "story" in PARTS:
        figures["paid_ms"] = paid_to_shipped(peer, 20)
        figures["orders_per_s"] = orders_per_s(peer)
    return figures
