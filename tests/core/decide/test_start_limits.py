"""Rates of workflows, and what a run does whose concurrency key is taken."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack
from tickwork.core.explain.why_not import why_not
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RateKeysSwept, RunMoved, RunRated
from tickwork.core.state.lifecycle import RunTrigger

CUSTOMER = {"who": {"type": "string"}}


def flow(driver=None, **fields):
    driver = driver or Driver()
    driver.define("flow", task("a"), inputs=CUSTOMER, **fields)
    return driver


def rate(limit=2, per_ms=10_000, **more):
    return {"rate": {"limit": limit, "per_ms": per_ms, "key": "inputs.who", **more}}


def submitted(driver, *names, who="x"):
    return [driver.submit("flow", name, inputs={"who": who}) for name in names]


def states(driver, *names):
    return [driver.state_of(name) for name in names]


def reason(driver, name):
    """Why it ended."""
    number = driver.number_of(name)
    return [event.reason for event in driver.events(RunMoved) if event.run == number][-1]


def began_ms(driver):
    return sorted(
        tick for tick, _, events in driver.rows for event in events
        if isinstance(event, RunMoved) and event.trigger == RunTrigger.START
    )  # fmt: skip


# ---- rates


def test_runs_beyond_their_rate_wait_for_their_turn_and_each_key_has_its_own():
    driver = flow(**rate())
    submitted(driver, "a", "b", "c", "d")
    submitted(driver, "other", who="y")
    assert states(driver, "a", "b", "c", "d", "other") == ["ACTIVE", "ACTIVE", "PENDING", "PENDING", "ACTIVE"]

    first = [driver.run(name).start_at for name in ("c", "d")]
    assert first[1] - first[0] == 5_000, "each books the next moment"
    driver.advance(first[0] - driver.tick)
    assert states(driver, "c", "d") == ["ACTIVE", "PENDING"]
    driver.advance(5_000)
    assert states(driver, "d") == ["ACTIVE"]
    driver.finish_all()
    driver.assert_empty()


def test_no_more_runs_begin_in_any_window_than_the_bucket_and_what_flows_into_it():
    driver = flow(**rate(limit=3, per_ms=3_000))
    for number in range(40):
        submitted(driver, f"r{number}")
        driver.advance(137)
    driver.advance(60_000)
    began = began_ms(driver)

    assert len(began) == 40
    for index, at in enumerate(began):
        within = [other for other in began[index:] if other < at + 3_000]
        assert len(within) <= 6
    assert began[39] - began[0] >= 36_000


def test_a_run_beyond_its_rate_is_dropped_where_the_workflow_says_so():
    driver = flow(**rate(over="drop"))
    submitted(driver, "a", "b", "c")
    assert states(driver, "a", "b", "c") == ["ACTIVE", "ACTIVE", "CANCELLED"]
    assert "2 runs may begin in 10s for 'x', and these have begun: the next may begin at " in reason(driver, "c")

    driver.advance(5_001)
    submitted(driver, "d")
    assert states(driver, "d") == ["ACTIVE"]


def test_of_the_runs_beyond_their_rate_only_the_last_waits_where_the_workflow_says_so():
    driver = flow(**rate(over="last"))
    submitted(driver, "a", "b", "c")
    at = driver.run("c").start_at
    driver.advance(1_000)
    submitted(driver, "d", "e")

    assert states(driver, "c", "d", "e") == ["CANCELLED", "CANCELLED", "PENDING"]
    assert driver.run("e").start_at == at, "it takes the moment of the one before"
    assert reason(driver, "c").endswith("the later run d takes its place")
    driver.advance(at - driver.tick)
    assert states(driver, "e") == ["ACTIVE"]
    submitted(driver, "f")
    assert states(driver, "f") == ["PENDING"]
    driver.expect(inp.Cancel(BY, T, "f"))
    submitted(driver, "g")
    assert states(driver, "g") == ["PENDING"]
    driver.advance(30_000)
    driver.finish_all()
    driver.assert_empty()


def test_a_debounced_run_takes_its_turn_when_its_delay_is_over():
    driver = flow(**rate(limit=1))
    submitted(driver, "a")
    terms = inp.SubmitOptions(debounce="d", delay_ms=100)
    driver.send(inp.Submit(BY, T, "b", "flow", pack({"who": "x"}), terms))
    driver.advance(101)

    assert "10s" in why_not(driver.state, T, "b").obstacles[0].text
    driver.send(inp.Submit(BY, T, "c", "flow", pack({"who": "x"}), terms))
    assert driver.state_of("c") == "PENDING", "the debounce key is free again"
    driver.advance(60_000)
    driver.finish_all()
    driver.assert_empty()


def test_a_run_whose_rate_key_cannot_be_told_never_starts():
    driver = flow(rate={"limit": 1, "per_ms": 1_000, "key": "inputs.who.z"})

    assert states(driver, *submitted(driver, "a")) == ["CANCELLED"]


def test_why_says_until_when_the_rate_holds_a_run():
    driver = flow(**rate())
    submitted(driver, "a", "b", "c")
    [obstacle] = why_not(driver.state, T, "c").obstacles

    assert obstacle.held == "rate" and obstacle.until == driver.run("c").start_at
    assert obstacle.text.startswith("2 runs may begin in 10s for 'x': it starts at ")
    assert obstacle.facts == {"key": "x", "limit": 2, "per_ms": 10_000}


def test_keys_are_forgotten_when_their_buckets_are_full():
    driver = flow(**rate(limit=1, per_ms=90_000))
    for number in range(50):
        submitted(driver, f"r{number}", who=f"customer {number}")
    driver.finish_all()
    keys = driver.state.tenants[T].rates["flow"]
    assert len(keys) == 50
    driver.advance(60_001)
    assert len(keys) == 50
    driver.advance(60_001)

    assert driver.state.tenants[T].rates == {} and driver.state.rate_keys_due == 0
    assert len(driver.events(RateKeysSwept)) == 2
    driver.assert_empty()


def test_rates_come_back_as_they_were():
    driver = flow(**rate(over="last"))
    submitted(driver, "a", "b", "c")
    submitted(driver, "y", who="y")
    pieces = capture(driver.state)
    again = restore(pieces.header, pieces.documents, pieces.runs, pieces.tasks, pieces.schedules)

    assert digest(again) == digest(driver.state)
    assert again.tenants[T].rates["flow"]["x"].waiting == driver.run("c").number
    assert list(again.wheel.items()) == list(driver.state.wheel.items())


def test_a_new_version_of_a_rate_counts_for_the_runs_that_come_under_it():
    driver = flow(**rate(limit=1))
    submitted(driver, "a")
    driver.define("flow", task("a"), inputs=CUSTOMER, **rate(limit=100))
    submitted(driver, "b")

    assert driver.run("b").start_at - driver.tick <= 100, "by the old rate it would be 10 s"
    assert len(driver.events(RunRated)) == 2


# ---- a taken concurrency key


def singleton(second, limit=1):
    return {"concurrency": {"limit": limit, "key": "inputs.who", "second": second}}


def test_a_run_whose_key_is_taken_is_skipped_where_the_workflow_says_so():
    driver = flow(**singleton("skip"))
    submitted(driver, "a", "b")
    submitted(driver, "other", who="y")
    assert states(driver, "a", "b", "other") == ["ACTIVE", "CANCELLED", "ACTIVE"]
    assert reason(driver, "b") == "the concurrency key 'x' is taken"

    driver.finish_all()
    submitted(driver, "c")
    assert states(driver, "c") == ["ACTIVE"]


def test_a_later_run_replaces_the_one_that_has_the_key():
    driver = flow(**singleton("replace"))
    submitted(driver, "a", "b", "c")
    assert states(driver, "a", "b", "c") == ["CANCELLED", "CANCELLED", "ACTIVE"]
    assert reason(driver, "b") == "the later run c takes its concurrency key 'x'"

    driver.finish_all()
    driver.assert_empty()


def test_a_run_that_is_replaced_tears_down_first_and_the_last_of_those_that_wait_comes_next():
    driver = Driver()
    nodes = (task("up"), task("work", needs=["up"]), task("down", needs=["up", "work"], teardown={"of": "up"}))
    driver.define("flow", *nodes, inputs=CUSTOMER, **singleton("replace"))
    submitted(driver, "a")
    driver.finish("a", "up")
    submitted(driver, "b", "c")
    assert states(driver, "b", "c") == ["CANCELLED", "PENDING"]

    driver.finish("a", "down")
    assert states(driver, "a", "c") == ["CANCELLED", "ACTIVE"]


def test_one_run_waits_for_a_taken_key_where_the_workflow_says_so():
    driver = flow(**singleton("buffer_one"))
    submitted(driver, "a", "b", "c")
    assert states(driver, "a", "b", "c") == ["ACTIVE", "PENDING", "CANCELLED"]
    assert reason(driver, "c") == "the concurrency key 'x' is taken, and run b waits for it"

    driver.finish("a", "a")
    assert states(driver, "b") == ["ACTIVE"]
    submitted(driver, "d", "e")
    assert states(driver, "d", "e") == ["PENDING", "CANCELLED"]


@pytest.mark.parametrize("second", ["skip", "replace", "buffer_one"])
def test_holders_come_back_as_they_were(second):
    driver = flow(**singleton(second))
    submitted(driver, "a", "b", "c")
    pieces = capture(driver.state)
    again = restore(pieces.header, pieces.documents, pieces.runs, pieces.tasks, pieces.schedules)

    assert digest(again) == digest(driver.state)
    assert again.tenants[T].gates["flow", "x"].holder == driver.state.tenants[T].gates["flow", "x"].holder
