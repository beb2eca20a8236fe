"""Workflows inside workflows."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import Ref, unpack
from tickwork.core.decide.runs.functions import NESTING_MAX
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunSpawned, TaskFailed


def calls(workflow="leaf", name="c", **fields):
    return {"kind": "workflow", "id": name, "workflow": workflow, **fields}


def called(*more, leaf=None, **fields):
    driver = Driver()
    driver.define("leaf", *(leaf or [task("l")]), **fields)
    driver.define("flow", calls(), *more)
    run = driver.submit("flow")
    return driver, run, driver.id_of_child(run, "c")


def test_the_result_of_a_child_run_becomes_the_result_of_its_node():
    driver, run, child = called(task("after", needs=["c"], when="results.c.n == 7"))
    assert driver.state_of(run) == "WAITING"
    driver.finish(child, "l", {"n": 7})
    assert driver.is_running(run, "after")

    driver.finish_all()
    assert driver.state_of(run) == driver.state_of(child) == "COMPLETED"
    assert driver.result(run, "c") == {"n": 7}
    driver.assert_empty()


@pytest.mark.parametrize(
    ("output", "value", "answer"),
    [
        (None, {"b": {"c": 5}}, {"b": {"c": 5}}),
        ("nodes.l", {"b": {"c": 5}}, {"b": {"c": 5}}),
        ("nodes.l.b", {"b": {"c": 5}}, {"c": 5}),
        ("nodes.l.b.c", {"b": {"c": 5}}, 5),
        ("nodes.l.b.1", {"b": [3, 4]}, 4),
        ("none", {"b": 5}, None),
        ("inputs.x", None, 9),
        ("inputs", None, {"x": 9}),
    ],
)
def test_a_run_answers_with_the_part_of_a_value_that_its_output_names(output, value, answer):
    fields = {} if output is None else {"output": output}
    driver, run, child = called(inputs={"x": {"type": "integer", "default": 9}}, **fields)
    driver.finish(child, "l", value)

    assert driver.state_of(run) == "COMPLETED"
    assert driver.result(run, "c") == answer
    driver.assert_empty()


@pytest.mark.parametrize(("output", "value"), [("nodes.l.b.c", {"b": 5}), ("nodes.l.b", None)])
def test_a_run_whose_output_names_a_part_that_is_not_there_fails(output, value):
    driver, run, child = called(output=output)
    driver.finish(child, "l", value)

    assert (driver.state_of(child), driver.state_of(run)) == ("FAILED", "FAILED")
    driver.assert_empty()


def test_the_part_of_a_value_that_is_not_inline_is_taken_out_of_it():
    driver, run, child = called(output="nodes.l.b.c")
    driver.payloads["digest"] = {"b": {"c": 5}, "text": "x" * 5_000}
    attempt = driver.attempt_of(child, "l")
    driver.running.clear()
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, Ref("digest", 5_000)))
    driver.quiet()

    assert driver.result(run, "c") == 5
    driver.assert_empty()


def test_a_failed_child_run_fails_its_node():
    driver, run, child = called(task("after", needs=["c"]))
    driver.fail(child, "l")

    assert driver.state_of(run) == driver.state_of(child) == "FAILED"
    assert driver.phases(run) == {"c": "FAILED", "after": "BLOCKED"}
    driver.assert_empty()


def test_a_child_run_that_is_cancelled_did_not_complete():
    driver, run, child = called()
    driver.expect(inp.Cancel(BY, T, child))
    driver.quiet()

    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_a_declared_retry_makes_a_new_child_run():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", calls(retry={"attempts": 2, "delay": "10s"}))
    run = driver.submit("flow")
    first = driver.id_of_child(run, "c")
    driver.fail(first, "l")
    assert (driver.state_of(run), driver.phase(run, "c")) == ("ACTIVE", "BACKOFF")

    driver.advance(15_000)
    second = driver.id_of_child(run, "c")
    assert second != first
    assert driver.state_of(run) == "WAITING"
    driver.finish(second, "l")
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_retry_that_is_due_while_its_run_is_paused_begins_when_it_is_resumed():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", calls(retry={"attempts": 2, "delay": "10s"}))
    run = driver.submit("flow")
    driver.fail(driver.id_of_child(run, "c"), "l")
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.advance(60_000)
    assert len(driver.events(RunSpawned)) == 1

    driver.expect(inp.Resume(BY, "run", T, run))
    driver.quiet()
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_the_end_of_a_run_ends_its_children_and_theirs(how):
    driver = Driver()
    driver.define("leaf", task("l"), {"kind": "wait", "id": "w", "duration": "1h"})
    driver.define("middle", calls("leaf"))
    driver.define("flow", calls("middle"), timeout="10m")
    run = driver.submit("flow")
    middle = driver.id_of_child(run, "c")
    leaf = driver.id_of_child(middle, "c")
    if how == "cancel":
        driver.expect(inp.Cancel(BY, T, run))
    else:
        driver.advance(600_000)

    assert driver.state_of(run) == ("CANCELLED" if how == "cancel" else "FAILED")
    assert driver.state_of(middle) == driver.state_of(leaf) == "CANCELLED"
    assert len(driver.stopped) == 1
    driver.assert_empty()


def test_a_child_that_its_parent_ends_in_a_full_tick_is_not_put_in_line_again():
    driver = Driver(max_changes_per_tick=5)
    driver.define("leaf", task("l"), task("m", needs=["l"]))
    driver.define("flow", task("a"), calls(), exits=[{"when": "'a' in results"}])
    run = driver.submit("flow")
    child = driver.id_of_child(run, "c")
    reports = [driver.attempt_of(child, "l"), driver.attempt_of(run, "a")]
    driver.running.clear()
    # Two results, the list of visits and the ends of both runs: the visit of the child no longer fits.
    driver.send(*(inp.Succeeded(one.task, one.attempt, b"\x01") for one in reports))

    assert (driver.state_of(run), driver.state_of(child)) == ("COMPLETED", "CANCELLED")
    driver.quiet()
    driver.assert_empty()


def test_workflows_that_call_themselves_end_at_the_limit():
    driver = Driver()
    driver.define("flow", calls("flow"))
    run = driver.submit("flow")

    assert driver.state_of(run) == "FAILED"
    assert len(driver.events(RunSpawned)) == NESTING_MAX - 1
    assert driver.events(TaskFailed)[0].code == "nested_too_deep"
    driver.assert_empty()


@pytest.mark.parametrize(
    ("inputs", "args", "code"),
    [
        ({}, {}, ""),
        ({"n": {"type": "integer"}}, {"n": {"value": 5}}, ""),
        ({"n": {"type": "integer"}}, {}, "missing_input"),
        ({"n": {"type": "integer"}}, {"n": {"value": "five"}}, "wrong_type"),
        ({}, {"n": {"value": 5}}, "unknown_input"),
    ],
)
def test_the_inputs_of_a_child_run_are_checked_like_anybody_elses(inputs, args, code):
    driver = Driver()
    driver.define("leaf", task("l"), inputs=inputs)
    driver.define("flow", calls(args=args))
    run = driver.submit("flow")

    assert [event.code for event in driver.events(TaskFailed)] == ([code] if code else [])
    assert driver.state_of(run) == ("FAILED" if code else "WAITING")


def test_a_child_run_is_given_values_of_its_parent():
    driver = Driver()
    driver.define("leaf", task("l"), inputs={"n": {"type": "integer"}, "x": {"type": "any"}})
    args = {"n": {"from": "nodes.a.list.1"}, "x": {"from": "inputs.x"}}
    driver.define("flow", task("a"), calls(needs=["a"], args=args), inputs={"x": {"type": "any", "default": "y"}})
    run = driver.submit("flow")
    driver.finish(run, "a", {"list": [3, 4]})

    assert unpack(driver.events(RunSpawned)[0].inputs, what="") == {"n": 4, "x": "y"}


def test_values_that_are_too_large_together_are_named_by_reference():
    driver = Driver()
    driver.define("leaf", task("l"), inputs={name: {"type": "string"} for name in "xy"})
    driver.define("flow", task("a"), calls(needs=["a"], args={"x": {"from": "nodes.a"}, "y": {"from": "nodes.a"}}))
    run = driver.submit("flow")
    driver.finish(run, "a", "x" * 800)

    assert isinstance(driver.events(RunSpawned)[0].inputs, Ref)


def test_inputs_that_are_not_inline_are_checked_before_the_child_run_does_anything():
    driver = Driver()
    driver.define("leaf", task("l"), inputs={"x": {"type": "string"}})
    driver.define("flow", task("a"), calls(needs=["a"], args={"x": {"from": "nodes.a"}}))
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.running.clear()
    node = driver.number_of(run) + 1
    driver.payloads[f"{node}/0"] = {"x": [0] * 5_000}
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, Ref("digest", 5_000)))
    driver.quiet()

    assert not driver.running, "a task of the child run started"
    assert driver.state_of(run) == "FAILED"
    assert driver.state_of(driver.id_of_child(run, "c")) == "FAILED"
    driver.assert_empty()


def test_a_workflow_that_is_not_there_fails_the_node():
    driver = Driver()
    driver.define("flow", calls("nothing"))
    run = driver.submit("flow")

    assert driver.state_of(run) == "FAILED"
    assert driver.events(TaskFailed)[0].code == "unknown_workflow"
    driver.assert_empty()


def test_a_run_with_the_id_of_a_coming_child_does_no_harm():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", task("a"), calls(needs=["a"]))
    driver.finish(driver.submit("leaf"), "l")  # its lane has a number of its own from here on
    run = driver.submit("flow")
    squatter = driver.submit("leaf", f"{run}.c.0.{driver.state.next_number + 1}")
    driver.finish(run, "a")

    assert driver.events(TaskFailed)[0].code == "already_submitted"
    assert driver.is_running(squatter, "l")
    driver.finish_all()
    driver.assert_empty()


def test_a_run_keeps_the_version_it_began_with_and_a_child_begins_with_the_latest():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", task("a"), calls(needs=["a"]))
    run = driver.submit("flow")
    driver.define("leaf", task("newer"))
    driver.define("flow", task("other"))
    driver.finish(run, "a")
    child = driver.id_of_child(run, "c")

    assert list(driver.phases(run)) == ["a", "c"]
    assert list(driver.phases(child)) == ["newer"]


def paused_family():
    """Three generations: p calls m, m calls l, and l runs a task that will be tried again."""
    driver = Driver()
    driver.define("l", task("t", retry={"attempts": 5, "delay": "1s"}))
    driver.define("m", {"kind": "workflow", "id": "c", "workflow": "l"})
    driver.define("p", {"kind": "workflow", "id": "c", "workflow": "m"})
    parent = driver.submit("p")
    middle = driver.id_of_child(parent, "c")
    leaf = driver.id_of_child(middle, "c")
    driver.fail(leaf, "t")
    return driver, parent, middle, leaf


def states(driver, *runs):
    return [driver.state_of(run) for run in runs]


@pytest.mark.proves("S001-16")
def test_a_pause_holds_the_runs_below_and_ends_with_the_parents():
    driver, *family = paused_family()
    driver.expect(inp.Pause(BY, "run", T, family[0]))
    driver.advance(10_000)

    assert states(driver, *family) == ["PAUSED"] * 3
    assert not driver.is_running(family[2], "t")

    driver.expect(inp.Resume(BY, "run", T, family[0]))
    driver.quiet()
    assert driver.is_running(family[2], "t")
    driver.finish_all()
    assert states(driver, *family) == ["COMPLETED"] * 3
    driver.assert_empty()


def test_whoever_was_paused_for_himself_stays_so_with_everything_below():
    driver, parent, middle, leaf = paused_family()
    driver.expect(inp.Pause(BY, "run", T, middle))
    driver.expect(inp.Pause(BY, "run", T, parent))
    driver.expect(inp.Resume(BY, "run", T, parent))
    driver.advance(10_000)

    assert states(driver, parent, middle, leaf) == ["WAITING", "PAUSED", "PAUSED"]
    driver.expect(inp.Resume(BY, "run", T, middle))
    driver.quiet()
    driver.finish_all()
    assert states(driver, parent, middle, leaf) == ["COMPLETED"] * 3


def test_a_pause_that_ends_by_itself_ends_for_all_of_them():
    driver, *family = paused_family()
    driver.expect(inp.Pause(BY, "run", T, family[0], until_ms=driver.now_ms + 5_000))
    driver.advance(4_000)

    assert states(driver, *family) == ["PAUSED"] * 3
    driver.advance(2_000)
    assert driver.is_running(family[2], "t")


def abandoning(**fields):
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", calls(on_cancel="abandon"), task("clean", needs=["c"], trigger="all_done"), **fields)
    run = driver.submit("flow")
    return driver, run, driver.id_of_child(run, "c")


@pytest.mark.parametrize("how", ["cancel", "time out"])
def test_a_child_run_that_is_abandoned_goes_on_when_its_parent_ends(how):
    driver, run, child = abandoning(timeout="5s")
    if how == "cancel":
        driver.expect(inp.Cancel(BY, T, run))
        assert driver.state_of(run) == "CANCELLED"
    else:
        driver.advance(5_000)
        driver.finish(run, "clean")
        assert driver.state_of(run) == "FAILED"
    restored = Machine(restore(*capture(driver.state)))
    assert digest(restored.state) == digest(driver.state)

    assert driver.state_of(child) == "ACTIVE"
    driver.finish(child, "l")
    assert driver.state_of(child) == "COMPLETED"
    driver.assert_empty()


def test_a_parent_that_is_tried_again_does_not_take_the_child_that_it_abandoned_for_its_own():
    driver, run, child = abandoning(timeout="5s")
    driver.advance(5_000)
    driver.finish(run, "clean")
    driver.expect(inp.Resolve(BY, T, run, "again", record=driver.records[run]))
    driver.quiet()
    again = driver.id_of_child(run, "c")
    assert again != child
    driver.fail(child, "l")
    assert driver.phase(run, "c") == "WAITING"

    driver.finish(again, "l", 7)
    assert driver.result(run, "c") == 7 if driver.run(run) is None else driver.phase(run, "c") == "SUCCEEDED"
    driver.finish_all()
    driver.assert_empty()


def test_an_abandoned_child_ends_with_its_own_cancel():
    driver, run, child = abandoning()
    driver.expect(inp.Cancel(BY, T, run), inp.Cancel(BY, T, child))

    assert driver.state_of(child) == "CANCELLED"
    driver.assert_empty()
