"""The order inside a tick, its two caps, and what it means to have nothing to do."""

from time import thread_time_ns

import pytest

from driver import BY, Driver, T, task
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import Deferred, RunMoved, RunSubmitted, TaskDispatched, TaskReady, Visited, WaitElapsed
from tickwork.core.state.state import LogicalClock


def submits(ids, workflow="flow"):
    return [inp.Submit(BY, T, run_id, workflow) for run_id in ids]


def visited(driver):
    ids = {event.run: asked[event.input].run_id for _, asked, events in driver.rows for event in events
           if isinstance(event, RunSubmitted)}  # fmt: skip
    return [[ids[number] for number in event.runs] for event in driver.events(Visited)]


@pytest.mark.proves("S000-06", "S000-10")
@pytest.mark.parametrize("tick", [3, 2, 0, -1])
def test_ticks_strictly_rise(tick):
    driver = Driver()
    driver.send(at=3)

    with pytest.raises(AssertionError, match="strictly rise"):
        driver.machine.apply(tick, [])


@pytest.mark.proves("S000-12")
def test_tick_nought_is_the_instant_at_which_the_clock_was_founded():
    clock = LogicalClock(origin_ms=1_800_000_000_000, resolution_ms=250)

    assert clock.ms_of(0) == 1_800_000_000_000
    assert clock.ms_of(4) == 1_800_000_001_000


@pytest.mark.proves("S000-04", "S000-07", "S000-08", "I19", "S000-01")
@pytest.mark.parametrize("ids", [["b", "a", "c"], ["c", "b", "a"], ["a", "b", "c"]])
def test_runs_are_visited_by_run_id_whatever_order_they_came_in(ids):
    driver = Driver()
    driver.define("flow", task("a"))
    driver.send(*submits(ids))

    assert visited(driver) == [["a", "b", "c"]]


@pytest.mark.proves("S000-03", "S000-05", "I19")
def test_inputs_come_before_timers_then_visits_then_admission():
    driver = Driver()
    driver.define("flow", {"kind": "wait", "id": "w", "duration_ms": 100}, task("a", needs=["w"]))
    driver.send(*submits(["one"]))
    driver.send(*submits(["two"]), at=driver.tick + 100)
    kinds = [type(event) for event in driver.rows[-1][2]]

    assert kinds.index(RunSubmitted) < kinds.index(WaitElapsed) < kinds.index(Visited)
    assert kinds.index(Visited) < kinds.index(TaskReady) < kinds.index(TaskDispatched)


@pytest.mark.proves("I19", "S000-08")
def test_timers_of_one_tick_fire_by_due_tick_then_kind_then_number():
    driver = Driver(credit=0)
    driver.define("flow", {"kind": "wait", "id": "w", "duration_ms": 100})
    driver.define("timed", task("a", timeout={"queued_ms": 100}))
    driver.define("later", {"kind": "wait", "id": "w", "duration_ms": 99})
    driver.send(*submits(["t1"], "timed"), *submits(["w1", "w2"]), *submits(["l1"], "later"))
    numbers = {run_id: driver.run(run_id).number for run_id in ("t1", "w1", "w2", "l1")}
    driver.send(at=driver.tick + 500)
    ended = [event.task for event in driver.rows[-1][2] if hasattr(event, "task")]

    assert ended == [numbers["l1"], numbers["w1"], numbers["w2"], numbers["t1"]]


@pytest.mark.proves("S000-25")
def test_one_tick_takes_hundreds_of_runs_on_in_milliseconds():
    took_ms = []
    for _ in range(3):
        driver = Driver()
        driver.define("flow", {"kind": "wait", "id": "w", "duration_ms": 100}, task("a", needs=["w"]))
        driver.send(*submits([f"r{number:03}" for number in range(300)]), at=10)
        began = thread_time_ns()
        driver.send(at=110)
        took_ms.append((thread_time_ns() - began) / 1e6)

        assert len(driver.running) == 300, "all of them went on in that one tick"
    assert min(took_ms) < 50, took_ms  # of CPU; it takes less than ten


@pytest.mark.proves("S000-32")
def test_runs_beyond_the_cap_stay_first_in_line():
    driver = Driver(max_runs_per_tick=2)
    driver.define("flow", task("a"))
    driver.send(*submits(["c", "d", "e", "b"]))
    driver.send(*submits(["a"]))
    driver.quiet()

    assert visited(driver) == [["b", "c"], ["d", "e"], ["a"]]


@pytest.mark.parametrize("cap", range(3, 12))
def test_runs_that_a_full_tick_deferred_are_first_in_line(cap):
    driver = Driver(max_changes_per_tick=cap, max_runs_per_tick=3)
    driver.define("flow", task("a"))
    driver.send(*submits("fghij"))
    driver.send(*submits("ab"))
    driver.quiet()
    order = [run_id for tick in visited(driver) for run_id in tick]
    started = [event.run for event in driver.events(RunMoved) if event.trigger == 0]

    assert list(dict.fromkeys(order))[:5] == list("fghij")
    assert started == [driver.run(run_id).number for run_id in "fghijab"]
    assert len(driver.running) == 7


