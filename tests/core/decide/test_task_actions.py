"""Actions of people on one task: it is cancelled, or tried again at once, and nothing else of its run is touched."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp

MAP = {"kind": "map", "id": "m", "over": "inputs.items", "tolerate": 1, "body": {"kind": "task", "handler": "h"}}


def flow(*nodes, inputs=None, **fields):
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", *nodes, **fields, **({"inputs": {"items": {}}} if inputs else {}))
    return driver, driver.submit("flow", inputs=inputs)


def number(driver, run, node):
    live = driver.run(run)
    return live.number + live.plan.index[node]


def cancel(driver, task_number, reason="enough"):
    driver.expect(inp.CancelTask(BY, T, task_number, reason))
    driver.quiet()
    assert violations(driver.state) == []
    assert digest(restore(*capture(driver.state))) == digest(driver.state)


def test_a_task_is_cancelled_and_its_run_goes_on():
    driver, run = flow(task("a"), task("b"), task("c", needs=["a"]), task("d", needs=["a"], trigger="all_done"))
    cancel(driver, number(driver, run, "a"))
    assert driver.phases(run) == {"a": "FAILED", "b": "RUNNING", "c": "BLOCKED", "d": "RUNNING"}
    assert len(driver.stopped) == 1 and not driver.alerts

    driver.finish_all()
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


@pytest.mark.parametrize("retry", [1, 3])
def test_a_task_that_is_ready_or_waits_for_a_retry_is_cancelled(retry):
    driver, run = flow(task("a", retry={"attempts": retry, "delay": "1m"}), task("b"))
    if retry > 1:
        driver.fail(run, "a")
    cancel(driver, number(driver, run, "a"))
    assert driver.phase(run, "a") == "FAILED"
    driver.advance(120_000)
    assert driver.phases(run) == {"a": "FAILED", "b": "RUNNING"}


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "event", "id": "x", "event": "e"},
        {"kind": "approval", "id": "x", "timeout": "1h"},
        {"kind": "wait", "id": "x", "duration": "1h"},
    ],
)
def test_a_node_that_waits_is_cancelled(node):
    driver, run = flow(node, task("z", needs=["x"]))
    cancel(driver, number(driver, run, "x"))
    assert driver.phases(run) == {"x": "FAILED", "z": "BLOCKED"} and driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_one_item_of_a_map_is_cancelled_and_the_whole_map_with_its_items():
    driver, run = flow(MAP, task("z", needs=["m"]), inputs={"items": [1, 2, 3]})
    cancel(driver, driver.attempt_of(run, "m", 1).task)
    assert driver.phase(run, "m") == "WAITING" and len(driver.stopped) == 1

    cancel(driver, number(driver, run, "m"))
    assert driver.phases(run) == {"m": "FAILED", "z": "BLOCKED"} and len(driver.stopped) == 3
    driver.assert_empty()


@pytest.mark.parametrize(
    "node",
    [
        {"kind": "workflow", "id": "x", "workflow": "leaf", "retry": 5},
        {"kind": "repeat", "id": "x", "until": "false", "max_iterations": 9, "timeout": "1h",
         "body": {"kind": "workflow", "workflow": "leaf"}},
        {"kind": "repeat", "id": "x", "until": "false", "max_iterations": 9, "body": {"kind": "task", "handler": "h"}},
    ],
)  # fmt: skip
def test_a_node_with_children_is_cancelled_with_them(node):
    driver, run = flow(node)
    cancel(driver, number(driver, run, "x"))
    assert driver.state_of(run) == "FAILED" and len(driver.stopped) == 1
    driver.assert_empty()


def test_a_cancelled_task_is_tried_again_by_a_retry_of_the_run():
    driver, run = flow(task("a"))
    cancel(driver, number(driver, run, "a"))
    driver.expect(inp.Resolve(BY, T, run, "again", {}, {}, driver.records.pop(run)))
    driver.quiet()
    driver.finish(run, "a")
    assert driver.state_of(run) == "COMPLETED"


def test_a_task_is_tried_again_without_waiting():
    driver, run = flow(task("a", retry={"attempts": 2, "delay": "1h"}))
    driver.fail(run, "a")
    driver.expect(inp.RetryTask(BY, T, number(driver, run, "a"), "it is mended"))
    driver.quiet()
    driver.finish(run, "a")
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_one_failed_node_is_tried_again_and_the_others_stay():
    driver, run = flow(task("a"), task("b"), task("c", needs=["a"]), task("d", needs=["b"]))
    driver.fail(run, "a")
    driver.fail(run, "b")
    again = inp.Resolve(BY, T, run, "just a", {"a": "retry"}, {}, driver.records[run])
    assert driver.refusal(again) == "undecided"
    driver.expect(inp.Resolve(BY, T, run, "just a", {"a": "retry"}, {}, driver.records.pop(run), True))
    driver.quiet()
    assert driver.phases(run) == {"a": "RUNNING", "b": "FAILED", "c": "PENDING", "d": "BLOCKED"}

    driver.finish_all()
    assert driver.state_of(run) == "FAILED" and driver.phase(run, "c") == "SUCCEEDED"
    driver.expect(inp.Resolve(BY, T, run, "b too", {}, {}, driver.records.pop(run)))
    driver.quiet()
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_what_cannot_be_cancelled_or_tried_again_is_refused():
    driver, run = flow(task("a"), task("b", needs=["a"]))
    a, b = number(driver, run, "a"), number(driver, run, "b")
    assert driver.refusal(inp.CancelTask(BY, T, b)) == "unknown_task"
    assert driver.refusal(inp.RetryTask(BY, T, a)) == "illegal_move"
    driver.define("function", task("f", durable=True))
    function = driver.submit("function")
    assert driver.refusal(inp.CancelTask(BY, T, number(driver, function, "f"))) == "durable"
    driver.fail(run, "a")
    assert driver.refusal(inp.CancelTask(BY, T, a)) == "unknown_task"
