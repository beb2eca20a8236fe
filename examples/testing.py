"""Tests of an application: a task is still a function, so a test just calls it.

    pytest examples/testing.py

No server, no worker. Called directly, a task has a context of its own: first attempt, no run, steps that just run.
"""

import pytest
from durable_steps import book_flight, trip
from etl import nightly, transform
from hello import count, report

import tickwork as tw


def test_a_task_is_called_like_any_function():
    assert transform([{"amount": 3}, {"amount": -1}]) == [3]


def test_a_map_outside_of_a_workflow_is_a_loop():
    assert report(count.map(["one", "three"])) == "9 words on 2 pages"


def test_a_task_sees_its_first_attempt():
    with pytest.raises(ConnectionError):
        count("two")


def test_a_step_just_runs_and_its_error_comes_through():
    assert book_flight("Rome", 1).startswith("flight to Rome")
    with pytest.raises(TimeoutError):
        trip("Rome")


def test_the_shape_of_a_workflow_can_be_looked_at():
    assert [node.id for node in nightly.build().nodes] == ["extract", "transform", "load"]


def test_a_workflow_that_cannot_work_is_refused_where_it_is_written():
    @tw.task
    def one(number: int) -> int:
        return number

    @tw.workflow
    def wrong(numbers: list[int]) -> int:
        return one(numbers, 2)  # one argument too many

    with pytest.raises(tw.TickworkError):
        wrong.build()