@pytest.mark.parametrize("cap", [2, 3, 5, 17])
def test_no_input_is_lost_or_taken_twice_when_a_tick_is_full(cap):
    driver = Driver(max_changes_per_tick=cap)
    driver.define("flow", task("a"), task("b", needs=["a"]))
    outcome = driver.machine.apply(driver.tick + 1, submits([f"r{number:02}" for number in range(30)]))
    driver.tick += 1

    assert outcome.taken == max(1, cap // 2)  # the other half of a tick is for timers and runs
    driver.send(*submits([f"r{number:02}" for number in range(outcome.taken, 30)]))
    driver.running = {effect.task: effect for effect in driver.started}
    driver.quiet()
    assert driver.state.live_runs == 30
    assert all(len(events) <= cap + 5 for _, _, events in driver.rows)


@pytest.mark.parametrize("cap", [2, 3, 4, 9])
def test_work_goes_on_tick_by_tick_until_all_is_done_however_small_the_cap(cap):
    driver = Driver(max_changes_per_tick=cap, max_runs_per_tick=2, credit=5)
    driver.define("flow", *(task(name, priority=at) for at, name in enumerate("abc")), task("z", needs=["a", "b", "c"]))
    driver.send(*submits([f"r{number}" for number in range(6)]))
    driver.quiet()
    driver.finish_all()

    assert [driver.state_of(f"r{number}") for number in range(6)] == ["COMPLETED"] * 6


@pytest.mark.parametrize("cap", range(2, 16))
def test_a_run_that_ends_under_a_full_tick_is_not_visited_any_more(cap):
    driver = Driver(max_changes_per_tick=cap)
    driver.define("child", task("c"))
    nodes = [{"kind": "workflow", "id": name, "workflow": "child"} for name in "mn"]
    exits = [{"when": "size(events) > 0", "outcome": "cancelled"}]
    driver.define("parent", *nodes, task("x"), exits=exits)
    driver.send(*submits(["a"], "parent"))
    for _ in range(3):
        driver.send()
    driver.send(inp.Ingest(BY, T, "stop", run_id="a"), *(
        inp.Succeeded(effect.task, effect.attempt) for effect in driver.running.values()
    ))  # fmt: skip
    driver.quiet()

    assert driver.state.live_runs == 0


def test_next_tick_looks_past_runs_that_ended_in_line():
    driver = Driver(max_runs_per_tick=1)
    driver.define("child", task("c"))
    exits = [{"when": "size(events) > 0", "outcome": "cancelled"}]
    node = {"kind": "workflow", "id": "m", "workflow": "child"}
    driver.define("parent", node, exits=exits)
    driver.define("flow", task("a"))
    driver.submit("parent", "p")
    attempt = driver.attempt_of(driver.id_of_child("p", "m"), "c")
    driver.send(inp.Ingest(BY, T, "stop", run_id="p"))
    driver.send(inp.Succeeded(attempt.task, attempt.attempt), *submits(["z"]))
    driver.quiet()

    assert driver.is_running("z", "a")


def test_a_tick_with_nothing_to_do_changes_nothing():
    driver = Driver()
    driver.define("flow", task("a"), {"kind": "wait", "id": "w", "duration_ms": 5_000})
    driver.submit("flow")
    before = driver.machine.next_tick()
    outcome = driver.send(at=driver.tick + 50)

    assert (outcome.events, outcome.effects, outcome.closed) == ([], [], [])
    assert driver.machine.next_tick() == before


def test_an_idle_partition_asks_for_no_tick():
    driver = Driver()
    driver.define("flow", task("a"))

    assert driver.machine.next_tick() is None
    driver.submit("flow")
    assert driver.machine.next_tick() is None, "it waits for the worker, not for time"
    driver.finish_all()
    assert driver.machine.next_tick() is None


@pytest.mark.proves("S000-13", "S000-14", "S000-15")
def test_three_days_are_259200_ticks_of_a_second():
    driver = Driver(clock=LogicalClock(origin_ms=1_800_000_000_000, resolution_ms=1_000))
    driver.define("flow", {"kind": "wait", "id": "w", "duration": "3d"})
    driver.submit("flow", "r")
    begun = driver.tick
    due = driver.machine.next_tick()
    driver.send(at=begun + 259_199)

    assert due == begun + 259_200
    assert driver.state_of("r") == "WAITING"
    driver.send(at=due)
    assert driver.state_of("r") == "COMPLETED"


def test_deferred_runs_are_recorded():
    driver = Driver(max_changes_per_tick=6)
    driver.define("flow", task("a"))
    driver.send(*submits("abc"))
    driver.quiet()

    assert driver.events(Deferred)
    assert len(driver.running) == 3
