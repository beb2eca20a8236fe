"""What somebody may do about a run that failed: resolve it, redrive it, run it again."""

from collections import Counter

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunMoved, TaskDispatched
from tickwork.core.state.lifecycle import RunTrigger

HOUR_MS = 3_600_000


def failed(*nodes, fails=("a",), **fields):
    """A driver with the FAILED run `r`."""
    driver = Driver()
    driver.define("flow", *(nodes or [task("a"), task("b", needs=["a"]), task("c", needs=["b"]), task("d")]), **fields)
    driver.submit("flow", "r")
    for node in fails:
        driver.fail("r", node)
    driver.finish_all()
    assert driver.state_of("r") == "FAILED"
    return driver


def resolve(driver, *, run="r", reason="mended", **fields):
    """The code of the refusal, "" where it is accepted."""
    code = driver.refusal(inp.Resolve(BY, T, run, reason, record=driver.records[run], **fields))
    driver.quiet()
    return code


@pytest.mark.proves("S002-31", "S001-30", "I37")
def test_a_failed_run_stays_failed_until_somebody_resolves_it_and_then_goes_on_from_there():
    driver = failed()
    driver.advance(48 * HOUR_MS)
    assert driver.state_of("r") == "FAILED"
    before = len(driver.started)

    assert resolve(driver) == ""
    assert driver.state_of("r") == "ACTIVE"
    assert driver.phases("r") == {"a": "RUNNING", "b": "PENDING", "c": "PENDING", "d": "SUCCEEDED"}
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    assert len(driver.started) == before + 3
    assert driver.moves("r") == ["START", "FAIL", "RESOLVE", "COMPLETE"]
    driver.assert_empty()


@pytest.mark.parametrize(
    ("deed", "value", "phase"),
    [("accept", pack(5), "SUCCEEDED"), ("accept", None, "SUCCEEDED"), ("skip", None, "SKIPPED")],
)
def test_a_failed_node_may_be_accepted_with_a_value_or_skipped_and_what_was_blocked_runs(deed, value, phase):
    driver = failed()
    values = {} if value is None else {"a": value}
    assert resolve(driver, decisions={"a": deed}, values=values) == ""

    assert driver.phases("r") == {"a": phase, "b": "RUNNING", "c": "PENDING", "d": "SUCCEEDED"}
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    assert driver.result("r", "a") == (5 if value else None)
    driver.assert_empty()


def failed_branch():
    branch = {"kind": "branch", "id": "b", "cases": [{"when": "inputs.x.y", "to": ["yes"]}], "default": ["no"]}
    sides = [task("yes", needs=["b", "base"]), task("no", needs=["b", "base"])]
    driver = Driver()
    driver.define("flow", task("base"), branch, *sides, inputs={"x": {"type": "any"}})
    driver.submit("flow", "r", inputs={"x": 1})
    driver.finish_all()
    assert driver.state_of("r") == "FAILED"
    return driver


def test_a_failed_branch_cannot_be_accepted_since_nobody_knows_its_side():
    driver = failed_branch()

    assert resolve(driver, decisions={"b": "accept"}) == "bad_decision"
    assert driver.state_of("r") == "FAILED"


def test_a_failed_branch_that_is_skipped_leaves_both_of_its_sides_out():
    driver = failed_branch()

    assert resolve(driver, decisions={"b": "skip"}) == ""
    assert driver.phases("r") == {"base": "SUCCEEDED", "b": "SKIPPED", "yes": "NOT_TAKEN", "no": "NOT_TAKEN"}
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_run_whose_only_failure_is_accepted_completes_at_once():
    driver = failed(task("a"))
    resolve(driver, decisions={"a": "accept"})

    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_node_that_is_retried_and_fails_again_fails_the_run_again():
    driver = failed()
    resolve(driver)
    driver.fail("r", "a")

    assert driver.state_of("r") == "FAILED"
    assert driver.phases("r") == {"a": "FAILED", "b": "BLOCKED", "c": "BLOCKED", "d": "SUCCEEDED"}
    assert resolve(driver, decisions={"a": "skip"}) == ""
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_retried_node_has_all_of_its_attempts_again():
    driver = Driver()
    driver.define("flow", task("a", retry={"attempts": 2, "delay": "1s"}))
    driver.submit("flow", "r")
    for _ in range(2):
        driver.fail("r", "a")
        driver.advance(2_000)
    resolve(driver)
    driver.fail("r", "a")

    assert driver.phase("r", "a") == "BACKOFF"


TWO = [task("a"), task("x"), task("b", needs=["a"]), task("y", needs=["x"]), task("z", needs=["b", "y"])]


