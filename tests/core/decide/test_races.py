"""Nodes that start before all of their parents have ended, and what loses against the first."""
# ruff: noqa: E501 - a node reads best on one line

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.definition.document import accept
from tickwork.core.explain.why_not import why_not
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import FirstEnded

HOUR_MS = 3_600_000


def first(*of, **fields):
    return {"kind": "first", "id": "f", "of": list(of), "needs": [*of, *fields.pop("needs", [])], **fields}


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("leaf", task("x"))
    driver.define("flow", *nodes, **{"inputs": {"items": {"required": False}}, **fields})
    return driver, driver.submit("flow", inputs={"items": [1, 2, 3]})


@pytest.mark.parametrize(
    ("trigger", "ends", "running", "after"),
    [
        ("any_succeeded", ["ok"], True, None),  # at once: the other one goes on
        ("any_succeeded", ["bad"], False, None),
        ("any_succeeded", ["bad", "ok"], True, None),
        ("any_succeeded", ["bad", "bad"], False, "BLOCKED"),
        ("one_done", ["bad"], True, None),
        ("one_done", ["ok"], True, None),
        ("all_failed", ["bad"], False, None),
        ("all_failed", ["bad", "bad"], True, None),
        ("all_failed", ["bad", "ok"], False, "NOT_TAKEN"),
    ],
)
def test_a_rule_about_any_parent_starts_its_node_as_soon_as_it_holds(trigger, ends, running, after):
    driver, run = flow(task("a"), task("b"), task("z", needs=["a", "b"], trigger=trigger))
    phases = {}
    for node, how in zip("ab", ends, strict=False):
        assert not driver.is_running(run, "z")
        driver.finish(run, node) if how == "ok" else driver.fail(run, node)
    phases = driver.phases(run)

    assert (phases["z"] == "RUNNING") is running
    if after:
        assert phases["z"] == after
    driver.finish_all()
    driver.assert_empty()


def test_a_branch_around_a_node_is_not_one_of_the_parents_that_its_rule_is_about():
    driver, run = flow(
        {"kind": "branch", "id": "x", "cases": [{"when": "true", "to": ["a", "b", "z"]}], "default": []},
        task("a", needs=["x"]),
        task("b", needs=["x"]),
        task("z", needs=["x", "a", "b"], trigger="any_succeeded"),
    )
    assert driver.phase(run, "z") == "PENDING"

    driver.finish(run, "b")
    assert driver.is_running(run, "z")


def test_a_node_that_started_early_waits_for_nodes_further_up_that_it_reads():
    driver, run = flow(
        task("far"),
        task("a", needs=["far"]),
        task("b"),
        task("z", needs=["a", "b"], trigger="any_succeeded", when="results.far > 1"),
    )
    driver.finish(run, "b")
    assert driver.phase(run, "z") == "PENDING"

    driver.finish(run, "far", 2)
    assert driver.is_running(run, "z")


def test_the_first_to_end_wins_with_its_result_and_the_others_are_cancelled():
    driver, run = flow(task("a"), task("b"), first("a", "b"), task("z", needs=["f"]))
    lost = driver.attempt_of(run, "b")
    driver.finish(run, "a", {"n": 1})

    assert [(effect.task, effect.attempt) for effect in driver.stopped] == [(lost.task, lost.attempt)]
    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "CANCELLED", "f": "SUCCEEDED", "z": "RUNNING"}
    driver.send(inp.Succeeded(lost.task, lost.attempt))  # too late
    driver.finish(run, "z")
    assert driver.state.stale == 1
    assert (driver.state_of(run), driver.result(run, "f")) == ("COMPLETED", {"n": 1})
    driver.assert_empty()


