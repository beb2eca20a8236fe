"""What one submission says instead of its workflow: time limit, queue and retries."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.definition.model import Retry
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.inputs import RunTerms

TWICE = RunTerms(retry=Retry(attempts=2, delay_ms=1_000))


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("flow", *nodes, **fields)
    return driver


def recovers(driver):
    assert digest(restore(*capture(driver.state))) == digest(driver.state)


def test_a_submission_has_a_time_limit_of_its_own():
    driver = flow(task("a"), timeout="1h")
    short = driver.submit("flow", own=RunTerms(timeout_ms=60_000))
    long = driver.submit("flow", own=RunTerms(timeout_ms=7_200_000))
    recovers(driver)
    driver.advance(60_000)
    assert (driver.state_of(short), driver.state_of(long)) == ("FAILED", "ACTIVE")
    driver.advance(3_600_000)
    assert driver.state_of(long) == "ACTIVE"
    driver.advance(3_600_000)
    assert driver.state_of(long) == "FAILED"
    driver.assert_empty()


def test_a_resolved_run_has_its_own_time_limit_again():
    driver = flow(task("a"))
    run = driver.submit("flow", own=RunTerms(timeout_ms=60_000))
    driver.fail(run, "a")
    driver.expect(inp.Resolve(BY, T, run, "again", {}, {}, driver.records.pop(run)))
    driver.advance(60_000)
    assert driver.state_of(run) == "FAILED" and driver.moves(run)[-1] == "TIME_OUT"


def test_tasks_without_retries_take_those_of_the_submission():
    driver = flow(task("a"), task("b", retry={"attempts": 1}))
    run = driver.submit("flow", own=TWICE)
    driver.fail(run, "a")
    driver.fail(run, "b")
    assert driver.phases(run) == {"a": "BACKOFF", "b": "FAILED"}

    driver.advance(2_000)
    driver.fail(run, "a")
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_items_of_a_map_and_child_workflows_take_them_too():
    driver = flow({"kind": "map", "id": "m", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}},
                  {"kind": "workflow", "id": "c", "workflow": "leaf"}, inputs={"items": {}})  # fmt: skip
    driver.define("leaf", task("l"))
    run = driver.submit("flow", inputs={"items": [1]}, own=TWICE)
    driver.fail(run, "m", child=0)
    child = driver.id_of_child(run, "c")
    driver.fail(child, "l")
    assert driver.phase(run, "c") == "BACKOFF", "the run is tried again, whose own tasks have no retries"
    driver.advance(2_000)
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_nodes_that_name_no_queue_go_to_that_of_the_submission():
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "cpu"), inp.Offer("w2", 5, ("gpu",)), inp.Offer("w3", 5, ("cpu",)))
    driver.define("flow", task("a"), task("b", queue="cpu"))

    run = driver.submit("flow", queue="gpu")
    workers = {node: driver.state.tasks[driver.attempt_of(run, node).task].worker.id for node in "ab"}
    assert workers == {"a": "w2", "b": "w3"}
    recovers(driver)
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_repeated_run_keeps_them():
    driver = flow(task("a"))
    driver.expect(inp.Offer("w2", 5, ("gpu",)))
    run = driver.submit("flow", queue="gpu", own=TWICE)
    driver.finish(run, "a")
    driver.expect(inp.Rerun(BY, T, "again", driver.records[run]))
    driver.quiet()
    assert driver.state.tasks[driver.attempt_of("again", "a").task].worker.id == "w2"
    driver.fail("again", "a")
    assert driver.phase("again", "a") == "BACKOFF"


@pytest.mark.parametrize(
    ("terms", "code"),
    [
        ({"queue": "nobody"}, "unknown_queue"),
        ({"own": RunTerms(timeout_ms=0)}, "out_of_range"),
        ({"own": RunTerms(retry=Retry(attempts=0))}, "out_of_range"),
        ({"own": RunTerms(retry=Retry(delay_ms=-1))}, "out_of_range"),
    ],
)
def test_what_a_workflow_could_not_say_is_refused(terms, code):
    driver = flow(task("a"))
    assert driver.refusal(inp.Submit(BY, T, "r", "flow", None, inp.SubmitOptions(**terms))) == code
