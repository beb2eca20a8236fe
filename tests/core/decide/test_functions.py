"""Durable functions in the core: steps, suspensions, outcomes, and what follows from each."""

from typing import Any

import pytest

from driver import BY, Driver, T, document, task
from tickwork.core.base.errors import InvalidDefinition
from tickwork.core.base.values import pack, unpack
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.definition.model import InputField
from tickwork.core.definition.plan import plan_of
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, restore
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.history import Await, HistoryEntry, StepEntry
from tickwork.core.state.state import Task

EVENT, SLEEP, CALL, APPROVAL = "event", "sleep", "call", "approval"


def step(position: int, name: str = "s", value: Any = None, **fields: Any) -> StepEntry:
    return StepEntry(position, name, "d", None if value is None else pack(value), **fields)


def event(position: int, name: str = "paid", key: str = "", delay_ms: int = -1) -> Await:
    return Await(position, EVENT, name, "d", delay_ms, key=key)


def sleep(position: int, ms: int) -> Await:
    return Await(position, SLEEP, "", "d", ms)


def call(position: int, name: str = "leaf", inputs: Any = None) -> Await:
    return Await(position, CALL, name, "d", value=None if inputs is None else pack(inputs))


def approval(position: int, name: str = "ok", **fields: Any) -> Await:
    return Await(position, APPROVAL, name, "d", **fields)


