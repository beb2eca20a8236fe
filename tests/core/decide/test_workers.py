"""Workers: what they offer, what they hold, and what becomes of it when they go."""

import pytest

from driver import BY, Driver, T, task
from tickwork.core.base.values import pack
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.events import QueueHeld, StaleReport, TaskFailed, TaskRequeued, WorkerOffered
from tickwork.core.state.retry import ELSEWHERE, HANDLER_MISSING


def driver_of(*offers, node=None, runs=0, **settings):
    driver = Driver(set_up=False, **settings)
    driver.expect(inp.PutTenant(BY, T), inp.PutQueue(BY, "default"), inp.PutQueue(BY, "other"), *offers)
    driver.define("flow", node or task("a"))
    submit(driver, runs)
    return driver


def submit(driver, count):
    first = driver.last_run
    driver.last_run += count
    driver.expect(*(inp.Submit(BY, T, f"r{number}", "flow") for number in range(first, first + count)))
    driver.quiet()


def held(driver):
    return {worker.id: len(worker.tasks) for worker in driver.state.workers.values()}


@pytest.mark.proves("S001-08")
@pytest.mark.parametrize(("offered", "runs", "shares"), [
    ((10, 10), 10, [5, 5]),
    ((10, 10, 10), 10, [4, 3, 3]),
    ((1, 10), 8, [1, 7]),
    ((2, 2), 9, [2, 2]),
    ((0, 3), 2, [0, 2]),
])  # fmt: skip
def test_work_is_shared_evenly_as_far_as_credit_goes(offered, runs, shares):
    driver = driver_of(*(inp.Offer(f"w{at}", credit) for at, credit in enumerate(offered)), runs=runs)

    assert sorted(held(driver).values()) == sorted(shares)


def test_single_tasks_go_round_among_the_workers():
    driver = driver_of(*(inp.Offer(f"w{at}", 9) for at in range(3)))
    for _ in range(6):
        submit(driver, 1)

    assert [effect.worker for effect in driver.started] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("before", "after", "running"), [(2, 5, 5), (5, 2, 5), (0, 3, 3), (3, 0, 3)])
def test_credit_is_how_many_attempts_it_may_hold_in_all(before, after, running):
    driver = driver_of(inp.Offer("w", before), runs=9)
    driver.send(inp.Offer("w", after))

    assert len(driver.running) == running
    for _ in range(running):
        attempt = driver.running.pop(min(driver.running))
        driver.send(inp.Succeeded(attempt.task, attempt.attempt))
        assert len(driver.running) <= max(after, running - 1)
    assert held(driver) == {"w": min(after, 9 - running)}


LABELS = [
    ({}, {}, True),
    ({}, {"gpu": "true"}, True),
    ({"gpu": "true"}, {"gpu": "true", "zone": "a"}, True),
    ({"gpu": "true"}, {"gpu": "false"}, False),
    ({"gpu": "true"}, {}, False),
    ({"gpu": "true", "zone": "a"}, {"gpu": "true"}, False),
]


@pytest.mark.proves("I46", "S001-57")
@pytest.mark.parametrize(("wanted", "offered", "starts"), LABELS)
def test_a_worker_has_every_label_that_a_task_requires(wanted, offered, starts):
    driver = driver_of(inp.Offer("w", 5, labels=offered), node=task("a", labels=wanted), runs=1)

    assert bool(driver.running) is starts


@pytest.mark.proves("I46", "S001-57")
@pytest.mark.parametrize("late", [{"queues": ("default",)}, {"labels": {"gpu": "true"}}])
def test_a_changed_offer_counts_from_the_next_start(late):
    first = {"queues": ("other",), "labels": {"gpu": "true"}} if "queues" in late else {"labels": {}}
    full = {"queues": ("default",), "labels": {"gpu": "true"}}
    driver = driver_of(inp.Offer("w", 5, **first), node=task("a", labels={"gpu": "true"}), runs=2)

    assert not driver.running
    driver.send(inp.Offer("w", 5, **full))
    assert len(driver.running) == 2
    driver.send(inp.Offer("w", 5, **first))
    submit(driver, 1)
    assert len(driver.running) == 2, "what runs goes on, nothing new comes"


