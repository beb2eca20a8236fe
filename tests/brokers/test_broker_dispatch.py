"""Work that a broker carries: through engine, keeper, lane, worker and back, and through what a broker does to it."""

import asyncio
import itertools
from functools import partial

import msgspec
import pytest

from brokers.broker_fixture import Line
from conformance.broker_suite import until
from runtime.engine_fixture import Hand, task
from servers_brokers import nats_server  # noqa: F401
from tickwork.brokers.memory import MemoryBroker, MemoryBrokerState
from tickwork.brokers.nats import NatsBroker
from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import BrokerOptions, EnvelopeCodec
from tickwork.protocol.worker_messages import Taken, WorkerProfile
from worker.scripted_server import Puppet

NAMES = itertools.count(1)
SEAL = EnvelopeCodec("token")
OPTIONS = BrokerOptions(codec=SEAL, redeliver_ms=5_000)


@pytest.fixture
def broker():
    return MemoryBrokerState()


@pytest.fixture
def in_memory(broker):
    return lambda: MemoryBroker(broker, OPTIONS)


@pytest.fixture
def on_nats(nats_server):  # noqa: F811
    url = nats_server.url(f"work{next(NAMES)}")
    return lambda redeliver_ms=5_000: NatsBroker(url, BrokerOptions(codec=SEAL, redeliver_ms=redeliver_ms))


@pytest.fixture(params=["in_memory", "on_nats"])
def make(request):
    return request.getfixturevalue(request.param)


async def test_work_goes_over_the_broker_and_its_result_comes_back(make):
    async with Line(make) as line:
        executor, _, receiver, _ = await line.worker()
        runs = await line.submit(50)
        await line.completed(runs)

        assert len(executor.seen) == len(set(executor.seen)) == 50 <= receiver.taken
        await line.until(lambda: line.keeper.untaken == 0)
        [attempt] = (await line.house.engine.queries.run(runs[0])).tasks[0].attempts
        assert attempt.worker == "w1"


@pytest.mark.proves("I34", "I35")
async def test_two_workers_share_it_and_nothing_runs_twice(make):
    async with Line(make) as line:
        one, two = [(await line.worker(name))[0] for name in ("w1", "w2")]
        await line.completed(await line.submit(60))

        assert len(one.seen) + len(two.seen) == len({*one.seen, *two.seen}) == 60


@pytest.mark.proves("P14", "I34")
async def test_the_broker_does_not_wait_for_the_end_of_a_long_task(make):
    async with Line(make) as line:
        slow, *_ = await line.worker(executor=Puppet(slots=2))
        [run] = await line.submit()
        await line.until(lambda: bool(slow.runs))

        async def nothing_waits():
            return (await line.lane.depth()).waiting == 0

        await until(nothing_waits)  # the broker has forgotten it while it runs, so it cannot come again
        assert len(slow.runs) == 1
        slow.end(*slow.seen[0])
        await line.completed([run])


@pytest.mark.proves("F20", "I29")
async def test_copies_and_late_messages_change_nothing(in_memory, broker):
    async with Line(in_memory) as line:
        runs = await line.submit(3)
        await line.until(lambda: len(broker.messages) == 3)
        copies = [(message.address, message.priority, message.data) for message in broker.messages.values()]
        executor, _, receiver, _ = await line.worker()
        await line.completed(runs)
        for copy in copies:
            broker.put(*copy)

        await line.until(lambda: not broker.messages and receiver.dropped == 3)
        assert len(executor.seen) == 3


@pytest.mark.proves("F20", "P13", "I28")
async def test_what_a_broker_forgot_is_published_again_by_the_look_of_it(in_memory, broker):
    async with Line(in_memory, untaken_ms=800) as line:
        runs = await line.submit(5)
        await line.until(lambda: len(broker.messages) == 5 and line.keeper.depth is not None)
        broker.wipe()
        executor, *_ = await line.worker()
        await line.completed(runs)

        assert len(executor.seen) == 5


