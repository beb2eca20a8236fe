"""Maps and repeats: one counter, and the children that were started."""

import msgspec
import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import Ref, pack
from tickwork.core.evolve.tasks.children import CHILDREN_IN_TURN
from tickwork.core.explain.why_not import why_not
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import ChildDispatched, RunMoved, RunSpawned, TaskFailed
from tickwork.core.state.lifecycle import RunTrigger

LIST = {"items": {"type": "array"}}


def each(**fields):
    body = {"kind": "task", "handler": "one", **fields.pop("body", {})}
    return {"kind": "map", "id": "m", "over": "inputs.items", "body": body, **fields}


def mapped(*more, items=3, credit=1_000, **fields):
    """A driver with a run of a map over so many items, and the run's id."""
    driver = Driver(credit=credit)
    driver.define("flow", each(**fields), *more, inputs=LIST)
    return driver, driver.submit("flow", inputs={"items": list(range(items))})


def begun(driver):
    return len(driver.events(ChildDispatched))


@pytest.mark.proves("I60")
@pytest.mark.parametrize("items", [0, 1, 2, 7])
def test_a_map_makes_one_child_per_item_and_waits_for_all_of_them(items):
    driver, run = mapped(task("after", needs=["m"]), items=items)
    children = [driver.state.tasks[effect.task].child for effect in driver.started if items]
    if items:
        assert children == list(range(items))

    for child in reversed(range(items)):
        assert driver.phase(run, "after") == "PENDING"
        driver.finish(run, "m", child=child)
    assert driver.is_running(run, "after")

    driver.finish_all()
    assert driver.state_of(run) == "COMPLETED"
    assert begun(driver) == items
    record = driver.records[run]
    assert dict(record.results)[0] == Ref(f"{record.number}/0", 0, items, "gather")
    driver.assert_empty()


@pytest.mark.proves("I60")
def test_a_map_over_a_result_kept_elsewhere_has_as_many_children_as_it_has_items():
    driver = Driver()
    driver.define("flow", task("a"), each(over="nodes.a", needs=["a"]))
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    report = inp.Succeeded(attempt.task, attempt.attempt, Ref("digest", 90_000, 5))
    del driver.running[attempt.task]
    driver.send(report, report)  # twice in one tick
    driver.send(report)  # and once more
    driver.quiet()

    assert driver.finish_all() == 5
    assert begun(driver) == 5
    assert driver.state.stale == 2
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize(
    "value",
    [
        pack(5),
        pack({"a": 1}),
        pack("abc"),
        None,
        Ref("digest", 9_000),
        Ref("digest", 9_000_000, 1_000_001),
        Ref("digest", 9, -1),
    ],
)
def test_a_map_over_what_is_no_list_or_too_long_fails(value):
    driver = Driver()
    driver.define("flow", task("a"), each(over="nodes.a", needs=["a"]))
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.running.clear()
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, value))

    assert driver.state_of(run) == "FAILED"
    assert driver.phase(run, "m") == "FAILED"
    driver.assert_empty()


def test_a_result_of_a_child_that_arrives_twice_counts_once():
    driver, run = mapped(items=2)
    attempt = driver.attempt_of(run, "m", 0)
    del driver.running[attempt.task]
    report = inp.Succeeded(attempt.task, attempt.attempt)
    driver.send(report, report)
    driver.send(report)

    assert driver.state_of(run) == "ACTIVE"
    driver.finish(run, "m", child=1)
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize(("max_parallel", "credit", "at_once"), [(2, 100, 2), (None, 3, 3), (5, 3, 3), (None, 100, 10)])
def test_no_more_children_exist_at_once_than_may_run(max_parallel, credit, at_once):
    driver, run = mapped(items=10, credit=credit, **({"max_parallel": max_parallel} if max_parallel else {}))
    most = 0
    while driver.running:
        most = max(most, len(driver.running))
        assert len(driver.state.tasks) == len(driver.running) + 1  # and the map itself
        driver.finish(run, "m", child=min(driver.state.tasks[number].child for number in driver.running))

    assert most == at_once
    assert begun(driver) == 10
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_seventy_thousand_children_exist_only_when_they_are_admitted():
    driver = Driver(credit=50)
    driver.define("flow", task("a"), each(over="nodes.a", needs=["a"]))
    run = driver.submit("flow")
    attempt = driver.attempt_of(run, "a")
    driver.running.clear()
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, Ref("digest", 1 << 20, 70_000)))
    most = 0
    while driver.run(run) is not None:
        done = [inp.Succeeded(one.task, one.attempt) for one in driver.running.values()]
        driver.running.clear()
        driver.rows.clear()
        most = max(most, len(driver.state.tasks))
        driver.send(*done)

    assert most == 51
    assert len(driver.started) == 70_001
    assert len(driver.state.tasks) == len(driver.state.wheel) == 0


