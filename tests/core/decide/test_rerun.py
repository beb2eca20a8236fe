"""Running a run again, and results that are kept for the next one."""

import pytest

from driver import BY, Driver, T, document, task
from tickwork.core.base.values import Ref, pack
from tickwork.core.definition.plan import plan_of
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import CacheMissed, TaskDispatched

INPUTS = {"x": {"type": "integer"}, "y": {"type": "integer", "default": 1}}
NODES = [task("a"), task("b", needs=["a"]), task("c", needs=["b"]), task("d", needs=["a"])]


def done(fails=None):
    """A driver with the ended run `r`."""
    driver = Driver()
    driver.define("flow", *NODES)
    driver.submit("flow", "r")
    while driver.running:
        attempt = driver.running[min(driver.running)]
        node = driver.state.tasks[attempt.task].step.id
        if node == fails:
            driver.fail("r", node)
        else:
            driver.finish("r", node, f"first {node}")
    return driver


def rerun(driver, name="again", **fields):
    code = driver.refusal(inp.Rerun(BY, T, name, driver.records["r"], **fields))
    driver.quiet()
    return code


def ran_again(driver, name="again"):
    """The nodes that the second run really ran, everything succeeding."""
    before = len(driver.events(TaskDispatched))
    began = len(driver.running)
    driver.finish_all()
    record = driver.records[name]
    plan = driver.state.plans[record.definition]
    tasks = [event.task for event in driver.events(TaskDispatched)[before - began :]]
    return sorted(plan.steps[number - record.number].id for number in tasks)


@pytest.mark.proves("S001-187")
@pytest.mark.parametrize(
    ("from_node", "again"), [("a", ["a", "b", "c", "d"]), ("b", ["b", "c"]), ("c", ["c"]), ("d", ["d"])]
)
def test_a_run_again_from_a_node_keeps_the_results_of_all_others(from_node, again):
    driver = done()
    assert rerun(driver, from_node=from_node) == ""

    assert ran_again(driver) == again
    assert driver.state_of("again") == "COMPLETED"
    kept = [name for name in "abcd" if name not in again]
    assert [driver.result("again", name) for name in kept] == [f"first {name}" for name in kept]
    driver.assert_empty()


@pytest.mark.parametrize("from_start", [False, True])
def test_a_completed_run_runs_again_from_the_start(from_start):
    driver = Driver()
    driver.define("flow", task("a"), task("b"), task("c", needs=["a", "b"]))
    driver.submit("flow", "r")
    driver.finish_all()
    assert rerun(driver, from_start=from_start) == ""

    assert ran_again(driver) == ["a", "b", "c"]
    assert driver.state_of("again") == "COMPLETED"
    driver.assert_empty()


def test_a_failed_run_with_several_roots_runs_again_from_the_start_if_that_is_wanted():
    driver = done(fails="b")
    assert rerun(driver, from_start=True) == ""

    assert ran_again(driver) == ["a", "b", "c", "d"]
    driver.assert_empty()


BRANCHING = [
    task("base"),
    {"kind": "branch", "id": "b", "cases": [{"when": "inputs.x == 1", "to": ["yes"]}], "default": ["no"]},
    task("yes", needs=["b", "base"]),
    task("no", needs=["b", "base"]),
    task("join", needs=["yes", "no"]),
]


def branched(*nodes):
    driver = Driver()
    driver.define("flow", *nodes, inputs=INPUTS)
    driver.submit("flow", "r", inputs={"x": 1})
    driver.finish_all()
    return driver


@pytest.mark.parametrize(("from_node", "again"), [("base", ["base", "join", "yes"]), ("yes", ["join", "yes"])])
def test_what_a_kept_branch_left_out_stays_left_out(from_node, again):
    driver = branched(*BRANCHING)
    assert rerun(driver, from_node=from_node) == ""

    assert ran_again(driver) == again
    assert driver.phase("again", "no") == "NOT_TAKEN"
    driver.assert_empty()


def test_a_node_that_a_kept_branch_left_out_stays_so_in_another_version_too():
    driver = branched(*BRANCHING)
    newer = [*BRANCHING[:3], task("no", needs=["b", "base"], handler="better"), BRANCHING[4]]
    driver.define("flow", *newer, inputs=INPUTS)
    version = plan_of(document("flow", *newer, inputs=INPUTS)).hash
    assert rerun(driver, definition=version, from_node="join") == ""

    assert ran_again(driver) == ["join"]
    assert driver.phase("again", "no") == "NOT_TAKEN"


