"""Random histories of runs: whatever happens in whatever order, the books stay right and all of it ends."""

from random import Random

import pytest

from driver import BY, Driver, T, task
from tickwork.core.machine import Machine
from tickwork.core.state import inputs as inp
from tickwork.core.state.events import RunMoved
from tickwork.core.state.lifecycle import BUSY, ENDED, Phase, RunState, RunTrigger

RETRY = {"attempts": 2, "delay": "2s"}


def define_all(driver):
    driver.expect(inp.PutPolicy(BY, "even", "clock.now_ms / 1000 % 2 == 0", "odd second", "pause", 1_500))
    driver.define("leaf", task("l", retry=RETRY, timeout={"queued": "40s", "running": "30s"}))
    driver.define(
        "graph",
        task("a", retry=RETRY),
        {"kind": "branch", "id": "b", "cases": [{"when": "run.id < 'r0050'", "to": ["c"]}], "default": ["d"]},
        task("c", needs=["b"]),
        {"kind": "wait", "id": "d", "duration": "5s", "needs": ["b"]},
        task("e", needs=["a", "c", "d"], policy=["even"], cache={}),
        task("undo", needs=["a"], trigger="any_failed"),
        task("tidy", needs=["e", "undo"], trigger="all_done"),
        timeout="90s",
        exits=[{"when": "events.exists(e, e.name == 'stop')", "outcome": "cancelled"}],
    )
    body = {"kind": "task", "handler": "x", "retry": RETRY}
    fields = {"inputs": {"x": {"type": "array", "default": [1, 2, 3, 4, 5]}}}
    call = {"kind": "workflow", "workflow": "leaf"}
    driver.define(
        "fans",
        {"kind": "map", "id": "m", "over": "inputs.x", "body": body, "max_parallel": 2, "tolerate": 1},
        {"kind": "map", "id": "n", "over": "inputs.x", "body": call, "max_parallel": 3},
        {"kind": "repeat", "id": "p", "until": "iteration >= 3", "max_iterations": 5, "delay": "1s", "body": body},
        {**call, "id": "w", "needs": ["p"], "retry": RETRY},
        {"kind": "event", "id": "v", "event": "go", "needs": ["m"], "timeout": "60s", "on_timeout": "continue"},
        {"kind": "approval", "id": "ok", "needs": ["m"], "timeout": "60s"},
        concurrency={"limit": 2},
        **fields,
    )


class Histories:
    def __init__(self, seed):
        self.chance = Random(seed)
        self.driver = Driver(credit=6, max_changes_per_tick=self.chance.choice([15, 60, 5_000]), max_runs_per_tick=4)
        define_all(self.driver)

    def live(self):
        return self.driver.state.runs.values()

    def new_id(self):
        self.driver.last_run += 1
        return f"r{self.driver.last_run:04}"

    def failed(self):
        return [record for record in self.driver.records.values() if record.state == RunState.FAILED]

    def some_run(self):
        live = self.live()
        return self.chance.choice(live).id if live else "nobody"

    def step(self):
        driver, chance = self.driver, self.chance
        match chance.choices(range(12), [6, 14, 4, 2, 3, 1, 2, 2, 6, 2, 1, 1])[0]:
            case 0:
                terms = inp.SubmitOptions(
                    key=chance.choice(["", "k"]), delay_ms=3_000, debounce=chance.choice(["", "d"])
                )
                name = chance.choice(["leaf", "graph", "fans"])
                driver.send(inp.Submit(BY, T, self.new_id(), name, None, terms if chance.random() < 0.3 else None))
            case 1 | 2 as which if driver.running:
                attempt = driver.running.pop(chance.choice(list(driver.running)))
                good = inp.Succeeded(attempt.task, attempt.attempt)
                driver.send(good if which == 1 else inp.Failed(attempt.task, attempt.attempt, "Oops"))
            case 3:
                driver.send(inp.Pause(BY, "run", T, self.some_run()))
            case 4:
                driver.send(inp.Resume(BY, "run", T, self.some_run()))
            case 5:
                driver.send(inp.Cancel(BY, T, self.some_run()))
            case 6:
                driver.send(inp.Ingest(BY, T, chance.choice(["go", "go", "stop"]), "", self.some_run()))
            case 7:
                lost = chance.random() < 0.5
                driver.send(inp.WorkerLost("w1", clean=chance.random() < 0.5) if lost else inp.Offer("w1", 6))
                if lost:
                    driver.running.clear()
                    driver.send(inp.Offer("w1", 6))
            case 8:
                driver.advance(chance.choice([1, 10, 500, 3_000, 20_000]))
            case 9:
                self.look_after()
            case 10 if driver.records:
                record = chance.choice(list(driver.records.values()))
                driver.send(inp.Rerun(BY, T, self.new_id(), record, chance.choice(["", "l"])))
            case 11:
                driver.send(inp.Redrive(BY, T, "mended", 2, self.failed()[:3]))
        self.answer_lookups()

    def answer_lookups(self):
        if self.driver.lookups:
            waiting, self.driver.lookups = self.driver.lookups, []
            self.driver.send(*(inp.CacheAnswered(one.task, self.chance.random() < 0.3) for one in waiting))

    def look_after(self):
        """Approve what waits, and resolve a failed run."""
        for run in self.live():
            self.driver.send(inp.Decide("bob", T, run.id, "ok", self.chance.random() < 0.8))
        if self.failed():
            record = self.chance.choice(self.failed())
            self.driver.send(inp.Resolve(BY, T, record.run_id, "again", record=record))

    def drain(self):
        driver = self.driver
        for _ in range(2_000):
            if not self.live():
                return
            driver.quiet()
            asked = [inp.Resume(BY, "run", T, run.id) for run in self.live() if run.state == RunState.PAUSED]
            asked += [inp.Decide("bob", T, run.id, "ok", True) for run in self.live()]
            asked += [inp.Succeeded(one.task, one.attempt) for one in driver.running.values()]
            driver.running.clear()
            driver.send(*asked, inp.Offer("w1", 6))
            driver.advance(1_000)
        raise AssertionError("some runs never end")


