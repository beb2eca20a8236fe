"""A schedule in words, its next times, what is doubtful about it, and how two sets of times differ."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.core.calendar.zones import in_zone
from tickwork.core.explain.schedule_preview import (
    Difference,
    describe,
    difference,
    next_times,
    of_name,
    of_terms,
    warnings,
    without_pile_up,
)
from tickwork.core.state.schedule import SchedulePolicy
from tickwork.system.zone_data import load_zones

ZONES = load_zones()
LISTS = {"bank": frozenset({"2026-12-25"})}


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


NOW = at("2026-07-01")


def codes(**fields):
    return [one.code for one in found(**fields)]


def found(**fields):
    when = ScheduleSpec(**fields)
    return warnings(when, compile_when(when, ZONES, LISTS, "acme/x"), ZONES, NOW)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cron": "0 9 * * 1-5", "zone": "America/New_York"}, "at 09:00 on Monday to Friday, New York time"),
        ({"cron": "*/5 * * * *"}, "every 5 minutes, UTC"),
        ({"cron": "* * * * *"}, "every minute, UTC"),
        ({"cron": "*/15 * * * * *"}, "every 15 seconds, UTC"),
        ({"cron": "7 * * * *"}, "every hour at 7 minutes, UTC"),
        ({"cron": "30 0 9 * * *"}, "at 09:00:30, UTC"),
        ({"cron": "0 0 13 * FRI"}, "at 00:00 on day 13 or on Friday, UTC"),
        ({"cron": "0 0 */10 * FRI"}, "at 00:00 on days 1, 11, 21 and 31 that is also Friday, UTC"),
        ({"cron": "0 0 L * *"}, "at 00:00 on the last day of the month, UTC"),
        ({"cron": "0 0 L-3,LW * *"},
         "at 00:00 on day 3 before the last of the month and the last working day of the month, UTC"),
        ({"cron": "0 9 15W 1,6 ?"}, "at 09:00 on the working day nearest to day 15 in January and June, UTC"),
        ({"cron": "0 9 * * 5#3,1L"}, "at 09:00 on the last Monday of the month and the third Friday of the month, UTC"),
        ({"cron": "0 9 * * 0,6"}, "at 09:00 on Saturday and Sunday, UTC"),
        ({"cron": "0,30 8-18 1-5 * *"}, "minutes 0 and 30 in hours 8 to 18 on days 1 to 5, UTC"),
        ({"cron": "55-2 * * * *"}, "minutes 0 to 2 and 55 to 59, UTC"),
        ({"cron": "@daily"}, "at 00:00, UTC"),
        ({"every_ms": 5_400_000}, "every 1h30m"),
        ({"every_ms": 60_000, "anchor_ms": 0}, "every 1m, counted from 1970-01-01T00:00:00Z"),
        ({"at_ms": 0}, "once at 1970-01-01T00:00:00Z"),
        ({"rrule": "DTSTART:20260101T090000\nRRULE:FREQ=DAILY", "zone": "Europe/Berlin"},
         "by the rule FREQ=DAILY, Berlin time"),
        ({"cron": "0 9 * * *", "business_days": True, "holidays": ("bank",), "exclude": ("2026-01-01",),
          "include": ("2026-02-01", "2026-02-02", "2026-02-03", "2026-02-04"), "start_ms": 0, "end_ms": 1_000},
         ("at 09:00, business days only, not on holidays of bank, never on 2026-01-01, in any case on 2026-02-01, "
          "2026-02-02, 2026-02-03 and 1 more, from 1970-01-01T00:00:00Z, until 1970-01-01T00:00:01Z, UTC")),
    ],
)  # fmt: skip
def test_a_schedule_in_words(fields, words):
    assert describe(ScheduleSpec(**fields)) == words


@pytest.mark.parametrize(("rule", "words"), [
    ("FREQ=DAILY", "every day at 09:00"),
    ("FREQ=DAILY;BYHOUR=8,9;BYMINUTE=0,10,20,30,40,50", "every day every 10 minutes in hours 8 and 9"),
    ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,WE", "every 2 weeks on Monday and Wednesday at 09:00, counted from 2026-01-05"),
    ("FREQ=WEEKLY", "every week on Monday at 09:00"),  # the day of its start
    ("FREQ=MONTHLY;BYDAY=2TU,-2WE;BYHOUR=17",
     "every month on the second Tuesday of the month and the second to last Wednesday of the month at 17:00"),
    ("FREQ=MONTHLY;BYMONTHDAY=-1,15", "every month on day 15 and the last day of the month at 09:00"),
    ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13", "every month on Friday that is also day 13 at 09:00"),
    ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1;UNTIL=20270101",
     "every month on Monday to Friday at 09:00, of these only the last in each month, until 2027-01-01"),
    ("FREQ=YEARLY", "every year on day 5 in January at 09:00"),
    ("FREQ=YEARLY;BYDAY=21MO", "every year on the 21st Monday of the year at 09:00"),
    ("FREQ=YEARLY;BYYEARDAY=1,100,-1",
     "every year on days 1 and 100 of the year and the last day of the year at 09:00"),
    ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=TU", "every year on Tuesday in week 20 at 09:00"),
    ("FREQ=HOURLY;BYHOUR=9,10,11", "every hour at minute 0 in hours 9 to 11"),
    ("FREQ=MINUTELY;INTERVAL=15;COUNT=4", "every 15 minutes, counted from 2026-01-05T09:00:00, 4 times"),
    ("FREQ=SECONDLY;BYMINUTE=0;UNTIL=20260105T100000", "every second in minute 0, until 2026-01-05T10:00:00"),
])  # fmt: skip
def test_a_rule_in_words(rule, words):
    when = ScheduleSpec(rrule=f"DTSTART:20260105T090000\nRRULE:{rule}", business_days=True)

    assert describe(when, rhythm=compile_when(when, ZONES)) == f"{words}, business days only, UTC"


def test_the_words_name_the_place_that_a_seed_gives():
    when = ScheduleSpec(cron="H H * * *")
    due = compile_when(when, ZONES, {}, "acme/x").next_ms(0) // 60_000

    assert describe(when, seed="acme/x") == f"at {due // 60:02}:{due % 60:02}, UTC"


def test_next_times_are_shown_in_the_zone():
    zone = ZONES.get("Europe/Berlin")
    rhythm = compile_when(ScheduleSpec(cron="30 2 * * *", zone="Europe/Berlin"), ZONES)

    assert next_times(rhythm, zone, at("2026-03-28"), 3) == [
        (at("2026-03-28T01:30"), "2026-03-28T02:30:00+01:00"),
        (at("2026-03-29T01:30"), "2026-03-29T03:30:00+02:00"),
        (at("2026-03-30T00:30"), "2026-03-30T02:30:00+02:00"),
    ]
    assert next_times(compile_when(ScheduleSpec(at_ms=5), ZONES), zone, 5, 10) == []
    assert in_zone(ZONES.get("UTC"), 1_500) == "1970-01-01T00:00:01.500Z"
    assert in_zone(ZONES.get("America/St_Johns"), NOW) == "2026-06-30T21:30:00-02:30"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"cron": "17 4 * * *"}, []),
        ({"cron": "*/5 * * * *", "zone": "Europe/Berlin"}, []),
        ({"at_ms": NOW}, ["never_due"]),
        ({"at_ms": NOW + 1}, []),
        ({"cron": "17 4 * * *", "end_ms": NOW}, ["never_due"]),
        ({"cron": "17 4 * * *", "start_ms": NOW + 9, "end_ms": NOW + 9}, ["end_before_start"]),
        ({"rrule": "DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=3"}, ["never_due"]),
        ({"cron": "30 2 * * *", "zone": "Europe/Berlin"}, ["in_gap"]),
        ({"cron": "30 2 * * *", "zone": "Asia/Tokyo"}, []),
        ({"cron": "30 2 * * *", "zone": "Europe/Berlin", "end_ms": at("2027-01-01")}, []),
        ({"cron": "30 2 * * *", "zone": "Africa/Casablanca", "start_ms": at("2100-01-01")}, []),  # none left by then
        ({"cron": "30 2 * * *", "zone": "Europe/Berlin", "business_days": True}, []),  # clocks change on a Sunday
        ({"cron": "30 * * * *", "zone": "Europe/Berlin", "gap": "shift"}, ["in_gap"]),
        ({"rrule": "DTSTART:20260101T023000\nRRULE:FREQ=DAILY", "zone": "Europe/Berlin"}, ["in_gap"]),
        ({"cron": "9 * * * *"}, ["minute_and_hour"]),
        ({"cron": "15 * * * *"}, []),
        ({"cron": "* 9 * * *"}, ["minute_and_hour"]),
        ({"cron": "* 9-17 * * *"}, ["minute_and_hour"]),
        ({"cron": "* * * * *"}, []),
        ({"cron": "0 * 9 * * *"}, ["minute_and_hour"]),
        ({"cron": "0 9 * * * *"}, ["minute_and_hour"]),
        ({"cron": "* 30 4 * * *"}, ["second_and_minute"]),
        ({"cron": "* * 4 * * *"}, []),
        ({"cron": "*/10 * * * * *"}, []),
        ({"cron": "30 4 1 * MON"}, ["either_day"]),
        ({"cron": "30 4 1 * */2"}, []),
        ({"cron": "0 9 * * THU"}, ["pile_up"]),
        ({"cron": "@daily"}, ["pile_up"]),
        ({"cron": "@hourly"}, ["pile_up"]),
        ({"cron": "H 9 * * *"}, []),
        ({"cron": "0 5 * * *"}, []),
    ],
)
def test_what_is_doubtful_is_said(fields, expected):
    assert codes(**fields) == expected


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        ("auto", "02:30 does not exist on 2027-03-28, when clocks are changed; it becomes 03:30"),
        ("skip", "02:30 does not exist on 2027-03-28, when clocks are changed; it is left out"),
        ("end", "02:30 does not exist on 2027-03-28, when clocks are changed; it becomes 03:00"),
    ],
)
def test_a_time_in_a_gap_is_named_with_what_becomes_of_it(gap, words):
    assert [one.text for one in found(cron="30 2 * * *", zone="Europe/Berlin", gap=gap)] == [words]


@pytest.mark.parametrize(
    ("terms", "left", "expected"),
    [
        ({}, 9, []),
        ({"runs_max": 3}, 3, []),
        ({"runs_max": 3}, 0, ["never_due"]),
        ({"overlap": "forbid"}, 9, []),  # the last one that is late runs, and nothing overlaps
        ({"overlap": "allow", "catch_up": "all"}, 9, []),
        ({"overlap": "buffer_all", "automatic_backfill": True}, 9, []),
        ({"overlap": "forbid", "automatic_backfill": True}, 9, ["late_and_overlap"]),
        ({"overlap": "replace", "catch_up": "spread", "catch_up_ms": 1}, 9, ["late_and_overlap"]),
        ({"overlap": "buffer_one", "catch_up": "window", "catch_up_ms": 1}, 9, ["late_and_overlap"]),
        ({"overlap": "forbid", "catch_up": "coalesce"}, 9, []),
    ],
)
def test_policies_that_leave_out_more_than_a_person_may_mean_are_said(terms, left, expected):
    assert [one.code for one in of_terms(SchedulePolicy(**terms), left)] == expected


def test_whoever_has_a_jitter_is_not_told_to_take_one():
    many = found(cron="0 9 * * *")

    assert [one.code for one in without_pile_up(many, SchedulePolicy())] == ["pile_up"]
    assert without_pile_up(many, SchedulePolicy(jitter=True)) == []


@pytest.mark.parametrize(
    ("cron", "name", "owner", "expected"),
    [
        ("H 9 * * *", "", "", ["hashed"]),
        ("H 9 * * *", "nightly", "", []),
        ("0 9 * * THU", "", "", []),
        ("0 9 * * *", "nightly", "reports", ["owned"]),
    ],
)
def test_a_name_that_is_missing_or_not_ones_own_is_said(cron, name, owner, expected):
    assert [one.code for one in of_name(ScheduleSpec(cron=cron), name, owner)] == expected


entries = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), unique=True, max_size=20)


@given(entries, entries)
def test_the_difference_is_what_only_one_side_has(first, second):
    ordered = [sorted(side, key=lambda one: (one[1], one[0])) for side in (first, second)]
    differences = list(difference(*ordered))

    assert {(one.key, one.at_ms) for one in differences if one.sign == "-"} == set(first) - set(second)
    assert {(one.key, one.at_ms) for one in differences if one.sign == "+"} == set(second) - set(first)
    assert len(differences) == len(set(first) ^ set(second))
    assert [one.at_ms for one in differences] == sorted(one.at_ms for one in differences)


def test_a_moved_time_is_one_that_went_and_one_that_came():
    assert list(difference([("a", 1), ("b", 2)], [("a", 1), ("b", 3)])) == [
        Difference("-", "b", 2),
        Difference("+", "b", 3),
    ]
