"""Which nodes of a graph start: branches, conditions, trigger rules, waits, exits."""

from itertools import product

import pytest

from driver import BY, Driver, task
from tickwork.core.base.values import Ref, pack
from tickwork.core.decide.runs.trigger_rules import verdict
from tickwork.core.definition.model import Trigger
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import StepEnded, TaskDispatched
from tickwork.core.state.lifecycle import Phase

HOUR_MS = 3_600_000
X = {"x": {"type": "any", "required": False}}


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("flow", *nodes, **{"inputs": X, **fields})
    return driver


# ---- trigger rules

OUTCOMES = [Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED, Phase.NOT_TAKEN, Phase.BLOCKED, Phase.CANCELLED]


def oracle(trigger, outcomes):
    """The rules once more, as sentences about the multiset of outcomes."""
    bad = [one for one in outcomes if one in (Phase.FAILED, Phase.BLOCKED, Phase.CANCELLED)]
    good = [one for one in outcomes if one in (Phase.SUCCEEDED, Phase.SKIPPED)]
    match trigger:
        case "all_done":
            return Phase.READY
        case "any_failed":
            return Phase.READY if bad else Phase.NOT_TAKEN
        case "none_failed":
            return Phase.BLOCKED if bad else Phase.READY
        case "all_succeeded":
            return Phase.BLOCKED if bad else Phase.READY if good else Phase.NOT_TAKEN
        case "any_succeeded":
            return Phase.READY if good else Phase.BLOCKED if bad else Phase.NOT_TAKEN
        case "one_done":
            return Phase.READY if good or bad else Phase.NOT_TAKEN
        case "all_failed":
            return Phase.READY if bad and not good else Phase.NOT_TAKEN
    raise AssertionError(trigger)


@pytest.mark.proves("S001-85")
@pytest.mark.parametrize("trigger", list(Trigger))
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_trigger_rule_answers_as_the_oracle_for_all_outcomes_of_its_parents(trigger, count):
    for outcomes in product(OUTCOMES, repeat=count):
        assert verdict(trigger, outcomes) == oracle(trigger.value, outcomes), outcomes


def test_a_node_without_parents_may_start_under_every_rule_but_one_that_wants_a_failure():
    assert {verdict(trigger, []) for trigger in Trigger} == {Phase.READY}


def parent(name, outcome):
    """A node that ends so, with what the test has to do for it."""
    match outcome:
        case "SUCCEEDED" | "FAILED":
            return [task(name)]
        case "NOT_TAKEN":
            return [task(name, when="false")]
        case "SKIPPED":
            return [task(name, policy=["never"])]
    return [task(f"{name}0"), task(name, needs=[f"{name}0"])]  # BLOCKED


@pytest.mark.proves("I36", "I40")
@pytest.mark.parametrize("trigger", [trigger.value for trigger in Trigger])
def test_the_machine_follows_the_trigger_rules_for_every_pair_of_outcomes(trigger):
    for pair in product(["SUCCEEDED", "FAILED", "NOT_TAKEN", "SKIPPED", "BLOCKED"], repeat=2):
        driver = Driver()
        driver.expect(inp.PutPolicy(BY, "never", "false", "never", "skip_with_log"))
        nodes = [node for name, outcome in zip("ab", pair, strict=True) for node in parent(name, outcome)]
        driver.define("flow", *nodes, task("join", needs=["a", "b"], trigger=trigger))
        run = driver.submit("flow")
        for name, outcome in zip("ab", pair, strict=True):
            match outcome:
                case "SUCCEEDED":
                    driver.finish(run, name)
                case "FAILED":
                    driver.fail(run, name)
                case "BLOCKED":
                    driver.fail(run, f"{name}0")

        expected = oracle(trigger, [Phase[outcome] for outcome in pair])
        assert driver.phase(run, "join") == ("RUNNING" if expected is Phase.READY else expected.name), pair

        driver.finish_all()
        failed = {"FAILED", "BLOCKED"} & set(pair)
        assert driver.state_of(run) == ("FAILED" if failed else "COMPLETED"), pair
        driver.assert_empty()


# ---- failures


@pytest.mark.proves("S002-28", "S002-31", "I40", "S001-04")
def test_after_a_failure_independent_branches_finish_and_nothing_downstream_starts():
    driver = flow(task("a"), task("b", needs=["a"]), task("c", needs=["b"]), task("d"), task("e", needs=["d"]))
    run = driver.submit("flow")
    driver.fail(run, "a")
    assert driver.state_of(run) == "ACTIVE"
    driver.finish(run, "d")
    driver.finish(run, "e")

    assert driver.phases(run) == {"a": "FAILED", "b": "BLOCKED", "c": "BLOCKED", "d": "SUCCEEDED", "e": "SUCCEEDED"}
    assert driver.state_of(run) == "FAILED"
    assert len(driver.events(TaskDispatched)) == 3
    driver.assert_empty()


