"""A next owner that read ahead begins where the last one ended, with the rows that it left."""

import pytest
from house import House

from tickwork.core.snapshot import digest
from tickwork.runtime.engine import Engine
from tickwork.runtime.recovery import recover
from tickwork.stores.memory import MemoryStore


def next_owner(house: House) -> Engine:
    store = MemoryStore(house.disk)
    return Engine(store=store, artifacts=house.artifacts, clock=house.clock, ids=house.ids, owner="n2")


@pytest.mark.parametrize("stays", [False, True])  # whether the last owner writes rows after all
async def test_who_read_ahead_goes_on_as_who_reads_afterwards(stays):
    house = House()
    first = await house.open()
    await house.define("flow", {"kind": "task", "id": "only", "handler": "do"})
    await house.submit("flow", id="before")
    await first.leave_rows()
    left = first.partition.watermark
    second = next_owner(house)
    await second._store.open()
    await second.read_ahead()
    await house.submit("flow", id="after")
    if stays:
        first.write_rows()
    await first.stop()
    assert (first.partition.watermark > left) is stays

    await second.start()
    try:
        assert sorted(run.id for run in second.state.runs.values()) == ["after", "before"]
        assert second.partition.watermark == (first.partition.watermark if stays else left)
        again = await recover(second._store, second.number)
        assert digest(again.machine.state) == digest(second.state)
        assert second.partition.books.unwritten is not stays
    finally:
        await second.stop()
    await second._store.open()
    rows = await recover(second._store, second.number)
    assert digest(rows.machine.state) == digest(second.state)
