"""Admission against an oracle that sorts everything each time, over random histories."""

import random

import pytest

from core.decide.admission_oracle import Watched
from driver import BY, task
from tickwork.core.machine import Machine
from tickwork.core.state import inputs as inp

TENANTS = ("acme", "bolt", "core")
QUEUES = ("default", "slow")
WORKFLOWS = {
    "plain": [task("a")],
    "slow": [task("a", queue="slow", retry={"attempts": 3, "delay_ms": 50})],
    "gpu": [task("a", labels={"gpu": "true"}, resources={"gpu": 1})],
    "wide": [task("a", resources={"slots": 2, "cpu_milli": 500}), task("b"), task("c", queue="slow")],
    "timed": [task("a", timeout={"queued_ms": 300, "running_ms": 400}), task("b", needs=["a"], priority=8)],
}


class Traffic:
    """Random but repeatable: one seed, one history."""

    def __init__(self, seed, **settings):
        self.dice, self.windows = random.Random(seed), random.Random(f"windows of {seed}")
        self.driver = Watched(set_up=False, ageing_ms=self.dice.choice([20, 1_000, 60_000]), **settings)
        self.driver.send(*(inp.PutTenant(BY, name) for name in TENANTS), *(inp.PutQueue(BY, name) for name in QUEUES))
        for tenant in TENANTS:
            for name, nodes in WORKFLOWS.items():
                self.driver.define(name, *nodes, tenant=tenant)
        self.runs = []
        self.deeds = [self.submit] * 8 + [self.report] * 8 + [self.offer] * 2
        self.deeds += [self.lose, self.limit_tenant, self.limit_queue, self.limit_label, self.pause, self.end_run]

    def go(self, steps):
        driver = self.driver
        for _ in range(steps):
            asked = [item for _ in range(self.dice.randint(0, 4)) for item in self.dice.choice(self.deeds)()]
            driver.send(*asked, at=driver.tick + self.dice.choice([1, 1, 2, 10, 120]))
            if self.dice.random() < 0.8:
                driver.quiet()
            due = driver.machine.next_tick()
            if due is not None and self.dice.random() < 0.5:
                driver.send(at=due)

    def submit(self):
        made = []
        for _ in range(self.dice.choice([1, 1, 3, 10])):
            tenant, workflow = self.dice.choice(TENANTS), self.dice.choice(list(WORKFLOWS))
            run_id = f"r{len(self.runs):05}"
            self.runs.append((tenant, run_id))
            priority = self.dice.choice([None, None, 0, 5, 9])
            terms = inp.SubmitOptions(priority=priority) if priority is not None else None
            made.append(inp.Submit(BY, tenant, run_id, workflow, None, terms))
        return made

    def report(self):
        running = sorted(self.driver.running.items())
        chosen = self.dice.sample(running, min(len(running), self.dice.choice([1, 2, 8])))
        for number, _ in chosen:
            del self.driver.running[number]
        kinds = [inp.Succeeded, inp.Succeeded, inp.Succeeded, self.failed, inp.HandedBack]
        return [self.dice.choice(kinds)(number, effect.attempt) for number, effect in chosen]

    @staticmethod
    def failed(number, attempt):
        return inp.Failed(number, attempt, "ValueError")

    def offer(self):
        dice = self.dice
        labels = {"gpu": "true"} if dice.random() < 0.5 else {}
        more = {"cpu_milli": dice.choice([0, 600, 2_000]), "gpu": dice.choice([1, 2]) if labels else 0}
        queues = dice.choice([("default",), ("slow",), QUEUES])
        slots = dice.choice([0, 0, 1, 3])
        name = f"w{dice.randint(1, 5)}"
        return [inp.Offer(name, dice.choice([0, 1, 2, 5, 20]), queues, labels, slots, **more)]

    def lose(self):
        return [inp.WorkerLost(f"w{self.dice.randint(1, 5)}", self.dice.random() < 0.3)]

    def limits(self):
        limit = self.dice.choice([None, None, 0, 1, 3])
        if self.dice.random() < 0.5:
            return {"limit": limit}
        rate = {"rate_starts": self.dice.choice([1, 3]), "rate_ms": self.dice.choice([50, 1_000])}
        burst = self.dice.choice([None, 1, 4])
        if self.windows.random() < 0.3:
            return {"limit": limit, "window": "sliding", **rate}
        return {"limit": limit, "burst": burst, **rate}

    def limit_tenant(self):
        return [inp.PutTenant(BY, self.dice.choice(TENANTS), self.dice.choice([1, 2, 7]), **self.limits())]

    def limit_queue(self):
        return [inp.PutQueue(BY, self.dice.choice(QUEUES), **self.limits())]

    def limit_label(self):
        return [inp.PutLabelLimit(BY, "gpu", "true", self.dice.choice([None, 0, 1, 2]))]

    def pause(self):
        tenant, deed = self.dice.choice(TENANTS), self.dice.choice([inp.Pause, inp.Resume, inp.Resume])
        scope = self.dice.choice(["queue", "tenant", "workflow", "run"])
        names = {"queue": QUEUES, "tenant": (tenant,), "workflow": list(WORKFLOWS)}
        if scope == "run":
            tenant, name = self.dice.choice(self.runs or [("acme", "none")])
        else:
            name = self.dice.choice(names[scope])
        return [deed(BY, scope, tenant, name)]

    def end_run(self):
        return [inp.Cancel(BY, *self.dice.choice(self.runs))] if self.runs else []


@pytest.mark.proves("S001-08", "S001-09")
@pytest.mark.parametrize("seed", range(40))
def test_admission_starts_what_the_oracle_would_start_in_the_same_order(seed):
    Traffic(seed).go(60)


@pytest.mark.parametrize("seed", range(40, 55))
def test_a_full_tick_changes_neither_order_nor_limits(seed):
    Traffic(seed, max_changes_per_tick=9, max_runs_per_tick=3).go(50)


@pytest.mark.parametrize("seed", range(55, 65))
def test_load_shedding_holds_lanes_like_any_other_limit(seed):
    Traffic(seed, shed_lag_ms=30, shed_below=5).go(60)


@pytest.mark.parametrize("settings", [{}, {"max_changes_per_tick": 9}, {"shed_lag_ms": 30, "shed_below": 5}])
@pytest.mark.parametrize("seed", [*range(65, 71), 5024, 5045, 5051, 5053])
def test_a_machine_rebuilt_from_its_events_decides_as_the_live_one(seed, settings):
    traffic = Traffic(seed, **settings)
    traffic.go(40)
    live = traffic.driver
    rebuilt = Machine(settings=live.settings)
    for tick, asked, events in live.rows:
        rebuilt.fold(tick, asked, events)
    known = len(live.rows)
    traffic.go(20)

    for tick, asked, events in live.rows[known:]:
        assert rebuilt.apply(tick, asked).events == events