def test_a_cleanup_step_runs_after_success_and_after_failure_and_the_failure_still_counts():
    for fails in (False, True):
        driver = flow(
            task("a"),
            task("undo", needs=["a"], trigger="any_failed"),
            task("tidy", needs=["a", "undo"], trigger="all_done"),
        )
        run = driver.submit("flow")
        (driver.fail if fails else driver.finish)(run, "a")
        assert driver.phase(run, "undo") == ("RUNNING" if fails else "NOT_TAKEN")
        driver.finish_all()

        assert driver.phase(run, "tidy") == "SUCCEEDED"
        assert driver.state_of(run) == ("FAILED" if fails else "COMPLETED")
        driver.assert_empty()


WORK = [
    {"kind": "http", "url": "https://example.org/x"},
    {"kind": "shell", "argv": ["true"]},
    {"kind": "send", "channel": "email", "action": {"to": "x"}},
]


@pytest.mark.proves("S000-27", "S002-30")
@pytest.mark.parametrize("node", WORK, ids=lambda node: node["kind"])
def test_work_of_every_kind_is_handed_to_a_worker_and_its_failure_leads_nowhere_else(node):
    driver = flow({**node, "id": "a"}, task("b"))
    run = driver.submit("flow")
    assert driver.is_running(run, "a")  # the tick is over and did not wait for it
    driver.fail(run, "a", "ChannelDown")
    driver.finish(run, "b")

    assert driver.state_of(run) == "FAILED"
    assert len(driver.started) == 2
    driver.assert_empty()


# ---- branches and conditions


def branching():
    return flow(
        {"kind": "branch", "id": "b", "cases": [{"when": "inputs.x == 1", "to": ["one"]},
                                                {"when": "inputs.x == 2", "to": ["two", "both"]}], "default": ["none"]},
        task("one", needs=["b"]),
        task("two", needs=["b"]),
        task("both", needs=["b"]),
        task("none", needs=["b"]),
        task("join", needs=["one", "two", "both", "none"]),
        inputs={"x": {"type": "integer"}},
    )  # fmt: skip


@pytest.mark.proves("S001-05", "S002-29")
@pytest.mark.parametrize(("x", "taken"), [(1, ["one"]), (2, ["two", "both"]), (3, ["none"])])
def test_a_branch_takes_the_first_case_that_holds_and_records_the_others_as_not_taken(x, taken):
    driver = branching()
    run = driver.submit("flow", inputs={"x": x})

    phases = driver.phases(run)
    assert [name for name in ("one", "two", "both", "none") if phases[name] == "RUNNING"] == taken
    others = [name for name in ("one", "two", "both", "none") if name not in taken]
    assert {phases[name] for name in others} == {"NOT_TAKEN"}
    assert len([event for event in driver.events(StepEnded) if event.phase == Phase.NOT_TAKEN]) == len(others)

    driver.finish_all()
    assert driver.phase(run, "join") == "SUCCEEDED"
    assert len(driver.events(TaskDispatched)) == len(taken) + 1  # the join once
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_what_lies_behind_the_untaken_side_is_not_taken_either():
    driver = flow(
        {"kind": "branch", "id": "b", "cases": [{"when": "true", "to": ["yes"]}], "default": ["no"]},
        task("yes", needs=["b"]),
        task("no", needs=["b"]),
        task("later", needs=["no"]),
        task("end", needs=["later"], trigger="none_failed"),
    )
    run = driver.submit("flow")
    driver.finish_all()

    assert driver.phases(run) == {
        "b": "SUCCEEDED",
        "yes": "SUCCEEDED",
        "no": "NOT_TAKEN",
        "later": "NOT_TAKEN",
        "end": "SUCCEEDED",
    }


SIDE = [
    {"kind": "task", "handler": "x"},
    {"kind": "wait", "duration": "1h"},
    {"kind": "event", "event": "paid"},
    {"kind": "approval"},
    {"kind": "workflow", "workflow": "leaf"},
    {"kind": "map", "over": "inputs.x", "body": {"kind": "task", "handler": "x"}},
    {"kind": "repeat", "until": "true", "max_iterations": 2, "body": {"kind": "task", "handler": "x"}},
    {"kind": "branch", "cases": [{"when": "true", "to": ["in"]}], "default": []},
]