RESOURCES = [
    ({"cpu_milli": 500}, {"cpu_milli": 1_200}, 2),
    ({"memory_mb": 100}, {"memory_mb": 399}, 3),
    ({"gpu": 1}, {"gpu": 1}, 1),
    ({"gpu": 1}, {}, 0),
    ({"slots": 3}, {"slots": 8}, 2),
    ({"slots": 1}, {"slots": 4}, 4),
    ({}, {"slots": 4}, 4),
    ({"cpu_milli": 100, "memory_mb": 100}, {"cpu_milli": 1_000, "memory_mb": 200}, 2),
]


@pytest.mark.proves("S001-57")
@pytest.mark.parametrize(("wanted", "capacity", "running"), RESOURCES)
def test_resources_are_counted_against_the_capacity(wanted, capacity, running):
    driver = driver_of(inp.Offer("w", 20, **capacity), node=task("a", resources=wanted), runs=10)

    assert len(driver.running) == running
    if running:
        attempt = driver.running.pop(min(driver.running))
        driver.send(inp.Succeeded(attempt.task, attempt.attempt))
        assert len(driver.running) == running


def test_two_lanes_that_no_free_worker_can_take_do_not_stop_the_partition():
    driver = driver_of(inp.Offer("w", 5, gpu=1), node=task("a", resources={"gpu": 2}))
    driver.define("other", task("a", resources={"gpu": 3}))
    driver.expect(inp.Submit(BY, T, "x", "flow"), inp.Submit(BY, T, "y", "other"))
    driver.send(inp.Offer("w", 6, gpu=1))
    driver.send(inp.Offer("w", 7, gpu=1))

    assert [event.reason for event in driver.events(QueueHeld)] == ["resources", "resources"]
    driver.send(inp.Offer("w", 7, gpu=5))
    assert len(driver.running) == 2


@pytest.mark.proves("I5", "I29")
def test_a_lost_worker_gives_its_attempts_to_others_and_its_reports_count_no_more():
    driver = driver_of(inp.Offer("w1", 3), runs=3)
    old = dict(driver.running)
    driver.send(inp.Offer("w2", 3), inp.WorkerLost("w1"))

    assert [(now.worker, now.attempt) for now in driver.running.values()] == [(1, 2)] * 3
    for number, attempt in old.items():
        for late in (inp.Succeeded, inp.Started, inp.Checkpointed, inp.HandedBack):
            driver.send(late(number, attempt.attempt))
        driver.send(inp.Failed(number, attempt.attempt, "ValueError"))
    assert driver.state.stale == len(driver.events(StaleReport)) == 15
    assert {answer.code for answer in driver.answers} == {"fenced"}
    assert len(driver.running) == 3 and driver.finish_all() == 3


@pytest.mark.proves("I31", "S001-177")
@pytest.mark.parametrize("allowance", [0, 1, 5])
def test_a_task_that_takes_worker_after_worker_down_is_a_dead_letter(allowance):
    driver = driver_of(loss_allowance=allowance, runs=0)
    submit(driver, 1)
    for number in range(allowance + 1):
        driver.send(inp.Offer(f"w{number}", 1))
        assert driver.is_running("r0", "a")
        driver.send(inp.WorkerLost(f"w{number}"))
    driver.quiet()

    assert driver.state_of("r0") == "FAILED"
    assert [(event.code, event.dead) for event in driver.events(TaskFailed)] == [("worker_lost", True)]
    assert [alert.kind for alert in driver.alerts] == ["dead_letter", "run_failed"]
    assert len(driver.started) == allowance + 1


