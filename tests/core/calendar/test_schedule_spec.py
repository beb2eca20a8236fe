"""What is due when: the data, what is refused, which dates count, from when to when, and what is shared."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.calendar.minute_oracle import reading
from tickwork.core.base.errors import Refused
from tickwork.core.calendar.recurrence import Interval, LocalRecurrence, Once
from tickwork.core.calendar.schedule_spec import ScheduleSpec, SpecCache, compile_when
from tickwork.core.calendar.zones import UTC_ONLY, Zones, parse_zone
from tickwork.system.zone_data import load_zones

ZONES = load_zones()
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
LISTS = {"bank": frozenset({"2026-12-25", "2026-12-26", "2027-01-01"}), "none": frozenset()}


def at(text):
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def iso(due_ms):
    return datetime.fromtimestamp(due_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")


def rhythm(seed="acme/nightly", **fields):
    return compile_when(ScheduleSpec(**fields), ZONES, LISTS, seed)


def dues(start, count=4, **fields):
    found, now = [], at(start) - 1
    compiled = rhythm(**fields)
    while len(found) < count and (now := compiled.next_ms(now)) is not None:
        found.append(iso(now))
    return found


@pytest.mark.proves("S004-83")
def test_a_when_travels_as_few_words():
    when = ScheduleSpec(cron="0 9 * * *")

    assert msgspec.json.encode(when) == b'{"cron":"0 9 * * *"}'
    assert msgspec.json.decode(msgspec.json.encode(when), type=ScheduleSpec) == when
    assert when.zone == "UTC"
    assert dues("2026-07-01", 1, cron="0 9 * * *") == ["2026-07-01T09:00"]
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"cron":"0 9 * * *","tz":"UTC"}', type=ScheduleSpec)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"cron":"0 9 * * *","gap":"guess"}', type=ScheduleSpec)


@pytest.mark.proves("F18", "I21", "B10", "S004-81")
@pytest.mark.parametrize(
    ("fields", "start", "expected"),
    [
        # 02:00 to 03:00 does not exist in Berlin on 29 March 2026
        ({"cron": "30 2 * * *"}, "2026-03-28", ["2026-03-28T01:30", "2026-03-29T01:30", "2026-03-30T00:30"]),
        ({"cron": "30 2 * * *", "gap": "skip"}, "2026-03-28", ["2026-03-28T01:30", "2026-03-30T00:30"]),
        ({"cron": "30 2 * * *", "gap": "end"}, "2026-03-28", ["2026-03-28T01:30", "2026-03-29T01:00"]),
        # shifted onto a time that is due anyway: once
        ({"cron": "30 2,3 * * *"}, "2026-03-29", ["2026-03-29T01:30", "2026-03-30T00:30"]),
        ({"cron": "0,20,40 2 * * *", "gap": "end"}, "2026-03-29", ["2026-03-29T01:00", "2026-03-30T00:00"]),
        # 02:00 to 03:00 comes twice on 25 October 2026
        ({"cron": "30 2 * * *"}, "2026-10-25", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ({"cron": "30 2 * * *", "overlap": "second"}, "2026-10-25", ["2026-10-25T01:30", "2026-10-26T01:30"]),
        ({"cron": "30 2 * * *", "overlap": "both"}, "2026-10-25", ["2026-10-25T00:30", "2026-10-25T01:30"]),
        # every hour is elapsed time, unless it is said otherwise
        ({"cron": "30 * * * *"}, "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]),
        ({"cron": "30 0-23 * * *"}, "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T01:30"]),
        ({"cron": "30 * * * *", "overlap": "first"}, "2026-10-25T00:00", ["2026-10-25T00:30", "2026-10-25T02:30"]),
        ({"cron": "30 * * * *"}, "2026-03-29T00:00", ["2026-03-29T00:30", "2026-03-29T01:30", "2026-03-29T02:30"]),
    ],
)
def test_when_clocks_are_changed_in_berlin(fields, start, expected):
    assert dues(start, len(expected), zone="Europe/Berlin", **fields) == expected


@pytest.mark.proves("B10", "I21")
@pytest.mark.parametrize(
    ("gap", "expected"),
    [
        ("shift", ["2011-12-29T19:00", "2011-12-30T19:00", "2011-12-31T19:00"]),  # on the 31st, once
        ("skip", ["2011-12-29T19:00", "2011-12-30T19:00", "2011-12-31T19:00"]),
        ("end", ["2011-12-29T19:00", "2011-12-30T10:00", "2011-12-30T19:00"]),
    ],
)
def test_the_day_that_samoa_left_out(gap, expected):
    assert dues("2011-12-29T10:00", 3, cron="0 9 * * *", zone="Pacific/Apia", gap=gap) == expected


@pytest.mark.proves("B10")
def test_half_an_hour_is_shifted_by_half_an_hour_on_lord_howe():
    found = dues("2026-10-03T00:00", 2, cron="15 2 * * *", zone="Australia/Lord_Howe")

    assert found == ["2026-10-03T15:45", "2026-10-04T15:15"]  # 02:45 and 02:15 by +11


@pytest.mark.proves("B10", "I21")
@pytest.mark.parametrize(
    ("fields", "asked", "following", "preceding"),
    [
        # 01:30 comes twice on 1 November 2026 in New York, and the next such date is a year away
        ({"cron": "30 1 1 11 *", "overlap": "both"}, "2026-11-01T05:45", "2026-11-01T06:30", "2026-11-01T05:30"),
        ({"cron": "30 1 1 11 *", "overlap": "second"}, "2026-11-01T05:45", "2026-11-01T06:30", "2025-11-01T05:30"),
        ({"cron": "30 1 1 11 *"}, "2026-11-01T06:15", "2027-11-01T05:30", "2026-11-01T05:30"),
        ({"cron": "30 1 1 11 *"}, "2026-11-01T07:15", "2027-11-01T05:30", "2026-11-01T05:30"),
        (
            {"rrule": "DTSTART:20200101T013000\nRRULE:FREQ=YEARLY;BYMONTH=11;BYMONTHDAY=1", "overlap": "both"},
            "2026-11-01T05:45", "2026-11-01T06:30", "2026-11-01T05:30",
        ),
        (
            {"rrule": "DTSTART:20200101T013000\nRRULE:FREQ=YEARLY;BYMONTH=11;BYMONTHDAY=1"},
            "2026-11-01T06:15", "2027-11-01T05:30", "2026-11-01T05:30",
        ),
        # 23:00 comes twice on 26 October 2019 in Beirut, and no day of the next period is named
        (
            {"cron": "0 * 26 6-10 *", "zone": "Asia/Beirut"},
            "2019-10-26T20:30", "2019-10-26T21:00", "2019-10-26T20:00",
        ),
    ],
)  # fmt: skip
def test_a_time_that_comes_twice_is_not_lost_where_its_neighbour_is_far_away(fields, asked, following, preceding):
    compiled = rhythm(**{"zone": "America/New_York"} | fields)

    assert iso(compiled.next_ms(at(asked))) == following
    assert iso(compiled.prev_ms(at(asked))) == preceding


@pytest.mark.proves("B10", "I21")
@pytest.mark.parametrize(
    "fields",
    [
        {"cron": "*/5 1-6 * * *"},
        {"cron": "0-59/5 1-6 * * *"},
        {"rrule": "DTSTART:20200101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=5;BYHOUR=1,2,3,4,5,6"},
    ],
)
@pytest.mark.parametrize(("day", "start", "hours"), [("2026-11-01", "05:00", 7), ("2026-03-08", "06:00", 5)])
def test_what_runs_often_in_some_hours_goes_on_by_elapsed_time(fields, day, start, hours):
    first = at(f"{day}T{start}")
    found = list(rhythm(zone="America/New_York", **fields).between(at(day), at(day) + DAY))

    assert found == list(range(first, first + hours * HOUR, 5 * MINUTE))


@pytest.mark.proves("I21")
def test_what_runs_often_in_an_hour_that_does_not_exist_is_moved_and_not_lost():
    found = dues("2026-03-29", 5, cron="*/15 2 * * *", zone="Europe/Berlin")

    assert [one[8:] for one in found] == ["29T01:00", "29T01:15", "29T01:30", "29T01:45", "30T00:00"]


@pytest.mark.proves("I21")
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # 01:30 is 05:30 and 06:30 in UTC
        ("DTSTART:20261031T013000\nRRULE:FREQ=DAILY;UNTIL=20261101T060000Z", ["10-31T05:30", "11-01T05:30"]),
        ("DTSTART:20261101T063000Z\nRRULE:FREQ=DAILY;COUNT=2", ["11-01T06:30", "11-02T06:30"]),
        ("DTSTART:20261101T013000\nRRULE:FREQ=DAILY;COUNT=1", ["11-01T05:30"]),
        ("DTSTART:20261101T013000\nRRULE:FREQ=DAILY;COUNT=2", ["11-01T05:30", "11-01T06:30"]),
        (
            "DTSTART:20261101T014000\nRRULE:FREQ=MINUTELY;INTERVAL=10;COUNT=4",
            ["11-01T05:40", "11-01T05:50", "11-01T06:00", "11-01T06:10"],
        ),
    ],
)
def test_start_until_and_count_of_a_rule_are_about_instants(rule, expected):
    assert [one[5:] for one in dues("2026-10-01", 9, rrule=rule, zone="America/New_York", overlap="both")] == expected


@pytest.mark.proves("I21")
def test_a_date_that_comes_back_for_an_hour_counts_for_an_interval():
    """In St. John's the clock went from 00:01 on 29 October 2006 back to 23:01 on the 28th."""
    compiled = rhythm(every_ms=10 * MINUTE, zone="America/St_Johns", exclude=("2006-10-29",))
    expected = [at("2006-10-29T02:20"), *range(at("2006-10-29T02:40"), at("2006-10-29T03:30"), 10 * MINUTE)]
    window = at("2006-10-29T02:20"), at("2006-10-29T04:00")

    assert list(compiled.between(*window)) == expected
    assert list(compiled.back_between(*window)) == expected[::-1]


