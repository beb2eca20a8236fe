"""Options of one submission, as users give them."""

import pytest

import tickwork as tw
from tickwork.core.base.errors import Refused


@tw.task
def load() -> int:
    return 1


@tw.task(retries=0)
def once() -> int:
    return 1


@tw.workflow
def loading() -> int:
    return load()


@tw.workflow
def waiting() -> None:
    tw.wait("2h")


@tw.workflow
def loading_once() -> int:
    return once()


def test_retries_of_a_submission_count_for_tasks_without_retries(world):
    world.fail(load, times=2)
    run = world.submit(loading, options=tw.Options(retries=2, retry_delay="10s"))
    world.advance(minutes=1)
    run.assert_completed(output=1)
    assert run.tasks["load"].attempts == 3


def test_a_task_with_retries_of_its_own_keeps_them(world):
    world.fail(once, times=1)
    run = world.submit(loading_once, options=tw.Options(retries=2))
    world.advance(minutes=1)
    run.assert_failed(node="once")


def test_a_time_limit_is_that_of_the_run(world):
    run = world.submit(waiting, options=tw.Options(timeout="1h"))
    world.advance(minutes=61)
    assert run.state == "failed" and "took too long" in run.error


def test_a_queue_has_to_be_served(world):
    with pytest.raises(Refused, match="no worker serves the queue 'gpu'"):
        world.submit(loading, options=tw.Options(queue="gpu"))
    world.serve("gpu")
    run = world.submit(loading, options=tw.Options(queue="gpu"))
    world.settle()
    assert run.tasks["load"].history[0].worker == "worker-2"
