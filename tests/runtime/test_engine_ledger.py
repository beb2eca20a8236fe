"""The ledger at work: in the write-behind of the engine, its status, its alarms; and zone data that changes between two
owners."""

import asyncio

import pytest

from runtime.engine_fixture import Hand, House, task
from tickwork.api.metrics import exposition
from tickwork.core.calendar.zones import Zones
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.system.zone_data import load_zones

HOUR = 3_600_000


class ZonedHouse(House):
    zones: Zones = load_zones()

    async def open(self):
        self.store = self.make_store(self.disk)
        self.engine = Engine(
            store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1", zones=self.zones
        )
        await self.engine.start()
        return self.engine

    async def later(self, ms):
        """Time passes, and everything that is due by then has happened and is stored."""
        self.clock.pass_ms(ms)
        self.engine.context.live.refresh()
        await self.rest()

    async def rest(self):
        async with asyncio.timeout(20):
            while not self.engine.context.idle or self.engine.context.live.write_behind.unwritten:
                await asyncio.sleep(0.005)


async def furnished(**more):
    house = ZonedHouse()
    house.clock.wall_offset_ms -= house.clock._now_ms()  # 2027-01-15T08:00:00Z, however long this machine is up
    engine = await house.open()
    await house.define("flow", task("a"))
    await engine.schedules.put("noon", wire.ScheduleRequest(workflow="flow", cron="0 12 * * *", **more), by="test")
    return house, engine


@pytest.mark.proves("I20", "S004-05", "S004-47", "S004-86")
async def test_the_balance_is_in_the_status_and_comes_back_after_a_crash():
    house, engine = await furnished()
    for _ in range(3):
        await house.later(24 * HOUR)
    before = await engine.overview.status()
    await house.crash()
    engine = await house.open()
    after = await engine.overview.status()
    fired = engine.context.state.tenants["default"].schedules.get("noon").last_fired_ms
    text = exposition([(engine, after)]).decode()
    await engine.stop()

    assert before.occurrences == after.occurrences == {"expected": 3, "ran": 3}
    assert (after.schedules, after.ledger_differences) == (1, 0)
    assert fired % (24 * HOUR) == 12 * HOUR
    assert 'tickwork_occurrences_total{fate="ran"} 3.0' in text
    assert "tickwork_ledger_differences_total 0.0" in text and "tickwork_schedules 1.0" in text


@pytest.mark.proves("I20")
async def test_a_difference_is_an_alarm_and_stops_nothing():
    house, engine = await furnished()
    true = engine.context.live.write_behind.ledger.observe

    def forgetful(inputs, events):
        true(inputs, [event for event in events if not isinstance(event, ev.RunScheduled)])

    engine.context.live.write_behind.ledger.observe = forgetful
    await house.later(24 * HOUR)
    engine.context.live.write_behind.ledger.observe = true
    await house.later(24 * HOUR)
    status = await engine.overview.status()
    await engine.stop()

    assert status.ledger_differences >= 1
    assert any(alarm.startswith("ledger_gap: default/noon:") for alarm in status.alarms)
    assert engine.context.alarms.counts["ledger_gap"] == status.ledger_differences
    assert status.live_runs == 2  # both days ran all the same


async def ran(engine):
    """The ids of all runs, stored or live, with repetitions."""
    stored = [row.id for row in (await engine.context.store.list_runs(RunFilter(tenant="default", limit=1_000))).rows]
    return sorted(stored + [run.id for run in engine.context.state.runs.values()])


@pytest.mark.proves("I22", "S004-01", "S004-04", "S004-06", "S004-21", "S004-25", "S004-66", "S004-67", "S004-70")
async def test_two_owners_at_once_make_one_run_of_each_occurrence():
    """The first one does not know that it has been replaced; both wake at the same time, again and again."""
    house, old = await furnished(catch_up="all")
    await house.later(24 * HOUR)
    new = await house.open()
    for _ in range(3):
        house.clock.pass_ms(24 * HOUR)
        for engine in (old, new):
            engine.context.live.refresh()
        await house.rest()
    runs = await ran(new)
    status = await new.overview.status()
    house.engine = old
    await house.crash()
    await new.stop()

    assert runs == [f"sched-noon-2027-01-{day}T12:00:00Z" for day in (15, 16, 17, 18)]
    assert old.context.live.failed is not None and old.context.live.failed.code == "fenced"
    assert (status.occurrences, status.ledger_differences) == ({"expected": 4, "ran": 4}, 0)


@pytest.mark.proves("I22", "S004-26", "S004-27", "S004-48", "S004-49")
async def test_a_crash_in_a_backfill_makes_nothing_twice():
    house, engine = await furnished()
    worker = Hand(house)
    worker.functions["a"] = lambda: None
    await worker.sit_down()
    serving = asyncio.get_running_loop().create_task(worker.serve())
    await engine.schedules.backfill(
        "noon", wire.BackfillRequest(start="2027-01-01T00:00:00Z", end="2027-01-12T00:00:00Z", concurrency=2), by="test"
    )
    async with asyncio.timeout(20):
        while engine.context.state.tenants["default"].completed < 4:
            await asyncio.sleep(0.001)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await house.crash()
    engine = await house.open()
    worker = Hand(house, session="s2")
    worker.functions["a"] = lambda: None
    await worker.sit_down()
    serving = asyncio.get_running_loop().create_task(worker.serve())
    async with asyncio.timeout(20):
        while engine.context.state.backfills:
            await asyncio.sleep(0.005)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await house.rest()
    runs = await ran(engine)
    await engine.stop()

    assert runs == [f"sched-noon-2027-01-{day:02}T12:00:00Z" for day in range(1, 12)]


def altered():
    good = load_zones()
    return Zones("2099z", sorted(good._names), lambda name: good._read("Asia/Tokyo" if "Berlin" in name else name))


@pytest.mark.proves("F18", "I21")
@pytest.mark.parametrize("crash", [True, False])
async def test_an_owner_with_other_zone_data_tells_next_times_anew(crash):
    house, engine = await furnished(timezone="Europe/Berlin")
    await house.later(24 * HOUR)
    [before] = [one.next_ms for one in engine.context.state.schedules.values()]
    await (house.crash() if crash else engine.stop())
    house.zones = altered()
    engine = await house.open()
    await house.rest()
    [after] = [one.next_ms for one in engine.context.state.schedules.values()]
    fates, noted = engine.context.state.schedules.values()[0].fates, engine.context.state.zones_version
    await engine.stop()
    seq = engine.context.live.durable_seq
    engine = await house.open()
    await house.rest()
    again = engine.context.live.durable_seq
    await engine.stop()

    assert (before // HOUR % 24, after // HOUR % 24) == (11, 3)
    assert fates[0] == 1 and noted == "2099z"  # what has happened stays as it was
    assert again == seq  # the same data again: nothing to tell


async def test_the_version_of_the_zones_is_part_of_what_is_stored():
    house, engine = await furnished()
    await engine.context.command(inp.NewZones("2050a"))
    await house.rest()
    await house.crash()
    house.zones = altered()
    engine = await house.open()
    await house.rest()
    noted = engine.context.state.zones_version
    await engine.stop()

    assert noted == "2099z"
