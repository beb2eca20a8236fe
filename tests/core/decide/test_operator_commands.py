"""What operators delete, change and drop: queues, policies, workflows, settings, dead letters."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.machine import Machine
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import LoadShed, PolicyDecided


def restored(driver):
    return digest(restore(*capture(driver.state)))


def folded(driver):
    machine = Machine(settings=driver.settings)
    for tick, asked, events in driver.rows:
        machine.fold(tick, asked, events)
    return digest(machine.state)


def assert_kept(driver):
    """Rows and journal lead to the same state."""
    assert restored(driver) == folded(driver) == digest(driver.state)


def test_a_policy_that_the_latest_version_names_is_not_deleted():
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "gate", "true", "", "fail"))
    driver.define("flow", task("a", policy=["gate"]))
    assert driver.refusal(inp.RemovePolicy(BY, "gate")) == "in_use"

    driver.define("flow", task("a"))
    driver.expect(inp.RemovePolicy(BY, "gate"))
    assert driver.refusal(inp.RemovePolicy(BY, "gate")) == "unknown_policy"
    assert_kept(driver)


@pytest.mark.proves("I40")
def test_a_run_of_an_earlier_version_is_denied_where_its_policy_is_gone():
    driver = Driver()
    driver.expect(inp.PutPolicy(BY, "gate", "true", "", "fail"))
    driver.define("flow", task("a"), task("b", needs=["a"], policy=["gate"]))
    run = driver.submit("flow")
    driver.define("flow", task("a"))
    driver.expect(inp.RemovePolicy(BY, "gate"))
    driver.finish(run, "a")

    assert driver.state_of(run) == "FAILED"
    assert driver.events(PolicyDecided)[-1].reason == "there is no policy gate"


def test_a_queue_is_deleted_when_nothing_names_it_and_nothing_is_in_it():
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "slow", limit=1), inp.Offer("w2", 5, ("slow",)))
    driver.define("flow", task("a", queue="slow"))
    driver.submit("flow"), driver.submit("flow")
    assert driver.refusal(inp.RemoveQueue(BY, "slow")) == "in_use"
    driver.define("flow", task("a"))
    assert driver.refusal(inp.RemoveQueue(BY, "slow")) == "in_use", "one runs, one waits"

    driver.finish_all()
    driver.expect(inp.RemoveQueue(BY, "slow"))
    assert driver.refusal(inp.RemoveQueue(BY, "slow")) == "unknown_queue"
    assert driver.refusal(inp.Pause(BY, "queue", "", "slow")) == "unknown_queue"
    assert driver.refusal(inp.RemoveQueue(BY, "default")) == "in_use"
    assert_kept(driver)


def test_a_task_of_an_earlier_version_still_finds_its_deleted_queue_without_its_limit():
    driver = Driver()
    driver.expect(inp.PutQueue(BY, "slow", limit=1), inp.Offer("w2", 5, ("slow",)))
    driver.define("flow", task("a"), task("b", needs=["a"], queue="slow"))
    runs = [driver.submit("flow"), driver.submit("flow")]
    driver.define("flow", task("a"))
    driver.expect(inp.RemoveQueue(BY, "slow"))
    for run in runs:
        driver.finish(run, "a")

    assert all(driver.is_running(run, "b") for run in runs)
    assert_kept(driver)
    driver.expect(inp.PutQueue(BY, "slow", limit=1))
    driver.define("flow", task("a", queue="slow"))


def test_a_deleted_workflow_takes_no_new_run_and_lets_its_runs_end():
    driver = Driver()
    driver.define("flow", task("a"))
    driver.define("outer", {"kind": "workflow", "id": "c", "workflow": "flow"})
    run = driver.submit("flow")
    assert driver.refusal(inp.RemoveWorkflow(BY, T, "flow")) == "in_use"
    driver.expect(inp.RemoveWorkflow(BY, T, "outer"), inp.RemoveWorkflow(BY, T, "flow"))

    assert driver.refusal(inp.Submit(BY, T, "r9", "flow")) == "unknown_workflow"
    driver.finish(run, "a")
    assert driver.state_of(run) == "COMPLETED"
    assert_kept(driver)
    driver.define("flow", task("a"))
    driver.submit("flow")


@pytest.mark.parametrize(
    ("values", "code"),
    [({"max_runs_per_tick": 0}, "bad_setting"), ({"ageing_ms": -1}, "bad_setting"),
     ({"resolution_ms": 5}, "unknown_setting"), ({"retry_earned_percent": 101}, "bad_setting")],
)  # fmt: skip
def test_a_setting_out_of_its_bounds_is_refused_and_nothing_changes(values, code):
    driver = Driver()

    assert driver.refusal(inp.PutSettings(BY, {"loss_allowance": 9, **values})) == code
    assert driver.state.settings == driver.settings


def test_settings_change_while_work_waits_and_a_replay_decides_the_same():
    driver = Driver(credit=1)
    driver.define("flow", task("a"))
    driver.define("urgent", task("a", priority=9))
    for _ in range(3):
        driver.submit("flow")
    driver.advance(10_000)
    driver.submit("urgent")
    driver.expect(inp.PutSettings(BY, {"ageing_ms": 0, "max_runs_per_tick": 2, "max_changes_per_tick": 50}))
    assert driver.state.first_settings == driver.settings
    assert_kept(driver)

    driver.finish_all()
    replayed = Machine(settings=driver.settings)
    for tick, asked, events in driver.rows:
        assert replayed.apply(tick, list(asked)).events == events
    assert digest(replayed.state) == digest(driver.state)


def test_without_ageing_the_oldest_task_goes_first_whatever_its_priority():
    driver = Driver(credit=1)
    driver.define("flow", task("a"))
    driver.define("urgent", task("a", priority=9))
    first, waiting = driver.submit("flow"), driver.submit("flow")
    driver.advance(10)
    urgent = driver.submit("urgent")
    driver.expect(inp.PutSettings(BY, {"ageing_ms": 0}))
    driver.finish(first, "a")

    assert driver.is_running(waiting, "a") and not driver.is_running(urgent, "a")


def test_with_ageing_the_urgent_task_goes_first():
    driver = Driver(credit=1, ageing_ms=0)
    driver.define("flow", task("a"))
    driver.define("urgent", task("a", priority=9))
    first, waiting = driver.submit("flow"), driver.submit("flow")
    driver.advance(10)
    urgent = driver.submit("urgent")
    driver.expect(inp.PutSettings(BY, {"ageing_ms": 60_000}))
    driver.finish(first, "a")

    assert driver.is_running(urgent, "a") and not driver.is_running(waiting, "a")


def test_load_is_no_longer_shed_where_the_limit_is_taken_away():
    driver = Driver(credit=1, shed_lag_ms=100)
    driver.define("flow", task("a", priority=9))
    driver.submit("flow"), driver.submit("flow")
    driver.advance(5_000)
    driver.send()
    assert driver.state.shed.on
    driver.expect(inp.PutSettings(BY, {"shed_lag_ms": 0}))

    assert not driver.state.shed.on
    assert driver.events(LoadShed)[-1].on is False
    assert_kept(driver)


def failed_run(driver):
    driver.define("flow", task("a"), task("b", needs=["a"]))
    run = driver.submit("flow")
    driver.fail(run, "a")
    return run


@pytest.mark.proves("S001-14")
def test_a_dropped_dead_letter_ends_as_cancelled_for_its_reason_and_cannot_come_back():
    driver = Driver()
    run = failed_run(driver)
    driver.expect(inp.DropDeadLetters(BY, T, "the customer left", [driver.records[run]]))

    assert driver.state_of(run) == "CANCELLED"
    assert driver.state.tenants[T].failed == 0 and driver.state.tenants[T].cancelled == 1
    driver.assert_empty()
    resolve = inp.Resolve(BY, T, run, "again", record=driver.records[run])
    assert driver.refusal(resolve) == "illegal_move"
    assert_kept(driver)


@pytest.mark.parametrize("change", ["no reason", "not failed", "twice"])
def test_a_drop_that_is_refused_drops_nothing(change):
    driver = Driver()
    run = failed_run(driver)
    other = driver.submit("flow")
    driver.finish_all()
    record = driver.records[run]
    drops = {
        "no reason": (inp.DropDeadLetters(BY, T, "", [record]), "reason_missing"),
        "not failed": (inp.DropDeadLetters(BY, T, "x", [record, driver.records[other]]), "illegal_move"),
        "twice": (inp.DropDeadLetters(BY, T, "x", [record, record]), "twice"),
    }
    asked, code = drops[change]

    assert driver.refusal(asked) == code
    assert driver.state_of(run) == "FAILED"