@pytest.mark.parametrize(("failures", "tolerate", "state"), [(1, 0, "FAILED"), (2, 2, "COMPLETED"), (3, 2, "FAILED")])
def test_a_map_bears_as_many_failed_children_as_it_tolerates_and_tries_all(failures, tolerate, state):
    driver, run = mapped(items=5, tolerate=tolerate, max_parallel=1)
    for child in range(5):
        (driver.fail if child < failures else driver.finish)(run, "m", child=child)

    assert driver.state_of(run) == state
    assert begun(driver) == 5
    driver.assert_empty()


def test_a_child_is_tried_again_on_its_own():
    driver, run = mapped(items=3, body={"retry": {"attempts": 2, "delay": "1s"}})
    driver.fail(run, "m", child=1)
    driver.finish(run, "m", child=0)
    driver.finish(run, "m", child=2)
    assert driver.state_of(run) == "ACTIVE"  # in backoff

    driver.advance(2_000)
    assert driver.attempt_of(run, "m", 1).attempt == 2
    driver.finish(run, "m", child=1)
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_child_whose_worker_is_lost_runs_again_and_the_map_counts_it_once():
    driver, run = mapped(items=4, max_parallel=2)
    driver.running.clear()
    driver.send(inp.WorkerLost("w1"))
    driver.send(inp.Offer("w2", 10))
    driver.quiet()

    assert len(driver.running) == 2
    assert driver.finish_all() == 4
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_paused_map_begins_no_child_and_goes_on_when_it_is_resumed():
    driver, run = mapped(items=6, max_parallel=2)
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.finish(run, "m", child=0)
    driver.advance(1_000)
    assert begun(driver) == 2

    driver.expect(inp.Resume(BY, "run", T, run))
    driver.finish_all()
    assert begun(driver) == 6
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_cancelled_map_stops_its_children():
    driver, run = mapped(items=6, max_parallel=2)
    driver.expect(inp.Cancel(BY, T, run))

    assert len(driver.stopped) == 2
    driver.assert_empty()


# ---- maps of workflows


def mapped_runs(items, args=None, **fields):
    driver = Driver()
    driver.define("leaf", task("l"), inputs={"n": {"type": "integer", "required": False}})
    body = {"kind": "workflow", "workflow": "leaf", "args": args or {}}
    driver.define("flow", {"kind": "map", "id": "m", "over": "inputs.items", "body": body, **fields}, inputs=LIST)
    return driver, driver.submit("flow", inputs={"items": items})


def test_a_map_of_workflows_makes_a_run_per_item_with_its_inputs():
    driver, run = mapped_runs([5, 6, 7], {"n": {"from": "item"}}, max_parallel=2)
    assert [event.inputs for event in driver.events(RunSpawned)] == [pack({"n": 5}), pack({"n": 6})]
    assert driver.state_of(run) == "WAITING"

    driver.finish_all()
    assert len(driver.events(RunSpawned)) == 3
    assert driver.state_of(run) == "COMPLETED"
    assert driver.state_of(driver.id_of_child(run, "m", 2)) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize(("tolerate", "state"), [(0, "FAILED"), (1, "COMPLETED")])
