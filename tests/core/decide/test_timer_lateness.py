"""How late a timer may be: not at all, unless ticks stood still; and then in due order."""

from random import Random

import pytest

from driver import Driver
from tickwork.core.state.events import TaskWaiting, WaitElapsed


def waiting(seed: int, count: int = 60) -> Driver:
    driver = Driver()
    chance = Random(seed)
    for number in range(count):
        driver.define(f"w{number}", {"kind": "wait", "id": "w", "duration_ms": chance.randrange(1_000, 100_000)})
        driver.submit(f"w{number}")
    return driver


def due_ticks(driver: Driver) -> dict[int, int]:
    return {event.run: event.until for event in driver.events(TaskWaiting)}


def fired(driver: Driver) -> list[tuple[int, int]]:
    return [(tick, event.task) for tick, _, events in driver.rows for event in events if isinstance(event, WaitElapsed)]


@pytest.mark.proves("I16", "I18", "S000-14")
@pytest.mark.parametrize("seed", range(5))
def test_while_ticks_come_every_timer_fires_at_its_own_tick(seed):
    driver = waiting(seed)
    driver.advance(110_000)

    assert {number: tick for tick, number in fired(driver)} == due_ticks(driver)


@pytest.mark.proves("I18", "I19")
@pytest.mark.parametrize("seed", range(5))
def test_after_an_outage_the_backlog_is_cleared_at_once_and_in_due_order(seed):
    driver = waiting(seed)
    dues = due_ticks(driver)
    back = driver.tick + 110_000
    driver.send(at=back)
    driver.quiet()

    order = [number for _, number in fired(driver)]
    assert order == sorted(dues, key=lambda number: (dues[number], number))
    assert {tick for tick, _ in fired(driver)} == {back}


@pytest.mark.proves("B14", "I41")
def test_a_run_keeps_the_version_it_started_with_while_its_workflow_is_edited():
    driver = Driver()
    driver.define("flow", {"kind": "task", "id": "a", "handler": "a"})
    old = driver.submit("flow")
    driver.define("flow", {"kind": "task", "id": "b", "handler": "b"})
    new = driver.submit("flow")

    assert (list(driver.phases(old)), list(driver.phases(new))) == (["a"], ["b"])
    driver.finish_all()
    assert (driver.state_of(old), driver.state_of(new)) == ("COMPLETED", "COMPLETED")
    assert driver.records[old].definition != driver.records[new].definition
