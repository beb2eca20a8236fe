"""What is accepted as a run, what is known already, and what is refused."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import EncryptedValue, Ref, pack
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import Duplicate, GateTaken, InputRefused, RunGated, RunSubmitted

DAY_MS = 86_400_000


def flow(*nodes, driver=None, **fields):
    driver = driver or Driver()
    driver.define("flow", *(nodes or [task("a")]), **fields)
    return driver


def ask(run_id="r", workflow="flow", tenant=T, inputs=None, **terms):
    return inp.Submit(BY, tenant, run_id, workflow, inputs, inp.SubmitOptions(**terms) if terms else None)


def runs(driver):
    return len(driver.events(RunSubmitted))


# ---- the same request again


@pytest.mark.parametrize("terms", [{}, {"key": "k", "body": "x"}])
def test_the_same_run_id_is_the_same_run(terms):
    driver = flow()
    driver.send(ask(**terms), ask(**terms))
    driver.send(ask(**terms))

    assert runs(driver) == 1
    assert [answer.run_id for answer in driver.answers] == ["r", "r"]
    assert len(driver.events(Duplicate)) == 2


def test_the_same_key_within_the_window_answers_with_the_first_run():
    driver = flow()
    driver.send(ask("r1", key="k", body="x"))
    driver.advance(DAY_MS - 1_000)
    driver.send(ask("r2", key="k", body="x"))

    assert runs(driver) == 1
    assert driver.answers[-1].run_id == "r1"


def test_the_same_key_with_another_request_is_refused():
    driver = flow()
    driver.send(ask("r1", key="k", body="x"))

    assert driver.refusal(ask("r2", key="k", body="y")) == "key_reused"
    assert driver.refusal(ask("r1", body="y")) == "key_reused"
    assert runs(driver) == 1


def test_keys_of_two_tenants_have_nothing_to_do_with_each_other():
    driver = flow()
    driver.send(inp.PutTenant(BY, "other"))
    driver.define("flow", task("a"), tenant="other")
    driver.send(ask("r", key="k", body="x"), ask("r", tenant="other", key="k", body="y"))

    assert runs(driver) == 2


KNOWN_CASES = [
    ({"run_id": "old", "body": "x", "age_ms": DAY_MS - 10}, "old", ""),  # within the window
    ({"run_id": "old", "body": "y", "age_ms": DAY_MS - 10}, "", "key_reused"),
    ({"run_id": "old", "body": "x", "age_ms": DAY_MS}, "r", ""),  # after it, the key is free
    ({"run_id": "r", "body": "x", "age_ms": 9 * DAY_MS}, "r", ""),  # an id is known for ever
    ({"run_id": "r", "body": "y", "age_ms": 9 * DAY_MS}, "", "key_reused"),
]


@pytest.mark.parametrize(("known", "run_id", "code"), KNOWN_CASES)
def test_a_run_that_left_memory_is_known_by_the_fact_beside_the_request(known, run_id, code):
    driver = flow()
    driver.send(at=20 * DAY_MS)
    fact = inp.KnownRun(known["run_id"], known["body"], driver.tick + 1 - known["age_ms"])
    refused = driver.refusal(ask("r", key="k", body="x", known=fact))
    driver.quiet()

    assert refused == code
    assert runs(driver) == (1 if run_id == "r" and known["run_id"] == "old" else 0)
    if run_id and not runs(driver):
        assert driver.answers[-1].run_id == run_id


def test_after_the_window_a_key_makes_a_new_run():
    driver = flow()
    driver.submit("flow", "r1", key="k", body="x")
    driver.finish("r1", "a")
    driver.advance(DAY_MS)
    driver.submit("flow", "r2", key="k", body="other")

    assert runs(driver) == 2
    driver.finish("r2", "a")
    driver.assert_empty()


def test_a_key_of_a_run_that_goes_on_after_the_window_is_not_given_away():
    driver = flow()
    driver.submit("flow", "r1", key="k")
    driver.advance(DAY_MS)

    assert driver.refusal(ask("r2", key="k")) == "key_in_use"


def test_a_failed_run_that_is_brought_back_leaves_its_key_to_whoever_has_it_now():
    driver = flow()
    driver.submit("flow", "r1", key="k")
    driver.fail("r1", "a")
    driver.advance(DAY_MS)
    driver.submit("flow", "r2", key="k")
    driver.expect(inp.Resolve(BY, T, "r1", "again", record=driver.records["r1"]))
    assert driver.refusal(ask("r3", key="k")) == ""
    assert driver.answers[-1].run_id == "r2"

    driver.finish_all()
    driver.assert_empty()


# ---- later


@pytest.mark.proves("S002-03")
@pytest.mark.parametrize("how", ["delay", "start_at"])
def test_a_delayed_run_is_pending_until_its_time_and_then_starts(how):
    driver = flow()
    when = {"delay_ms": 60_000} if how == "delay" else {"start_at_ms": driver.now_ms + 60_001}
    run = driver.submit("flow", **when)
    driver.advance(59_000)
    assert driver.state_of(run) == "PENDING"

    driver.advance(1_001)
    assert driver.state_of(run) == "ACTIVE"
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.parametrize("terms", [{"delay_ms": 0}, {"start_at_ms": 0}])
def test_a_start_that_lies_in_the_past_is_now(terms):
    driver = flow()

    assert driver.state_of(driver.submit("flow", **terms)) == "ACTIVE"


def test_a_debounced_run_starts_once_with_the_last_inputs_when_no_more_came():
    driver = flow(inputs={"n": {"type": "integer"}})
    for n in range(3):
        driver.send(ask(f"r{n}", inputs=pack({"n": n}), delay_ms=10_000, debounce="d"))
        driver.advance(9_000)
    assert driver.state_of("r0") == "PENDING"
    assert [answer.run_id for answer in driver.answers if answer.run_id] == ["r0", "r0"]

    driver.advance(2_000)
    assert runs(driver) == 1
    assert driver.run("r0").inputs == pack({"n": 2})
    driver.finish("r0", "a")
    driver.assert_empty()


@pytest.mark.parametrize(("at_most_ms", "starts_ms"), [(None, 34_000), (25_000, 25_000), (60_000, 34_000)])
def test_a_debounced_run_starts_at_the_latest_when_it_may_however_often_it_is_submitted(at_most_ms, starts_ms):
    driver = flow()
    first = driver.now_ms
    for n in range(4):
        driver.submit("flow", f"r{n}", delay_ms=10_000, debounce="d", at_most_ms=at_most_ms)
        if n < 3:
            driver.advance(8_000)
    assert [answer.run_id for answer in driver.answers if answer.run_id] == ["r0"] * 3

    driver.advance(first + starts_ms - driver.now_ms - 500)
    assert driver.state_of("r0") == "PENDING"
    driver.advance(1_000)
    assert driver.state_of("r0") == "ACTIVE"


def test_a_later_submission_with_less_patience_starts_a_debounced_run_at_once():
    driver = flow()
    driver.submit("flow", "r1", delay_ms=60_000, debounce="d")
    driver.advance(30_000)
    driver.submit("flow", "r2", delay_ms=5_000, debounce="d", at_most_ms=20_000)
    driver.advance(2)

    assert driver.state_of("r1") == "ACTIVE"


def test_a_debounce_key_counts_for_its_own_workflow_only():
    driver = flow(inputs={"n": {"type": "integer"}})
    driver.define("other", task("a"), inputs={"s": {"type": "string"}})
    driver.send(ask("r1", inputs=pack({"n": 1}), delay_ms=10_000, debounce="d"))
    driver.send(ask("r2", "other", inputs=pack({"s": "x"}), delay_ms=10_000, debounce="d"))

    assert runs(driver) == 2
    assert driver.run("r1").inputs == pack({"n": 1})


def test_what_a_debounced_run_is_given_fits_the_version_it_was_accepted_with():
    driver = flow(inputs={"n": {"type": "integer"}})
    driver.send(ask("r1", inputs=pack({"n": 1}), delay_ms=10_000, debounce="d"))
    driver.define("flow", task("a"), inputs={"s": {"type": "string"}})

    assert driver.refusal(ask("r2", inputs=pack({"s": "x"}), delay_ms=10_000, debounce="d")) == "unknown_input"
    assert driver.run("r1").inputs == pack({"n": 1})


def test_after_it_started_a_debounced_run_is_left_alone():
    driver = flow()
    driver.submit("flow", "r1", delay_ms=1_000, debounce="d")
    driver.advance(2_000)
    driver.submit("flow", "r2", delay_ms=1_000, debounce="d")

    assert runs(driver) == 2
    driver.finish("r1", "a")
    driver.advance(2_000)
    driver.finish("r2", "a")
    driver.assert_empty()


# ---- refused

REFUSED = [
    (ask(tenant="nobody"), "unknown_tenant"),
    (ask(tenant=""), "unknown_tenant"),
    (ask(workflow="nothing"), "unknown_workflow"),
    (ask(workflow="' or 1=1 --"), "unknown_workflow"),
    (ask(definition="0" * 64), "unknown_workflow"),
    (ask(delay_ms=-1), "bad_delay"),
    (ask(delay_ms=1 << 62), "bad_delay"),
    (ask(start_at_ms=1 << 62), "bad_delay"),
    (ask(start_at_ms=5, delay_ms=5), "two_start_times"),
    (ask(debounce="d"), "debounce_without_delay"),
    (ask(at_most_ms=5), "at_most_without_debounce"),
    (ask(delay_ms=5, at_most_ms=5), "at_most_without_debounce"),
    (ask(delay_ms=5, at_most_ms=4, debounce="d"), "bad_at_most"),
    (ask(delay_ms=5, at_most_ms=-1, debounce="d"), "bad_at_most"),
    (ask(delay_ms=5, at_most_ms=1 << 62, debounce="d"), "bad_at_most"),
    (ask(priority=10), "bad_priority"),
    (ask(priority=-1), "bad_priority"),
    (ask(key="k" * 256), "key_too_long"),
    (ask(body="k" * 256), "key_too_long"),
    (ask(debounce="k" * 256, delay_ms=5), "key_too_long"),
]


@pytest.mark.parametrize(("asked", "code"), REFUSED)
def test_a_request_that_makes_no_sense_is_refused_and_changes_nothing(asked, code):
    driver = flow()

    assert driver.refusal(asked) == code
    assert driver.events(InputRefused)[-1].code == code
    driver.assert_empty()


HOSTILE = [
    "",
    " ",
    "-r",
    ".r",
    "a b",
    "a\n",
    "a\0",
    "a/b",
    "../x",
    "a'b",
    'a"b',
    "a;b",
    "a%",
    "*",
    "ä",
    "\u202e",
    "x" * 256,
]


@pytest.mark.proves("B6")
@pytest.mark.parametrize("run_id", HOSTILE)
def test_an_id_with_a_second_meaning_is_never_given_to_a_run_and_unknown_everywhere(run_id):
    driver = flow()

    assert driver.refusal(ask(run_id)) == "bad_run_id"
    for asked in (
        inp.Cancel(BY, T, run_id),
        inp.Pause(BY, "run", T, run_id),
        inp.Resume(BY, "run", T, run_id),
        inp.Resolve(BY, T, run_id, "why"),
        inp.Decide(BY, T, run_id, "a", True),
    ):
        assert driver.refusal(asked) == "unknown_run"
    driver.assert_empty()


@pytest.mark.proves("B6")
def test_a_run_of_another_tenant_looks_like_one_that_never_was():
    driver = flow()
    driver.send(inp.PutTenant(BY, "other"))
    run = driver.submit("flow")
    for name in (run, "never"):
        driver.send(inp.Cancel(BY, "other", name))
    first, second = driver.answers[-2:]

    assert (first.code, first.message.replace(run, "never")) == (second.code, second.message)
    assert driver.state_of(run) == "ACTIVE"


@pytest.mark.proves("B6")
def test_a_version_is_asked_for_by_its_hash_and_only_by_its_own_tenant():
    driver = flow()
    driver.send(inp.PutTenant(BY, "other"))
    driver.define("flow", task("b"), tenant="other")
    older, newer = (driver.state.tenants[name].plans["flow"].hash for name in (T, "other"))
    driver.define("flow", task("c"))

    assert driver.refusal(ask("r1", definition=newer)) == "unknown_workflow"
    assert driver.refusal(ask("r2", definition=older)) == ""
    assert list(driver.phases("r2")) == ["a"]


FIELDS = {
    "n": {"type": "integer", "minimum": 1},
    "s": {"type": "string", "default": "x"},
    "o": {"type": "any", "required": False},
    "key": {"type": "string", "secret": True, "required": False},
}
INPUTS = [
    ({"n": 1}, ""),
    ({"n": 1, "s": "y", "o": [1]}, ""),
    ({"n": 1, "key": "secret:api"}, ""),
    ({}, "missing_input"),
    (None, "missing_input"),
    ({"n": 0}, "out_of_range"),
    ({"n": "1"}, "wrong_type"),
    ({"n": True}, "wrong_type"),
    ({"n": 1, "zzz": 1}, "unknown_input"),
    ({"n": 1, "key": "hunter2"}, "secret_value"),
    ({"n": 1, "key": "secret:a b"}, "name_characters"),
    ([1], "bad_inputs"),
    (5, "bad_inputs"),
    ({"n": 1, "o": "x" * 2_000}, "value_too_large"),
]


@pytest.mark.parametrize(("inputs", "code"), INPUTS)
def test_inputs_are_checked_against_their_declaration(inputs, code):
    driver = flow(inputs=FIELDS)

    assert driver.refusal(ask(inputs=None if inputs is None else pack(inputs))) == code
    assert not any("hunter2" in answer.message for answer in driver.answers)


@pytest.mark.parametrize("garbage", [b"\xc1", b"", b"\x81", b"\xd9\xff", b"\x81\xa2\xff\xfe\x01"])
def test_inputs_that_are_no_values_at_all_are_refused(garbage):
    driver = flow(inputs=FIELDS)

    assert driver.refusal(ask(inputs=garbage)) == "bad_value"


@pytest.mark.parametrize("value", [Ref("digest", 9_000), EncryptedValue("anna", "k1", b"...")])
def test_inputs_that_are_not_inline_were_checked_where_they_were_stored(value):
    driver = flow(inputs=FIELDS)

    assert driver.refusal(ask(inputs=value)) == ""


def test_defaults_step_in_where_nothing_was_given():
    driver = flow(task("a", when="inputs.s == 'x'"), inputs=FIELDS)
    run = driver.submit("flow", inputs={"n": 1})

    assert driver.is_running(run, "a")


@pytest.mark.proves("I47")
@pytest.mark.parametrize("scope", ["partition", "tenant"])
def test_what_is_too_much_is_refused_before_it_is_accepted(scope):
    driver = flow(driver=Driver(max_live_runs=2) if scope == "partition" else Driver())
    if scope == "tenant":
        driver.send(inp.PutTenant(BY, T, max_live_runs=2))
    driver.submit("flow", "r1")
    driver.submit("flow", "r2")
    assert driver.refusal(ask("r3")) == "overloaded"
    assert driver.refusal(ask("r2")) == ""  # known already

    driver.finish("r1", "a")
    assert driver.refusal(ask("r3")) == ""


# ---- concurrency keys


def test_runs_behind_a_taken_key_start_one_after_the_other_in_order_of_arrival():
    driver = flow(concurrency={"limit": 1, "key": "inputs.k"}, inputs={"k": {"type": "string"}})
    same = [driver.submit("flow", name, inputs={"k": "x"}) for name in ("c", "b", "a")]
    other = driver.submit("flow", inputs={"k": "y"})
    assert [driver.state_of(run) for run in (*same, other)] == ["ACTIVE", "PENDING", "PENDING", "ACTIVE"]

    driver.expect(inp.Cancel(BY, T, "b"))
    driver.finish("c", "a")
    assert driver.state_of("a") == "ACTIVE"
    driver.finish_all()
    assert (len(driver.events(RunGated)), len(driver.events(GateTaken))) == (2, 2)
    driver.assert_empty()


def test_a_run_whose_concurrency_key_cannot_be_told_never_starts():
    driver = flow(concurrency={"limit": 1, "key": "inputs.k.z"}, inputs={"k": {"type": "any"}})
    run = driver.submit("flow", inputs={"k": 1})

    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()
