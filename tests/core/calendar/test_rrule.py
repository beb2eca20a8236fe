"""Recurrence rules against python-dateutil, and fixed cases where it reads the standard otherwise."""

import time
from datetime import datetime, timedelta
from itertools import islice

import pytest
from dateutil.rrule import rrulestr
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tickwork.core.base.errors import Refused
from tickwork.core.calendar.rrule import parse_rrule
from tickwork.core.calendar.schedule_spec import ScheduleSpec, compile_when
from tickwork.core.calendar.zones import UTC
from tickwork.system.zone_data import load_zones

EPOCH = datetime(1970, 1, 1)
NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)  # dateutil takes seconds for some of the smaller ones
WEEKDAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]


def rule(text, start="20260105T093015"):
    return parse_rrule(f"DTSTART:{start}\nRRULE:{text}", zone=UTC, path="rrule")


def due_rule(text, start):
    try:
        return rule(text, start)
    except Refused as refused:
        assume("never due" not in str(refused))
        raise


def shown(at_s):
    return (EPOCH + timedelta(seconds=at_s)).strftime("%Y-%m-%dT%H:%M:%S")


def first(found, count):
    dues, at = [], found.start_s - 1
    while len(dues) < count and (at := found.next_s(at)) is not None:
        dues.append(shown(at))
    return dues


def theirs(text, start, count):
    found = islice(rrulestr(text, dtstart=datetime.strptime(start, "%Y%m%dT%H%M%S")), count)
    return [one.strftime("%Y-%m-%dT%H:%M:%S") for one in found]


def numbers(low, high, *, signed=False, most=3):
    values = st.integers(low, high)
    if signed:
        values = values | values.map(lambda one: -one)
    return st.lists(values, min_size=1, max_size=most, unique=True).map(lambda all_: ",".join(map(str, all_)))


@st.composite
def rules(draw):
    frequency = draw(st.sampled_from(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"]))
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.integers(1, 4))}"]

    def maybe(name, values, chance=4):
        if draw(st.integers(0, chance - 1)) == 0:
            parts.append(f"{name}={draw(values)}")

    maybe("WKST", st.sampled_from(WEEKDAYS))
    fine = frequency in ("MINUTELY", "SECONDLY")  # dateutil walks from one to the next
    if not fine:
        maybe("BYMONTH", numbers(1, 12))
    if frequency != "WEEKLY" and not fine:
        maybe("BYMONTHDAY", numbers(1, 28, signed=True))
    if frequency in ("YEARLY", "HOURLY"):
        maybe("BYYEARDAY", numbers(1, 366, signed=True), 8)
    weeks = frequency == "YEARLY" and draw(st.integers(0, 3)) == 0
    days = st.sampled_from(WEEKDAYS)
    if frequency in ("YEARLY", "MONTHLY") and not weeks and draw(st.booleans()):
        # Never numbered and plain ones together: dateutil then wants both to fit.
        days = st.tuples(st.sampled_from([1, 2, 4, 5, -1, -2]), days).map(lambda one: f"{one[0]}{one[1]}")
    by_day = st.lists(days, min_size=1, max_size=3, unique=True).map(",".join)
    if weeks:
        # The last weeks are left out: dateutil does not see them in the days that lie in the next year.
        parts += [f"BYWEEKNO={draw(numbers(1, 51, signed=True))}", f"BYDAY={draw(by_day)}"]
    else:
        maybe("BYDAY", by_day, 2)
    maybe("BYHOUR", numbers(0, 23))
    maybe("BYMINUTE", numbers(0, 59))
    maybe("BYSECOND", numbers(0, 59), 6)
    # In the week of a rule's start dateutil counts positions from the start, not from the week's first day.
    if frequency in ("YEARLY", "MONTHLY", "DAILY") and any(one.startswith("BY") for one in parts):
        maybe("BYSETPOS", numbers(1, 5, signed=True))
    return ";".join(parts)


starts = st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda one: one.strftime("%Y%m%dT%H%M%S"))


@pytest.mark.slow
@settings(max_examples=150, phases=NO_SHRINKING)
@given(rules(), starts)
def test_dateutil_finds_the_same_times(text, start):
    ours = due_rule(text, start)
    found = first(ours, 8)

    assert found == theirs(text, start, len(found))


@pytest.mark.slow
@settings(max_examples=100, phases=NO_SHRINKING)
@given(rules(), starts)
def test_backwards_is_forwards_from_the_other_side(text, start):
    ours = due_rule(text, start)
    dues, at = [], ours.start_s - 1
    while len(dues) < 10 and (at := ours.next_s(at)) is not None:
        dues.append(at)
    back, at = [], dues[-1] + 1
    while (at := ours.prev_s(at)) is not None:
        back.append(at)

    assert back == dues[::-1]
    middle = (dues[0] + dues[-1]) // 2
    assert ours.next_s(middle) == min((one for one in dues if one > middle), default=ours.next_s(dues[-1]))


