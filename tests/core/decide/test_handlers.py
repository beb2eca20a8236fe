"""Several applications on one queue: who lacks a function is learned once, and the work goes to those who have it."""

import random

import pytest

from driver import BY, Driver, T, task
from tickwork.core.explain.why_not import why_not
from tickwork.core.machine import Machine
from tickwork.core.snapshot.invariants import violations
from tickwork.core.snapshot.snapshot import capture, digest, restore
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import TaskFailed
from tickwork.core.state.ready_queues import BROKER_WORKER_PREFIX, PIN_LABEL
from tickwork.core.state.retry import HANDLER_MISSING


class Shop(Driver):
    """Workers that answer for what they are given, and say so where their code has no function for it."""

    def __init__(self, *functions, **settings):
        super().__init__(set_up=False, **settings)
        self.codes = {}
        self.missing = 0
        self.expect(inp.PutTenant(BY, T), inp.PutQueue(BY, "default"))
        for function in functions:
            self.define(f"do-{function}", task("a", handler=function))

    def come(self, name, code, functions, credit=4):
        self.codes[name] = frozenset(functions)
        self.expect(inp.Offer(name, credit, labels={PIN_LABEL: code}))
        self.quiet()

    def go(self, name, *, clean=True):
        for number in list(self.state.workers[self.state.worker_numbers[name]].tasks):
            self.running.pop(number)
        self.send(inp.WorkerLost(name, clean=clean))
        self.quiet()

    def answer(self, number):
        attempt, item = self.running.pop(number), self.state.tasks[number]
        node = item.step.node if item.step.body is None else item.step.body.node
        if node.handler in self.codes[item.worker.id]:
            self.send(inp.Succeeded(number, attempt.attempt))
        else:
            self.missing += 1
            self.send(inp.Failed(number, attempt.attempt, HANDLER_MISSING, "no", permanent=True))
        self.quiet()

    def work(self, ms=60_000):
        """Everybody answers at once, until nothing runs and nothing comes within this time."""
        while True:
            while self.running:
                self.answer(min(self.running))
            due = self.machine.next_tick()
            if due is None or due > self.tick + ms:
                return
            self.advance(due - self.tick)


@pytest.mark.parametrize("codes", [2, 3, 8, 20])
def test_applications_of_one_queue_each_get_their_own_work(codes):
    """Turn by turn a worker of another application would come up again and again, and after a dozen the task fails."""
    names = [f"f{number}" for number in range(codes)]
    shop = Shop(*names)
    for name in names:
        shop.come(f"w-{name}", f"app-{name}@1", [name])
    runs = [shop.submit(f"do-{name}") for _ in range(6) for name in reversed(names)]
    shop.work()

    assert {shop.state_of(run) for run in runs} == {"COMPLETED"}
    assert not shop.events(TaskFailed)
    known, missing = learned(shop), shop.missing
    for name in reversed(names):
        later = shop.submit(f"do-{name}")
        shop.work()
        assert shop.state_of(later) == "COMPLETED"
    assert shop.missing - missing == learned(shop) - known, "what is known is not asked again"


def learned(shop):
    return sum(len(one.handlers) for one in shop.state.lacking.values())


def test_what_one_worker_lacks_all_workers_of_its_code_lack():
    shop = Shop("f", "g")
    for number in range(9):
        shop.come(f"other-{number}", "other@1", ["g"])
    shop.come("own", "own@1", ["f"])
    for _ in range(20):
        shop.submit("do-f")
        shop.work()
    assert shop.missing <= 1

    shop.come("another", "other@1", ["g"])
    for _ in range(20):
        shop.submit("do-f")
        shop.work()
    assert shop.missing <= 1, "who comes with that code is known already"


def test_a_task_that_met_the_wrong_worker_is_with_the_right_one_at_once():
    shop = Shop("f")
    shop.come("lacks", "app@1", [])
    shop.come("has", "other@1", ["f"])
    run = shop.submit("do-f")
    began = shop.tick
    shop.work()

    assert (shop.state_of(run), shop.missing) == ("COMPLETED", 1)
    assert shop.tick - began < 10


