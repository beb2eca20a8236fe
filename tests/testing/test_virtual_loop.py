"""The virtual loop: asyncio as it is known, in time that nobody waits for."""

import asyncio
import time

import pytest

from tickwork.testing.seeded_random import Chance
from tickwork.testing.virtual_loop import (
    Deadlock,
    NotSimulated,
    OutOfTime,
    Process,
    SimulationError,
    Unhandled,
    VirtualLoop,
)


@pytest.fixture
def loop():
    made = VirtualLoop()
    yield made
    made.close()


def test_a_day_passes_at_once_and_to_the_nanosecond(loop):
    async def sleeper():
        await asyncio.sleep(86_400)
        await asyncio.sleep(0.000000001)

    before = time.monotonic()
    loop.run_until_complete(sleeper())

    assert loop.now_ns == 86_400_000_000_001
    assert time.monotonic() - before < 5


def test_callbacks_run_first_in_first_out_and_due_timers_after_them(loop):
    order = []
    loop.call_at(0, order.append, "timer")
    loop.call_soon(order.append, "a")
    loop.call_soon(lambda: loop.call_soon(order.append, "c"))
    loop.call_soon(order.append, "b")
    loop.advance(0)

    assert order == ["a", "b", "timer", "c"] or order == ["a", "b", "c", "timer"]
    assert order.index("a") < order.index("b") < order.index("c")


def test_advance_stops_where_it_was_told_and_leaves_the_rest(loop):
    fired = []
    for second in (1, 2, 3):
        loop.call_later(second, fired.append, second)
    loop.advance(2)

    assert fired == [1, 2]
    assert loop.time() == 2.0
    loop.advance(10)
    assert fired == [1, 2, 3]
    assert loop.time() == 12.0


def test_locks_queues_timeouts_and_groups_of_asyncio_work(loop):
    async def produce(queue, count):
        for number in range(count):
            await asyncio.sleep(1)
            await queue.put(number)

    async def story():
        queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(queue, 5))
            got = [await queue.get() for _ in range(5)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await queue.get()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 2)
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(delay)) for delay in (1, 50)], return_when=asyncio.FIRST_COMPLETED
        )
        for task in pending:
            task.cancel()
        return got, len(done), asyncio.get_running_loop().time()

    assert loop.run_until_complete(story()) == ([0, 1, 2, 3, 4], 1, 11.0)


def test_a_timer_never_fires_before_the_time_its_caller_computed(loop):
    early = []

    def look(when):
        early.extend([when] if loop.time() < when else [])

    chance = Chance(7)
    for _ in range(2_000):
        when = chance.below(10**15) / 3e8 + 0.1
        loop.call_at(when, look, when)
    loop.advance(10**7)

    assert early == []


def test_a_deadlock_names_who_waits(loop):
    async def forever():
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"world/stuck in .*forever:\d+"):
        loop.run_until_complete(loop.create_task(forever(), name="stuck"))


def test_a_condition_that_never_holds_runs_out_of_time(loop):
    async def ticking():
        while True:
            await asyncio.sleep(1)

    loop.create_task(ticking(), name="ticking")
    loop.run_until(lambda: loop.time() >= 5, 60)
    assert loop.time() == 5

    with pytest.raises(OutOfTime, match="ticking"):
        loop.run_until(lambda: False, 60)
    assert loop.time() == 65