@pytest.mark.proves("S004-81")
def test_nine_in_the_morning_stays_nine_in_the_morning():
    compiled = rhythm(cron="0 9 * * 1-5", zone="America/New_York")
    found = list(compiled.between(at("2026-01-01"), at("2027-01-01")))

    assert len(found) == 261
    assert {reading("America/New_York", one // 1000) % 86_400 for one in found} == {9 * 3_600}
    assert {iso(one)[11:] for one in found} == {"13:00", "14:00"}


@pytest.mark.proves("I21")
def test_new_zone_data_changes_only_times_from_its_first_difference_on():
    """A country gives up summer time: everything before the first change that is gone stays as it was."""
    data = ZONES._read("Europe/Berlin")
    cut = data[: data.rindex(b"CET-1CEST")] + b"CET-1\n"
    last_change = parse_zone("Europe/Berlin", cut).period(2**40).start_s * 1000
    new = Zones("2099a", ["Europe/Berlin"], {"Europe/Berlin": cut}.__getitem__)
    when = ScheduleSpec(cron="0 9 * * *", zone="Europe/Berlin")
    start, end = last_change - 400 * DAY, last_change + 400 * DAY
    before = list(compile_when(when, ZONES).between(start, end))
    after = list(compile_when(when, new).between(start, end))
    changed = sorted(set(before) ^ set(after))

    assert (ZONES.version, new.version) == (ZONES.version, "2099a")
    assert changed
    assert min(changed) > last_change


ELSEWHERE = """
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.system.zone_data import load_zones
zones = load_zones()
for name in ("Europe/Berlin", "America/Santiago", "Africa/Casablanca", "Australia/Lord_Howe"):
    rhythm = compile_when(ScheduleSpec(cron="H 2 * * *", zone=name), zones, {}, "acme/x")
    print(zones.version, list(rhythm.between(1_767_225_600_000, 1_830_297_600_000)))
"""


@pytest.mark.proves("S004-84")
def test_machines_set_up_differently_find_the_same_times(tmp_path):
    source = str(Path(compile_when.__code__.co_filename).parents[2])
    settings_of = [
        {"TZ": "Asia/Tokyo", "PYTHONTZPATH": "", "PYTHONHASHSEED": "1"},
        {"TZ": "America/New_York", "PYTHONTZPATH": str(tmp_path), "PYTHONHASHSEED": "2", "LC_ALL": "C"},
    ]
    found = [
        subprocess.run(
            [sys.executable, "-c", ELSEWHERE], env={"PYTHONPATH": source, **one}, check=True, capture_output=True
        ).stdout
        for one in settings_of
    ]

    assert len(found[0]) > 40_000
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"business_days": True}, ["12-24", "12-25", "12-28", "12-29"]),
        ({"holidays": ("bank",)}, ["12-24", "12-27", "12-28", "12-29"]),
        ({"holidays": ("bank", "none"), "business_days": True}, ["12-24", "12-28", "12-29", "12-30"]),
        ({"exclude": ("2026-12-24",)}, ["12-25", "12-26", "12-27", "12-28"]),
        ({"include": ("2026-12-26",), "holidays": ("bank",), "business_days": True},
         ["12-24", "12-26", "12-28", "12-29"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "kind",
    [
        {"cron": "0 9 * * *"},
        {"every_ms": DAY, "anchor_ms": at("2020-01-01T09:00")},
        {"rrule": "DTSTART:20200101T090000\nRRULE:FREQ=DAILY"},
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Africa/Abidjan"])
def test_dates_that_count(kind, fields, expected, zone):
    assert [one[5:10] for one in dues("2026-12-24", 4, zone=zone, **kind, **fields)] == expected


def test_an_included_date_is_due_though_the_day_fields_do_not_name_it():
    found = dues("2026-01-01", 3, cron="0 9 * 6 1", include=("2026-02-14",))

    assert found == ["2026-02-14T09:00", "2026-06-01T09:00", "2026-06-08T09:00"]


def test_the_date_of_an_interval_is_that_of_the_zone():
    friday_evening = at("2026-07-03T22:00")  # already Saturday in Berlin
    found = dues("2026-07-03T20:00", 3, every_ms=HOUR, anchor_ms=friday_evening, business_days=True,
                 zone="Europe/Berlin")  # fmt: skip

    assert found == ["2026-07-03T20:00", "2026-07-03T21:00", "2026-07-05T22:00"]


@settings(max_examples=60)
@given(
    st.sampled_from([
        {"cron": "*/7 1-4 * * *", "zone": "Europe/Berlin"},
        {"cron": "30 9 L * *", "zone": "America/New_York", "business_days": True},
        {"every_ms": 7 * HOUR, "business_days": True, "zone": "Asia/Tokyo", "exclude": ("2026-05-06",)},
        {"rrule": "DTSTART:20200101T090000\nRRULE:FREQ=WEEKLY;BYDAY=FR", "holidays": ("bank",), "zone": "Asia/Tokyo"},
        {"every_ms": 90 * MINUTE, "anchor_ms": 5},
        {"at_ms": 1_780_000_000_000},
        {"cron": "0 12 * * *", "start_ms": 1_770_000_000_000, "end_ms": 1_790_000_000_000},
    ]),
    st.integers(1_765_000_000_000, 1_800_000_000_000),
)  # fmt: skip
def test_next_and_prev_are_each_other_backwards(fields, now_ms):
    compiled = rhythm(**fields)
    following, preceding = compiled.next_ms(now_ms), compiled.prev_ms(now_ms)

    if following is not None:
        assert following > now_ms
        assert compiled.prev_ms(following + 1) == following
        assert compiled.next_ms(following - 1) == following
        assert compiled.prev_ms(following) == (now_ms if compiled.next_ms(now_ms - 1) == now_ms else preceding)
    if preceding is not None:
        assert preceding < now_ms
        assert compiled.next_ms(preceding - 1) == preceding


def test_start_and_end_bound_from_the_first_to_before_the_last():
    fields = {"cron": "0 0 * * *", "start_ms": at("2026-01-02"), "end_ms": at("2026-01-05")}
    compiled = rhythm(**fields)

    assert dues("2020-01-01", 9, **fields) == ["2026-01-02T00:00", "2026-01-03T00:00", "2026-01-04T00:00"]
    assert compiled.prev_ms(at("2030-01-01")) == at("2026-01-04")
    assert compiled.prev_ms(at("2026-01-02")) is None


@pytest.mark.proves("B11")
def test_an_interval_goes_through_its_anchor_else_through_its_start():
    assert rhythm(every_ms=HOUR, anchor_ms=7, start_ms=at("2026-01-01")).next_ms(0) == at("2026-01-01T00:00") + 7
    assert rhythm(every_ms=HOUR, start_ms=at("2026-01-01T00:10")).next_ms(0) == at("2026-01-01T00:10")
    assert rhythm(every_ms=HOUR) == Interval(every_ms=HOUR, anchor_ms=0)
    assert rhythm(at_ms=5) == Once(5)


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({}, "schedule_kind", "when"),
        ({"cron": "* * * * *", "every_ms": 1_000}, "schedule_kind", "when"),
        ({"cron": "61 * * * *"}, "invalid_cron", "when.cron"),
        ({"every_ms": 999}, "invalid_interval", "when.every_ms"),
        ({"every_ms": 0}, "invalid_interval", "when.every_ms"),
        ({"rrule": "FREQ=DAILY"}, "invalid_rrule", "when.rrule"),
        ({"cron": "* * * * *", "zone": "Europe/berlin"}, "unknown_zone", "when.zone"),
        ({"at_ms": 5, "zone": "nowhere"}, "unknown_zone", "when.zone"),
        ({"cron": "* * * * *", "anchor_ms": 5}, "schedule_anchor", "when.anchor_ms"),
        ({"every_ms": 1_000, "gap": "skip"}, "schedule_clock_change", "when.gap"),
        ({"at_ms": 1_000, "overlap": "both"}, "schedule_clock_change", "when.overlap"),
        ({"at_ms": 1_000, "business_days": True}, "schedule_instant", "when.at_ms"),
        ({"at_ms": 1_000, "end_ms": 5}, "schedule_instant", "when.at_ms"),
        ({"at_ms": 10**18}, "instant_range", "when.at_ms"),
        ({"every_ms": 1_000, "start_ms": -(10**18)}, "instant_range", "when.start_ms"),
        ({"cron": "* * * * *", "exclude": ("2026-02-30",)}, "invalid_date", "when.exclude[0]"),
        ({"cron": "* * * * *", "include": ("2026-02-03", "tomorrow")}, "invalid_date", "when.include[1]"),
        ({"cron": "* * * * *", "include": ("2026-02-03",), "exclude": ("2026-02-03",)}, "date_twice", "when.include"),
        ({"cron": "* * * * *", "holidays": ("none", "moon")}, "unknown_holidays", "when.holidays[1]"),
        ({"cron": "* * * * *", "exclude": ("2026-02-03",) * 1_001}, "too_many_dates", "when.exclude"),
        ({"cron": "0 0 * * SAT", "business_days": True}, "never_due", "when.cron"),
        ({"rrule": "DTSTART:20260103T090000\nRRULE:FREQ=WEEKLY", "business_days": True}, "never_due", "when.rrule"),
        ({"every_ms": 7 * DAY, "anchor_ms": 2 * DAY, "business_days": True}, "never_due", "when.every_ms"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_field(fields, code, path):
    with pytest.raises(Refused) as caught:
        compile_when(ScheduleSpec(**fields), ZONES, LISTS, path="when")

    assert (caught.value.code, caught.value.path) == (code, path)


def test_equal_schedules_share_what_they_are_made_of():
    parts = SpecCache()
    fields = [
        {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"},
        {"cron": "H H * * *", "zone": "Europe/Berlin"},
        {"cron": "0 9 * * *", "holidays": ("bank",)},
    ]
    found = [
        [compile_when(ScheduleSpec(**one), ZONES, LISTS, "same", parts=parts) for one in fields for _ in range(2)]
        for _ in range(2)
    ]

    assert len({id(one) for group in found for one in group}) == len(fields)
    before = len(parts)
    for number in range(2_000):
        compile_when(ScheduleSpec(cron="H H * * *"), ZONES, LISTS, f"acme/{number}", parts=parts)
    assert len(parts) - before <= 1_440 + 2


def test_a_compiled_schedule_with_bounds_of_its_own_is_small():
    parts = SpecCache()
    fields = {"cron": "0 9 * * *", "zone": "Europe/Berlin"}
    one = compile_when(ScheduleSpec(**fields, start_ms=1), ZONES, parts=parts)
    two = compile_when(ScheduleSpec(**fields, start_ms=2), ZONES, parts=parts)

    assert one.rhythm is two.rhythm
    assert sys.getsizeof(one) <= 64


def test_in_utc_nothing_stands_between_the_clock_and_the_instant():
    assert isinstance(compile_when(ScheduleSpec(cron="0 9 * * *"), UTC_ONLY), LocalRecurrence)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "America/New_York"])
@pytest.mark.parametrize("cron", ["0 0 1 1 *", "* * * * *", "0 0 29 2 */7"])
def test_time_ends_on_both_sides_in_every_zone(zone, cron):
    compiled = rhythm(cron=cron, zone=zone)

    for extreme in (10**30, -(10**30), at("9999-12-31T23:59") + 60_000):
        for found in (compiled.next_ms(extreme), compiled.prev_ms(extreme)):
            assert found is None or -62_135_596_800_000 <= found < 253_402_300_800_000
    assert compiled.next_ms(10**30) is None
    assert compiled.prev_ms(-(10**30)) is None
    assert compiled.next_ms(-(10**30)) is not None
    assert compiled.prev_ms(10**30) is not None
