"""Runs that end early, as users write them."""

import json

import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused


@tw.task
def look(day: str) -> dict[str, int]:
    return {"count": len(day) - 3}


@tw.task
def load(count: int) -> int:
    return count


@tw.workflow
def importing(day: str) -> int:
    found = look(day)
    tw.exit_when(found["count"] == 0, reason="nothing to import")
    return load(found["count"])


@tw.workflow
def stoppable(day: str) -> None:
    tw.exit_when(tw.cel("events.exists(e, e.name == 'stop')"), outcome="cancelled", reason="somebody said so")
    look(day)
    tw.event("go")


def test_a_run_ends_early_when_its_condition_holds(world):
    run = world.run(importing, day="mon")
    assert (run.state, run.tasks["load"].state) == ("completed", "cancelled")
    assert "nothing to import" in run.why()
    world.run(importing, day="monday").assert_completed(output=3)


def test_an_event_may_end_a_run(world):
    run = world.start(stoppable, day="mon")
    world.settle()
    world.signal("stop", run=run)
    world.settle()
    run.assert_cancelled()
    assert "somebody said so" in run.why()


def test_the_condition_holds_only_where_its_results_are_there():
    [way] = json.loads(importing.document())["exits"]
    assert way["when"] == 'outcome["look"] == \'succeeded\' && (results["look"]["count"] == 0)'


def test_an_early_end_stands_in_no_side_of_a_branch():
    @tw.workflow
    def wrong(n: int) -> None:
        tw.branch(n > 1, lambda: tw.exit_when(n > 2))

    with pytest.raises(Refused, match="not in a side of a branch"):
        wrong.build()
