"""One task of a run, cancelled or tried again by a person."""

import tickwork as tw


@tw.task
def left() -> int:
    return 1


@tw.task
def right() -> int:
    return 2


@tw.task(retries=1, retry_delay="1h")
def patient() -> int:
    return 3


@tw.workflow
def both() -> None:
    left()
    right()


@tw.workflow
def slow() -> None:
    patient()
    tw.wait("2h", barrier=False)


def test_one_failed_task_is_tried_again_and_the_other_stays_failed(world):
    world.fail(left, times=1)
    world.fail(right, times=2)
    run = world.run(both)
    world.retry(run, node="left")
    assert {node: task.state for node, task in run.tasks.items()} == {"left": "succeeded", "right": "failed"}

    world.retry(run)
    run.assert_failed(node="right")
    world.retry(run, node="right")
    run.assert_completed()


def test_a_retry_begins_without_waiting_for_its_time(world):
    world.fail(patient, times=1)
    run = world.start(slow)
    world.advance(minutes=1)
    assert run.tasks["patient"].state == "backoff"
    world.retry(run, node="patient")
    world.settle()
    assert run.tasks["patient"].state == "succeeded"
    assert "it is tried again now, by test" in run.why()


def test_a_node_is_cancelled_and_its_run_goes_on(world):
    world.fail(patient, times=1)
    run = world.start(slow)
    world.advance(minutes=1)
    world.cancel(run, node="patient", reason="no use")
    assert (run.state, run.tasks["patient"].state) == ("waiting", "failed")
    world.advance(hours=2)
    assert run.state == "failed" and run.error == "patient: cancelled: by test: no use"
