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
from pathlib import Path

from chaos.deployment import LEASE_TTL_S, Stage, ended_runs
from chaos.load import BATCH

BEYOND_LEASE_S = LEASE_TTL_S + 2.0
SKEW_MS = 100
HOUR_MS = 3_600_000
LOST_AFTER_S = 25.0  # of silence; then a worker is given up
ANSWERS = 5
RESTART_S = 1.0
SLOW_S = 0.1  # a hundred times what a statement takes
POISON = 3
STORM, STORM_S = 60, 6.0
STORM_MIB = 64
BURST, BURST_S = 600, 30.0
RETRY_BURST, RETRIES_PER_S = 10, 1.0  # of a dependency, for each partition


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
    wrong: list[str] = field(default_factory=list)  # what the kind itself found
    figures: str = ""

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
    proves: tuple[str, ...] = ()
    promise: str = ""  # what it looks for itself


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


async def restart_node(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """As in a rolling upgrade: it hands over, ends, and joins again."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    await node.program.stop()
    node.program.start()
    await node.program.until_ready()
    fault.whole_at = time.monotonic()


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


async def deafen_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """One way: what the node asks for happens, as far as its connections go, and it is told nothing."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.database.deafen()
    fault.whole_at = time.monotonic()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.database.mend()


async def slow_database(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """For longer than a lease lasts: it keeps what it owns, because renewing waits for nothing else."""
    await stage.until_settled()
    before = await stage.owners()
    node = stage.node(rng.choice(sorted(set(before.values()))))
    fault.target = node.name
    node.database.slow(SLOW_S)
    await asyncio.sleep(2 * BEYOND_LEASE_S)
    after = await stage.owners()
    node.database.mend()
    fault.whole_at = time.monotonic()
    mine = [partition for partition, owner in before.items() if owner == node.name]
    lost = [partition for partition in mine if after.get(partition) != node.name]
    fault.wrong = [f"{node.name} lost partition {one} to {after.get(one)}" for one in lost]
    fault.figures = f"{len(mine)} partitions kept over {2 * BEYOND_LEASE_S:g} s"


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


async def deafen_peers(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """One way: it gets what the others send, and they hear nothing back."""
    node = rng.choice(stage.nodes)
    fault.target = node.name
    node.peers.deafen()
    await asyncio.sleep(BEYOND_LEASE_S)
    node.peers.mend()
    fault.whole_at = time.monotonic()


# ---- work


async def poison(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Tasks that kill the process which runs them, and a definition that nobody can follow."""
    assert stage.load is not None
    fault.target = "tasks"
    runs = await stage.load.submit(["poison"] * POISON, rng)
    circle = {"name": "circle", "format": 1, "nodes": [{"kind": "task", "id": "a", "handler": "quick", "needs": ["a"]}]}
    if not await stage.load.refused("PUT", "/v1/workflows", {"workflows": [circle]}, rng):
        fault.wrong.append("a definition that goes in a circle was accepted")
    failed_s = await _ended(stage, runs, state=5, within_s=60.0)
    fault.whole_at = time.monotonic()
    fault.figures = f"{POISON} failed after {failed_s:.1f} s" if failed_s is not None else "not all of them failed"
    if failed_s is None:
        fault.wrong.append(f"not all of {POISON} runs failed within 60 s")
    fault.wrong += [f"{one.name} is dead" for one in stage.workers if not one.alive]
    fault.wrong += [f"{node.name} is dead" for node in stage.nodes if not node.program.alive]


async def retry_storm(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Everybody needs what is down. How often it is tried is bounded, and nothing grows by it."""
    assert stage.load is not None
    fault.target = "bank"
    before_mib, lines = _memory_mib(stage), _tries(stage)
    stage.bank_down.touch()
    for _ in range(STORM // BATCH):
        await stage.load.submit(["stormy"] * BATCH, rng)
    began = time.monotonic()
    await asyncio.sleep(STORM_S)
    tries, passed_s = _tries(stage) - lines, time.monotonic() - began
    stage.bank_down.unlink()
    fault.whole_at = time.monotonic()
    allowed = STORM + stage.partitions * (RETRY_BURST + RETRIES_PER_S * (passed_s + 10))  # and while it was submitted
    grown_mib = _memory_mib(stage) - before_mib
    fault.figures = f"{tries} tries of {STORM} tasks (at most {allowed:.0f}), {grown_mib:+.0f} MiB"
    if not 0 < tries <= allowed:
        fault.wrong.append(f"{tries} tries, at most {allowed:.0f} are allowed")
    if grown_mib > STORM_MIB:
        fault.wrong.append(f"nodes grew by {grown_mib:.0f} MiB")


async def burst(stage: Stage, rng: random.Random, fault: Fault) -> None:
    """Hundreds of waits that end in the same moment."""
    assert stage.load is not None
    fault.target = "timers"
    some = await asyncio.gather(*(stage.load.submit(["later"] * BATCH, rng) for _ in range(BURST // BATCH)))
    fault.whole_at = time.monotonic()
    took_s = await _ended(stage, [run for runs in some for run in runs], state=4, within_s=BURST_S)
    fault.figures = f"{BURST} done after {took_s:.1f} s" if took_s is not None else "not all were done"
    if took_s is None:
        fault.wrong.append(f"not all of {BURST} were done within {BURST_S:g} s")


async def _ended(stage: Stage, runs: list[str], *, state: int, within_s: float) -> float | None:
    """How long it took until all of them were there in this state."""
    began, wanted = time.monotonic(), set(runs)
    while time.monotonic() < began + within_s:
        if wanted <= {row.id for row in await ended_runs(stage) if row.state == state}:
            return time.monotonic() - began
        await asyncio.sleep(0.5)
    return None


def _tries(stage: Stage) -> int:
    return stage.ledger.read_bytes().count(b"/pay ")


def _memory_mib(stage: Stage) -> float:
    """Of the nodes that live."""
    pages = [Path(f"/proc/{node.program.pid}/statm").read_text().split()[1] for node in stage.nodes]
    return sum(map(int, pages)) * 4096 / (1 << 20)


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
PAUSES_S = {"pause_node": BEYOND_LEASE_S}
KINDS: dict[str, Kind] = {
    "kill_node": Kind(kill_node, NODE_DEAD_S, 3, ("F1",)),
    "kill_worker": Kind(kill_worker, NODE_DEAD_S, 3, ("F1",)),
    "restart_node": Kind(restart_node, NODE_DEAD_S, 1, ("F25",)),
    "pause_node": Kind(pause_node, NODE_DEAD_S, 2, ("F3",)),
    "pause_worker": Kind(pause_worker, NODE_DEAD_S, 1, ("F2",)),
    "lose_worker": Kind(lose_worker, NODE_DEAD_S, 1, ("F3",)),
    "stop_database": Kind(stop_database, DATABASE_BACK_S, 2, ("F1",)),
    "crash_database": Kind(crash_database, DATABASE_BACK_S, 2, ("F1",)),
    "flap_database": Kind(flap_database, DATABASE_BACK_S, 1, ("F1", "F10")),
    "lose_answers": Kind(lose_answers, DATABASE_BACK_S, 3, ("F9", "F10")),
    "cut_database": Kind(cut_database, NODE_DEAD_S, 2, ("F4",)),
    "silence_database": Kind(silence_database, NODE_DEAD_S, 2, ("F4",)),
    "deafen_database": Kind(deafen_database, NODE_DEAD_S, 1, ("F5",)),
    "slow_database": Kind(slow_database, DATABASE_BACK_S, 1, ("F8",), "a slow database takes no partition away"),
    "kill_broker": Kind(kill_broker, DATABASE_BACK_S, 2, ("F19",)),
    "lose_stream": Kind(lose_stream, DATABASE_BACK_S, 2, ("F20",)),
    "cut_peers": Kind(cut_peers, NODE_DEAD_S, 1),
    "silence_peers": Kind(silence_peers, NODE_DEAD_S, 1),
    "deafen_peers": Kind(deafen_peers, NODE_DEAD_S, 1, ("F5",)),
    "skew": Kind(skew, DATABASE_BACK_S, 2, ("F16",)),
    "jump": Kind(jump, DATABASE_BACK_S, 1, ("F17",)),
    "poison": Kind(poison, NODE_DEAD_S, 1, ("F28",), "poison fails alone"),
    "retry_storm": Kind(retry_storm, DATABASE_BACK_S, 1, ("F27",), "a storm of retries is bounded"),
    "burst": Kind(burst, NODE_DEAD_S, 1, ("F26",), "a burst is worked off"),
}
