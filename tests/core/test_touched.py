"""A store that rewrites only what `Touched` names holds exactly the snapshot, after every tick."""

from typing import Any, get_args

import pytest

from histories import History
from tickwork.core.events import Event
from tickwork.core.machine import Machine
from tickwork.core.model import State
from tickwork.core.snapshot import Snapshot, capture, digest, encode_header, restore
from tickwork.core.touched import ENDINGS, HEADER_ONLY, RULES, Touched

SEEDS = range(70)


class Pieces:
    """Rows as a store keeps them, written behind: `every` so many ticks, and only those that changed."""

    def __init__(self, state: State, every: int) -> None:
        self.touched = Touched(state)
        self.every = every
        self.noted = 0
        self.runs: dict[int, bytes] = {}
        self.tasks: dict[int, bytes] = {}

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
        for number in changes.gone_tasks:
            self.tasks.pop(number, None)
        return True

    def snapshot(self, state: State) -> Snapshot:
        runs, tasks = ([rows[number] for number in sorted(rows)] for rows in (self.runs, self.tasks))
        return Snapshot(encode_header(state), sorted(state.documents.items()), runs, tasks)


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
        for name in ("runs", "tasks"):
            assert numbers(getattr(kept, name)) == numbers(getattr(whole, name)), f"{place}: {name} that are there"
        assert kept == whole, place
        self.compared += 1
        if self.compared % 7 == 0:
            assert digest(restore(*kept)) == digest(state), place


def numbers(rows: list[bytes]) -> list[int]:
    import msgspec

    return [msgspec.msgpack.decode(row)[0] for row in rows]


def test_every_event_has_a_rule():
    assert set(RULES) | ENDINGS | HEADER_ONLY == set(get_args(Event))
    assert len(RULES) + len(ENDINGS) + len(HEADER_ONLY) == len(get_args(Event))


@pytest.mark.proves("I9")
@pytest.mark.parametrize("seed", SEEDS)
def test_rewriting_what_was_touched_keeps_the_snapshot_after_every_tick(seed):
    history = Watched(seed, every=1).run(150)

    assert history.compared > 150
