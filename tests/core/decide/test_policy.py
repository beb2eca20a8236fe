"""The gate before every step."""

import pytest

from driver import BY, Driver, T, document, task
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import PolicyDecided, RunMoved, StepEnded

HOUR_MS = 3_600_000


def gated(allow, action="fail", pause_ms=0, nodes=(), **fields):
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "gate", allow, "too late today", action, pause_ms))
    driver.define(
        "flow", *(nodes or [task("a", policy=["gate"])]), inputs={"x": {"type": "any", "required": False}}, **fields
    )
    return driver


def decisions(driver):
    return [(one.step, one.policy, one.allowed, one.reason, one.action) for one in driver.events(PolicyDecided)]


@pytest.mark.proves("S002-39", "S002-40", "S002-41")
def test_a_step_that_is_allowed_runs_and_the_answer_is_recorded():
    driver = gated("inputs.x == 1")
    run = driver.submit("flow", inputs={"x": 1})

    assert driver.is_running(run, "a")
    assert decisions(driver) == [(0, "gate", True, "", "")]


@pytest.mark.proves("S002-42", "S002-44", "S002-29")
@pytest.mark.parametrize(
    ("action", "phase", "after", "state"),
    [("fail", "FAILED", "BLOCKED", "FAILED"), ("skip_with_log", "SKIPPED", "RUNNING", "ACTIVE")],
)
def test_a_denied_step_fails_or_is_skipped_and_never_runs(action, phase, after, state):
    driver = gated("false", action, nodes=[task("a", policy=["gate"]), task("b", needs=["a"])])
    run = driver.submit("flow")

    assert driver.phases(run) == {"a": phase, "b": after}
    assert driver.state_of(run) == state
    assert decisions(driver) == [(0, "gate", False, "too late today", action)]
    assert driver.events(StepEnded)[0].reason == "policy gate: too late today"


@pytest.mark.proves("S002-42", "S002-45", "S002-11")
def test_a_denial_may_pause_the_run_until_somebody_resumes_it_and_is_asked_again_then():
    driver = gated("false", "pause")
    run = driver.submit("flow")
    driver.advance(HOUR_MS)
    assert driver.state_of(run) == "PAUSED"
    assert driver.run(run).pause_reason == "policy gate: too late today"

    driver.expect(inp.Resume(BY, "run", T, run))
    assert driver.state_of(run) == "PAUSED"
    assert len(decisions(driver)) == 2

    driver.expect(inp.PutPolicy(BY, "gate", "true", "", "pause"), inp.Resume(BY, "run", T, run))
    assert driver.is_running(run, "a")
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.proves("S002-45")
def test_a_pause_that_carries_its_end_resumes_by_itself_and_the_gate_is_asked_again():
    driver = gated(f"clock.now_ms >= {1_800_000_000_000 + HOUR_MS}", "pause", pause_ms=600_000)
    run = driver.submit("flow")
    driver.advance(HOUR_MS - 1_000)
    assert driver.state_of(run) == "PAUSED"
    driver.advance(600_000)

    assert driver.is_running(run, "a")
    assert [allowed for _, _, allowed, _, _ in decisions(driver)] == [False] * 6 + [True]
    driver.finish_all()
    driver.assert_empty()


def test_a_paused_run_begins_nothing_else_and_forgets_nothing():
    nodes = [task("a", policy=["gate"]), task("b"), task("c")]
    driver = gated("false", "pause", nodes=nodes)
    run = driver.submit("flow")
    assert driver.phases(run) == dict.fromkeys("abc", "PENDING")

    driver.expect(inp.PutPolicy(BY, "gate", "true", "", "pause"), inp.Resume(BY, "run", T, run))
    assert driver.phases(run) == dict.fromkeys("abc", "RUNNING")


def test_children_of_a_run_that_its_policy_has_paused_do_not_begin():
    nodes = [
        {"kind": "workflow", "id": "c", "workflow": "leaf"},
        task("a", policy=["gate"]),
    ]
    driver = gated("false", "pause", nodes=nodes)
    driver.define("leaf", task("l"))
    run = driver.submit("flow")
    assert driver.state_of(run) == "PAUSED"
    assert not driver.started

    driver.expect(inp.PutPolicy(BY, "gate", "true", "", "pause"), inp.Resume(BY, "run", T, run))
    driver.quiet()
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.proves("I40")
@pytest.mark.parametrize("allow", ["inputs.nothing", "inputs.x", "results.b == 1"])
def test_a_policy_that_cannot_be_answered_denies(allow):
    driver = gated(allow, "skip_with_log")
    run = driver.submit("flow", inputs={"x": 5})

    assert driver.state_of(run) == "FAILED"
    assert decisions(driver)[0][2:3] + decisions(driver)[0][4:] == (False, "fail")
    driver.assert_empty()


