"""A run of chaos: calm first, to know the rate; then fault after fault under load; then quiet, and the verdict."""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from chaos import checks
from chaos.deployment import LEASE_TTL_S, Stage, staged
from chaos.faults import KINDS, OF_BROKER, SKEW_MS, Fault, plan, strike
from chaos.load import MIX, WITH_BROKER, Load
from chaos.verdicts import Verdict
from chaos.watch import Beliefs, Epochs, Starts

BACK = 0.95
DRAIN_S = 120.0
Tell = Callable[[str], None]


@dataclass(kw_only=True)
class Settings:
    seed: int = 1
    nodes: int = 3
    workers: int = 4
    tasks_min: int = 100_000
    seconds: float = 0.0  # at least so long; 0: as long as it takes
    rate: float = 400.0  # tasks a second
    kinds: list[str] = field(default_factory=lambda: list(KINDS))
    faults_min: int = 0  # 0: each kind once
    calm_s: float = 8.0
    gap_s: float = 2.0  # between a recovery and the next fault
    gate: bool = True  # whether a late recovery breaks the verdict


@dataclass
class Outcome:
    verdicts: list[Verdict]
    faults: list[Fault]
    base: float
    seconds: float
    tasks: int
    words: dict[str, str]

    @property
    def broken(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.kept]


async def run(settings: Settings, folder: Path, tell: Tell) -> Outcome:
    began = time.monotonic()
    broker = not OF_BROKER.isdisjoint(settings.kinds)
    async with staged(folder, nodes=settings.nodes, workers=settings.workers, broker=broker) as stage:
        tell(
            f"{settings.nodes} nodes, {settings.workers} workers, PostgreSQL with fsync, leases of {LEASE_TTL_S:g} s: "
            f"up in {time.monotonic() - began:.1f} s; seed {settings.seed}"
        )
        mix = WITH_BROKER if broker else MIX
        load = Load(
            [node.url for node in stage.nodes],
            rate=settings.rate,
            seed=settings.seed,
            mix=mix,
            database=stage.postgres.dsn,
        )
        stage.load = load
        starts, carried, epochs = Starts(stage), Starts(stage, of="by_broker"), Epochs(stage)
        beliefs = Beliefs(stage)
        jobs = [asyncio.create_task(job.run()) for job in (starts, carried, epochs, beliefs)]
        try:
            await spread(stage, load)
            submitting = asyncio.create_task(load.run())
            jobs.append(submitting)
            base, faults = await _disturb(stage, settings, load, (starts, carried), submitting, tell)
            load.stop()
            await submitting
            await drain(stage, load, tell)
            verdicts = await _verdicts(stage, settings, load, (epochs, beliefs), faults)
            return Outcome(verdicts, faults, base, time.monotonic() - began, load.tasks, stage.words())
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await load.close()


async def spread(stage: Stage, load: Load) -> None:
    count = (await stage.ask_database("select partitions from tickwork.founded"))[0][0]
    await load.ask("PUT", "/v1/cluster/spread", {"spread": count}, random.Random(0))


async def _disturb(
    stage: Stage,
    settings: Settings,
    load: Load,
    starts: tuple[Starts, Starts],
    submitting: "asyncio.Task[None]",
    tell: Tell,
) -> tuple[float, list[Fault]]:
    """`starts`: of all tasks, and of those that go by the broker, whose return is measured by them alone."""
    rng = random.Random(f"{settings.seed} faults")
    await asyncio.sleep(settings.calm_s)
    now = time.monotonic()
    base, by_broker = (one.rate(now - settings.calm_s / 2, now) for one in starts)
    tell(f"undisturbed: {base:.0f} tasks/s" + (f", {by_broker:.0f} of them by the broker" if by_broker else ""))
    faults: list[Fault] = []
    least = max(settings.faults_min, len(settings.kinds))
    began = time.monotonic()
    kinds = iter(plan(rng, 100_000, settings.kinds))
    while len(faults) < least or load.tasks < settings.tasks_min or time.monotonic() < began + settings.seconds:
        assert not submitting.done(), submitting.result()
        fault = await strike(stage, next(kinds), rng)
        if fault.within_s is not None:
            which, fault.rate = (starts[1], by_broker) if fault.kind in OF_BROKER else (starts[0], base)
            fault.recovered_s = await which.back(fault.whole_at, BACK * fault.rate, within_s=fault.within_s)
        faults.append(fault)
        back = "rate not back" if fault.recovered_s is None else f"rate back after {fault.recovered_s:.1f} s"
        tell(f"{time.monotonic() - began:6.0f} s  {load.tasks:7} tasks  {fault.kind} ({fault.target}): {back}")
        await asyncio.sleep(settings.gap_s)
    return base, faults


async def drain(stage: Stage, load: Load, tell: Tell) -> None:
    """Faults are over, and nothing new comes: everything ends."""
    until = time.monotonic() + DRAIN_S
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while (left := await checks.unfinished(stage, load)) > 0:
                tell(f"{left} runs to go")
                await asyncio.sleep(0.5)
            while (await stage.ask_database("select count(*) from tickwork.live_runs"))[0][0]:
                await asyncio.sleep(0.1)
    if time.monotonic() >= until:
        tell(f"not everything ended within {DRAIN_S:g} s")


async def _verdicts(
    stage: Stage, settings: Settings, load: Load, watched: tuple[Epochs, Beliefs], faults: list[Fault]
) -> list[Verdict]:
    epochs, beliefs = watched
    begun = checks.starts_of(stage)
    found = [
        checks.check_weight(load, faults, settings.kinds, tasks_min=settings.tasks_min),
        *await checks.check_runs(stage, load),
        *checks.check_starts(begun, faults, load),
        *await checks.check_journals(stage, epochs, load),
        checks.check_beliefs(beliefs, faults),
        *checks.check_promises(faults),
    ]
    found.append(checks.check_waits(begun, load, allowed_ms=2 * SKEW_MS))
    if settings.gate:
        found += checks.check_recovery(faults)
    return found
