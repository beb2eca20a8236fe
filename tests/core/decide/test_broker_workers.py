"""Lanes over a broker, as the machine sees them: workers that carry attempts to other workers."""

import msgspec
import pytest

from core.explain.test_run_history import told
from driver import BY, Driver, T, task
from tickwork.core.explain.why_not import why_not
from tickwork.core.state import inputs as inp


def driver_of(*offers, node=None, runs=0):
    driver = Driver(set_up=False)
    driver.expect(inp.PutTenant(BY, T), inp.PutQueue(BY, "default"), *offers)
    driver.define("flow", node or task("a"))
    driver.expect(*(inp.Submit(BY, T, f"r{number}", "flow") for number in range(runs)))
    driver.quiet()
    return driver


def on_lane(**node):
    driver = driver_of(inp.Offer("lane:bus", 5), node=task("a", **node), runs=1)
    driver.send(inp.Offer("w", 0, queues=()))
    [attempt] = driver.running.values()
    return driver, attempt


@pytest.mark.proves("I34", "I35")
def test_whoever_takes_an_attempt_from_a_lane_first_holds_it_and_everybody_else_is_fenced():
    driver, attempt = on_lane()
    driver.send(inp.Offer("w2", 3, queues=()))
    taken = [inp.Taken(attempt.task, attempt.attempt, worker) for worker in ("w", "w2", "w")]
    driver.answers.clear()
    driver.send(*taken)  # the last one did not hear that it has it

    assert [(answer.input, answer.code) for answer in driver.answers] == [(1, "fenced")]
    assert [list(worker.tasks) for worker in driver.state.workers.values()] == [[], [attempt.task], []]
    assert driver.finish_all() == 1
    driver.assert_empty()


@pytest.mark.parametrize(
    "asked",
    [
        inp.Taken(10**6, 1, "w"),  # never was
        inp.Taken(0, 2, "w"),  # another attempt
        inp.Taken(0, 1, "nobody"),
        inp.Taken(0, 1, "lane:bus"),  # lanes do not take from lanes
    ],
)
def test_what_cannot_be_taken_is_fenced_and_stays_where_it_is(asked):
    driver, attempt = on_lane()
    asked = msgspec.structs.replace(asked, task=asked.task or attempt.task)

    assert driver.refusal(asked) == "fenced"
    assert driver.state.tasks[attempt.task].worker.id == "lane:bus"


def test_an_attempt_of_a_worker_cannot_be_taken_from_it():
    driver = driver_of(inp.Offer("w1", 5), inp.Offer("w2", 0), runs=1)
    [attempt] = driver.running.values()

    assert driver.refusal(inp.Taken(attempt.task, attempt.attempt, "w2")) == "fenced"


def test_what_was_cancelled_is_fenced_when_it_is_taken():
    driver, attempt = on_lane()
    driver.send(inp.Cancel(BY, T, "r0", "enough"))

    assert [(one.task, one.attempt) for one in driver.stopped] == [(attempt.task, attempt.attempt)]
    assert driver.refusal(inp.Taken(attempt.task, attempt.attempt, "w")) == "fenced"


def test_a_lane_carries_what_asks_for_labels_and_only_who_has_them_takes_it():
    driver, attempt = on_lane(labels={"gpu": "true"})

    assert driver.refusal(inp.Taken(attempt.task, attempt.attempt, "w")) == "fenced"
    driver.send(inp.Offer("w", 0, (), {"gpu": "true"}))
    assert driver.refusal(inp.Taken(attempt.task, attempt.attempt, "w")) == ""


def test_time_on_a_lane_is_no_time_that_an_attempt_runs():
    driver, attempt = on_lane(timeout={"running_ms": 1_000, "silent_ms": 500})
    driver.send(inp.Started(attempt.task, attempt.attempt))
    driver.advance(60_000)
    assert driver.running

    driver.send(inp.Taken(attempt.task, attempt.attempt, "w"))
    driver.advance(499)
    assert driver.state_of("r0") == "ACTIVE"
    driver.advance(2)
    assert driver.state_of("r0") == "FAILED"


def test_credit_of_a_lane_is_what_it_may_carry_and_taking_gives_it_back():
    driver = driver_of(inp.Offer("lane:bus", 2), runs=4)
    driver.send(inp.Offer("w", 1))
    first = sorted(driver.state.workers[0].tasks)

    assert len(first) == 2
    driver.send(inp.Taken(first[0], 1, "w"))
    assert sorted(driver.state.workers[0].tasks) != first and len(driver.state.workers[0].tasks) == 2
    assert len(driver.state.workers[1].tasks) == 2, "one by its credit, one more that it took"


def test_a_lane_cannot_hand_back_what_somebody_has_taken_from_it():
    driver, attempt = on_lane()
    back = inp.HandedBack(attempt.task, attempt.attempt, "lane:bus")
    driver.send(inp.Taken(attempt.task, attempt.attempt, "w"))

    assert driver.refusal(back) == "fenced"
    assert driver.finish_all() == 1


@pytest.mark.proves("F20")
def test_what_nobody_took_is_sent_again_under_a_new_number_and_the_old_one_is_worth_nothing():
    driver, attempt = on_lane()
    driver.send(inp.HandedBack(attempt.task, attempt.attempt, "lane:bus"))
    again = driver.running[attempt.task]

    assert (again.worker, again.attempt) == (attempt.worker, 2)
    assert driver.refusal(inp.Taken(attempt.task, 1, "w")) == "fenced"
    assert driver.refusal(inp.Taken(attempt.task, 2, "w")) == ""


def test_a_lost_lane_gives_back_what_it_carried_and_nothing_of_it_counts_as_a_loss():
    driver, attempt = on_lane()
    for _ in range(driver.settings.loss_allowance + 2):
        driver.send(inp.WorkerLost("lane:bus"))
        driver.send(inp.Offer("lane:bus", 5))

    task_ = driver.state.tasks[attempt.task]
    assert (task_.losses, task_.worker.id) == (0, "lane:bus")


def test_explain_and_story_say_that_it_is_on_a_lane_and_who_took_it():
    driver, attempt = on_lane()
    [held] = why_not(driver.state, T, "r0").nodes
    assert "on lane bus" in held.obstacles[0].text

    driver.send(inp.Taken(attempt.task, attempt.attempt, "w"))
    driver.finish_all()
    entries = {entry.what: entry for entry in told(driver, "r0").entries}
    assert (entries["dispatched"].detail, entries["taken"].detail) == ("on lane bus", "from lane bus by worker w")
    assert entries["taken"].by == "worker:w"


def test_what_nobody_took_from_a_lane_that_is_gone_goes_on_also_where_it_must_not_run_twice():
    driver, _ = on_lane(on_worker_loss="fail")
    driver.send(inp.WorkerLost("lane:bus"), inp.Offer("lane:bus", 5))
    [again] = driver.running.values()
    assert again.attempt == 2
    driver.send(inp.Taken(again.task, again.attempt, "w"))
    driver.send(inp.WorkerLost("w"))
    driver.quiet()

    assert len(driver.started) == 2 and driver.state_of("r0") == "FAILED"
