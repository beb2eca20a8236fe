"""A worker that died and is back under its name before anybody missed it."""

import asyncio
from functools import partial

import pytest

from runtime.engine_fixture import Hand, House, task
from tickwork.protocol.worker_messages import Call, WorkerProfile


@pytest.mark.proves("I5")
async def test_what_a_dead_worker_had_begun_does_not_begin_again_under_the_same_attempt():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    await house.submit("flow")
    dead = Hand(house, session="start1")
    await dead.sit_down()
    [first] = await dead.take()
    engine.workers.connection_closed(dead.peer)
    again = Hand(house, session="start2")
    again.peer = "w1:2"
    await again.sit_down()
    [second] = await again.take()
    await engine.stop()

    assert (first.attempt, second.attempt) == (1, 2)


@pytest.mark.proves("I5")
async def test_what_ran_when_server_and_worker_died_together_begins_again_as_a_new_attempt():
    house = House()
    await house.open()
    await house.define("flow", task("a"))
    run = await house.submit("flow")
    attempts = []
    for start in range(1, 20):  # each start of the worker takes the server down with it
        worker = Hand(house, session=f"start{start}")
        await worker.sit_down()
        if (await house.engine.queries.run(run)).state == "failed":
            break
        [work] = await worker.take()
        attempts.append(work.attempt)
        await house.crash()
        await house.open()
    shown = await house.engine.queries.run(run)
    await house.engine.stop()

    allowed = house.engine.context.state.settings.loss_allowance
    assert attempts == list(range(1, allowed + 2))
    assert [attempt.state for attempt in shown.tasks[0].attempts] == ["lost"] * (allowed + 1)
    assert shown.state == "failed" and f"{allowed + 1} workers were lost" in shown.error


async def test_a_worker_that_outlives_its_server_keeps_what_it_runs():
    house = House()
    await house.open()
    await house.define("flow", task("a"))
    run = await house.submit("flow")
    worker = Hand(house, session="start1")
    await worker.sit_down()
    [work] = await worker.take()
    await house.crash()
    await house.open()
    reply = await worker.sit_down()
    assert not reply.stop and not reply.work
    worker.functions["a"] = lambda: 1
    await worker.call(worker.do(work))
    shown = await house.until(run, "completed")
    await house.engine.stop()

    assert [attempt.attempt for attempt in shown.tasks[0].attempts] == [1]


async def test_a_late_call_of_a_dead_worker_does_not_end_the_one_that_replaced_it():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    await house.submit("flow")
    dead = Hand(house, session="start1")
    await dead.sit_down()
    await dead.take()
    worker = engine.workers.registered["w1"]
    engine.workers.connection_closed(dead.peer)
    again = Hand(house, session="start2")
    again.peer = "w1:2"
    await again.sit_down()
    [second] = await again.take()
    call = Call("w1", "start1", worker.session.seq + 1, 5, profile=WorkerProfile(), held=())
    late = await worker.session.exchange(call, partial(engine.workers._handle, worker), peer="", now_ms=0)
    reply = await again.sit_down()
    await engine.stop()

    assert late.resync and second.attempt == 2
    assert not reply.stop and not reply.work


async def test_a_worker_that_is_back_at_the_node_that_stood_for_it_is_served_at_once():
    house = House()
    engine = await house.open()
    await house.define("flow", task("a"))
    await house.submit("flow")
    dead = Hand(house, session="start1@1.node1")
    await dead.call(profile=WorkerProfile(), held=(), via="node1")
    async with asyncio.timeout(2):
        while not dead.held:
            await dead.call(wait_ms=20, via="node1")
    again = Hand(house, session="start2@1.node1")
    reply = await again.call(profile=WorkerProfile(), held=(), via="node1")
    assert not reply.refused
    stranger = Hand(house, session="start3@1.node2")
    refused = await stranger.call(profile=WorkerProfile(), held=(), via="node2")
    async with asyncio.timeout(2):
        while not again.held:
            await again.call(wait_ms=20, via="node1")
    await engine.stop()

    assert "is here already" in refused.refused
    assert [attempt for _, attempt in again.held] == [2]


@pytest.mark.parametrize("name", ["w1", "another"])
async def test_a_task_that_is_not_to_run_twice_fails_where_server_and_worker_died(name):
    house = House()
    await house.open()
    await house.define("flow", task("a", on_worker_loss="fail"))
    run = await house.submit("flow")
    worker = Hand(house, session="start1")
    await worker.sit_down()
    await worker.take()
    await house.crash()
    await house.open()
    if name != "w1":
        house.clock.pass_ms(26_000)
    again = Hand(house, name, session="start2")
    await again.sit_down()
    shown = await house.until(run, "failed")
    why = await house.engine.queries.why(run)
    await house.engine.stop()

    assert [attempt.state for attempt in shown.tasks[0].attempts] == ["lost"]
    assert "on_worker_loss is 'fail'" in shown.error and not again.held
    assert "on_worker_loss is 'fail'" in str(why)
