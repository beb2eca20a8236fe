"""Journals of every version of the rules: today's is decided again, earlier ones are folded."""

from pathlib import Path
from typing import get_args

import pytest

from journals import read
from replay.golden_tool import golden
from tickwork.core.base.errors import ReplayDiffers
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.machine import Machine
from tickwork.core.rules import MACHINE, rules_of
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state.events import Event
from tickwork.core.state.inputs import Input
from tickwork.journal.replay import fold, replay

HERE = Path(__file__).parent
RULES = rules_of(UTC_ONLY)

FILES = sorted(HERE.glob("golden-v*.journal"))
CHANGED = """
The rules decide something else than the golden journal of version {version} says. If that is wanted, raise
`core.rules.MACHINE` and run `python tools/golden.py`: the old journal stays and is folded from then on.
While version {version} is unreleased, `python tools/golden.py --again` is enough."""
LAYOUT = (
    """
The state after the golden journal has another digest. If only the layout of a snapshot changed, run
`python tools/golden.py --digest`; if a decision or its effect on the state did,"""
    + CHANGED
)


def test_today_has_a_golden_journal():
    rows, end = golden.load(golden.FILE)

    assert end.rules == RULES, "the rules have a new name: run `python tools/golden.py`"
    assert {row.rules for row in read(rows)} == {RULES}
    assert golden.FILE.stat().st_size < 600_000


@pytest.mark.proves("I8", "I7")
def test_todays_journal_is_decided_again_to_the_same_end():
    rows, end = golden.load(golden.FILE)
    machine = Machine(settings=end.settings)
    try:
        head = replay(rows, machine)
    except ReplayDiffers as differs:
        pytest.fail(f"{differs}\n{CHANGED.format(version=MACHINE)}")

    assert (len(rows), head.hex()) == (end.rows, end.head)
    found = digest(machine.state)  # outside of the assert: a failure would show the whole state
    assert found == end.digest, LAYOUT.format(version=MACHINE)


@pytest.mark.proves("I9", "I41")
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_journal_that_was_ever_written_can_be_folded(file):
    rows, end = golden.load(file)
    machine = Machine(settings=end.settings)

    head, wrong, found = fold(rows, machine).hex(), violations(machine.state), digest(machine.state)
    assert (head, wrong) == (end.head, [])
    if end.rules == RULES:
        assert found == end.digest, LAYOUT.format(version=MACHINE)


def test_everything_happens_in_todays_journal():
    rows = read(golden.load(golden.FILE)[0])

    assert {type(item) for row in rows for item in row.inputs} == set(get_args(Input))
    assert {type(event) for row in rows for event in row.events} == set(get_args(Event))
