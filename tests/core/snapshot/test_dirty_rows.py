"""A store that rewrites only what `DirtyRows` names holds exactly the snapshot, after every tick."""

from typing import Any, get_args

import msgspec
import pytest

from campaign import seeds
from driver import BY, Driver, T, task
from histories import History
from tickwork.core.base.errors import Corrupt
from tickwork.core.machine import Machine
from tickwork.core.snapshot.dirty_rows import ENDINGS, HEADER_ONLY, RULES, DirtyRows
from tickwork.core.snapshot.snapshot import Snapshot, capture, digest, encode_header, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import Event
from tickwork.core.state.state import State

SEEDS = seeds(0, few=30, many=70)
MORE_SEEDS = seeds(1_000, few=10, many=300)


class Pieces:
    """Rows as a store keeps them, written behind: `every` so many ticks, and only those that changed."""

    def __init__(self, state: State, every: int) -> None:
        self.touched = DirtyRows(state)
        self.every = every
        self.noted = 0
        self.runs: dict[int, bytes] = {}
        self.tasks: dict[int, bytes] = {}
        self.schedules: dict[int, bytes] = {}

    def note(self, state: State, events: list[Event]) -> bool:
        """Whether rows were written: then they are those of this very tick."""
        self.touched.note(state, events)
        self.noted += 1
        if self.noted % self.every:
            return False
        changes = self.touched.take(state)
        self.runs |= changes.live_runs
        self.tasks |= changes.live_tasks
        for number in changes.gone_runs:
            self.runs.pop(number, None)
        self.schedules |= changes.schedules
        for number in changes.gone_tasks:
            self.tasks.pop(number, None)
        for number in changes.gone_schedules:
            self.schedules.pop(number, None)
        return True

    def snapshot(self, state: State) -> Snapshot:
        kept = (self.runs, self.tasks, self.schedules)
        rows = ([one[number] for number in sorted(one)] for one in kept)
        return Snapshot(encode_header(state), sorted(state.documents.items()), *rows)


class Watched(History):
    """A history whose rows are kept and compared with the whole state whenever they were written."""

    def __init__(self, seed: int, every: int, **settings: Any) -> None:
        super().__init__(seed, **settings)
        self.check = False
        self.pieces = Pieces(self.driver.state, every)
        self.compared = 0
        self.apply, self.driver._apply = self.driver._apply, self.watch

    def watch(self, tick, asked):
        outcome = self.apply(tick, asked)
        state = self.driver.state
        if self.pieces.note(state, outcome.events):
            self.compare(state)
        return outcome

    def compare(self, state: State) -> None:
        kept, whole = self.pieces.snapshot(state), capture(state)
        place = f"seed {self.seed}, tick {state.tick}"
        for name in ("runs", "tasks", "schedules"):
            assert numbers(getattr(kept, name)) == numbers(getattr(whole, name)), f"{place}: {name} that are there"
        assert kept == whole, place
        self.compared += 1
        if self.compared % 7 == 0:
            assert digest(restore(*kept)) == digest(state), place


def numbers(rows: list[bytes]) -> list[int]:
    return [msgspec.msgpack.decode(row)[0] for row in rows]


def test_every_event_has_a_rule():
    assert set(RULES) | ENDINGS | HEADER_ONLY == set(get_args(Event))
    assert len(RULES) + len(ENDINGS) + len(HEADER_ONLY) == len(get_args(Event))


@pytest.mark.proves("I9")
@pytest.mark.parametrize("seed", SEEDS)
def test_rewriting_what_was_touched_keeps_the_snapshot_after_every_tick(seed):
    history = Watched(seed, every=1).run(150)

    assert history.compared > 150


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_the_same_in_many_more_histories(seed):
    assert Watched(seed, every=1).run(200).compared > 200


@pytest.mark.parametrize("every", [3, 20])
@pytest.mark.parametrize("seed", range(100, 110))
def test_rows_may_be_written_behind_many_ticks_at_once(seed, every):
    """What came and went between two writes is in neither of them."""
    history = Watched(seed, every=every).run(150)

    assert history.compared >= 150 // every


@pytest.mark.proves("I9")
@pytest.mark.parametrize("seed", range(200, 210))
def test_a_machine_that_folds_the_tail_goes_on_keeping_the_rows(seed):
    """Recovery: rows at the watermark, the ticks behind it folded, and everything after that noted as before."""
    history = Watched(seed, every=25).run(120)
    rows, state = history.driver.rows, history.driver.state
    watermark = len(rows) // 25 * 25
    machine, pieces = Machine(settings=history.driver.settings), Pieces(State(), every=25)
    for tick, asked, events in rows[:watermark]:
        machine.fold(tick, asked, events)
        pieces.note(machine.state, events)
    machine = Machine(restore(*pieces.snapshot(machine.state)))
    pieces.touched = DirtyRows(machine.state)
    for tick, asked, events in rows[watermark:]:
        machine.fold(tick, asked, events)
        pieces.note(machine.state, events)
    pieces.every = 1
    pieces.note(machine.state, [])

    assert pieces.snapshot(machine.state) == capture(state)


def kept(driver: Driver) -> Pieces:
    """Rows of everything that the driver has done so far, and of what it does from here on."""
    pieces = Pieces(State(), every=1)
    folded = Machine(settings=driver.settings)
    for tick, asked, events in driver.rows:
        folded.fold(tick, asked, events)
        pieces.note(folded.state, events)
    return pieces


def test_a_debounced_run_is_rewritten():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.submit("flow", "r1", delay_ms=1_000, debounce="d")
    driver.submit("flow", "r2", delay_ms=2_000, debounce="d")

    assert kept(driver).snapshot(driver.state) == capture(driver.state)
    driver.advance(3_000)
    driver.submit("flow", "r3", delay_ms=1_000, debounce="d")  # r1 has started: this is another one
    assert kept(driver).snapshot(driver.state) == capture(driver.state)
    assert digest(restore(*capture(driver.state))) == digest(driver.state)


def test_whoever_a_gate_lets_in_is_rewritten_though_no_event_names_it():
    driver = Driver(max_runs_per_tick=1)
    driver.define("flow", task("a"), concurrency={"limit": 1})
    for run_id in ("r1", "r2", "r3"):
        driver.submit("flow", run_id)
    attempt = driver.attempt_of("r1", "a")
    driver.send(inp.Succeeded(attempt.task, attempt.attempt), *(inp.Submit(BY, T, f"q{n}", "flow") for n in range(3)))

    assert not driver.run("r2").gated
    assert kept(driver).snapshot(driver.state) == capture(driver.state)


def test_pieces_of_two_moments_are_refused():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.submit("flow", "r1")
    before = capture(driver.state)
    driver.submit("flow", "r2")
    after = capture(driver.state)

    for header, runs, tasks in [
        (before.header, after.runs, after.tasks),
        (after.header, before.runs, before.tasks),
        (after.header, after.runs[1:], after.tasks),
        (after.header, after.runs, [after.tasks[0][:-1]]),
    ]:
        with pytest.raises(Corrupt, match="from the journal"):
            restore(header, after.documents, runs, tasks)