def test_a_failed_run_of_a_map_is_a_failed_child(tolerate, state):
    driver, run = mapped_runs([1, 2], tolerate=tolerate)
    driver.fail(driver.id_of_child(run, "m", 0), "l")
    driver.finish_all()

    assert driver.state_of(run) == state
    driver.assert_empty()


@pytest.mark.parametrize(("tolerate", "state"), [(0, "FAILED"), (1, "COMPLETED")])
@pytest.mark.parametrize(
    ("item", "code"), [({"n": "three"}, "wrong_type"), ({"n": {"x": 3}}, "wrong_type"), ({}, "bad_reference")]
)
def test_an_item_that_does_not_fit_fails_only_its_own_child_run(item, code, tolerate, state):
    items = [{"n": 1}, item, {"n": 3}]
    driver, run = mapped_runs(items, {"n": {"from": "item.n"}}, max_parallel=3, tolerate=tolerate)
    driver.quiet()
    children = [driver.id_of_child(run, "m", child) for child in range(3)]

    assert [driver.state_of(child) for child in children] == ["ACTIVE", "FAILED", "ACTIVE"]
    [reason] = [event.reason for event in driver.events(RunMoved) if event.trigger == RunTrigger.FAIL]
    assert reason.startswith(code)
    assert driver.finish_all() == 2
    assert driver.state_of(run) == state
    driver.assert_empty()


def wide_map_of_runs(items=400, credit=10, leaf=None, **fields):
    driver = Driver(credit=credit)
    driver.define("leaf", *(leaf or [task("l")]))
    driver.define("small", task("a"))
    body = {"kind": "workflow", "workflow": "leaf"}
    driver.define("flow", {"kind": "map", "id": "m", "over": "inputs.items", "body": body, **fields}, inputs=LIST)
    run = driver.submit("flow", inputs={"items": [0] * items})
    driver.quiet()
    return driver, run


def spawned(driver):
    return len(driver.events(RunSpawned))


def test_a_wide_map_of_workflows_makes_its_runs_as_they_start():
    driver, run = wide_map_of_runs()
    assert CHILDREN_IN_TURN <= spawned(driver) <= 3 * CHILDREN_IN_TURN

    assert driver.finish_all() == 400
    assert spawned(driver) == 400
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_wide_map_of_workflows_keeps_all_workers_busy():
    driver, _ = wide_map_of_runs(credit=300)

    assert len(driver.running) == 300


@pytest.mark.parametrize("workflow", ["small", "leaf"], ids=["another workflow", "the same workflow"])
def test_a_wide_map_of_workflows_keeps_what_comes_beside_it_waiting_for_portions_only(workflow):
    driver, wide = wide_map_of_runs()
    beside = driver.submit(workflow)
    number = driver.number_of(beside)
    ended = 0
    while not any(driver.state.tasks[attempt.task].run.number == number for attempt in driver.running.values()):
        assert ended <= 3 * CHILDREN_IN_TURN, "it stands behind the whole map"
        first = driver.state.tasks[min(driver.running)]
        driver.finish(first.run.id, "l")
        ended += 1

    driver.finish_all()
    assert driver.state_of(wide) == driver.state_of(beside) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize(
    "first",
    [{"kind": "event", "id": "e", "event": "go"}, {"kind": "wait", "id": "e", "duration": "1d"}],
    ids=["event", "wait"],
)
def test_child_runs_that_wait_do_not_keep_the_next_ones_from_starting(first):
    driver, run = wide_map_of_runs(items=900, leaf=[first, task("l", needs=["e"])])

    assert spawned(driver) == 900
    driver.expect(inp.Cancel(BY, T, run))
    driver.assert_empty()


def test_child_runs_that_are_paused_do_not_keep_the_next_ones_from_starting():
    driver, run = wide_map_of_runs(items=400)
    before = spawned(driver)
    for child in range(before):
        driver.expect(inp.Pause(BY, "run", T, driver.id_of_child(run, "m", child)))
    driver.quiet()

    assert spawned(driver) >= min(400, before + CHILDREN_IN_TURN)
    driver.expect(inp.Cancel(BY, T, run))
    driver.assert_empty()