@pytest.mark.parametrize(
    "loser",
    [
        {"kind": "wait", "duration": "3d"},
        {"kind": "event", "event": "paid", "timeout": "1h"},
        {"kind": "approval"},
        {"kind": "map", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}},
        {"kind": "map", "over": "inputs.items", "body": {"kind": "workflow", "workflow": "leaf"}},
        {"kind": "workflow", "workflow": "leaf"},
        {"kind": "repeat", "until": "true", "max_iterations": 9, "body": {"kind": "task", "handler": "h"}},
    ],
    ids=lambda node: f"{node['kind']} {node.get('body', {}).get('kind', '')}",
)
def test_every_kind_of_node_can_lose_and_leaves_nothing_behind(loser):
    driver, run = flow(task("a"), {**loser, "id": "b"}, first("a", "b"))
    driver.finish(run, "a")

    assert driver.state_of(run) == "COMPLETED"
    assert driver.phase(run, "b") == "CANCELLED"
    assert not driver.running
    driver.assert_empty()


def test_a_time_limit_is_the_first_of_an_event_and_a_wait():
    driver, run = flow(
        {"kind": "event", "id": "paid", "event": "paid"},
        {"kind": "wait", "id": "late", "duration": "1h"},
        first("paid", "late"),
    )
    driver.advance(HOUR_MS)

    assert driver.state_of(run) == "COMPLETED"
    assert driver.result(run, "f") is None
    driver.assert_empty()


def test_what_leads_only_to_a_loser_is_cancelled_and_what_somebody_else_needs_goes_on():
    driver, run = flow(
        task("own"),
        task("shared"),
        task("b", needs=["own", "shared"]),
        task("other", needs=["shared"]),
        task("a"),
        first("a", "b"),
    )
    driver.finish(run, "a")
    assert driver.phases(run) == {
        "own": "CANCELLED", "shared": "RUNNING", "b": "CANCELLED", "other": "PENDING", "a": "SUCCEEDED", "f": "SUCCEEDED",
    }  # fmt: skip
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"


def test_who_needs_a_loser_is_blocked_and_the_run_completes_all_the_same():
    driver, run = flow(
        task("a"), task("b"), first("a", "b"), task("z", needs=["b"]), task("tidy", needs=["b"], trigger="all_done")
    )
    driver.finish(run, "a")
    assert driver.phase(run, "z") == "BLOCKED"

    driver.finish(run, "tidy")
    assert driver.state_of(run) == "COMPLETED"


def test_of_two_that_end_together_one_that_succeeded_wins():
    driver, run = flow(task("a"), task("b"), first("a", "b"))
    a, b = driver.attempt_of(run, "a"), driver.attempt_of(run, "b")
    driver.running.clear()
    driver.send(inp.Failed(a.task, a.attempt, "E"), inp.Succeeded(b.task, b.attempt))

    assert [event.winner for event in driver.events(FirstEnded)] == [1]
    assert driver.state_of(run) == "FAILED"  # one of its nodes failed


def failed_first():
    driver, run = flow(task("a"), task("b"), first("a", "b"), task("z", needs=["f"]))
    driver.fail(run, "a")
    return driver, run


def test_where_the_first_to_end_failed_the_race_is_blocked_and_a_retry_runs_it_again():
    driver, run = failed_first()
    assert driver.phases(run) == {"a": "FAILED", "b": "CANCELLED", "f": "BLOCKED", "z": "BLOCKED"}
    assert driver.state_of(run) == "FAILED"

    driver.expect(inp.Resolve(BY, T, run, "again", {}, record=driver.records.pop(run)))
    driver.quiet()
    assert driver.phases(run) == {"a": "RUNNING", "b": "RUNNING", "f": "PENDING", "z": "PENDING"}
    driver.finish(run, "b")
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"


def decided_race():
    driver, run = flow(task("a"), task("b"), first("a", "b"), task("z", needs=["f"]))
    driver.finish(run, "a", 7)
    driver.fail(run, "z")
    return driver, run


