"""How long nobody takes a submission while a partition changes hands: by a death, and by a clean stop. Under load.

Probes ask the home partition without a pause, through nodes that stay. They tell when the next submission was accepted
and when the next task had run.
"""

import asyncio
import json
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx2

from chaos import checks
from chaos.campaign import drain, spread
from chaos.deployment import LEASE_TTL_S, Node, Stage, staged
from chaos.load import Load
from chaos.verdicts import Verdict, some
from chaos.watch import Epochs

PROBES = 4
EVERY_S = 0.005
DEADLINE_S = 60.0
Tell = Callable[[str], None]


class Probes:
    """Single submissions with a key, so that they go to the home partition."""

    def __init__(self, stage: Stage) -> None:
        self.urls = [node.url for node in stage.nodes]
        self.asked: list[tuple[float, float, str]] = []  # when it was asked, when accepted, and its id
        self._http = httpx2.AsyncClient(timeout=httpx2.Timeout(5, connect=1), trust_env=False)
        self._count = 0
        self._over = False
        self._jobs: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._jobs = [asyncio.create_task(self._probe(random.Random(number))) for number in range(PROBES)]

    async def stop(self) -> None:
        """What is under way is asked until it is answered."""
        self._over = True
        await asyncio.gather(*self._jobs)

    async def close(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._http.aclose()

    async def _probe(self, rng: random.Random) -> None:
        while not self._over:
            self._count += 1
            body = {"workflow": "one", "key": f"probe-{self._count}"}
            asked = time.monotonic()
            while True:
                answer = await self._ask("POST", rng.choice(self.urls), "/v1/runs", body)
                if answer is not None and answer.status_code < 300:
                    self.asked.append((asked, time.monotonic(), answer.json()["id"]))
                    break
                asked = time.monotonic()
                await asyncio.sleep(EVERY_S)
            await asyncio.sleep(EVERY_S)

    async def _ask(self, method: str, url: str, path: str, body: object = None) -> httpx2.Response | None:
        try:
            return await self._http.request(method, url + path, json=body)
        except httpx2.TransportError:
            return None

    async def next_accepted(self, since: float) -> tuple[float, str]:
        """Of those asked after `since`."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                found = next(((at, run) for asked, at, run in reversed(self.asked) if asked >= since), None)
                if found is not None:
                    return min((at, run) for asked, at, run in self.asked[-10_000:] if asked >= since)
                await asyncio.sleep(0.002)

    async def next_finished(self, run: str) -> float:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for url in self.urls:
                    answer = await self._ask("GET", url, f"/v1/runs/{run}")
                    if answer is not None and answer.status_code == 200 and answer.json().get("ended_at"):
                        return time.monotonic()
                await asyncio.sleep(0.005)

    def longest_gap_s(self, begin: float, end: float) -> float:
        times = [begin, *sorted(at for _, at, _ in self.asked if begin <= at <= end), end]
        return max(after - before for before, after in pairwise(times))

    async def home(self) -> int:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = await self._ask("GET", self.urls[0], "/v1/cluster")
                if answer is not None and answer.status_code == 200:
                    return int(answer.json()["routes"][0]["home"])
                await asyncio.sleep(0.1)


@dataclass
class Moves:
    """Of several changes of the owner, in seconds."""

    accepted_s: list[float] = field(default_factory=list)
    finished_s: list[float] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    calm_gap_s: float = 0.0
    tasks: int = 0

    def as_json(self) -> str:
        figures = {
            "lease_ttl_s": LEASE_TTL_S,
            "moves": len(self.accepted_s),
            "accepted_s": figures_of(self.accepted_s),
            "finished_s": figures_of(self.finished_s),
            "tasks": self.tasks,
            "broken": [one.name for one in self.verdicts if not one.kept],
        }
        return json.dumps(figures, indent=2)


def figures_of(times: list[float]) -> dict[str, float]:
    if not times:
        return {}
    ordered = sorted(times)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return {
        "p50": round(statistics.median(ordered), 3),
        "p95": round(p95, 3),
        "max": round(ordered[-1], 3),
    }


async def fail_over(folder: Path, *, times: int, rate: float, seed: int, tell: Tell) -> Moves:
    """kill -9 of the owner of the home partition, again and again."""
    moves = Moves()
    async with staged(folder, workers=2, wires=False) as stage:
        load, probes, epochs = await _begin(stage, rate, seed)
        jobs = [asyncio.create_task(load.run()), asyncio.create_task(epochs.run())]
        try:
            home = await probes.home()
            probes.start()
            for turn in range(times):
                await stage.until_settled()
                await asyncio.sleep(0.5)
                node = stage.node((await stage.owners())[home])
                probes.urls = [one.url for one in stage.nodes if one is not node]
                killed = time.monotonic()
                node.program.kill()
                accepted, run = await probes.next_accepted(killed)
                finished = await probes.next_finished(run)
                moves.accepted_s.append(accepted - killed)
                moves.finished_s.append(finished - killed)
                took = f"accepted after {accepted - killed:.2f} s, run after {finished - killed:.2f} s"
                tell(f"{turn + 1:3}  {node.name}: {took}")
                node.program.start()
                await node.program.until_ready()
            await _end(stage, load, probes, jobs[0], tell)
            moves.tasks = load.tasks
            tally: Counter[str] = Counter()
            moves.verdicts = [
                *await checks.check_runs(stage, load),
                *await checks.check_journals(stage, epochs, load, tally),
                *_check_untouched(checks.starts_of(stage), tally),
            ]
        finally:
            await _close(load, probes, jobs)
    return moves


async def hand_over(folder: Path, *, times: int, rate: float, seed: int, tell: Tell) -> Moves:
    """SIGTERM of the owner of the home partition, with a worker at each node."""
    moves = Moves()
    async with staged(folder, workers=3, wires=False) as stage:
        load, probes, epochs = await _begin(stage, rate, seed)
        jobs = [asyncio.create_task(load.run()), asyncio.create_task(epochs.run())]
        try:
            home = await probes.home()
            probes.start()
            await asyncio.sleep(2)
            now = time.monotonic()
            moves.calm_gap_s = probes.longest_gap_s(now - 1, now)
            for turn in range(times):
                await stage.until_settled()
                await asyncio.sleep(0.5)
                node = stage.node((await stage.owners())[home])
                pause_s = await _stop_one(stage, node, probes)
                moves.accepted_s.append(pause_s)
                tell(f"{turn + 1:3}  {node.name}: nothing accepted for {pause_s * 1000:.0f} ms")
                node.program.start()
                await node.program.until_ready()
            await _end(stage, load, probes, jobs[0], tell)
            moves.tasks = load.tasks
            tally: Counter[str] = Counter()
            moves.verdicts = [
                *await checks.check_runs(stage, load),
                *await checks.check_journals(stage, epochs, load, tally),
                *_check_untouched(checks.starts_of(stage), tally),
            ]
        finally:
            await _close(load, probes, jobs)
    return moves


async def _stop_one(stage: Stage, node: Node, probes: Probes) -> float:
    probes.urls = [one.url for one in stage.nodes if one is not node]
    await asyncio.sleep(0.2)  # what was sent to it is answered
    began = time.monotonic()
    await node.program.stop()
    await asyncio.sleep(1.0)
    return probes.longest_gap_s(began, time.monotonic())


def _check_untouched(starts: list[checks.Start], tally: Counter[str]) -> list[Verdict]:
    """No worker died: each task has one start, and its first attempt is the one, unless a worker that had more than it
    could soon begin gave it back."""
    counts = Counter(start.key for start in starts if not start.key.endswith("/flaky"))
    twice = [key for key, count in counts.items() if count > 1]
    again = [f"{one.key} attempt {one.attempt}" for one in starts if one.attempt > 1 and not one.key.endswith("/flaky")]
    text = f"{tally['lost']} lost; of {len(counts)}, {len(again)} began later, {tally['given_back']} were given back"
    return [
        Verdict(
            "no attempt is lost where no worker is",
            not tally["lost"] and len(again) <= tally["given_back"],
            f"{text}. {some(again)}",
            "I25",
        ),
        Verdict(
            "none starts twice where no worker is lost",
            not twice,
            f"{len(twice)} of {len(counts)}. {some(twice)}",
            "I30",
        ),
    ]


async def _begin(stage: Stage, rate: float, seed: int) -> tuple[Load, Probes, Epochs]:
    load = Load([node.url for node in stage.nodes], rate=rate, seed=seed)
    await spread(stage, load)
    return load, Probes(stage), Epochs(stage)


async def _end(stage: Stage, load: Load, probes: Probes, loading: "asyncio.Task[None]", tell: Tell) -> None:
    load.stop()
    await loading
    await probes.stop()
    for _, _, run in probes.asked:
        load.accepted[run] = (run, "one")
    await drain(stage, load, tell)


async def _close(load: Load, probes: Probes, jobs: "list[asyncio.Task[None]]") -> None:
    for job in jobs:
        job.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)
    await probes.close()
    await load.close()
