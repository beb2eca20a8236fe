"""What /metrics says of the work of an engine, read as Prometheus reads it."""

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runtime.engine_fixture import Hand, House, task
from tickwork.api.metrics import exposition
from tickwork.core.calendar.durations import instant_text
from tickwork.core.state import inputs as inp
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import Failed, Succeeded
from tickwork.runtime.metrics import SAMPLES, EngineMetrics, Histogram
from tickwork.stores.memory.store import MemoryStore


@pytest.fixture
async def house():
    house = House()
    await house.open()
    yield house
    await house.engine.stop()


async def figures(house) -> dict[tuple, float]:
    """Name and labels, sorted by name, to the value."""
    await asyncio.sleep(0.01)  # what is on its way is counted a turn later
    text = exposition([(house.engine, await house.engine.overview.status())]).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, *(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


async def within(house, of: str, seconds: str) -> tuple[float, float]:
    """How many waited no longer, and how many there were."""
    found = await figures(house)
    name = "tickwork_dispatch_wait_seconds"
    return found[f"{name}_bucket", seconds, of], found[f"{name}_count", of]


async def until_fired(house) -> None:
    house.engine.context.live.refresh()
    async with asyncio.timeout(5):
        while not house.engine.context.state.schedules.values()[0].fired:
            await asyncio.sleep(0.002)


@pytest.mark.proves("S001-125")
@pytest.mark.parametrize(("late_ms", "bound"), [(0, "0.25"), (2_000, "5.0")])
async def test_a_scheduled_task_counts_from_the_time_it_was_due(house, late_ms, bound):
    await house.define("flow", task("a"), task("b", needs=["a"]))
    worker = Hand(house)
    due_ms = house.clock.wall_ms() + 60_000
    at = instant_text(due_ms)
    await house.engine.schedules.put("once", wire.ScheduleRequest(workflow="flow", at=at), by="test")
    house.clock.pass_ms(60_001)
    await until_fired(house)
    house.clock.pass_ms(late_ms)  # nobody is there to take it
    await worker.sit_down()
    [first] = await worker.take()

    assert await within(house, "schedule", bound) == (1, 1)
    if late_ms:
        assert await within(house, "schedule", "1.0") == (0, 1), "it waited for two seconds, and it says so"
    await worker.call(Succeeded(first.task, first.attempt))
    await worker.take()
    assert await within(house, "schedule", bound) == (1, 1), "what comes behind it was not due by the schedule"
    assert await within(house, "task", "0.25") == (1, 1)


@pytest.mark.proves("S001-125")
@pytest.mark.parametrize("fields", [{"jitter": True}, {"overlap": "buffer_all"}, {"grace": "1s"}])
async def test_what_a_schedule_puts_off_itself_is_no_wait_for_dispatch(house, fields):
    await house.define("flow", task("a"))
    worker = Hand(house)
    await worker.sit_down()
    asked = wire.ScheduleRequest(workflow="flow", cron="0 0 * * *", catch_up="last", **fields)
    await house.engine.schedules.put("daily", asked, by="test")
    next_ms = house.engine.context.state.schedules.values()[0].next_ms
    house.clock.pass_ms(next_ms - house.clock.wall_ms() + 15_000)
    await until_fired(house)
    await worker.take()

    assert await within(house, "schedule", "0.25") == (1, 1)


async def test_of_a_large_tick_a_few_stand_for_all(house):
    await house.define("flow", task("a"))
    runs = tuple(wire.Submission(workflow="flow") for _ in range(10 * SAMPLES + 3))
    await house.engine.runs.submit(list(runs), by="test")
    worker = Hand(house, credit=len(runs))
    await worker.sit_down(slots=len(runs))
    await worker.take(len(runs))

    assert await within(house, "task", "+Inf") == (len(runs), len(runs))
    assert sum(house.engine.context.metrics.waits["task"].counts) == len(runs)


def test_no_more_than_a_few_of_a_tick_are_looked_at():
    class Counting:
        def __init__(self):
            self.asked = 0

        def get(self, _):
            self.asked += 1

    class State:
        tasks = Counting()

    class Order:
        task = 1

    EngineMetrics().dispatched(State, [Order()] * 10_001, 0)

    assert 0 < State.tasks.asked <= SAMPLES


def test_a_bound_belongs_to_its_bucket():
    found = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        found.add(value)

    assert (found.counts, found.sum) == ([2, 1, 1], 12.0)


@pytest.mark.proves("S001-126")
async def test_attempts_retries_and_failures_are_counted(house):
    retry = {"attempts": 3, "delay": "1ms"}
    await house.define("flow", task("a", retry=retry))
    worker = Hand(house)
    await worker.sit_down()
    good, bad = await house.submit("flow"), await house.submit("flow")
    names = {work.run_id: work for work in await worker.take(2)}
    await worker.call(Succeeded(names[good].task, 1), Failed(names[bad].task, 1, "Boom", "it broke"))
    for attempt in (2, 3):
        [work] = await worker.take()
        assert work.attempt == attempt
        await worker.call(Failed(work.task, attempt, "Boom", "it broke"))
    await house.until(bad, "failed")
    found = await figures(house)

    assert (found["tickwork_tasks_ended_total",], found["tickwork_tasks_failed_total",]) == (2, 1)
    assert (found["tickwork_attempts_again_total", "failed"], found["tickwork_dispatches_total",]) == (2, 4)
    attempts, again = found["tickwork_dispatches_total",], found["tickwork_attempts_again_total", "failed"]
    assert attempts / (attempts - again) == 2.0, "two tasks had four attempts"


@pytest.mark.proves("S001-126", "S001-129")
async def test_attempts_of_a_silent_worker_are_orphaned_and_then_lost(house):
    await house.define("flow", task("a"))
    silent, awake = Hand(house), Hand(house, "w2", credit=0)
    await silent.sit_down()
    await awake.sit_down()
    await house.submit("flow")
    await silent.take()
    beat = await figures(house)
    house.clock.pass_ms(13_000)
    await awake.call()
    found = await figures(house)
    house.clock.pass_ms(13_000)
    await awake.call()
    async with asyncio.timeout(5):
        while not (gone := await figures(house)).get(("tickwork_attempts_again_total", "lost")):
            await asyncio.sleep(0.02)

    age = "tickwork_worker_beat_age_seconds"
    assert beat[age, "1.0"] < 1 and beat["tickwork_attempts_orphaned",] == 0
    assert found[age, "0.5"] >= 13 and found["tickwork_attempts_orphaned",] == 1
    assert gone[age, "1.0"] < 10 and gone["tickwork_attempts_orphaned",] == 0


@pytest.mark.proves("S001-127", "S001-128")
async def test_ready_tasks_that_nobody_has_are_told_by_tenant_queue_and_priority(house):
    engine = house.engine
    await house.define("flow", task("a"))
    await house.define("bulk", task("a", queue="bulk", priority=2))
    await engine.context.command(inp.PutQueue("test", "bulk"))
    for _ in range(3):
        await house.submit("flow", priority=7)
    await house.submit("bulk")
    await engine.context.command(inp.PutTenant("test", "acme"))
    document = {"name": "flow", "format": 1, "nodes": [task("a", queue="bulk")]}
    await engine.workflows.publish(wire.Publication(documents=(document,)), by="test", tenant="acme")
    await engine.runs.submit([wire.Submission(workflow="flow")] * 2, by="test", tenant="acme")
    house.clock.pass_ms(4_000)
    before = await figures(house)
    worker = Hand(house)
    await worker.sit_down()
    await worker.take(3)
    after = await figures(house)

    assert before["tickwork_queue_depth", "7", "default", "default"] == 3
    assert before["tickwork_queue_depth", "2", "bulk", "default"] == 1
    assert before["tickwork_queue_depth", "5", "bulk", "acme"] == 2
    assert before["tickwork_tasks_ready",] == 6 and before["tickwork_ready_age_seconds",] >= 4
    assert after["tickwork_tasks_ready",] == 3 and after["tickwork_queue_depth", "2", "bulk", "default"] == 1
    assert ("tickwork_queue_depth", "7", "default", "default") not in after


class Watched(MemoryStore):
    """Slow to commit, and told on where it is asked for a definition."""

    pause_s, definitions = 0.0, 0

    async def commit(self, *args, **fields):
        await asyncio.sleep(Watched.pause_s)
        await super().commit(*args, **fields)

    async def read_definition(self, *args):
        Watched.definitions += 1
        return await super().read_definition(*args)


@pytest.mark.proves("S001-167")
async def test_a_slow_store_shows_in_its_commits_and_is_never_asked_for_a_workflow_that_lives(monkeypatch):
    house = House(Watched)
    await house.open()
    await house.define("flow", task("a"))
    before = await figures(house)
    monkeypatch.setattr(Watched, "pause_s", 0.06)
    worker = Hand(house)
    await worker.sit_down()
    for _ in range(5):
        run = await house.submit("flow")
        [work] = await worker.take()
        await worker.call(Succeeded(work.task, work.attempt))
        await house.until(run, "completed")
        house.engine.queries.workflow("flow")
    after = await figures(house)
    await house.engine.stop()

    slower = [found["tickwork_commit_seconds_count",] - found["tickwork_commit_seconds_bucket", "0.05"]
              for found in (before, after)]  # fmt: skip
    assert slower[0] == 0 and slower[1] >= 10
    assert Watched.definitions == 0


@pytest.mark.proves("S001-130")
async def test_broken_promises_are_counted_by_workflow(house):
    await house.define("slow", task("a"), sla={"breach": "4s", "warn": "2s"})
    await house.define("node", task("a", sla={"breach": "4s"}))
    await house.define("free", task("a"))
    for name in ("slow", "slow", "node", "free"):
        await house.submit(name)
    assert ("tickwork_sla_breaches_total", "slow") not in await figures(house)
    house.clock.pass_ms(5_000)
    house.engine.context.live.refresh()
    async with asyncio.timeout(5):
        while house.engine.context.alarms.counts.get("sla_breach", 0) < 3:
            await asyncio.sleep(0.002)
    found = await figures(house)

    assert {name: found.get(("tickwork_sla_breaches_total", name)) for name in ("slow", "node", "free")} == {
        "slow": 2, "node": 1, "free": None,
    }  # fmt: skip
