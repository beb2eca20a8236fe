"""Timers: nothing early, nothing forgotten, late ones in order; service levels and their alerts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver import BY, Driver, T, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import ClockGapRecorded, RunDue, SlaReached, TaskDue, WaitElapsed
from tickwork.core.state.state import LogicalClock


def wait(name="w", **fields):
    return {"kind": "wait", "id": name, **fields}


@given(
    waits=st.lists(st.integers(1, 5_000), min_size=1, max_size=8),
    jumps=st.lists(st.integers(1, 900), max_size=20),
    resolution=st.sampled_from([1, 7, 1_000]),
)
@settings(max_examples=60)
@pytest.mark.proves("I16", "I17", "S000-14")
def test_nothing_fires_early_and_everything_fires_once(waits, jumps, resolution):
    driver = Driver(clock=LogicalClock(origin_ms=1_800_000_000_000, resolution_ms=resolution))
    driver.define("flow", *(wait(f"w{at}", duration_ms=ms) for at, ms in enumerate(waits)))
    driver.expect(inp.Submit(BY, T, "r", "flow"))
    begun, number = driver.tick, driver.run("r").number
    for jump in jumps:
        driver.send(at=driver.tick + jump)
    driver.advance(5_000)
    fired = {event.task - number: tick for tick, _, events in driver.rows for event in events
             if isinstance(event, WaitElapsed)}  # fmt: skip

    assert sorted(fired) == list(range(len(waits)))
    assert len(driver.events(WaitElapsed)) == len(waits)
    assert all((fired[at] - begun) * resolution >= ms for at, ms in enumerate(waits))
    assert sorted(fired, key=lambda at: (fired[at], -(-waits[at] // resolution), at)) == list(fired)


@pytest.mark.proves("I16", "S001-01")
@pytest.mark.parametrize(("terms", "after"), [({"delay_ms": 100}, 100), ({"delay_ms": 0}, 0), ({"start_at_ms": 0}, 0)])
def test_a_delayed_run_starts_when_its_time_comes(terms, after):
    driver = Driver()
    driver.define("flow", task("a"))
    begun = driver.tick + 1
    driver.submit("flow", "r", **terms)
    if after:
        driver.advance(after - 1)
        assert driver.state_of("r") == "PENDING"
        driver.advance(1)

    assert driver.is_running("r", "a")
    assert [tick - begun for tick, _, events in driver.rows if any(isinstance(e, RunDue) for e in events)] == (
        [after] if after else []
    )


def test_next_tick_is_the_next_due_timer():
    driver = Driver()
    driver.define("flow", wait(duration_ms=700))
    driver.submit("flow")
    begun = driver.tick
    driver.submit("flow")

    assert driver.machine.next_tick() == begun + 700
    driver.send(at=begun + 5_000)
    assert driver.machine.next_tick() is None


def test_timers_that_do_not_fit_into_a_tick_fire_in_the_next_ones():
    driver = Driver(max_changes_per_tick=4)
    driver.define("flow", wait(duration_ms=100))
    for number in range(9):
        driver.submit("flow", f"r{number}")
    numbers = [driver.run(f"r{number}").number for number in range(9)]
    driver.send(at=driver.tick + 1_000)

    assert driver.machine.next_tick() == driver.tick + 1
    driver.quiet()
    assert [event.task for event in driver.events(WaitElapsed)] == numbers
    assert driver.state.live_runs == 0


def test_a_retry_fires_at_its_due_tick():
    driver = Driver()
    driver.define("flow", task("a", retry={"attempts": 2, "delay_ms": 300, "jitter_percent": 0}))
    driver.submit("flow", "r")
    driver.fail("r", "a")
    failed = driver.tick
    driver.advance(299)

    assert driver.events(TaskDue) == []
    driver.advance(1)
    assert driver.tick == failed + 300 and driver.is_running("r", "a")


# ---- service levels

SLA = {"warn_ms": 100, "breach_ms": 300}


def alerts(driver):
    return [(alert.kind, alert.subject) for alert in driver.alerts]


@pytest.mark.proves("S001-21")
@pytest.mark.parametrize(("done_after", "kinds"), [
    (50, []),
    (150, ["sla_warning"]),
    (400, ["sla_warning", "sla_breach"]),
])  # fmt: skip
def test_a_service_level_warns_before_and_tells_at_the_breach(done_after, kinds):
    driver = Driver()
    driver.define("flow", task("a"), sla=SLA)
    driver.submit("flow", "r")
    driver.advance(done_after)
    driver.finish("r", "a")
    driver.advance(1_000)

    assert alerts(driver) == [(kind, "r") for kind in kinds]


@pytest.mark.proves("S001-21")
def test_a_node_has_a_service_level_of_its_own():
    driver = Driver()
    driver.define("flow", task("a", sla=SLA), task("b", sla=SLA), task("c"))
    driver.submit("flow", "r")
    driver.finish("r", "a")
    driver.advance(1_000)

    assert alerts(driver) == [("sla_warning", "r/b"), ("sla_breach", "r/b")]


@pytest.mark.parametrize("late_ms", [0, 5, 10_000])
def test_points_that_come_together_are_all_told_at_once(late_ms):
    driver = Driver(clock=LogicalClock(origin_ms=1_800_000_000_000, resolution_ms=1_000))
    driver.define("flow", task("a", sla=SLA), task("b", sla=SLA), sla=SLA)
    driver.submit("flow", "r")
    driver.send(at=driver.tick + 1 + late_ms)

    assert sorted(alerts(driver)) == sorted((kind, what) for kind in ("sla_warning", "sla_breach")
                                            for what in ("r", "r/a", "r/b"))  # fmt: skip
    assert len(driver.events(SlaReached)) == 6
    assert driver.machine.next_tick() is None


@pytest.mark.proves("S001-21")
def test_the_service_level_of_a_scheduled_run_counts_from_its_nominal_time():
    driver = Driver()
    driver.define("flow", task("a"), sla={"breach_ms": 5_000})
    driver.expect(inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(every_ms=60_000)))
    due = driver.machine.next_tick()
    driver.send(at=due + 4_000)
    driver.send(at=due + 4_999)

    assert alerts(driver) == []
    driver.send(at=due + 5_000)
    assert [kind for kind, _ in alerts(driver)] == ["sla_breach"]


@pytest.mark.proves("S001-07")
def test_a_run_that_takes_too_long_fails_and_its_attempts_are_stopped():
    driver = Driver()
    driver.define("flow", task("a"), timeout_ms=500)
    driver.submit("flow", "r")
    driver.advance(500)

    assert driver.state_of("r") == "FAILED"
    assert [(stop.task, stop.attempt) for stop in driver.stopped] == [(driver.started[0].task, 1)]
    assert driver.machine.next_tick() is None


@pytest.mark.proves("I15")
@pytest.mark.parametrize(
    ("cause", "wait_ms", "told"),
    [
        (inp.OUTAGE, 30_000, ["clock_gap"]),  # it was due while nobody was there
        (inp.OUTAGE, 60_000, ["clock_gap"]),  # at its end
        (inp.OUTAGE, 90_000, []),  # a partition without anything to decide is not a partition without an owner
        ("clock_step", 90_000, ["clock_gap"]),
    ],
)
def test_an_outage_in_which_nothing_was_due_alarms_nobody_and_is_on_record(cause, wait_ms, told):
    driver = Driver()
    driver.define("flow", wait(duration_ms=wait_ms))
    driver.submit("flow", "r")
    ends_ms = driver.now_ms + 60_000
    driver.send(inp.ClockGap(driver.now_ms, ends_ms, cause), at=driver.tick + 60_000)

    assert [alert.kind for alert in driver.alerts] == told
    assert len(driver.events(ClockGapRecorded)) == 1


@pytest.mark.proves("I16")
def test_held_timers_fire_when_they_are_released_and_inputs_are_decided_meanwhile():
    driver = Driver()
    driver.define("sleepy", {"kind": "wait", "id": "rest", "duration": "10s"})
    driver.define("w", task("a"))
    driver.submit("sleepy", "x")
    driver.send(inp.HoldTimers(True, "ahead of real time"))
    driver.send(at=driver.tick + 60_000)
    driver.submit("w", "y")
    assert driver.events(WaitElapsed) == []
    assert driver.machine.next_tick() is None or driver.machine.next_tick() == driver.tick + 1
    assert driver.run("y") is not None

    driver.send(inp.HoldTimers(False))
    driver.send()
    assert len(driver.events(WaitElapsed)) == 1
