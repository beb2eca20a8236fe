"""Who may start: limits, rates, priority, pauses, and the reason recorded for whoever may not."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver import BY, Driver, T, task
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import QueueHeld, RateDue

GPU = {"labels": {"gpu": "true"}}


def with_runs(driver, count, *, node=None, tenant=T, name="flow", **fields):
    """So many runs of one node are submitted in one tick."""
    driver.define(name, node or task("a"), tenant=tenant, **fields)
    submit(driver, name, count, tenant=tenant)
    return driver


def submit(driver, name, count, *, tenant=T, **terms):
    extra = inp.SubmitOptions(**terms) if terms else None
    first = driver.last_run + 1
    driver.last_run += count
    made = [inp.Submit(BY, tenant, f"r{number:04}", name, None, extra) for number in range(first, first + count)]
    driver.expect(*made)
    driver.quiet()


def holds(driver):
    return [(event.reason, event.by) for event in driver.events(QueueHeld)]


def end(driver, count):
    for _ in range(count):
        attempt = driver.running.pop(min(driver.running))
        driver.send(inp.Succeeded(attempt.task, attempt.attempt))
    driver.quiet()


LIMITS = [
    (inp.PutTenant(BY, T, limit=3), "tenant:acme", "S001-11"),
    (inp.PutQueue(BY, "default", limit=3), "queue:default", "S001-10"),
    (inp.PutLabelLimit(BY, "gpu", "true", 3), "label:gpu=true", "S001-102"),
]


@pytest.mark.proves("I43", "S001-10", "S001-11", "S001-101", "S001-102")
@pytest.mark.parametrize(("put", "by", "_id"), LIMITS)
def test_no_more_attempts_run_at_once_than_the_limit(put, by, _id):
    driver = Driver()
    driver.send(inp.Offer("w1", 1_000, labels={"gpu": "true"}), put)
    with_runs(driver, 10, node=task("a", **GPU))

    assert len(driver.running) == 3
    assert holds(driver) == [("limit", by)]
    end(driver, 1)
    assert len(driver.running) == 3
    assert driver.finish_all() == 9
    assert holds(driver) == [("limit", by)], "a limit that goes on holding is not recorded again"


@pytest.mark.proves("I43")
@pytest.mark.parametrize(("put", "by", "_id"), LIMITS)
def test_a_lowered_limit_stops_new_starts_only(put, by, _id):
    driver = Driver()
    driver.send(inp.Offer("w1", 1_000, labels={"gpu": "true"}))
    with_runs(driver, 5, node=task("a", **GPU))
    driver.send(put)
    submit(driver, "flow", 2)

    assert len(driver.running) == 5 and not driver.stopped
    end(driver, 2)
    assert len(driver.running) == 3, "three still run, and three is the limit"
    end(driver, 1)
    assert len(driver.running) == 3


def test_a_raised_limit_lets_the_rest_start_at_once():
    driver = Driver()
    driver.send(inp.PutQueue(BY, "default", limit=2))
    with_runs(driver, 6)
    driver.expect(inp.PutQueue(BY, "default"))

    assert len(driver.running) == 6


@pytest.mark.parametrize(("limit", "key", "running"), [(2, "", 2), (1, "inputs.who", 3)])
def test_a_concurrency_key_limits_the_runs_of_one_workflow(limit, key, running):
    driver = Driver()
    driver.define("flow", task("a"), concurrency={"limit": limit, "key": key}, inputs={"who": {"type": "string"}})
    runs = [driver.submit("flow", inputs={"who": who}) for who in ("x", "y", "z", "x", "y")]

    assert len(driver.running) == running
    driver.finish(runs[0], "a")
    assert len(driver.running) == running, "the next in line takes its place"
    driver.finish_all()
    assert {driver.state_of(run) for run in runs} == {"COMPLETED"}
    assert driver.state.tenants[T].gates == {}, "a key that nobody holds takes no memory"


@given(
    rate=st.tuples(st.integers(1, 5), st.sampled_from([7, 100, 1_000]), st.integers(1, 4)),
    steps=st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4)), max_size=25),
    scope=st.sampled_from(["tenant", "queue"]),
)
@settings(max_examples=60)
@pytest.mark.proves("I44", "S001-26")
def test_in_every_window_no_more_start_than_burst_and_rate_allow(rate, steps, scope):
    starts, per_ms, burst = rate
    driver = Driver()
    fields = {"rate_starts": starts, "rate_ms": per_ms, "burst": burst}
    driver.send(inp.PutTenant(BY, T, **fields) if scope == "tenant" else inp.PutQueue(BY, "default", **fields))
    with_runs(driver, 5)
    for pause, count in steps:
        driver.advance(pause)
        submit(driver, "flow", count)
    times = [tick for tick, _, events in driver.rows for event in events if type(event).__name__ == "TaskDispatched"]

    for first in range(len(times)):
        for last in range(first, len(times)):
            window = times[last] - times[first]
            assert (last - first + 1 - burst) * per_ms <= starts * window


@given(
    rate=st.tuples(st.integers(1, 5), st.sampled_from([7, 100, 2_000])),
    steps=st.lists(st.tuples(st.integers(0, 900), st.integers(1, 5)), min_size=1, max_size=8),
    again=st.sampled_from([None, "put again", "restored"]),
    scope=st.sampled_from(["tenant", "queue"]),
)
@pytest.mark.proves("I44", "S001-26")
def test_no_stretch_of_a_sliding_window_has_more_starts_than_its_rate(rate, steps, again, scope):
    starts, per_ms = rate
    driver = Driver()
    fields = {"rate_starts": starts, "rate_ms": per_ms, "window": "sliding"}
    put = inp.PutTenant(BY, T, **fields) if scope == "tenant" else inp.PutQueue(BY, "default", **fields)
    driver.expect(put)
    with_runs(driver, 5)
    for pause, count in steps:
        driver.advance(pause)
        if again == "put again":
            driver.expect(put)
        elif again == "restored":
            driver.machine = Machine(restore(*capture(driver.state)))
            driver.state = driver.machine.state
        submit(driver, "flow", count)
    driver.advance((5 + 5 * len(steps)) * per_ms)
    times = [tick for tick, _, events in driver.rows for event in events if type(event).__name__ == "TaskDispatched"]

    assert len(times) == 5 + sum(count for _, count in steps), "everything starts in the end"
    assert all(later - earlier >= per_ms for earlier, later in zip(times, times[starts:], strict=False))
    gauge = driver.state.tenants[T].gauge if scope == "tenant" else driver.state.queues["default"].gauge
    assert len(gauge.starts) <= 2 * starts


def test_five_in_two_seconds_are_nine_by_a_bucket_and_five_by_a_sliding_window():
    found = {}
    for window in ("bucket", "sliding"):
        driver = Driver()
        driver.expect(inp.PutQueue(BY, "default", rate_starts=5, rate_ms=2_000, window=window))
        with_runs(driver, 20)
        driver.advance(1_990)
        found[window] = len(driver.started)

    assert found == {"bucket": 9, "sliding": 5}


def test_a_sliding_window_lets_the_next_start_as_soon_as_the_first_has_left_it():
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "default", rate_starts=2, rate_ms=1_000, window="sliding"))
    with_runs(driver, 1)
    driver.advance(400)
    submit(driver, "flow", 4)
    driver.advance(3_000)
    times = [tick for tick, _, events in driver.rows for event in events if type(event).__name__ == "TaskDispatched"]
    wait = times[1] - times[0]

    assert [later - earlier for earlier, later in pairwise(times)] == [wait, 1_000 - wait, wait, 1_000 - wait]


@pytest.mark.parametrize("window", ["sliding", "bucket"])
def test_a_change_between_bucket_and_sliding_window_earns_nothing(window):
    other = "bucket" if window == "sliding" else "sliding"
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "default", rate_starts=3, rate_ms=100_000, window=window))
    with_runs(driver, 9)
    driver.expect(inp.PutQueue(BY, "default", rate_starts=3, rate_ms=100_000, window=other))
    driver.quiet()

    assert len(driver.started) == 3


def test_a_rate_lets_the_rest_start_as_soon_as_it_allows():
    driver = Driver()
    driver.send(inp.PutQueue(BY, "default", rate_starts=2, rate_ms=1_000, burst=2))
    with_runs(driver, 6)
    begun, times = driver.tick, []
    for _ in range(4):
        driver.advance(500)
        times.append((driver.tick - begun, len(driver.started)))

    assert times == [(500, 3), (1_000, 4), (1_500, 5), (2_000, 6)]


@pytest.mark.parametrize("again", [{"burst": 4}, {"burst": 100}, {"rate_starts": 5}, {"rate_ms": 100}])
def test_a_changed_rate_earns_nothing(again):
    driver = Driver()
    rate = {"rate_starts": 1, "rate_ms": 100_000, "burst": 4}
    driver.send(inp.PutQueue(BY, "default", **rate))
    with_runs(driver, 20)
    for _ in range(5):
        driver.send(inp.PutQueue(BY, "default", **{**rate, **again}))
        driver.send(inp.PutQueue(BY, "default", **rate))

    assert len(driver.started) == 4


def test_a_rate_that_is_put_again_and_again_still_lets_work_through():
    driver = Driver()
    rate = inp.PutQueue(BY, "default", rate_starts=1, rate_ms=100, burst=1)
    driver.send(rate)
    with_runs(driver, 11)
    begun = driver.tick
    while driver.tick < begun + 1_000:
        driver.advance(9)
        driver.send(rate)

    assert len(driver.started) == 11


def test_a_lane_that_a_limit_held_is_started_when_the_rate_allows():
    driver = Driver()
    driver.send(inp.PutQueue(BY, "default", limit=1, rate_starts=1, rate_ms=1_000, burst=1))
    with_runs(driver, 2)
    driver.advance(100)
    end(driver, 1)

    driver.advance(1_000)
    assert len(driver.started) == 2


def test_a_waiting_lane_is_not_forgotten_when_the_one_with_the_timer_leaves():
    driver = Driver()
    driver.send(inp.PutQueue(BY, "default", limit=1, rate_starts=1, rate_ms=1_000, burst=1))
    driver.define("one", task("a"))
    driver.define("two", task("a", priority=9))
    driver.submit("one")
    low, high = driver.submit("one"), driver.submit("two")
    driver.finish("r0001", "a")
    driver.expect(inp.Cancel(BY, T, high))
    driver.advance(1_000)

    assert driver.is_running(low, "a")


@pytest.mark.proves("I59", "S001-09")
def test_within_a_queue_the_higher_priority_goes_first():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    for priority in (3, 9, 0, 5, 9):
        driver.submit("flow", priority=priority)
    driver.send(inp.Offer("w1", 1))
    driver.finish_all()
    ids = {record.number: record.run_id for record in driver.records.values()}

    assert [ids[effect.task] for effect in driver.started] == ["r0002", "r0005", "r0004", "r0001", "r0003"]


@pytest.mark.proves("I59", "S001-09")
@pytest.mark.parametrize(("gap_ms", "first"), [(999, "high"), (1_001, "low")])
def test_waiting_long_enough_outweighs_a_level_of_priority(gap_ms, first):
    driver = Driver(credit=0, ageing_ms=1_000)
    driver.define("flow", task("a"))
    driver.submit("flow", "low", priority=4)
    driver.send(at=driver.tick + gap_ms - 1)
    driver.submit("flow", "high", priority=5)
    driver.send(inp.Offer("w1", 1))

    assert driver.is_running(first, "a")


@pytest.mark.proves("I45")
def test_nothing_is_passed_by_what_came_the_whole_ageing_bound_later():
    driver = Driver(credit=0, ageing_ms=10)
    driver.define("flow", task("a"))
    driver.submit("flow", "old", priority=0)
    driver.send(at=driver.tick + 9 * 10)
    for _ in range(5):
        driver.submit("flow", priority=9)
    driver.send(inp.Offer("w1", 1))

    assert driver.is_running("old", "a")


SCOPES = [("queue", "", "default"), ("workflow", T, "flow"), ("tenant", T, "")]


@pytest.mark.proves("S001-16")
@pytest.mark.parametrize(("scope", "tenant", "name"), SCOPES)
def test_a_pause_holds_what_is_ready_and_resuming_starts_it(scope, tenant, name):
    driver = Driver()
    with_runs(driver, 1)
    driver.expect(inp.Pause(BY, scope, tenant, name, "night"))
    submit(driver, "flow", 2)

    assert len(driver.running) == 1, "what runs may finish"
    assert driver.finish_all() == 1
    assert holds(driver) == [("paused", f"{scope}:{name or tenant}")]
    assert driver.refusal(inp.Pause(BY, scope, tenant, name)) == "illegal_move"
    driver.expect(inp.Resume(BY, scope, tenant, name))
    assert len(driver.running) == 2
    assert driver.refusal(inp.Resume(BY, scope, tenant, name)) == "illegal_move"


@pytest.mark.parametrize("deed", [inp.Pause, inp.Resume])
@pytest.mark.parametrize(
    ("scope", "tenant", "name", "code"),
    [
        ("queue", "", "nowhere", "unknown_queue"),
        ("workflow", T, "nothing", "unknown_workflow"),
        ("schedule", T, "never", "unknown_schedule"),
        ("tenant", "nobody", "", "unknown_tenant"),
        ("workflow", "nobody", "flow", "unknown_tenant"),
        ("planet", T, "mars", "bad_scope"),
    ],
)
def test_only_what_exists_is_paused_or_resumed(deed, scope, tenant, name, code):
    assert Driver().refusal(deed(BY, scope, tenant, name)) == code


def test_a_queue_must_be_declared_before_a_definition_names_it():
    driver = Driver()
    with pytest.raises(AssertionError, match="unknown_queue"):
        driver.define("flow", task("a", queue="fast"))
    driver.send(inp.PutQueue(BY, "fast"))

    driver.define("flow", task("a", queue="fast"))


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (inp.PutQueue(BY, "q", limit=-1), "bad_limit"),
        (inp.PutTenant(BY, "t", limit=10**10), "bad_limit"),
        (inp.PutTenant(BY, "t", weight=0), "bad_weight"),
        (inp.PutTenant(BY, "t", weight=101), "bad_weight"),
        (inp.PutQueue(BY, "q", rate_starts=0), "bad_rate"),
        (inp.PutQueue(BY, "q", rate_starts=1, rate_ms=0), "bad_rate"),
        (inp.PutQueue(BY, "q", rate_starts=1, burst=0), "bad_rate"),
        (inp.PutQueue(BY, "q", rate_starts=1, window="fixed"), "bad_rate"),
        (inp.PutQueue(BY, "q", window="sliding"), "bad_rate"),
        (inp.PutQueue(BY, "q", rate_starts=1, burst=1, window="sliding"), "bad_rate"),
        (inp.PutTenant(BY, T, rate_starts=10_001, window="sliding"), "bad_rate"),
        (inp.PutLabelLimit(BY, "gpu", "true", -1), "bad_limit"),
        (inp.PutLabelLimit(BY, "gpu", "true", 10**10), "bad_limit"),
    ],
)
def test_limits_that_make_no_sense_are_refused(asked, code):
    assert Driver().refusal(asked) == code


HOLDS = [
    ("credit", "queue:default", [inp.Offer("w1", 0)]),
    ("limit", "queue:default", [inp.PutQueue(BY, "default", limit=0)]),
    ("paused", "tenant:acme", [inp.Pause(BY, "tenant", T, "")]),
    ("resources", "queue:default", [inp.Offer("w1", 5, cpu_milli=100)]),
]


@pytest.mark.parametrize(("reason", "by", "asked"), HOLDS)
def test_whoever_does_not_start_has_a_recorded_reason(reason, by, asked):
    driver = Driver(credit=9)
    driver.send(inp.Offer("w1", 9, cpu_milli=1_000))
    driver.send(*asked)
    with_runs(driver, 3, node=task("a", resources={"cpu_milli": 500}))
    driver.advance(60_000)

    assert holds(driver) == [(reason, by)]
    assert driver.events(RateDue) == []


def test_a_new_reason_is_recorded_when_it_takes_over():
    driver = Driver(credit=1)
    driver.send(inp.PutQueue(BY, "default", limit=1))
    with_runs(driver, 3)
    driver.send(inp.PutQueue(BY, "default"))
    driver.send(inp.Pause(BY, "queue", "", "default"), inp.Offer("w1", 2))
    driver.send(inp.Resume(BY, "queue", "", "default"))

    assert [reason for reason, _ in holds(driver)] == ["limit", "credit", "paused", "credit"]
    assert len(driver.running) == 2


@pytest.mark.parametrize("credit", [3, 5, 40])
@pytest.mark.parametrize("owed", [False, True])
@pytest.mark.parametrize("changes_max", [5_000, 31])
@pytest.mark.parametrize("rate", [{}, {"burst": 6}, {"window": "sliding"}])
def test_those_that_start_together_leave_the_state_as_one_by_one(credit, owed, changes_max, rate):
    """What is decided together is folded event by event."""
    driver = Driver(credit=credit, max_changes_per_tick=changes_max)
    if rate:
        driver.expect(inp.PutQueue(BY, "default", rate_starts=5, rate_ms=1_000, **rate))
    driver.send(inp.PutTenant(BY, "other"), inp.PutTenant(BY, T, weight=3))
    driver.define("flow", task("a"))
    driver.define("flow", task("a"), tenant="other")
    if owed:
        driver.send(inp.Pause(BY, "tenant", T, T))
    submit(driver, "flow", 12)
    if owed:
        submit(driver, "flow", 2, tenant="other")
        driver.tick += 6_000_000
        end(driver, 1)
        submit(driver, "flow", 1, tenant="other")
        driver.send(inp.Resume(BY, "tenant", T, T))
    end(driver, 2)
    submit(driver, "flow", 3, priority=9)
    submit(driver, "flow", 5, tenant="other")
    if rate:
        driver.advance(3_500)
    folded = Machine(settings=driver.settings)
    for tick, asked, events in driver.rows:
        folded.fold(tick, asked, events)

    assert digest(folded.state) == digest(driver.state)
    assert folded.state.wheel.items() == driver.state.wheel.items()
    assert (folded.state.protected, folded.state.fair_floor) == (driver.state.protected, driver.state.fair_floor)