@pytest.mark.proves("I31")
def test_poison_does_not_block_what_stands_behind_it():
    driver = driver_of(loss_allowance=1, runs=2)
    for number in range(2):
        driver.send(inp.Offer(f"w{number}", 1))
        driver.send(inp.WorkerLost(f"w{number}"))
    driver.send(inp.Offer("good", 1))
    driver.quiet()
    driver.finish_all()

    assert driver.state_of("r1") == "COMPLETED"


def lacks(driver):
    """The worker that has it says that its application has no such function."""
    attempt = driver.attempt_of("r0", "a")
    driver.send(inp.Failed(attempt.task, attempt.attempt, HANDLER_MISSING, "no handler 'work'", permanent=True))


def test_a_task_whose_function_one_worker_lacks_goes_to_another_and_costs_no_retry():
    driver = driver_of(node=task("a", retry={"attempts": 2, "delay_ms": 10}), runs=0)
    submit(driver, 1)
    driver.send(inp.Offer("lacks", 1))
    for _ in range(3):
        lacks(driver)
        driver.advance(1_000)
    driver.send(inp.WorkerLost("lacks", clean=True), inp.Offer("has", 1))

    driver.fail("r0", "a")
    driver.advance(20)
    assert driver.is_running("r0", "a"), "its retry is still there"
    driver.finish_all()
    driver.quiet()
    assert driver.state_of("r0") == "COMPLETED"


def test_a_task_whose_function_nobody_has_fails_for_good_after_a_while():
    driver = driver_of(runs=0)
    submit(driver, 1)
    driver.send(inp.Offer("lacks", 1))
    tries = 0
    while driver.state_of("r0") == "ACTIVE":
        lacks(driver)
        tries += 1
        driver.advance(40_000)

    assert tries == ELSEWHERE.attempts
    assert [(event.code, event.dead) for event in driver.events(TaskFailed)] == [(HANDLER_MISSING, True)]
    assert driver.state_of("r0") == "FAILED"


@pytest.mark.parametrize("how", ["goodbye", "handed_back"])
def test_what_is_handed_back_costs_neither_a_retry_nor_the_loss_allowance(how):
    node = task("a", retry={"attempts": 2, "delay_ms": 10})
    driver = driver_of(node=node, loss_allowance=0)
    submit(driver, 1)
    for number in range(4):
        driver.send(inp.Offer(f"w{number}", 1))
        attempt = driver.attempt_of("r0", "a")
        if how == "handed_back":
            driver.send(inp.Offer(f"w{number}", 0), inp.HandedBack(attempt.task, attempt.attempt))
        driver.send(inp.WorkerLost(f"w{number}", clean=True))
    driver.send(inp.Offer("w", 1))

    assert {event.cause for event in driver.events(TaskRequeued)} == {"handed_back"}
    assert driver.attempt_of("r0", "a").attempt == 5
    driver.fail("r0", "a")
    driver.advance(20)
    assert driver.attempt_of("r0", "a").attempt == 6, "its retry is still there"
    driver.fail("r0", "a")
    assert driver.state_of("r0") == "FAILED"


LOSSES = [
    ("lost", True),
    ("started_again", True),
    ("begun_and_handed_back", True),
    ("handed_back", False),
    ("goodbye", False),
]


@pytest.mark.parametrize(("how", "fails"), LOSSES)
@pytest.mark.parametrize("retries", [0, 3])
def test_a_task_that_is_not_to_run_twice_fails_with_a_worker_that_may_have_begun_it(how, fails, retries):
    node = task("a", on_worker_loss="fail", retry={"attempts": retries + 1, "delay_ms": 10})
    driver = driver_of(inp.Offer("w", 1, start="first"), node=node, runs=1)
    attempt = driver.attempt_of("r0", "a")
    driver.send({
        "lost": inp.WorkerLost("w"),
        "started_again": inp.Offer("w", 1, start="second"),
        "begun_and_handed_back": inp.HandedBack(attempt.task, attempt.attempt, begun=True),
        "handed_back": inp.HandedBack(attempt.task, attempt.attempt),
        "goodbye": inp.WorkerLost("w", clean=True),
    }[how])  # fmt: skip
    driver.send(inp.Offer("other", 1))
    driver.quiet()

    assert len(driver.started) == (1 if fails else 2)
    assert (driver.state_of("r0") == "FAILED") is fails
    if fails:
        [failed] = driver.events(TaskFailed)
        assert failed.code == "worker_lost" and failed.dead and "on_worker_loss is 'fail'" in failed.message