@pytest.mark.proves("I5")
@pytest.mark.parametrize("lives", [1, 2])
def test_a_late_word_of_an_attempt_from_before_is_stale_when_the_run_is_back(lives):
    """Its worker may have stood still all the while."""
    driver = Driver()
    driver.define("flow", task("a", retry={"attempts": 2, "delay": "10ms"}))
    driver.submit("flow", "r")
    earlier = []
    for _ in range(lives):
        for _ in range(2):
            earlier.append(driver.attempt_of("r", "a"))
            driver.fail("r", "a")
            driver.advance(1_000)
        assert driver.state_of("r") == "FAILED" and resolve(driver) == ""
    now = driver.attempt_of("r", "a")

    assert now.attempt == 2 * lives + 1
    for late in earlier:
        stale = driver.state.stale
        driver.send(inp.Succeeded(late.task, late.attempt, pack("late")))
        assert driver.state.stale == stale + 1 and driver.phases("r") == {"a": "RUNNING"}
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"


@pytest.mark.proves("I5")
def test_an_attempt_that_a_time_limit_of_its_run_cut_short_is_stale_as_well():
    driver = timed_out()

    assert resolve(driver) == ""
    assert driver.attempt_of("r", "b").attempt == 2


def test_every_failed_node_needs_a_decision_and_only_those():
    driver = failed(*TWO, fails=("a", "x"))
    assert resolve(driver, decisions={"a": "retry"}) == "undecided"
    assert resolve(driver, decisions={"a": "retry", "x": "retry", "b": "retry"}) == "not_failed"
    assert resolve(driver, decisions={"a": "retry", "nothing": "retry"}) == "not_failed"
    assert resolve(driver, decisions={"a": "retry", "x": "shrug"}) == "bad_decision"
    assert resolve(driver, values={"a": pack("x" * 2_000)}) == "value_too_large"
    assert resolve(driver, decisions={"a": "retry", "x": "skip"}, values={"x": pack(1)}) == "not_accepted"
    assert driver.run("r") is None

    assert resolve(driver, decisions={"a": "retry", "x": "skip"}) == ""
    assert driver.phases("r") == {"a": "RUNNING", "x": "SKIPPED", "b": "PENDING", "y": "RUNNING", "z": "PENDING"}
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_run_is_resolved_once():
    driver = failed()
    record = driver.records["r"]
    resolve(driver)
    assert driver.refusal(inp.Resolve(BY, T, "r", "again", record=record)) == "illegal_move"

    driver.finish_all()
    assert driver.refusal(inp.Resolve(BY, T, "r", "again", record=driver.records["r"])) == "illegal_move"
    driver.assert_empty()


def test_cleanup_that_already_ran_runs_again_after_what_is_tried_again():
    driver = failed(task("a"), task("tidy", needs=["a"], trigger="all_done"), task("b", needs=["a"]))
    resolve(driver)
    driver.finish_all()

    assert driver.state_of("r") == "COMPLETED"
    assert driver.phases("r") == dict.fromkeys(["a", "tidy", "b"], "SUCCEEDED")
    assert len(driver.events(TaskDispatched)) == 5
    driver.assert_empty()


def test_nodes_in_any_order_of_the_document_are_decided_parents_first():
    nodes = [task("z", needs=["y"]), task("y", needs=["x"]), task("x")]
    driver = failed(*nodes, fails=("x",))
    resolve(driver)
    assert driver.phases("r") == {"z": "PENDING", "y": "PENDING", "x": "RUNNING"}

    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def timed_out():
    driver = Driver()
    driver.define("flow", task("a"), task("b", needs=["a"]), task("c", needs=["b"]), timeout="10m")
    driver.submit("flow", "r")
    driver.finish("r", "a")
    driver.advance(600_000)
    assert driver.phases("r") == {"a": "SUCCEEDED", "b": "CANCELLED", "c": "CANCELLED"}
    return driver


def test_a_run_that_took_too_long_goes_on_where_it_was_cut_short():
    driver = timed_out()
    assert resolve(driver) == ""
    assert driver.phases("r") == {"a": "SUCCEEDED", "b": "RUNNING", "c": "PENDING"}

    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_run_that_took_too_long_and_cleaned_up_cleans_up_again_after_a_retry():
    driver = Driver()
    clean = task("clean", needs=["b"], trigger="all_done")
    driver.define("flow", task("a"), task("b", needs=["a"]), clean, timeout="10m")
    driver.submit("flow", "r")
    driver.finish("r", "a")
    driver.advance(600_000)
    driver.finish("r", "clean")
    assert driver.phases("r") == {"a": "SUCCEEDED", "b": "CANCELLED", "clean": "SUCCEEDED"}

    assert resolve(driver) == ""
    assert driver.phases("r") == {"a": "SUCCEEDED", "b": "RUNNING", "clean": "PENDING"}
    driver.finish_all()
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_resolved_run_has_its_whole_time_again_and_no_more():
    driver = timed_out()
    resolve(driver)
    driver.advance(599_000)
    assert driver.state_of("r") == "ACTIVE"

    driver.advance(2_000)
    assert driver.state_of("r") == "FAILED"
    driver.assert_empty()