def check_books(state):
    """What every run counts about itself is what can be counted."""
    tasks = state.tasks.values()
    for run in state.runs.values():
        own = [one for one in tasks if one.run is run]
        lined_up = sum(one.queued and one.fan is not None for one in own)
        assert run.busy == sum(one.phase in BUSY for one in own) + lined_up, run.id
        assert run.waiting == sum(one.phase == Phase.WAITING for one in own), run.id
        assert run.unfinished == sum(phase not in ENDED for phase in run.phases), run.id
        assert run.failures == sum(phase == Phase.FAILED for phase in run.phases), run.id
        if run.state == RunState.WAITING and not run.wanted:
            assert not run.busy and run.waiting, run.id
        if not run.unfinished:
            # It ends with its next visit, unless it is held: paused, or failed and waiting for its redrive.
            assert run.wanted or run.state in (RunState.PAUSED, RunState.FAILED), run.id
        if run.state == RunState.PAUSED:
            assert not any(one.queued for one in own), run.id
        for one in own:
            if one.parent == 0:
                assert one.phase == run.phases[one.step.index], run.id
            if one.fan is not None and one.phase == Phase.WAITING:
                assert one.fan.running == len(one.fan.live), run.id


def picture(state):
    """The state as values that two machines can be compared by."""
    runs = [
        (run.number, run.id, run.state, bytes(run.phases), run.busy, run.waiting, run.wanted, run.deadline, run.by)
        for run in state.runs.values()
    ]
    tasks = [
        (one.number, one.phase, one.attempt, one.due, one.queued, one.order, one.losses, one.worker and one.worker.id)
        for one in state.tasks.values()
    ]
    lanes = [(key, lane.live, lane.held, lane.number) for key, lane in state.lanes.items()]
    gauges = [(tenant.id, tenant.gauge.running, tenant.fair_time, tenant.active) for tenant in state.tenants.values()]
    return runs, tasks, lanes, gauges, len(state.wheel), state.next_number, state.next_order, state.stale, state.refused


@pytest.mark.proves("I38", "I37", "S002-01")
@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_the_books_are_right_a_fold_agrees_and_everything_ends(seed):
    world = Histories(seed)
    folded = Machine(settings=world.driver.settings)
    for _ in range(120):
        before = len(world.driver.rows)
        world.step()
        for tick, asked, events in world.driver.rows[before if folded.state.tick else 0 :]:
            folded.fold(tick, asked, events)
        check_books(world.driver.state)
        assert picture(folded.state) == picture(world.driver.state)
    world.drain()

    world.driver.assert_empty()
    for record in world.driver.records.values():
        phases = {Phase(phase) for phase in record.phases}
        assert phases <= ENDED
        assert (record.state == RunState.COMPLETED) <= (not phases & {Phase.FAILED, Phase.BLOCKED, Phase.CANCELLED})
        ways = [one for one in world.driver.events(RunMoved) if one.run == record.number]
        if record.state == RunState.FAILED and ways[-1].trigger == RunTrigger.FAIL:
            assert Phase.FAILED in phases
