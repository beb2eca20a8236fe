"""A worker that outlives its server, and another store at the same address: nothing of one is taken for the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from runtime.engine_fixture import Hand, House, task
from tickwork.core.base.values import pack
from tickwork.protocol.worker_messages import (
    Call,
    Checkpointed,
    Continued,
    Failed,
    HandedBack,
    Progressed,
    Reply,
    StepsRecorded,
    Succeeded,
    Suspended,
    WorkerProfile,
)
from tickwork.runtime.local_link import LocalLink
from tickwork.worker.agent import Agent
from worker.scripted_server import Puppet


class Address(LocalLink):
    """One address, and whichever server answers there."""

    def __init__(self, engine) -> None:
        self._engine = engine

    def leads_to(self, engine) -> None:
        self._engine = engine


@contextlib.asynccontextmanager
async def working(link: Address, house: House) -> AsyncIterator[tuple[Agent, Puppet, list[str]]]:
    said: list[str] = []
    puppet = Puppet()
    agent = Agent(link, [puppet], clock=house.clock, ids=house.ids, name="w1", beat_ms=50)
    agent.on_missing = said.append
    job = asyncio.create_task(agent.run())
    try:
        yield agent, puppet, said
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)


async def until(holds) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.fixture
async def stores() -> AsyncIterator[tuple[House, House]]:
    """Two stores in which everything has the same numbers."""
    houses = House(), House()
    for house in houses:
        await house.open()
        await house.define("w", task("a", "noop"), output="nodes.a")
    yield houses
    for house in houses:
        await house.crash()


async def test_a_result_of_one_store_is_not_accepted_by_another_that_answers_at_its_address(stores):
    first, second = stores
    link = Address(first.engine)
    async with working(link, first) as (agent, puppet, said):
        await first.submit("w", id="of-the-first")
        await until(lambda: puppet.runs)
        [key] = puppet.runs
        await second.submit("w", id="of-the-second")
        link.leads_to(second.engine)
        await until(lambda: key in puppet.stopped)
        puppet.sink.report(Succeeded(*key, pack("of the first")))  # it ends although it was told to stop
        await until(lambda: len(puppet.seen) == 2)
        [(other, later)] = puppet.runs.items()

        assert later.run_id == "of-the-second"
        assert other == (key[0], 2)  # its first attempt has the numbers of one that may still run: it went back
        puppet.sink.report(Succeeded(*other, pack("of the second")))
        run = await second.until("of-the-second", "completed")
        assert run.output == "of the second"
        assert agent.store_id == second.engine.context.store_id != first.engine.context.store_id
        assert any("another store" in line and "1 attempts" in line for line in said)


async def test_a_result_that_waits_for_its_server_is_dropped_where_another_store_answers(stores):
    first, second = stores
    link = Address(first.engine)
    async with working(link, first) as (agent, puppet, said):
        await first.submit("w", id="of-the-first")
        await until(lambda: puppet.runs)
        [key] = puppet.runs
        await second.submit("w", id="of-the-second")
        agent._exchange._pending.append(
            Succeeded(*key, pack("of the first"))
        )  # its report was on the way when the server died
        link.leads_to(second.engine)
        await until(lambda: len(puppet.seen) == 2)
        run = await second.engine.queries.run("of-the-second")

        assert (run.state, run.output) == ("active", None)
        assert any("1 of them with a result" in line for line in said)
        # Back at its own store it gets its attempt again, and that one's result counts.
        link.leads_to(first.engine)
        await until(lambda: len(puppet.seen) == 3)
        puppet.sink.report(Succeeded(*puppet.seen[-1], pack("again")))
        assert (await first.until("of-the-first", "completed")).output == "again"


async def test_log_lines_of_one_store_are_not_written_into_another(stores):
    first, second = stores
    link = Address(first.engine)
    async with working(link, first) as (agent, puppet, _):
        await first.submit("w", id="of-the-first")
        await until(lambda: puppet.runs)
        [key] = puppet.runs
        await second.submit("w", id="of-the-second")
        puppet.sink.log(*key, "stdout", "before", 1)
        await agent.logs.flush()
        puppet.sink.log(*key, "stdout", "on its way", 2)
        link.leads_to(second.engine)
        await until(lambda: key in puppet.stopped)
        puppet.sink.log(*key, "stdout", "after", 3)
        await agent.logs.flush()
        await until(lambda: len(puppet.seen) == 2)

        assert [lines async for _, lines in first.engine.context.logs.read(*key)] == [[(1, "stdout", "before")]]
        assert [lines async for _, lines in second.engine.context.logs.read(*key)] == []


async def test_a_call_for_another_store_is_answered_with_the_identity_of_this_one(stores):
    _, house = stores
    hand = Hand(house)
    reply = await hand.sit_down()
    await house.submit("w")
    [work] = await hand.take()
    foreign = await house.engine.workers.exchange(
        Call("w1", "s1", hand.seq + 1, 1, 0, (Succeeded(work.task, work.attempt),), store="another"), hand.peer
    )

    assert reply.store == house.engine.context.store_id
    assert (foreign.resync, foreign.store) == (True, house.engine.context.store_id)
    assert house.engine.context.state.tasks.get(work.task).attempt == work.attempt  # it goes on


async def test_a_store_keeps_its_identity_over_restarts(stores):
    house, _ = stores
    before = house.engine.context.store_id
    await house.crash()
    await house.open()

    assert house.engine.context.store_id == before != ""


@pytest.mark.parametrize(
    "report", [lambda pair: Succeeded(*pair, pack("forged")), lambda pair: Failed(*pair, "Forged", permanent=True),
               lambda pair: Checkpointed(*pair, pack("forged")), lambda pair: HandedBack(*pair),
               lambda pair: StepsRecorded(*pair, ()), lambda pair: Suspended(*pair),
               lambda pair: Continued(*pair, pack({}))],
    ids=["done", "broke", "saved", "returned", "recorded", "suspended", "continued"],
)  # fmt: skip
async def test_a_report_of_another_worker_than_the_holder_is_stale_and_names_its_sender(stores, report):
    house, _ = stores
    holder, stranger = Hand(house), Hand(house, "stranger", session="s2", credit=0)
    await holder.sit_down()
    await stranger.sit_down()
    run_id = await house.submit("w")
    [work] = await holder.take()
    pair = (work.task, work.attempt)
    reply: Reply = await stranger.call(report(pair))

    assert reply.fenced == (pair,)
    assert house.engine.context.state.tasks.get(work.task).worker.id == "w1"
    await holder.call(Succeeded(*pair, pack("true")))
    run = await house.until(run_id, "completed")
    assert (run.output, run.tasks[0].attempts[0].worker) == ("true", "w1")
    story = await house.engine.queries.why(run_id)
    assert story.stale == 1
    assert any(entry.what == "stale" and "stranger" in entry.detail for entry in story.entries)


async def test_what_another_worker_says_about_an_attempt_does_not_get_into_its_record(stores):
    house, _ = stores
    holder, stranger = Hand(house), Hand(house, "stranger", session="s2", credit=0)
    await holder.sit_down()
    await stranger.call(profile=WorkerProfile(), held=())
    run_id = await house.submit("w")
    [work] = await holder.take()
    forged = Failed(work.task, work.attempt, "Forged", exit_code=9, started_ms=5, ended_ms=6)
    await stranger.call(forged, Progressed(work.task, work.attempt, 9, 9, "forged"))
    assert "forged" not in str((await house.engine.queries.run(run_id)).tasks)
    await holder.call(Succeeded(work.task, work.attempt, pack("true"), 1_000, 2_000))
    [attempt] = (await house.until(run_id, "completed")).tasks[0].attempts

    assert (attempt.exit_code, attempt.error) == (None, "")
