"""The schedule checker: it agrees with years of schedules, and finds what is broken on purpose."""

import pytest

from sim import schedule_oracle as checker
from sim.schedule_oracle import DAY_MS, HOUR_MS, MINUTE_MS, Life, Policy, Rule, Seen, Span, Told, Verdict
from sim.schedule_years import Years
from tickwork.core.calendar import local_time as zoned
from tickwork.core.calendar.zones import Zones
from tickwork.core.decide.schedules import schedule_firing as occurrences
from tickwork.core.decide.schedules.schedule_firing import _run as run_as_it_is
from tickwork.core.snapshot.snapshot import digest
from tickwork.core.state.state import Schedule
from tickwork.system.zone_data import load_zones

NOON = 1_800_014_400_000  # 2027-01-15T12:00:00Z
HALF = 5 * MINUTE_MS
DAILY = Rule("0 13 * * *")
ONE, TWO, THREE = (NOON + HOUR_MS + day * DAY_MS for day in range(3))


def verdict_of(seen, *, life=None, spans=None, stops=(), days=3):
    life = life or Life("s", [Told(NOON, DAILY)])
    found = Verdict()
    spans = [Span(ONE, THREE, 3, "ran")] if spans is None else spans
    checker.check(life, seen, spans, stops, NOON + days * DAY_MS, found)
    return found


def broken(found):
    return {kind for kind in ("missed", "unexpected", "duplicate", "early", "late", "liars", "wrong_fates")
            if getattr(found, kind)}  # fmt: skip


def seen(*starts):
    return [Seen(nominal, start) for nominal, start in zip((ONE, TWO, THREE), starts, strict=False)]


@pytest.mark.parametrize(("runs", "expected"), [
    (seen(ONE, TWO, THREE), set()),
    (seen(ONE, TWO), {"missed"}),
    ([*seen(ONE, TWO, THREE), Seen(ONE, ONE + 5)], {"duplicate"}),
    ([*seen(ONE, TWO, THREE), Seen(ONE + MINUTE_MS, ONE + MINUTE_MS)], {"unexpected"}),
    (seen(ONE, TWO - 1, THREE), {"early", "late", "liars"}),  # also outside of its window
    (seen(ONE, TWO + HOUR_MS, THREE), {"late", "liars"}),
    ([Seen(ONE, ONE), Seen(TWO, ONE), Seen(THREE, THREE)], {"early", "late", "liars"}),  # ids that lie
    ([*seen(ONE, TWO), Seen(THREE, THREE, ended_well=False)], {"missed"}),
])  # fmt: skip
def test_each_kind_of_wrong_is_told_apart(runs, expected):
    assert broken(verdict_of(runs)) == expected


@pytest.mark.parametrize("spans", [
    [Span(ONE, TWO, 2, "ran")],
    [Span(ONE, THREE, 2, "ran")],
    [Span(ONE, TWO, 2, "ran"), Span(TWO, THREE, 2, "ran")],
    [Span(ONE, TWO, 2, "ran"), Span(THREE, THREE, 1, "skipped")],
    [Span(ONE, ONE, 1, "ran"), Span(THREE, THREE, 1, "ran")],
])  # fmt: skip
def test_ranges_that_are_not_what_happened_are_found(spans):
    assert broken(verdict_of(seen(ONE, TWO, THREE), spans=spans)) == {"wrong_fates"}


@pytest.mark.parametrize(("policy", "fates"), [
    (Policy("none"), ["skipped"] * 4),
    (Policy("last"), ["skipped"] * 3 + ["ran"]),
    (Policy("coalesce"), ["coalesced"] * 3 + ["ran"]),
    (Policy("all"), ["ran"] * 4),
    (Policy("all", cap=3), ["skipped"] + ["ran"] * 3),
    (Policy("window", 90 * MINUTE_MS), ["skipped"] * 2 + ["ran"] * 2),
    (Policy("none", grace_ms=HOUR_MS), ["skipped"] * 3 + ["ran"]),
])  # fmt: skip
def test_the_checker_splits_a_stop_by_policy(policy, fates):
    stop = (NOON + HALF, NOON + 4 * HOUR_MS + HALF)
    life = Life("s", [Told(NOON, Rule("0 * * * *"), policy)])
    found = checker.expectations(life, [stop], stop[1] + 10 * MINUTE_MS, 0)

    assert [one.fate for one in found] == fates
    assert {one.earliest_ms for one in found} == {stop[1]}