@pytest.mark.proves("F20", "P13")
async def test_what_nobody_took_in_time_comes_again_under_a_new_number(in_memory, broker):
    async with Line(in_memory, untaken_ms=200) as line:
        [run] = await line.submit()
        await line.until(lambda: line.keeper.returned > 0)
        executor, _, receiver, _ = await line.worker()
        await line.completed([run])

        [(_, attempt)] = executor.seen
        assert attempt > 1 and receiver.dropped >= 1, "the old message is fenced and dropped"
        assert not broker.dead


@pytest.mark.proves("F19", "I52", "S001-165")
async def test_while_the_broker_is_away_the_store_is_the_buffer_and_it_drains_at_a_bounded_rate(in_memory, broker):
    async with Line(in_memory, drain_per_s=100, credit=60) as line:
        broker.up = False
        runs = await line.submit(100)
        await line.until(lambda: line.keeper.untaken == 60)
        assert line.alarms == ["lane_away"]
        executor, *_ = await line.worker()
        broker.up = True
        began = asyncio.get_running_loop().time()
        await line.completed(runs)

        assert asyncio.get_running_loop().time() - began > 0.5, "60 at 100 a second"
        assert line.alarms == ["lane_away", "lane_back"] and len(set(executor.seen)) == 100


@pytest.mark.proves("F2", "I28")
async def test_after_a_crash_of_the_server_what_is_untaken_is_published_again(in_memory, broker):
    async with Line(in_memory) as line:
        runs = await line.submit(5)
        await line.until(lambda: len(broker.messages) == 5)
        broker.wipe()
        await line.restart()
        executor, *_ = await line.worker()
        await line.completed(runs)

        assert sorted(attempt for _, attempt in executor.seen) == [1] * 5


@pytest.mark.proves("I35")
async def test_what_was_cancelled_on_the_lane_starts_nothing(in_memory, broker):
    async with Line(in_memory) as line:
        [run] = await line.submit()
        await line.until(lambda: len(broker.messages) == 1)
        await line.house.engine.runs.cancel(run, by="test")
        executor, _, receiver, _ = await line.worker()
        await line.until(lambda: receiver.dropped == 1 and not broker.messages)

        assert not executor.seen and line.keeper.untaken == 0


