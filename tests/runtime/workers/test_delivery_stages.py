"""Where an attempt is on its way to its worker."""

from runtime.engine_fixture import Hand, House, task
from tickwork.runtime.partition.write_behind import ASSIGNED, PENDING, SENT


async def test_an_attempt_is_pending_until_a_reply_takes_it_and_assigned_again_for_a_new_session():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    worker = Hand(house, session="start1")
    await worker.sit_down()
    await house.submit("flow")
    [attempt] = engine.workers._write_behind.open.values()
    assert attempt.stage == PENDING

    [job] = await worker.take()
    assert (attempt.stage, attempt.sent_seq) == (SENT, worker.seq)
    engine.workers._forget_sent("w1")
    assert (attempt.stage, attempt.sent_seq) == (ASSIGNED, 0)
    await engine.stop()
    assert job.task


async def test_an_attempt_whose_worker_is_gone_is_no_longer_pending():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    worker = Hand(house, session="start1")
    await worker.sit_down()
    del engine.workers.registered["w1"]
    await house.submit("flow")
    [attempt] = engine.workers._write_behind.open.values()
    await engine.stop()

    assert attempt.stage == ASSIGNED
