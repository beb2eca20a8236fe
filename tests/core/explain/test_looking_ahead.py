"""What is shown before it happens is what happens: times to come, and what is late."""

from itertools import islice

import pytest

from core.decide.test_schedule_policies import HOUR, MINUTE, ORIGIN, fates, minute, outage, put, schedule_of, scheduled
from driver import BY, T
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.explain.catch_up_preview import late_ones
from tickwork.core.explain.upcoming import upcoming
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.schedule import CATCH_UPS, OVERLAPS, Fate, GovernorLimits

DAY = 24 * HOUR


def ahead(driver, ms=HOUR, after=(0, ""), limit=1_000):
    found = upcoming(driver.state.tenants[T].schedules.values(), driver.state.now_ms, driver.state.now_ms + ms, after)
    return [(minute(at_ms), name) for at_ms, name in islice(found, limit)]


def late(driver, ms, policy=""):
    return list(late_ones(driver.state.tenants[T], driver.state.now_ms + ms, policy))


# ---- times to come


def test_all_schedules_are_shown_in_one_order_however_many_pages_it_takes():
    driver = scheduled(put("b"), put("a"), put("c", "*/7 * * * *"))
    whole = ahead(driver)
    pages, after = [], (0, "")
    while page := ahead(driver, after=after, limit=3):
        pages += page
        after = (ORIGIN + page[-1][0] * MINUTE, page[-1][1])

    assert whole[:4] == [(5, "a"), (5, "b"), (7, "c"), (10, "a")]
    assert whole == sorted(whole) == pages


def test_no_more_is_expected_than_it_may_run():
    driver = scheduled(put(runs_max=4))
    driver.advance(6 * MINUTE)

    assert ahead(driver) == [(10, "s"), (15, "s"), (20, "s")]
    assert ahead(driver, after=(ORIGIN + 10 * MINUTE, "s")) == [(15, "s"), (20, "s")], "also on a later page"
    driver.advance(HOUR)
    assert ahead(driver) == []


def test_a_pause_with_an_end_is_followed_by_what_comes_at_its_end_and_after_it():
    driver = scheduled(put(), put("other"))
    driver.expect(inp.Pause(BY, "schedule", T, "s", "rest", ORIGIN + 50 * MINUTE))
    driver.expect(inp.Pause(BY, "schedule", T, "other", "rest"))
    told = ahead(driver)
    driver.advance(HOUR)

    assert told == [(50, "s"), (55, "s"), (60, "s")]
    assert fates(driver)[-1][2:] == (50, 60, 3)


def test_of_an_endpoint_only_the_decided_time_is_known():
    driver = scheduled(
        inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(every_ms=5 * MINUTE), governing=GovernorLimits())
    )
    driver.quiet()

    assert len(ahead(driver)) == 1


def test_a_look_at_many_busy_schedules_takes_a_step_for_each_time_that_is_shown():
    driver = scheduled(*(put(f"s{number}", "* * * * * *") for number in range(200)))
    rhythm, asked = schedule_of(driver, "s0").rhythm, []
    for schedule in driver.state.tenants[T].schedules.values():
        schedule.rhythm = Counted(rhythm, asked)
    ahead(driver, ms=30 * DAY, limit=300)

    assert len(asked) <= 300


class Counted:
    def __init__(self, rhythm, asked):
        self.rhythm, self.asked = rhythm, asked

    def next_ms(self, after_ms):
        self.asked.append(after_ms)
        return self.rhythm.next_ms(after_ms)


# ---- what is late


@pytest.mark.proves("I20")
@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.parametrize("policy", CATCH_UPS)
def test_what_would_run_runs_whatever_the_policies_are_together(overlap, policy):
    length_ms = 30 * MINUTE if policy in ("window", "spread") else 0
    driver = scheduled(put("s", overlap=overlap, catch_up=policy, catch_up_ms=length_ms, buffer_max=4))
    (shown,) = late(driver, 62 * MINUTE)
    outage(driver, 62 * MINUTE)
    done = set()
    for _ in range(70):  # longer than the spread; the schedule itself goes on meanwhile
        driver.finish_all()
        driver.quiet()
        done |= {run_id for run_id, record in driver.records.items() if record.state == RunState.COMPLETED}
        driver.send(at=driver.tick + MINUTE // 2)
    ran = sorted(minute(run.scheduled_ms) for run_id, run in driver.records.items() if run_id in done)

    late_ones_done = [one for one in ran if one <= 60]
    assert shown.late == 12
    if (overlap, policy) == ("replace", "spread"):  # the next one on time may replace even the last
        assert len(late_ones_done) <= shown.runs == 1
    else:
        assert len(late_ones_done) == shown.runs
        assert not shown.runs or late_ones_done[0] == minute(shown.first_ms)
    assert bool(shown.limit) is (overlap != "allow" and policy in ("all", "window", "spread"))


def test_what_comes_after_the_last_run_is_not_late():
    driver = scheduled(put(catch_up="all", runs_max=3))
    (shown,) = late(driver, 62 * MINUTE)
    outage(driver, 62 * MINUTE)

    assert (shown.late, shown.runs, shown.limit) == (3, 3, "")
    assert fates(driver) == [(Fate.RAN, "", 5, 15, 3)]


def test_a_run_that_goes_on_is_in_the_way_of_what_is_late():
    driver = scheduled(put(catch_up="all", overlap="forbid"))
    driver.advance(6 * MINUTE)
    (shown,) = late(driver, 30 * MINUTE)

    assert (shown.runs, shown.limit) == (0, "overlap forbid")


@pytest.mark.parametrize(("policy", "runs"), [("", 4), ("all", 4), ("last", 1), ("none", 0)])
def test_a_pause_that_ended_in_an_outage_leaves_what_came_after_it(policy, runs):
    driver = scheduled(put(catch_up="all"))
    driver.expect(inp.Pause(BY, "schedule", T, "s", "rest", ORIGIN + 42 * MINUTE))
    (shown,) = late(driver, 62 * MINUTE, policy)
    if policy:
        driver.send(inp.ChooseCatchUp(BY, policy), at=driver.tick + 62 * MINUTE)
    else:
        driver.send(at=driver.tick + 62 * MINUTE)
    driver.quiet()

    assert (minute(shown.from_ms), shown.late, shown.runs, shown.paused) == (45, 4, runs, False)
    assert sum(count for fate, _, _, _, count in fates(driver) if fate == Fate.RAN) == runs
    assert fates(driver)[0] == (Fate.SKIPPED, "paused", 5, 40, 8)


def test_what_a_paused_schedule_makes_up_for_waits_until_it_is_resumed():
    driver = scheduled(put(automatic_backfill=True), put("other"))
    driver.expect(inp.Pause(BY, "schedule", T, "s", "rest"), inp.Pause(BY, "schedule", T, "other", "rest"))
    (shown,) = late(driver, 62 * MINUTE, "none")

    assert (shown.schedule.name, shown.policy, shown.late, shown.runs, shown.paused) == ("s", "all", 12, 12, True)