class Gated(MemoryBroker):
    """Nothing is received before the test says so."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.gate = asyncio.Event()

    async def receive(self, *args, **options):
        await self.gate.wait()
        return await super().receive(*args, **options)


@pytest.mark.proves("I34")
async def test_nothing_is_accepted_or_started_before_the_taking_is_durable(in_memory, broker):
    async with Line(in_memory) as line:
        lane = Gated(broker, OPTIONS)
        executor, agent, receiver, _ = await line.worker(lane=lane)
        await agent.reached.wait()
        [run] = await line.submit()
        await line.until(lambda: len(broker.messages) == 1 and agent.room > 0)
        store, commit, gate = line.house.store, line.house.store.commit, asyncio.Event()

        async def slow(*args, **options):
            await gate.wait()
            await commit(*args, **options)

        store.commit = slow
        lane.gate.set()
        await line.until(lambda: line.house.engine.context.state.workers[1].tasks != {})  # decided, and not durable
        await asyncio.sleep(0.05)
        assert len(broker.messages) == 1 and not executor.seen and receiver.received == 1

        gate.set()
        await line.completed([run])
        await line.until(lambda: not broker.messages)


@pytest.mark.proves("F3", "I5")
async def test_a_worker_that_dies_with_what_it_took_loses_it_and_another_gets_it_anew(in_memory, broker):
    async with Line(in_memory) as line:
        _, _, receiver, jobs = await line.worker(executor=Puppet(slots=2))
        [run] = await line.submit()
        await line.until(lambda: receiver.taken == 1 and not broker.messages)
        for job in jobs:
            job.cancel()
        await asyncio.wait(jobs)
        line.house.engine.workers.connection_closed("w1")
        line.house.clock.pass_ms(4_000)
        executor, *_ = await line.worker("w2")
        await line.completed([run])

        assert [attempt for _, attempt in executor.seen] == [2]


async def test_what_is_too_large_for_a_message_comes_with_the_exchange(in_memory, monkeypatch):
    monkeypatch.setattr("tickwork.runtime.broker_publisher.MESSAGE_BYTES_MAX", 10)
    async with Line(in_memory) as line:
        executor, *_ = await line.worker()
        await line.completed(await line.submit(3))

        assert len(executor.seen) == 3


@pytest.mark.proves("B24")
async def test_a_good_envelope_around_bad_work_is_a_dead_letter(in_memory, broker):
    async with Line(in_memory, untaken_ms=400) as line:
        [run] = await line.submit()
        await line.until(lambda: len(broker.messages) == 1)
        [message] = broker.messages.values()
        sent = SEAL.unwrap(message.data)
        message.data = SEAL.wrap(msgspec.structs.replace(sent, body=b"\xc1"))
        other = SEAL.wrap(msgspec.structs.replace(sent, task=sent.task + 1))
        broker.put(message.address, 5, other)
        executor, *_ = await line.worker()
        await line.until(lambda: len(broker.dead) == 2)
        await line.completed([run])

        assert "cannot be decoded" in broker.dead[0].reason and "another attempt" in broker.dead[1].reason
        assert [attempt for _, attempt in executor.seen] == [2], "what was lost by it came again"


async def test_a_message_of_another_store_is_refused_and_the_task_of_its_number_runs_for_its_own_store(
    in_memory, broker
):
    async with Line(in_memory, untaken_ms=400) as line:
        [run] = await line.submit()
        await line.until(lambda: len(broker.messages) == 1)
        [message] = broker.messages.values()
        sent = SEAL.unwrap(message.data)
        assert sent.store and sent.store == line.house.engine.context.store_id
        message.data = SEAL.wrap(msgspec.structs.replace(sent, store="f" * 32))
        executor, *_ = await line.worker()
        await line.until(lambda: len(broker.dead) == 1)
        assert not executor.seen

        await line.completed([run])
        assert "dispatched by another store (ffffffffffff)" in broker.dead[0].reason
        assert [attempt for _, attempt in executor.seen] == [2], "its own store gave it out again"


@pytest.mark.proves("S001-87")
async def test_labels_and_priorities_go_with_it(in_memory, broker):
    async with Line(in_memory) as line:
        node = task("a", "noop", labels={"gpu": "yes"}, priority=8, retry={"attempts": 4})
        await line.house.define("gpu", node)
        [run] = await line.submit(workflow="gpu")
        await line.until(lambda: len(broker.messages) == 1)
        [message] = broker.messages.values()
        sent = SEAL.unwrap(message.data)
        assert (sent.labels, sent.priority, sent.retries_left) == ((("gpu", "yes"),), 8, 3)
        assert (sent.tenant, sent.key) == ("default", f"{sent.task}-1")
        assert sent.traceparent.startswith("00-") and len(sent.traceparent) == 55
        without, *_ = await line.worker("w1")
        having, *_ = await line.worker("w2", labels={"gpu": "yes"})
        await line.completed([run])

        assert not without.seen and len(having.seen) == 1


async def test_whoever_takes_without_having_sat_down_before_is_known_in_time(in_memory, broker):
    """The offer of a call counts before what it takes."""
    async with Line(in_memory) as line:
        await line.submit()
        await line.until(lambda: len(broker.messages) == 1)
        [message] = broker.messages.values()
        sent = SEAL.unwrap(message.data)
        hand = Hand(line.house)
        reply = await hand.call(Taken(sent.task, sent.attempt), profile=WorkerProfile(queues=()), held=())
        assert not reply.fenced
        assert [(work.task, work.attempt) for work in reply.work] in ([], [(sent.task, sent.attempt)])


# ---- NATS itself


@pytest.mark.proves("P13", "F20")
async def test_a_stream_that_somebody_deletes_loses_nothing(on_nats, nats_server):  # noqa: F811
    async with Line(on_nats, untaken_ms=1_000) as line:
        runs = await line.submit(5)
        await line.until(lambda: line.keeper.published >= 5 and line.keeper.depth is not None)
        lane = on_nats()
        async with lane._stream() as stream:
            await stream.delete_stream(lane._work)
        await lane.close()
        executor, *_ = await line.worker()
        more = await line.submit(5)
        await line.completed([*runs, *more])

        assert len({task for task, _ in executor.seen}) == 10


@pytest.mark.proves("P13", "F20")
@pytest.mark.parametrize("lost", ["consumer", "connection"])
async def test_a_stream_that_goes_while_a_worker_asks_for_work_does_not_end_the_worker(on_nats, lost):
    lane = on_nats()
    look = lane._look

    async def gone_by_now(wanted, limit):
        if lost == "consumer":
            lane._consumers.clear()  # as when the broker says so between two steps of one call
        else:
            await lane._drop()  # as when another call of the same process has found the stream gone
        await look(wanted, limit)

    await lane.open()
    try:
        lane._look = gone_by_now
        with pytest.raises(Unavailable):
            await lane.receive(["default"], {}, limit=1, wait_ms=10)
        lane._look = look
        assert await lane.receive(["default"], {}, limit=1, wait_ms=10) == []
    finally:
        await lane.close()


@pytest.mark.proves("P13", "F20")
async def test_publishing_goes_on_after_somebody_else_found_the_stream_gone(on_nats):
    async with Line(on_nats) as line:
        ask, times = line.lane._ask, 0

        async def dropped_by_now(messages):
            nonlocal times
            times += 1
            if times == 1:
                await line.lane._drop()
            return await ask(messages)

        line.lane._ask = dropped_by_now
        executor, *_ = await line.worker()
        await line.completed(await line.submit(3))

        assert times > 1 and len(executor.seen) == 3


@pytest.mark.proves("P13")
async def test_a_late_ack_of_an_earlier_delivery_loses_nothing(on_nats):
    """JetStream takes it for an ack of the message. That is why only who was told whose it is may acknowledge."""
    make = partial(on_nats, 300)
    async with Line(make) as line:
        [run] = await line.submit()
        stale = make()
        [first] = await stale.receive(["default"], {}, limit=1, wait_ms=5_000)
        executor, *_ = await line.worker()
        await line.completed([run])
        await stale.accept([first])
        await stale.close()

        assert len(executor.seen) == 1


@pytest.mark.proves("P13", "F20")
async def test_copies_after_the_dedupe_window_are_fenced_by_the_store(on_nats):
    async with Line(on_nats) as line:
        [run] = await line.submit()
        await line.until(lambda: line.keeper.published == 1)
        [carried] = line.keeper._carried.values()
        lane = on_nats()
        late = msgspec.structs.replace(carried.envelope, key="another name, as if the window had passed")
        await lane.publish([late])
        assert (await lane.depth()).waiting == 2
        await lane.close()
        executor, _, receiver, _ = await line.worker()
        await line.completed([run])
        await line.until(lambda: receiver.received == 2)

        assert len(executor.seen) == 1


@pytest.mark.proves("F19", "I52")
async def test_a_killed_broker_comes_back_and_work_goes_on_by_itself(on_nats, nats_server):  # noqa: F811
    async with Line(on_nats) as line:
        executor, *_ = await line.worker()
        await line.completed(await line.submit(5))
        nats_server.kill()
        runs = await line.submit(20)
        await line.until(lambda: line.alarms == ["lane_away"])
        nats_server.start()
        began = asyncio.get_running_loop().time()
        await line.completed(runs)

        assert asyncio.get_running_loop().time() - began < 10
        assert len({task for task, _ in executor.seen}) == 25


async def test_an_engine_that_stops_is_not_asked_without_a_pause(in_memory):
    async with Line(in_memory) as line:
        await line.until(lambda: line.keeper._seq >= 2)
        line.house.engine.workers.release()
        before = line.keeper._seq
        await asyncio.sleep(0.2)

        assert line.keeper._seq - before < 10
