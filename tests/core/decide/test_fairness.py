"""Fairness between tenants: shares by weight, by the scarcest resource, and nothing to be had by hoarding."""

from collections import Counter
from itertools import pairwise

import pytest

from driver import BY, Driver, task
from tickwork.core.state import inputs as inp


class Shop:
    """Tenants with work waiting, and workers that take a given time for each task."""

    def __init__(self, weights, *, slots=10, resources=None, capacity=None, backlog=2_000, paused=()):
        self.driver = Driver(set_up=False)
        self.driver.expect(inp.PutQueue(BY, "default"), inp.PutQueue(BY, "nobody"))
        self.driver.expect(*(inp.PutTenant(BY, name, weight) for name, weight in weights.items()))
        for name in weights:
            self.driver.define("flow", task("a", resources=(resources or {}).get(name)), tenant=name)
        self.slots, self.capacity = slots, capacity or {}
        self.count = 0
        for name in weights:
            if name not in paused:
                self.submit(name, backlog)
        self.ends = {}
        self.busy = Counter()
        self.order = []

    def submit(self, tenant, count):
        first, self.count = self.count, self.count + count
        made = [inp.Submit(BY, tenant, f"r{number:06}", "flow") for number in range(first, first + count)]
        self.driver.expect(*made)

    def open(self):
        self.driver.quiet()
        self.driver.send(inp.Offer("w", self.slots, **self.capacity))
        return self

    def work(self, dispatches, durations):
        """Until so many were dispatched. Durations in ms by tenant; `busy` counts slot-milliseconds."""
        driver, seen = self.driver, len(self.order)
        self.take_note(durations)
        while len(self.order) < seen + dispatches:
            now = min(self.ends.values())
            done = sorted(number for number, end in self.ends.items() if end == now)
            for number in done:
                del self.ends[number]
            driver.send(*(inp.Succeeded(number, driver.running.pop(number).attempt) for number in done), at=now)
            self.take_note(durations)
        return Counter(self.order[seen:])

    def take_note(self, durations):
        for effect in self.driver.started[len(self.order) :]:
            tenant = self.driver.state.tasks[effect.task].run.tenant.id
            self.order.append(tenant)
            self.ends[effect.task] = max(self.driver.tick + durations[tenant], self.driver.tick + 1)
            self.busy[tenant] += durations[tenant]

    def used(self):
        """Slot-milliseconds by tenant, up to now."""
        used = Counter(self.busy)
        for number, end in self.ends.items():
            used[self.driver.state.tasks[number].run.tenant.id] -= end - self.driver.tick
        return used


def assert_shares(measured, weights, *, within=10):
    total, whole = sum(measured.values()), sum(weights.values())
    for name, weight in weights.items():
        expected = total * weight / whole
        assert abs(measured[name] - expected) <= expected * within / 100, (name, measured)


WEIGHTS = [{"a": 1, "b": 1}, {"a": 1, "b": 2, "c": 5}, {"a": 10, "b": 1}, {"a": 3, "b": 7, "c": 11}]


@pytest.mark.proves("I45")
@pytest.mark.parametrize("weights", WEIGHTS)
def test_with_equal_durations_starts_follow_the_weights(weights):
    shop = Shop(weights).open()

    assert_shares(shop.work(1_000, dict.fromkeys(weights, 50)), weights)


@pytest.mark.proves("I45")
@pytest.mark.parametrize("durations", [{"a": 20, "b": 600}, {"a": 1_000, "b": 30}, {"a": 300, "b": 700}])
@pytest.mark.parametrize("weights", [{"a": 1, "b": 1}, {"a": 1, "b": 3}])
def test_with_different_durations_the_time_on_workers_follows_the_weights(weights, durations):
    """Nobody knows beforehand how long a task takes, so one generation of tasks may be ahead; no more, ever."""
    shop = Shop(weights, slots=10, backlog=6_000).open()
    while shop.driver.tick < 20_000:
        shop.work(100, durations)
    used = shop.used()
    shares = {name: used[name] / weight for name, weight in weights.items()}
    generation = 10 * max(durations.values())

    assert abs(shares["a"] - shares["b"]) <= generation + max(shares.values()) * 7 / 100


