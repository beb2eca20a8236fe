"""One choice for whatever is late at a moment, instead of each schedule's own policy."""

from itertools import pairwise

import pytest

from core.decide.test_schedule_firing import MINUTE, cron, fates, minutes, scheduled
from driver import BY, T
from tickwork.core.base.errors import Refused
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.explain.catch_up_preview import late_ones, read_policy
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.schedule import Fate, GovernorLimits, SchedulePolicy

SKIPPED, RAN, COALESCED = int(Fate.SKIPPED), int(Fate.RAN), int(Fate.COALESCED)


def choose(driver, policy, length_ms=0, *, after=30 * MINUTE):
    driver.send(inp.ChooseCatchUp(BY, policy, length_ms), at=driver.tick + after)
    driver.quiet()


@pytest.mark.parametrize(("own", "policy", "length_ms", "ran"), [
    ("last", "all", 0, [5, 10, 15, 20, 25, 30]),
    ("all", "last", 0, [30]),
    ("all", "none", 0, [30]),  # the last one is on time
    ("none", "window", 12 * MINUTE, [20, 25, 30]),
    ("all", "coalesce", 0, [30]),
])  # fmt: skip
def test_what_is_late_is_caught_up_with_as_chosen(own, policy, length_ms, ran):
    driver = scheduled(cron(catch_up=own))
    choose(driver, policy, length_ms)

    assert minutes(driver) == ran


def test_a_chosen_spread_spreads_the_starts():
    driver = scheduled(cron(catch_up="none"))
    choose(driver, "spread", 60 * MINUTE)

    assert minutes(driver) == [5, 10, 15, 20, 25, 30]
    starts = sorted(run.start_at for run in driver.state.runs.values())[1:]  # the first starts at once
    assert [(later - earlier) // MINUTE for earlier, later in pairwise(starts)] == [10, 10, 10, 10]


def test_it_counts_once_and_then_every_schedule_has_its_own_way_again():
    driver = scheduled(cron(catch_up="all"))
    choose(driver, "none", after=32 * MINUTE)
    driver.send(at=driver.tick + 20 * MINUTE)
    driver.quiet()

    assert minutes(driver) == [35, 40, 45, 50]
    assert fates(driver)[0] == (SKIPPED, "catch_up none", 6)


def test_late_schedules_that_do_not_fit_into_its_tick_are_dealt_with_as_chosen_all_the_same():
    driver = scheduled(cron(catch_up="none"), max_changes_per_tick=5)
    for number in range(20):
        driver.expect(cron(name=f"s{number}", catch_up="none"))
    choose(driver, "all", after=32 * MINUTE)

    assert len(minutes(driver)) == 21 * 6


def test_what_was_paused_at_the_choice_is_no_part_of_it():
    driver = scheduled(cron(automatic_backfill=True))
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    choose(driver, "none", after=32 * MINUTE)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.quiet()

    assert minutes(driver) == [5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize(("own", "policy", "first"), [("none", "all", RAN), ("last", "none", SKIPPED)])
def test_a_governed_schedule_runs_or_leaves_out_its_late_occurrence_as_chosen(own, policy, first):
    when, terms = ScheduleSpec(every_ms=5 * MINUTE), SchedulePolicy(catch_up=own)
    driver = scheduled(inp.PutSchedule(BY, T, "s", "flow", when, terms, governing=GovernorLimits()))
    choose(driver, policy)

    assert fates(driver)[0][0] == first


def test_the_choice_outlives_a_restart():
    driver = scheduled(cron(catch_up="none"), max_changes_per_tick=5)
    driver.send(inp.ChooseCatchUp(BY, "spread", MINUTE), at=driver.tick + 1)
    again = restore(*capture(driver.state))

    assert again.choice == driver.state.choice
    assert digest(again) == digest(driver.state)


@pytest.mark.parametrize(("policy", "length_ms"), [("some", 0), ("window", 0), ("all", 5), ("spread", 1 << 60)])
def test_a_choice_that_says_nothing_is_refused(policy, length_ms):
    driver = scheduled()
    driver.send(inp.ChooseCatchUp(BY, policy, length_ms))

    assert driver.answers[-1].code == "bad_catch_up"
    assert driver.state.choice is None


@pytest.mark.parametrize(("text", "read"), [
    ("all", ("all", 0)),
    ("window:6h", ("window", 6 * 60 * MINUTE)),
    ("spread:30m", ("spread", 30 * MINUTE)),
    ("window", None), ("all:1h", None), ("some", None), ("", None), ("window:soon", None), ("spread:0s", None),
])  # fmt: skip
def test_a_policy_is_a_word_and_a_length_where_it_needs_one(text, read):
    if read is not None:
        assert read_policy(text) == read
        return
    with pytest.raises(Refused):
        read_policy(text)


@pytest.mark.parametrize("policy", ["", "all", "last", "none", "coalesce", "window:12m"])
def test_what_is_shown_before_the_choice_is_what_happens_after_it(policy):
    driver = scheduled(cron(catch_up="last"))
    now_ms = driver.now_ms + 32 * MINUTE
    (shown,) = late_ones(driver.state.tenants[T], now_ms, policy)
    if policy:
        choose(driver, *read_policy(policy), after=32 * MINUTE)
    else:
        driver.send(at=driver.tick + 32 * MINUTE)
        driver.quiet()

    assert shown.late == 6
    assert len(minutes(driver)) == shown.runs


def test_nothing_is_late_before_it_is_due():
    driver = scheduled(cron())

    assert list(late_ones(driver.state.tenants[T], driver.now_ms, "all")) == []
