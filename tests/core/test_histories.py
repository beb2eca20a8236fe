"""Random histories: what must hold whatever happens."""

import pytest

from campaign import seeds
from histories import History
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.journal.record import SealedRow
from tickwork.journal.replay import Recorder, fold, replay

SEEDS = seeds(0, few=30, many=60)


def journal_of(history: History) -> list[SealedRow]:
    recorder = Recorder()
    return [recorder.row(tick, asked, events) for tick, asked, events in history.driver.rows]


def machine_like(history: History) -> Machine:
    return Machine(settings=history.driver.settings)


@pytest.mark.proves("I17", "I26", "I38", "I43", "I47", "I60", "S001-64", "S002-02")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_invariants_hold_after_every_tick(seed):
    history = History(seed).run(150)

    assert history.driver.state.tick > 0  # every tick was checked on the way


@pytest.mark.proves("I7", "I8", "S000-08", "S002-01")
@pytest.mark.parametrize("seed", SEEDS)
def test_deciding_again_and_folding_both_rebuild_the_live_state(seed):
    history = History(seed)
    history.check = False
    history.run(150)
    rows, live = journal_of(history), history.driver.state
    decided, folded = machine_like(history), machine_like(history)
    replay(rows, decided)
    fold(rows, folded)

    assert digest(decided.state) == digest(live)
    assert digest(folded.state) == digest(live)


@pytest.mark.proves("I9", "I14")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_restored_from_a_snapshot_goes_on_as_if_nothing_had_happened(seed):
    history = History(seed)
    history.check = False
    history.run(70)
    snapshot = capture(history.driver.state)
    half = len(history.driver.rows)
    history.run(80)
    rows = journal_of(history)
    restored = Machine(restore(*snapshot))

    assert digest(restored.state) == digest(restore(*snapshot))
    replay(rows[half:], restored, head=rows[half - 1].hash, seq=half)
    assert digest(restored.state) == digest(history.driver.state)


@pytest.mark.parametrize(
    "seed",
    [
        2080,  # a lane that waited for resources was looked at after a restore, and its hold recorded anew
        2244,  # a repeated run with nothing left to do stood in line at its key: nobody has to look at it
    ],
)
def test_histories_that_once_went_wrong(seed):
    history = History(seed).run(90)
    snapshot = capture(history.driver.state)
    half = len(history.driver.rows)
    history.run(60)
    rows = journal_of(history)
    restored = Machine(restore(*snapshot))
    replay(rows[half:], restored, head=rows[half - 1].hash, seq=half)

    assert digest(restored.state) == digest(history.driver.state)