@pytest.mark.proves("I20", "I21", "P18")
@pytest.mark.parametrize(("cron", "day", "expected"), [
    ("30 2 * * *", "2027-03-14", ["07:30"]),  # New York: moved by the hour that is left out
    ("30 1 * * *", "2027-11-07", ["05:30"]),  # comes twice, counts once
    ("30 * * * *", "2027-11-07", [f"{h:02}:30" for h in range(4, 24)]),  # every hour of elapsed time
])  # fmt: skip
def test_the_checkers_own_clocks_agree_with_the_almanac(cron, day, expected):
    start = checker._ms(checker.datetime.fromisoformat(day)) + 4 * HOUR_MS
    found = checker.due_times(Rule(cron, "America/New_York"), start - 1, start + 20 * HOUR_MS - 1)

    assert [checker._text(one)[11:16] for one in found] == expected


# ---- years


@pytest.mark.proves("I16", "I20", "I22", "I23", "I58", "S004-21", "S004-25", "S004-85")
def test_five_months_of_schedules_are_as_they_were_told():
    result = Years(3, size=150, days=150).run()

    assert result.ok, str(result)
    assert result.verdict.expected > 3_000
    assert result.crashes > 3


def test_the_short_way_of_plain_schedules_decides_what_the_long_way_decides(monkeypatch):
    class Told(Years):
        def _tick(self, at_ms, asked):
            super()._tick(at_ms, asked)
            story.append(digest(self.machine.state))

    def short(turn, schedule):
        taken.append(begin_on_time(turn, schedule))
        return taken[-1]

    begin_on_time, taken = occurrences._begin_on_time, []
    monkeypatch.setattr(occurrences, "_begin_on_time", short)
    stories = []
    for _ in range(2):
        story = []
        assert Told(7, size=30, days=120).run().ok
        stories.append(story)
        monkeypatch.setattr(Schedule, "is_plain", property(lambda _: False))

    assert taken.count(True) > 300 and taken.count(False) > 5
    assert stories[0] == stories[1]


@pytest.mark.slow
@pytest.mark.proves("I16", "I20", "I22", "I23", "I58", "S004-01", "S004-21", "S004-25", "S004-27", "S004-85")
def test_two_years_of_a_thousand_schedules_in_forty_zones_are_as_they_were_told():
    result = Years(1, size=1_000, days=731).run()

    assert result.ok, str(result)
    assert result.verdict.expected > 150_000
    assert result.fates["coalesced"] and result.fates["skipped"]


# ---- what is broken on purpose is found


def broken_years(**more):
    return Years(5, size=40, days=220, **more).run()


def test_the_same_years_are_fine_when_nothing_is_broken():
    assert broken_years().ok


def test_an_occurrence_that_is_left_out_silently_is_found(monkeypatch):
    """It is not even late: the schedule just goes on with the one after it."""
    count = 0

    def sloppy(turn, schedule, after_ms, start_at):
        nonlocal count
        count += 1
        if count % 50 == 0 and after_ms and schedule.late is None:
            skipped = schedule.next_ms
            schedule.next_ms = after_ms
            run_as_it_is(turn, schedule, schedule.rhythm.next_ms(after_ms) or 0, start_at)
            assert skipped < after_ms
            return
        run_as_it_is(turn, schedule, after_ms, start_at)

    monkeypatch.setattr(occurrences, "_run", sloppy)
    monkeypatch.setattr(occurrences, "_begin_on_time", lambda *_: False)
    result = broken_years()

    assert result.verdict.missed and result.verdict.wrong_fates and result.verdict.early
    assert result.differences  # the ledger saw it in its own tick


def test_a_zone_that_is_not_the_one_that_was_asked_for_is_found():
    good = load_zones()
    wrong = Zones(good.version, sorted(good._names), lambda name: good._read("Etc/GMT+5" if "/N" in name else name))
    result = broken_years(zones=wrong)

    assert result.verdict.missed and result.verdict.unexpected
    assert not result.differences  # nothing was lost: it was all at the wrong time


def test_a_calendar_that_loses_a_day_now_and_then_is_found(monkeypatch):
    true = zoned.ZonedRecurrence.next_ms

    def lossy(self, after_ms):
        found = true(self, after_ms)
        return true(self, found) if found is not None and found // DAY_MS % 97 == 0 else found

    monkeypatch.setattr(zoned.ZonedRecurrence, "next_ms", lossy)
    result = broken_years()

    assert result.verdict.missed and result.verdict.wrong_fates