@pytest.mark.parametrize(
    ("text", "start", "times"),
    [
        # Examples of RFC 5545, 3.8.5.3
        ("FREQ=DAILY;COUNT=3", "19970902T090000", ["1997-09-02", "1997-09-03", "1997-09-04"]),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;WKST=SU;BYDAY=TU,TH", "19970902T090000",
         ["1997-09-02", "1997-09-04", "1997-09-16", "1997-09-18"]),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=1FR", "19970905T090000", ["1997-09-05", "1997-10-03", "1997-11-07"]),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=-2MO", "19970922T090000", ["1997-09-22", "1997-10-20", "1997-11-17"]),
        ("FREQ=MONTHLY;COUNT=4;BYMONTHDAY=1,-1", "19970930T090000",
         ["1997-09-30", "1997-10-01", "1997-10-31", "1997-11-01"]),
        ("FREQ=YEARLY;INTERVAL=3;COUNT=4;BYYEARDAY=1,100,200", "19970101T090000",
         ["1997-01-01", "1997-04-10", "1997-07-19", "2000-01-01"]),
        ("FREQ=YEARLY;BYDAY=20MO;COUNT=3", "19970519T090000", ["1997-05-19", "1998-05-18", "1999-05-17"]),
        ("FREQ=YEARLY;BYWEEKNO=20;BYDAY=MO;COUNT=3", "19970512T090000", ["1997-05-12", "1998-05-11", "1999-05-17"]),
        ("FREQ=MONTHLY;BYDAY=FR;BYMONTHDAY=13;COUNT=3", "19970902T090000",
         ["1998-02-13", "1998-03-13", "1998-11-13"]),
        ("FREQ=YEARLY;INTERVAL=4;BYMONTH=11;BYDAY=TU;BYMONTHDAY=2,3,4,5,6,7,8;COUNT=3", "19961105T090000",
         ["1996-11-05", "2000-11-07", "2004-11-02"]),
        ("FREQ=MONTHLY;COUNT=3;BYDAY=TU,WE,TH;BYSETPOS=3", "19970904T090000",
         ["1997-09-04", "1997-10-07", "1997-11-06"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-2;COUNT=3", "19970929T090000",
         ["1997-09-29", "1997-10-30", "1997-11-27"]),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=MO", "19970805T090000",
         ["1997-08-05", "1997-08-10", "1997-08-19", "1997-08-24"]),
        ("FREQ=WEEKLY;INTERVAL=2;COUNT=4;BYDAY=TU,SU;WKST=SU", "19970805T090000",
         ["1997-08-05", "1997-08-17", "1997-08-19", "1997-08-31"]),
        ("FREQ=MONTHLY;BYMONTHDAY=15,30;COUNT=3", "20070215T090000", ["2007-02-15", "2007-03-15", "2007-03-30"]),
        # The day that a rule leaves open is that of its start; dateutil takes all seven of the week instead.
        ("FREQ=YEARLY;BYWEEKNO=20;COUNT=2", "19970512T090000", ["1997-05-12", "1998-05-11"]),
        # The positions of a week are counted from its first day, also in the week of the start.
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=1;COUNT=2", "20000104T090000", ["2000-01-10", "2000-01-17"]),
        ("FREQ=WEEKLY;BYDAY=MO,TU;BYSETPOS=-1;COUNT=2", "20000104T090000", ["2000-01-04", "2000-01-11"]),
        # Numbered and plain weekdays together: each of them is due.
        ("FREQ=MONTHLY;BYDAY=MO,1TU;BYMONTHDAY=1,2,3,4,5,6,7;COUNT=4", "20260105T090000",
         ["2026-01-05", "2026-01-06", "2026-02-02", "2026-02-03"]),
        ("FREQ=YEARLY;COUNT=3", "20240229T090000", ["2024-02-29", "2028-02-29", "2032-02-29"]),
        ("FREQ=DAILY;UNTIL=19970904", "19970902T090000", ["1997-09-02", "1997-09-03", "1997-09-04"]),
        ("FREQ=DAILY;UNTIL=19970904T085959Z", "19970902T090000", ["1997-09-02", "1997-09-03"]),
    ],
)  # fmt: skip
def test_a_rule_means(text, start, times):
    found = rule(text, start)

    assert first(found, 4 if "COUNT=4" in text else 3) == [f"{one}T09:00:00" for one in times]
    if "COUNT" in text or "UNTIL" in text:
        assert len(first(found, 100)) == len(times)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "''"),
        ("FREQ=", "FREQ has no value"),
        ("INTERVAL=2", "FREQ is one of"),
        ("FREQ=FORTNIGHTLY", "FREQ is one of"),
        ("FREQ=DAILY;FREQ=DAILY", "twice"),
        ("FREQ=DAILY;BYEASTER=1", "'BYEASTER' is not supported"),
        ("FREQ=DAILY;RSCALE=HEBREW", "'RSCALE' is not supported"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL is a number"),
        ("FREQ=DAILY;INTERVAL=-1", "INTERVAL is a number"),
        ("FREQ=DAILY;COUNT=10001", "COUNT is a number from 1 to 10000"),
        ("FREQ=DAILY;COUNT=1;UNTIL=20300101", "COUNT or UNTIL"),
        ("FREQ=DAILY;UNTIL=tomorrow", "UNTIL is a moment"),
        ("FREQ=DAILY;UNTIL=20260231", "does not exist"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR has numbers"),
        ("FREQ=DAILY;BYHOUR=-1", "no negative"),
        ("FREQ=DAILY;BYSECOND=60", "BYSECOND has numbers"),
        ("FREQ=MONTHLY;BYMONTHDAY=0", "BYMONTHDAY has numbers"),
        ("FREQ=MONTHLY;BYDAY=XX", "BYDAY has days"),
        ("FREQ=MONTHLY;BYDAY=0MO", "BYDAY has days"),
        ("FREQ=WEEKLY;BYDAY=1MO", "numbered weekday"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY does not go"),
        ("FREQ=MONTHLY;BYYEARDAY=1", "BYYEARDAY does not go"),
        ("FREQ=MONTHLY;BYWEEKNO=1", "BYWEEKNO goes with"),
        ("FREQ=HOURLY;BYMINUTE=1;BYSETPOS=1", "BYSETPOS is not supported"),
        ("FREQ=DAILY;BYSETPOS=1", "needs another"),
        ("FREQ=DAILY;WKST=XX", "WKST is one of"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never due"),
        ("FREQ=MONTHLY;INTERVAL=12;BYMONTH=2", "never due"),  # it starts in January
        ("FREQ=HOURLY;INTERVAL=24;BYHOUR=5", "never due"),
        ("FREQ=SECONDLY;INTERVAL=2;BYSECOND=2", "never due"),
        ("FREQ=DAILY;UNTIL=20200101", "never due"),
        ("FREQ=YEARLY;BYWEEKNO=53;BYMONTH=6;BYDAY=MO", "never due"),
        ("FREQ=MONTHLY;BYDAY=6MO", "never due"),
        ("FREQ=DAILY\nEXDATE:20260101T090000", "EXDATE is not supported"),
        ("FREQ=DAILY\nRRULE:FREQ=DAILY", "more than one"),
        ("x" * 100_000, "longer than"),
    ],
)  # fmt: skip
def test_what_is_not_understood_or_never_due_is_refused_at_once(text, word):
    started = time.process_time()
    with pytest.raises(Refused) as caught:
        rule(text)

    assert (caught.value.code, caught.value.path) == ("invalid_rrule", "rrule")
    assert word in caught.value.message
    assert time.process_time() - started < 2.0  # some 50 ms on an idle machine


def test_a_start_is_needed_and_may_be_given_beside_the_rule():
    with pytest.raises(Refused, match="no DTSTART"):
        parse_rrule("FREQ=DAILY", zone=UTC, path="rrule")

    assert parse_rrule("FREQ=DAILY", zone=UTC, start_ms=86_400_000, path="rrule").next_s(0) == 86_400


def test_a_rule_follows_the_clock_of_its_zone():
    when = ScheduleSpec(rrule="DTSTART;TZID=Europe/Berlin:20260327T023000\nRRULE:FREQ=DAILY", zone="Europe/Berlin")
    rhythm = compile_when(when, load_zones())
    dues, at = [], 0
    for _ in range(4):
        at = rhythm.next_ms(at)
        dues.append(shown(at // 1000))

    assert dues == ["2026-03-27T01:30:00", "2026-03-28T01:30:00", "2026-03-29T01:30:00", "2026-03-30T00:30:00"]


def test_a_rule_of_hours_goes_on_by_elapsed_time():
    when = ScheduleSpec(rrule="DTSTART:20261025T000000\nRRULE:FREQ=HOURLY;COUNT=5", zone="Europe/Berlin")
    dues = list(compile_when(when, load_zones()).between(0, 2**45))

    # Five times from midnight on: 00:00, 01:00, 02:00 twice, 03:00.
    assert [shown(at // 1000)[11:16] for at in dues] == ["22:00", "23:00", "00:00", "01:00", "02:00"]


def test_another_zone_in_the_text_is_refused():
    when = ScheduleSpec(rrule="DTSTART;TZID=Europe/Paris:20260327T023000\nRRULE:FREQ=DAILY", zone="Europe/Berlin")
    with pytest.raises(Refused, match="TZID names another zone"):
        compile_when(when, load_zones())


def test_an_end_in_utc_is_an_instant():
    when = ScheduleSpec(
        rrule="DTSTART:20260601T090000\nRRULE:FREQ=DAILY;UNTIL=20260602T070000Z", zone="Europe/Berlin"
    )  # 09:00 in Berlin

    assert len(list(compile_when(when, load_zones()).between(0, 2**45))) == 2