def test_a_child_of_a_map_that_is_not_to_run_twice_fails_alone():
    body = {"kind": "task", "handler": "work", "on_worker_loss": "fail"}
    node = {"kind": "map", "id": "a", "over": "inputs.items", "body": body}
    driver = driver_of(inp.Offer("w1", 1), inp.Offer("w2", 1))
    driver.define("each", node, inputs={"items": {"type": "array"}})
    driver.expect(inp.Submit(BY, T, "m", "each", pack({"items": [1, 2]})))
    driver.quiet()
    driver.send(inp.WorkerLost("w1"))
    driver.finish_all()
    driver.quiet()

    assert len(driver.started) == 2 and driver.state_of("m") == "FAILED"


def test_an_unknown_worker_that_is_lost_is_a_stale_report():
    driver = driver_of(inp.Offer("w", 1))
    driver.send(inp.WorkerLost("ghost"))
    driver.send(inp.WorkerLost("w"), inp.WorkerLost("w"))

    assert driver.state.stale == 2
    assert driver.state.workers == {}


@pytest.mark.proves("I5")
def test_a_worker_number_is_given_again_without_mixing_up_attempts():
    driver = driver_of(inp.Offer("old", 2), inp.Offer("keep", 0), runs=2)
    (task_number, attempt), *_ = [(number, effect.attempt) for number, effect in driver.running.items()]
    driver.send(inp.WorkerLost("old"), inp.Offer("new", 2))

    numbers = [event.worker for event in driver.events(WorkerOffered)]
    assert numbers == [0, 1, 0]
    assert {effect.worker for effect in driver.running.values()} == {0}
    driver.send(inp.Succeeded(task_number, attempt))
    assert driver.state.stale == 1, "the number is the same, the attempt is not"
    assert held(driver) == {"keep": 0, "new": 2}


def test_the_same_offer_again_changes_nothing():
    driver = driver_of(inp.Offer("w", 2), runs=3)
    before = held(driver), driver.state.capacity
    for _ in range(3):
        outcome = driver.send(inp.Offer("w", 2))
        assert not [effect for effect in outcome.effects if isinstance(effect, Dispatch)]

    assert (held(driver), driver.state.capacity) == before


def test_capacity_is_what_the_present_workers_offer():
    driver = driver_of(inp.Offer("a", 2, cpu_milli=5), inp.Offer("b", 3, slots=7, gpu=1))

    assert driver.state.capacity == (9, 5, 0, 1)
    driver.send(inp.Offer("a", 4), inp.WorkerLost("b"))
    assert driver.state.capacity == (4, 0, 0, 0)


@pytest.mark.parametrize(("offer", "code"), [
    (inp.Offer("", 1), "name_empty"),
    (inp.Offer("w\n", 1), "name_characters"),
    (inp.Offer("w", -1), "bad_credit"),
    (inp.Offer("w", 100_001), "bad_credit"),
    (inp.Offer("w", 1, slots=-1), "bad_capacity"),
    (inp.Offer("w", 1, gpu=-1), "bad_capacity"),
    (inp.Offer("w", 1, cpu_milli=10**30), "bad_capacity"),
    (inp.Offer("w", 1, labels={str(number): "x" for number in range(1_001)}), "too_many_labels"),
    (inp.Offer("w", 1, queues=tuple(str(number) for number in range(1_001))), "too_many_queues"),
])  # fmt: skip
def test_hostile_offers_are_refused(offer, code):
    driver = driver_of()

    assert driver.refusal(offer) == code
    assert driver.state.workers == {}
