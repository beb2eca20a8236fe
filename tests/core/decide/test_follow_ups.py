"""Runs that begin when another run has ended, and what they learn of it."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import unpack
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import FollowUpStarted

REPORT = {"failure": {"type": "object"}}
ON_FAILURE = {"on_failure": {"workflow": "alert", "input": "failure"}}
ON_SUCCESS = {"on_success": {"workflow": "cheer"}}


def defined(*nodes, **fields):
    driver = Driver()
    driver.define("alert", task("tell", args={"failure": {"from": "inputs.failure"}}), inputs=REPORT)
    driver.define("cheer", task("clap"))
    driver.define("flow", *nodes, **{**ON_FAILURE, **ON_SUCCESS, **fields})
    return driver


def followers(driver):
    live = {run.id: run.inputs for run in driver.state.runs.values() if run.source.startswith("follow_up of ")}
    return live | {r.run_id: r.inputs for r in driver.records.values() if r.source.startswith("follow_up of ")}


def reports(driver):
    inputs = [unpack(value, what="inputs") for _, value in sorted(followers(driver).items())]
    return [one["failure"] for one in inputs if one is not None]


def test_a_failed_run_is_followed_by_a_run_that_learns_what_failed():
    driver = defined(task("a"), task("b"), task("c", needs=["a", "b"]))
    run = driver.submit("flow")
    driver.fail(run, "a", "TimeoutError")
    assert not followers(driver)  # b still runs
    driver.finish(run, "b")

    assert driver.state_of(run) == "FAILED"
    failed = [{"node": "a", "error": "TimeoutError", "message": "no good"}]
    assert reports(driver) == [
        {"run": run, "workflow": "flow", "cause": "failed", "reason": "failed: a", "nodes": failed}
    ]
    [name] = followers(driver)
    assert name.startswith(f"{run}.on_failure.")
    driver.finish_all()
    assert driver.state_of(name) == "COMPLETED"
    driver.assert_empty()


def test_a_completed_run_is_followed_by_the_run_for_success_alone():
    driver = defined(task("a"))
    run = driver.submit("flow")
    driver.finish(run, "a")

    assert driver.state_of(run) == "COMPLETED"
    assert [(event.cause, event.reason) for event in driver.events(FollowUpStarted)] == [("completed", "")]
    assert not reports(driver)
    driver.finish_all()
    driver.assert_empty()


def test_nothing_follows_a_run_that_was_cancelled():
    driver = defined(task("a"))
    driver.expect(inp.Cancel(BY, T, driver.submit("flow")))

    assert not driver.events(FollowUpStarted)


def test_a_run_that_took_too_long_is_followed_after_its_clean_up():
    driver = defined(task("a"), task("clean", needs=["a"], trigger="all_done"), timeout="5s")
    run = driver.submit("flow")
    driver.advance(5_000)
    assert driver.is_running(run, "clean") and not followers(driver)
    driver.finish(run, "clean")

    [report] = reports(driver)
    assert (report["cause"], report["reason"], report["nodes"]) == ("timed_out", "the run took too long", [])


def test_a_retry_that_fails_again_is_followed_again():
    driver = defined(task("a"), task("b", needs=["a"]))
    run = driver.submit("flow")
    driver.fail(run, "a", "First")
    driver.expect(inp.Resolve(BY, T, run, "fixed", record=driver.records[run]))
    driver.quiet()
    driver.finish(run, "a")
    driver.fail(run, "b", "Second")

    causes = [[node["error"] for node in report["nodes"]] for report in reports(driver)]
    assert sorted(causes) == [["First"], ["Second"]]


@pytest.mark.parametrize(
    ("nodes", "fields", "inputs", "error", "words"),
    [
        ([task("a", when="inputs.x > 1")], {}, {"x": "y"}, "condition_failed", "inputs.x"),
        ([task("a")], {"output": "nodes.a.b"}, None, None, "output:"),
    ],
)
def test_a_run_that_fails_without_an_attempt_is_followed_too(nodes, fields, inputs, error, words):
    driver = defined(*nodes, inputs={"x": {"type": "any", "required": False}}, **fields)
    run = driver.submit("flow", inputs=inputs)
    driver.finish_all()

    assert driver.state_of(run) == "FAILED"
    report = reports(driver)[0]
    if error is None:
        assert words in report["reason"] and report["nodes"] == []
    else:
        assert report["nodes"][0]["node"] == "a" and report["nodes"][0]["error"]


def test_the_first_child_that_fails_stands_for_its_map():
    body = {"kind": "task", "handler": "h"}
    driver = defined({"kind": "map", "id": "m", "over": "inputs.x", "body": body}, inputs={"x": {"type": "array"}})
    run = driver.submit("flow", inputs={"x": [1, 2]})
    driver.fail(run, "m", "Second", child=1)
    driver.fail(run, "m", "First", child=0)

    [report] = reports(driver)
    assert report["nodes"] == [{"node": "m", "error": "Second", "message": "no good"}]


def test_a_child_run_that_fails_is_named_in_the_report_of_its_parent():
    driver = defined({"kind": "workflow", "id": "c", "workflow": "leaf"})
    driver.define("leaf", task("l"))
    run = driver.submit("flow")
    child = driver.id_of_child(run, "c")
    driver.fail(child, "l")

    [report] = reports(driver)
    assert report["nodes"] == [{"node": "c", "error": "ChildFailed", "message": f"run {child} is FAILED: failed: l"}]


def test_nothing_follows_a_follow_up():
    driver = Driver()
    inputs = {"failure": {"type": "object", "required": False}}
    driver.define("flow", task("a"), inputs=inputs, on_failure={"workflow": "flow", "input": "failure"})
    run = driver.submit("flow")
    driver.fail(run, "a")
    [name] = followers(driver)
    driver.fail(name, "a")

    assert driver.state_of(name) == "FAILED" and len(followers(driver)) == 1
    driver.assert_empty()


def test_nothing_follows_a_child_run_of_a_follow_up():
    driver = Driver()
    inputs = {"failure": {"type": "object", "required": False}}
    driver.define("flow", task("a"), inputs=inputs, on_failure={"workflow": "alert", "input": "failure"})
    driver.define("alert", {"kind": "workflow", "id": "call", "workflow": "flow"}, inputs=inputs)
    run = driver.submit("flow")
    driver.fail(run, "a")
    [name] = followers(driver)
    driver.fail(driver.id_of_child(name, "call"), "a")

    assert driver.state_of(name) == "FAILED" and len(driver.records) == 3
    driver.assert_empty()


@pytest.mark.parametrize(
    ("follow_up", "words"),
    [
        ({"workflow": "nobody"}, "nobody cannot start: there is no workflow of this name"),
        ({"workflow": "alert", "input": "other"}, "alert cannot start: inputs.other: the workflow has no such input"),
        ({"workflow": "alert"}, "alert cannot start: inputs.failure: this input is required"),
    ],
)
def test_a_follow_up_that_cannot_start_is_an_alert(follow_up, words):
    driver = defined(task("a"), on_failure=follow_up)
    driver.fail(driver.submit("flow"), "a")

    assert not driver.events(FollowUpStarted)
    [alert] = [alert for alert in driver.alerts if alert.kind == "no_follow_up"]
    assert words in alert.detail


def test_a_report_stays_small_whatever_fails():
    driver = defined(*(task(f"n{number:03}") for number in range(200)))
    run = driver.submit("flow")
    for number in range(200):
        attempt = driver.attempt_of(run, f"n{number:03}")
        del driver.running[attempt.task]
        driver.send(inp.Failed(attempt.task, attempt.attempt, "E" * 500, "x" * 5_000))
    driver.quiet()

    [value] = followers(driver).values()
    assert len(value) < 6_000
    assert len(reports(driver)[0]["nodes"]) == 10


def test_errors_survive_a_restart_before_the_run_ends():
    driver = defined(task("a"), task("b"))
    run = driver.submit("flow")
    driver.fail(run, "a", "Early")
    restored = Machine(restore(*capture(driver.state)))
    assert digest(restored.state) == digest(driver.state)

    attempt = driver.attempt_of(run, "b")
    outcome = restored.apply(driver.tick + 1, [inp.Succeeded(attempt.task, attempt.attempt)])
    outcome = restored.apply(driver.tick + 2, []) if not outcome.closed else outcome
    [follower] = [one for one in restored.state.runs.values() if one.source.startswith("follow_up")]
    assert unpack(follower.inputs, what="")["failure"]["nodes"][0]["error"] == "Early"


def test_a_follow_up_keeps_the_priority_of_the_run_before_it():
    driver = defined(task("a"))
    run = driver.submit("flow", priority=8)
    driver.fail(run, "a")

    assert [one.priority for one in driver.state.runs.values()] == [8]
