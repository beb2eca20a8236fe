"""Whole runs: nothing is violated, the same seed tells the same story, and taking a safeguard away is found."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaign import seeds
from sim import small_node
from sim.__main__ import main
from sim.checkers import OVER, lives_of
from sim.cluster import Cluster, Options
from sim.executor import EffectLedger, Write
from sim.faults import Faults
from sim.report import Violated
from tickwork.stores.memory.store import MemoryStore

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"tasks": "20", "safety_s": "200", "liveness_s": "600"}


def run(seed, node=small_node.SmallNode, **fields):
    return Cluster(seed, small_node.programs(node), Options(**fields)).run()


@pytest.mark.proves("I1", "I2", "I7", "I12", "I25", "I29")
@pytest.mark.parametrize("seed", seeds(0, few=12, many=25))
def test_nothing_is_violated(seed):
    report = small_node.run(seed, SMALL)

    if not report.ok:
        raise Violated(report)


def test_without_faults_everything_completes():
    cluster = Cluster(1, small_node.programs(), Options(tasks=20, safety_s=100))
    report = cluster.run()

    assert report.ok, str(report)
    assert report.trace.faults == {}
    states = lives_of(cluster.kept()[0]).states
    assert len(states) == 20 and all(state in OVER for state in states.values())


def test_the_same_seed_tells_the_same_story_and_another_seed_another_one():
    one, again, other = (small_node.run(seed, SMALL).trace for seed in (3, 3, 4))

    assert one.hash == again.hash != other.hash
    assert one.count == again.count


@pytest.mark.proves("P20")
def test_the_story_does_not_depend_on_how_python_hashes():
    code = "from sim import small_node; print(small_node.run(6, {'tasks': '20', 'safety_s': '200'}).trace.hash)"
    env = {"PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("src", "tests"))}
    told = [
        subprocess.run(
            [sys.executable, "-c", code], env=env | {"PYTHONHASHSEED": salt}, check=True, capture_output=True, text=True
        ).stdout
        for salt in ("0", "1")
    ]

    assert told[0] == told[1] == small_node.run(6, {"tasks": "20", "safety_s": "200"}).trace.hash + "\n"


def test_the_order_of_timers_is_part_of_the_story():
    hashes = {run(9, tasks=10, safety_s=60, random_order=order).trace.hash for order in (True, False)}

    assert len(hashes) == 2


# ---- the command that replays


def test_the_command_of_a_report_runs_the_same_run_again():
    report = small_node.run(8, SMALL)
    command = report.command().replace(".venv/bin/python", sys.executable)
    told = subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, timeout=60, cwd=ROOT,
    ).stdout  # fmt: skip

    assert report.trace.hash in told and "nothing violated" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--falts", "drop=0.1"], "there is no option 'falts'"),
        (["--faults", "drips=0.1"], "'drips' is no fault"),
        (["--faults", "drop"], "'drop' is no fault as name=share"),
        (["--nodes"], "options come as --name value"),
    ],
)
def test_a_run_that_nobody_meant_is_not_run(words, says):
    with pytest.raises(SystemExit, match=says):
        main(["--seed", "7", *words])


def test_a_violation_is_reported_with_all_it_takes_to_see_it_again():
    text = str(first_caught(EarlyNode)[1])

    for part in ("VIOLATED I25", "first offending event", "last 60 events", "node1:", "options:"):
        assert part in text
    assert "replay: env PYTHONPATH=tests .venv/bin/python -m sim --seed" in text
    assert text.count("\n  #") == 60


# ---- safeguards taken away


class EarlyNode(small_node.SmallNode):
    answers_early = True


def first_caught(node=small_node.SmallNode, seeds=40):
    faults = Faults(node_crashes=200, store_slow=0.2, store_late=0.05, pauses=100)
    for seed in range(seeds):
        report = run(seed, node, nodes=2, workers=2, tasks=40, safety_s=300, faults=faults)
        if not report.ok:
            return seed, report
    raise AssertionError(f"not found in {seeds} seeds")


def test_answering_before_the_commit_is_caught():
    _, report = first_caught(EarlyNode)

    assert report.violations[0].invariant == "I25"


class UnfencedStore(MemoryStore):
    async def commit(self, partition, row, payloads, *, epoch):
        found = self._disk.partitions[partition]
        found.journal.append(row)
        found.epochs.append(epoch)
        found.head = type(found.head)(found.head.epoch, row.seq, row.tick, row.hash, found.head.watermark)


def test_a_store_without_a_fence_is_caught(monkeypatch):
    monkeypatch.setattr("sim.cluster.MemoryStore", UnfencedStore)
    _, report = first_caught()

    assert {violation.invariant for violation in report.violations} & {"I1", "I2"}


class ForgetfulStore(MemoryStore):
    """Says yes and writes later, as without fsync: the last row is gone when the next owner comes."""

    async def claim(self, partition, *, owner, settings):
        found = self._disk.partitions.get(partition)
        if found is not None and len(found.journal) > 1:
            found.journal.pop()
            found.epochs.pop()
            last = found.journal[-1]
            found.head = type(found.head)(found.head.epoch, last.seq, last.tick, last.hash, 0)
        return await super().claim(partition, owner=owner, settings=settings)


def test_a_store_that_forgets_what_it_acknowledged_is_caught(monkeypatch):
    monkeypatch.setattr("sim.cluster.MemoryStore", ForgetfulStore)
    _, report = first_caught()

    assert {violation.invariant for violation in report.violations} & {"I1", "I12"}


class ManyEffects(EffectLedger):
    def write(self, write: Write) -> bool:
        self.writes.append(write)
        return True


@pytest.mark.proves("S001-173")
def test_effects_without_idempotency_keys_are_caught():
    for seed in range(20):
        faults = Faults(crash_after_effect=0.1)
        cluster = Cluster(seed, small_node.programs(), Options(tasks=30, safety_s=200, faults=faults))
        cluster.ledger = ManyEffects()
        report = cluster.run()
        if not report.ok:
            break

    assert report.violations[0].invariant == "I29"


def test_a_run_in_which_nothing_was_accepted_is_vacuous():
    async def silent(seat):
        return None

    made = small_node.programs()
    made.client = silent
    report = Cluster(1, made, Options(safety_s=20, liveness_s=5)).run()

    assert [violation.invariant for violation in report.violations] == ["VACUOUS"]


def test_a_worker_that_never_comes_back_leaves_stuck_work_to_be_found():
    async def asleep(seat):
        while True:
            await asyncio.sleep(3_600)

    made = small_node.programs()
    made.worker = asleep
    report = Cluster(1, made, Options(tasks=5, safety_s=50, liveness_s=50)).run()

    assert "I25" in {violation.invariant for violation in report.violations}
    assert "no worker serves" in str(report)


def test_code_that_reaches_past_its_ports_ends_the_run():
    import time

    class Peeking(small_node.SmallNode):
        def _now(self):
            return time.monotonic()

    report = run(1, Peeking, tasks=5, safety_s=50)

    assert "time.monotonic" in str(report) and not report.ok