def test_child_runs_in_backoff_do_not_keep_the_next_ones_from_starting():
    driver, run = wide_map_of_runs(items=400, leaf=[task("l", retry={"attempts": 2, "delay": "1h"})])
    failed = 0
    while driver.running:
        first = driver.state.tasks[min(driver.running)]
        driver.fail(first.run.id, "l")
        failed += 1

    assert failed == spawned(driver) == 400
    driver.advance(2 * 3_600_000)
    assert driver.finish_all() == 400
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


@pytest.mark.parametrize("max_parallel", [3, 200])
def test_a_wide_map_of_workflows_has_no_more_runs_at_once_than_it_may(max_parallel):
    driver, run = wide_map_of_runs(items=300, credit=1_000, max_parallel=max_parallel)
    assert spawned(driver) == max_parallel
    driver.finish_all()

    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


# ---- repeats


def repeating(until, delay_ms=0, **fields):
    driver = Driver()
    body = {"kind": "task", "handler": "poll", **fields.pop("body", {})}
    node = {"kind": "repeat", "id": "p", "until": until, "max_iterations": 4, "delay_ms": delay_ms, "body": body}
    driver.define("flow", {**node, **fields}, task("after", needs=["p"]))
    return driver, driver.submit("flow")


def test_a_repeat_ends_when_its_condition_holds_and_answers_with_the_last_result():
    driver, run = repeating("last.done")
    driver.finish(run, "p", {"done": False})
    driver.finish(run, "p", {"done": True, "n": 7})
    assert driver.is_running(run, "after")

    driver.finish_all()
    assert driver.result(run, "p") == {"done": True, "n": 7}
    driver.assert_empty()


@pytest.mark.parametrize(("on_max", "state"), [("fail", "FAILED"), ("continue", "COMPLETED")])
def test_a_repeat_makes_no_more_turns_than_it_may(on_max, state):
    driver, run = repeating("iteration > 10", on_max=on_max)
    driver.finish_all()

    assert driver.state_of(run) == state
    assert len(driver.started) == (4 if on_max == "fail" else 5)
    driver.assert_empty()


def test_a_repeat_counts_its_turns_from_one():
    driver, _ = repeating("iteration == 3")
    driver.finish_all()

    assert len(driver.started) == 3 + 1


def test_a_repeat_rests_between_two_turns_and_its_run_waits():
    driver, run = repeating("last.done", delay_ms=60_000)
    driver.finish(run, "p", {"done": False})
    assert (driver.state_of(run), len(driver.running)) == ("WAITING", 0)
    driver.advance(59_000)
    assert not driver.running

    driver.advance(2_000)
    driver.finish(run, "p", {"done": True})
    assert driver.is_running(run, "after")
    driver.finish_all()
    driver.assert_empty()


def test_a_turn_that_fails_is_tried_again_as_declared_and_then_fails_the_repeat():
    driver, run = repeating("last.done", body={"retry": {"attempts": 2, "delay": "1s"}})
    driver.fail(run, "p")
    driver.advance(2_000)
    driver.fail(run, "p")

    assert driver.phases(run) == {"p": "FAILED", "after": "BLOCKED"}
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


@pytest.mark.parametrize("value", [None, pack({}), pack(5), Ref("digest", 5_000)])
def test_a_repeat_whose_condition_cannot_be_answered_fails(value):
    driver, run = repeating("last.done")
    attempt = driver.attempt_of(run, "p")
    driver.running.clear()
    driver.send(inp.Succeeded(attempt.task, attempt.attempt, value))
    driver.quiet()

    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


def test_a_repeat_of_workflows_hands_each_turn_the_result_before_it():
    driver = Driver()
    driver.define("leaf", task("l"), inputs={"before": {"type": "any"}, "turn": {"type": "integer"}})
    args = {"before": {"from": "previous"}, "turn": {"from": "iteration"}}
    body = {"kind": "workflow", "workflow": "leaf", "args": args}
    driver.define("flow", {"kind": "repeat", "id": "p", "until": "last == 2", "max_iterations": 9, "body": body})
    run = driver.submit("flow")
    for turn in range(3):
        driver.finish(driver.id_of_child(run, "p", turn), "l", turn)

    inputs = [event.inputs for event in driver.events(RunSpawned)]
    assert inputs == [pack({"before": before, "turn": turn}) for turn, before in enumerate([None, 0, 1])]
    assert driver.state_of(run) == "COMPLETED"
    driver.assert_empty()