def test_a_resolved_child_workflow_is_a_new_run_with_an_id_of_its_own():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", {"kind": "workflow", "id": "c", "workflow": "leaf"})
    driver.submit("flow", "r")
    first = driver.id_of_child("r", "c")
    driver.fail(first, "l")
    resolve(driver)
    second = driver.id_of_child("r", "c")

    assert second != first
    driver.finish(second, "l")
    assert (driver.state_of(first), driver.state_of("r")) == ("FAILED", "COMPLETED")
    driver.assert_empty()


def test_a_map_that_is_retried_begins_anew():
    driver = Driver()
    driver.define(
        "flow",
        {"kind": "map", "id": "m", "over": "inputs.x", "body": {"kind": "task", "handler": "h"}},
        inputs={"x": {"type": "array"}},
    )
    driver.submit("flow", "r", inputs={"x": [1, 2]})
    driver.fail("r", "m", child=0)
    driver.finish_all()
    resolve(driver)

    assert driver.finish_all() == 2
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_resolved_run_goes_on_at_once_and_those_behind_its_concurrency_key_see_it():
    driver = failed(task("a"), concurrency={"limit": 1})
    driver.submit("flow", "other")
    resolve(driver)
    driver.submit("flow", "next")
    assert [driver.state_of(run) for run in ("r", "other", "next")] == ["ACTIVE", "ACTIVE", "PENDING"]

    driver.finish("other", "a")
    assert driver.state_of("next") == "PENDING"
    driver.finish("r", "a")
    assert driver.state_of("next") == "ACTIVE"
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.proves("I47")
def test_nothing_is_brought_back_for_which_there_is_no_room():
    driver, records = failed_runs(3)
    driver.send(inp.PutTenant(BY, T, max_live_runs=2))

    assert driver.refusal(inp.Redrive(BY, T, "mended", 5, records)) == "overloaded"
    driver.send(inp.Submit(BY, T, "x", "flow"), inp.Submit(BY, T, "y", "flow"))
    assert resolve(driver, run=records[0].run_id) == "overloaded"
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.proves("I42")
@pytest.mark.parametrize("deed", ["accept", "skip", "retry"])
@pytest.mark.parametrize(
    ("fields", "by", "code"),
    [
        ({"four_eyes": True}, BY, "four_eyes"),
        ({"four_eyes": True}, "bob", ""),
        ({"approvers": ["bob"]}, BY, "not_entitled"),
        ({"approvers": ["bob"]}, "bob", ""),
    ],
)
def test_nobody_gets_around_an_approval_by_resolving_it(deed, fields, by, code):
    driver = Driver()
    driver.define("flow", {"kind": "approval", "id": "ok", **fields}, task("a", needs=["ok"]))
    driver.submit("flow", "r")
    driver.expect(inp.Decide("bob", T, "r", "ok", False))
    asked = inp.Resolve(by, T, "r", "please", {"ok": deed}, record=driver.records["r"])
    refused = driver.refusal(asked)

    assert refused == ("" if deed == "retry" else code)
    assert bool(driver.started) == (deed != "retry" and not code)


# ---- in bulk


def failed_runs(count):
    driver = Driver()
    driver.define("flow", task("a"))
    for _ in range(count):
        driver.fail(driver.submit("flow"), "a")
    return driver, list(driver.records.values())


def resolve_ticks(driver):
    return [
        tick
        for tick, _, events in driver.rows
        for one in events
        if isinstance(one, RunMoved) and one.trigger == RunTrigger.RESOLVE
    ]


@pytest.mark.parametrize("per_second", [1, 3, 10, 1_000])
def test_a_bulk_redrive_starts_no_more_runs_in_any_second_than_it_may(per_second):
    driver, records = failed_runs(25)
    driver.expect(inp.Redrive(BY, T, "mended", per_second, records[:15]))
    driver.expect(inp.Redrive(BY, T, "the rest", per_second, records[15:]))  # together they are no faster
    driver.advance(30_000)

    ticks = resolve_ticks(driver)
    assert len(ticks) == 25
    in_window = [sum(1 for other in ticks if first <= other < first + 1_000) for first in ticks]
    assert max(in_window) <= per_second
    driver.finish_all()
    assert Counter(driver.state_of(record.run_id) for record in records) == {"COMPLETED": 25}
    driver.assert_empty()


