"""Schedules that stand in code: what they become, and what is refused at the line where it is written."""

from datetime import UTC, date, datetime, timedelta

import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused
from tickwork.protocol.http_models import GovernorRequest, ScheduleRequest

SEND = """
from datetime import datetime
from typing import Any

@tw.task
def send(*, day: Any = None, settings: Any = None) -> str: return str(day)

"""


@pytest.mark.proves("S004-29", "S004-80")
def test_every_policy_of_a_schedule_can_be_said_in_code():
    found = tw.cron(
        "0 9 * * 1-5", tz="America/New_York", name="mornings", inputs={"n": 1}, context={"kind": "summary"},
        queue="reports", priority=7, overlap="buffer_all", buffer=5, catch_up="window",
        catch_up_window=timedelta(hours=2), catch_up_cap=10, grace="5m", jitter=True, pause_after=3,
        start=datetime(2026, 7, 1), end=datetime(2026, 8, 1, tzinfo=UTC), max_runs=9, include=[date(2026, 7, 4)],
        exclude=["2026-07-06"], business_days=True, holidays="bank", dst_gap="skip", dst_overlap="second", group="g",
        description="for the board", time_input="day", context_input="what", governor=GovernorRequest(min="1m"),
    )  # fmt: skip

    assert found.name == "mornings"
    assert found.wanted == ScheduleRequest(
        workflow="", cron="0 9 * * 1-5", timezone="America/New_York", inputs={"n": 1}, context={"kind": "summary"},
        queue="reports", priority=7, overlap="buffer_all", buffer=5, catch_up="window", catch_up_window="2h",
        catch_up_cap=10, grace="5m", jitter=True, pause_after=3, start="2026-07-01T04:00:00Z",
        end="2026-08-01T00:00:00Z", max_runs=9, include=("2026-07-04",), exclude=("2026-07-06",), business_days=True,
        holidays=("bank",), dst_gap="skip", dst_overlap="second", group="g", description="for the board",
        time_input="day", context_input="what", governor=GovernorRequest(min="1m"),
    )  # fmt: skip
    said = set(ScheduleRequest.__struct_fields__) - {"workflow", "cron", "every", "at", "rrule", "anchor", "timezone"}
    said -= {"listen_to", "updates"}  # by tw.on
    assert set(tw.cron.__globals__["Policies"].__annotations__) == said  # and nothing is left out


@pytest.mark.proves("S004-30", "S004-83", "S004-50")
def test_the_four_kinds_and_their_defaults():
    assert tw.cron("@daily").wanted == ScheduleRequest(workflow="", cron="@daily")
    assert tw.every(timedelta(minutes=5), anchor="2026-01-01T00:00:00Z").wanted == ScheduleRequest(
        workflow="", every="5m", anchor="2026-01-01T00:00:00Z"
    )
    assert tw.at(datetime(2026, 12, 24, 18), tz="Europe/Berlin").wanted == ScheduleRequest(
        workflow="", at="2026-12-24T17:00:00Z", timezone="Europe/Berlin"
    )
    assert tw.rrule("FREQ=MONTHLY;BYDAY=-1FR").wanted == ScheduleRequest(workflow="", rrule="FREQ=MONTHLY;BYDAY=-1FR")
    plain = tw.cron("@daily").wanted
    assert (plain.timezone, plain.automatic_backfill, plain.queue, plain.jitter) == ("UTC", False, "", False)


@pytest.mark.parametrize(
    ("make", "code", "path"),
    [
        (lambda: tw.cron("0 25 * * *"), "invalid_cron", "cron"),
        (lambda: tw.cron("0 9 * * *", tz="Mars/Base"), "unknown_zone", "timezone"),
        (lambda: tw.cron("0 9 * * *", tz="US/Eastern"), "unknown_zone", "timezone"),  # an old name: the server has none
        (lambda: tw.cron("0 9 * * *", overlap="perhaps"), "bad_option", "overlap"),
        (lambda: tw.cron("0 9 * * *", catch_up="spread"), "bad_catch_up", "catch_up_window"),
        (lambda: tw.cron("0 9 * * *", quue="q"), "bad_option", ""),
        (lambda: tw.cron("0 9 * * *", max_runs=-1), "bad_terms", "max_runs"),
        (lambda: tw.cron("0 9 * * *", grace=5), "duration_type", "grace"),
        (lambda: tw.cron("0 9 * * *", exclude=["yesterday"]), "invalid_date", "exclude[0]"),
        (lambda: tw.cron("0 9 * * *", name="a b"), "name_characters", "name"),
        (lambda: tw.every("5m", dst_gap="skip"), "schedule_clock_change", "dst_gap"),
        (lambda: tw.every("1ms"), "duration_too_short", "every"),
        (lambda: tw.at("tomorrow"), "instant_syntax", "at"),
        (lambda: tw.rrule("FREQ=SOMETIMES"), "invalid_rrule", "rrule"),
    ],
)
@pytest.mark.proves("S004-63")
def test_a_mistake_is_refused_at_the_line_where_it_is_written(make, code, path):
    with pytest.raises(Refused) as refused:
        make()

    assert (refused.value.code, refused.value.path) == (code, path)
    assert "test_declared_schedules.py:" in str(refused.value) and "lambda: tw." in str(refused.value)