def test_a_paused_repeat_takes_its_next_turn_only_when_it_is_resumed():
    driver, run = repeating("last.done", delay_ms=1_000)
    driver.finish(run, "p", {"done": False})
    driver.expect(inp.Pause(BY, "run", T, run))
    driver.advance(60_000)
    assert len(driver.started) == 1

    driver.expect(inp.Resume(BY, "run", T, run))
    driver.quiet()
    assert len(driver.started) == 2


@pytest.mark.parametrize("workflow", ["small", "flow"], ids=["another workflow", "the same workflow"])
def test_a_wide_map_keeps_what_comes_beside_it_waiting_for_one_portion_only(workflow):
    driver, wide = mapped(items=400, credit=10)
    driver.define("small", task("a"))
    driver.advance(1_000)
    beside = driver.submit(workflow, **({"inputs": {"items": [0]}} if workflow == "flow" else {}))
    number = driver.number_of(beside)
    before = begun(driver)

    while not any(driver.state.tasks[attempt.task].run.number == number for attempt in driver.running.values()):
        assert begun(driver) - before <= CHILDREN_IN_TURN + 10, "it stands behind the whole map"
        first = min(driver.running)
        driver.finish(wide, "m", child=driver.state.tasks[first].child)

    driver.finish_all()
    assert driver.state_of(wide) == driver.state_of(beside) == "COMPLETED"
    driver.assert_empty()


def test_two_wide_maps_take_turns():
    driver, first = mapped(items=400, credit=10)
    second = driver.submit("flow", inputs={"items": list(range(400))})
    numbers = {driver.number_of(first): 0, driver.number_of(second): 0}
    while sum(numbers.values()) < 400:
        attempt = min(driver.running)
        item = driver.state.tasks[attempt]
        numbers[item.run.number] += 1
        driver.finish(item.run.id, "m", child=item.child)

    assert max(numbers.values()) - min(numbers.values()) <= CHILDREN_IN_TURN + 10


def test_children_of_a_map_that_fail_alike_give_equal_alerts_of_the_run_and_its_node():
    driver, run = mapped(items=3, tolerate=3)
    for child, error in enumerate(["ValueError", "ValueError", "KeyError"]):
        driver.fail(run, "m", error, child=child)

    assert driver.state_of(run) == "COMPLETED"
    assert [alert.subject for alert in driver.alerts] == [run] * 3
    assert [alert.detail for alert in driver.alerts] == ["m: ValueError", "m: ValueError", "m: KeyError"]


def test_what_fails_in_child_runs_is_alerted_with_the_run_at_the_top_and_the_way_there():
    driver = Driver()
    driver.define("leaf", task("l"))
    driver.define("flow", {**each(), "body": {"kind": "workflow", "workflow": "leaf"}}, inputs=LIST)
    run = driver.submit("flow", inputs={"items": [1, 2]})
    for child in (0, 1):
        driver.fail(driver.id_of_child(run, "m", child), "l")

    of_a_child = [("dead_letter", run, "m: l: ValueError"), ("run_failed", run, "m: failed: l")]
    found = [(alert.kind, alert.subject, alert.detail) for alert in driver.alerts]
    assert found == [*of_a_child, *of_a_child, ("run_failed", run, "failed: m")]


@pytest.mark.parametrize("fails", [True, False])
def test_a_run_that_failed_in_a_map_fails_once_whatever_its_clean_up_maps(fails):
    clean_up = {**each(), "id": "c", "needs": ["m"], "trigger": "any_failed"}
    driver, run = mapped(clean_up, items=2)
    for child in (0, 1):
        driver.fail(run, "m", child=child)
    assert driver.state_of(run) == "ACTIVE"
    for child in (0, 1):
        (driver.fail if fails else driver.finish)(run, "c", child=child)

    failed = [alert.detail for alert in driver.alerts if alert.kind == "run_failed"]
    assert failed == ["failed: m, c" if fails else "failed: m"]
    assert driver.state_of(run) == "FAILED"
    driver.assert_empty()