@pytest.mark.parametrize("node", SIDE, ids=lambda node: node["kind"])
@pytest.mark.parametrize("trigger", [trigger.value for trigger in Trigger])
@pytest.mark.parametrize("outcome", ["NOT_TAKEN", "SKIPPED", "FAILED", "BLOCKED"])
def test_a_branch_that_took_no_side_starts_nothing_in_its_sides_whatever_their_rules_say(outcome, trigger, node):
    branch = {"kind": "branch", "id": "b", "cases": [{"when": "true", "to": ["yes"]}], "default": ["no"]}
    before = []
    match outcome:
        case "NOT_TAKEN":
            branch |= {"when": "false"}
        case "SKIPPED":
            branch |= {"policy": ["never"]}
        case "FAILED":
            branch |= {"cases": [{"when": "inputs.x.y", "to": ["yes"]}]}
        case "BLOCKED":
            before, branch = [task("first")], branch | {"needs": ["first"]}
    inside = [task("in", needs=["yes"], trigger=trigger)] if node["kind"] == "branch" else []
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "never", "false", "never", "skip_with_log"))
    driver.define("leaf", task("l"))
    driver.define(
        "flow",
        task("base"),
        *before,
        branch,
        {**node, "id": "yes", "needs": ["b", "base"], "trigger": trigger},
        *inside,
        task("no", needs=["b", "base"], trigger=trigger),
        inputs=X,
    )
    run = driver.submit("flow", inputs={"x": [1, 2]})
    if before:
        driver.fail(run, "first")
    driver.finish_all()

    phases = driver.phases(run)
    expected = "NOT_TAKEN" if outcome in ("NOT_TAKEN", "SKIPPED") else "BLOCKED"
    assert (phases["b"], phases["yes"], phases["no"]) == (outcome, expected, expected)
    assert phases.get("in", expected) == expected
    driver.assert_empty()


def test_of_two_branches_that_name_a_node_the_one_that_leaves_it_out_decides():
    driver = flow(
        {"kind": "branch", "id": "b", "when": "false", "cases": [{"when": "true", "to": ["a"]}], "default": []},
        {"kind": "branch", "id": "c", "cases": [{"when": "inputs.x.y", "to": ["a"]}], "default": []},
        task("a", needs=["b", "c"], trigger="all_done"),
    )
    run = driver.submit("flow", inputs={"x": 1})

    assert driver.phases(run) == {"b": "NOT_TAKEN", "c": "FAILED", "a": "NOT_TAKEN"}


@pytest.mark.parametrize(("when", "phase"), [("true", "RUNNING"), ("false", "NOT_TAKEN")])
def test_a_node_whose_condition_is_false_is_not_taken(when, phase):
    driver = flow(task("a", when=when), task("b"))
    run = driver.submit("flow")

    assert driver.phase(run, "a") == phase


CONDITIONS_THAT_FAIL = [
    "inputs.nothing == 1",  # no such key
    "inputs.x.y == 1",  # a number has no y
    "inputs.x",  # neither true nor false
    "1 / (inputs.x - 1) == 1",  # division by zero
    "results.a == 1",  # has no result
]


@pytest.mark.proves("I40")
@pytest.mark.parametrize("text", CONDITIONS_THAT_FAIL)
@pytest.mark.parametrize("place", ["when", "branch", "exit"])
def test_a_condition_that_cannot_be_answered_fails_closed(text, place):
    nodes = [task("a")]
    match place:
        case "when":
            nodes.append(task("b", when=text))
        case "branch":
            nodes.append({"kind": "branch", "id": "b", "cases": [{"when": text, "to": ["c"]}], "default": ["d"]})
            nodes += [task("c", needs=["b"]), task("d", needs=["b"])]
    driver = flow(*nodes, exits=[{"when": text}] if place == "exit" else [])
    run = driver.submit("flow", inputs={"x": 1})
    driver.finish_all()

    assert driver.state_of(run) == "FAILED"
    if place == "exit":
        assert driver.phases(run) == {"a": "CANCELLED"}
    else:
        assert driver.phase(run, "b") == "FAILED"
        assert not {"RUNNING", "SUCCEEDED"} & {driver.phases(run).get(name) for name in "cd"}
    driver.assert_empty()


POISON = [
    b"\xc1 no MessagePack",
    b"\x92\x01",  # cut short
    b"\x01\x02",  # two values
    b"\x81\x01\x02",  # a map with a number for a key
    b"\x81\xc0\x01",
    b"\x81\x91\x01\x01",
    b"\x81\xa2\xff\xfe\x01",  # no UTF-8
    b"\xa3\xed\xa0\x80",  # half a character
    b"\xd4\x05x",  # a type of its own
    b"\x91" * 900 + b"\xc0",
    pack({"ok": b"bytes"}),
    pack({"ok": float("nan")}),
]


@pytest.mark.parametrize("value", [Ref("digest", 5_000), *POISON])
def test_a_result_that_no_rule_can_read_fails_the_condition_that_asks_for_it(value):
    driver = flow(task("a"), task("b", needs=["a"], when="results.a.ok"))
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.running.clear()
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, value))
    driver.quiet()

    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "FAILED"}
    assert driver.state_of(run) == "FAILED"


