"""A whole worker: the agent with real child processes, against a scripted server."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager

import msgspec
import pytest

from executors.executor_fixture import APP
from tickwork.executors.process import ProcessExecutor
from tickwork.protocol.worker_messages import ArtifactArgument, Failed, HandedBack, NodeSpec, Succeeded
from tickwork.worker.agent import Agent
from tickwork.worker.process import DEFECT, serve
from worker.scripted_server import Ids, LoopClock, Server, work

NOOP = NodeSpec(1, "task", "flow", "noop", "sha256:0", "noop", running_ms=60_000)
SAYS = NodeSpec(2, "task", "flow", "says", "sha256:0", "says")
STEPS = NodeSpec(3, "task", "flow", "steps", "sha256:0", "steps")
SLEEP = NodeSpec(4, "task", "flow", "sleep", "sha256:0", "sleep")
LENGTH = NodeSpec(5, "task", "flow", "length", "sha256:0", "length")
WAITS = NodeSpec(6, "task", "flow", "says_and_waits", "sha256:0", "says_and_waits")


def packed(**args) -> bytes:
    return msgspec.msgpack.encode(args)


@asynccontextmanager
async def working(server, **options):
    executor = ProcessExecutor(APP, processes=2)
    agent = Agent(server, [executor], clock=LoopClock(), ids=Ids(), name="w1", **options)
    running = asyncio.create_task(agent.run())
    try:
        yield agent, executor
    finally:
        running.cancel()
        await asyncio.wait([running])


@pytest.mark.proves("F29", "I35")
async def test_thousands_of_tasks_end_once_while_children_are_killed():
    server = Server()
    server.offer((work(task, spec=NOOP) for task in range(1, 5_001)), NOOP)
    async with working(server) as (_, executor):
        for _ in range(3):
            target = len(server.ends) + 500
            await server.until(lambda target=target: len(server.ends) >= target)
            pool = executor._pools["process"]
            await server.until(lambda pool=pool: any(child.ready for child in pool.children))
            os.kill(next(child for child in pool.children if child.ready).pid, signal.SIGKILL)
        await server.until(lambda: len(server.ends) == 5_000)

    assert {len(ends) for ends in server.ends.values()} == {1}
    kinds = [type(ends[0]) for ends in server.ends.values()]
    assert kinds.count(Succeeded) > 4_900 and set(kinds) <= {Succeeded, Failed, HandedBack}


async def test_lines_reach_the_server_on_their_own_call():
    server = Server()
    server.offer([work(1, spec=SAYS, args=packed(word="hello"))], SAYS)
    async with working(server):
        await server.until(lambda: "no end of line" in server.text(1, 1))

    lines = [msgspec.json.decode(line) for line in server.text(1, 1).splitlines()]
    assert {line["text"] for line in lines} == {"hello", "to stderr", "INFO mine: logged hello", "no end of line"}


@pytest.mark.proves("S001-76", "S001-92")
async def test_a_worker_pulls_what_it_has_room_for_beats_and_streams_logs_while_it_works():
    server = Server()
    server.offer([work(task, spec=WAITS, args=packed(word=f"task {task}")) for task in (1, 2)], WAITS)
    server.offer([work(task, spec=NOOP) for task in (3, 4, 5)], NOOP)
    async with working(server, beat_ms=100) as (_, executor):
        await server.until(lambda: all(f"task {task}" in server.text(task, 1) for task in (1, 2)))
        assert not server.ends, "lines came while their tasks run"
        before = len(server.calls)
        await server.until(lambda: len(server.calls) >= before + 5)
        assert not server.ends, "and so did beats"
        begun = [key for child in executor._pools["process"].children for key in child.marked()]
        assert len(begun) == 2, "two processes, two tasks at a time; the rest waits"
        server.stop(1, 1)
        await server.until(lambda: {3, 4, 5} <= {task for task, _ in server.ends})

    assert [type(server.ends[task, 1][0]) for task in (3, 4, 5)] == [Succeeded] * 3
    assert Agent(Server(), [], clock=LoopClock(), ids=Ids(), name="w2")._exchange._beat_ms == 10_000


async def test_steps_go_on_across_attempts_through_the_server(tmp_path):
    server, args = Server(), packed(path=str(tmp_path / "steps"))
    server.offer([work(1, spec=STEPS, args=args)], STEPS)
    async with working(server):
        await server.until(lambda: (1, 1) in server.ends)
        server.offer([work(1, 2, spec=STEPS, args=args, checkpoint=server.saves[-1].value)], STEPS)
        await server.until(lambda: (1, 2) in server.ends)

    assert server.ends[1, 1][0].error == "ProcessDied"
    assert msgspec.msgpack.decode(server.ends[1, 2][0].value) == "AB"
    assert (tmp_path / "steps").read_text().split() == ["a", "b"]


async def test_an_artifact_with_other_bytes_fails_the_attempt():
    server = Server()
    digest = await server.store(packed(a=1))
    server.artifacts[digest] = b"\x90"
    server.offer([work(1, spec=LENGTH, fetch=(ArtifactArgument("values", digest),))], LENGTH)
    async with working(server):
        await server.until(lambda: (1, 1) in server.ends)

    (broke,) = server.ends[1, 1]
    assert isinstance(broke, Failed) and broke.error == "Corrupt" and digest in broke.message


@pytest.mark.proves("F3", "I51")
async def test_beats_go_on_while_all_children_are_frozen():
    server = Server()
    server.offer([work(task, spec=SLEEP, args=packed(seconds=60)) for task in (1, 2)], SLEEP)
    async with working(server, beat_ms=100) as (_, executor):
        await server.until(lambda: len(server.assigned) == 2)
        for child in executor._pools["process"].children:
            os.kill(child.pid, signal.SIGSTOP)
        before = len(server.calls)
        await server.until(lambda: len(server.calls) >= before + 10)


async def test_a_worker_that_ends_hands_back_what_does_not_end_in_time():
    server = Server()
    server.offer([work(1, spec=SLEEP, args=packed(seconds=60)), work(2, spec=SLEEP, args=packed(seconds=0.2))], SLEEP)
    async with working(server) as (agent, executor):
        await server.until(lambda: len(server.assigned) == 2)
        await server.until(lambda: sum(len(child.marked()) for child in executor._pools["process"].children) == 2)
        await asyncio.wait_for(agent.drain(grace_s=0.5), 10)

    assert isinstance(server.ends[1, 1][0], HandedBack) and server.ends[1, 1][0].begun
    assert isinstance(server.ends[2, 1][0], Succeeded) and server.goodbye


@pytest.mark.parametrize(("signals", "slowest_s"), [(1, 15.0), (2, 15.0)])
async def test_a_signal_drains_and_a_second_one_ends_at_once(signals, slowest_s):
    server = Server()
    server.offer([work(1, spec=SLEEP, args=packed(seconds=1 if signals == 1 else 60))], SLEEP)
    executor = ProcessExecutor(APP, processes=1)
    agent = Agent(server, [executor], clock=LoopClock(), ids=Ids(), name="w1")
    serving = asyncio.create_task(serve(agent, grace_s=20))
    await server.until(lambda: len(server.assigned) == 1)
    await server.until(lambda: bool(executor._pools["process"].children[0].marked()))

    began = asyncio.get_running_loop().time()
    for _ in range(signals):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.05)
    await asyncio.wait_for(serving, 30)

    assert asyncio.get_running_loop().time() - began < slowest_s and server.goodbye
    assert isinstance(server.ends[1, 1][0], Succeeded if signals == 1 else HandedBack)


BROKEN = """
import asyncio
from tickwork.worker.process import DEFECT, serve

class Agent:
    async def run(self):
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(60)

asyncio.run(serve(Agent()))
"""


def test_a_worker_whose_books_are_wrong_ends_like_a_killed_one():
    ended = subprocess.run([sys.executable, "-c", BROKEN], capture_output=True, text=True, timeout=30, check=False)

    assert ended.returncode == DEFECT
    assert "an internal error" in ended.stderr and "ZeroDivisionError" in ended.stderr


async def test_a_connection_that_breaks_does_not_end_a_worker():
    told = []
    loop = asyncio.get_running_loop()

    class Waiting:
        async def run(self):
            loop.call_exception_handler({"message": "the connection is lost", "exception": ConnectionResetError()})
            told.append(1)

    await serve(Waiting())

    assert told == [1]
