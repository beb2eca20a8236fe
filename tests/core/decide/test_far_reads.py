"""Nodes that read what lies further above them than their parents."""

import pytest

from driver import BY, Driver, T, document, task
from tickwork.core.state import inputs as inp

BRANCH = {"kind": "branch", "id": "x", "cases": [{"when": "true", "to": ["l"]}], "default": ["r"]}
LEFT_OUT = [BRANCH, task("slow"), task("l", needs=["x"]), task("r", needs=["x", "slow"])]


@pytest.mark.parametrize(
    "reads",
    [
        {"when": "results.slow == 7"},
        {"when": 'outcome.slow == "succeeded"'},
        {"when": 'results["sl" + "ow"] == 7'},
        {"when": 'outcome.all(node, node != "slow" || outcome[node] == "succeeded")'},
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


def test_a_workflow_that_reads_everything_everywhere_is_refused():
    driver = Driver()
    side = [task(f"s{number}", needs=["x", "slow"]) for number in range(1_001)]
    parents = [task(f"p{number}") for number in range(1_001)]
    for parent, node in zip(parents, side, strict=True):
        node["needs"].append(parent["id"])
    branch = {**BRANCH, "default": [node["id"] for node in side], "cases": [{"when": "true", "to": []}]}
    readers = [task(f"r{number}", when="size(results) > 3") for number in range(1_000)]

    refused = driver.refusal(
        inp.PutDefinition(BY, T, document("flow", branch, task("slow"), *parents, *side, *readers))
    )

    assert refused == "too_many_reads"


READS = [
    {"when": 'outcome.a == "succeeded"'},
    {"when": "size(results) > 0"},
    {"args": {"number": {"from": "nodes.a"}}},
]


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("decision", ["skip", "accept"])
def test_nothing_is_decided_between_a_node_that_is_tried_again_and_one_that_reads_it(decision, reads):
    driver = Driver()
    driver.define("flow", task("a"), task("b", needs=["a"], trigger="all_done"), task("c", needs=["b"], **reads))
    run = driver.submit("flow")
    driver.fail(run, "a")
    driver.fail(run, "b")
    record = driver.records[run]

    decisions = {"a": "retry", "b": decision}
    assert driver.refusal(inp.Resolve(BY, T, run, "again", decisions, {}, record)) == "bad_decision"
    driver.expect(inp.Resolve(BY, T, run, "again", {"a": "skip", "b": decision}, {}, record))


def test_a_node_that_waits_for_what_it_reads_by_another_way_may_have_decided_nodes_above_it():
    driver = Driver()
    driver.define(
        "flow",
        task("a"),
        task("b", needs=["a"], trigger="all_done"),
        task("x", needs=["a"]),
        task("c", needs=["b", "x"], **READS[0]),
    )
    run = driver.submit("flow")
    driver.fail(run, "a")
    driver.fail(run, "b")

    driver.expect(inp.Resolve(BY, T, run, "again", {"a": "retry", "b": "skip"}, {}, driver.records.pop(run)))
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