def test_an_exception_in_a_callback_fails_the_run(loop):
    loop.call_later(1, lambda: 1 // 0)

    with pytest.raises(Unhandled) as caught:
        loop.advance(2)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_result_that_nobody_asked_for_fails_the_run(loop):
    async def breaks():
        raise ValueError("lost")

    async def story():
        asyncio.ensure_future(breaks())  # noqa: RUF006
        await asyncio.sleep(1)

    def run():
        loop.run_until_complete(story())
        loop.settle()

    with pytest.raises(Unhandled, match="lost"):
        run()


def test_spinning_without_waiting_is_an_error(loop, monkeypatch):
    monkeypatch.setattr("tickwork.testing.virtual_loop.STEPS_PER_INSTANT_MAX", 1_000)

    async def spin():
        while loop.time() < 1:
            await asyncio.sleep(0)

    with pytest.raises(SimulationError, match="loops without waiting"):
        loop.run_until_complete(spin())


@pytest.mark.parametrize("ask", [
    lambda loop: loop.run_in_executor(None, print),
    lambda loop: loop.create_connection(asyncio.Protocol, "localhost", 1),
    lambda loop: loop.subprocess_shell(asyncio.SubprocessProtocol, "true"),
    lambda loop: loop.add_signal_handler(15, print),
])  # fmt: skip
def test_the_real_world_is_not_simulated_even_where_the_error_is_swallowed(loop, ask):
    async def sly():
        try:
            await ask(loop)
        except Exception:
            await asyncio.sleep(1)

    with pytest.raises(NotSimulated, match="loop"):
        loop.run_until_complete(sly())


# ---- order


def order_of(seed):
    loop, order = VirtualLoop(None if seed is None else Chance(seed)), []
    for number in range(20):
        loop.call_later(1, order.append, number)
    for number in range(20, 30):
        loop.call_soon(order.append, number)
    loop.advance(1)
    loop.close()
    return order


def test_timers_of_one_instant_run_in_an_order_that_only_the_seed_decides():
    assert order_of(None) == [*range(20, 30), *range(20)]
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(20)}) == 20
    assert all(order_of(seed)[:10] == list(range(20, 30)) for seed in range(20))  # asyncio's promise


# ---- processes


def test_a_dead_process_never_runs_again_not_even_its_finally_blocks():
    loop, said = VirtualLoop(), []
    victim, other = Process("victim"), Process("other")

    async def work(name):
        try:
            while True:
                said.append((name, loop.time()))
                await asyncio.sleep(1)
        finally:
            said.append((name, "finally"))
            await asyncio.sleep(1)
            said.append((name, "never"))

    for process in (victim, other):
        loop.create_task(work(process.name), context=loop.context_of(process))
    loop.advance(1.5)
    loop.kill(victim)
    said.clear()
    loop.advance(2)

    assert said == [("other", 2.0), ("other", 3.0)]
    loop.settle()
    loop.close()


def test_a_stopped_process_goes_on_where_it_was(loop):
    said, process = [], Process("p")

    async def work():
        for _ in range(4):
            await asyncio.sleep(1)
            said.append(loop.time())

    loop.create_task(work(), context=loop.context_of(process))
    loop.advance(1.5)
    loop.hold(process)
    loop.advance(10)
    assert said == [1.0]
    loop.go_on(process)
    loop.advance(5)

    assert said == [1.0, 11.5, 12.5, 13.5]


def test_a_process_that_dies_while_it_stands_still_leaves_nothing_behind():
    loop, said = VirtualLoop(), []
    process = Process("p")

    async def work():
        said.append("begun")

    loop.hold(process)
    loop.create_task(work(), context=loop.context_of(process))
    loop.advance(1)
    loop.kill(process)
    loop.go_on(process)
    loop.advance(1)
    loop.settle()

    assert said == []
    loop.close()


def test_the_loop_is_fast(capsys):
    loop = VirtualLoop(Chance(1))

    async def yields():
        for _ in range(10_000):
            await asyncio.sleep(0)

    async def sleeps():
        for _ in range(5_000):
            await asyncio.sleep(0.001)

    async def many(body):
        await asyncio.gather(*(body() for _ in range(20)))

    figures = {}
    for body in (yields, sleeps):
        steps, begin = loop.steps, time.process_time()
        loop.run_until_complete(many(body))
        figures[body.__name__] = round((loop.steps - steps) / (time.process_time() - begin))
    loop.close()

    with capsys.disabled():
        print(f"\nvirtual loop, callbacks per CPU second: {figures}")
    assert figures["yields"] > 100_000 and figures["sleeps"] > 50_000  # a third and a sixth of what is usual