def test_new_code_is_tried_and_what_is_gone_is_forgotten():
    shop = Shop("f")
    shop.come("one", "app@1", [])
    shop.come("two", "other@1", ["f"])
    for _ in range(2):
        shop.submit("do-f")
        shop.work()
    assert shop.missing == 1 and list(shop.state.lacking) == ["app@1"]

    shop.come("one", "app@2", ["f"])
    assert not shop.state.lacking
    shop.go("two")
    last = shop.submit("do-f")
    shop.work()
    assert (shop.state_of(last), shop.missing) == ("COMPLETED", 1)


def test_work_whose_last_worker_has_gone_waits_for_one_with_the_function_and_says_so():
    shop = Shop("f")
    shop.come("lacks", "app@1", [])
    shop.come("has", "other@1", ["f"])
    for _ in range(2):
        shop.submit("do-f")
        shop.work()
    kept = shop.submit("do-f")
    shop.go("has")
    shop.work()

    assert shop.state_of(kept) == "ACTIVE" and not shop.running
    [node] = why_not(shop.state, T, kept).nodes
    assert node.obstacles[0].text == "no worker serves queue:default handler=f"
    shop.come("has-again", "other@2", ["f"])
    shop.work()
    assert (shop.state_of(kept), shop.missing) == ("COMPLETED", 1)


def test_children_of_a_map_find_who_has_their_function():
    shop = Shop("f")
    each = {"kind": "map", "id": "all", "over": "inputs.items", "body": {"kind": "task", "handler": "g"}}
    shop.define("many", each, inputs={"items": {"type": "array"}})
    shop.come("lacks", "app@1", ["f"])
    shop.come("has", "other@1", ["g"])
    run = shop.submit("many", inputs={"items": [1] * 40})
    shop.work()

    assert shop.state_of(run) == "COMPLETED"
    later = shop.submit("many", inputs={"items": [1] * 40})
    before = shop.missing
    shop.work()
    assert (shop.state_of(later), shop.missing) == ("COMPLETED", before)


def test_a_broker_carries_what_some_lack_as_it_carries_anything():
    """Whoever takes it from there may lack it, so it comes back, and goes there again."""
    shop = Shop("f")
    shop.come("lacks", "app@1", [])
    shop.come("has", "other@1", ["f"])
    for _ in range(2):
        shop.submit("do-f")
        shop.work()
    shop.expect(inp.Offer("lacks", 0, labels={PIN_LABEL: "app@1"}), inp.Offer("has", 0, labels={PIN_LABEL: "other@1"}))
    shop.expect(inp.Offer(f"{BROKER_WORKER_PREFIX}default", 9))
    run = shop.submit("do-f")
    [number] = shop.running

    for taker in (*["lacks"] * 15, "has"):
        attempt = shop.running[number]
        shop.expect(inp.Taken(number, attempt.attempt, taker))
        assert shop.state.tasks[number].worker.id == taker
        shop.answer(number)
        shop.advance(40_000)
    assert shop.state_of(run) == "COMPLETED"


@pytest.mark.proves("I7", "I8")
@pytest.mark.parametrize("seed", range(12))
def test_every_moment_is_one_to_go_on_from(seed):
    """While codes come and go, a restored state decides what the live one does."""
    chance = random.Random(seed)
    functions = ["f", "g", "h"]
    shop = Shop(*functions)
    codes = {f"app{number}@1": chance.sample(functions, chance.randrange(3)) for number in range(4)}
    codes["all@1"] = functions
    for step in range(120):
        match chance.randrange(5):
            case 0:
                code = chance.choice(sorted(codes))
                shop.come(f"w{chance.randrange(6)}", code, codes[code], chance.randrange(4))
            case 1 if shop.state.workers:
                shop.go(chance.choice(sorted(shop.state.worker_numbers)), clean=chance.random() < 0.5)
            case 2 | 3:
                shop.submit(f"do-{chance.choice(functions)}", priority=chance.choice([2, 5]))
            case _ if shop.running:
                shop.answer(chance.choice(sorted(shop.running)))
            case _:
                shop.advance(chance.randrange(400))
        assert violations(shop.state) == []
        if step == 60:
            saved, rows = capture(shop.state), len(shop.rows)
    folded, decided = Machine(restore(*saved)), Machine(restore(*saved))
    for tick, asked, events in shop.rows[rows:]:
        folded.fold(tick, asked, events)

        assert decided.apply(tick, asked).events == events

    assert digest(folded.state) == digest(decided.state) == digest(shop.state)
    shop.come("w9", "all@1", functions, 50)
    shop.work(ms=10**9)
    assert list(shop.state.tasks.values()) == []
