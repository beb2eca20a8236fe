"""The tables of legal moves, and that the machine decides every cell of the runs' one."""

import importlib.util
from pathlib import Path

import pytest

from driver import BY, Driver, T, task
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import InputRefused
from tickwork.core.state.lifecycle import (
    ATTEMPT_MOVES,
    BUSY,
    ENDED,
    RUN_MOVES,
    TASK_MOVES,
    AttemptState,
    Cause,
    IllegalMove,
    Phase,
    RunState,
    RunTrigger,
    may_move,
    move_run,
    move_task,
)

ROOT = Path(__file__).resolve().parents[3]
R, G = RunState, RunTrigger

# Written down a second time and by hand, state by state in the order of the triggers:
# START WAIT WAKE PAUSE RESUME COMPLETE FAIL TIME_OUT CANCEL RESOLVE
EXPECTED = {
    R.PENDING: "ACTIVE - - - - - - - CANCELLED -",
    R.ACTIVE: "- WAITING - PAUSED - COMPLETED FAILED FAILED CANCELLED -",
    R.WAITING: "- - ACTIVE PAUSED - - - FAILED CANCELLED -",
    R.PAUSED: "- - - - ACTIVE - - FAILED CANCELLED -",
    R.COMPLETED: "- - - - - - - - - -",
    R.FAILED: "- - - - - - - - - ACTIVE",
    R.CANCELLED: "- - - - - - - - - -",
}
CELLS = [(state, trigger, EXPECTED[state].split()[trigger]) for state in R for trigger in G]


@pytest.mark.proves("S002-16", "I37")
@pytest.mark.parametrize(("state", "trigger", "after"), CELLS, ids=lambda cell: getattr(cell, "name", cell))
def test_every_cell_of_the_runs_table_is_a_move_or_an_error(state, trigger, after):
    if after == "-":
        assert not may_move(state, trigger)
        with pytest.raises(IllegalMove):
            move_run(state, trigger)
    else:
        assert may_move(state, trigger)
        assert RunState(move_run(state, trigger)).name == after


@pytest.mark.parametrize(("phase", "cause"), [(phase, cause) for phase in Phase for cause in Cause])
def test_every_cell_of_the_tasks_table_is_a_move_or_an_error(phase, cause):
    if (phase, cause) in TASK_MOVES:
        assert move_task(phase, cause) == TASK_MOVES[phase, cause]
    else:
        with pytest.raises(IllegalMove):
            move_task(phase, cause)


def test_completed_and_cancelled_absorb_and_failed_leaves_only_by_resolve():
    ways_out = {state: [trigger for before, trigger in RUN_MOVES if before == state] for state in R}

    assert ways_out[R.COMPLETED] == ways_out[R.CANCELLED] == []
    assert ways_out[R.FAILED] == [G.RESOLVE]


def test_a_task_that_went_well_only_moves_again_when_what_came_before_it_is_tried_again():
    left_by = {phase: [cause for before, cause in TASK_MOVES if before == phase] for phase in ENDED}

    assert left_by[Phase.SUCCEEDED] == left_by[Phase.SKIPPED] == left_by[Phase.NOT_TAKEN] == [Cause.RESET]
    assert left_by[Phase.BLOCKED] == left_by[Phase.CANCELLED] == [Cause.RESET]


def test_a_phase_is_ended_busy_or_waiting_and_never_two_of_them():
    assert not ENDED & BUSY
    assert frozenset(Phase) - ENDED - BUSY == {Phase.PENDING, Phase.WAITING}


def test_an_attempt_ends_once():
    live = {AttemptState.ASSIGNED, AttemptState.STARTED}

    assert {before for before, _ in ATTEMPT_MOVES} == live
    assert set(ATTEMPT_MOVES.values()) == set(AttemptState) - {AttemptState.ASSIGNED}


def test_the_drawn_lifecycle_is_current():
    spec = importlib.util.spec_from_file_location("lifecycle_tool", ROOT / "tools" / "lifecycle.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)

    assert (ROOT / "docs" / "lifecycle.md").read_text() == tool.draw()


# ---- the same table, asked of the machine


def in_state(state):
    """A driver with one run in this state."""
    driver = Driver()
    driver.define("work", task("a"))
    driver.define("rest", {"kind": "wait", "id": "a", "duration": "1h"})
    driver.submit("rest" if state is R.WAITING else "work", "r", **({"delay_ms": 5_000} if state is R.PENDING else {}))
    match state:
        case R.PAUSED:
            driver.expect(inp.Pause(BY, "run", T, "r"))
        case R.COMPLETED:
            driver.finish("r", "a")
        case R.FAILED:
            driver.fail("r", "a")
        case R.CANCELLED:
            driver.expect(inp.Cancel(BY, T, "r"))
    assert driver.state_of("r") == state.name
    return driver


def command(driver, trigger):
    record = driver.records.get("r")
    left_as = None if record is None else record.state
    match trigger:
        case G.PAUSE:
            return inp.Pause(BY, "run", T, "r", left_as=left_as)
        case G.RESUME:
            return inp.Resume(BY, "run", T, "r", left_as=left_as)
        case G.CANCEL:
            return inp.Cancel(BY, T, "r", left_as=left_as)
    if record is None:  # what a shell would find that asks although the run is in memory
        record = inp.RunRecord(1, "r", "", driver.run("r").state, None, BY, "submit", 1, 1, -1, b"\0", {})
    return inp.Resolve(BY, T, "r", "looked at", record=record)


ASKED = [cell for cell in CELLS if cell[1] in (G.PAUSE, G.RESUME, G.CANCEL, G.RESOLVE)]


@pytest.mark.proves("S002-16", "S002-02", "I37")
@pytest.mark.parametrize(("state", "trigger", "after"), ASKED, ids=lambda cell: getattr(cell, "name", cell))
def test_the_machine_makes_a_legal_move_and_refuses_and_records_every_other(state, trigger, after):
    driver = in_state(state)
    code = driver.refusal(command(driver, trigger))

    if after == "-":
        assert code == "illegal_move"
        assert [event.code for event in driver.events(InputRefused)] == ["illegal_move"]
        assert driver.state_of("r") == state.name
    else:
        assert code == ""
        assert driver.state_of("r") == after


def test_a_run_that_is_not_here_and_no_fact_about_it_is_unknown():
    driver = Driver()

    assert driver.refusal(inp.Cancel(BY, T, "nobody")) == "unknown_run"
    assert driver.refusal(inp.Pause(BY, "run", T, "nobody")) == "unknown_run"
    assert driver.refusal(inp.Resolve(BY, T, "nobody", "why not")) == "unknown_run"