@pytest.mark.proves("I40")
def test_a_policy_that_does_not_exist_denies():
    driver = gated("true", nodes=[task("a", policy=["gate", "nobody"])])
    run = driver.submit("flow")

    assert driver.state_of(run) == "FAILED"
    assert [(policy, allowed) for _, policy, allowed, _, _ in decisions(driver)] == [("gate", True), ("nobody", False)]


@pytest.mark.proves("S002-39")
def test_a_policy_of_the_workflow_is_asked_before_every_step_of_every_kind_and_before_the_nodes_own():
    nodes = [
        task("a", policy=["gate"]),
        {"kind": "wait", "id": "b", "duration": "1h"},
        {"kind": "event", "id": "c", "event": "e"},
        {"kind": "approval", "id": "d"},
        {"kind": "branch", "id": "e", "cases": [{"when": "true", "to": []}], "default": []},
        {"kind": "map", "id": "f", "over": "inputs.x", "body": {"kind": "task", "handler": "x"}},
        {"kind": "repeat", "id": "g", "until": "true", "max_iterations": 1, "body": {"kind": "task", "handler": "x"}},
        {"kind": "workflow", "id": "h", "workflow": "flow"},
        task("i", cache={}),
    ]
    driver = gated("true", nodes=nodes, policy=["all"])
    driver.expect(inp.PutPolicy(BY, "all", "false", "closed", "skip_with_log"))
    run = driver.submit("flow", inputs={"x": []})

    assert set(driver.phases(run).values()) == {"SKIPPED"}
    assert [(step, policy) for step, policy, *_ in decisions(driver)] == [(step, "all") for step in range(9)]
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.proves("S002-22", "S002-17", "S002-21")
def test_a_policy_reads_the_snapshot_that_its_step_reads():
    seen = "results.a.n == 1 && events.size() == 0 && clock.now_ms > 0 && inputs.x == 2"
    nodes = [task("a"), task("b", needs=["a"], when=seen, policy=["gate"])]
    driver = gated(seen, nodes=nodes)
    run = driver.submit("flow", inputs={"x": 2})
    attempt = driver.attempt_of(run, "a")
    driver.send(inp.Ingest(BY, T, "opened", "", run), inp.Succeeded(attempt.task, attempt.attempt, b"\x81\xa1n\x01"))

    assert driver.phase(run, "b") == "RUNNING"  # neither of them saw the event of this tick


@pytest.mark.proves("S002-18")
def test_a_step_sees_which_run_it_belongs_to_and_what_came_before_it():
    seen = (
        "run.id == 'r1' && run.workflow == 'flow' && run.started_ms >= run.submitted_ms && results.a.n == 1"
        " && outcome.a == 'succeeded' && outcome.b == 'pending' && outcome.c == 'pending'"
    )
    driver = gated(seen, nodes=[task("a"), task("b", needs=["a"], when=seen, policy=["gate"]), task("c", needs=["b"])])
    driver.submit("flow", "r1")
    driver.finish("r1", "a", {"n": 1})

    assert driver.phase("r1", "b") == "RUNNING"
    assert driver.run("r1").started, "and the moment at which it started is the one that it saw"


def test_a_step_whose_own_condition_is_false_needs_no_permission():
    driver = gated("false", nodes=[task("a", when="false", policy=["gate"])])
    run = driver.submit("flow")

    assert driver.phase(run, "a") == "NOT_TAKEN"
    assert decisions(driver) == []


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "task", "handler": "x", "policy": ["gate"]},
        {"kind": "task", "handler": "x", "cache": {}},
        {"kind": "workflow", "workflow": "x", "retry": 3},
    ],
)
def test_what_would_never_be_looked_at_in_the_body_of_a_map_is_refused(body):
    node = {"kind": "map", "id": "m", "over": "inputs.x", "body": body}
    asked = inp.PutDefinition(BY, T, document("flow", node, inputs={"x": {"type": "array"}}))

    assert Driver().refusal(asked) == "body_field"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"policy": "no good"}, "name_characters"),
        ({"allow": "1 +"}, "bad_condition"),
        ({"action": "shrug"}, "bad_action"),
        ({"pause_ms": -1}, "bad_delay"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(fields, code):
    asked = {"by": BY, "policy": "p", "allow": "true", "reason": "", "action": "fail", **fields}

    assert Driver().refusal(inp.PutPolicy(**asked)) == code


def test_a_denial_while_the_run_waits_pauses_it_by_legal_moves():
    nodes = [{"kind": "wait", "id": "w", "duration": "1m"}, task("a", needs=["w"], policy=["gate"])]
    driver = gated("false", "pause", nodes=nodes)
    run = driver.submit("flow")
    driver.advance(120_000)

    assert driver.moves(run) == ["START", "WAIT", "WAKE", "PAUSE"]
    assert driver.events(RunMoved)[-1].reason == "policy gate: too late today"
