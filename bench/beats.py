"""Beats: what one costs, that none is written, and that nobody who beats is taken for dead.

Run `bench/beats.py [--quick] [--json] [--check]`; `--check` exits 1 and names what misses its gate.

In one process, on a loop in virtual time: the real engine with its sessions (and once more behind a real gateway, as
at a node that owns nothing, which tells the owner in one message who lives), over a store in memory that counts its
commits. A worker is simulated by what an agent sends: a call that introduces it, then calls that wait 10 s for work and
are repeated at once. Clock, network and HTTP are not real there, so the CPU is that of the exchange itself and of
watching over all seats, workers' side included. One worker of them falls silent, and must be found dead: a detector
that sees nothing would pass otherwise.

Over HTTP: a real server, and beats of 1,000 workers in calls that do not wait; the CPU is the server's process.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]

from throughput import benching, missed, say
from tickwork.cluster.worker_gateway import WorkerGateway
from tickwork.protocol.worker_messages import (
    Call,
    Heartbeats,
    Reply,
    WorkerProfile,
    beats_decoder,
    encoder,
    reply_decoder,
)
from tickwork.runtime.engine import Engine
from tickwork.runtime.workers.failure_detector import LOST_AFTER_MS, FailureDetector
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.testing.virtual_loop import VirtualLoop
from tickwork.worker.exchange import BEAT_MS
from tickwork.worker.http1 import PostClient
from tickwork.worker.http_link import MSGPACK

WORKERS, BEHIND = 100_000, 20_000
MINUTE_S = 60
HTTP_WORKERS = 1_000
AT_ONCE = 16
MESSAGES = 10
GATES: dict[str, tuple[str, float]] = {
    "commits": ("<=", 0),
    "board_commits": ("<=", 0),
    "http_commits": ("<=", 0),
    "false_deaths": ("<=", 0),
    "board_false_deaths": ("<=", 0),
    "found_dead": (">=", 1),
    "board_found_dead": (">=", 1),
}
WORDS = {
    "workers": "workers that beat at an owner, simulated",
    "beats": "their beats in a minute",
    "commits": "commits and writes of rows meanwhile",
    "false_deaths": "workers taken for dead that were not",
    "found_dead": "workers found dead that were",
    "beat_us": "CPU a beat at the owner, µs, no HTTP",
    "board_workers": "workers that beat at a node which owns nothing, simulated",
    "board_commits": "commits and writes of rows meanwhile",
    "board_false_deaths": "workers taken for dead that were not",
    "board_found_dead": "workers found dead that were",
    "board_beat_us": "CPU a beat there and at the owner, µs, no HTTP",
    "board_batched_us": "of it, for each worker in a message to the owner that says who lives",
    "http_commits": "commits that beats over HTTP made",
    "http_beat_us": "CPU a beat over HTTP, µs",
    "cores": "cores for 100,000 beats a second over HTTP",
}


class LoopClock:
    """Both clocks follow the loop."""

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + self.mono_ms()

    def mono_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class CountedIds:
    def __init__(self) -> None:
        self.count = 0

    def new(self) -> str:
        self.count += 1
        return f"id-{self.count}"

    def token(self) -> str:
        return "token"


class CountingStore(MemoryStore):
    writes = 0

    async def commit(self, *args: Any, **fields: Any) -> None:
        self.writes += 1
        await super().commit(*args, **fields)

    async def write_rows(self, *args: Any, **fields: Any) -> None:
        self.writes += 1
        await super().write_rows(*args, **fields)


class Beating:
    """Everybody who beats, through `exchange`; `victim` falls silent when `silence` is set."""

    def __init__(self, exchange: Callable[[Call], Awaitable[Reply]], count: int) -> None:
        self._exchange = exchange
        self.count = count
        self.seated = self.beats = 0
        self.refused: list[str] = []
        self.silence = asyncio.Event()
        self.victim = f"w{count // 2}"

    async def worker(self, number: int) -> None:
        await asyncio.sleep(number / self.count * BEAT_MS / 1000)
        name, seq = f"w{number}", 1
        reply = await self._exchange(Call(name, "s", seq, 1, held=(), profile=WorkerProfile(slots=1)))
        self.seated += not (reply.resync or reply.refused)
        while not (name == self.victim and self.silence.is_set()):
            seq += 1
            reply = await self._exchange(Call(name, "s", seq, 1, wait_ms=BEAT_MS))
            self.beats += 1
            if reply.resync or reply.refused:
                self.refused.append(name)
                return


async def simulated(count: int, *, behind: bool) -> dict[str, float]:
    clock, store = LoopClock(), CountingStore(MemoryDisk())
    engine = Engine(store=store, artifacts=MemoryArtifacts(), clock=clock, ids=CountedIds(), owner="n1")
    await engine.start()
    lost: list[str] = []
    engine.context.alarms.on_alarm = lambda alarm: lost.append(alarm.text) if alarm.kind == "worker_lost" else None
    gateway: WorkerGateway | None = None
    exchange: Callable[[Call], Awaitable[Reply]] = engine.workers.exchange

    async def beat(workers: Sequence[str]) -> None:
        """As over the wire: it is put into bytes and read again."""
        told = beats_decoder.decode(encoder.encode(Heartbeats("n2", tuple(workers))))
        engine.workers.heartbeats(told.via, told.workers)

    if behind:
        gateway = WorkerGateway(
            route=lambda _, call: engine.workers.exchange(call),
            heartbeats=beat,
            session="n2",
            partitions=1,
            clock=clock,
            on_alarm=lambda _kind, _text: None,  # its owner says the same
            detector=FailureDetector(),
        )
        gateway.start()
        exchange = gateway.exchange
    crowd = Beating(exchange, count)
    jobs = [asyncio.create_task(crowd.worker(number)) for number in range(count)]
    while crowd.seated < count or not engine.context.idle:
        await asyncio.sleep(1)
    await asyncio.sleep(2 * BEAT_MS / 1000)
    writes, beats, cpu = store.writes, crowd.beats, time.process_time()
    await asyncio.sleep(MINUTE_S)
    spent, beats, writes = time.process_time() - cpu, crowd.beats - beats, store.writes - writes
    early = len(lost) + len(crowd.refused) + count - len(engine.context.state.workers)
    cpu = time.process_time()
    for _ in range(MESSAGES):
        await beat([f"w{number}" for number in range(count)])
    batched = time.process_time() - cpu
    crowd.silence.set()
    await asyncio.sleep((BEAT_MS + LOST_AFTER_MS) / 1000 + 5)
    found = sum(text.startswith(f"{crowd.victim}:") for text in lost)
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    if gateway is not None:
        await gateway.close()
    await engine.stop()
    return {
        "workers": count,
        "beats": beats,
        "commits": writes,
        "false_deaths": early + len(lost) - found,
        "found_dead": found,
        "beat_us": spent / beats * 1e6,
        "batched_us": batched / MESSAGES / count * 1e6,
    }


def in_virtual_time(count: int, *, behind: bool) -> dict[str, float]:
    loop = VirtualLoop()  # type: ignore[abstract]  # what is not simulated is set by name
    try:
        return loop.run_until_complete(simulated(count, behind=behind))
    finally:
        loop.close()


async def over_http(rounds: int) -> dict[str, float]:
    async with benching() as (bench, client):
        bench.add_worker()
        await bench.ready(client)
        poster = PostClient(bench.url, headers=MSGPACK)
        seqs = [0] * HTTP_WORKERS

        async def beat(number: int, **first: Any) -> None:
            seqs[number] += 1
            call = Call(f"w{number}", "s", seqs[number], 1, **first)
            _, data = await poster.post(f"/v1/workers/w{number}/exchange", encoder.encode(call), timeout_s=60)
            reply = reply_decoder.decode(data)
            assert not reply.resync and not reply.refused, reply

        async def all_beat(**first: Any) -> None:
            left = iter(range(HTTP_WORKERS))

            async def some() -> None:
                for number in left:
                    await beat(number, **first)

            await asyncio.gather(*(some() for _ in range(AT_ONCE)))

        await all_beat(held=(), profile=WorkerProfile(queues=("nobody's",), slots=1))
        await asyncio.sleep(0.5)
        before = (await client.get("/v1/status")).json()["seq"]
        cpu = bench.server.cpu_s()
        for _ in range(rounds):
            await all_beat()
        spent = bench.server.cpu_s() - cpu
        after = (await client.get("/v1/status")).json()["seq"]
        poster.close()
        return {"http_commits": after - before, "http_beat_us": spent / rounds / HTTP_WORKERS * 1e6}


def measure(*, quick: bool) -> dict[str, float]:
    figures = in_virtual_time(WORKERS // 5 if quick else WORKERS, behind=False)
    say("at the owner")
    behind = in_virtual_time(BEHIND // 10 if quick else BEHIND, behind=True)
    figures |= {f"board_{name}": value for name, value in behind.items()}
    say("at another node")
    figures |= asyncio.run(over_http(10 if quick else 50))
    say("over HTTP")
    figures["cores"] = figures["http_beat_us"] * 100_000 / 1e6
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("--quick", "--json", "--check"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    figures = measure(quick=options.quick)
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, words in WORDS.items():
            sign, gate = GATES.get(name, ("", 0))
            print(f"{words:58} {figures[name]:>12,.2f}   {f'{sign} {gate:,}' if sign else ''}")
    wrong = missed(figures, GATES, WORDS) if options.check else []
    for words in wrong:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