@pytest.mark.proves("I45")
def test_the_scarcest_resource_of_a_tenant_is_what_counts():
    """`a` wants a twentieth of the cpu and a fortieth of the slots per task, `b` one slot of forty."""
    resources = {"a": {"cpu_milli": 500}, "b": {"memory_mb": 1}}
    shop = Shop({"a": 1, "b": 1}, slots=40, resources=resources, capacity={"cpu_milli": 10_000, "memory_mb": 4_000})
    counts = shop.open().work(1_000, {"a": 100, "b": 100})

    assert_shares(Counter(a=2 * counts["a"], b=counts["b"]), {"a": 1, "b": 1})


def longest_runs(order, tenant):
    """For each pair of neighbouring starts of a tenant, how many others came between."""
    places = [place for place, name in enumerate(order) if name == tenant]
    return [later - earlier - 1 for earlier, later in pairwise(places)]


@pytest.mark.proves("I45")
def test_between_two_starts_of_a_tenant_others_have_no_more_than_the_stated_bound():
    weights = {"a": 1, "b": 4, "c": 2}
    shop = Shop(weights, slots=1_000).open()
    shop.work(0, dict.fromkeys(weights, 10))
    first = shop.order[:700]

    for name, weight in weights.items():
        bound = sum(-(-other // weight) + 1 for tenant, other in weights.items() if tenant != name)
        assert max(longest_runs(first, name)) <= bound


@pytest.mark.parametrize("lanes", [1, 8])
def test_many_lanes_give_no_larger_share(lanes):
    shop = Shop({"a": 1, "b": 1}, slots=100, backlog=0)
    for at in range(lanes):
        shop.driver.define(f"more{at}", task("a", priority=at), tenant="a")
    made = [inp.Submit(BY, "a", f"m{n:03}", f"more{n % lanes}") for n in range(400)]
    shop.driver.expect(*made)
    shop.submit("b", 400)
    shop.open()
    shop.work(0, {"a": 10, "b": 10})

    assert_shares(Counter(shop.order[:100]), {"a": 1, "b": 1}, within=2)


@pytest.mark.proves("I45")
def test_a_newcomer_and_one_that_was_idle_begin_where_the_others_are():
    shop = Shop({"a": 1, "new": 1, "idle": 1}, backlog=0)
    shop.submit("idle", 1)
    shop.submit("a", 3_000)
    shop.open()
    durations = dict.fromkeys(("a", "new", "idle"), 100)
    shop.work(500, durations)
    shop.submit("new", 500)
    shop.submit("idle", 500)
    shop.driver.quiet()

    assert_shares(shop.work(600, durations), {"a": 1, "new": 1, "idle": 1})


@pytest.mark.proves("I45")
@pytest.mark.parametrize("trick", ["a task that nobody serves", "a pause", "a low limit"])
def test_a_tenant_that_was_held_back_cannot_hoard_its_share(trick):
    shop = Shop({"a": 1, "sly": 1}, backlog=0)
    driver = shop.driver
    driver.define("odd", task("a", queue="nobody"), tenant="sly")
    shop.submit("a", 6_000)
    if trick == "a task that nobody serves":
        driver.submit("odd", tenant="sly")
    elif trick == "a pause":
        driver.expect(inp.Pause(BY, "tenant", "sly", ""))
        shop.submit("sly", 3_000)
    else:
        driver.expect(inp.PutTenant(BY, "sly", limit=0))
        shop.submit("sly", 3_000)
    shop.open()
    durations = {"a": 1_000, "sly": 1_000}
    shop.work(3_000, durations)  # five minutes
    if trick == "a task that nobody serves":
        shop.submit("sly", 3_000)
    elif trick == "a pause":
        driver.expect(inp.Resume(BY, "tenant", "sly", ""))
    else:
        driver.expect(inp.PutTenant(BY, "sly"))
    shop.take_note(durations)
    counts = shop.work(1_000, durations)

    assert counts["a"] >= 450, "it is owed ten seconds of all workers, and not five minutes"


def test_one_greedy_tenant_does_not_starve_small_ones():
    shop = Shop({"greedy": 1, "small": 1, "tiny": 1}, slots=4, backlog=0)
    shop.submit("greedy", 5_000)
    shop.open()
    durations = {"greedy": 100, "small": 100, "tiny": 100}
    for _ in range(40):
        shop.submit("small", 1)
        shop.submit("tiny", 1)
        counts = shop.work(12, durations)

        assert counts["small"] >= 1 and counts["tiny"] >= 1
