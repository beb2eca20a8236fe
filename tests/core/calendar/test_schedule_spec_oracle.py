"""Due times in a zone against an oracle that looks at every minute around each change of the clocks."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.calendar.minute_oracle import DAY, MINUTE, changes, due, reading
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.system.zone_data import load_zones

YEARS = [
    ("Europe/Berlin", 2026),
    ("America/New_York", 2026),
    ("Australia/Lord_Howe", 2026),  # half an hour
    ("America/Santiago", 2026),  # at midnight
    ("Africa/Casablanca", 2026),  # back for Ramadan
    ("Africa/Casablanca", 2031),  # twice in one year
    ("Pacific/Apia", 2011),  # a day left out
    ("Asia/Pyongyang", 2015),
    ("Asia/Pyongyang", 2018),
    ("America/New_York", 2055),  # by the footer of the file
    ("Europe/Dublin", 2026),  # winter is the exception there
    ("Africa/Cairo", 2026),
    ("America/Havana", 2026),
    ("Asia/Kathmandu", 1985),  # a quarter of an hour
    ("America/Nuuk", 2026),
]
GAPS, OVERLAPS = ("shift", "skip", "end"), ("first", "second", "both")
WINDOWS = [
    (name, at // DAY * DAY - DAY, at // DAY * DAY + 2 * DAY) for name, year in YEARS for at in changes(name, year)
]
ALL_MINUTES, ALL_HOURS = set(range(60)), set(range(24))


def field(values):
    return ",".join(map(str, sorted(values)))


def times(minutes, hours):
    return lambda moment: moment.minute in minutes and moment.hour in hours


def rhythm(cron, zone, **fields):
    return compile_when(ScheduleSpec(cron=cron, zone=zone, **fields), load_zones())


def test_every_zone_of_the_list_has_a_change_to_look_at():
    assert {name for name, _, _ in WINDOWS} == {name for name, _ in YEARS}
    assert len(WINDOWS) >= 26


@pytest.mark.proves("B10", "I21", "S004-81")
@pytest.mark.parametrize(("zone", "start_s", "end_s"), WINDOWS)
@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_every_quarter_of_an_hour_around_a_change_is_due_as_the_oracle_finds(zone, start_s, end_s, gap, overlap):
    quarters = {0, 15, 30, 45}
    ours = rhythm(f"{field(quarters)} {field(ALL_HOURS)} * * *", zone, gap=gap, overlap=overlap)
    expected = [at * 1000 for at in due(zone, times(quarters, ALL_HOURS), start_s, end_s, gap, overlap)]

    assert list(ours.between(start_s * 1000, end_s * 1000)) == expected
    assert backwards(ours, start_s, end_s) == expected[::-1]


@pytest.mark.slow
@pytest.mark.proves("B10", "I21")
@settings(max_examples=150)
@given(
    st.sampled_from(WINDOWS), st.sampled_from(GAPS), st.sampled_from(OVERLAPS),
    st.sets(st.integers(0, 59), min_size=1, max_size=4), st.sets(st.integers(0, 23), min_size=1, max_size=6),
    st.sampled_from(["*", "1-5", "0,6"]), st.integers(0, 3 * 86_400_000),
)  # fmt: skip
def test_any_times_around_a_change_are_due_as_the_oracle_finds(
    window, gap, overlap, minutes, hours, weekdays, middle_ms
):
    zone, start_s, end_s = window
    days = {"*": range(7), "1-5": range(1, 6), "0,6": (0, 6)}[weekdays]
    ours = rhythm(f"{field(minutes)} {field(hours)} * * {weekdays}", zone, gap=gap, overlap=overlap)

    def fits(moment):
        return moment.minute in minutes and moment.hour in hours and moment.isoweekday() % 7 in days

    expected = [at * 1000 for at in due(zone, fits, start_s, end_s, gap, overlap)]
    middle_ms += start_s * 1000

    assert list(ours.between(start_s * 1000, end_s * 1000)) == expected
    assert backwards(ours, start_s, end_s) == expected[::-1]
    after = [at for at in expected if at > middle_ms]
    before = [at for at in expected if at < middle_ms]
    if after:
        assert ours.next_ms(middle_ms) == after[0]
    if before:
        assert ours.prev_ms(middle_ms) == before[-1]


@pytest.mark.proves("B10", "I21")
@settings(max_examples=60)
@given(
    st.sampled_from(WINDOWS), st.sampled_from(GAPS), st.sets(st.integers(0, 23), min_size=1, max_size=4),
    st.booleans(), st.sets(st.integers(0, 2), max_size=2), st.sets(st.integers(0, 2), max_size=2),
)  # fmt: skip
def test_dates_that_count_are_those_on_the_wall_before_any_shift(window, gap, hours, business, included, excluded):
    zone, start_s, end_s = window
    first = reading(zone, start_s) // DAY
    include = tuple(iso_date(first + number) for number in sorted(included - excluded))
    exclude = tuple(iso_date(first + number) for number in sorted(excluded))
    ours = rhythm(
        f"0 {field(hours)} * * *", zone, gap=gap, overlap="first", include=include, exclude=exclude,
        business_days=business,
    )  # fmt: skip

    def fits(moment):
        date = moment.date().isoformat()
        counts = date not in exclude and (date in include or not business or moment.isoweekday() <= 5)
        return moment.minute == 0 and moment.hour in hours and counts

    expected = [at * 1000 for at in due(zone, fits, start_s, end_s, gap, "first")]

    assert list(ours.between(start_s * 1000, end_s * 1000)) == expected
    assert backwards(ours, start_s, end_s) == expected[::-1]


@pytest.mark.proves("B10", "I21")
@pytest.mark.parametrize(("zone", "start_s", "end_s"), WINDOWS)
def test_what_runs_every_few_minutes_follows_elapsed_time(zone, start_s, end_s):
    """No minute of real time is left out and none is doubled, whatever the clocks do."""
    dues = list(rhythm("*/5 * * * *", zone).between(start_s * 1000, end_s * 1000))

    assert {later - earlier for earlier, later in pairwise(dues)} == {5 * MINUTE * 1000}


def iso_date(day):
    from datetime import date, timedelta

    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def backwards(ours, start_s, end_s):
    found, at = [], ours.prev_ms(end_s * 1000)
    while at is not None and at >= start_s * 1000:
        found.append(at)
        at = ours.prev_ms(at)
    return found
