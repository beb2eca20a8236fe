"""Schedules as state: which runs they make, when, and under which ids."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunScheduled
from tickwork.core.state.schedule import Fate, SchedulePolicy
from tickwork.core.state.state import LogicalClock

MINUTE = 60_000
ORIGIN = 1_800_000_000_000  # 2027-01-15T08:00:00Z


def scheduled(asked=None, **settings):
    driver = Driver(**settings)
    driver.define("flow", task("a"))
    driver.expect(asked or cron())
    return driver


def cron(text="*/5 * * * *", name="s", **terms):
    return inp.PutSchedule(BY, T, name, "flow", ScheduleSpec(cron=text), SchedulePolicy(**terms))


def every(ms, name="s", **fields):
    return inp.PutSchedule(BY, T, name, "flow", ScheduleSpec(every_ms=ms, **fields))


def made(driver):
    return [event.due_ms for event in driver.events(RunScheduled)]


def fates(driver, name="s"):
    """What became of its occurrences, in ranges."""
    schedule = driver.state.tenants[T].schedules.get(name)
    spans = [span for span in driver.spans if span.schedule == schedule.number]
    return [(span.fate, span.cause, span.count) for span in [*spans, *([schedule.span] if schedule.span else [])]]


def minutes(driver):
    return [(due - ORIGIN) // MINUTE for due in made(driver)]


def ids(driver):
    return sorted(name for name, _ in driver.state.tenants[T].runs.items())


@pytest.mark.proves("I22", "S001-02", "S001-69")
def test_an_occurrence_becomes_the_run_named_after_its_nominal_time():
    driver = scheduled()
    driver.advance(11 * MINUTE)

    assert ids(driver) == ["sched-s-2027-01-15T08:05:00Z", "sched-s-2027-01-15T08:10:00Z"]
    assert len(driver.running) == 2


@pytest.mark.proves("S001-02", "I16")
@pytest.mark.parametrize(("asked", "expected"), [
    (cron("*/15 * * * *"), [15, 30, 45, 60]),
    (cron("7 * * * *"), [7]),
    (cron("0 9 * * *"), [60]),
    (cron("0 9 * * 1"), []),  # it is a Friday
    (every(20 * MINUTE, anchor_ms=ORIGIN), [20, 40, 60]),
    (every(20 * MINUTE, anchor_ms=ORIGIN - 5 * MINUTE), [15, 35, 55]),
    (every(20 * MINUTE, anchor_ms=ORIGIN + 1_000 * MINUTE), [20, 40, 60]),
])  # fmt: skip
def test_the_first_time_is_the_first_one_after_it_was_put(asked, expected):
    driver = scheduled(asked)
    driver.advance(60 * MINUTE)

    assert minutes(driver) == expected


def test_an_interval_without_an_anchor_counts_from_when_it_was_put():
    driver = scheduled(every(10_000))
    put = driver.tick
    driver.advance(30_000)

    assert [due - ORIGIN - put for due in made(driver)] == [10_000, 20_000, 30_000]


@pytest.mark.proves("I16")
def test_a_schedule_between_two_ticks_fires_at_the_later_one():
    driver = scheduled(every(1_500, anchor_ms=ORIGIN), clock=LogicalClock(origin_ms=ORIGIN, resolution_ms=1_000))
    begun = len(driver.rows)
    driver.advance(6_000)
    fired = [(tick * 1_000, event.due_ms - ORIGIN) for tick, _, events in driver.rows[begun:] for event in events
             if isinstance(event, RunScheduled)]  # fmt: skip

    assert all(0 <= at - due < 1_000 for at, due in fired)
    assert len(fired) == len(made(driver)) >= 3


@pytest.mark.proves("I19", "I22")
def test_a_late_tick_makes_every_occurrence_of_those_that_want_all():
    driver = scheduled(cron(catch_up="all"))
    driver.expect(cron("*/7 * * * *", "t", catch_up="all"))
    driver.send(at=driver.tick + 30 * MINUTE)
    driver.quiet()

    assert sorted(minutes(driver)) == [5, 7, 10, 14, 15, 20, 21, 25, 28, 30]
    assert len(ids(driver)) == 10


def test_late_occurrences_that_do_not_fit_into_a_tick_come_in_the_next_ones():
    driver = scheduled(cron("* * * * *", catch_up="all"), max_changes_per_tick=7)
    driver.send(at=driver.tick + 30 * MINUTE)
    driver.quiet()

    assert minutes(driver) == list(range(1, 31))
    assert len(driver.running) == 30


@pytest.mark.proves("I22")
def test_putting_it_again_makes_nothing_twice():
    driver = scheduled()
    for _ in range(10):
        driver.advance(90_000)
        driver.expect(cron())

    assert minutes(driver) == [5, 10, 15]
    assert len(driver.state.schedules) == 1


@pytest.mark.proves("I22")
def test_what_is_removed_and_put_again_makes_nothing_twice():
    driver = scheduled()
    for _ in range(4):
        driver.advance(5 * MINUTE)
        driver.expect(inp.RemoveSchedule(BY, T, "s"), cron())

    assert minutes(driver) == sorted(set(minutes(driver)))


def test_an_update_counts_from_now_on():
    driver = scheduled()
    driver.advance(6 * MINUTE)
    driver.expect(cron("*/20 * * * *"))
    driver.advance(40 * MINUTE)

    assert minutes(driver) == [5, 20, 40]


@pytest.mark.proves("I23", "S001-16")
def test_nothing_starts_from_a_paused_time():
    driver = scheduled()
    driver.advance(6 * MINUTE)
    driver.expect(inp.Pause(BY, "schedule", T, "s"))

    driver.advance(10 * MINUTE)
    assert driver.refusal(inp.Pause(BY, "schedule", T, "s")) == "illegal_move"
    driver.expect(cron("*/6 * * * *"))
    assert driver.state.schedules.values()[0].paused, "an update does not end the pause"
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    assert driver.refusal(inp.Resume(BY, "schedule", T, "s")) == "illegal_move"
    driver.advance(10 * MINUTE)
    assert minutes(driver) == [5, 18, 24]


@pytest.mark.proves("I23")
def test_a_removed_schedule_is_gone_and_its_runs_go_on():
    driver = scheduled()
    driver.advance(6 * MINUTE)
    driver.expect(inp.RemoveSchedule(BY, T, "s"))
    driver.advance(60 * MINUTE)

    assert minutes(driver) == [5] and len(driver.running) == 1
    assert driver.refusal(inp.RemoveSchedule(BY, T, "s")) == "unknown_schedule"
    assert len(driver.state.schedules) == 0 and driver.machine.next_tick() is None


@pytest.mark.parametrize(("asked", "code"), [
    (inp.PutSchedule(BY, T, "s", "nothing", ScheduleSpec(cron="* * * * *")), "unknown_workflow"),
    (inp.PutSchedule(BY, "nobody", "s", "flow", ScheduleSpec(cron="* * * * *")), "unknown_tenant"),
    (inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec()), "schedule_kind"),
    (inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(cron="* * * * *", every_ms=5_000)), "schedule_kind"),
    (cron(queue="nowhere"), "unknown_queue"),
    (cron(overlap="perhaps"), "bad_overlap"),
    (cron(catch_up="perhaps"), "bad_catch_up"),
    (cron(catch_up="window"), "bad_catch_up"),
    (cron(catch_up_cap=0), "bad_terms"),
    (cron(priority=77), "bad_priority"),
    (cron(pause_after=-1), "bad_terms"),
    (cron("61 * * * *"), "invalid_cron"),
    (cron(""), "invalid_cron"),
    (every(0), "invalid_interval"),
    (every(-5), "invalid_interval"),
    (every(10**20), "invalid_interval"),
])  # fmt: skip
def test_a_schedule_that_makes_no_sense_is_refused(asked, code):
    driver = Driver()
    driver.define("flow", task("a"))

    assert driver.refusal(asked) == code
    assert len(driver.state.schedules) == 0


@pytest.mark.parametrize("whose", ["partition", "tenant"])
def test_an_occurrence_that_overload_kept_away_is_recorded_as_missed(whose):
    driver = scheduled(max_live_runs=2 if whose == "partition" else 1_000)
    if whose == "tenant":
        driver.expect(inp.PutTenant(BY, T, max_live_runs=2))
    driver.advance(21 * MINUTE)

    assert fates(driver) == [(Fate.RAN, "", 2), (Fate.MISSED, "overloaded", 2)]
    assert [alert.kind for alert in driver.alerts] == ["occurrence_missed"] * 2
    driver.finish_all()
    driver.advance(5 * MINUTE)
    assert minutes(driver) == [5, 10, 25]


@pytest.mark.proves("I22")
def test_nobody_else_can_take_the_id_of_an_occurrence():
    driver = scheduled()

    assert driver.refusal(inp.Submit(BY, T, "sched-s-2027-01-15T08:05:00Z", "flow")) == "reserved_id"


def test_schedules_of_two_tenants_share_nothing():
    driver = scheduled()
    driver.expect(inp.PutTenant(BY, "bolt"))
    driver.define("flow", task("a"), tenant="bolt")
    driver.expect(
        inp.PutSchedule(BY, "bolt", "s", "flow", ScheduleSpec(cron="*/5 * * * *")), inp.Pause(BY, "schedule", T, "s")
    )
    driver.advance(6 * MINUTE)

    assert ids(driver) == []
    assert driver.run("sched-s-2027-01-15T08:05:00Z", tenant="bolt") is not None
