"""Durations and instants: every spelling that counts, and every one that does not."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.durations import (
    DAY_MS,
    DURATION_MS_MAX,
    INSTANT_MS_MAX,
    INSTANT_MS_MIN,
    duration_ms,
    duration_text,
    instant_ms,
    instant_text,
    interval_ms,
)


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("90s", 90_000),
        ("250ms", 250),
        ("1s250ms", 1_250),
        ("1m5ms", 60_005),
        ("3d", 3 * DAY_MS),
        ("2w", 14 * DAY_MS),
        ("0s", 0),
        ("PT5M", 300_000),
        ("P1DT2H", 93_600_000),
        ("P2W", 14 * DAY_MS),
        ("PT0S", 0),
        (1_500, 1_500),
        (0, 0),
        ("36525d", DURATION_MS_MAX),
    ],
)
def test_a_duration_has_one_exact_length(text, length_ms):
    assert duration_ms(text, path="") == length_ms


@pytest.mark.proves("B11", "B7")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("", "duration_empty"),
        (" ", "duration_empty"),
        (-1, "duration_negative"),
        ("-5m", "duration_negative"),
        ("PT-5M", "duration_negative"),
        (1.0, "duration_type"),
        (float("nan"), "duration_type"),
        (True, "duration_type"),
        (None, "duration_type"),
        ([5], "duration_type"),
        ("1.5h", "duration_fraction"),
        ("PT0.5S", "duration_fraction"),
        ("PT0,5S", "duration_fraction"),
        ("P1M", "duration_months"),
        ("P1Y", "duration_months"),
        ("P1Y2M3DT4H", "duration_months"),
        ("3mo", "duration_months"),
        ("1 year", "duration_months"),
        ("1ns", "duration_syntax"),
        ("5", "duration_syntax"),
        ("m", "duration_syntax"),
        ("P", "duration_syntax"),
        ("PT", "duration_syntax"),
        ("P1DT", "duration_syntax"),
        ("5 m", "duration_syntax"),
        ("5m ", "duration_syntax"),
        ("5m\n", "duration_syntax"),
        ("30m1h", "duration_syntax"),
        ("5M", "duration_syntax"),
        ("٣m", "duration_syntax"),
        pytest.param("1" * 1_000_000 + "s", "duration_syntax", id="a million digits"),
        ("36525d1ms", "duration_too_long"),
        ("999999999999999999s", "duration_too_long"),
        (10**18, "duration_too_long"),
        pytest.param(10**5_000, "duration_too_long", id="5,000 digits"),
    ],
)
def test_any_other_duration_is_refused_by_name(value, code):
    with pytest.raises(Refused) as caught:
        duration_ms(value, path="nodes[0].duration")

    assert (caught.value.code, caught.value.path) == (code, "nodes[0].duration")
    assert len(caught.value.message) < 300


@pytest.mark.proves("B11")
@pytest.mark.parametrize("value", ["0s", 0, 999, "999ms", "PT0S"])
def test_an_interval_is_at_least_a_second(value):
    with pytest.raises(Refused) as caught:
        interval_ms(value, path="every")

    assert caught.value.code == "duration_too_short"
    assert interval_ms("1s", path="every") == 1_000


def test_bounds_are_arguments():
    with pytest.raises(Refused, match="longer than 1m"):
        duration_ms("61s", path="", maximum_ms=60_000)
    with pytest.raises(Refused, match="shorter than 1m"):
        duration_ms("59s", path="", minimum_ms=60_000)


@given(st.integers(0, DURATION_MS_MAX))
def test_the_text_of_a_duration_reads_back(length_ms):
    assert duration_ms(duration_text(length_ms), path="") == length_ms


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("2026-01-02t03:04:05z", "2026-01-02T03:04:05Z"),
        ("2026-01-02T03:04:05.120Z", "2026-01-02T03:04:05.120Z"),
        ("2026-01-02T03:04:05.1Z", "2026-01-02T03:04:05.100Z"),
        ("2026-01-02T03:04:05.123999999Z", "2026-01-02T03:04:05.123Z"),
        ("2026-01-02T03:04:05+14:00", "2026-01-01T13:04:05Z"),
        ("2026-01-02T03:04:05-12:00", "2026-01-02T15:04:05Z"),
        ("2024-02-29T00:00:00-00:00", "2024-02-29T00:00:00Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_an_instant_is_kept_to_the_millisecond_in_utc(text, again):
    assert instant_text(instant_ms(text, path="")) == again


@pytest.mark.proves("B7")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("2026-01-02T03:04:05", "instant_zone"),
        ("2026-01-02T24:00:00Z", "instant_hour_24"),
        ("2026-12-31T23:59:60Z", "instant_leap_second"),
        ("2026-12-31T23:59:61Z", "instant_range"),
        ("0000-01-01T00:00:00Z", "instant_range"),
        ("0001-01-01T00:00:00+01:00", "instant_range"),
        ("9999-12-31T23:59:59-01:00", "instant_range"),
        ("10000-01-01T00:00:00Z", "instant_syntax"),
        ("2026-02-29T00:00:00Z", "instant_range"),
        ("2026-13-01T00:00:00Z", "instant_range"),
        ("2026-01-02T03:60:05Z", "instant_range"),
        ("2026-01-02T03:04:05+14:01", "instant_offset"),
        ("2026-01-02T03:04:05-12:01", "instant_offset"),
        ("2026-01-02T03:04:05+25:00", "instant_offset"),
        ("2026-01-02T03:04:05+01:60", "instant_offset"),
        ("2026-01-02T03:04:05+0100", "instant_syntax"),
        ("2026-01-02 03:04:05Z", "instant_syntax"),
        ("2026-01-02T03:04Z", "instant_syntax"),
        ("2026-01-02", "instant_syntax"),
        ("2026-01-02T03:04:05Z\n", "instant_syntax"),
        ("٢٠٢٦-01-02T03:04:05Z", "instant_syntax"),
        ("tomorrow", "instant_syntax"),
        ("", "instant_syntax"),
        (1_767_323_045, "instant_number"),
        (1_767_323_045_000, "instant_number"),
        (1.5, "instant_number"),
        ("1767323045", "instant_number"),
        ("-1767323045.5", "instant_number"),
        (True, "wrong_type"),
        (None, "wrong_type"),
    ],
)
def test_any_other_instant_is_refused_by_name(value, code):
    with pytest.raises(Refused) as caught:
        instant_ms(value, path="inputs.at")

    assert (caught.value.code, caught.value.path) == (code, "inputs.at")


@given(st.integers(INSTANT_MS_MIN, INSTANT_MS_MAX))
def test_the_text_of_an_instant_reads_back(at_ms):
    assert instant_ms(instant_text(at_ms), path="") == at_ms


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-720, 840))
def test_an_instant_equals_what_the_standard_library_says(naive, offset_minutes):
    moment = naive.replace(tzinfo=timezone(timedelta(minutes=offset_minutes)))

    assert instant_ms(moment.isoformat(), path="") == (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        milliseconds=1
    )


@pytest.mark.proves("B7")
@pytest.mark.parametrize("at_ms", [INSTANT_MS_MIN - 1, INSTANT_MS_MAX + 1, 10**30])
def test_a_sum_that_leaves_the_calendar_is_refused_and_does_not_overflow(at_ms):
    with pytest.raises(Refused) as caught:
        instant_text(at_ms)

    assert caught.value.code == "instant_range"