def test_a_run_that_waits_for_its_redrive_can_be_neither_resolved_nor_redriven_again():
    driver, records = failed_runs(3)
    driver.expect(inp.Redrive(BY, T, "mended", 1, records))

    assert driver.refusal(inp.Redrive(BY, T, "twice", 1, records)) == "illegal_move"
    assert resolve(driver, run=records[2].run_id) == "illegal_move"
    driver.advance(10_000)
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda records: (0, records), "bad_rate"),
        (lambda records: (1_001, records), "bad_rate"),
        (lambda records: (5, [*records, records[0]]), "twice"),
    ],
)
def test_a_redrive_that_makes_no_sense_is_refused_as_a_whole(change, code):
    driver, records = failed_runs(3)

    assert driver.refusal(inp.Redrive(BY, T, "mended", *change(records))) == code
    driver.assert_empty()


CLEANED = [
    task("work"),
    task("rest", needs=["work"]),
    task("cleanup", needs=["work", "rest"], trigger="all_done"),
    task("alert", needs=["work"], trigger="any_failed"),
    task("told", needs=["alert"]),
    task("free"),
]


def cleaned():
    driver = Driver()
    driver.define("flow", *CLEANED)
    driver.submit("flow", "r")
    driver.fail("r", "work")
    driver.finish_all()
    assert driver.phases("r") == {
        "work": "FAILED", "rest": "BLOCKED", "cleanup": "SUCCEEDED", "alert": "SUCCEEDED", "told": "SUCCEEDED",
        "free": "SUCCEEDED",
    }  # fmt: skip
    return driver


def test_a_retry_that_fails_again_runs_clean_up_and_alerts_again():
    driver = cleaned()
    before = len(driver.started)
    assert resolve(driver) == ""
    driver.fail("r", "work")
    assert {driver._node_of(driver.state.tasks[number]) for number in driver.running} == {"cleanup", "alert"}
    driver.finish_all()

    assert driver.state_of("r") == "FAILED"
    assert len(driver.started) == before + 4  # work, cleanup, alert, told; what did not depend on it is kept
    assert len({(one.task, one.attempt) for one in driver.started}) == len(driver.started)
    driver.assert_empty()


def test_a_retry_that_succeeds_cleans_up_again_and_alerts_nobody():
    driver = cleaned()
    resolve(driver)
    driver.finish_all()

    assert driver.phases("r") == {
        "work": "SUCCEEDED", "rest": "SUCCEEDED", "cleanup": "SUCCEEDED", "alert": "NOT_TAKEN", "told": "NOT_TAKEN",
        "free": "SUCCEEDED",
    }  # fmt: skip
    assert driver.state_of("r") == "COMPLETED"
    driver.assert_empty()


def test_a_node_that_is_accepted_leaves_the_alert_as_it_was_and_cleans_up_after_what_runs_now():
    driver = cleaned()
    resolve(driver, decisions={"work": "accept"})
    driver.finish_all()

    assert driver.phases("r") == {
        "work": "SUCCEEDED", "rest": "SUCCEEDED", "cleanup": "SUCCEEDED", "alert": "SUCCEEDED", "told": "SUCCEEDED",
        "free": "SUCCEEDED",
    }  # fmt: skip
    driver.assert_empty()


def test_a_retry_leaves_out_what_a_branch_left_out():
    driver = Driver()
    driver.define(
        "flow",
        {"kind": "branch", "id": "b", "cases": [{"when": "true", "to": ["yes"]}], "default": ["no"]},
        task("work"),
        task("yes", needs=["b", "work"], trigger="all_done"),
        task("no", needs=["b", "work"], trigger="all_done"),
    )
    driver.submit("flow", "r")
    driver.fail("r", "work")
    driver.finish_all()
    resolve(driver)
    driver.finish_all()

    assert driver.phases("r") == {"b": "SUCCEEDED", "work": "SUCCEEDED", "yes": "SUCCEEDED", "no": "NOT_TAKEN"}
    assert len(driver.started) == 4
    driver.assert_empty()


@pytest.mark.parametrize("decision", ["accept", "skip"])
def test_nothing_is_decided_about_a_node_whose_branch_may_lead_elsewhere_now(decision):
    driver = Driver()
    cases = [{"when": 'outcome.a == "failed"', "to": ["b"]}]
    driver.define(
        "flow",
        task("a"),
        {"kind": "branch", "id": "by", "needs": ["a"], "trigger": "all_done", "cases": cases, "default": ["c"]},
        task("b", needs=["by"]),
        task("c", needs=["by"]),
    )
    run = driver.submit("flow")
    driver.fail(run, "a")
    driver.fail(run, "b")
    record = driver.records.pop(run)

    assert driver.refusal(inp.Resolve(BY, T, run, "again", {"a": "retry", "b": decision}, {}, record)) == "bad_decision"
    driver.expect(inp.Resolve(BY, T, run, "again", {"a": "retry", "b": "retry"}, {}, record))
    driver.quiet()
    driver.finish_all()
    assert driver.phases(run) == {"a": "SUCCEEDED", "by": "SUCCEEDED", "b": "NOT_TAKEN", "c": "SUCCEEDED"}
