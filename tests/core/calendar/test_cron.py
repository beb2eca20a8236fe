"""Cron against three others: a slow oracle that tries every minute, cronsim and croniter."""

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from croniter import croniter
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.cron import Cron
from tickwork.core.calendar.cron_parser import MONTHS, WEEKDAYS, InvalidCron
from tickwork.core.calendar.dates import MS_END, MS_START, civil, day_number
from tickwork.core.calendar.recurrence import Interval

MINUTE, DAY = 60_000, 86_400_000
START = datetime(2024, 1, 1, tzinfo=UTC)


def ms(moment):
    return int(moment.timestamp()) * 1000


def at(text):
    return ms(datetime.fromisoformat(text).replace(tzinfo=UTC))


def iso(due_ms):
    return datetime.fromtimestamp(due_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def cron(text):
    return Cron.parse(text, path="schedule.cron")


@st.composite
def items(draw, low, high, names=()):
    """One item of a list, and the values it stands for, worked out by walking around a ring."""

    def spelled(number):
        if names and draw(st.booleans()):
            return draw(st.sampled_from([str.upper, str.lower, str.title]))(names[number - low])
        return str(number)

    count = high - low + 1
    start, end = draw(st.integers(low, high)), draw(st.integers(low, high))
    step = draw(st.integers(1, count))
    walk = [(start - low + offset) % count + low for offset in range((end - start) % count + 1)]
    return draw(
        st.sampled_from(
            [
                (spelled(start), {start}),
                (f"{spelled(start)}-{spelled(end)}", set(walk)),
                (f"{spelled(start)}-{spelled(end)}/{step}", set(walk[::step])),
                (f"*/{step}", set(range(low, high + 1, step))),
                (f"{spelled(start)}/{step}", set(range(start, high + 1, step))),
            ]
        )
    )


def fields(low, high, names=()):
    everything = st.just(("*", set(range(low, high + 1))))
    lists = st.lists(items(low, high, names), min_size=1, max_size=3)
    return everything | lists.map(
        lambda parts: (",".join(text for text, _ in parts), set().union(*(found for _, found in parts)))
    )


def allows_day(moment, days, months, weekdays):
    (day_text, day_set), (_, month_set), (weekday_text, weekday_set) = days, months, weekdays
    on_day, on_weekday = moment.day in day_set, moment.isoweekday() % 7 in weekday_set
    if day_text[0] == "*" or weekday_text[0] == "*":
        return moment.month in month_set and on_day and on_weekday
    return moment.month in month_set and (on_day or on_weekday)


def parsed(text):
    try:
        return cron(text)
    except InvalidCron as refused:
        assume("no such day" not in str(refused))
        raise


moments = st.datetimes(datetime(1970, 1, 1), datetime(2110, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


@pytest.mark.proves("B9", "S001-02")
@settings(max_examples=60, deadline=None)
@given(fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12, MONTHS), fields(0, 6, WEEKDAYS), moments)
def test_due_times_are_those_that_trying_every_minute_finds(minutes, hours, days, months, weekdays, moment):
    rhythm = parsed(" ".join(part[0] for part in (minutes, hours, days, months, weekdays)))
    start = moment.replace(second=0, microsecond=0)
    tried = (start + timedelta(minutes=number) for number in range(3 * 1440))
    expected = [
        ms(minute)
        for minute in tried
        if minute.minute in minutes[1] and minute.hour in hours[1] and allows_day(minute, days, months, weekdays)
    ]

    assert list(rhythm.between(ms(start), ms(start) + 3 * DAY)) == expected


@pytest.mark.proves("B9", "S001-02")
@settings(max_examples=100, deadline=None)
@given(fields(1, 31), fields(1, 12, MONTHS), fields(0, 6, WEEKDAYS), moments)
def test_due_days_are_those_that_trying_every_day_finds(days, months, weekdays, moment):
    rhythm = parsed(f"0 0 {days[0]} {months[0]} {weekdays[0]}")
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    tried = (start + timedelta(days=number) for number in range(1_500))
    expected = [ms(day) for day in tried if allows_day(day, days, months, weekdays)]

    assert list(rhythm.between(ms(start), ms(start) + 1_500 * DAY)) == expected


@pytest.mark.proves("S001-02")
@settings(max_examples=100, deadline=None)
@given(
    fields(0, 59), fields(0, 59), fields(0, 23), fields(1, 31), fields(1, 12), fields(0, 6), st.integers(0, 4 * 10**12)
)
def test_the_one_before_the_next_is_the_last_one_not_after(second, minute, hour, day, month, weekday, now_ms):
    rhythm = parsed(" ".join(part[0] for part in (second, minute, hour, day, month, weekday)))
    following = rhythm.next_ms(now_ms)
    preceding = rhythm.prev_ms(now_ms + 1)

    assert preceding is not None
    assert following is not None
    assert preceding <= now_ms < following
    assert rhythm.prev_ms(following) == preceding
    assert rhythm.next_ms(preceding) == following


AGREED = [
    "* * * * *",
    "*/7 * * * *",
    "5,10-20/5,50 */6 * * *",
    "0 0 1 1 *",
    "30 4 1,15 * 5",
    "0 9-17 * * MON-FRI",
    "0 0 31 * *",
    "0 0 29 2 *",
    "0 0 13 * FRI",
    "0 0 29 2 1",
    "15 3 * JAN,jul Sun",
    "0 12 * * 7",
    "0 12 * * 5-7",
]


@pytest.mark.proves("B9", "S001-02")
@pytest.mark.parametrize("text", AGREED)
def test_cronsim_and_croniter_find_the_same_due_times(text):
    ours = list(islice(cron(text).between(ms(START) + 1, MS_END), 200))
    simulated = [ms(moment) for moment in islice(CronSim(text, START), 200)]
    iterated = croniter(text, START)

    assert ours == simulated
    assert ours[:50] == [ms(iterated.get_next(datetime)) for _ in range(50)]


@pytest.mark.proves("S001-02")
@pytest.mark.parametrize(
    ("text", "after", "due"),
    [
        ("0 0 * * *", "2024-02-28T00:00:00", "2024-02-29T00:00:00"),
        ("0 0 * * *", "2100-02-28T00:00:00", "2100-03-01T00:00:00"),  # no leap year
        ("0 22-2 * * *", "2024-01-01T02:00:00", "2024-01-01T22:00:00"),
        ("0 0 * * FRI-MON", "2024-01-01T00:00:00", "2024-01-05T00:00:00"),
        ("0 0 28-2 * *", "2024-01-02T00:00:00", "2024-01-28T00:00:00"),
        ("0 0 1 nov-Feb *", "2024-02-01T00:00:00", "2024-11-01T00:00:00"),
        ("0 0 29 2 */7", "2004-02-29T00:00:00", "2032-02-29T00:00:00"),  # a star with a step: both must fit
        ("0 0 29 2 */7", "1880-02-29T00:00:00", "1920-02-29T00:00:00"),  # forty years, as 1900 had no such day
        ("30 */20 * * * *", "2024-01-01T00:00:30", "2024-01-01T00:20:30"),  # seconds first
        ("*/15 * * * * *", "2024-12-31T23:59:45", "2025-01-01T00:00:00"),
        ("@yearly", "2024-01-01T00:00:00", "2025-01-01T00:00:00"),
        ("@annually", "2024-05-01T00:00:00", "2025-01-01T00:00:00"),
        ("@monthly", "2024-12-01T00:00:00", "2025-01-01T00:00:00"),
        ("@weekly", "2024-01-01T00:00:00", "2024-01-07T00:00:00"),
        ("@Daily", "2024-01-01T00:00:00", "2024-01-02T00:00:00"),
        ("@midnight", "2024-01-01T00:00:00", "2024-01-02T00:00:00"),
        (" @hourly ", "2024-01-01T00:59:59", "2024-01-01T01:00:00"),
        ("\t0  0 1 1\t* ", "2024-01-01T00:00:00", "2025-01-01T00:00:00"),
    ],
)
def test_the_next_due_time_is(text, after, due):
    assert iso(cron(text).next_ms(at(after))) == due
    assert iso(cron(text).prev_ms(at(due) + 1)) == due


@pytest.mark.proves("S001-02")
def test_next_and_prev_are_strict_to_the_millisecond():
    rhythm, due_ms = cron("0 0 * * *"), at("2024-01-02T00:00:00")

    assert [rhythm.next_ms(due_ms + shift) for shift in (-1, 0, 1)] == [due_ms, due_ms + DAY, due_ms + DAY]
    assert [rhythm.prev_ms(due_ms + shift) for shift in (-1, 0, 1)] == [due_ms - DAY, due_ms - DAY, due_ms]
    assert list(rhythm.between(due_ms, due_ms + DAY)) == [due_ms]
    assert list(rhythm.between(due_ms + 1, due_ms + DAY)) == []


@pytest.mark.proves("B9", "S004-32")
@pytest.mark.parametrize(
    ("text", "field", "position"),
    [
        ("", "expression", 1),
        ("   ", "expression", 1),
        ("* * * *", "expression", 1),
        ("* * * * * * *", "expression", 1),
        ("60 * * * *", "minute", 1),
        ("0 24 * * *", "hour", 3),
        ("0 0 0 * *", "day of month", 5),
        ("0 0 1 13 *", "month", 7),
        ("0 0 1 1 8", "day of week", 9),
        ("60 0 * * * *", "second", 1),
        ("*/0 * * * *", "minute", 1),
        ("*/61 * * * *", "minute", 1),
        ("1,,2 * * * *", "minute", 3),
        ("1,2, * * * *", "minute", 5),
        ("5- * * * *", "minute", 1),
        ("-5 * * * *", "minute", 1),
        ("*/ * * * *", "minute", 1),
        ("1-2-3 * * * *", "minute", 1),
        ("1/2/3 * * * *", "minute", 1),
        ("0 0 1 FOO *", "month", 7),
        ("0 0 1 JANUARY *", "month", 7),
        ("0 0 * * MON,XYZ", "day of week", 13),
        ("MON * * * *", "minute", 1),
        ("1.5 * * * *", "minute", 1),
        ("٣ * * * *", "minute", 1),  # a digit to Python, not to cron
        ("0 0 * * *\n", "day of week", 9),
        ("@reboot", "expression", 1),
        ("@daily *", "expression", 8),
        ("0 0 31 2 *", "day of month", 5),
        ("0 0 30 2 *", "day of month", 5),
        ("0 0 31 4,6,SEP,11 *", "day of month", 5),
        ("," * 102_400, "expression", 1_001),
        ("*" * 102_400 + " * * * *", "expression", 1_001),
        ("9" * 900 + " * * * *", "minute", 1),
    ],
)
def test_a_faulty_expression_is_refused_with_field_and_position(text, field, position):
    with pytest.raises(Refused) as caught:
        cron(text)

    assert (caught.value.code, caught.value.path) == ("invalid_cron", "schedule.cron")
    assert (caught.value.field, caught.value.position) == (field, position)
    assert len(str(caught.value)) < 200


@given(st.text(alphabet="0123456789*/,- @?LWH#MONJAFEB\t", max_size=30))
def test_any_text_is_either_a_rhythm_or_refused(text):
    try:
        rhythm = cron(text)
    except InvalidCron:
        return

    assert rhythm.next_ms(0) is not None


def test_time_ends_on_both_sides():
    rhythm = cron("0 0 1 1 *")

    assert iso(rhythm.next_ms(at("9998-06-01T00:00:00"))) == "9999-01-01T00:00:00"
    assert rhythm.next_ms(at("9999-01-01T00:00:00")) is None
    assert rhythm.next_ms(10**30) is None
    assert rhythm.next_ms(-(10**30)) == MS_START
    assert rhythm.prev_ms(MS_START) is None
    assert rhythm.prev_ms(-(10**30)) is None
    assert rhythm.prev_ms(10**30) == at("9999-01-01T00:00:00")


@given(st.dates())
def test_days_are_counted_as_the_gregorian_calendar_does(day):
    number = day.toordinal() - date(1970, 1, 1).toordinal()

    assert day_number(day.year, day.month, day.day) == number
    assert civil(number) == (day.year, day.month, day.day)


@pytest.mark.proves("B11")
@pytest.mark.parametrize("every_ms", [0, -1_000, 1, 999, 10**21, 1_500.0, True, "PT1M", "P1M", None])
def test_an_interval_that_is_not_between_a_second_and_a_century_is_refused(every_ms):
    with pytest.raises(Refused) as caught:
        Interval.parse(every_ms, path="schedule.every_ms")

    assert (caught.value.code, caught.value.path) == ("invalid_interval", "schedule.every_ms")


@pytest.mark.proves("B11", "S001-02")
@given(st.integers(1_000, 10**9), st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_an_interval_is_even_and_goes_through_its_anchor(every_ms, anchor_ms, now_ms):
    rhythm = Interval.parse(every_ms, anchor_ms=anchor_ms, path="every")
    dues = list(rhythm.between(now_ms, now_ms + 5 * every_ms))

    assert len(dues) == 5
    assert all((due - anchor_ms) % every_ms == 0 for due in dues)
    assert all(later - earlier == every_ms for earlier, later in pairwise(dues))
    assert rhythm.prev_ms(dues[0]) == dues[0] - every_ms < now_ms <= dues[0]
    assert rhythm.next_ms(dues[0]) == dues[1]
