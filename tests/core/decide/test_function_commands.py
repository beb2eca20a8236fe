"""What the steps of a durable function ask of the engine: it happens with the record of the step, exactly once."""

from typing import Any

import pytest

from core.decide.test_functions import Functions, assert_recovers, sleep, step
from driver import BY, T, task
from tickwork.core.base.values import Ref, pack
from tickwork.core.explain.run_history import why
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CancelAttempt
from tickwork.core.state.history import StepEntry
from tickwork.journal.record import Row


def begun(**settings: Any) -> tuple[Functions, str]:
    driver = Functions(**settings)
    driver.define("waiter", {"kind": "event", "id": "e", "event": "paid", "key": "inputs.k"},
                  inputs={"k": {"type": "string"}})  # fmt: skip
    return driver, driver.submit("f")


def start(run_id: str = "new", workflow: str = "leaf", to: tuple[int, ...] = ()) -> inp.TaskCommand:
    return inp.TaskCommand(inp.Submit(BY, T, run_id, workflow), to)


def signal(key: str = "o-1") -> inp.TaskCommand:
    return inp.TaskCommand(inp.Ingest(BY, T, "paid", key, "", pack({"sum": 5})))


def words(driver: Functions, run: str) -> list[str]:
    rows = [Row(seq, tick, "", requests, events) for seq, (tick, requests, events) in enumerate(driver.rows, 1)]
    return [entry.detail for entry in why(rows, T, run, settings=driver.settings).entries]


def test_a_recorded_step_begins_its_runs_and_gives_its_events_and_the_function_goes_on():
    driver, run = begun()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    driver.record(run, step(0), commands=(start(), signal()))

    assert driver.is_running("new", "l")
    assert driver.state_of(waiter) == "COMPLETED"
    assert driver.is_running(run, "f")
    assert_recovers(driver)
    driver.finish(run, "f")
    assert driver.state_of(run) == "COMPLETED"
    assert driver.is_running("new", "l"), "nobody waits for it, and nothing ends it"


def test_a_record_that_is_repeated_begins_nothing_more():
    driver, run = begun()
    attempt = driver.attempt_of(run, "f")
    report = inp.StepsRecorded(attempt.task, attempt.attempt, (step(0),), commands=(start(),))
    driver.send(report, report)
    driver.send(report)

    submitted = [event for _, _, events in driver.rows for event in events if isinstance(event, ev.RunSubmitted)]
    assert [event.command for event in submitted] == [-1, 0]


def test_a_record_of_an_attempt_that_is_over_begins_nothing():
    driver, run = begun()
    attempt = driver.attempt_of(run, "f")
    driver.suspend(run, sleep(0, 10))
    driver.send(inp.StepsRecorded(attempt.task, attempt.attempt, (step(1),), commands=(start(),)))

    assert driver.run("new") is None


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"commands": (signal(), start(workflow="nowhere"))}, "unknown_workflow"),
        ({"refused": ("bad_commands", "they cannot be read")}, "bad_commands"),
    ],
)
def test_where_a_command_is_refused_none_is_done_and_the_function_fails(fields, code):
    driver, run = begun()
    waiter = driver.submit("waiter", inputs={"k": "o-1"})
    attempt = driver.attempt_of(run, "f")
    del driver.running[attempt.task]
    outcome = driver.send(inp.StepsRecorded(attempt.task, attempt.attempt, (step(0),), **fields))

    assert [effect.attempt for effect in outcome.effects if isinstance(effect, CancelAttempt)] == [attempt.attempt]
    assert (driver.state_of(run), driver.state_of(waiter)) == ("FAILED", "WAITING")
    assert any(code in text for text in words(driver, run))
    assert_recovers(driver)


def test_a_refusal_that_passes_is_tried_again_if_the_function_may_be():
    driver, _ = begun(max_live_runs=3)
    driver.define("g", task("g", durable=True, retry={"attempts": 2, "delay": "1s"}))
    run = driver.submit("g")
    attempt = driver.attempt_of(run, "g")
    del driver.running[attempt.task]
    commands = tuple(start(f"new-{number}") for number in range(9))
    driver.send(inp.StepsRecorded(attempt.task, attempt.attempt, (step(0),), commands=commands))
    driver.advance(2_000)

    assert driver.attempt_of(run, "g").attempt == 2
    assert driver.run("new-0") is None


def test_the_history_of_the_run_has_time_size_tries_and_cost_of_each_step():
    driver, run = begun()
    whole = step(0, "ask", "a" * 20, took_ms=12, tries=3, cost=7)
    failed = step(1, "send", error="ValueError", message="no address", took_ms=5)
    driver.record(run, whole, failed, StepEntry(2, "load", "d", Ref("sha256:0", 4_000_000)), step(3, "note"))

    assert words(driver, run)[-1] == (
        "recorded ask (12 ms, try 3, 21 bytes, cost 7), send failed: ValueError (5 ms), load (4000000 bytes), note"
    )


def test_the_history_of_both_runs_says_who_began_what():
    driver, run = begun()
    driver.record(run, step(0, "ask"), commands=(start(), signal()))

    assert any(
        "recorded ask; run new of leaf begins; event paid is given to key 'o-1'" in t for t in words(driver, run)
    )
    assert any(f"task f of {run}" in text for text in words(driver, "new"))