@pytest.mark.parametrize("value", POISON)
def test_a_result_that_is_no_plain_data_fails_whatever_reads_it_and_stops_nobody_else(value):
    driver = Driver()
    driver.define("leaf", task("l"), inputs={"x": {"type": "any"}})
    reads = {"args": {"x": {"from": "nodes.a"}}, "needs": ["a"]}
    driver.define(
        "flow",
        task("a"),
        {"kind": "wait", "id": "w", "until": "nodes.a", "needs": ["a"]},
        {"kind": "event", "id": "e", "event": "x", "key": "nodes.a", "needs": ["a"]},
        {"kind": "map", "id": "m", "over": "nodes.a", "needs": ["a"], "body": {"kind": "task", "handler": "x"}},
        {"kind": "workflow", "id": "c", "workflow": "leaf", **reads},
        task("k", cache={}, **reads),
        task("free", needs=["a"]),
    )
    run = driver.submit("flow")
    attempt = driver.running.popitem()[1]
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, value))
    driver.quiet()

    phases = driver.phases(run)
    assert [phases[name] for name in ("w", "e", "m", "c", "k")] == ["FAILED"] * 5
    assert phases["free"] == "RUNNING"
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.proves("S002-23")
def test_a_step_sees_the_results_of_the_steps_before_it():
    driver = flow(task("a"), task("b", needs=["a"], when="results.a.n > 2 && outcome.a == 'succeeded'"))
    run = driver.submit("flow")
    driver.finish(run, "a", {"n": 3})

    assert driver.phase(run, "b") == "RUNNING"


# ---- waits

PAST, LATER = "2026-01-01T00:00:00Z", "2027-01-15T08:10:00Z"  # the driver's time begins at 2027-01-15T08:00


@pytest.mark.parametrize(
    ("fields", "inputs", "after_ms"),
    [
        ({"duration": "10m"}, {}, 600_000),
        ({"until": LATER}, {}, 600_000),
        ({"until": "inputs.x"}, {"x": LATER}, 600_000),
        ({"until": "inputs.x.at"}, {"x": {"at": LATER}}, 600_000),
        ({"until": PAST}, {}, 0),
        ({"until": "inputs.x"}, {"x": PAST}, 0),
    ],
)
def test_a_wait_ends_after_a_duration_or_at_an_instant_and_one_in_the_past_at_once(fields, inputs, after_ms):
    driver = flow({"kind": "wait", "id": "w", **fields})
    run = driver.submit("flow", inputs=inputs)
    if after_ms:
        driver.advance(after_ms - 1_000)
        assert driver.state_of(run) == "WAITING"
    driver.advance(2_000)

    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize("x", [5, None, True, "soon", {"at": 1}, [], "2027-13-01T00:00:00Z", "2027-01-15T08:10:00"])
def test_a_wait_for_something_that_is_no_instant_fails(x):
    driver = flow({"kind": "wait", "id": "w", "until": "inputs.x"})
    run = driver.submit("flow", inputs={"x": x})

    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


# ---- exits


@pytest.mark.parametrize(("outcome", "state"), [("completed", "COMPLETED"), ("cancelled", "CANCELLED")])
@pytest.mark.parametrize("waiting", [True, False])
def test_an_exit_ends_the_run_and_stops_its_running_attempts(outcome, state, waiting):
    other = {"kind": "wait", "id": "b", "duration": "1h"} if waiting else task("b")
    driver = flow(
        task("a"), other, task("c", needs=["a"]),
        exits=[{"when": "'a' in results && results.a.stop", "outcome": outcome, "reason": "enough"}],
    )  # fmt: skip
    run = driver.submit("flow")
    driver.finish(run, "a", {"stop": True})

    assert driver.state_of(run) == state
    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "CANCELLED", "c": "CANCELLED"}
    assert len(driver.stopped) == (0 if waiting else 1)
    driver.assert_empty()


def test_an_exit_that_holds_from_the_beginning_lets_no_step_start():
    driver = flow(task("a"), exits=[{"when": "inputs.x == 1", "outcome": "cancelled"}])
    run = driver.submit("flow", inputs={"x": 1})

    assert driver.state_of(run) == "CANCELLED"
    assert not driver.started
    driver.assert_empty()


def test_an_exit_ends_child_runs_with_the_run():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define(
        "flow", task("a"), {"kind": "workflow", "id": "c", "workflow": "leaf"}, exits=[{"when": "'a' in results"}]
    )
    run = driver.submit("flow")
    child = driver.id_of_child(run, "c")
    driver.finish(run, "a", 1)

    assert driver.state_of(run) == "COMPLETED"
    assert driver.state_of(child) == "CANCELLED"
    assert len(driver.stopped) == 1
    driver.assert_empty()