def test_a_retry_of_what_comes_after_a_decided_race_does_not_run_it_again():
    driver, run = decided_race()
    driver.expect(inp.Resolve(BY, T, run, "again", {}, record=driver.records.pop(run)))
    driver.quiet()

    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "CANCELLED", "f": "SUCCEEDED", "z": "RUNNING"}
    assert len(driver.events(FirstEnded)) == 1
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"


@pytest.mark.parametrize(
    ("from_node", "running"), [("", ["z"]), ("z", ["z"]), ("f", ["b", "f"]), ("b", ["b"]), ("a", ["a", "b"])]
)
def test_a_rerun_keeps_a_decided_race_unless_it_starts_inside(from_node, running):
    driver, run = decided_race()
    driver.expect(inp.Rerun(BY, T, "again", driver.records[run], from_node))
    driver.quiet()

    phases = driver.phases("again")
    if from_node == "f" or from_node == "b":  # the winner is kept, so it wins again
        assert (phases["a"], phases["f"], phases["z"]) == ("SUCCEEDED", "SUCCEEDED", "RUNNING")
    else:
        assert [node for node, phase in phases.items() if phase == "RUNNING"] == running
        assert len(driver.events(FirstEnded)) == 1  # in the first run
    driver.finish_all()
    assert driver.state_of("again") == "COMPLETED"


def two_races(*order):
    """b loses against a, so the race of b and c is blocked; x fails meanwhile."""
    races = {"f": first("a", "b"), "g": {**first("b", "c"), "id": "g"}}
    driver, run = flow(
        task("x"),
        task("a"),
        task("b"),
        task("c", needs=["x"]),
        task("y", needs=["x"]),
        *(races[name] for name in order),
        task("z", needs=["f"]),
    )
    driver.finish(run, "a", 7)
    driver.finish(run, "z")
    driver.fail(run, "x")
    return driver, run


@pytest.mark.parametrize("order", ["fg", "gf"])
def test_a_node_that_lost_a_race_stays_cancelled_for_as_long_as_that_race_is_decided(order):
    driver, run = two_races(*order)
    assert driver.phases(run) == {
        "x": "FAILED", "a": "SUCCEEDED", "b": "CANCELLED", "c": "CANCELLED", "y": "BLOCKED", "z": "SUCCEEDED", "f": "SUCCEEDED",
        "g": "BLOCKED",
    }  # fmt: skip

    driver.expect(inp.Resolve(BY, T, run, "again", {}, record=driver.records.pop(run)))
    driver.quiet()
    phases = driver.phases(run)
    assert (phases["b"], phases["f"], phases["z"]) == ("CANCELLED", "SUCCEEDED", "SUCCEEDED")
    assert len(driver.events(FirstEnded)) == 3  # g once more
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.parametrize("again", ["retry", "rerun"])
def test_what_led_to_the_losers_of_two_races_stays_cancelled_with_them(again):
    races = [first("a", "b"), {**first("c", "d"), "id": "g"}]
    driver, run = flow(
        task("x"), task("way"), task("a"), task("b", needs=["way"]), task("c"), task("d", needs=["way"]), *races
    )
    driver.finish(run, "a")
    assert driver.is_running(run, "way")
    driver.finish(run, "c")
    assert driver.phase(run, "way") == "CANCELLED"
    driver.fail(run, "x")

    if again == "retry":
        driver.expect(inp.Resolve(BY, T, run, "again", {}, record=driver.records.pop(run)))
    else:
        driver.expect(inp.Rerun(BY, T, "again", driver.records[run]))
        run = "again"
    driver.quiet()
    running = [node for node, phase in driver.phases(run).items() if phase == "RUNNING"]
    assert running == ["x"] and len(driver.events(FirstEnded)) == 2
    driver.finish_all()
    driver.assert_empty()


