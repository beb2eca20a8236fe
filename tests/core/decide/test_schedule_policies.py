"""What becomes of occurrences: overlap, lateness, pauses, jitter, and the fates that tell of it."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import unpack
from tickwork.core.calendar.schedule_spec import ScheduleSpec
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunScheduled
from tickwork.core.state.lifecycle import RunState
from tickwork.core.state.retry import jitter_ms_max
from tickwork.core.state.run_ids import occurrence_id
from tickwork.core.state.schedule import Fate, GovernorLimits, SchedulePolicy
from tickwork.system.zone_data import load_zones

MINUTE = 60_000
HOUR = 60 * MINUTE
ORIGIN = 1_800_000_000_000  # 2027-01-15T08:00:00Z
RAN, COALESCED, SKIPPED, MISSED, CANCELLED = Fate


def put(name="s", cron="*/5 * * * *", *, when=None, workflow="flow", **terms):
    return inp.PutSchedule(BY, T, name, workflow, when or ScheduleSpec(cron=cron), SchedulePolicy(**terms))


def scheduled(*asked, **terms):
    driver = Driver(zones=load_zones())
    driver.define("flow", task("a"))
    driver.expect(*(asked or (put(**terms),)))
    return driver


def schedule_of(driver, name="s"):
    return driver.state.tenants[T].schedules.get(name)


def fates(driver, name="s"):
    """(fate, cause, first minute, last minute, count) of each range."""
    schedule = schedule_of(driver, name)
    number = schedule.number if schedule else next(span.schedule for span in driver.spans if span.name == name)
    spans = [span for span in driver.spans if span.schedule == number and not span.backfill]
    spans += [schedule.span] if schedule is not None and schedule.span else []
    return [(one.fate, one.cause, minute(one.from_ms), minute(one.to_ms), one.count) for one in spans]


def minute(at_ms):
    return (at_ms - ORIGIN) // MINUTE


def begun(driver, way="due"):
    return [minute(event.due_ms) for event in driver.events(RunScheduled) if event.way == way]


def fail_all(driver):
    driver.expect(*(inp.Failed(one.task, one.attempt, "Boom", "no", permanent=True) for one in driver.running.values()))
    driver.running.clear()
    driver.quiet()


def outage(driver, ms):
    """Nothing ticks for so long."""
    driver.send(at=driver.tick + ms)
    driver.quiet()


# ---- overlap


@pytest.mark.proves("I24")
def test_allow_begins_another_run_beside_the_first():
    driver = scheduled(overlap="allow")
    driver.advance(16 * MINUTE)

    assert begun(driver) == [5, 10, 15] and len(driver.running) == 3
    assert fates(driver) == [(RAN, "", 5, 15, 3)]


@pytest.mark.proves("I24", "I20")
def test_forbid_skips_while_a_run_goes_on():
    driver = scheduled(overlap="forbid")
    driver.advance(16 * MINUTE)
    driver.finish_all()
    driver.advance(5 * MINUTE)

    assert begun(driver) == [5, 20]
    assert fates(driver) == [(RAN, "", 5, 5, 1), (SKIPPED, "overlap forbid", 10, 15, 2), (RAN, "", 20, 20, 1)]


@pytest.mark.proves("I24")
def test_replace_cancels_the_run_that_goes_on():
    driver = scheduled(overlap="replace")
    driver.advance(11 * MINUTE)

    assert driver.records[occurrence_id("s", ORIGIN + 5 * MINUTE)].state == RunState.CANCELLED
    assert len(driver.running) == 1 and schedule_of(driver).active != ()
    assert fates(driver) == [(RAN, "", 5, 10, 2)]


@pytest.mark.proves("I24", "I20")
def test_buffer_one_keeps_the_first_that_had_to_wait():
    driver = scheduled(overlap="buffer_one")
    driver.advance(21 * MINUTE)
    assert schedule_of(driver).buffer == (ORIGIN + 10 * MINUTE,)
    driver.finish_all()
    driver.quiet()

    assert begun(driver, "buffered") == [10]
    assert fates(driver) == [(RAN, "", 5, 5, 1), (SKIPPED, "overlap buffer_one", 15, 20, 2), (RAN, "", 10, 10, 1)]
    driver.finish_all()
    driver.advance(5 * MINUTE)
    assert fates(driver)[-1] == (RAN, "", 25, 25, 1), "a range does not span what had another fate"


@pytest.mark.proves("I24", "I20")
def test_buffer_all_keeps_them_in_order_up_to_its_length():
    driver = scheduled(overlap="buffer_all", buffer_max=3)
    driver.advance(31 * MINUTE)
    for _ in range(4):
        driver.finish_all()
        driver.quiet()

    assert begun(driver) == [5] and begun(driver, "buffered") == [10, 15, 20]
    assert (SKIPPED, "overlap buffer_all, buffer full", 25, 30, 2) in fates(driver)


@pytest.mark.proves("I20")
def test_what_waits_for_its_turn_is_cancelled_with_its_schedule():
    driver = scheduled(overlap="buffer_all")
    driver.advance(16 * MINUTE)
    driver.expect(inp.RemoveSchedule(BY, T, "s"))

    assert [(fate, first, count) for fate, _, first, _, count in fates(driver)][-2:] == [
        (CANCELLED, 10, 1),
        (CANCELLED, 15, 1),
    ]


# ---- lateness


@pytest.mark.proves("I20")
@pytest.mark.parametrize(("terms", "ran", "passed"), [
    ({"catch_up": "none"}, [], [(SKIPPED, "catch_up none", 5, 30, 6)]),
    ({"catch_up": "last"}, [30], [(SKIPPED, "catch_up last", 5, 25, 5)]),
    ({"catch_up": "all"}, [5, 10, 15, 20, 25, 30], []),
    ({"catch_up": "all", "catch_up_cap": 2}, [25, 30], [(SKIPPED, "catch_up all, at most 2", 5, 20, 4)]),
    ({"catch_up": "window", "catch_up_ms": 12 * MINUTE}, [25, 30], [(SKIPPED, "catch_up window", 5, 20, 4)]),
    ({"catch_up": "coalesce"}, [30], [(COALESCED, "into sched-s-2027-01-15T08:30:00Z", 5, 25, 5)]),
    ({"automatic_backfill": True}, [5, 10, 15, 20, 25, 30], []),
])  # fmt: skip
def test_what_is_late_is_dealt_with_as_its_policy_says(terms, ran, passed):
    driver = scheduled(**terms)
    outage(driver, 34 * MINUTE)

    assert begun(driver) == ran
    expected = [*passed, *([(RAN, "", ran[0], ran[-1], len(ran))] if ran else [])]
    assert fates(driver) == expected
    driver.advance(2 * MINUTE)
    assert begun(driver) == [*ran, 35], "afterwards it is on time again"


def test_spread_lets_late_runs_begin_one_after_the_other():
    driver = scheduled(catch_up="spread", catch_up_ms=12 * MINUTE)
    outage(driver, 33 * MINUTE)
    came = minute(driver.now_ms)

    assert begun(driver) == [5, 10, 15, 20, 25, 30]
    starts = [minute(ORIGIN + run.start_at) for run in driver.state.runs.values()]
    assert starts == [0 if start == came else start for start in starts] and starts[1:] == [
        came + 2, came + 4, came + 6, came + 8, came + 10
    ]  # fmt: skip
    driver.advance(11 * MINUTE)
    assert len(driver.started) == 6 + 2, "and those that fell due meanwhile"


@pytest.mark.proves("I20")
@pytest.mark.parametrize(("late_ms", "ran"), [(59_000, [60]), (61_000, [])])
def test_a_little_late_is_on_time(late_ms, ran):
    driver = scheduled(cron="0 * * * *", catch_up="none")
    outage(driver, HOUR + late_ms)

    assert begun(driver) == ran


def test_a_year_of_lateness_stops_nobody():
    driver = scheduled(cron="* * * * *", catch_up="last")
    driver.send(at=driver.tick + 366 * 24 * HOUR)
    assert max(len(events) for _, _, events in driver.rows) < 300
    driver.quiet()

    (skipped, ran) = fates(driver)
    assert skipped[-1] == 366 * 24 * 60 - 1 and ran[-1] == 1


# ---- pauses


@pytest.mark.proves("I23", "I20")
def test_what_falls_into_a_pause_is_skipped_and_said_so():
    driver = scheduled(catch_up="all")
    driver.advance(6 * MINUTE)
    driver.expect(inp.Pause(BY, "schedule", T, "s", "moving house"))
    driver.advance(20 * MINUTE)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.advance(5 * MINUTE)

    assert fates(driver) == [(RAN, "", 5, 5, 1), (SKIPPED, "paused", 10, 25, 4), (RAN, "", 30, 30, 1)]


@pytest.mark.proves("I23", "S004-45", "S004-46")
def test_automatic_backfill_makes_up_for_a_pause_too():
    driver = scheduled(automatic_backfill=True)
    driver.advance(6 * MINUTE)
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(20 * MINUTE)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.quiet()

    assert begun(driver) == [5, 10, 15, 20, 25]
    assert schedule_of(driver).last_fired_ms == ORIGIN + 25 * MINUTE


def test_a_pause_with_an_end_ends_by_itself_and_the_time_of_its_end_runs():
    driver = scheduled()
    driver.expect(inp.Pause(BY, "schedule", T, "s", "rest", ORIGIN + 20 * MINUTE))
    driver.advance(26 * MINUTE)

    assert fates(driver) == [(SKIPPED, "paused", 5, 15, 3), (RAN, "", 20, 25, 2)]
    assert not schedule_of(driver).paused


@pytest.mark.proves("I20")
def test_a_long_pause_is_written_down_every_day():
    driver = scheduled(cron="0 * * * *")
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(75 * HOUR)

    (range_,) = fates(driver)
    assert range_[:2] == (SKIPPED, "paused") and 70 <= range_[-1] <= 75


def test_a_group_pauses_and_resumes_its_members():
    driver = scheduled(put("a", group="g"), put("b", group="g"), put("c"))
    driver.expect(inp.Pause(BY, "group", T, "g", "night"))
    driver.advance(11 * MINUTE)
    driver.expect(inp.Resume(BY, "group", T, "g"))
    driver.advance(5 * MINUTE)

    assert [fates(driver, name)[-1] for name in "abc"] == [(RAN, "", 15, 15, 1)] * 2 + [(RAN, "", 5, 15, 3)]
    assert driver.refusal(inp.Resume(BY, "group", T, "g")) == "illegal_move"
    assert driver.refusal(inp.Pause(BY, "group", T, "nobody")) == "unknown_group"


def test_failures_in_a_row_pause_it():
    driver = scheduled(pause_after=2)
    for _ in range(2):
        driver.advance(5 * MINUTE)
        fail_all(driver)
    driver.advance(20 * MINUTE)

    schedule = schedule_of(driver)
    assert begun(driver) == [5, 10] and schedule.paused and "2 runs" in schedule.pause_reason
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.advance(5 * MINUTE)
    assert begun(driver)[-1] == 35 and schedule.failures == 0


@pytest.mark.parametrize("way", ["retry", "reset"])
def test_occurrences_that_depend_on_the_past_wait_until_a_failed_run_is_mended(way):
    driver = scheduled(overlap="buffer_all", depends_on_past=True)
    driver.advance(5 * MINUTE)
    [failed] = [run.id for run in driver.state.runs.values()]
    fail_all(driver)
    driver.advance(11 * MINUTE)
    assert begun(driver) == [5] and len(schedule_of(driver).buffer) == 2
    assert violations(driver.state) == []

    if way == "retry":
        driver.expect(inp.Resolve(BY, T, failed, "mended", {}, {}, driver.records.pop(failed)))
    else:
        driver.expect(inp.SteerSchedule(BY, T, "s", "reset_failures"))
    driver.quiet()
    driver.finish_all()
    driver.quiet()
    driver.finish_all()
    assert begun(driver, "buffered") == [10, 15] and schedule_of(driver).buffer == ()


def test_occurrences_that_depend_on_the_past_are_skipped_where_none_may_wait():
    driver = scheduled(overlap="forbid", depends_on_past=True)
    driver.advance(5 * MINUTE)
    fail_all(driver)
    driver.advance(6 * MINUTE)
    assert begun(driver) == [5] and (SKIPPED, "the run before it failed", 10, 10, 1) in fates(driver)
    assert driver.refusal(put("t", depends_on_past=True)) == "bad_overlap"


def test_a_run_that_was_cancelled_lets_the_next_one_run():
    driver = scheduled(overlap="buffer_all", depends_on_past=True)
    driver.advance(5 * MINUTE)
    [run] = [run.id for run in driver.state.runs.values()]
    driver.expect(inp.Cancel(BY, T, run))
    driver.advance(5 * MINUTE)
    assert begun(driver) == [5, 10]


def test_an_archived_schedule_rests_until_it_is_restored():
    driver = scheduled()
    driver.expect(inp.SteerSchedule(BY, T, "s", "archive"))
    driver.advance(11 * MINUTE)
    assert begun(driver) == [] and driver.refusal(inp.SteerSchedule(BY, T, "s", "archive")) == "illegal_move"
    driver.expect(inp.SteerSchedule(BY, T, "s", "restore"))
    driver.advance(5 * MINUTE)

    assert begun(driver) == [15]


# ---- jitter, ends, queues


@pytest.mark.proves("I58", "S004-17", "S004-18", "S004-20")
def test_jitter_moves_the_start_and_neither_the_id_nor_the_nominal_time():
    driver = scheduled(*(put(f"s{number}", jitter=True) for number in range(20)))
    driver.advance(6 * MINUTE)

    late = {run.submitted - 5 * MINUTE for run in driver.state.runs.values()}
    assert all(0 <= ms <= 10_000 for ms in late) and len(late) > 10
    assert all(run.scheduled_ms == ORIGIN + 5 * MINUTE for run in driver.state.runs.values())
    assert driver.run("sched-s3-2027-01-15T08:05:00Z") is not None


@pytest.mark.proves("S004-19", "S001-166", "S001-174")
def test_jitter_of_a_minute_is_at_most_six_seconds_and_of_an_hour_ten():
    assert (jitter_ms_max(MINUTE), jitter_ms_max(HOUR), jitter_ms_max(24 * HOUR)) == (6_000, 10_000, 10_000)


def test_jitter_is_off_unless_asked_for():
    driver = scheduled()
    driver.advance(6 * MINUTE)

    assert [run.submitted for run in driver.state.runs.values()] == [5 * MINUTE]


def test_a_number_of_runs_ends_it():
    driver = scheduled(runs_max=2)
    driver.advance(HOUR)

    assert begun(driver) == [5, 10] and schedule_of(driver).next_ms == 0


@pytest.mark.proves("S004-74", "S004-78")
def test_its_queue_is_for_nodes_that_name_none():
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "slow"))
    driver.define("flow", task("a"))
    driver.expect(put(queue="slow"))
    driver.advance(6 * MINUTE)
    assert len(driver.running) == 0
    driver.send(inp.Offer("w2", 5, ("slow",)))

    assert len(driver.running) == 1


def test_its_priority_counts():
    driver = scheduled(priority=7)
    driver.advance(6 * MINUTE)

    assert [run.priority for run in driver.state.runs.values()] == [7]


# ---- zones


@pytest.mark.proves("F18", "S004-81", "S004-82", "I21")
def test_its_times_follow_the_clock_of_its_zone_and_runs_are_told_the_local_time():
    driver = Driver(zones=load_zones())
    driver.define("flow", task("a"), inputs={"scheduled_time": {"type": "datetime"}, "context": {"type": "object"}})
    when = ScheduleSpec(cron="0 9 * * *", zone="America/New_York")
    driver.expect(inp.PutSchedule(BY, T, "s", "flow", when, context=b"\x81\xa1a\x01"))
    driver.advance(80 * 24 * HOUR)  # the clocks change on 14 March

    ids = [name for name, _ in driver.state.tenants[T].runs.items()]
    assert ids[0] == "sched-s-2027-01-15T14:00:00Z" and ids[-1] == "sched-s-2027-04-04T13:00:00Z"
    first, last = (unpack(driver.run(ids[place]).inputs, what="inputs") for place in (0, -1))
    assert first == {"scheduled_time": "2027-01-15T09:00:00-05:00", "context": {"a": 1}}
    assert last["scheduled_time"] == "2027-04-04T09:00:00-04:00"


# ---- triggers


@pytest.mark.proves("S004-24", "S004-51", "S004-52")
def test_two_triggers_in_one_tick_are_two_runs():
    driver = scheduled()
    driver.expect(inp.Trigger(BY, T, "s"), inp.Trigger("bob", T, "s"))

    ids = [name for name, _ in driver.state.tenants[T].runs.items()]
    assert len(ids) == 2 and ids[1] == f"{ids[0]}-2" and ids[0].startswith("sched-s-trigger-2027-01-15T08:00:00")
    assert fates(driver) == [] and schedule_of(driver).fired == 0
    driver.advance(5 * MINUTE)
    assert begun(driver) == [5]


@pytest.mark.proves("S004-52", "I22")
@pytest.mark.parametrize("test", [False, True])
def test_a_trigger_never_takes_the_id_of_an_occurrence_whatever_schedules_are_named(test):
    driver = scheduled(put("s", "0 0 1 1 *"), put("s-trigger"), put("s-test"))
    driver.send(inp.Trigger(BY, T, "s", test=test), at=driver.tick + 5 * MINUTE - driver.now_ms % MINUTE)
    driver.quiet()

    assert begun(driver) == [5, 5]
    runs = driver.state.tenants[T].runs
    assert all(runs.get(occurrence_id(name, ORIGIN + 5 * MINUTE)).schedule == name for name in ("s-trigger", "s-test"))
    assert [run.schedule for _, run in runs.items()].count("s") == 1


def test_a_test_touches_nothing_of_the_schedule():
    driver = scheduled(overlap="forbid", pause_after=1)
    driver.expect(inp.Trigger(BY, T, "s", test=True))
    fail_all(driver)
    driver.expect(inp.Trigger(BY, T, "s", test=True))
    driver.advance(6 * MINUTE)

    schedule = schedule_of(driver)
    assert begun(driver) == [5] and not schedule.paused and schedule.failures == 0 and len(schedule.active) == 1


@pytest.mark.proves("I24")
def test_a_trigger_keeps_to_the_overlap_policy():
    driver = scheduled(put("f", overlap="forbid"), put("r", overlap="replace"))
    driver.advance(6 * MINUTE)

    assert driver.refusal(inp.Trigger(BY, T, "f")) == "still_running"
    driver.expect(inp.Trigger(BY, T, "r"))
    assert len(schedule_of(driver, "r").active) == 1
    assert driver.refusal(inp.Trigger(BY, T, "nobody")) == "unknown_schedule"


# ---- sets


@pytest.mark.proves("S004-65")
def test_a_set_is_applied_whole_or_not_at_all():
    driver = scheduled(put("old"))
    mine = [inp.PutSchedule(BY, T, name, "flow", ScheduleSpec(cron="*/5 * * * *"), owner="app") for name in ("a", "b")]
    driver.expect(inp.ApplySchedules(BY, T, "app", mine))
    bad = [mine[0], inp.PutSchedule(BY, T, "c", "flow", ScheduleSpec(cron="61 * * * *"), owner="app")]

    assert driver.refusal(inp.ApplySchedules(BY, T, "app", bad)) == "invalid_cron"
    assert [name for name, _ in driver.state.tenants[T].schedules.items()] == ["a", "b", "old"]
    driver.advance(3 * MINUTE)
    before = len(driver.rows)
    driver.expect(inp.ApplySchedules(BY, T, "app", mine))
    assert driver.rows[before:] == [] or not any(events for *_, events in driver.rows[before:])
    driver.expect(inp.ApplySchedules(BY, T, "app", mine[1:]))
    assert [name for name, _ in driver.state.tenants[T].schedules.items()] == ["b", "old"]


def test_an_edit_loses_nothing_that_is_due():
    driver = scheduled()
    driver.send(put(cron="*/20 * * * *"), at=driver.tick + 5 * MINUTE)
    driver.advance(20 * MINUTE)

    assert begun(driver) == [5, 20]


def test_an_edit_waits_until_what_is_late_is_settled():
    driver = scheduled(catch_up="all")
    driver.send(put(cron="*/20 * * * *"), at=driver.tick + 31 * MINUTE)
    assert driver.answers[-1].code == "catching_up"
    driver.quiet()
    driver.expect(put(cron="*/20 * * * *"))

    assert begun(driver) == [5, 10, 15, 20, 25, 30]


# ---- backfill


def backfill(first, last, **fields):
    return inp.Backfill(BY, T, "s", ORIGIN + first * MINUTE, ORIGIN + last * MINUTE, **fields)


def finish(driver):
    """Until nothing more begins."""
    for _ in range(500):
        driver.quiet()
        if not driver.running:
            return
        driver.finish_all()


@pytest.mark.proves("S004-41", "S004-42", "I22")
def test_a_backfill_makes_the_runs_of_a_window_its_end_left_out():
    driver = scheduled()
    driver.expect(backfill(-60, -30))
    finish(driver)

    assert sorted(begun(driver, "backfill")) == [-60, -55, -50, -45, -40, -35]
    assert "sched-s-2027-01-15T07:00:00Z" in driver.records
    assert driver.state.backfills == {} and fates(driver) == []


@pytest.mark.proves("I22", "S004-48", "S004-49")
def test_a_backfill_over_a_done_range_makes_none():
    driver = scheduled()
    driver.advance(31 * MINUTE)
    finish(driver)
    driver.expect(backfill(-10, 60))
    finish(driver)
    driver.expect(backfill(-10, 60))
    finish(driver)

    assert begun(driver, "backfill") == [-10, -5, 0]
    driver.advance(5 * MINUTE)
    assert begun(driver)[-1] == 35, "what is still expected is left to the schedule"


def test_a_forced_backfill_runs_again_under_ids_of_its_own():
    driver = scheduled()
    driver.advance(6 * MINUTE)
    finish(driver)
    driver.expect(backfill(0, 6, forced=True))
    finish(driver)

    assert begun(driver, "backfill") == [0, 5]
    assert any(name.startswith("sched-s-2027-01-15T08:05:00Z-again-") for name in driver.records)


def test_a_backfill_keeps_to_its_order_and_its_concurrency():
    driver = scheduled()
    driver.expect(backfill(-60, 0, newest_first=True, concurrency=2))
    driver.quiet()
    assert len(driver.running) == 2 and begun(driver, "backfill") == [-5, -10]
    finish(driver)

    assert begun(driver, "backfill") == [*range(-5, -61, -5)]


@pytest.mark.proves("S004-42")
def test_a_backfill_leaves_what_waits_for_a_live_run_to_that_schedule():
    driver = scheduled(overlap="buffer_all")
    driver.advance(16 * MINUTE)  # 5 runs, 10 and 15 wait for it
    driver.expect(backfill(-5, 16, newest_first=True))
    driver.quiet()
    assert begun(driver, "backfill") == [0, -5]
    finish(driver)

    assert begun(driver) == [5] and begun(driver, "buffered") == [10, 15]


@pytest.mark.proves("S004-42", "S004-48")
def test_two_backfills_of_one_window_begin_each_time_once():
    driver = scheduled()
    driver.expect(backfill(-30, 0, concurrency=2), backfill(-30, 0, concurrency=3, newest_first=True))
    finish(driver)

    assert sorted(begun(driver, "backfill")) == [*range(-30, 0, 5)]
    assert driver.state.backfills == {}


@pytest.mark.parametrize(("priority", "first"), [(None, "submit"), (9, "backfill")])
def test_a_backfill_goes_behind_live_work_unless_it_has_a_priority(priority, first):
    driver = Driver(zones=load_zones(), credit=1)
    driver.define("flow", task("a"))
    driver.expect(put(priority=5))
    driver.expect(backfill(-60, 0, concurrency=20, priority=priority))
    driver.quiet()
    driver.expect(*(inp.Submit(BY, T, f"live{number}", "flow") for number in range(3)))
    driver.quiet()
    finish(driver)
    sources = [record.source for record in driver.records.values()]  # the first of them had the worker already

    assert sources[1:4] == [first] * 3


def test_a_backfill_is_paused_resumed_and_cancelled():
    driver = scheduled()
    driver.expect(backfill(-600, 0, concurrency=1))
    driver.quiet()
    (number,) = driver.state.backfills
    driver.expect(inp.SteerBackfill(BY, T, number, "pause"))
    finish(driver)
    assert len(begun(driver, "backfill")) == 1
    assert driver.refusal(inp.SteerBackfill(BY, T, number, "pause")) == "illegal_move"
    driver.expect(inp.SteerBackfill(BY, T, number, "resume"))
    driver.quiet()
    assert len(begun(driver, "backfill")) == 2
    driver.expect(inp.SteerBackfill(BY, T, number, "cancel"))
    finish(driver)

    assert len(begun(driver, "backfill")) == 2 and driver.state.backfills == {}
    assert driver.refusal(inp.SteerBackfill(BY, T, number, "cancel")) == "unknown_backfill"


def test_a_backfill_over_a_pause_runs_what_the_pause_skipped_once():
    driver = scheduled()
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(21 * MINUTE)
    driver.expect(backfill(0, 60))
    finish(driver)
    driver.expect(inp.Resume(BY, "schedule", T, "s"))
    driver.advance(4 * MINUTE)

    assert begun(driver, "backfill") == [0, 5, 10, 15, 20] and begun(driver) == [25]


@pytest.mark.parametrize(("asked", "code"), [
    (backfill(0, 0), "bad_window"),
    (backfill(5, 0), "bad_window"),
    (backfill(-5, 0, concurrency=0), "bad_concurrency"),
    (backfill(-5, 0, priority=99), "bad_priority"),
    (inp.Backfill(BY, T, "nobody", 0, 5), "unknown_schedule"),
])  # fmt: skip
def test_a_backfill_that_makes_no_sense_is_refused(asked, code):
    assert scheduled().refusal(asked) == code


# ---- restart


@pytest.mark.parametrize("terms", [
    {"overlap": "buffer_all"}, {"catch_up": "all", "catch_up_cap": 500}, {"automatic_backfill": True}, {"jitter": True},
])  # fmt: skip
def test_a_restored_schedule_goes_on_as_the_original(terms):
    driver = scheduled(**terms)
    driver.advance(11 * MINUTE)
    driver.expect(backfill(-600, 0, concurrency=1), inp.Trigger(BY, T, "s", test=True))
    driver.send(at=driver.tick + 17 * MINUTE)
    other = Machine(restore(*capture(driver.state), zones=load_zones()))
    for tick in range(driver.tick + 1, driver.tick + 40):
        assert driver.machine.apply(tick, []).events == other.apply(tick, []).events
    assert digest(driver.state) == digest(other.state)


# ---- governed schedules


def endpoint(**fields):
    return inp.PutSchedule(
        BY, T, "s", "flow", ScheduleSpec(**(fields or {"every_ms": 5 * MINUTE})), governing=GovernorLimits()
    )


def advice(**fields):
    return inp.Advise("planner", T, "s", **fields)


def decision(driver):
    one = schedule_of(driver)
    return (one.decision.source if one.decision else None, minute(one.next_ms) if one.next_ms else None)


def test_a_governed_schedule_counts_from_the_start_of_its_run():
    driver = scheduled(endpoint())
    assert decision(driver) == ("baseline-interval", 5)
    driver.advance(7 * MINUTE)
    assert begun(driver) == [5] and schedule_of(driver).next_ms == 0
    driver.finish_all()
    driver.quiet()

    assert decision(driver) == ("baseline-interval", 10)
    assert fates(driver) == [(RAN, "", 5, 5, 1)]


def test_its_failures_stretch_the_interval_and_a_success_ends_that():
    driver = scheduled(endpoint())
    driver.advance(5 * MINUTE)
    fail_all(driver)
    assert decision(driver) == ("baseline-interval", 15) and schedule_of(driver).failures == 1
    driver.advance(10 * MINUTE)
    driver.finish_all()
    driver.quiet()

    assert decision(driver) == ("baseline-interval", 20) and schedule_of(driver).failures == 0


def test_a_hint_in_the_tick_after_a_failed_run_does_not_hide_the_failure():
    driver = scheduled(endpoint())
    driver.advance(5 * MINUTE)
    (one,) = driver.running.values()
    driver.send(inp.Failed(one.task, one.attempt, "Boom", permanent=True))
    driver.send(advice(interval_ms=MINUTE))

    assert schedule_of(driver).failures == 1 and decision(driver) == ("ai-interval", 6)


def test_a_hint_may_only_bring_the_next_time_forward_and_a_relaxing_one_counts_after_the_next_run():
    driver = scheduled(endpoint())
    driver.expect(advice(interval_ms=30 * MINUTE, ttl_ms=10 * HOUR, reason="quiet"))
    assert decision(driver) == ("baseline-interval", 5)
    driver.advance(5 * MINUTE)
    driver.finish_all()
    driver.quiet()
    assert decision(driver) == ("ai-interval", 35)
    driver.expect(advice(at_ms=ORIGIN + 8 * MINUTE))
    assert decision(driver) == ("ai-oneshot", 8)
    driver.expect(advice(clear=True))

    assert decision(driver) == ("baseline-interval", 10) and schedule_of(driver).advice is None


def test_a_one_shot_is_used_up_by_its_run():
    driver = scheduled(endpoint())
    driver.expect(advice(at_ms=ORIGIN + 2 * MINUTE))
    driver.advance(2 * MINUTE)
    driver.finish_all()
    driver.quiet()

    assert begun(driver) == [2] and decision(driver) == ("baseline-interval", 7)


def test_a_governed_pause_with_an_end_runs_at_its_end():
    driver = scheduled(endpoint())
    driver.expect(inp.Pause(BY, "schedule", T, "s", "rest", ORIGIN + 50 * MINUTE))
    assert decision(driver) == ("paused", 50)
    driver.advance(51 * MINUTE)

    assert begun(driver) == [50] and not schedule_of(driver).paused


def test_a_governed_pause_without_an_end_waits_for_a_word():
    driver = scheduled(endpoint())
    driver.expect(inp.Pause(BY, "schedule", T, "s"))
    driver.advance(HOUR)
    assert begun(driver) == []
    driver.expect(inp.Resume(BY, "schedule", T, "s"))

    driver.quiet()
    assert decision(driver) == ("baseline-interval", 65)


def test_a_late_governed_schedule_runs_once_and_at_once():
    driver = scheduled(endpoint(cron="*/5 * * * *"))
    outage(driver, 33 * MINUTE)

    assert begun(driver) == [5] and len(driver.running) == 1
    driver.finish_all()
    driver.quiet()
    assert decision(driver) == ("baseline-cron", 35)


@pytest.mark.parametrize(("asked", "code"), [
    (advice(), "empty_hint"),
    (advice(interval_ms=10), "invalid_interval"),
    (advice(interval_ms=MINUTE, ttl_ms=1), "bad_ttl"),
    (advice(interval_ms=MINUTE, reason="x" * 2_000), "too_long"),
    (inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(every_ms=MINUTE), governing=GovernorLimits(9_000, 5_000)),
    "min_above_max"),
    (inp.PutSchedule(BY, T, "s", "flow", ScheduleSpec(at_ms=ORIGIN + 5), governing=GovernorLimits()), "bad_schedule"),
])  # fmt: skip
def test_advice_that_makes_no_sense_is_refused(asked, code):
    assert scheduled(endpoint()).refusal(asked) == code


def test_only_a_governed_schedule_takes_hints():
    assert scheduled().refusal(advice(interval_ms=MINUTE)) == "not_governed"


# ---- calendars


def test_a_list_of_holidays_that_changes_moves_the_schedules_that_name_it():
    driver = Driver(zones=load_zones())
    driver.define("flow", task("a"))
    driver.expect(inp.PutHolidays(BY, T, "feasts", ("2027-01-16",)))
    driver.expect(put(when=ScheduleSpec(cron="0 12 * * *", holidays=("feasts",))))
    driver.expect(inp.PutHolidays(BY, T, "feasts", ("2027-01-15", "2027-01-17")))
    driver.advance(72 * HOUR)

    assert [minute(event.due_ms) // 60 for event in driver.events(RunScheduled)] == [28]
    assert driver.refusal(inp.PutHolidays(BY, T, "feasts", None)) == "in_use"
    assert driver.refusal(inp.PutHolidays(BY, T, "feasts", ("2027-02-30",))) == "invalid_date"
    assert driver.refusal(put(when=ScheduleSpec(cron="0 12 * * *", holidays=("none",)))) == "unknown_holidays"
