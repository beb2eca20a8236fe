"""Nodes that read what lies further above them than their parents."""

import pytest

from driver import Driver, task

BRANCH = {"kind": "branch", "id": "x", "cases": [{"when": "true", "to": ["l"]}], "default": ["r"]}
LEFT_OUT = [BRANCH, task("slow"), task("l", needs=["x"]), task("r", needs=["x", "slow"])]


@pytest.mark.parametrize(
    "reads",
    [
        {"when": "results.slow == 7"},
        {"when": 'outcome.slow == "succeeded"'},
        {"args": {"number": {"from": "nodes.slow"}}},
    ],
)
def test_a_node_waits_for_what_it_reads_also_behind_a_side_that_was_left_out(reads):
    driver = Driver()
    driver.define("flow", *LEFT_OUT, task("j", needs=["l", "r"], **reads))
    run = driver.submit("flow")
    driver.finish(run, "l")
    assert (driver.phase(run, "slow"), driver.phase(run, "r")) == ("RUNNING", "NOT_TAKEN")
    assert driver.phase(run, "j") == "PENDING"

    driver.finish(run, "slow", 7)
    assert driver.phase(run, "j") == "RUNNING"
    driver.finish(run, "j")
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_node_that_reads_nothing_of_it_does_not_wait_for_the_parents_of_a_side_that_was_left_out():
    driver = Driver()
    driver.define("flow", *LEFT_OUT, task("j", needs=["l", "r"]))
    run = driver.submit("flow")
    driver.finish(run, "l")

    assert driver.phase(run, "j") == "RUNNING"


def test_a_condition_that_reads_a_later_node_does_not_wait_for_it():
    driver = Driver()
    driver.define("flow", *LEFT_OUT, task("j", needs=["l", "r"], when='outcome.z != "x"'), task("z", needs=["j"]))
    run = driver.submit("flow")
    driver.finish_all()

    assert driver.state_of(run) == "COMPLETED"
