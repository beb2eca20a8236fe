"""Attempts: retries, timeouts, checkpoints, and the one result that counts."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack, unpack
from tickwork.core.definition.model import Retry
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CancelAttempt
from tickwork.core.state.events import StaleReport, TaskFailed, TaskRetrying, TaskSucceeded
from tickwork.core.state.retry import backoff_bounds_ms


def running(node, **settings):
    driver = Driver(**settings)
    driver.define("flow", node)
    driver.submit("flow", "r")
    return driver


def exact(attempts, delay_ms=100, **more):
    return {"attempts": attempts, "delay_ms": delay_ms, "jitter_percent": 0, **more}


@pytest.mark.proves("S001-12", "S001-13", "S001-95")
def test_the_delay_grows_exponentially_up_to_its_cap():
    driver = running(task("a", retry=exact(6, factor=3, delay_ms_max=2_000)))
    waits = []
    for _ in range(5):
        driver.fail("r", "a")
        failed = driver.tick
        driver.advance(5_000)
        waits.append(driver.state.tasks[driver.attempt_of("r", "a").task].dispatched - failed)

    assert waits == [100, 300, 900, 2_000, 2_000]


@given(
    delay_ms=st.integers(1, 5_000),
    factor=st.integers(1, 4),
    jitter=st.integers(0, 100),
    runs=st.lists(st.text("abcdef", min_size=1, max_size=8), min_size=1, max_size=3, unique=True),
)
@settings(max_examples=40)
@pytest.mark.proves("I32", "S001-15", "S001-95")
def test_the_next_attempt_lies_within_the_bounds_of_its_policy(delay_ms, factor, jitter, runs):
    fields = {"attempts": 4, "delay_ms": delay_ms, "factor": factor, "jitter_percent": jitter}
    driver = Driver()
    driver.define("flow", task("a", retry=fields))
    for run in runs:
        driver.submit("flow", run)
    for attempt in (1, 2, 3):
        for run in runs:
            failed = driver.fail(run, "a").tick
            low, high = backoff_bounds_ms(Retry(**fields), attempt, error="ValueError")
            assert failed + low <= driver.events(TaskRetrying)[-1].due <= failed + high
        driver.advance(3 * high + 10)


@pytest.mark.proves("S001-13", "S001-97", "I31", "S001-14")
@pytest.mark.parametrize("attempts", [1, 2, 4])
def test_used_up_attempts_are_a_dead_letter_with_an_alert(attempts):
    driver = running(task("a", retry=exact(attempts)))
    for _ in range(attempts):
        driver.fail("r", "a")
        driver.advance(10_000)

    assert len(driver.started) == attempts
    assert driver.state_of("r") == "FAILED"
    assert [event.dead for event in driver.events(TaskFailed)] == [True]
    assert [(alert.kind, alert.subject) for alert in driver.alerts] == [("dead_letter", "r"), ("run_failed", "r")]


RULES = [{"error": "KeyError", "attempts": 1}, {"error": "OSError", "attempts": 3, "delay_ms": 7}]


@pytest.mark.parametrize(("error", "started"), [("KeyError", 1), ("OSError", 3), ("ValueError", 2)])
def test_a_rule_for_one_error_overrides_the_rest(error, started):
    driver = running(task("a", retry=exact(2, rules=RULES)))
    while driver.is_running("r", "a"):
        driver.fail("r", "a", error)
        driver.advance(10_000)

    assert len(driver.started) == started


def test_a_permanent_failure_is_not_tried_again():
    driver = running(task("a", retry=exact(9)))
    driver.fail("r", "a", permanent=True)

    assert driver.state_of("r") == "FAILED" and driver.alerts[0].kind == "dead_letter"


@pytest.mark.proves("I29", "I5", "S001-73")
def test_one_result_per_task_is_accepted():
    driver = running(task("a"), credit=1)
    attempt = driver.attempt_of("r", "a")
    again = inp.Succeeded(attempt.task, attempt.attempt, pack(2))
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, pack(1)), again, inp.Failed(attempt.task, 1, "ValueError"))
    driver.send(again)

    assert len(driver.events(TaskSucceeded)) == 1 and driver.result("r", "a") == 1
    assert len(driver.events(StaleReport)) == driver.state.stale == 3
    assert driver.state_of("r") == "COMPLETED"


@pytest.mark.proves("I29", "I5")
def test_a_late_result_of_an_older_attempt_is_ignored():
    driver = running(task("a", retry=exact(3)))
    driver.fail("r", "a")
    first = driver.started[0]
    driver.send(inp.Succeeded(first.task, 1, pack("late")))
    driver.advance(100)
    driver.send(inp.Succeeded(first.task, 1, pack("later")), inp.Succeeded(first.task, 3, pack("never begun")))

    assert driver.state.stale == 3 and driver.is_running("r", "a")
    driver.finish("r", "a", "right")
    assert driver.result("r", "a") == "right"


@pytest.mark.proves("S001-07", "S001-175")
@pytest.mark.parametrize(("timeout", "error"), [({"running_ms": 50}, "Timeout"), ({"silent_ms": 50}, "Silent")])
def test_an_attempt_that_takes_too_long_is_stopped_and_tried_again(timeout, error):
    driver = running(task("a", timeout=timeout, retry=exact(2)))
    begun = driver.tick
    driver.advance(49)

    assert driver.stopped == []
    driver.advance(1)
    assert driver.stopped == [CancelAttempt(0, driver.started[0].task, 1)]
    assert [(event.cause, event.due) for event in driver.events(TaskRetrying)] == [(error, begun + 150)]
    driver.advance(200)
    assert driver.state_of("r") == "FAILED" and len(driver.stopped) == 2


@pytest.mark.proves("S001-175")
@pytest.mark.parametrize("word", [inp.Started, inp.Checkpointed])
def test_every_word_from_an_attempt_ends_its_silence(word):
    driver = running(task("a", timeout={"silent_ms": 50}))
    attempt = driver.attempt_of("r", "a")
    for _ in range(5):
        driver.advance(40)
        driver.send(word(attempt.task, 1))

    assert driver.stopped == []
    driver.advance(50)
    assert len(driver.stopped) == 1


def test_a_running_timeout_is_not_reset_by_words():
    driver = running(task("a", timeout={"running_ms": 100}))
    for _ in range(3):
        driver.advance(30)
        driver.send(inp.Checkpointed(driver.attempt_of("r", "a").task, 1))
    driver.advance(10)

    assert len(driver.stopped) == 1


@pytest.mark.proves("S001-07")
def test_what_no_worker_takes_in_time_is_a_dead_letter():
    driver = running(task("a", timeout={"queued_ms": 100}, retry=exact(3)), credit=0)
    driver.advance(99)

    assert driver.state_of("r") == "ACTIVE"
    driver.advance(1)
    assert driver.state_of("r") == "FAILED"
    assert [alert.kind for alert in driver.alerts] == ["dead_letter", "run_failed"]


@pytest.mark.proves("S001-07")
@pytest.mark.parametrize("way", ["retried", "lost"])
def test_the_time_in_the_queue_is_counted_anew_for_every_attempt(way):
    driver = running(task("a", timeout={"queued_ms": 100}, retry=exact(3)), credit=1)
    driver.advance(500)
    if way == "retried":
        driver.fail("r", "a")
        driver.send(inp.Offer("w1", 0))
        driver.advance(100)
    else:
        driver.send(inp.WorkerLost("w1"))
    driver.advance(98)

    assert driver.state_of("r") == "ACTIVE"
    driver.advance(10)
    assert driver.state_of("r") == "FAILED"


def test_a_task_that_was_taken_in_time_is_not_timed_out_in_the_queue():
    driver = running(task("a", timeout={"queued_ms": 100}))
    driver.advance(1_000)

    assert driver.is_running("r", "a")


@pytest.mark.proves("S001-175")
def test_a_checkpoint_survives_into_the_next_attempt():
    driver = running(task("a", retry=exact(3)))
    attempt = driver.attempt_of("r", "a")
    driver.send(inp.Checkpointed(attempt.task, 1, pack({"done": 7})))
    driver.fail("r", "a")
    driver.advance(100)
    driver.send(inp.WorkerLost("w1"), inp.Offer("w2", 1))

    assert driver.attempt_of("r", "a").attempt == 3
    assert unpack(driver.state.tasks[attempt.task].checkpoint, what="checkpoint") == {"done": 7}


def test_a_value_that_is_too_large_is_refused_and_the_attempt_goes_on():
    driver = running(task("a"))
    attempt = driver.attempt_of("r", "a")
    huge = pack("x" * 100_000)

    assert driver.refusal(inp.Succeeded(attempt.task, 1, huge)) == "value_too_large"
    assert driver.refusal(inp.Checkpointed(attempt.task, 1, huge)) == "value_too_large"
    driver.finish("r", "a")
    assert driver.state_of("r") == "COMPLETED"


# ---- the retry budget of a dependency


def storm(count, **more):
    driver = Driver(retry_gap_ms=1_000, retry_burst=3, retry_earned_percent=50, credit=5_000, **more)
    for name, dependency in (("bank", "bank"), ("free", "")):
        extra = {"dependency": dependency} if dependency else {}
        driver.define(name, task("a", retry=exact(9, 10, factor=1), **extra))
    driver.expect(*(inp.Submit(BY, T, f"b{number:03}", "bank") for number in range(count)))
    return driver


@pytest.mark.proves("S001-60", "S001-177")
def test_a_storm_of_failures_comes_back_spaced():
    driver = storm(20)
    for number in range(20):
        driver.fail(f"b{number:03}", "a")
    dues = sorted(event.due for event in driver.events(TaskRetrying))

    assert all(later - earlier >= 900 for earlier, later in pairwise(dues[3:]))
    assert dues[-1] - dues[0] >= 16_000
    assert sum(event.held for event in driver.events(TaskRetrying)) == 17


@pytest.mark.proves("S001-60")
def test_others_do_not_pay_for_a_storm():
    driver = storm(20)
    for number in range(20):
        driver.fail(f"b{number:03}", "a")
    driver.submit("free", "f")
    driver.fail("f", "a")

    assert driver.events(TaskRetrying)[-1].due == driver.tick + 10


@pytest.mark.proves("S001-60")
def test_first_attempts_that_succeed_earn_retries():
    driver = storm(24)
    for number in range(10):
        driver.fail(f"b{number:03}", "a")
    for number in range(10, 22):
        driver.finish(f"b{number:03}", "a")
    driver.fail("b022", "a")
    event = driver.events(TaskRetrying)[-1]

    assert event.due <= driver.tick + 2_100 and event.held is True
