"""Load shedding: while important work lags, what matters less is held, and everybody can see it."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import LoadShed, QueueHeld


def loaded(**settings):
    """One worker is busy; important and unimportant work wait behind it."""
    driver = Driver(credit=1, shed_lag_ms=100, shed_below=3, **settings)
    driver.expect(inp.PutTenant(BY, "bolt"))
    for tenant in (T, "bolt"):
        driver.define("flow", task("a"), tenant=tenant)
    driver.submit("flow", "first", priority=5)
    driver.submit("flow", "important", priority=5)
    driver.submit("flow", "low", tenant="bolt", priority=0)
    return driver


def sheds(driver):
    return [event.on for event in driver.events(LoadShed)]


def held_for_load(driver):
    return [event for event in driver.events(QueueHeld) if event.reason == "load"]


@pytest.mark.proves("S001-60")
def test_above_the_set_lag_unimportant_lanes_are_held_and_the_reason_is_recorded():
    driver = loaded()
    driver.advance(150)
    driver.submit("flow", "lower", tenant="bolt", priority=1)
    driver.submit("flow", "more", priority=5)
    driver.finish("first", "a")

    assert sheds(driver) == [True]
    assert [alert.kind for alert in driver.alerts] == ["load_shed"]
    assert driver.is_running("important", "a"), "the turn was bolt's, but its work is held"
    assert {event.by for event in held_for_load(driver)} == {"load"} and len(held_for_load(driver)) == 2


def test_what_waits_for_a_worker_counts_though_nothing_starts():
    driver = loaded()
    driver.advance(101)

    assert sheds(driver) == [True]
    driver.submit("flow", "lower", tenant="bolt", priority=1)
    driver.send(inp.Offer("w1", 0))
    driver.send(inp.Offer("w2", 3, queues=("default",)))
    assert driver.is_running("important", "a")


def test_held_lanes_start_when_the_lag_is_over():
    driver = loaded()
    driver.advance(150)
    driver.submit("flow", "lower", tenant="bolt", priority=1)

    assert len(held_for_load(driver)) == 1
    for _ in range(4):
        if driver.running:
            driver.finish_all()
        driver.advance(10)

    assert sheds(driver) == [True, False]
    assert driver.state.live_runs == 0, "all of it has run in the end"


@pytest.mark.parametrize("way", ["paused", "unserved"])
def test_what_its_own_limits_hold_is_no_sign_of_load(way):
    driver = Driver(shed_lag_ms=100, shed_below=3)
    labels = {"gpu": "true"} if way == "unserved" else {}
    driver.define("flow", task("a", labels=labels))
    driver.define("other", task("a"))
    if way == "paused":
        driver.expect(inp.Pause(BY, "workflow", T, "flow"))
    driver.submit("flow", priority=9)
    driver.advance(10_000)
    driver.submit("other", "low", priority=0)

    assert sheds(driver) == []
    assert driver.is_running("low", "a")


def test_shedding_ends_when_important_work_is_paused():
    driver = loaded()
    driver.advance(150)
    driver.expect(inp.Pause(BY, "tenant", T, ""))
    driver.send(inp.Offer("w1", 3))
    driver.quiet()

    assert sheds(driver) == [True, False]
    assert len(driver.running) == 2


def test_without_a_set_lag_nothing_is_shed():
    driver = Driver(credit=0)
    driver.define("flow", task("a"))
    driver.submit("flow", priority=9)
    driver.advance(10_000_000)

    assert sheds(driver) == []