def test_a_run_cannot_begin_from_a_node_that_its_branch_did_not_lead_to():
    driver = branched(*BRANCHING)

    assert rerun(driver, from_node="no") == "not_taken"
    assert rerun(driver, from_node="b") == ""
    assert ran_again(driver) == ["join", "yes"]


def test_a_run_again_without_a_node_runs_what_did_not_end_well():
    driver = done(fails="b")
    rerun(driver)

    assert ran_again(driver) == ["b", "c"]
    assert driver.state_of("again") == "COMPLETED"
    assert driver.state_of("r") == "FAILED"
    driver.assert_empty()


def test_with_another_version_what_changed_and_what_hangs_on_it_runs_again():
    driver = done()
    newer = [task("a"), task("b", needs=["a"], handler="better"), *NODES[2:], task("e", needs=["d"])]
    driver.define("flow", *newer)
    rerun(driver, definition=plan_of(document("flow", *newer)).hash)

    assert ran_again(driver) == ["b", "c", "e"]
    driver.assert_empty()


def reads(name, field, **fields):
    return task(name, args={"v": {"from": field}}, **fields)


@pytest.mark.proves("S001-187")
@pytest.mark.parametrize(
    ("inputs", "again"),
    [
        ({"x": 1}, ["a", "all", "b", "c", "cond", "free"]),  # nothing changed: all of it
        ({"x": 1, "y": 1}, ["a", "all", "b", "c", "cond", "free"]),  # the default, spelled out
        ({"x": 2}, ["a", "all", "b", "cond"]),
        ({"x": 1, "y": 2}, ["all", "c", "cond"]),
    ],
)
def test_with_other_inputs_the_nodes_that_read_them_run_again(inputs, again):
    nodes = [
        reads("a", "inputs.x"),
        reads("b", "nodes.a", needs=["a"]),
        reads("c", "inputs.y"),
        task("free"),
        task("cond", when="inputs.x > 0"),
        reads("all", "inputs"),
    ]
    driver = Driver()
    driver.define("flow", *nodes, inputs=INPUTS)
    driver.submit("flow", "r", inputs={"x": 1})
    driver.finish_all()
    assert rerun(driver, inputs=pack(inputs), change_inputs=True) == ""

    assert ran_again(driver) == again
    driver.assert_empty()


def test_a_branch_is_decided_again_with_other_inputs():
    nodes = [
        {"kind": "branch", "id": "b", "cases": [{"when": "inputs.x == 1", "to": ["one"]}], "default": ["other"]},
        task("one", needs=["b"]),
        task("other", needs=["b"]),
    ]
    driver = Driver()
    driver.define("flow", *nodes, inputs=INPUTS)
    driver.submit("flow", "r", inputs={"x": 1})
    driver.finish_all()
    rerun(driver, inputs=pack({"x": 2}), change_inputs=True)

    assert ran_again(driver) == ["other"]
    assert driver.phases("again") == {"b": "SUCCEEDED", "one": "NOT_TAKEN", "other": "SUCCEEDED"}


@pytest.mark.proves("I42")
@pytest.mark.parametrize(("x", "asked_again"), [(1, False), (2, True)])
def test_an_approval_holds_for_the_inputs_that_it_was_given_for(x, asked_again):
    driver = Driver()
    driver.define("flow", {"kind": "approval", "id": "ok"}, reads("a", "inputs.x", needs=["ok"]), inputs=INPUTS)
    driver.submit("flow", "r", inputs={"x": 1})
    driver.expect(inp.Decide("bob", T, "r", "ok", True))
    driver.finish_all()
    rerun(driver, from_node="a", inputs=pack({"x": x}), change_inputs=True)

    assert driver.phase("again", "ok") == ("WAITING" if asked_again else "SUCCEEDED")
    assert driver.is_running("again", "a") == (not asked_again)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "r"}, "already_submitted"),
        ({"name": "no good"}, "bad_run_id"),
        ({"from_node": "nothing"}, "unknown_node"),
        ({"from_node": "a", "from_start": True}, "two_starts"),
        ({"definition": "0" * 64}, "unknown_definition"),
        ({"inputs": pack({"zzz": 1}), "change_inputs": True}, "unknown_input"),
    ],
)
def test_a_repetition_that_makes_no_sense_is_refused(fields, code):
    driver = done()

    assert rerun(driver, **fields) == code
    driver.assert_empty()


