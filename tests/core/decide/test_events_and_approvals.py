"""Steps that wait for the outside: events and people."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RunState

HOUR_MS = 3_600_000


def event(name="e", **fields):
    return {"kind": "event", "id": name, "event": "paid", **fields}


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("flow", *nodes, **{"inputs": {"x": {"type": "any", "required": False}}, **fields})
    return driver


def signal(driver, name="paid", key="", run="", payload=None):
    driver.expect(inp.Ingest(BY, T, name, key, run, None if payload is None else pack(payload)))
    driver.quiet()


@pytest.mark.parametrize("target", ["all", "run"])
def test_an_event_answers_whoever_waits_for_it_with_its_payload(target):
    driver = flow(event(), task("a", needs=["e"]))
    run = driver.submit("flow")
    assert driver.state_of(run) == "WAITING"
    signal(driver, run=run if target == "run" else "", payload={"sum": 5})
    assert driver.is_running(run, "a")

    driver.finish_all()
    assert driver.result(run, "e") == {"sum": 5}
    driver.assert_empty()


def test_an_event_without_a_run_reaches_all_that_wait_and_no_later_one():
    driver = flow(event())
    before = [driver.submit("flow") for _ in range(3)]
    signal(driver)
    later = driver.submit("flow")

    assert {driver.state_of(run) for run in before} == {"COMPLETED"}
    assert driver.state_of(later) == "WAITING"


def test_an_event_for_a_run_is_kept_until_its_node_is_reached_and_used_once():
    driver = flow(task("a"), event("e", needs=["a"]), event("f", needs=["e"]))
    run = driver.submit("flow")
    signal(driver, run=run, payload=1)
    driver.finish(run, "a")
    assert driver.phases(run) == {"a": "SUCCEEDED", "e": "SUCCEEDED", "f": "WAITING"}

    signal(driver, run=run, payload=2)
    assert driver.state_of(run) == "COMPLETED"
    assert [driver.result(run, name) for name in "ef"] == [1, 2]
    driver.assert_empty()


def test_an_event_for_a_run_answers_one_of_its_nodes_only():
    driver = flow(event("e"), event("f"))
    run = driver.submit("flow")
    signal(driver, run=run)

    assert sorted(driver.phases(run).values()) == ["SUCCEEDED", "WAITING"]


@pytest.mark.parametrize(("key", "answered"), [("o-1", True), ("o-2", False), ("", False)])
@pytest.mark.parametrize(("target", "early"), [("all", False), ("run", False), ("run", True)])
def test_only_an_event_with_the_key_of_the_node_counts(key, answered, target, early):
    driver = flow(task("a"), event(key="inputs.x", needs=["a"]))
    run = driver.submit("flow", inputs={"x": "o-1"})
    if not early:
        driver.finish(run, "a")
    signal(driver, key=key, run=run if target == "run" else "")
    if early:
        driver.finish(run, "a")

    assert driver.state_of(run) == ("COMPLETED" if answered else "WAITING")


def test_an_event_of_another_tenant_reaches_nobody_here():
    driver = flow(event())
    driver.expect(inp.PutTenant(BY, "other"))
    run = driver.submit("flow")
    driver.send(inp.Ingest(BY, "other", "paid"))

    assert driver.refusal(inp.Ingest(BY, "other", "paid", "", run)) == "unknown_run"
    assert driver.state_of(run) == "WAITING"


@pytest.mark.parametrize(("on_timeout", "state"), [("fail", "FAILED"), ("continue", "COMPLETED")])
@pytest.mark.parametrize("kind", ["event", "approval"])
def test_what_does_not_come_in_time_fails_or_lets_the_run_go_on(kind, on_timeout, state):
    node = event() if kind == "event" else {"kind": "approval", "id": "e"}
    driver = flow({**node, "timeout": "1h", "on_timeout": on_timeout})
    run = driver.submit("flow")
    driver.advance(HOUR_MS)

    assert driver.state_of(run) == state
    driver.assert_empty()


def test_an_answer_in_time_ends_the_time_out():
    driver = flow(event(timeout="1h"), task("a", needs=["e"]))
    run = driver.submit("flow")
    signal(driver)
    driver.advance(2 * HOUR_MS)
    driver.finish(run, "a")

    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"event": "no good"}, "name_characters"),
        ({"payload": pack("x" * 2_000)}, "value_too_large"),
        ({"key": "k" * 256}, "key_too_long"),
        ({"run_id": "nobody"}, "unknown_run"),
        ({"tenant": "nobody"}, "unknown_tenant"),
    ],
)
def test_an_event_that_makes_no_sense_is_refused(fields, code):
    driver = flow(event())

    assert driver.refusal(inp.Ingest(**{"by": BY, "tenant": T, "event": "paid", **fields})) == code


def test_an_event_for_a_delayed_run_does_not_start_it_and_is_there_when_it_starts():
    driver = flow(event())
    run = driver.submit("flow", delay_ms=HOUR_MS)
    signal(driver, run=run)
    driver.advance(HOUR_MS // 2)
    assert driver.state_of(run) == "PENDING"

    driver.advance(HOUR_MS)
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.proves("I47")
def test_an_event_that_a_run_can_never_take_is_refused():
    driver = flow(task("a"), event("e", event="paid", needs=["a"]))
    run = driver.submit("flow")

    assert driver.refusal(inp.Ingest(BY, T, "payed", "", run)) == "unknown_event"
    assert "its events are paid" in driver.answers[-1].message
    assert driver.refusal(inp.Ingest(BY, T, "paid", "", run)) == ""
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"


@pytest.mark.parametrize(
    "fields", [{"exits": [{"when": "events.exists(e, e.name == 'x')"}]}, {"policy": ["reads_what_it_likes"]}]
)
def test_an_event_that_a_condition_or_a_policy_may_read_is_kept(fields):
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "reads_what_it_likes", "true", "free", "fail"))
    driver.define("flow", task("a"), **fields)
    run = driver.submit("flow")

    assert driver.refusal(inp.Ingest(BY, T, "x", "", run)) == ""


def test_a_run_keeps_so_many_events_and_refuses_more():
    driver = flow(task("a"), event("e", event="opened", when="false"))
    run = driver.submit("flow")
    driver.expect(*(inp.Ingest(BY, T, "opened", str(n), run) for n in range(1_000)))

    assert driver.refusal(inp.Ingest(BY, T, "opened", "", run)) == "too_many_events"
    driver.finish_all()
    driver.assert_empty()


# ---- what conditions see of events


def leaving():
    return flow(task("a"), event("e", event="other"), exits=[{"when": "events.exists(e, e.name == 'paid')"}])


@pytest.mark.proves("S002-26")
def test_conditions_see_an_event_from_the_tick_after_it_came():
    driver = leaving()
    run = driver.submit("flow")
    driver.expect(inp.Ingest(BY, T, "paid", "", run))
    assert driver.state_of(run) == "ACTIVE"

    driver.send()
    assert driver.state_of(run) == "COMPLETED"


@pytest.mark.proves("S002-26")
@pytest.mark.parametrize("order", [1, -1])
def test_an_event_in_one_tick_with_a_result_is_seen_in_the_next_tick_and_not_forgotten(order):
    driver = leaving()
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.running.clear()
    both = [inp.Succeeded(attempt.task, attempt.attempt), inp.Ingest(BY, T, "paid", "", run)]
    driver.send(*both[::order])
    assert driver.state_of(run) == "WAITING"
    assert driver.machine.next_tick() == driver.tick + 1

    driver.send()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_an_event_that_answered_a_node_is_among_the_events_too():
    driver = flow(event(), task("a", needs=["e"]), exits=[{"when": "events.exists(e, e.name == 'paid')"}])
    run = driver.submit("flow")
    signal(driver)

    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.proves("S002-27", "S002-20")
def test_events_are_seen_in_the_order_in_which_they_came():
    driver = flow(task("a"), task("b", needs=["a"], when="events.map(e, e.key) == ['3', '1', '2']"))
    run = driver.submit("flow")
    driver.send(*(inp.Ingest(BY, T, "opened", key, run) for key in "312"))
    driver.finish(run, "a")

    assert driver.phase(run, "b") == "RUNNING"


# ---- approvals


def approving(**fields):
    return flow({"kind": "approval", "id": "ok", **fields}, task("a", needs=["ok"]))


@pytest.mark.proves("S001-29", "I42", "S001-186")
@pytest.mark.parametrize(
    ("fields", "by", "code"),
    [
        ({}, "bob", ""),
        ({}, BY, ""),
        ({"approvers": ["bob", "eve"]}, "eve", ""),
        ({"approvers": ["bob", "eve"]}, BY, "not_entitled"),
        ({"approvers": ["bob"]}, "BOB", "not_entitled"),
        ({"four_eyes": True}, BY, "four_eyes"),
        ({"four_eyes": True}, "bob", ""),
        ({"four_eyes": True, "approvers": [BY]}, BY, "four_eyes"),
    ],
)
def test_a_step_behind_an_approval_starts_only_after_the_word_of_somebody_entitled(fields, by, code):
    driver = approving(**fields)
    run = driver.submit("flow")
    driver.advance(HOUR_MS)
    assert not driver.started

    assert driver.refusal(inp.Decide(by, T, run, "ok", True)) == code
    assert driver.is_running(run, "a") == (not code)


def test_a_rejection_fails_the_step_and_says_by_whom():
    driver = approving()
    run = driver.submit("flow")
    driver.expect(inp.Decide("bob", T, run, "ok", False, "too dear"))

    assert driver.state_of(run) == "FAILED"
    assert driver.phases(run) == {"ok": "FAILED", "a": "BLOCKED"}
    driver.assert_empty()


@pytest.mark.parametrize("node", ["a", "nothing", ""])
def test_only_a_waiting_approval_takes_an_answer(node):
    driver = approving()
    run = driver.submit("flow")

    assert driver.refusal(inp.Decide("bob", T, run, node, True)) == "not_waiting"


def test_a_second_answer_is_refused():
    driver = approving()
    run = driver.submit("flow")
    driver.expect(inp.Decide("bob", T, run, "ok", True))

    assert driver.refusal(inp.Decide("eve", T, run, "ok", False)) == "already_decided"
    assert driver.is_running(run, "a")


def test_an_answer_to_a_run_that_has_ended_is_told_from_one_to_a_run_that_never_was():
    driver = approving()
    run = driver.submit("flow")
    driver.expect(inp.Decide("bob", T, run, "ok", False))
    assert driver.state_of(run) == "FAILED"

    assert driver.refusal(inp.Decide("eve", T, run, "ok", True, left_as=RunState.FAILED)) == "run_ended"
    assert driver.refusal(inp.Decide("eve", T, "never", "ok", True)) == "unknown_run"


FIELDS = {"go": {"type": "boolean"}, "how": {"type": "string", "enum": ["all", "some"]},
          "limit": {"type": "integer", "maximum": 9, "required": False, "default": 5},
          "note": {"type": "string", "required": False}}  # fmt: skip


def form(**fields):
    return flow(
        {"kind": "approval", "id": "ok", "fields": FIELDS, **fields},
        task("a", needs=["ok"], when="results.ok.go == true && results.ok.how == 'all'"),
        task("b", needs=["ok"], when="results.ok.go == false"),
        task("c", needs=["ok"]),
    )


def fill(run, values, by="bob", comment=""):
    return inp.Decide(by, T, run, "ok", True, comment, values=None if values is None else pack(values))


def test_what_a_person_fills_in_is_the_result_and_decides_what_follows():
    driver = form()
    run = driver.submit("flow")
    driver.expect(fill(run, {"go": True, "how": "all", "limit": 2}, comment="fine"))
    driver.quiet()

    assert driver.run(run).results[0] == pack(
        {"go": True, "how": "all", "limit": 2, "note": None, "by": "bob", "comment": "fine"}
    )
    assert driver.is_running(run, "a") and not driver.is_running(run, "b")


@pytest.mark.parametrize(
    ("values", "code", "path"),
    [
        (None, "missing_field", "values.go"),
        ({"go": True}, "missing_field", "values.how"),
        ({"go": "yes", "how": "all"}, "wrong_type", "values.go"),
        ({"go": True, "how": "none"}, "wrong_value", "values.how"),
        ({"go": True, "how": "all", "limit": 10}, "out_of_range", "values.limit"),
        ({"go": True, "how": "all", "x": 1}, "unknown_field", "values.x"),
        ({"go": True, "how": "all", "note": "x" * 990}, "value_too_large", "values"),
        ([1], "bad_values", "values"),
    ],
)
def test_an_answer_that_does_not_fit_its_form_is_refused_and_changes_nothing(values, code, path):
    driver = form()
    run = driver.submit("flow")
    before = driver.state_of(run), driver.phases(run)

    assert driver.refusal(fill(run, values)) == code
    assert driver.answers[-1].message.startswith(path)
    assert (driver.state_of(run), driver.phases(run)) == before


def test_a_plain_approval_has_no_fields_to_fill_in():
    driver = approving()
    run = driver.submit("flow")

    assert driver.refusal(fill(run, {"go": True})) == "unknown_field"


@pytest.mark.parametrize("default", [{}, {"go": False}, {"go": False, "how": "some", "note": "late"}])
def test_where_the_time_of_a_form_runs_out_it_has_the_default(default):
    driver = form(default=default, timeout_ms=HOUR_MS, on_timeout="continue")
    run = driver.submit("flow")
    driver.advance(HOUR_MS + 1)

    empty = {"go": None, "how": None, "limit": 5, "note": None, "by": "", "comment": ""}
    assert driver.run(run).results[0] == pack(empty | default)


def test_a_form_can_be_rejected_like_an_approval():
    driver = form(approvers=["bob"])
    run = driver.submit("flow")
    assert driver.refusal(fill(run, {"go": True, "how": "all"}, by="eve")) == "not_entitled"
    driver.expect(inp.Decide("bob", T, run, "ok", False, "not mine"))

    assert driver.phases(run)["ok"] == "FAILED"


@pytest.mark.proves("I42")
def test_whoever_changed_a_debounced_run_cannot_approve_it():
    driver = approving(four_eyes=True)
    run = driver.submit("flow", delay_ms=1_000, debounce="d")
    driver.send(inp.Submit("bob", T, "again", "flow", None, inp.SubmitOptions(delay_ms=1_000, debounce="d")))
    driver.advance(2_000)

    assert driver.refusal(inp.Decide("bob", T, run, "ok", True)) == "four_eyes"
