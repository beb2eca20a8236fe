"""Defects of schedules that the ledger, the invariants or a closer look found, each with the case that shows it."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.calendar.zones import Zones
from tickwork.core.explain.occurrence_ledger import Ledger
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import OccurrencesSettled, RunScheduled
from tickwork.core.state.schedule import Fate, GovernorLimits, SchedulePolicy
from tickwork.system.zone_data import load_zones

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
ORIGIN = 1_800_000_000_000  # 2027-01-15T08:00:00Z, a Friday


def flow(**more):
    driver = Driver(**more)
    driver.define("flow", task("a"))
    driver.ledger = Ledger(driver.state)
    true = driver._apply

    def watched(tick, asked):
        outcome = true(tick, asked)
        driver.ledger.observe(asked[: outcome.taken], outcome.events)
        assert driver.ledger.take_found() == [] and violations(driver.state) == []
        return outcome

    driver._apply = watched
    return driver


def put(name="s", governing=None, **more):
    words = {word: more.pop(word) for word in ("cron", "every_ms", "anchor_ms", "zone", "holidays") if word in more}
    return inp.PutSchedule(BY, T, name, "flow", ScheduleSpec(**words), SchedulePolicy(**more), governing=governing)


def minutes(driver):
    return [(event.due_ms - ORIGIN) // MINUTE for event in driver.events(RunScheduled) if event.way != "trigger"]


def fates(driver, name="s"):
    return driver.state.tenants[T].schedules.get(name).fates


@pytest.mark.parametrize("overlap", ["buffer_one", "buffer_all", "allow", "forbid", "replace"])
def test_what_waits_for_its_turn_counts_towards_the_runs_it_may_have(overlap):
    driver = flow()
    driver.expect(put(cron="* * * * *", overlap=overlap, runs_max=3))
    for _ in range(12):
        driver.advance(MINUTE)
        if driver.tick > 5 * MINUTE:
            driver.finish_all()

    assert len(minutes(driver)) == 3


def test_an_edit_that_leaves_fewer_runs_than_wait_expects_no_more():
    driver = flow()
    driver.expect(put(cron="* * * * *", overlap="buffer_all"))
    driver.advance(4 * MINUTE)
    driver.expect(put(cron="* * * * *", overlap="buffer_all", runs_max=4))
    driver.advance(4 * MINUTE)
    driver.finish_all()

    assert minutes(driver) == [1, 2, 3, 4]


@pytest.mark.proves("I20")
@pytest.mark.parametrize("deed", ["edit", "remove"])
def test_an_occurrence_in_the_very_tick_of_an_edit_or_removal_of_a_paused_schedule_has_a_fate(deed):
    driver = flow()
    driver.expect(put(cron="*/5 * * * *"), inp.Pause(BY, "schedule", T, "s"))
    asked = put(cron="*/7 * * * *") if deed == "edit" else inp.RemoveSchedule(BY, T, "s")
    driver.send(asked, at=5 * MINUTE)

    [passed] = driver.events(OccurrencesSettled)
    assert (passed.from_ms, passed.fate, passed.cause) == (ORIGIN + 5 * MINUTE, Fate.SKIPPED, "paused")


@pytest.mark.proves("I20", "I58")
def test_an_edit_while_jitter_delays_a_start_does_not_lose_it():
    driver = flow()
    driver.expect(put(cron="*/30 * * * *", jitter=True))
    schedule = driver.state.tenants[T].schedules.get("s")
    assert schedule.wait_ms > 10
    driver.send(put(cron="*/20 * * * *"), at=30 * MINUTE + 5)  # its time has come, its start has not
    driver.quiet()

    assert minutes(driver) == [30]
    assert fates(driver)[0] == 1


@pytest.mark.proves("I23")
def test_holidays_count_from_when_they_are_put_also_where_the_next_time_stays():
    driver = flow()
    driver.expect(inp.PutHolidays(BY, T, "feasts", ("2026-12-25",)), put(cron="0 12 * * *", holidays=("feasts",)))
    driver.expect(inp.PutHolidays(BY, T, "feasts", ("2027-01-16", "2027-01-17")))
    twin = Machine(restore(*capture(driver.state)))
    driver.advance(4 * DAY)

    assert [minute // (24 * 60) for minute in minutes(driver)] == [0, 3]  # neither on the 16th nor on the 17th
    for tick, asked, _ in driver.rows:
        if tick > twin.state.tick:
            twin.apply(tick, asked)
    assert digest(twin.state) == digest(driver.state)


def test_a_trigger_in_every_tick_does_not_keep_a_schedule_from_its_time():
    driver = flow()
    driver.expect(put(every_ms=MINUTE, anchor_ms=ORIGIN))
    for _ in range(20):
        driver.send(inp.Trigger(BY, T, "s"), at=driver.tick + 30_000)

    assert len(minutes(driver)) >= 9


def test_advice_that_comes_while_a_triggered_run_goes_on_is_heard_when_it_has_ended():
    driver = flow()
    driver.expect(put(every_ms=HOUR, governing=GovernorLimits()), inp.Trigger(BY, T, "s"))
    driver.quiet()
    driver.expect(inp.Advise(BY, T, "s", interval_ms=2 * MINUTE, ttl_ms=HOUR, reason="busy"))
    driver.finish_all()
    driver.advance(3 * MINUTE)

    assert len(minutes(driver)) == 1


@pytest.mark.proves("S003-77", "S003-78")
@pytest.mark.parametrize("deeds", [
    pytest.param([put(every_ms=2 * MINUTE, governing=GovernorLimits())], id="edited"),
    pytest.param([inp.SteerSchedule(BY, T, "s", "archive"), put(every_ms=2 * MINUTE, governing=GovernorLimits()),
                  inp.SteerSchedule(BY, T, "s", "restore")], id="edited in the archive"),
    pytest.param([inp.Pause(BY, "schedule", T, "s"), put(every_ms=2 * MINUTE, governing=GovernorLimits()),
                  inp.Resume(BY, "schedule", T, "s")], id="edited in a pause"),
])  # fmt: skip
def test_an_endpoint_that_is_edited_during_a_run_by_hand_goes_on_by_its_new_times(deeds):
    driver = by_hand()
    driver.expect(*deeds)
    driver.finish_all()
    driver.advance(3 * MINUTE)

    assert minutes(driver) == [2]


@pytest.mark.proves("S003-51", "S003-52")
def test_a_pause_that_comes_during_a_run_by_hand_is_over_the_time_that_stood():
    driver = by_hand()
    driver.expect(inp.Pause(BY, "schedule", T, "s", "", driver.now_ms + HOUR))
    driver.finish_all()
    driver.advance(30 * MINUTE)
    assert minutes(driver) == []
    driver.advance(31 * MINUTE)

    assert minutes(driver) == [60]


def test_a_pause_that_comes_and_goes_during_a_run_by_hand_leaves_no_time_of_before():
    driver = by_hand()
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(HOUR)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.finish_all()
    driver.advance(6 * MINUTE)

    assert minutes(driver) == [65]


@pytest.mark.proves("S003-77")
def test_a_relaxing_hint_that_comes_during_a_run_by_hand_does_not_put_off_what_was_promised():
    driver = by_hand()
    driver.expect(inp.Advise(BY, T, "s", interval_ms=10 * HOUR, ttl_ms=DAY))
    driver.finish_all()
    driver.advance(6 * MINUTE)

    assert minutes(driver) == [5]


def test_failures_that_are_forgotten_during_a_run_by_hand_lengthen_nothing_more():
    driver = flow()
    driver.expect(put(every_ms=MINUTE, governing=GovernorLimits()))
    driver.advance(MINUTE)
    driver.fail(next(iter(driver.state.runs.values())).id, "a")
    driver.expect(inp.Trigger(BY, T, "s"))
    driver.expect(inp.SteerSchedule(BY, T, "s", "reset_failures"))
    driver.finish_all()
    driver.advance(MINUTE + 10)

    assert minutes(driver) == [1, 2]


@pytest.mark.proves("S003-77")
@pytest.mark.parametrize("asked", [
    inp.Advise(BY, T, "s", clear=True),
    inp.Advise(BY, T, "s", interval_ms=HOUR, ttl_ms=HOUR),
    inp.SteerSchedule(BY, T, "s", "reset_failures"),
])  # fmt: skip
def test_nobody_puts_an_endpoint_off_by_asking_often(asked):
    driver = flow()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()))
    for _ in range(6):
        driver.advance(MINUTE)
        driver.expect(asked)

    assert minutes(driver) == [5]


@pytest.mark.proves("S003-56")
def test_a_one_shot_whose_time_comes_during_a_run_gets_a_run_of_its_own_and_only_one():
    driver = flow()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()))
    driver.advance(5 * MINUTE)
    driver.expect(inp.Advise(BY, T, "s", at_ms=driver.now_ms + MINUTE, ttl_ms=HOUR))
    driver.advance(2 * MINUTE)
    driver.finish_all()
    driver.advance(4 * MINUTE)

    assert minutes(driver) == [5, 7]


@pytest.mark.proves("S003-53", "S003-64", "S003-85")
@pytest.mark.parametrize(("took", "starts"), [(2, [5, 10]), (4, [5, 10]), (7, [5, 17])])
def test_the_interval_of_an_endpoint_counts_from_the_start_of_its_run(took, starts):
    driver = flow()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()))
    driver.advance(5 * MINUTE)
    driver.advance(took * MINUTE)
    driver.finish_all()
    driver.advance(6 * MINUTE)

    assert minutes(driver) == starts


@pytest.mark.proves("S003-34", "S003-57")
def test_a_hint_that_has_expired_stays_over_when_the_next_one_comes():
    driver = flow()
    driver.expect(put(every_ms=MINUTE, governing=GovernorLimits()))
    driver.expect(inp.Advise(BY, T, "s", interval_ms=3 * HOUR, ttl_ms=HOUR))
    finishing(driver, 120)
    driver.expect(inp.Advise(BY, T, "s", at_ms=driver.now_ms + 30 * MINUTE, ttl_ms=90 * MINUTE))
    finishing(driver, 33)

    assert minutes(driver) == [1, *range(121, 154)]


@pytest.mark.proves("S003-35", "S003-57")
def test_a_one_shot_that_has_expired_stays_over_when_the_next_hint_comes():
    driver = flow()
    driver.expect(put(every_ms=HOUR, governing=GovernorLimits()))
    driver.expect(inp.Advise(BY, T, "s", at_ms=driver.now_ms + 10 * MINUTE, ttl_ms=20 * MINUTE))
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(25 * MINUTE)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.advance(5 * MINUTE)
    driver.expect(inp.Advise(BY, T, "s", interval_ms=40 * MINUTE, ttl_ms=2 * HOUR))
    finishing(driver, 50)

    assert minutes(driver) == [70]


@pytest.mark.proves("S003-55", "S003-67")
@pytest.mark.parametrize("until", [True, False])
def test_a_pause_does_not_end_the_backoff_of_an_endpoint(until):
    driver = flow()
    driver.expect(put(every_ms=MINUTE, governing=GovernorLimits()))
    driver.advance(MINUTE)
    driver.fail(next(iter(driver.state.runs.values())).id, "a")
    driver.expect(inp.Pause(BY, "schedule", T, "s", "", driver.now_ms + MINUTE if until else None))
    driver.advance(MINUTE)
    if not until:
        driver.expect(inp.Resume(BY, "schedule", T, "s"))
        driver.quiet()

    assert driver.state.tenants[T].schedules.get("s").failures == 1


def test_failures_that_are_forgotten_in_a_pause_stay_so():
    driver = flow()
    driver.expect(put(every_ms=MINUTE, governing=GovernorLimits()))
    driver.advance(MINUTE)
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.fail(next(iter(driver.state.runs.values())).id, "a")
    driver.expect(inp.SteerSchedule(BY, T, "s", "reset_failures"), inp.Resume(BY, "schedule", T, "s"))
    driver.advance(MINUTE + 10)

    assert minutes(driver) == [1, 2]


def finishing(driver, minutes):
    """Every run ends in the minute in which it begins."""
    for _ in range(minutes):
        driver.advance(MINUTE)
        driver.finish_all()


def test_hints_that_are_taken_back_bring_the_baseline_back_where_they_were_the_reason():
    driver = flow()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()))
    driver.expect(inp.Advise(BY, T, "s", interval_ms=MINUTE, ttl_ms=HOUR), inp.Advise(BY, T, "s", clear=True))
    driver.advance(6 * MINUTE)

    assert minutes(driver) == [5]


def test_failures_that_are_forgotten_bring_the_next_time_forward_and_never_back():
    driver = flow()
    driver.expect(put(every_ms=MINUTE, governing=GovernorLimits()))
    driver.advance(MINUTE)
    driver.fail(next(iter(driver.state.runs.values())).id, "a")
    driver.advance(MINUTE + 50_000)  # ten seconds are left of the two minutes
    driver.expect(inp.SteerSchedule(BY, T, "s", "reset_failures"))
    driver.advance(11_000)

    assert minutes(driver) == [1, 3]


def by_hand():
    """An endpoint that is due every five minutes, while a run that somebody asked for goes on."""
    driver = flow()
    driver.expect(put(every_ms=5 * MINUTE, governing=GovernorLimits()), inp.Trigger(BY, T, "s"))
    driver.quiet()
    return driver


def test_a_paused_endpoint_that_is_removed_makes_up_no_occurrences():
    driver = flow()
    driver.expect(put(cron="* * * * *", governing=GovernorLimits()))
    driver.quiet()
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(30 * MINUTE)
    driver.expect(inp.RemoveSchedule(BY, T, "s"))

    assert driver.events(OccurrencesSettled) == []


# ---- other zone data


def altered(version="2099z", berlin="Asia/Tokyo"):
    """The zones of another day: Berlin has taken over somebody else's clock."""
    good = load_zones()
    return Zones(version, sorted(good._names), lambda name: good._read(berlin if name == "Europe/Berlin" else name))


