"""Tests of an application, with the `world` fixture that tickwork installs.

    pytest examples/testing.py

A task is still a function, so a test can call it. `world` has its own server and worker in virtual time, so retries,
waits and schedules take no real time. See docs/testing.md.
"""

from etl import extract, nightly, transform
from hello import count, report
from schedule import workdays
from wait_and_approve import release


def test_a_task_is_called_like_any_function():
    assert transform([{"amount": 3}, {"amount": -1}]) == [3]


def test_a_map_outside_a_workflow_is_a_loop():
    assert report(count.map(["one", "three"])) == "9 words on 2 pages"


def test_a_source_that_fails_is_retried(world):
    run = world.run(nightly)

    run.assert_completed()
    assert run.tasks["extract"].attempts == 3


def test_an_empty_source_is_not_a_failure(world):
    world.replace(extract, [])

    assert world.run(nightly).output["rows"] == 0


def test_a_release_waits_for_a_person(world):
    run = world.run(release, version="3.0")
    world.advance(seconds=1)
    run.assert_waiting("sign_off")

    world.approve(run, "sign_off")

    run.assert_completed(output="notes of 3.0: published")


def test_the_summary_runs_on_workdays_only(world):
    world.publish(workdays)

    world.advance(days=7)

    assert len(world.runs(workdays)) == 5