# ---- cached results


def cached(name="a", **fields):
    return task(name, cache={}, **fields)


@pytest.mark.proves("S001-187")
def test_a_result_is_computed_once_and_then_found():
    driver = Driver()
    driver.define("flow", cached(), task("b", needs=["a"]))
    first = driver.submit("flow")
    driver.finish(first, "a", {"n": 1})
    second = driver.submit("flow")

    assert driver.is_running(second, "b")
    driver.finish_all()
    assert driver.result(second, "a") == {"n": 1}
    assert len(driver.events(CacheMissed)) == 1
    driver.assert_empty()


def key_of(node, *, inputs=None, tenant=T, results=None):
    """The cache key of the node `a`, which may read the result of `before`."""
    driver = Driver()
    if tenant != T:
        driver.send(inp.PutTenant(BY, tenant))
    fields = {"x": {"type": "any", "required": False}}
    driver.define("flow", task("before"), {**node, "needs": ["before"]}, inputs=fields, tenant=tenant)
    driver.send(inp.Submit(BY, tenant, "r", "flow", pack(inputs or {})))
    attempt = next(iter(driver.running.values()))
    outcome = driver.send(inp.Succeeded(attempt.task, attempt.attempt, results))
    return next(effect.key for effect in outcome.effects if hasattr(effect, "ttl_ms"))


ARGS = {"v": {"from": "inputs.x"}, "w": {"from": "nodes.before"}}
HTTP = {"kind": "http", "id": "a", "cache": {}}
BASE = (cached(args=ARGS), {"inputs": {"x": 1}, "results": pack(1)})
OTHERS = [
    (cached(args=ARGS, handler="other"), {"inputs": {"x": 1}, "results": pack(1)}),
    (cached(args=ARGS, handler_version="2"), {"inputs": {"x": 1}, "results": pack(1)}),
    (cached(args=ARGS), {"inputs": {"x": 2}, "results": pack(1)}),
    (cached(args=ARGS), {"inputs": {"x": "1"}, "results": pack(1)}),
    (cached(args=ARGS), {"inputs": {"x": 1}, "results": pack(2)}),
    (cached(args=ARGS), {"inputs": {"x": 1}, "results": Ref("digest", 5_000)}),
    (cached(args=ARGS), {"inputs": {"x": 1}, "results": Ref("other", 5_000)}),
    (cached(args={"v": {"value": 1}}), {}),
    (cached(), {}),
    (cached(args=ARGS), {"inputs": {"x": 1}, "results": pack(1), "tenant": "other"}),
    ({**HTTP, "url": "https://example.org/1"}, {}),
    ({**HTTP, "url": "https://example.org/2"}, {}),
    ({"kind": "shell", "id": "a", "cache": {}, "argv": ["date"]}, {}),
]


def test_a_cache_key_is_the_same_for_the_same_work_and_for_nothing_else():
    keys = [key_of(node, **more) for node, more in [BASE, *OTHERS]]

    assert key_of(BASE[0], **BASE[1]) == keys[0]
    assert len(set(keys)) == len(keys)


def test_an_answer_for_a_task_that_no_longer_asks_is_stale():
    driver = Driver()
    driver.define("flow", cached())
    driver.send(inp.Submit(BY, T, "r", "flow"))
    driver.send(inp.Cancel(BY, T, "r"))
    driver.quiet()

    assert driver.state.stale == 1
    driver.assert_empty()


def test_a_miss_while_the_run_is_paused_waits_for_its_resume():
    driver = Driver()
    driver.define("flow", cached())
    driver.send(inp.Submit(BY, T, "r", "flow"))
    driver.send(inp.Pause(BY, "run", T, "r"))
    driver.quiet()
    assert (driver.phase("r", "a"), driver.started) == ("READY", [])

    driver.expect(inp.Resume(BY, "run", T, "r"))
    driver.finish_all()
    driver.assert_empty()