def test_what_lost_a_race_before_its_branch_was_decided_does_not_tell_which_side_was_taken():
    """`lost` stands on the side that is not taken, and ends before the branch does."""
    driver, run = flow(
        task("x"),
        task("gate"),
        {"kind": "branch", "id": "by", "needs": ["gate"], "cases": [{"when": "true", "to": ["yes"]}],
         "default": ["no", "lost"]},
        task("yes", needs=["by"]),
        task("no", needs=["by", "x"]),
        task("a"),
        task("lost", needs=["by"]),
        first("a", "lost"),
    )  # fmt: skip
    driver.finish(run, "a")
    driver.finish(run, "gate")
    driver.finish(run, "yes")
    driver.fail(run, "x")
    assert driver.phase(run, "no") == "NOT_TAKEN"

    driver.expect(inp.Rerun(BY, T, "again", driver.records[run]))
    driver.quiet()
    assert [node for node, phase in driver.phases("again").items() if phase == "RUNNING"] == ["x"]
    driver.finish_all()
    assert (driver.state_of("again"), driver.phase("again", "no")) == ("COMPLETED", "NOT_TAKEN")
    driver.assert_empty()


def test_a_loser_that_runs_again_has_its_branch_decided_again_where_that_led_elsewhere():
    driver, run = flow(
        task("gate"),
        {"kind": "branch", "id": "by", "needs": ["gate"], "cases": [{"when": "true", "to": ["yes"]}],
         "default": ["lost"]},
        task("yes", needs=["by"]),
        task("a"),
        task("lost", needs=["by"]),
        first("a", "lost"),
    )  # fmt: skip
    driver.finish(run, "a")
    driver.finish(run, "gate")
    driver.finish(run, "yes")
    assert driver.phase(run, "lost") == "CANCELLED"

    driver.expect(inp.Rerun(BY, T, "again", driver.records[run], "a"))
    driver.quiet()
    assert driver.phases("again") == {
        "gate": "SUCCEEDED", "by": "SUCCEEDED", "yes": "RUNNING", "a": "RUNNING", "lost": "NOT_TAKEN", "f": "PENDING",
    }  # fmt: skip
    driver.finish_all()
    driver.assert_empty()


def test_a_rerun_of_a_race_runs_what_comes_after_its_losers_too():
    driver, run = flow(task("a"), task("b"), first("a", "b"), task("tidy", needs=["b"], trigger="all_done"))
    driver.finish(run, "a")
    driver.finish(run, "tidy")

    driver.expect(inp.Rerun(BY, T, "again", driver.records[run], "a"))
    driver.quiet()
    assert driver.phases("again") == {"a": "RUNNING", "b": "RUNNING", "f": "PENDING", "tidy": "PENDING"}
    driver.finish_all()
    driver.assert_empty()


def test_a_paused_run_decides_its_race_when_it_is_resumed():
    driver, run = flow(task("a"), task("b"), first("a", "b"))
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.finish(run, "a")
    assert driver.phase(run, "f") == "PENDING"

    driver.expect(inp.Resume(BY, "run", T, run))
    driver.quiet()
    assert driver.state_of(run) == "COMPLETED"


def test_why_says_that_one_of_them_may_be_enough():
    driver, run = flow(task("a"), {"kind": "wait", "id": "w", "duration": "1h"}, first("a", "w"))

    assert "it comes after a, w; one of them may be enough" in str(why_not(driver.state, T, run))


@pytest.mark.parametrize(
    ("node", "path", "code"),
    [
        (first("a"), "nodes[2].of", "first_of_one"),
        ({**first("a", "b"), "needs": ["a"]}, "nodes[2].of[1]", "unknown_need"),
        ({**first("a", "b"), "trigger": "all_done"}, "nodes[2].trigger", "first_trigger"),
    ],
)
def test_a_first_names_at_least_two_of_its_needs(node, path, code):
    with pytest.raises(InvalidDefinition) as invalid:
        accept({"name": "flow", "nodes": [task("a"), task("b"), node]})

    assert [(problem.path, problem.code) for problem in invalid.value.problems] == [(path, code)]
