"""L, W, #, ? and H: against cronsim where it knows them, by a slow walk over days, and as fixed cases."""

import calendar
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from core.calendar.minute_oracle import zone_info
from tickwork.core.calendar.cron import Cron
from tickwork.core.calendar.cron_parser import InvalidCron
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.system.zone_data import load_zones

DAY = 86_400


def cron(text, seed=""):
    return Cron.parse(text, path="cron", seed=seed)


def dates(text, count, start="2026-01-01"):
    found, at = [], (date.fromisoformat(start) - date(1970, 1, 1)).days * DAY - 1
    while len(found) < count:
        at = cron(text).next_s(at)
        found.append((date(1970, 1, 1) + timedelta(days=at // DAY)).isoformat())
    return found


def nearest(day):
    """The working day nearest to this one, in its month, by trying."""
    tried = [day + timedelta(days=shift) for shift in (0, -1, 1, -2, 2)]
    return next(one for one in tried if one.weekday() < 5 and one.month == day.month)


def last_of(day):
    return day.replace(day=calendar.monthrange(day.year, day.month)[1])


@st.composite
def day_items(draw):
    number = draw(st.integers(1, 31))
    kind = draw(st.sampled_from(["n", "L", "L-n", "nW", "LW"]))
    if kind == "n":
        return str(number), lambda day: day.day == number
    if kind == "L":
        return "L", lambda day: day == last_of(day)
    if kind == "L-n":
        before = draw(st.integers(1, 30))
        return f"L-{before}", lambda day: day == last_of(day) - timedelta(days=before)
    if kind == "LW":
        return "LW", lambda day: day == nearest(last_of(day))
    return f"{number}W", lambda day: number <= last_of(day).day and day == nearest(day.replace(day=number))


@st.composite
def weekday_items(draw):
    number, nth = draw(st.integers(0, 7)), draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["n", "nL", "n#k"]))

    def on(day):
        return day.isoweekday() % 7 == number % 7

    if kind == "n":
        return str(number), on
    if kind == "nL":
        return f"{number}L", lambda day: on(day) and (day + timedelta(days=7)).month != day.month
    return f"{number}#{nth}", lambda day: on(day) and (day.day - 1) // 7 + 1 == nth


def every_day(day):
    return True


def fields(items):
    lists = st.lists(items, min_size=1, max_size=2)
    joined = lists.map(lambda all_: (",".join(one[0] for one in all_), lambda day: any(fits(day) for _, fits in all_)))
    return st.sampled_from([("*", every_day), ("?", every_day)]) | joined


@pytest.mark.proves("B9")
@settings(max_examples=80)
@given(fields(day_items()), fields(weekday_items()), st.dates(date(1970, 1, 1), date(2100, 1, 1)))
def test_days_are_those_that_a_walk_over_days_finds(days, weekdays, start):
    either = days[0] not in "*?" and weekdays[0] not in "*?"
    combine = any if either else all
    walked = (start + timedelta(days=number) for number in range(500))
    expected = [day for day in walked if combine([days[1](day), weekdays[1](day)])]
    try:
        rhythm = cron(f"0 0 {days[0]} * {weekdays[0]}")
    except InvalidCron:
        assert expected == []
        return
    first = (start - date(1970, 1, 1)).days * DAY
    found = list(rhythm.between(first * 1000, (first + 500 * DAY) * 1000))

    assert [date(1970, 1, 1) + timedelta(days=at // 1000 // DAY) for at in found] == expected
    back, at = [], rhythm.prev_s(first + 500 * DAY)
    while at is not None and at >= first:
        back.append(at * 1000)
        at = rhythm.prev_s(at)
    assert back == found[::-1]


@pytest.mark.proves("B9")
@pytest.mark.parametrize(
    "text", ["0 0 L * *", "30 6 LW * *", "0 0 * * 5L", "0 0 * * 5#3", "0 0 * * 1#5,3", "0 0 L 2 *"]
)
def test_cronsim_finds_the_same(text):
    start = datetime(2024, 1, 1, tzinfo=UTC)
    simulated = [int(one.timestamp()) for one in islice(CronSim(text, start), 60)]
    ours = list(islice(cron(text).between(int(start.timestamp() + 1) * 1000, 2**50), 60))

    assert [at // 1000 for at in ours] == simulated


@pytest.mark.proves("B9")
@pytest.mark.parametrize("text", ["0 0 L * *", "0 0 * * 5#3", "15 10 * * 1#1"])
def test_croniter_finds_the_same(text):
    iterated = croniter(text, datetime(2024, 1, 1, tzinfo=UTC))
    start_ms = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() + 1) * 1000

    ours = islice(cron(text).between(start_ms, 2**50), 30)
    assert [at // 1000 for at in ours] == [int(iterated.get_next(float)) for _ in range(30)]


@pytest.mark.proves("B10", "S004-81")
@settings(max_examples=60)
@given(
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]),
    st.integers(0, 59), st.integers(0, 23), st.sampled_from(["*", "1-5", "0"]),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
)  # fmt: skip
def test_in_a_zone_cronsim_agrees_where_a_time_in_a_gap_runs_at_its_end(zone, minute, hour, weekdays, start):
    text = f"{minute} {hour} * * {weekdays}"
    moment = start.replace(microsecond=0, tzinfo=UTC).astimezone(zone_info(zone))
    assume(moment.fold == 0)
    simulated = [int(one.timestamp()) for one in islice(CronSim(text, moment), 300)]
    rhythm = compile_when(ScheduleSpec(cron=text, zone=zone, gap="end", overlap="first"), load_zones())

    ours = list(islice(rhythm.between(int(moment.timestamp()) * 1000 + 1, 2**50), 300))
    assert [at // 1000 for at in ours] == simulated


@pytest.mark.proves("B9")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 L-2 * *", ["2026-01-29", "2026-02-26", "2026-03-29"]),
        ("0 0 l * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
        ("0 0 1W * *", ["2026-01-01", "2026-02-02", "2026-03-02"]),  # never in the month before
        ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29"]),  # and none without such a day
        ("0 0 15w,LW * ?", ["2026-01-15", "2026-01-30", "2026-02-16"]),
        ("0 0 ? * fri#1", ["2026-01-02", "2026-02-06", "2026-03-06"]),
        ("0 0 ? * SUNL,7#1", ["2026-01-04", "2026-01-25", "2026-02-01"]),
        ("0 0 ? * THUL", ["2026-01-29", "2026-02-26", "2026-03-26"]),
        ("0 0 13 * 5L", ["2026-01-13", "2026-01-30", "2026-02-13"]),  # both fields: either fits
        ("0 0 29 2 ?", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("0 0 ? 2 1#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),  # a fifth Monday in February
    ],
)
def test_special_days_are(text, expected):
    assert dates(text, 3) == expected


@pytest.mark.proves("B9", "S004-32")
@pytest.mark.parametrize(
    ("text", "field", "position", "word"),
    [
        ("@reboot", "expression", 1, "when your program starts"),
        (" @REBOOT", "expression", 2, "when your program starts"),
        ("0 0 L 2 L", "day of week", 9, "5L"),
        ("0 0 L-31 * *", "day of month", 5, "between 1 and 30"),
        ("0 0 L-0 * *", "day of month", 5, "between 1 and 30"),
        ("0 0 32W * *", "day of month", 5, "between 1 and 31"),
        ("0 0 1-5W * *", "day of month", 5, "not a number"),
        ("0 0 W * *", "day of month", 5, "not a number"),
        ("0 0 * * 5#6", "day of week", 9, "between 1 and 5"),
        ("0 0 * * 5#0", "day of week", 9, "between 1 and 5"),
        ("0 0 * * 8#1", "day of week", 9, "between 0 and 7"),
        ("0 0 * * #1", "day of week", 9, "not a name or number"),
        ("0 0 * * 1,XXXL", "day of week", 11, "not a name or number"),
        ("L * * * *", "minute", 1, "not a number"),
        ("0 ? * * *", "hour", 3, "only in a day field"),
        ("0 0 1,? * *", "day of month", 7, "stands alone"),
        ("H(30-10) * * * *", "minute", 1, "starts after its end"),
        ("H(0-60) * * * *", "minute", 1, "between 0 and 59"),
        ("H/0 * * * *", "minute", 1, "between 1 and"),
        ("H(0-9)/20 * * * *", "minute", 1, "between 1 and 10"),
        ("H(x) * * * *", "minute", 1, "not a number"),
        ("0 0 L-30 2 *", "day of month", 5, "no such day"),
        ("0 0 30W 2 ?", "day of month", 5, "no such day"),
        ("0 0 */15 2 1#5", "day of week", 12, "no such day"),  # 1 and 16 are no fifth Monday
        ("0 0 31 4 */7", "day of month", 5, "no such day"),
    ],
)
def test_a_faulty_special_character_is_refused_where_it_stands(text, field, position, word):
    with pytest.raises(InvalidCron) as caught:
        cron(text)

    assert (caught.value.field, caught.value.position) == (field, position)
    assert word in caught.value.message


@pytest.mark.proves("B9")
@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("H * * * *", [(m,) for m in range(60)]),
        ("h(0-29) * * * *", [(m,) for m in range(30)]),
        ("H/15 * * * *", [(m, m + 15, m + 30, m + 45) for m in range(15)]),
        ("H(10-29)/10 * * * *", [(10 + m, 20 + m) for m in range(10)]),
    ],
)
def test_h_is_one_place_for_a_seed_and_all_places_for_all_seeds(text, minutes):
    found = Counter(
        tuple(at // 60_000 for at in cron(text, seed=f"tenant/{number}").between(0, 3_600_000))
        for number in range(3_000)
    )

    assert sorted(found) == minutes
    assert max(found.values()) < 3 * 3_000 / len(minutes)
    assert cron(text, seed="a") == cron(text, seed="a")


@pytest.mark.proves("B9")
def test_h_differs_from_field_to_field_and_stays_below_the_29th():
    found = [cron("H H H H H", seed=str(number)) for number in range(500)]

    assert max(one.days.day.plain for one in found) == 1 << 28
    assert len({(one.minutes, one.hours) for one in found}) > 300


@pytest.mark.proves("S004-79")
def test_six_fields_start_with_the_seconds():
    assert list(cron("*/20 30 4 * * *").between(0, DAY * 1000)) == [16_200_000, 16_220_000, 16_240_000]