@pytest.mark.parametrize(
    ("text", "time", "context"),
    [
        ("def flow(day: datetime): send(day=day)", "day", "context"),
        ("def flow(a: int = 1, scheduled_time: Any = 0): send(day=scheduled_time)", "scheduled_time", "context"),
        ("def flow(name: str = ''): send(day=name)", "scheduled_time", "context"),
        ("def flow(day: datetime | None = None): send(day=day)", "day", "context"),
    ],
)
@pytest.mark.proves("S004-75")
def test_the_first_parameter_that_is_a_datetime_gets_the_scheduled_time(app, text, time, context):
    [table] = app(f"{SEND}@tw.workflow(schedule=tw.every('1h'))\n{text}\n").catalog().schedules

    assert (table.wanted.workflow, table.wanted.time_input, table.wanted.context_input) == ("flow", time, context)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("def flow(day: datetime, settings: Any): send(day=day, settings=settings)", "settings"),
        ("def flow(day: datetime, n: int = 1, context: Any = None): send(settings=context)", "context"),
        ("def flow(context: dict): send(settings=context)", "context"),
    ],
)
@pytest.mark.proves("S004-31", "S004-76")
def test_the_second_gets_the_context(app, text, context):
    [table] = app(f"{SEND}@tw.workflow(schedule=tw.every('1h', context={{'a': 1}}))\n{text}\n").catalog().schedules

    assert table.wanted.context_input == context


@pytest.mark.parametrize(
    ("schedule", "text", "said"),
    [
        ("tw.every('1h')", "def flow(day: datetime, n: int): send(day=n)", "no value for n"),
        ("tw.every('1h', context=1)", "def flow(day: datetime): send(day=day)", "no parameter for it"),
        ("tw.every('1h', inputs={'m': 1})", "def flow(n: int = 1): send(day=n)", "no parameter 'm'"),
        ("tw.every('1h', inputs={'n': 'x'})", "def flow(n: int = 1): send(day=n)", "n"),
    ],
)
def test_a_workflow_that_cannot_be_called_so_is_refused_at_its_schedule(app, schedule, text, said):
    with pytest.raises(Refused, match=said) as refused:
        app(f"{SEND}@tw.workflow(schedule={schedule})\n{text}\n").catalog()

    assert f"app.py:9: @tw.workflow(schedule={schedule})" in str(refused.value)


@pytest.mark.proves("S004-23")
def test_a_static_schedule_is_named_like_its_workflow_and_belongs_to_its_application(app):
    text = SEND + "@tw.workflow(schedule=[tw.every('1h'), tw.cron('@daily'), tw.cron('@weekly', name='rare')])\n"
    catalog = app(text + "def flow(): send()\n").catalog()

    assert catalog.application == "app"
    assert [one.name for one in catalog.schedules] == ["flow", "flow-2", "rare"]  # runs: sched-{name}-{time}


def test_methods_of_classes_and_objects_have_schedules_too(app):
    text = """
class Reports:
    def __init__(self, who): self.who = who

    @tw.task
    def write(self, day: Any) -> str: return f"{self.who} {day}"

    @tw.workflow(schedule=tw.cron("0 9 * * *"))
    def mine(self, day: datetime): return self.write(day)

    @tw.workflow(schedule=tw.cron("0 10 * * *", context=1))
    @classmethod
    def ours(cls, day: datetime, what: Any): return send(day=day, settings=what)

    @tw.workflow(schedule=tw.cron("0 11 * * *"))
    @staticmethod
    def anyone(day: datetime): return send(day=day)

ada = tw.instance("ada", Reports("Ada"))
"""
    catalog = app(SEND + text).catalog()

    assert {one.name: (one.wanted.time_input, one.wanted.context_input) for one in catalog.schedules} == {
        "Reports.mine.ada": ("day", "context"),
        "Reports.ours": ("day", "what"),
        "Reports.anyone": ("day", "context"),
    }


def test_the_overlap_of_a_workflow_is_that_of_its_schedules(app):
    text = "@tw.workflow(schedule=[tw.every('1h'), tw.every('2h', overlap='buffer_one')], overlap='forbid')\n"
    catalog = app(f"{SEND}{text}def flow(): send()\n").catalog()

    assert [one.wanted.overlap for one in catalog.schedules] == ["forbid", "buffer_one"]
