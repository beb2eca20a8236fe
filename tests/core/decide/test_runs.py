"""How runs live: started, waiting, paused, timed out, ended."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunMoved, TaskFailed, TaskRetrying, Visited
from tickwork.core.state.state import LogicalClock

HOUR_MS = 3_600_000


def wait(name="w", **fields):
    return {"kind": "wait", "id": name, **(fields or {"duration": "1h"})}


def flow(*nodes, **fields):
    driver = Driver()
    driver.define("flow", *nodes, **fields)
    return driver


@pytest.mark.proves("S002-03", "S002-04", "S002-07", "S002-09", "S002-12", "S001-85", "S001-70")
def test_a_run_starts_takes_its_steps_in_order_and_completes():
    driver = flow(task("a"), task("b", needs=["a"]))
    run = driver.submit("flow")

    assert driver.state_of(run) == "ACTIVE"
    assert driver.phases(run) == {"a": "RUNNING", "b": "PENDING"}

    driver.finish(run, "a")
    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "RUNNING"}

    driver.finish(run, "b")
    assert driver.state_of(run) == "COMPLETED"
    assert driver.moves(run) == ["START", "COMPLETE"]
    driver.assert_empty()


@pytest.mark.proves("S002-06", "S002-10", "S002-14", "S000-14")
def test_a_run_is_waiting_while_its_wait_lasts_and_active_when_it_is_over():
    driver = flow(wait(), task("a", needs=["w"]))
    run = driver.submit("flow")
    assert driver.state_of(run) == "WAITING"

    driver.advance(HOUR_MS - 2)
    assert driver.state_of(run) == "WAITING"
    driver.advance(2)
    assert driver.state_of(run) == "ACTIVE"

    driver.finish_all()
    assert driver.moves(run) == ["START", "WAIT", "WAKE", "COMPLETE"]
    driver.assert_empty()


@pytest.mark.proves("S000-13", "S000-09", "S002-25")
@pytest.mark.parametrize(
    ("resolution_ms", "duration", "ticks"),
    [(1_000, "3d", 259_200), (1_000, "1500ms", 2), (1, "3d", 259_200_000), (5_000, "12s", 3)],
)
def test_a_wait_is_counted_in_ticks_rounded_up(resolution_ms, duration, ticks):
    driver = Driver(clock=LogicalClock(resolution_ms=resolution_ms))
    driver.define("flow", wait(duration=duration))
    run = driver.submit("flow")

    assert driver.machine.next_tick() == driver.run(run).started + ticks


def test_a_run_with_work_beside_its_wait_is_active():
    driver = flow(wait(), task("a"))
    run = driver.submit("flow")
    assert driver.state_of(run) == "ACTIVE"

    driver.finish(run, "a")
    assert driver.state_of(run) == "WAITING"


@pytest.mark.proves("S002-46", "S002-13", "S002-08", "S001-06", "S001-94")
def test_a_retry_in_backoff_keeps_the_run_active_until_its_attempts_are_used_up():
    driver = flow(task("a", retry={"attempts": 3, "delay": "10s"}), wait("w"))
    run = driver.submit("flow")
    driver.fail(run, "a")
    assert (driver.state_of(run), driver.phase(run, "a")) == ("ACTIVE", "BACKOFF")

    driver.advance(15_000)
    driver.fail(run, "a")
    driver.advance(30_000)
    driver.fail(run, "a")
    assert driver.phase(run, "a") == "FAILED"
    assert driver.state_of(run) == "WAITING"  # an independent branch ends first

    driver.advance(HOUR_MS)
    assert driver.state_of(run) == "FAILED"
    assert len(driver.events(TaskRetrying)) == 2
    driver.assert_empty()


@pytest.mark.proves("S001-97")
def test_used_up_attempts_are_a_dead_letter_and_an_alert():
    driver = flow(task("a"))
    run = driver.submit("flow")
    driver.fail(run, "a")

    assert [alert.kind for alert in driver.alerts] == ["dead_letter", "run_failed"]
    assert driver.alerts[0].subject == run
    assert [event.dead for event in driver.events(TaskFailed)] == [True]


@pytest.mark.proves("S001-07")
@pytest.mark.parametrize("kind", ["running", "silent"])
def test_an_attempt_that_takes_too_long_is_stopped_and_counts_as_failed(kind):
    driver = flow(task("a", timeout={kind: "10s"}, retry={"attempts": 2, "delay": "1s"}))
    run = driver.submit("flow")
    driver.advance(9_000)
    assert driver.phase(run, "a") == "RUNNING"
    driver.advance(1_000)
    assert (driver.phase(run, "a"), len(driver.stopped)) == ("BACKOFF", 1)

    driver.advance(30_000)
    assert driver.state_of(run) == "FAILED"
    assert len(driver.stopped) == 2
    driver.assert_empty()


# ---- pause


@pytest.mark.proves("S002-05", "S002-11", "S002-15", "S001-16")
def test_while_a_run_is_paused_attempts_may_finish_and_nothing_new_is_dispatched():
    driver = flow(task("a"), task("b", needs=["a"]))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run, "lunch"))
    driver.finish(run, "a", {"n": 1})
    driver.advance(HOUR_MS)

    assert driver.state_of(run) == "PAUSED"
    assert driver.phases(run) == {"a": "SUCCEEDED", "b": "PENDING"}
    assert not driver.running

    driver.expect(inp.Resume(BY, "run", T, run))
    assert driver.is_running(run, "b")
    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_run_whose_nodes_all_ended_while_it_was_paused_completes_when_it_is_resumed():
    driver = flow(task("a"))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.finish(run, "a")
    assert driver.state_of(run) == "PAUSED"

    driver.expect(inp.Resume(BY, "run", T, run))
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_wait_that_ends_while_its_run_is_paused_counts_when_it_is_resumed():
    driver = flow(wait(), task("a", needs=["w"]))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.advance(2 * HOUR_MS)
    assert (driver.state_of(run), driver.phase(run, "w")) == ("PAUSED", "SUCCEEDED")

    driver.expect(inp.Resume(BY, "run", T, run))
    assert driver.is_running(run, "a")


@pytest.mark.parametrize("how", ["ready", "backoff", "lost", "handed_back"])
def test_whatever_becomes_ready_while_its_run_is_paused_starts_only_after_resume(how):
    driver = flow(task("a", retry={"attempts": 2, "delay": "1s"}))
    if how == "ready":
        driver.send(inp.Offer("w1", 0))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run))
    match how:
        case "backoff":
            driver.fail(run, "a")
        case "lost":
            driver.send(inp.WorkerLost("w1"))
        case "handed_back":
            held = driver.attempt_of(run, "a")
            driver.send(inp.HandedBack(held.task, held.attempt))
    driver.send(inp.Offer("w1", 10))
    driver.advance(10_000)
    before = len(driver.started)
    assert driver.phase(run, "a") == "READY"

    driver.expect(inp.Resume(BY, "run", T, run))
    assert len(driver.started) == before + 1
    driver.finish_all()
    driver.assert_empty()


def test_a_pause_with_an_end_resumes_by_itself():
    driver = flow(task("a"), task("b", needs=["a"]))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run, until_ms=driver.now_ms + 60_000))
    driver.finish(run, "a")
    driver.advance(50_000)
    assert driver.state_of(run) == "PAUSED"

    driver.advance(20_000)
    assert driver.is_running(run, "b")
    assert driver.refusal(inp.Pause(BY, "run", T, run, until_ms=driver.now_ms)) == "bad_time"
    driver.finish_all()
    driver.assert_empty()


@pytest.mark.parametrize("end", ["resume", "cancel"])
def test_the_end_of_a_pause_is_forgotten_when_it_ends_otherwise(end):
    driver = flow(task("a"))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run, until_ms=driver.now_ms + 60_000))
    driver.expect(inp.Resume(BY, "run", T, run) if end == "resume" else inp.Cancel(BY, T, run))
    driver.advance(HOUR_MS)

    assert driver.state_of(run) == ("ACTIVE" if end == "resume" else "CANCELLED")
    if end == "resume":
        driver.finish(run, "a")
    driver.assert_empty()


def test_a_paused_task_is_not_late_in_its_queue_and_is_given_its_full_time_afterwards():
    driver = flow(task("a", timeout={"queued": "10s"}))
    driver.send(inp.Offer("w1", 0))
    run = driver.submit("flow")
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.advance(HOUR_MS)
    assert driver.phase(run, "a") == "READY"

    driver.expect(inp.Resume(BY, "run", T, run))
    driver.advance(9_000)
    assert driver.phase(run, "a") == "READY"
    driver.advance(2_000)
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_a_task_in_line_for_its_second_attempt_may_be_late_too():
    driver = flow(task("a", timeout={"queued": "10s"}, retry={"attempts": 2, "delay": "1s"}))
    run = driver.submit("flow")
    driver.send(inp.Offer("w1", 0))
    driver.fail(run, "a")
    driver.advance(20_000)

    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


# ---- the whole run's time


@pytest.mark.proves("S001-07")
@pytest.mark.parametrize("state", ["ACTIVE", "WAITING", "PAUSED"])
def test_a_run_that_takes_too_long_fails_in_whatever_state_it_is(state):
    driver = flow(wait() if state == "WAITING" else task("a"), timeout="10m")
    run = driver.submit("flow")
    if state == "PAUSED":
        driver.expect(inp.Pause(BY, "run", T, run))
    assert driver.state_of(run) == state
    attempts = list(driver.running.values())

    driver.advance(600_000)
    assert driver.state_of(run) == "FAILED"
    assert driver.moves(run)[-1] == "TIME_OUT"
    assert [(stop.task, stop.attempt) for stop in driver.stopped] == [(one.task, one.attempt) for one in attempts]
    driver.assert_empty()


def test_a_late_result_of_a_run_that_timed_out_is_recorded_and_ignored():
    driver = flow(task("a"), timeout="10m")
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.advance(600_000)
    driver.send(inp.Succeeded(attempt.task, attempt.attempt))

    assert driver.state_of(run) == "FAILED"
    assert driver.state.stale == 1
    assert driver.answers[-1].code == "fenced"


CLEAN = task("clean", needs=["a"], trigger="all_done")
ALERT = task("alert", needs=["a", "b"], trigger="any_failed")


def cut_short(*more, timeout="10m", **options):
    """A run whose first node never ends, when its time is over."""
    driver = flow(task("a"), task("b", needs=["a"]), *more, timeout=timeout, **options)
    run = driver.submit("flow")
    return driver, run


@pytest.mark.parametrize("state", ["ACTIVE", "WAITING", "PAUSED"])
def test_the_clean_up_of_a_run_that_took_too_long_still_runs_and_then_the_run_has_timed_out(state):
    first = {"kind": "wait", "id": "a", "duration": "2h"} if state == "WAITING" else task("a")
    driver = flow(first, task("b", needs=["a"]), CLEAN, ALERT, task("sent", needs=["alert"]), timeout="10m")
    run = driver.submit("flow")
    if state == "PAUSED":
        driver.expect(inp.Pause(BY, "run", T, run))
    assert driver.state_of(run) == state
    attempts = list(driver.running.values())

    driver.advance(600_000)
    assert driver.state_of(run) == "ACTIVE"
    assert [(stop.task, stop.attempt) for stop in driver.stopped] == [(one.task, one.attempt) for one in attempts]
    assert driver.phases(run) == {
        "a": "CANCELLED", "b": "CANCELLED", "clean": "RUNNING", "alert": "RUNNING", "sent": "PENDING",
    }  # fmt: skip

    driver.finish(run, "clean")
    driver.finish(run, "alert")
    driver.finish(run, "sent")
    assert driver.state_of(run) == "FAILED"
    assert driver.moves(run)[-1] == "TIME_OUT"
    assert driver.events(RunMoved)[-1].reason == "the run took too long"
    driver.assert_empty()


@pytest.mark.parametrize(("timeout", "left_ms"), [("1s", 60_000), ("5m", 300_000), ("2h", 600_000)])
def test_the_clean_up_of_a_run_that_took_too_long_has_a_limited_time(timeout, left_ms):
    driver, run = cut_short(CLEAN, timeout=timeout)
    driver.advance({"1s": 1_000, "5m": 300_000, "2h": 2 * HOUR_MS}[timeout])
    assert driver.phases(run)["clean"] == "RUNNING"

    driver.advance(left_ms - 1)
    assert driver.state_of(run) == "ACTIVE"
    driver.advance(1)
    assert driver.state_of(run) == "FAILED"
    assert driver.moves(run)[-1] == "TIME_OUT"
    assert driver.phases(run)["clean"] == "CANCELLED"
    assert len(driver.stopped) == 2
    driver.assert_empty()


def test_a_clean_up_that_fails_does_not_hide_that_the_run_took_too_long():
    driver, run = cut_short(CLEAN)
    driver.advance(600_000)
    driver.fail(run, "clean")

    assert driver.moves(run)[-1] == "TIME_OUT"
    assert driver.events(RunMoved)[-1].reason == "the run took too long"
    driver.assert_empty()


def test_a_clean_up_that_runs_when_the_time_is_over_goes_on():
    driver, run = cut_short(CLEAN)
    driver.fail(run, "a")
    assert driver.phases(run) == {"a": "FAILED", "b": "BLOCKED", "clean": "RUNNING"}
    driver.advance(600_000)
    assert not driver.stopped

    driver.finish(run, "clean")
    assert driver.moves(run)[-1] == "TIME_OUT"
    driver.assert_empty()


def test_no_exit_completes_a_run_whose_time_is_over():
    exits = [{"when": "events.exists(e, e.name == 'leave')", "outcome": "completed"}]
    driver, run = cut_short(CLEAN, exits=exits)
    driver.advance(600_000)
    driver.expect(inp.Ingest(BY, T, "leave", "", None, run))
    assert driver.state_of(run) == "ACTIVE"

    driver.finish(run, "clean")
    assert driver.moves(run)[-1] == "TIME_OUT"


def test_a_late_result_of_a_node_that_was_cut_short_changes_nothing():
    driver, run = cut_short(CLEAN)
    attempt = driver.attempt_of(run, "a")
    driver.advance(600_000)
    driver.send(inp.Succeeded(attempt.task, attempt.attempt))

    assert driver.state.stale == 1
    assert driver.phases(run)["a"] == "CANCELLED"


def test_maps_and_child_runs_that_are_cut_short_end_before_the_clean_up():
    driver = Driver()
    driver.define("leaf", task("l"))
    over = {"kind": "map", "id": "m", "over": "inputs.items", "body": {"kind": "task", "handler": "h"}}
    driver.define(
        "flow", over, {"kind": "workflow", "id": "c", "workflow": "leaf"},
        task("z", needs=["m", "c"], trigger="all_done"),
        inputs={"items": {"type": "array"}}, timeout="10m",
    )  # fmt: skip
    run = driver.submit("flow", inputs={"items": [1, 2, 3]})
    attempts = len(driver.running)
    driver.advance(600_000)

    assert len(driver.stopped) == attempts == 4
    assert driver.phases(run) == {"m": "CANCELLED", "c": "CANCELLED", "z": "RUNNING"}
    driver.finish(run, "z")
    assert driver.moves(run)[-1] == "TIME_OUT"
    driver.assert_empty()


def test_a_person_who_cancels_a_run_cancels_its_clean_up_too():
    driver, run = cut_short(CLEAN)
    driver.expect(inp.Cancel(BY, T, run, "changed my mind"))
    assert driver.state_of(run) == "CANCELLED"
    assert driver.phases(run)["clean"] == "CANCELLED" and len(driver.started) == 1

    driver, run = cut_short(CLEAN)
    driver.advance(600_000)
    driver.expect(inp.Cancel(BY, T, run, "no clean-up either"))
    assert driver.state_of(run) == "CANCELLED"
    driver.assert_empty()


# ---- cancel


@pytest.mark.proves("I39", "S001-30")
@pytest.mark.parametrize("state", ["PENDING", "ACTIVE", "WAITING", "PAUSED"])
def test_a_cancelled_run_stops_what_runs_and_starts_nothing_more(state):
    driver = flow(wait() if state == "WAITING" else task("a"), task("b", needs=["w" if state == "WAITING" else "a"]))
    run = driver.submit("flow", **({"delay_ms": 60_000} if state == "PENDING" else {}))
    if state == "PAUSED":
        driver.expect(inp.Pause(BY, "run", T, run))
    assert driver.state_of(run) == state
    running = len(driver.running)
    started = len(driver.started)

    driver.expect(inp.Cancel(BY, T, run, "changed my mind"))
    driver.advance(2 * HOUR_MS)
    assert driver.state_of(run) == "CANCELLED"
    assert len(driver.stopped) == running
    assert len(driver.started) == started
    assert driver.events(RunMoved)[-1].reason == "changed my mind"
    assert set(driver.phases(run).values()) == {"CANCELLED"}
    driver.assert_empty()


def test_a_result_in_the_same_tick_as_the_cancel_counts_only_before_it():
    driver = flow(task("a"))
    first, second = driver.submit("flow"), driver.submit("flow")
    for run, order in ((first, 1), (second, -1)):
        attempt = driver.attempt_of(run, "a")
        driver.send(*[inp.Succeeded(attempt.task, attempt.attempt), inp.Cancel(BY, T, run)][::order])

    assert driver.phase(first, "a") == "SUCCEEDED"
    assert driver.phase(second, "a") == "CANCELLED"
    assert (driver.state_of(first), driver.state_of(second)) == ("COMPLETED", "CANCELLED")
    driver.assert_empty()


# ---- visits


@pytest.mark.proves("S000-03", "S000-04", "S000-07")
def test_runs_are_visited_in_the_order_of_their_ids_and_the_trace_says_so():
    driver = flow(task("a"))
    names = ["delta", "alpha", "charlie", "bravo"]
    driver.send(*(inp.Submit(BY, T, name, "flow") for name in names))
    visited = driver.events(Visited)[-1].runs
    by_number = {driver.number_of(name): name for name in names}

    assert [by_number[number] for number in visited] == sorted(names)


def test_visits_that_do_not_fit_into_a_tick_stay_first_in_line():
    driver = Driver(max_runs_per_tick=2)
    driver.define("flow", task("a"))
    driver.send(*(inp.Submit(BY, T, name, "flow") for name in "dcba"))
    driver.send(inp.Submit(BY, T, "0", "flow"))
    driver.quiet()
    by_number = {driver.number_of(name): name for name in "abcd0"}

    assert ["".join(by_number[n] for n in event.runs) for event in driver.events(Visited)] == ["ab", "cd", "0"]
    driver.finish_all()
    driver.assert_empty()
