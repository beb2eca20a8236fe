"""What is done to the cluster. A plan is a list of faults, drawn from a seed; each is undone before the next begins.

A fault says when it began and ended by the wall clock of this machine, which workers and nodes it touched, and since
when the cluster could be whole again: from then on its recovery is measured.
"""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from chaos.stage import LEASE_TTL_S, Stage

BEYOND_LEASE_S = LEASE_TTL_S + 2.0
SKEW_MS = 100
HOUR_MS = 3_600_000
LOST_AFTER_S = 25.0  # of silence; then a worker is given up
ANSWERS = 5
RESTART_S = 1.0


@dataclass(kw_only=True)
class Fault:
    kind: str
    target: str
    workers: frozenset[int] = frozenset()  # pids of agents that it touched
    began_ns: int = 0
    ended_ns: int = 0
    whole_at: float = 0.0  # monotonic
    rate: float = 0.0  # undisturbed, tasks a second of the kind that it concerns
    recovered_s: float | None = None
    within_s: float | None = None  # what is promised, where something is

    def touches(self, agent: int, from_ns: int, to_ns: int) -> bool:
        """Whether an attempt of that agent, begun at `from_ns` and begun elsewhere at `to_ns`, was concerned."""
        if self.workers:
            return agent in self.workers and self.began_ns <= to_ns and self.ended_ns + GRACE_NS >= from_ns
        return self.began_ns <= to_ns and self.ended_ns + GRACE_NS >= from_ns


GRACE_NS = int((LOST_AFTER_S + 5) * 1e9)
Deed = Callable[[Stage, random.Random, Fault], Awaitable[None]]


@dataclass(frozen=True)
class Kind:
    deed: Deed
    within_s: float | None = None
    weight: int = 1
    proves: tuple[str, ...] = field(default=())


async def strike(stage: Stage, kind: str, rng: random.Random) -> Fault:
    fault = Fault(kind=kind, target="", within_s=KINDS[kind].within_s)
    fault.began_ns = time.time_ns()
    await KINDS[kind].deed(stage, rng, fault)
    fault.ended_ns = time.time_ns()
    return fault


def plan(rng: random.Random, count: int, kinds: list[str]) -> list[str]:
    """Each kind once as far as `count` goes, then by weight; in an order of its own."""
    first = kinds[:]
    rng.shuffle(first)
    weighted = [kind for kind in kinds for _ in range(KINDS[kind].weight)]
    return (first + [rng.choice(weighted) for _ in range(count)])[:count]


# ---- processes


async def kill_node(stage: Stage, rng: random.Random, fault: Fault) -> None:
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.program.kill()
    fault.whole_at = time.monotonic()
    await asyncio.sleep(RESTART_S)
    node.program.start()
    await node.program.until_ready()


async def kill_worker(stage: Stage, rng: random.Random, fault: Fault) -> None:
    worker = rng.choice(stage.workers)
    fault.target, fault.workers = worker.name, frozenset([worker.pid])
    worker.kill()
    await asyncio.sleep(RESTART_S)
    worker.start()
    await worker.until_ready()
    fault.whole_at = time.monotonic()


