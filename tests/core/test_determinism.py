"""The same history gives the same journal, whatever the process, its hash seed, its chance, zone and language."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from journals import journal, lived, settings_of
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.journal.replay import fold, replay

TESTS = Path(__file__).parent.parent
SEEDS = (3, 11)
LIVE = f"""
import random, time
before = random.getstate()
from hashlib import blake2b
from journals import journal
from tickwork.core.snapshot.snapshot import digest
from journals import lived
from tickwork.journal.stream import write
for seed in {SEEDS}:
    print(blake2b(b"".join(write(journal(seed, 80)))).hexdigest(), digest(lived(seed, 80).driver.state))
assert random.getstate() == before, "nobody draws from the common dice"
"""


def stream_hashes(**env: str) -> str:
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])
    own = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LC_", "LANG", "TZ"))}
    done = subprocess.run(
        [sys.executable, "-c", LIVE], env=own | {"PYTHONPATH": paths} | env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.proves("P20", "I8", "I14")
def test_two_processes_write_the_same_journal():
    one = stream_hashes(PYTHONHASHSEED="0", TZ="UTC", LC_ALL="C")
    other = stream_hashes(PYTHONHASHSEED="1", TZ="Pacific/Kiritimati", LC_ALL="tr_TR.UTF-8", PYTHONUTF8="0")

    assert len(one.split()) == 2 * len(SEEDS)
    assert one == other


@pytest.mark.proves("I7", "I8", "I9")
@pytest.mark.parametrize("seed", [2, 7, 20, 33])
def test_every_row_is_a_place_to_go_on_from(seed):
    """fold(snapshot_k, journal[k+1..n]) = fold(journal[1..n]) for every k, and the same by deciding again."""
    steps = 80
    rows, settings = journal(seed, steps), settings_of(seed, steps)
    live = digest(lived(seed, steps).driver.state)
    decided, folded = Machine(settings=settings), Machine(settings=settings)
    for k, row in enumerate(rows, start=1):
        head = rows[k - 2].hash if k > 1 else bytes(32)
        replay([row], decided, head=head, seq=k - 1)
        fold([row], folded, head=head, seq=k - 1)
        snapshot = capture(decided.state)

        assert capture(folded.state) == snapshot, f"after {k} rows folding and deciding differ"
        for way in (fold, replay):
            later = Machine(restore(*snapshot))
            assert way(rows[k:], later, head=row.hash, seq=k) == rows[-1].hash
            assert digest(later.state) == live, f"{way.__name__} from row {k} ends elsewhere"
