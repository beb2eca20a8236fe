"""Workflows that are methods, on schedules: each gets what its kind of method gets, in either order of decorators."""

from datetime import datetime

import pytest

import tickwork as tw


@tw.task
def line(who: str, day: datetime) -> str:
    return f"{who} at {day:%H}"


class Reports:
    def __init__(self, who: str) -> None:
        self.who = who

    @tw.task
    def signed(self, day: datetime) -> str:
        return f"{self.who} at {day:%H}"

    @tw.workflow(schedule=tw.cron("0 9 * * *"))
    def of_an_object(self, day: datetime) -> str:
        return self.signed(day)

    @tw.workflow(schedule=tw.cron("0 10 * * *"))
    @classmethod
    def of_the_class(cls, day: datetime) -> str:
        return line(cls.__name__, day)

    @classmethod
    @tw.workflow(schedule=tw.cron("0 11 * * *"))
    def of_the_class_below(cls, day: datetime) -> str:
        return line(f"below: {cls.__name__}", day)

    @tw.workflow(schedule=tw.cron("0 12 * * *"))
    @staticmethod
    def of_nobody(day: datetime) -> str:
        return line("nobody", day)

    @staticmethod
    @tw.workflow(schedule=tw.cron("0 13 * * *"))
    def of_nobody_below(day: datetime) -> str:
        return line("below: nobody", day)


@pytest.fixture
def ada():
    return tw.instance("ada", Reports("Ada"))


@pytest.mark.proves("S004-98")
def test_methods_of_every_kind_run_by_their_schedules_with_what_belongs_to_them(world, ada):
    methods = (
        ada.of_an_object, Reports.of_the_class, Reports.of_the_class_below, Reports.of_nobody, Reports.of_nobody_below,
    )  # fmt: skip
    world.publish(*methods)
    world.advance(hours=24)

    assert {run.workflow: run.output for run in world.runs()} == {
        "Reports.of_an_object.ada": "Ada at 09",
        "Reports.of_the_class": "Reports at 10",
        "Reports.of_the_class_below": "below: Reports at 11",
        "Reports.of_nobody": "nobody at 12",
        "Reports.of_nobody_below": "below: nobody at 13",
    }