class Functions(Driver):
    """A partition with the durable function `f` and the workflow `leaf`; checks every tick as it goes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.define("leaf", task("l"))
        self.define("f", task("f", durable=True), inputs={"n": {"type": "integer", "default": 0}})

    def _apply(self, tick: int, asked: list[inp.Input]) -> Any:
        outcome = super()._apply(tick, asked)
        assert violations(self.state) == []
        return outcome

    def suspend(self, run: str, *awaits: Await, steps: tuple[StepEntry, ...] = (), **fields: Any) -> None:
        attempt = self.attempt_of(run, "f")
        del self.running[attempt.task]
        self.expect(inp.Suspended(attempt.task, attempt.attempt, steps, awaits, **fields))
        self.quiet()

    def record(self, run: str, *steps: StepEntry, **fields: Any) -> None:
        attempt = self.attempt_of(run, "f")
        self.expect(inp.StepsRecorded(attempt.task, attempt.attempt, steps, **fields))

    def function(self, run: str) -> Task:
        live = self.run(run)
        assert live is not None
        return self.state.tasks[live.number]

    def entries(self, run: str) -> list[HistoryEntry]:
        history = self.function(run).history
        return [] if history is None else list(history.entries)

    def outcomes(self, run: str) -> list[tuple[int, str, Any, str]]:
        return [(e.position, e.kind, unpack(e.value, what="it"), e.error) for e in self.entries(run)]

    def signal(self, name: str = "paid", payload: Any = None, **fields: Any) -> None:
        self.expect(inp.Ingest(BY, T, name, payload=None if payload is None else pack(payload), **fields))
        self.quiet()


def begun() -> tuple[Functions, str]:
    driver = Functions()
    return driver, driver.submit("f")


def assert_recovers(driver: Functions) -> None:
    """Rows and journal both lead to the state that is live."""
    live = capture(driver.state)
    assert capture(restore(*live, zones=UTC_ONLY)) == live
    folded = Machine(settings=driver.settings)
    for tick, requests, events in driver.rows:
        folded.fold(tick, requests, events)
    assert capture(folded.state) == live


def test_a_suspended_function_holds_no_worker_and_goes_on_when_its_sleep_is_over():
    driver, run = begun()
    driver.suspend(run, sleep(1, 5_000), steps=(step(0, "reserve", 7),))
    assert (driver.state_of(run), driver.running) == ("WAITING", {})
    assert not driver.state.workers[0].tasks
    assert_recovers(driver)

    driver.advance(4_999)
    assert driver.state_of(run) == "WAITING"
    driver.advance(1)
    assert driver.is_running(run, "f")
    assert driver.outcomes(run) == [(0, "step", 7, ""), (1, "sleep", None, "")]
    driver.finish(run, "f", "done")
    assert driver.state_of(run) == "COMPLETED"
    assert driver.result(run, "f") == "done"
    driver.assert_empty()


def test_one_tick_meets_the_await_and_starts_the_next_attempt():
    driver, run = begun()
    driver.suspend(run, event(0))
    ticks = len(driver.rows)
    driver.signal(payload={"n": 1})
    assert driver.is_running(run, "f")
    assert len(driver.rows) == ticks + 1


def test_an_event_without_payload_is_no_time_out():
    driver, run = begun()
    driver.suspend(run, event(0))
    driver.signal()
    assert driver.outcomes(run) == [(0, "event", {}, "")]


def test_an_event_that_does_not_come_in_time_is_recorded_as_late():
    driver, run = begun()
    driver.suspend(run, event(0, delay_ms=1_000))
    driver.advance(1_000)
    assert driver.outcomes(run) == [(0, "event", None, "timeout")]
    driver.finish(run, "f")
    driver.assert_empty()


def test_an_event_for_the_run_that_comes_before_it_is_awaited_is_kept_for_one_await():
    driver, run = begun()
    for number in range(3):
        driver.signal(payload=number, run_id=run)
    driver.suspend(run, event(0), event(1))
    assert driver.outcomes(run) == [(0, "event", 0, ""), (1, "event", 1, "")]
    driver.suspend(run, event(2))
    assert driver.outcomes(run)[2:] == [(2, "event", 2, "")]
    live = driver.run(run)
    assert live is not None and live.signals is None


def test_one_event_answers_one_await_of_a_function_and_each_function_that_waits():
    driver, first = begun()
    second = driver.submit("f")
    driver.suspend(first, event(0, key="k"), event(1, key="k"))
    driver.suspend(second, event(0, key="k"))
    driver.signal(payload=1, key="k")
    assert driver.outcomes(first) == [(0, "event", 1, "")]
    assert driver.outcomes(second) == [(0, "event", 1, "")]


def test_an_event_that_comes_while_the_function_runs_follows_what_the_attempt_reports():
    driver, run = begun()
    driver.suspend(run, event(0), sleep(1, 10))
    driver.advance(10)
    driver.signal(payload="early")
    driver.record(run, step(2))
    assert_recovers(driver)
    driver.suspend(run)
    assert [entry.position for entry in driver.entries(run)] == [1, 2, 0]
    assert driver.is_running(run, "f"), "the attempt did not know the event, so the next one begins at once"


def test_what_an_attempt_did_not_know_goes_to_the_attempt_after_a_lost_worker():
    driver, run = begun()
    driver.suspend(run, event(0), sleep(1, 10))
    driver.advance(10)
    driver.record(run, step(2))
    driver.signal(payload="early")
    driver.running.clear()
    driver.send(inp.WorkerLost("w1"), inp.Offer("w2", 10))
    driver.quiet()
    assert driver.is_running(run, "f")
    assert [entry.position for entry in driver.entries(run)] == [1, 2, 0]


def test_what_is_awaited_together_wakes_the_function_once():
    driver, run = begun()
    driver.suspend(run, *(event(n, key=str(n)) for n in range(3)), together=((0, 1, 2),))
    driver.signal(key="1")
    driver.signal(key="0")
    assert driver.state_of(run) == "WAITING"
    driver.signal(key="2")
    assert [entry.position for entry in driver.entries(run)] == [1, 0, 2]


def test_a_failed_member_wakes_the_function_before_the_others_end():
    driver, run = begun()
    driver.suspend(run, call(0), call(1), together=((0, 1),))
    driver.fail(driver.id_of_child(run, "f", 1), "l", permanent=True)
    assert driver.is_running(run, "f")
    ((position, kind, _, error),) = driver.outcomes(run)
    assert (position, kind, error) == (1, "call", "FAILED")
    driver.finish(run, "f")
    assert driver.state_of(driver.id_of_child(run, "f", 0)) == "CANCELLED"
    driver.assert_empty()


def test_a_call_is_a_child_run_whose_output_is_its_outcome():
    driver, run = begun()
    driver.suspend(run, call(0))
    child = driver.id_of_child(run, "f", 0)
    assert_recovers(driver)
    driver.finish(child, "l", {"n": 1})
    assert driver.outcomes(run) == [(0, "call", {"n": 1}, "")]
    driver.finish(run, "f")
    driver.assert_empty()


def test_calls_go_on_while_the_function_runs_and_are_fed_to_it_afterwards():
    driver, run = begun()
    driver.suspend(run, call(0), sleep(1, 5))
    driver.advance(5)
    driver.finish(driver.id_of_child(run, "f", 0), "l", 3)
    driver.suspend(run)
    assert driver.outcomes(run) == [(1, "sleep", None, ""), (0, "call", 3, "")]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (call(0, "nobody"), "unknown_workflow"),
        (call(0, "f", {"n": "x"}), "wrong_type"),
        (call(0, "f", 7), "bad_inputs"),
    ],
)
def test_a_call_that_cannot_begin_fails_as_an_outcome_of_its_own(request_, code):
    driver, run = begun()
    driver.suspend(run, request_)
    ((_, _, _, error),) = driver.outcomes(run)
    assert error == code
    driver.finish(run, "f")
    driver.assert_empty()


def test_functions_that_call_themselves_end_at_the_nesting_limit():
    driver = Functions()
    run = driver.submit("f")
    for _ in range(40):
        live = [attempt for attempt in driver.running.values() if not driver.state.tasks[attempt.task].history]
        if not live:
            break
        run = driver.state.tasks[live[0].task].run.id
        driver.suspend(run, call(0, "f"))
    assert driver.outcomes(run)[0][3] == "nested_too_deep"


def test_a_withdrawn_await_has_no_outcome_and_its_child_is_cancelled():
    driver, run = begun()
    driver.suspend(run, call(0), event(1), sleep(2, 10))
    child = driver.id_of_child(run, "f", 0)
    driver.advance(10)
    driver.suspend(run, sleep(3, 10), withdrawn=(0, 1))
    assert driver.state_of(child) == "CANCELLED"
    assert [(entry.position, entry.kind) for entry in driver.entries(run)] == [
        (2, "sleep"),
        (0, "withdrawn"),
        (1, "withdrawn"),
    ]
    driver.signal()
    assert len(driver.entries(run)) == 3
    driver.advance(10)
    driver.finish(run, "f")
    driver.assert_empty()


def test_a_failed_step_is_tried_again_after_its_backoff():
    driver, run = begun()
    failed = step(0, "book", error="Timeout", message="no answer", retry=(2, 1_000, 60_000, 200))
    driver.suspend(run, steps=(failed,))
    assert driver.state_of(run) == "WAITING"
    driver.advance(3_000)
    assert driver.outcomes(run) == [(0, "retry", None, "")]
    assert driver.entries(run)[0].tries == 1
    driver.suspend(run, steps=(step(0, "book", error="Timeout", tries=2, retry=(2, 1_000, 60_000, 200)),))
    driver.advance(5_000)
    driver.suspend(run, steps=(step(0, "book", error="Timeout", tries=3, retry=(2, 1_000, 60_000, 200)),))
    assert driver.is_running(run, "f"), "the retries are used up: the failure is the outcome, at once"
    assert driver.outcomes(run)[-1] == (0, "step", None, "Timeout")
    driver.finish(run, "f")
    driver.assert_empty()


def test_approval_and_rejection_are_both_outcomes():
    for approve in (True, False):
        driver, run = begun()
        driver.suspend(run, approval(0, approvers=("carol",)))
        assert driver.refusal(inp.Decide("dave", T, run, "ok", approve)) == "not_entitled"
        assert driver.refusal(inp.Decide("carol", T, run, "other", approve)) == "not_waiting"
        driver.expect(inp.Decide("carol", T, run, "ok", approve, "fine"))
        driver.quiet()
        assert driver.outcomes(run) == [(0, "approval", {"approved": approve, "by": "carol", "comment": "fine"}, "")]


def test_the_answer_to_a_form_is_checked_and_recorded_with_what_is_filled_in_by_default():
    driver, run = begun()
    how, limit = InputField(type="string", enum=("all", "some")), InputField(type="integer", default=5)
    fields = (("how", how), ("limit", limit))
    driver.suspend(run, approval(0, fields=fields))
    wrong = inp.Decide("carol", T, run, "ok", True, values=pack({"how": "none"}))
    assert driver.refusal(wrong) == "wrong_value"
    driver.expect(inp.Decide("carol", T, run, "ok", True, "fine", values=pack({"how": "all"})))
    driver.quiet()

    decision = {"approved": True, "by": "carol", "comment": "fine", "values": {"how": "all", "limit": 5}}
    assert driver.outcomes(run) == [(0, "approval", decision, "")]


def test_four_eyes_hold_for_a_function_too():
    driver, run = begun()
    driver.suspend(run, approval(0, four_eyes=True))
    assert driver.refusal(inp.Decide(BY, T, run, "ok", True)) == "four_eyes"


def test_a_function_continues_as_new_under_the_same_id():
    driver, run = begun()
    driver.suspend(run, call(0), event(1), sleep(2, 5))
    driver.advance(5)
    child = driver.id_of_child(run, "f", 0)
    attempt = driver.attempt_of(run, "f")
    del driver.running[attempt.task]
    driver.expect(inp.Continued(attempt.task, attempt.attempt, pack({"n": 5})))
    driver.quiet()
    live = driver.run(run)
    assert live is not None and live.inputs == pack({"n": 5})
    assert driver.entries(run) == []
    history = driver.function(run).history
    assert history is not None and history.base == 3
    assert driver.state_of(child) == "CANCELLED"
    assert_recovers(driver)
    driver.finish(run, "f")
    driver.assert_empty()


def test_a_function_that_continues_with_wrong_inputs_fails_and_says_why():
    driver, run = begun()
    attempt = driver.attempt_of(run, "f")
    driver.expect(inp.Continued(attempt.task, attempt.attempt, pack({"n": "five"})))
    driver.quiet()
    assert driver.state_of(run) == "FAILED"
    assert driver.events(ev.TaskFailed)[-1].code == "wrong_type"


def test_reports_of_an_attempt_that_is_over_change_nothing():
    driver, run = begun()
    old = driver.attempt_of(run, "f")
    driver.suspend(run, event(0))
    for report in (
        inp.StepsRecorded(old.task, old.attempt, (step(5),)),
        inp.Suspended(old.task, old.attempt, awaits=(event(6),)),
        inp.Continued(old.task, old.attempt),
    ):
        assert driver.refusal(report) == "fenced"
    assert driver.entries(run) == []


def test_losses_and_tries_are_counted_anew_after_a_suspension():
    driver = Functions(loss_allowance=1)
    run = driver.submit("f")
    for number in range(5):
        driver.running.clear()
        driver.send(inp.WorkerLost(f"w{number + 1}"), inp.Offer(f"w{number + 2}", 10))
        driver.quiet()
        driver.suspend(run, sleep(number, 1))
        driver.advance(1)
    assert driver.is_running(run, "f")


@pytest.mark.parametrize(
    ("recorded", "position", "kept"),
    [
        ((step(0), step(1, error="Refused")), 1, [0]),  # the failure ended the function: only it is tried again
        ((step(0), step(1, error="Refused"), step(2, "undo")), 1, []),  # something was undone after it
        ((step(0), step(1)), -1, [0, 1]),  # an error of the code itself
    ],
)
def test_a_failed_function_that_is_retried_goes_on_from_what_still_holds(recorded, position, kept):
    driver, run = begun()
    driver.record(run, *recorded)
    attempt = driver.attempt_of(run, "f")
    driver.fail(run, "f", "StepFailed", permanent=True, position=position)
    assert driver.state_of(run) == "FAILED"
    driver.expect(inp.Resolve("ops", T, run, "fixed", record=driver.records[run]))
    driver.quiet()
    assert [entry.position for entry in driver.entries(run)] == kept
    assert driver.attempt_of(run, "f").attempt > attempt.attempt
    assert_recovers(driver)
    driver.finish(run, "f")
    driver.assert_empty()


def test_a_cancelled_function_takes_its_calls_along():
    driver, run = begun()
    driver.suspend(run, call(0), event(1), approval(2), sleep(3, 100))
    driver.expect(inp.Cancel(BY, T, run))
    driver.quiet()
    assert driver.state_of(run) == "CANCELLED", "nothing was done that it could undo"
    driver.assert_empty()


def unwinding():
    driver, run = begun()
    driver.suspend(run, call(1), event(2), steps=(step(0, "book"),))
    driver.expect(inp.Cancel(BY, T, run, "enough"))
    driver.quiet()
    return driver, run


@pytest.mark.parametrize("undone", [False, True])
def test_a_cancelled_function_may_undo_what_it_did(undone):
    driver, run = unwinding()
    assert driver.state_of(driver.id_of_child(run, "f", 1)) == "CANCELLED"
    assert [(e.position, e.kind) for e in driver.entries(run)] == [
        (0, "step"),
        (-1, "cancel"),
        (1, "withdrawn"),
        (2, "withdrawn"),
    ]
    assert_recovers(driver)
    if undone:
        driver.suspend(run, sleep(4, 50), steps=(step(3, "undo book"),))
        driver.advance(50)
    driver.fail(run, "f", "Cancelled")
    assert driver.state_of(run) == "CANCELLED"
    assert not [alert for alert in driver.alerts if alert.kind in ("dead_letter", "run_failed")]
    driver.assert_empty()


def test_a_function_that_returns_after_its_cancellation_is_cancelled_all_the_same():
    driver, run = unwinding()
    driver.finish(run, "f", "late")
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


def test_a_clean_up_that_fails_leaves_the_run_failed():
    driver, run = unwinding()
    driver.fail(run, "f", "ValueError", permanent=True)
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_a_second_cancel_ends_a_function_at_once():
    driver, run = unwinding()
    driver.expect(inp.Cancel(BY, T, run))
    driver.quiet()
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


def test_a_clean_up_has_a_limited_time():
    driver, run = unwinding()
    driver.advance(600_000)
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


def test_a_function_that_runs_learns_of_its_cancellation_when_it_suspends():
    driver, run = begun()
    driver.record(run, step(0, "book"))
    driver.expect(inp.Cancel(BY, T, run))
    assert [entry.kind for entry in driver.entries(run)] == ["step"]
    driver.suspend(run, event(1))
    assert [entry.kind for entry in driver.entries(run)] == ["step", "cancel"]
    driver.fail(run, "f", "Cancelled")
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


def test_a_paused_function_that_is_cancelled_cleans_up():
    driver, run = begun()
    driver.suspend(run, event(1), steps=(step(0, "book"),))
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.expect(inp.Cancel(BY, T, run))
    driver.quiet()
    assert driver.is_running(run, "f")
    driver.fail(run, "f", "Cancelled")
    driver.assert_empty()


def test_a_paused_function_waits_with_its_outcome_until_it_is_resumed():
    driver, run = begun()
    driver.suspend(run, event(0), call(1))
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.signal()
    assert (driver.state_of(run), driver.state_of(driver.id_of_child(run, "f", 1))) == ("PAUSED", "PAUSED")
    assert_recovers(driver)
    driver.expect(inp.Resume(BY, "run", T, run))
    driver.quiet()
    assert driver.is_running(run, "f")
    driver.finish(run, "f")
    driver.assert_empty()


def test_a_plain_task_records_steps_and_cannot_suspend():
    driver = Functions()
    run = driver.submit("leaf")
    attempt = driver.attempt_of(run, "l")
    driver.expect(inp.StepsRecorded(attempt.task, attempt.attempt, (step(0, value=1),)))
    assert driver.outcomes(run) == [(0, "step", 1, "")]
    driver.send(inp.Suspended(attempt.task, attempt.attempt, awaits=(event(0),)))
    driver.quiet()
    assert driver.events(ev.TaskFailed)[-1].code == "not_durable"


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({"steps": (step(0, value="x" * 2_000),)}, "value_too_large"),
        ({"steps": tuple(step(n) for n in range(1_001))}, "too_many_steps"),
        ({"steps": (step(0, error="E", retry=(-1, 0, 0, 100)),)}, "bad_retry"),
        ({"awaits": (Await(0, "dream", "", ""),)}, "bad_await"),
        ({"awaits": (Await(0, "sleep", "", ""),)}, "bad_delay"),
        ({"awaits": (event(0, name="bad name!"),)}, "name_characters"),
        ({"awaits": (event(0, key="k" * 300),)}, "key_too_long"),
        ({"versions": tuple((f"v{n}", 1) for n in range(1_001))}, "too_many_versions"),
        ({"versions": (("v" * 5_000, 1),)}, "text_too_long"),
        ({"awaits": (sleep(-1, 5),)}, "bad_position"),
        ({"awaits": (sleep(2**63, 5),)}, "bad_position"),
        ({"steps": (step(2**64 - 1),)}, "bad_position"),
        ({"steps": (step(0, error="E", retry=(1, 5, 5, 100)),), "awaits": (sleep(0, 5),)}, "bad_position"),
        ({"awaits": (approval(0, approvers=("x",) * 1_001),)}, "too_many_approvers"),
    ],
)
def test_a_report_that_breaks_a_rule_fails_its_task_by_name(report, code):
    driver, run = begun()
    attempt = driver.attempt_of(run, "f")
    driver.send(inp.Suspended(attempt.task, attempt.attempt, **report))
    driver.quiet()
    assert driver.state_of(run) == "FAILED"
    assert driver.events(ev.TaskFailed)[-1].code == code
    driver.assert_empty()


@pytest.mark.parametrize(
    "nodes",
    [
        [task("f", durable=True), task("g")],
        [task("f", durable=True, when="true")],
        [task("f", durable=True, cache={"ttl_ms": 1_000})],
        [
            {
                "kind": "repeat",
                "id": "r",
                "until": "true",
                "max_iterations": 2,
                "body": {"kind": "task", "handler": "b", "durable": True},
            }
        ],
    ],
)
def test_a_durable_function_is_a_workflow_of_its_own(nodes):
    with pytest.raises(InvalidDefinition, match="durable"):
        plan_of(document("w", *nodes))


def suspended_beside_an_event(**fields: Any) -> tuple[Functions, str]:
    """The sleep is over and an attempt runs, and then the event comes that it has given up meanwhile."""
    driver, run = begun()
    driver.suspend(run, event(0, key="k"), sleep(1, 10), event(2, "other"), **fields)
    driver.advance(10)
    driver.signal(payload="late", key="k")
    return driver, run


def test_an_event_that_comes_for_an_await_given_up_meanwhile_goes_to_the_next_one():
    driver, run = suspended_beside_an_event()
    driver.suspend(run, event(3, key="k"), withdrawn=(0, 2))
    assert driver.is_running(run, "f")
    assert [(e.position, e.kind) for e in driver.entries(run)] == [
        (1, "sleep"),
        (2, "withdrawn"),
        (0, "withdrawn"),
        (3, "event"),
    ]
    assert driver.outcomes(run)[-1] == (3, "event", "late", "")
    assert_recovers(driver)
    driver.suspend(run, event(4, key="k"), withdrawn=(0,))
    assert driver.state_of(run) == "WAITING", "it is given back once"


def test_events_that_nobody_saw_are_kept_in_the_order_in_which_they_came():
    driver, run = begun()
    driver.suspend(run, event(0), event(1), sleep(2, 10))
    driver.advance(10)
    driver.signal(payload="one")
    driver.signal(payload="two")
    driver.suspend(run, sleep(3, 5), withdrawn=(0, 1))
    driver.advance(5)
    driver.suspend(run, event(4), event(5))
    assert driver.outcomes(run)[-2:] == [(4, "event", "one", ""), (5, "event", "two", "")]


def test_an_event_that_was_given_to_a_function_and_not_taken_goes_to_the_next_await():
    driver, run = begun()
    driver.suspend(run, event(0, "assign"), event(1, "stop"))
    driver.expect(inp.Ingest(BY, T, "assign"))
    driver.expect(inp.Ingest(BY, T, "stop", payload=pack("now")))
    driver.suspend(run, sleep(2, 5), withdrawn=(1,))
    driver.advance(5)
    driver.suspend(run, event(3, "stop"))
    assert driver.outcomes(run)[-1] == (3, "event", "now", "")


def test_an_event_that_comes_beside_a_new_beginning_is_kept_for_it():
    driver, run = suspended_beside_an_event()
    attempt = driver.attempt_of(run, "f")
    del driver.running[attempt.task]
    driver.expect(inp.Continued(attempt.task, attempt.attempt, pack({"n": 5})))
    driver.quiet()
    driver.suspend(run, event(3, key="k"))
    assert driver.outcomes(run) == [(3, "event", "late", "")]
    assert_recovers(driver)


@pytest.mark.parametrize("awaited", [call(0), event(0), sleep(0, 60_000), approval(0)])
def test_a_step_at_the_position_of_an_await_fails_the_task_and_leaves_nothing_behind(awaited):
    driver, run = begun()
    driver.suspend(run, awaited, sleep(1, 10))
    driver.advance(10)
    attempt = driver.attempt_of(run, "f")
    failed = step(0, error="E", retry=(1, 5, 5, 100))
    driver.send(inp.Suspended(attempt.task, attempt.attempt, (failed,)))
    driver.quiet()

    assert driver.events(ev.TaskFailed)[-1].code == "bad_position"
    driver.running.pop(attempt.task, None)
    driver.signal()
    driver.assert_empty()


def test_a_function_that_would_wait_for_an_event_given_back_fails_by_name():
    driver, run = suspended_beside_an_event()
    attempt = driver.attempt_of(run, "f")
    driver.send(inp.Suspended(attempt.task, attempt.attempt, withdrawn=(0, 2)))
    driver.quiet()
    assert driver.events(ev.TaskFailed)[-1].code == "nothing_awaited"


def test_a_step_is_tried_again_though_others_of_its_group_go_on():
    driver, run = begun()
    failed = step(0, "book", error="Timeout", retry=(2, 1_000, 60_000, 200))
    driver.suspend(run, event(1), sleep(2, 10), steps=(failed,), together=((0, 1),))
    driver.advance(10)
    driver.suspend(run, together=((0, 1),))
    assert driver.state_of(run) == "WAITING"
    driver.advance(3_000)
    assert driver.outcomes(run)[-1] == (0, "retry", None, "")
    assert driver.is_running(run, "f")


def test_the_delay_of_a_step_grows_by_parts_of_its_length():
    driver, run = begun()
    for tries in (1, 2, 3):
        failed = step(0, "book", error="Timeout", tries=tries, retry=(5, 1_000, 1_700, 150))
        driver.suspend(run, steps=(failed,))
        live = driver.function(run).history
        assert live is not None
        delay = live.awaits[0].due - driver.tick
        assert delay in range(*{1: (1_000, 1_101), 2: (1_500, 1_651), 3: (1_700, 1_871)}[tries])
        driver.advance(2_000)


def test_what_is_left_of_a_history_counts_its_bytes():
    driver, run = begun()
    driver.record(run, step(0, value="x" * 500), step(1, error="Refused"))
    driver.fail(run, "f", "StepFailed", permanent=True, position=1)
    driver.expect(inp.Resolve("ops", T, run, "fixed", record=driver.records[run]))
    driver.quiet()
    history = driver.function(run).history
    assert history is not None and history.size > 500


def test_a_report_that_is_repeated_is_recorded_once():
    driver, run = begun()
    driver.record(run, step(0, value=1), step(1))
    driver.record(run, step(0, value=1), step(1))
    assert driver.outcomes(run) == [(0, "step", 1, ""), (1, "step", None, "")]
    driver.running.clear()
    driver.send(inp.WorkerLost("w1"), inp.Offer("w2", 10))
    driver.quiet()
    restored = restore(*capture(driver.state), zones=UTC_ONLY)
    live = driver.function(run).history
    again = restored.tasks[driver.function(run).number].history
    assert live is not None and again is not None and live.reported == again.reported == {0: None, 1: None}
    driver.record(run, step(2))
    driver.suspend(run, sleep(3, 5))
    assert [entry.position for entry in driver.entries(run)] == [0, 1, 2]
    assert driver.function(run).history.reported == {}


def test_a_recorded_failure_that_leaves_a_function_is_not_tried_again():
    driver = Functions()
    driver.define("retried", task("f", durable=True, retry={"attempts": 5, "delay_ms": 10}))
    run = driver.submit("retried")
    driver.record(run, step(0, error="Refused"))
    driver.fail(run, "f", "StepFailed", position=0)
    assert driver.state_of(run) == "FAILED"
    other = driver.submit("retried")
    driver.fail(other, "f", "KeyError")
    assert driver.state_of(other) == "ACTIVE", "an error of the code itself may pass"


def costly(**settings: Any) -> tuple[Functions, str]:
    driver = Functions(**settings)
    driver.define("costly", task("f", durable=True, budget=100))
    return driver, driver.submit("costly")


def test_a_run_is_paused_before_the_step_that_comes_after_its_budget_and_spends_as_much_again_when_it_is_resumed():
    driver, run = costly()
    driver.record(run, step(0, cost=60))
    assert driver.state_of(run) == "ACTIVE"
    for position, cost, words in ((1, 50, "have cost 110, and its budget is 100"), (2, 95, "have cost 205")):
        attempt = driver.attempt_of(run, "f")
        del driver.running[attempt.task]
        driver.send(inp.StepsRecorded(attempt.task, attempt.attempt, (step(position, cost=cost),)))
        driver.quiet()
        live = driver.run(run)
        assert live is not None and driver.state_of(run) == "PAUSED" and words in live.pause_reason
        stopped = driver.stopped[-1]
        assert (stopped.task, stopped.attempt, driver.alerts[-1].kind) == (attempt.task, attempt.attempt, "budget")
        assert_recovers(driver)
        driver.expect(inp.Resume(BY, "run", T, run))
        driver.quiet()
        assert driver.is_running(run, "f")
    history = driver.function(run).history
    assert history is not None and (history.cost, history.entries[-1].cost) == (205, 95)
    attempt = driver.attempt_of(run, "f")
    del driver.running[attempt.task]
    driver.expect(inp.Continued(attempt.task, attempt.attempt, pack({})))
    driver.quiet()
    history = driver.function(run).history
    assert history is not None and history.cost == 205, "its cost goes on when it continues as new"
    driver.finish(run, "f")
    driver.assert_empty()


def test_what_a_cancelled_function_undoes_is_not_held_up_by_its_budget():
    driver, run = costly()
    driver.record(run, step(0, cost=60))
    driver.expect(inp.Cancel(BY, T, run))
    attempt = driver.attempt_of(run, "f")
    del driver.running[attempt.task]
    driver.send(inp.StepsRecorded(attempt.task, attempt.attempt, (step(1, cost=60),)))
    driver.quiet()
    assert driver.is_running(run, "f"), "the next attempt learns of the cancellation"
    assert [entry.kind for entry in driver.entries(run)] == ["step", "step", "cancel"]
    driver.fail(run, "f", "Cancelled")
    assert driver.state_of(run) == "CANCELLED"


def test_an_attempt_that_does_not_know_of_an_outcome_cannot_await_it_again():
    driver, run = begun()
    driver.suspend(run, event(0), sleep(1, 10))
    driver.advance(10)
    driver.signal(payload="early")
    driver.suspend(run, event(0), event(2))
    history = driver.function(run).history
    assert history is not None and sorted(history.awaits) == [2]
    assert driver.outcomes(run) == [(1, "sleep", None, ""), (0, "event", "early", "")]
    driver.signal()
    driver.suspend(run, sleep(3, 5))
    assert [entry.position for entry in driver.entries(run)] == [1, 0, 2], "one outcome for each"