async def pause_node(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Longer than its lease: somebody else takes over, and it comes back believing that it owns."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.program.pause()
    fault.whole_at = time.monotonic()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.program.resume()


async def pause_worker(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Shorter than the silence after which it is given up: nothing of it may begin elsewhere."""
    await _pause_worker(stage, rng, fault, 4.0)


async def lose_worker(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Longer: its work begins elsewhere, and what it says afterwards comes too late."""
    await _pause_worker(stage, rng, fault, LOST_AFTER_S + 3.0)


async def _pause_worker(stage: Stage, rng: random.Random, fault: Fault, seconds: float) -> None:
    worker = rng.choice(stage.workers)
    fault.target, fault.workers = worker.name, frozenset([worker.pid])
    worker.pause()
    await asyncio.sleep(seconds)
    worker.resume()
    fault.whole_at = time.monotonic()


# ---- the database, and the way to it


async def stop_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    await _stop_database(stage, fault, signal.SIGINT, rng.uniform(0.5, 3.0))


async def crash_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    await _stop_database(stage, fault, signal.SIGQUIT, rng.uniform(0.5, 3.0))


async def flap_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Down and up again every few seconds."""
    for _ in range(4):
        await _stop_database(stage, fault, rng.choice((signal.SIGINT, signal.SIGQUIT)), 0.3)
        await asyncio.sleep(rng.uniform(1.0, 2.0))
    fault.whole_at = time.monotonic()


async def _stop_database(stage: Stage, fault: Fault, number: int, seconds: float) -> None:
    fault.target = "postgres"
    await stage.stop_database(number)
    await asyncio.sleep(seconds)
    await stage.start_database()
    fault.whole_at = time.monotonic()


async def lose_answers(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Commits happen, and whoever asked for them is not told."""
    fault.target = "commits"
    before = sum(node.database.answers_lost for node in stage.nodes)
    for node in stage.nodes:
        for _ in range(ANSWERS):
            node.database.lose_answer()
    until = time.monotonic() + 10
    while sum(node.database.answers_lost for node in stage.nodes) < before + ANSWERS and time.monotonic() < until:
        await asyncio.sleep(0.05)
    fault.whole_at = time.monotonic()


async def cut_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.database.cut()
    fault.whole_at = time.monotonic()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.database.mend()


async def silence_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Nothing comes back, and no connection ends: only time tells."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.database.silence()
    fault.whole_at = time.monotonic()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.database.mend()


# ---- the broker


async def kill_broker(stage: Stage, rng: random.Random, fault: Fault) -> None:
    assert stage.broker is not None
    fault.target = "nats"
    stage.broker.kill()
    await asyncio.sleep(rng.uniform(1.0, 4.0))
    await asyncio.to_thread(stage.broker.start)
    fault.whole_at = time.monotonic()


async def lose_stream(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Deleted with everything that is on it; whoever finds it gone makes it anew."""
    fault.target = "nats"
    await stage.lose_stream()
    fault.whole_at = time.monotonic()


# ---- between nodes


async def cut_peers(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """The others do not reach it; its own clients and workers do, and it reaches the others."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.peers.cut()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.peers.mend()
    fault.whole_at = time.monotonic()


async def silence_peers(stage: Stage, rng: random.Random, fault: Fault) -> None:
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.peers.silence()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.peers.mend()
    fault.whole_at = time.monotonic()


# ---- clocks


async def skew(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """A step of each node's clock to somewhere within what is allowed; it stays there."""
    fault.target = "clocks"
    for node in stage.nodes:
        node.program.set_clock(rng.randint(-SKEW_MS, SKEW_MS))
    fault.whole_at = time.monotonic()


async def jump(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """An hour forward and back again: time that was lost and time that comes twice."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    was = node.program.clock_ms
    node.program.set_clock(was + HOUR_MS)
    await asyncio.sleep(2.0)
    node.program.set_clock(was)
    fault.whole_at = time.monotonic()


DATABASE_BACK_S, NODE_DEAD_S = 10.0, 30.0
OF_BROKER = frozenset(["kill_broker", "lose_stream"])
KINDS: dict[str, Kind] = {
    "kill_node": Kind(kill_node, NODE_DEAD_S, 3),
    "kill_worker": Kind(kill_worker, NODE_DEAD_S, 3),
    "pause_node": Kind(pause_node, NODE_DEAD_S, 2),
    "pause_worker": Kind(pause_worker, NODE_DEAD_S, 1),
    "lose_worker": Kind(lose_worker, NODE_DEAD_S, 1),
    "stop_database": Kind(stop_database, DATABASE_BACK_S, 2),
    "crash_database": Kind(crash_database, DATABASE_BACK_S, 2),
    "flap_database": Kind(flap_database, DATABASE_BACK_S, 1),
    "lose_answers": Kind(lose_answers, DATABASE_BACK_S, 3),
    "cut_database": Kind(cut_database, NODE_DEAD_S, 2),
    "silence_database": Kind(silence_database, NODE_DEAD_S, 2),
    "kill_broker": Kind(kill_broker, DATABASE_BACK_S, 2),
    "lose_stream": Kind(lose_stream, DATABASE_BACK_S, 2),
    "cut_peers": Kind(cut_peers, NODE_DEAD_S, 1),
    "silence_peers": Kind(silence_peers, NODE_DEAD_S, 1),
    "skew": Kind(skew, DATABASE_BACK_S, 2),
    "jump": Kind(jump, DATABASE_BACK_S, 1),
}
