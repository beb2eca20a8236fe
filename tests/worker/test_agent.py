"""The agent against a scripted server: nothing is lost, nothing runs twice, whatever happens in between."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import (
    Checkpointed,
    Failed,
    HandedBack,
    NodeSpec,
    Progressed,
    Reply,
    Succeeded,
    WorkerProfile,
)
from tickwork.worker import agent as agents
from tickwork.worker import exchange as caller
from tickwork.worker.agent import Agent
from tickwork.worker.credit import Credit
from worker.scripted_server import Ids, LoopClock, Puppet, Server, work


@asynccontextmanager
async def working(server, executor, **options):
    agent = Agent(
        server, [executor], clock=LoopClock(), ids=Ids(), name="w1", profile=WorkerProfile(host="h"), **options
    )
    running = asyncio.create_task(agent.run())
    try:
        yield agent
    finally:
        running.cancel()
        await asyncio.wait([running])


async def test_work_is_run_once_and_reported_once():
    server, executor = Server(), Puppet(at_once=True)
    server.offer(work(task) for task in range(500))

    async with working(server, executor):
        await server.until(lambda: len(server.ends) == 500)

    assert sorted(executor.seen) == [(task, 1) for task in range(500)]
    assert {len(ends) for ends in server.ends.values()} == {1}
    assert server.catalog.handlers == ("noop",)
    assert server.calls[0].profile == WorkerProfile(host="h") and server.calls[-1].profile is None


@pytest.mark.proves("S001-42", "S001-88", "S001-93", "S001-131")
async def test_one_call_waits_and_a_result_overtakes_it():
    server, executor = Server(), Puppet()
    server.offer([work(1)])

    async with working(server, executor, beat_ms=3_000):
        await server.until(lambda: bool(executor.runs) and server.calls[-1].wait_ms == 3_000)
        began = asyncio.get_running_loop().time()
        executor.end(1, 1)
        await server.until(lambda: (1, 1) in server.ends)

        assert asyncio.get_running_loop().time() - began < 2.5  # of three that the call would wait
        await server.until(lambda: server.calls[-1].wait_ms == 3_000)
    assert server.ends[1, 1] == [Succeeded(1, 1)]


async def test_the_attempt_that_comes_last_in_a_reply_shows_how_long_all_of_it_waits(monkeypatch):
    waits: list[int] = []
    monkeypatch.setattr(Credit, "waited", lambda _credit, _ms, *, behind: waits.append(behind))
    server, executor = Server(), Puppet(slots=8)
    server.offer(work(task) for task in range(8))
    async with working(server, executor):
        await server.until(lambda: len(executor.runs) == 8)
        for task in range(7):
            executor.end(task, 1)
        assert waits == []
        executor.end(7, 1)

    assert waits == [7]


async def test_work_begins_before_the_next_call_and_an_end_within_that_moment_goes_at_once(monkeypatch):
    monkeypatch.setattr(caller, "START_S", 0.3)
    server, executor = Server(), Puppet()
    async with working(server, executor):
        await server.until(lambda: bool(server.calls) and server.calls[-1].wait_ms == 10_000)
        before = len(server.calls)
        server.offer([work(1)])
        await server.until(lambda: bool(executor.runs))
        began = asyncio.get_running_loop().time()
        assert len(server.calls) == before
        executor.end(1, 1)
        await server.until(lambda: (1, 1) in server.ends)
        assert asyncio.get_running_loop().time() - began < 0.25

        await server.until(lambda: server.calls[-1].wait_ms == 10_000)
        before = len(server.calls)
        server.offer([work(2)])
        await server.until(lambda: len(server.calls) > before)
        assert executor.runs.keys() >= {(2, 1)} and server.calls[-1].wait_ms == 10_000


async def test_after_much_work_the_next_call_goes_at_once_because_more_may_be_on_its_way(monkeypatch):
    monkeypatch.setattr(caller, "START_S", 60.0)
    server, executor = Server(), Puppet(slots=100)
    async with working(server, executor):
        await server.until(lambda: bool(server.calls) and server.calls[-1].wait_ms == 10_000)
        server.offer(work(task) for task in range(caller.MANY))
        await server.until(lambda: len(executor.runs) == caller.MANY)
        server.offer(work(task) for task in range(100, 100 + caller.MANY))
        await server.until(lambda: len(executor.runs) == 2 * caller.MANY)

        assert not any(call.reports for call in server.calls)


async def test_more_of_a_burst_comes_while_the_server_has_yet_to_take_what_was_reported():
    server, executor = Server(), Puppet(slots=100)
    taken, inner = asyncio.Event(), server._handle

    async def slow(call):
        if call.reports:
            await taken.wait()
        return await inner(call)

    server._handle = slow
    async with working(server, executor):
        server.offer(work(task) for task in range(caller.MANY))
        await server.until(lambda: len(executor.runs) == caller.MANY)
        await server.until(lambda: server.calls[-1].wait_ms == 10_000)
        executor.end(0, 1)
        await server.until(lambda: bool(server.calls[-1].reports))
        for first in (100, 200, 300):
            server.offer(work(task) for task in range(first, first + caller.MANY))
            await server.until(lambda: sum(key[0] >= first for key in executor.runs) == caller.MANY)  # noqa: B023

        beside = server.calls[[bool(call.reports) for call in server.calls].index(True) :]
        assert server.ends == {} and len(beside) >= 3
        assert {call.credit for call in beside} == {beside[0].credit}  # nothing new, which would have to be decided
        taken.set()
        await server.until(lambda: (0, 1) in server.ends)


async def test_at_most_one_call_with_reports_is_under_way():
    server, executor = Server(), Puppet(slots=100)
    server.offer(work(task) for task in range(100))
    most, under_way, inner = 0, 0, server._handle

    async def slow(call):
        nonlocal most, under_way
        under_way += bool(call.reports)
        most = max(most, under_way)
        if call.reports:
            await asyncio.sleep(0.02)
        under_way -= bool(call.reports)
        return await inner(call)

    server._handle = slow
    async with working(server, executor):
        await server.until(lambda: len(executor.runs) == 100)
        for task in range(100):
            executor.end(task, 1)
            await asyncio.sleep(0.001)
        await server.until(lambda: len(server.ends) == 100)

    assert most == 1
    assert len([call for call in server.calls if call.reports]) < 40  # they gathered while one was under way


@pytest.mark.proves("F2", "I51")
async def test_while_the_server_is_away_work_goes_on_and_results_are_kept():
    server, executor = Server(), Puppet()
    server.offer([work(1), work(2)])

    async with working(server, executor):
        await server.until(lambda: len(executor.runs) == 2)
        server.away = True
        executor.end(1, 1)
        await asyncio.sleep(0.05)
        executor.end(2, 1)
        await asyncio.sleep(0.05)
        assert server.ends == {}
        server.away = False
        await server.until(lambda: len(server.ends) == 2)

    assert {len(ends) for ends in server.ends.values()} == {1}


async def test_a_lost_reply_is_asked_for_again_with_the_same_number():
    server, executor = Server(), Puppet()
    server.offer([work(1)])

    async with working(server, executor):
        await server.until(lambda: bool(executor.runs))
        server.lose_replies = 1
        executor.end(1, 1)
        await server.until(lambda: len([call for call in server.calls if call.reports]) == 2)
        server.offer([work(2)])
        await server.until(lambda: (2, 1) in executor.runs)

    first, second = [call for call in server.calls if call.reports]
    assert first == second
    assert server.ends == {(1, 1): [Succeeded(1, 1)]}


@pytest.mark.proves("I35")
async def test_work_whose_reply_was_lost_is_offered_again_and_runs_once():
    server, executor = Server(), Puppet()

    async with working(server, executor):
        await server.until(lambda: bool(server.calls) and server.calls[-1].wait_ms > 0)
        server.lose_replies = 1
        server.offer([work(1), work(2)])
        await server.until(lambda: len(executor.runs) == 2)

    assert executor.seen == [(1, 1), (2, 1)]


@pytest.mark.proves("F1")
async def test_after_a_restart_of_the_server_it_hears_everything_that_is_held():
    server, executor = Server(), Puppet()
    server.offer([work(1), work(2), work(3)])

    async with working(server, executor):
        await server.until(lambda: len(executor.runs) == 3)
        server.forgotten = True
        executor.end(1, 1)
        await server.until(lambda: (1, 1) in server.ends)

    call = next(call for call in server.calls[1:] if call.profile is not None)
    assert set(call.held) == {(1, 1), (2, 1), (3, 1)}
    assert executor.seen == [(1, 1), (2, 1), (3, 1)]


@pytest.mark.proves("I5")
async def test_a_stopped_attempt_ends_and_is_not_spoken_of_again():
    server, executor = Server(), Puppet()
    server.offer([work(1), work(2)])

    async with working(server, executor) as agent:
        await server.until(lambda: len(executor.runs) == 2)
        server.stop(1, 1)
        await server.until(lambda: executor.stopped == [(1, 1)])
        agent.report(Succeeded(1, 1))
        executor.end(2, 1)
        await server.until(lambda: (2, 1) in server.ends)

    assert (1, 1) not in server.ends and not agent.holds


@pytest.mark.proves("I35")
async def test_a_stop_that_overtakes_its_work_keeps_it_from_starting():
    server, executor = Server(), Puppet()
    async with working(server, executor) as agent:
        await server.until(lambda: bool(server.calls))
        agent.stop((7, 1))
        agent._specs[1] = NodeSpec(1, "task", "flow", "node", "sha256:0", "noop")
        agent.begin(work(7))

    assert executor.seen == []


async def test_a_checkpoint_is_acknowledged_only_when_the_server_has_it():
    server, executor = Server(), Puppet()
    server.offer([work(1)])

    async with working(server, executor) as agent:
        await server.until(lambda: bool(executor.runs))
        server.away = True
        agent.report(Checkpointed(1, 1, b"\x01"))
        agent.report(Progressed(1, 1, 1, 2))
        await asyncio.sleep(0.05)
        assert executor.kept == []
        server.away = False
        await server.until(lambda: executor.kept == [(1, 1)])

    assert server.saves == [Checkpointed(1, 1, b"\x01")] and server.others == [Progressed(1, 1, 1, 2)]


async def test_a_worker_that_is_refused_ends_and_says_why():
    server = Server()
    server.refused = "another worker is named w1"
    agent = Agent(server, [Puppet()], clock=LoopClock(), ids=Ids(), name="w1")

    with pytest.raises(Refused, match="another worker is named w1"):
        await asyncio.wait_for(agent.run(), 5)


async def test_draining_hands_back_what_has_not_begun_and_lets_the_rest_end():
    server, executor = Server(), Puppet()
    server.offer([work(1), work(2)])
    agent = Agent(server, [executor], clock=LoopClock(), ids=Ids(), name="w1")
    running = asyncio.create_task(agent.run())
    await server.until(lambda: len(executor.runs) == 2)
    executor.waiting = [(2, 1)]

    drained = asyncio.create_task(agent.drain(grace_s=5))
    await server.until(lambda: (2, 1) in server.ends)
    server.offer([work(3)])
    executor.end(1, 1)
    await asyncio.wait_for(asyncio.gather(drained, running), 5)

    assert server.ends == {(1, 1): [Succeeded(1, 1)], (2, 1): [HandedBack(2, 1)]}
    assert server.goodbye and server.calls[-1].credit == 0 and executor.closed


async def test_a_worker_that_ends_asks_again_with_pauses_where_the_owner_is_away(monkeypatch):
    monkeypatch.setattr("tickwork.worker.agent.FAREWELL_S", 0.5)
    server, executor = Server(), Puppet()
    server.offer([work(1)])
    agent = Agent(server, [executor], clock=LoopClock(), ids=Ids(), name="w1")
    running = asyncio.create_task(agent.run())
    await server.until(lambda: len(executor.runs) == 1)
    answered = server._handle

    async def away(call):
        return (
            Reply(call.seq, later=tuple((one.task, one.attempt) for one in call.reports))
            if call.reports
            else (await answered(call))
        )

    server._handle = away
    executor.waiting = [(1, 1)]
    await asyncio.wait_for(asyncio.gather(agent.drain(grace_s=1), running), 5)

    assert 2 <= sum(bool(call.reports) for call in server.calls) <= 10


async def test_a_kind_that_nobody_here_runs_fails_for_good():
    server, executor = Server(), Puppet()
    shell = NodeSpec(9, "shell", "flow", "node", "sha256:0")
    server.offer([work(1, spec=shell)], shell)

    async with working(server, executor):
        await server.until(lambda: (1, 1) in server.ends)

    (broke,) = server.ends[1, 1]
    assert isinstance(broke, Failed) and broke.permanent and "runs no shell nodes, only task" in broke.message


async def test_new_code_takes_over_what_has_not_begun():
    server, old, new = Server(), Puppet(), Puppet()
    server.offer([work(1), work(2)])

    async with working(server, old) as agent:
        await server.until(lambda: len(old.runs) == 2)
        old.waiting = [(2, 1)]
        replacing = asyncio.create_task(agent.replace(old, new))
        await server.until(lambda: (2, 1) in new.runs)
        old.end(1, 1)
        new.end(2, 1)
        await asyncio.wait_for(replacing, 20)
        await server.until(lambda: len(server.ends) == 2)
        server.offer([work(3)])
        await server.until(lambda: (3, 1) in new.runs)

    assert old.closed and old.seen == [(1, 1), (2, 1)]


class Slow(Puppet):
    """Its application takes for ever to load."""

    async def start(self, sink):
        await asyncio.Event().wait()


@pytest.mark.parametrize("executor", [Puppet(), Slow()])
async def test_a_worker_that_has_not_begun_ends_as_soon_as_it_is_asked_to(executor):
    server = Server()
    server.away = True
    agent = Agent(server, [executor], clock=LoopClock(), ids=Ids(), name="w1")
    running = asyncio.create_task(agent.run())
    await asyncio.sleep(0.1)
    await agent.drain(grace_s=30)
    await asyncio.wait_for(running, 5)

    assert executor.closed and not server.calls


async def test_a_worker_says_once_that_its_server_is_missing_and_once_that_it_is_back():
    server, said = Server(), []
    server.away = True
    agent = Agent(server, [Puppet()], clock=LoopClock(), ids=Ids(), name="w1")
    agent.on_missing = said.append
    running = asyncio.create_task(agent.run())
    await asyncio.sleep(0.3)  # some tries
    server.away = False
    await asyncio.wait_for(agent.reached.wait(), 5)
    running.cancel()
    await asyncio.wait([running])

    assert [text.partition(";")[0] for text in said] == ["the server is away", "the server responds again"]


async def test_a_worker_that_is_refused_was_never_served():
    server = Server()
    server.refused = "it is here already"
    agent = Agent(server, [Puppet()], clock=LoopClock(), ids=Ids(), name="w1")
    with pytest.raises(Refused, match="here already"):
        await asyncio.wait_for(agent.run(), 5)

    assert not agent.reached.is_set()


async def test_an_attempt_whose_end_is_durable_is_not_begun_again_and_the_next_one_is(monkeypatch):
    monkeypatch.setattr(agents, "ENDED_MAX", 2)
    server, executor = Server(), Puppet(at_once=True)
    async with working(server, executor):
        for task in range(1, 7):  # one after the other: some are remembered as those before
            server.offer([work(task, 2)])
            await server.until(lambda: (task, 2) in server.ends)  # noqa: B023
        began = list(executor.seen)
        server.offer([work(6, 2), work(6, 1), work(4, 2), work(3, 1), work(6, 3)])
        await server.until(lambda: (6, 3) in server.ends)

    assert executor.seen == [*began, (6, 3)]
