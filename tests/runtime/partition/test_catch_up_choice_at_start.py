"""A server that starts after an outage: what is late can be seen before, and its policy chosen for once."""

import asyncio

import pytest

from runtime.engine_fixture import House, task
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import PARTITION
from tickwork.runtime.engine import Engine
from tickwork.runtime.partition.recovery import recover
from tickwork.runtime.views.schedules import catch_ups

HOUR = 3_600_000


async def after_an_outage(**fields):
    """Hourly, and nobody there for six hours."""
    house = House()
    house.clock.wall_offset_ms -= house.clock._now_ms() - HOUR // 3  # twenty past, however long this machine is up
    engine = await house.open()
    await house.define("flow", task("a"))
    wanted = wire.ScheduleRequest(workflow="flow", cron="0 * * * *", **fields)
    await engine.schedules.put("hourly", wanted, by="test")
    await engine.stop()
    house.clock.pass_ms(6 * HOUR)
    return house


async def reopened(house, catch_up):
    house.engine = Engine(
        store=house.make_store(house.disk), artifacts=house.artifacts, clock=house.clock, ids=house.ids, owner="n2",
        catch_up=catch_up,
    )  # fmt: skip
    await house.engine.start()
    async with asyncio.timeout(20):
        while house.engine.schedules.catch_ups():
            await asyncio.sleep(0.002)
    return house.engine


async def seen_from_outside(house, policy):
    store = house.make_store(house.disk)
    await store.open()
    try:
        state = (await recover(store, PARTITION)).machine.state
    finally:
        await store.close()
    return catch_ups(state.tenants[TENANT], house.clock.wall_ms(), policy)


@pytest.mark.parametrize(
    ("own", "policy", "ran", "skipped"),
    [("last", "all", 6, 0), ("all", "last", 1, 5), ("last", "window:2h30m", 3, 3), ("last", "", 1, 5)],
)
async def test_what_is_late_at_the_start_is_caught_up_with_as_chosen_and_as_shown_before(own, policy, ran, skipped):
    house = await after_an_outage(catch_up=own)
    (shown,) = await seen_from_outside(house, policy)
    engine = await reopened(house, policy)
    try:
        fates = engine.schedules.get("hourly").fates

        assert (fates.ran, fates.skipped) == (ran, skipped)
        assert (shown.runs, shown.passed, shown.late) == (ran, skipped, 6)
    finally:
        await engine.stop()


async def test_a_policy_that_nobody_knows_stops_the_start():
    house = House()
    with pytest.raises(Refused, match="sometimes"):
        await reopened(house, "sometimes")