# ---- the time of a repeat, and turns that may fail


def polled(**fields):
    body = {"kind": "task", "handler": "one", **fields.pop("body", {})}
    node = {
        "kind": "repeat",
        "id": "r",
        "until": "last == 7",
        "max_iterations": 1_000_000,
        "delay": "10s",
        "body": body,
    }
    driver = Driver()
    driver.define("leaf", task("x"))
    driver.define("flow", {**node, **fields}, inputs={"x": {"required": False}})
    return driver, driver.submit("flow", inputs={"x": "25s"})


@pytest.mark.parametrize("limit", [{"timeout": "25s"}, {"timeout_from": "inputs.x"}])
@pytest.mark.parametrize(("on_max", "state"), [("fail", "FAILED"), ("continue", "COMPLETED")])
@pytest.mark.parametrize(
    "body", [{}, {"kind": "workflow", "handler": msgspec.UNSET, "workflow": "leaf"}], ids=["task", "run"]
)
def test_the_time_of_a_repeat_is_over_while_a_turn_runs_and_it_is_cancelled(limit, on_max, state, body):
    fields = {
        name: value for name, value in {"kind": "task", "handler": "one", **body}.items() if value is not msgspec.UNSET
    }
    node = {"kind": "repeat", "id": "r", "until": "last == 7", "max_iterations": 9, "delay": "10s", "body": fields}
    driver = Driver()
    driver.define("leaf", task("x"))
    driver.define("flow", {**node, **limit, "on_max": on_max}, inputs={"x": {"required": False}})
    run = driver.submit("flow", inputs={"x": "25s"})
    for turn in range(2):
        (attempt,) = driver.running.values()
        driver.running.clear()
        driver.send(inp.Succeeded(attempt.task, attempt.attempt, pack(turn)))
        driver.quiet()
        driver.advance(10_000)
    assert len(driver.running) == 1  # the third turn
    driver.advance(4_990)
    assert driver.state_of(run) in ("ACTIVE", "WAITING")

    driver.advance(20)
    assert driver.state_of(run) == state
    assert len(driver.stopped) == 1
    if state == "COMPLETED":
        assert driver.result(run, "r") == 1
    driver.running.clear()
    driver.assert_empty()


def test_the_time_of_a_repeat_is_over_while_it_rests_and_why_says_until_when():
    driver, run = polled(timeout="15s", on_max="continue")
    driver.finish(run, "r", 3)
    driver.advance(1)
    assert "for which there is time until 2027-01-15T08:00:15" in str(why_not(driver.state, T, run))
    driver.advance(10_000)
    driver.finish(run, "r", 4)  # it rests until the 20th second
    driver.advance(5_000)

    assert driver.state_of(run) == "COMPLETED"
    assert driver.result(run, "r") == 4
    driver.assert_empty()


def test_failed_turns_are_tolerated_in_a_row_and_one_good_turn_starts_the_count_anew():
    driver, run = polled(tolerate=2)
    for how in ("bad", "bad", 5, "bad", "bad"):
        driver.fail(run, "r") if how == "bad" else driver.finish(run, "r", how)
        assert driver.state_of(run) == "WAITING"
        driver.advance(10_000)
    driver.fail(run, "r")

    assert driver.state_of(run) == "FAILED"
    (ended,) = driver.events(TaskFailed)[-1:]
    assert ended.message == "iteration 6 failed, number 3 in a row"


def test_a_condition_is_not_asked_about_the_result_of_an_earlier_turn():
    driver, run = polled(tolerate=9, until="iteration >= 2 && last == 5")
    driver.finish(run, "r", 5)
    driver.advance(10_000)
    driver.fail(run, "r")
    driver.advance(10_000)

    assert driver.is_running(run, "r")
    driver.finish(run, "r", 5)
    assert driver.state_of(run) == "COMPLETED"
