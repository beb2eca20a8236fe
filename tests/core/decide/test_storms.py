"""Everything at once: thousands of schedules due at one instant, and thousands of tasks that fail together."""

from collections import Counter

import msgspec
import pytest

from campaign import LONG
from driver import BY, Driver, T, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunScheduled, TaskRetrying

MINUTE, HOUR = 60_000, 3_600_000
DUE = 60_000 if LONG else 3_000
SMALL = {"small-1": DUE // 30, "small-2": DUE // 30, "small-3": DUE // 30}
TENANTS = {"greedy": DUE - sum(SMALL.values()), **SMALL}
CREDIT = 100
FAILING = 20_000 if LONG else 5_000


# ---- the full hour


def at_the_full_hour() -> Driver:
    """Those of the greedy tenant are older, so their timers come first."""
    driver = Driver(set_up=False)
    driver.expect(inp.PutQueue(BY, "default"), inp.PutQueue(BY, "bulk"), *(inp.PutTenant(BY, one) for one in TENANTS))
    for tenant, count in TENANTS.items():
        driver.define("flow", task("a", queue="bulk" if tenant == "greedy" else "default"), tenant=tenant)
        noon = ScheduleSpec(cron="0 12 * * *")
        driver.expect(*(inp.PutSchedule(BY, tenant, f"s{number}", "flow", noon) for number in range(count)))
    driver.send(inp.Offer("w", CREDIT, queues=("default", "bulk")))
    return driver


def starts_of(driver: Driver, seen: int) -> list[str]:
    return [driver.state.tasks[one.task].run.tenant.id for one in driver.started[seen:]]


@pytest.mark.proves("F26", "I19", "I22", "I45")
def test_a_burst_at_one_instant_is_complete_and_the_small_do_not_wait_for_the_greedy():
    driver = at_the_full_hour()
    noon = driver.machine.next_tick()
    order: list[str] = []
    made_at: dict[str, int] = {}  # how many had started before the last run of a tenant was made
    rows = len(driver.rows)
    driver.send(at=noon)
    while driver.running or driver.machine.next_tick() == driver.tick + 1:
        for event in (one for _, _, events in driver.rows[rows:] for one in events if isinstance(one, RunScheduled)):
            made_at[driver.state.schedules[event.schedule].tenant.id] = len(order)
        rows = len(driver.rows)
        order += starts_of(driver, len(order))
        done, driver.running = driver.running, {}
        driver.send(*(inp.Succeeded(one.task, one.attempt) for one in done.values()))

    by_tick = Counter(tick for tick, _, events in driver.rows for one in events if isinstance(one, RunScheduled))
    made = [event.schedule for event in driver.events(RunScheduled)]
    assert len(made) == len(set(made)) == DUE == len(order)
    assert max(by_tick.values()) <= driver.settings.max_runs_per_tick < DUE
    assert Counter(order) == TENANTS and violations(driver.state) == []
    assert not driver.state.runs and not driver.state.tasks
    assert {len(schedule.fates) and schedule.fates[0] for schedule in driver.state.schedules.values()} == {1}
    for name, count in SMALL.items():
        last = max(place for place, tenant in enumerate(order) if tenant == name)
        assert last <= made_at[name] + 1.1 * len(TENANTS) * count + CREDIT, name  # their equal share, and no less


# ---- everything fails


def fail_all(driver: Driver) -> None:
    failing, driver.running = driver.running, {}
    driver.send(*(inp.Failed(one.task, one.attempt, "Down", "") for one in failing.values()))


def size_of(driver: Driver) -> int:
    return len(msgspec.msgpack.encode(capture(driver.state)))


@pytest.mark.proves("F27", "I32", "I47")
def test_a_storm_of_retries_is_spread_by_its_budget_and_takes_no_more_room():
    driver = Driver(credit=FAILING)
    retry = {"attempts": 9, "delay_ms": 100, "delay_ms_max": 1_000}
    driver.define("bank", task("a", retry=retry, dependency="bank"))
    driver.define("free", task("a", retry=retry))
    driver.expect(*(inp.Submit(BY, T, f"b{number:05}", "bank") for number in range(FAILING)))
    driver.quiet()
    assert len(driver.running) == FAILING
    fail_all(driver)
    driver.quiet()

    sizes, seconds, began = [size_of(driver)], Counter(), driver.now_ms
    timers = len(driver.state.tasks)
    seen = len(driver.started)
    for minute in range(5):
        until = driver.tick + driver.settings.clock.ticks(MINUTE)
        while (due := driver.machine.next_tick()) is not None and due <= until:
            driver.send(at=due)
            seconds.update((driver.now_ms - began) // 1_000 for _ in driver.started[seen:])
            seen = len(driver.started)
            fail_all(driver)
        run_id = f"f{minute}"
        driver.expect(inp.Submit(BY, T, run_id, "free"))
        driver.quiet()
        assert driver.is_running(run_id, "a"), "whoever does not depend on it starts at once"
        driver.finish(run_id, "a")
        seen = len(driver.started)
        sizes.append(size_of(driver))

    settings = driver.settings
    in_ten = [sum(seconds[place] for place in range(first, first + 10)) for first in range(300)]
    assert sum(seconds.values()) >= 250, "it is tried all the time"
    assert max(in_ten) <= settings.retry_burst + 10_000 // settings.retry_gap_ms + 1
    assert len({event.due for event in driver.events(TaskRetrying)[:FAILING]}) > 0.9 * FAILING, "each has its own time"
    assert len(driver.state.tasks) == timers == FAILING
    assert max(sizes) <= 1.02 * sizes[0] and violations(driver.state) == []
