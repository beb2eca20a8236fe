"""A next owner that read ahead begins where the last one ended, with the rows that it left."""

import asyncio

import pytest

from runtime.engine_fixture import House
from tickwork.core.calendar.zones import UTC_ONLY
from tickwork.core.snapshot.snapshot import digest
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.runtime.partition.recovery import at_watermark, recover
from tickwork.stores.memory.store import MemoryStore


def next_owner(house: House) -> Engine:
    store = MemoryStore(house.disk)
    return Engine(store=store, artifacts=house.artifacts, clock=house.clock, ids=house.ids, owner="n2")


@pytest.mark.parametrize("stays", [False, True])  # whether the last owner writes rows after all
async def test_who_read_ahead_goes_on_as_who_reads_afterwards(stays):
    house = House()
    first = await house.open()
    await house.define("flow", {"kind": "task", "id": "only", "handler": "do"})
    await house.submit("flow", id="before")
    await first.context.live.pause_flushing()
    left = first.context.partition.writer.watermark
    second = next_owner(house)
    await second.context.store.open()
    await second.read_ahead()
    await house.submit("flow", id="after")
    if stays:
        first.context.live.resume_flushing()
    await first.stop()
    assert (first.context.partition.writer.watermark > left) is stays

    await second.start()
    try:
        assert sorted(run.id for run in second.context.state.runs.values()) == ["after", "before"]
        assert second.context.partition.writer.watermark == (
            first.context.partition.writer.watermark if stays else left
        )
        again = await recover(second.context.store, second.context.number)
        assert digest(again.machine.state) == digest(second.context.state)
        assert second.context.partition.write_behind.unwritten is not stays
    finally:
        await second.stop()
    await second.context.store.open()
    rows = await recover(second.context.store, second.context.number)
    assert digest(rows.machine.state) == digest(second.context.state)


@pytest.mark.proves("I6")
async def test_a_large_partition_is_taken_up_in_steps_between_which_others_go_on():
    """In one piece it would keep the node from renewing its leases for as long as it takes."""
    house = House()
    first = await house.open()
    await house.define("flow", {"kind": "task", "id": "only", "handler": "do"})
    await first.runs.submit([wire.Submission(workflow="flow")] * 3_500, by="test")
    await first.stop()
    store = MemoryStore(house.disk)
    await store.open()
    loaded = await store.load(first.context.number)
    assert len(loaded.live_runs) == 3_500
    restoring = asyncio.ensure_future(at_watermark(loaded, UTC_ONLY))
    turns = 0
    while not restoring.done():
        await asyncio.sleep(0)
        turns += 1

    assert turns >= 2 * 3_500 // 1_000
    assert digest(restoring.result().state) == digest(first.context.state)
