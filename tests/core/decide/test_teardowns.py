"""Teardowns: they belong to a set-up, and run whenever it succeeded, also where a run is cancelled or times out."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunEnding

MINUTE_MS = 60_000
SET_UP, WORK = task("create"), task("work", needs=["create"])


def remove(*needs, **more):
    return task("remove", needs=["create", *(needs or ("work",))], teardown={"of": "create", **more})


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("flow", *nodes, **fields)
    return driver, driver.submit("flow")


def working(*nodes, **fields):
    """Up to where the work runs."""
    driver, run = flow(*(nodes or (SET_UP, WORK, remove())), **fields)
    driver.finish(run, "create", {"id": 7})
    return driver, run


def cancel(driver, run):
    driver.expect(inp.Cancel(BY, T, run, "changed my mind"))
    driver.quiet()


def nested():
    return [
        SET_UP,
        task("mount", needs=["create"]),
        task("work", needs=["mount"]),
        task("unmount", needs=["mount", "work"], teardown={"of": "mount"}),
        remove("unmount"),
    ]


# ---- when it runs


@pytest.mark.parametrize("how", ["finish", "fail"])
def test_a_teardown_runs_after_work_that_succeeded_and_after_work_that_failed(how):
    driver, run = working()
    getattr(driver, how)(run, "work")
    assert driver.phase(run, "remove") == "RUNNING"

    driver.finish(run, "remove")
    assert driver.state_of(run) == ("COMPLETED" if how == "finish" else "FAILED")
    driver.assert_empty()


def test_a_teardown_does_not_run_where_its_set_up_failed():
    driver, run = flow(SET_UP, WORK, remove())
    driver.fail(run, "create")

    assert driver.phases(run) == {"create": "FAILED", "work": "BLOCKED", "remove": "NOT_TAKEN"}
    driver.assert_empty()


def test_a_teardown_does_not_run_where_its_set_up_did_not():
    driver, run = flow(task("create", when="false"), WORK, remove())

    assert set(driver.phases(run).values()) == {"NOT_TAKEN"}
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_teardown_waits_for_all_work_and_nested_ones_run_innermost_first():
    driver, run = working(*nested())
    driver.finish(run, "mount")
    driver.fail(run, "work")
    assert (driver.phase(run, "unmount"), driver.phase(run, "remove")) == ("RUNNING", "PENDING")

    driver.finish(run, "unmount")
    driver.finish(run, "remove")
    assert driver.state_of(run) == "FAILED"


# ---- its own failure


@pytest.mark.parametrize(("fail", "state"), [(False, "COMPLETED"), (True, "FAILED")])
def test_a_teardown_that_fails_is_a_warning_unless_it_says_otherwise(fail, state):
    driver, run = working(SET_UP, WORK, remove(fail=fail), task("report", needs=["remove"]))
    driver.finish(run, "work")
    driver.fail(run, "remove")
    if not fail:
        driver.finish(run, "report")

    assert driver.phases(run)["remove"] == "FAILED"
    assert driver.phases(run)["report"] == ("BLOCKED" if fail else "SUCCEEDED")
    assert driver.state_of(run) == state
    assert driver.alerts[0].kind == "dead_letter"
    driver.assert_empty()


# ---- cancelled


@pytest.mark.parametrize("paused", [False, True])
def test_a_cancelled_run_tears_down_what_it_set_up(paused):
    driver, run = working(SET_UP, WORK, remove(), task("report", needs=["work"]), task("always", needs=["work"], trigger="all_done"))  # fmt: skip  # noqa: E501
    if paused:
        driver.expect(inp.Pause(BY, "run", T, run))
    cancel(driver, run)
    assert driver.phases(run) == {
        "create": "SUCCEEDED", "work": "CANCELLED", "remove": "RUNNING", "report": "CANCELLED", "always": "CANCELLED",
    }  # fmt: skip
    assert len(driver.stopped) == 1 and driver.state_of(run) == "ACTIVE"
    assert_recovers(driver)

    driver.finish(run, "remove")
    assert driver.state_of(run) == "CANCELLED" and driver.moves(run)[-1] == "CANCEL"
    assert driver.phase(run, "remove") == "SUCCEEDED"
    driver.assert_empty()


def test_a_run_that_has_set_nothing_up_is_cancelled_at_once():
    driver, run = flow(SET_UP, WORK, remove())
    cancel(driver, run)
    assert driver.state_of(run) == "CANCELLED" and not driver.events(RunEnding)

    driver, run = working(SET_UP, WORK, remove(), task("last", needs=["remove"]))
    driver.finish(run, "work")
    driver.finish(run, "remove")
    cancel(driver, run)
    assert driver.state_of(run) == "CANCELLED" and not driver.events(RunEnding)
    driver.assert_empty()


def test_nested_teardowns_of_a_cancelled_run_run_innermost_first():
    driver, run = working(*nested())
    driver.finish(run, "mount")
    cancel(driver, run)
    assert (driver.phase(run, "unmount"), driver.phase(run, "remove")) == ("RUNNING", "PENDING")
    driver.finish(run, "unmount")
    driver.finish(run, "remove")
    assert driver.state_of(run) == "CANCELLED"

    driver, run = working(*nested())
    cancel(driver, run)  # while it mounts
    assert driver.phases(run)["mount"] == "CANCELLED"
    assert (driver.phase(run, "unmount"), driver.phase(run, "remove")) == ("NOT_TAKEN", "RUNNING")
    driver.finish(run, "remove")
    driver.assert_empty()


def test_a_second_cancel_ends_a_run_at_once():
    driver, run = working()
    cancel(driver, run)
    cancel(driver, run)
    assert driver.state_of(run) == "CANCELLED" and driver.phase(run, "remove") == "CANCELLED"
    assert len(driver.stopped) == 2
    driver.assert_empty()


def test_the_clean_up_of_a_cancelled_run_has_a_limited_time():
    driver, run = working()
    cancel(driver, run)
    driver.advance(10 * MINUTE_MS)
    assert driver.state_of(run) == "CANCELLED" and driver.phase(run, "remove") == "CANCELLED"
    driver.assert_empty()


@pytest.mark.parametrize(("fail", "state"), [(False, "CANCELLED"), (True, "FAILED")])
def test_a_teardown_that_fails_after_a_cancel_leaves_the_run_failed_only_if_it_says_so(fail, state):
    driver, run = working(SET_UP, WORK, remove(fail=fail))
    cancel(driver, run)
    driver.fail(run, "remove")
    assert driver.state_of(run) == state
    driver.assert_empty()


def test_what_failed_before_a_cancel_does_not_make_the_run_failed():
    driver, run = working(SET_UP, WORK, task("other", needs=["create"]), remove("work", "other"))
    driver.fail(run, "other")
    cancel(driver, run)
    driver.finish(run, "remove")
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


def test_a_retry_of_a_teardown_goes_on_after_the_cancel():
    driver, run = working(SET_UP, WORK, remove() | {"retry": {"attempts": 2, "delay": "1s"}})
    cancel(driver, run)
    driver.fail(run, "remove")
    driver.advance(2_000)
    driver.finish(run, "remove")
    assert driver.state_of(run) == "CANCELLED" and driver.phase(run, "remove") == "SUCCEEDED"
    driver.assert_empty()


# ---- other ends before its time


def test_a_run_that_takes_too_long_tears_down():
    driver, run = working(timeout="1h")
    driver.advance(60 * MINUTE_MS)
    assert driver.phases(run) == {"create": "SUCCEEDED", "work": "CANCELLED", "remove": "RUNNING"}

    driver.finish(run, "remove")
    assert driver.moves(run)[-1] == "TIME_OUT"
    driver.assert_empty()


@pytest.mark.parametrize(("outcome", "state"), [("completed", "COMPLETED"), ("cancelled", "CANCELLED")])
def test_an_exit_tears_down_first(outcome, state):
    driver, run = working(
        SET_UP, WORK, task("more", needs=["work"]), remove("more"),
        exits=[{"when": "outcome.work == 'succeeded'", "outcome": outcome, "reason": "enough"}],
    )  # fmt: skip
    driver.finish(run, "work")
    assert driver.phases(run)["more"] == "CANCELLED" and driver.phase(run, "remove") == "RUNNING"

    driver.finish(run, "remove")
    assert driver.state_of(run) == state
    driver.assert_empty()


def test_a_race_that_is_lost_leaves_the_teardown_to_run():
    nodes = [SET_UP, WORK, remove(), task("fast"), {"kind": "first", "id": "either", "needs": ["work", "fast"], "of": ["work", "fast"]}]  # fmt: skip  # noqa: E501
    driver, run = working(*nodes, output="nodes.either")
    driver.finish(run, "fast")
    assert driver.phases(run)["work"] == "CANCELLED" and driver.phase(run, "remove") == "RUNNING"
    driver.finish(run, "remove")
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


# ---- child runs


def parent(*nodes, **fields):
    driver = Driver()
    driver.define("leaf", SET_UP, WORK, remove())
    driver.define("flow", *nodes, **fields)
    return driver, driver.submit("flow", inputs={"items": [1, 2]} if "inputs" in fields else None)


CALL = {"kind": "workflow", "id": "call", "workflow": "leaf"}


def test_a_cancelled_run_waits_for_the_teardowns_of_its_child_runs():
    call = CALL | {"needs": ["create"], "retry": {"attempts": 3}}
    driver, run = parent(SET_UP, call, remove("call"))
    driver.finish(run, "create")
    child = driver.id_of_child(run, "call")
    driver.finish(child, "create")
    cancel(driver, run)
    assert driver.phases(child) == {"create": "SUCCEEDED", "work": "CANCELLED", "remove": "RUNNING"}
    assert driver.phases(run) == {"create": "SUCCEEDED", "call": "WAITING", "remove": "PENDING"}
    assert_recovers(driver)

    driver.finish(child, "remove")
    assert (driver.state_of(child), driver.phases(run)["call"]) == ("CANCELLED", "CANCELLED")
    driver.finish(run, "remove")
    assert driver.state_of(run) == "CANCELLED" and driver.id_of_child(run, "call") == child
    driver.assert_empty()


@pytest.mark.parametrize("end", ["cancel", "time"])
def test_a_run_with_nothing_to_tear_down_waits_for_its_child_runs_too(end):
    body = {"kind": "workflow", "workflow": "leaf"}
    driver, run = parent(
        {"kind": "map", "id": "each", "over": "inputs.items", "body": body}, inputs={"items": {}}, timeout="1h"
    )
    children = [driver.id_of_child(run, "each", number) for number in (0, 1)]
    driver.finish(children[0], "create")
    if end == "cancel":
        cancel(driver, run)
    else:
        driver.advance(60 * MINUTE_MS)
    assert [driver.state_of(child) for child in children] == ["ACTIVE", "CANCELLED"]
    assert driver.state_of(run) in ("ACTIVE", "WAITING")

    driver.finish(children[0], "remove")
    assert driver.state_of(run) == ("CANCELLED" if end == "cancel" else "FAILED")
    driver.assert_empty()


def test_a_second_cancel_ends_the_child_runs_as_well():
    driver, run = parent(CALL)
    child = driver.id_of_child(run, "call")
    driver.finish(child, "create")
    cancel(driver, run)
    cancel(driver, run)
    assert (driver.state_of(child), driver.state_of(run)) == ("CANCELLED", "CANCELLED")
    driver.assert_empty()


def test_a_child_run_whose_parent_ends_without_waiting_tears_down_by_itself():
    driver, run = parent(
        CALL, task("fast"), {"kind": "first", "id": "either", "needs": ["call", "fast"], "of": ["call", "fast"]}
    )
    child = driver.id_of_child(run, "call")
    driver.finish(child, "create")
    driver.finish(run, "fast")
    assert (driver.state_of(run), driver.state_of(child)) == ("COMPLETED", "ACTIVE")
    assert_recovers(driver)

    driver.finish(child, "remove")
    assert driver.state_of(child) == "CANCELLED"
    driver.assert_empty()


# ---- tried again


def resolve(driver, run, **decisions):
    record = driver.records.pop(run)
    driver.expect(inp.Resolve(BY, T, run, "again", decisions, {}, record))
    driver.quiet()


def test_a_retry_sets_up_again_and_tears_down_again():
    driver, run = working(*nested(), task("other", needs=["create"]))
    driver.finish(run, "mount")
    driver.finish(run, "other")
    driver.fail(run, "work")
    driver.finish_all()
    assert driver.state_of(run) == "FAILED"

    resolve(driver, run)
    assert driver.phases(run) == {
        "create": "RUNNING", "mount": "PENDING", "work": "PENDING", "unmount": "PENDING", "remove": "PENDING",
        "other": "PENDING",
    }  # fmt: skip
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_retry_of_something_else_leaves_set_up_and_teardown_alone():
    driver, run = working(SET_UP, WORK, remove(), task("other"))
    driver.fail(run, "other")
    driver.finish(run, "work")
    driver.fail(run, "remove")
    resolve(driver, run, other="retry")
    assert driver.phases(run) == {"create": "SUCCEEDED", "work": "SUCCEEDED", "remove": "FAILED", "other": "RUNNING"}

    driver.finish(run, "other")
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_repeated_run_sets_up_again_what_was_torn_down():
    driver, run = working(SET_UP, WORK, remove(), task("other"), task("more", needs=["other"]))
    driver.finish(run, "work")
    driver.finish_all()
    driver.finish_all()
    record = driver.records[run]
    for from_node, again in (("work", {"create", "work", "remove"}), ("more", {"more"}), ("remove", {"remove"})):
        driver.expect(inp.Rerun(BY, T, f"again-{from_node}", record, from_node))
        driver.quiet()
        phases = driver.phases(f"again-{from_node}")
        assert {node for node, phase in phases.items() if phase != "SUCCEEDED"} == again
    driver.finish_all()
    driver.finish_all()
    driver.finish_all()
    driver.assert_empty()


def assert_recovers(driver):
    """The state that is stored is the state that lives, and the journal gives it again."""
    assert violations(driver.state) == []
    assert digest(restore(*capture(driver.state))) == digest(driver.state)
    folded = Machine(settings=driver.settings)
    for tick, asked, events in driver.rows:
        folded.fold(tick, asked, events)
    assert digest(folded.state) == digest(driver.state)