def under(driver, zones):
    """The same partition, recovered by an owner with other zones."""
    driver.machine = Machine(restore(*capture(driver.state), zones=zones))
    driver.state = driver.machine.state
    driver.ledger = Ledger(driver.state)
    driver.expect(inp.NewZones(zones.version))
    return driver


@pytest.mark.proves("F18", "I21")
def test_new_zone_data_changes_only_times_that_are_still_to_come():
    driver = flow(zones=load_zones())
    driver.expect(put(cron="0 12 * * *", zone="Europe/Berlin"), put("utc", cron="0 12 * * *"))
    driver.advance(3 * DAY)
    before = minutes(driver)
    under(driver, altered())
    assert minutes(driver) == before  # what was, stays
    driver.advance(3 * DAY)

    assert hours(before) == {11, 12}  # noon in Berlin, noon in UTC
    assert hours(minutes(driver)[len(before) :]) == {3, 12}  # noon in Tokyo


def hours(since):
    return {(ORIGIN // MINUTE + minute) // 60 % 24 for minute in since}


@pytest.mark.proves("F18", "I21")
@pytest.mark.parametrize("catch_up", ["none", "last", "all", "coalesce", "window", "spread"])
@pytest.mark.parametrize("paused", [False, True])
def test_what_was_due_by_the_old_data_during_a_stop_has_its_fate_under_the_new(catch_up, paused):
    """The announced time is none of the new ones, and the last new one lies before it."""
    more = {"catch_up_ms": HOUR} if catch_up in ("window", "spread") else {}
    driver = flow(zones=load_zones())
    driver.expect(put(cron="0 12 * * *", zone="Europe/Berlin", catch_up=catch_up, **more))
    if paused:
        driver.expect(inp.Pause(BY, "schedule", T, "s", "", driver.now_ms + 4 * HOUR))
    driver.tick += 3 * HOUR + 20 * MINUTE if not paused else 4 * HOUR + 10  # 11:20Z: noon in Berlin is just over
    under(driver, altered(berlin="America/New_York"))
    driver.quiet()
    driver.advance(2 * DAY)

    assert sum(fates(driver)) == 3  # the one that was announced, and two noons in New York
    assert hours(minutes(driver)[-2:]) <= {11, 17}
    assert hours(minutes(driver)[-1:]) == {17}


@pytest.mark.proves("F18", "I21", "S004-62")
def test_a_zone_that_goes_stops_its_schedule_with_an_alarm_and_no_other_and_it_goes_on_when_the_zone_is_back():
    good = load_zones()
    without = Zones("2099z", sorted(good._names - {"Europe/Berlin"}), good._read)
    driver = flow(zones=good)
    driver.expect(put(cron="0 12 * * *", zone="Europe/Berlin"), put("utc", cron="0 12 * * *"))
    driver.advance(DAY)
    under(driver, without)
    driver.advance(2 * DAY)
    utc, berlin = fates(driver, "utc")[0], fates(driver)[0]
    under(driver, good)
    driver.advance(2 * DAY)

    assert [(alert.kind, alert.subject) for alert in driver.alerts] == [("schedule_broken", "s")]
    assert (berlin, utc) == (1, 3)
    assert (fates(driver)[0], fates(driver, "utc")[0]) == (3, 5)


def test_new_zone_data_brings_no_schedule_back_that_has_had_its_runs():
    driver = flow(zones=load_zones())
    driver.expect(put(cron="0 12 * * *", zone="Europe/Berlin", runs_max=1))
    driver.advance(2 * DAY)
    under(driver, altered())
    driver.advance(2 * DAY)

    assert len(minutes(driver)) == 1
