"""The promises of the lane port, on every adapter."""

import asyncio
import itertools

import pytest

from campaign import LONG
from conformance.broker_suite import LaneSuite, envelope, numbers, receive_all, until_reached
from servers import postgres_server  # noqa: F401
from servers_brokers import Cable, kafka_server, nats_server, rabbit_server  # noqa: F401
from tickwork.brokers.kafka import KafkaBroker
from tickwork.brokers.memory import MemoryBroker, MemoryBrokerState
from tickwork.brokers.nats import NatsBroker
from tickwork.brokers.postgres import PostgresBroker
from tickwork.brokers.rabbitmq import RabbitBroker
from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import BrokerOptions, labels_token

NAMES = itertools.count(1)
QUEUE_MADE_S = 3.0  # a queue that RabbitMQ 3.10 made in the last second before its death may never have a leader again
OF_TENANTS = [("acme", 9), ("acme", 0), ("bolt", 9)]
TOLD = [
    {"tickwork-tenant": tenant, "tickwork-priority": str(priority), "tickwork-key": f"{number}-1",
     "tickwork-retries-left": "3"}
    for number, (tenant, priority) in enumerate(OF_TENANTS)
]  # fmt: skip


def of_tenants():
    return [envelope(number, tenant=tenant, priority=priority) for number, (tenant, priority) in enumerate(OF_TENANTS)]


def told(headers):
    """What a message says of itself at the broker, but for its trace."""
    return {name: value for name, value in headers.items() if name in TOLD[0]}


class TestMemory(LaneSuite):
    exact_priority = True

    @pytest.fixture
    def broker(self):
        return MemoryBrokerState()

    @pytest.fixture
    def make(self, broker):
        return lambda **options: MemoryBroker(broker, BrokerOptions(**options))

    @pytest.fixture
    def garbage(self, broker):
        async def put(data, queue, _labels):
            broker.put((queue, ()), 5, data)

        return put

    @pytest.fixture
    def down(self, broker):
        async def down():
            broker.up = False

        return down

    @pytest.fixture
    def up(self, broker):
        async def up():
            broker.up = True

        return up


class TestNats(LaneSuite):
    keeps_over_a_kill = False  # it confirms before the disk has it

    @pytest.fixture
    def name(self):
        return f"lane{next(NAMES)}"

    @pytest.fixture
    def make(self, nats_server, name):  # noqa: F811
        return lambda **options: NatsBroker(nats_server.url(name), BrokerOptions(**options))

    @pytest.fixture
    def garbage(self, nats_server, name, lane):  # noqa: F811
        import nats

        async def put(data, queue, labels):
            await lane.depth()  # its streams are there
            client = await nats.connect(f"nats://127.0.0.1:{nats_server.port}")
            await client.jetstream().publish(f"{name}.work.mallory.{queue}.{labels}.1", data)
            await client.close()

        return put

    @pytest.fixture
    def down(self, nats_server):  # noqa: F811
        async def down():
            nats_server.kill()

        return down

    @pytest.fixture
    def up(self, nats_server):  # noqa: F811
        async def up():
            nats_server.start()

        return up

    @pytest.mark.proves("S001-74", "S001-87")
    async def test_each_tenant_and_each_band_of_priority_has_subjects_of_its_own(self, lane, name):
        await lane.publish(of_tenants())
        async with lane._stream() as stream:
            found = [await stream.get_msg(lane._work, seq=number) for number in (1, 2, 3)]
            acme = (await stream.stream_info(lane._work, subjects_filter=f"{name}.work.acme.>")).state.subjects

        assert [one.subject for one in found] == [
            f"{name}.work.{tenant}.default.-.{0 if priority == 9 else 2}" for tenant, priority in OF_TENANTS
        ]
        assert sorted(acme) == [found[0].subject, found[1].subject]
        assert [told(one.headers) for one in found] == TOLD


class TestPostgres(LaneSuite):
    exact_priority = True

    @pytest.fixture
    def url(self, postgres_server):  # noqa: F811
        return f"{postgres_server.dsn}?lane_schema=lane{next(NAMES)}"

    @pytest.fixture
    def make(self, url):
        return lambda **options: PostgresBroker(url, BrokerOptions(**options))

    @pytest.fixture
    def garbage(self, lane):
        async def put(data, queue, labels):
            async with lane._connection() as connection:
                words = lane._sql("insert into {schema}.lane_messages (queue, labels, priority, data)")
                await connection.execute(f"{words} values ($1, $2, 5, $3)", queue, labels, data)

        return put

    @pytest.fixture
    def down(self, postgres_server):  # noqa: F811
        async def down():
            postgres_server.stop()

        return down

    @pytest.fixture
    def up(self, postgres_server):  # noqa: F811
        async def up():
            postgres_server.start()

        return up


@pytest.mark.slow
@pytest.mark.proves("P15", "S001-142")
class TestRabbit(LaneSuite):
    """Debian's RabbitMQ. It takes seconds to start, so it is cut off rather than killed, but for one test."""

    redeliver_ms = 2_000  # making a quorum queue takes a while

    @pytest.fixture
    async def cable(self, rabbit_server):  # noqa: F811
        cable = Cable(rabbit_server.port)
        await cable.join()
        yield cable
        await cable.cut()

    @pytest.fixture
    def name(self):
        return f"lane{next(NAMES)}"

    @pytest.fixture
    def make(self, rabbit_server, cable, name):  # noqa: F811
        return lambda **options: RabbitBroker(rabbit_server.url(name, cable.port), BrokerOptions(**options))

    @pytest.fixture
    def garbage(self, lane):
        from aio_pika import Message

        async def put(data, queue, labels):
            async with lane._broker():
                await lane._queue((queue, labels, 1))
                await lane._exchange.publish(Message(data), f"mallory.{queue}.{labels}.1")

        return put

    @pytest.mark.proves("S001-74", "S001-87")
    async def test_whoever_binds_to_a_tenant_gets_its_messages_and_their_headers(self, lane):
        async with lane._broker():
            await lane._queue(("default", labels_token(()), 0))
            aside = await lane._out.declare_queue(exclusive=True)
            await aside.bind(lane._exchange, "acme.#")
        await lane.publish(of_tenants())
        found = [await aside.get(timeout=5, no_ack=True) for _ in range(2)]

        assert sorted(one.routing_key for one in found) == ["acme.default.-.0", "acme.default.-.2"]
        assert sorted((told(one.headers) for one in found), key=lambda one: one["tickwork-key"]) == TOLD[:2]
        assert await aside.get(fail=False) is None

    @pytest.mark.proves("F20", "S001-165")
    async def test_what_was_confirmed_outlives_the_death_of_the_broker(self, lane, rabbit_server):  # noqa: F811
        await lane.publish([envelope(1), envelope(2)])
        await asyncio.sleep(QUEUE_MADE_S)
        rabbit_server.kill()
        rabbit_server.start()

        assert sorted(numbers(await until_reached(lambda: receive_all(lane, 2)))) == [1, 2]

    @pytest.mark.proves("F20")
    async def test_a_queue_that_does_not_answer_is_named(self, lane, rabbit_server, name):  # noqa: F811
        assert await lane.receive(["default"], {}, limit=1, wait_ms=0) == []
        rabbit_server.freeze()
        try:
            with pytest.raises(Unavailable, match=rf"queue {name}\.work\.default\.-\.0 does not answer"):
                await lane.receive(["default"], {}, limit=1, wait_ms=0)
        finally:
            rabbit_server.thaw()

    @pytest.fixture
    def down(self, cable):
        return cable.cut

    @pytest.fixture
    def up(self, cable):
        return cable.join


@pytest.mark.slow
@pytest.mark.proves("P16")
class TestKafka(LaneSuite):
    """At the level of the protocol: brokers of the C client's own tests. They let a group wait 3 s for its members, so
    only what is special about Kafka is asked."""

    redelivers_to_others = False  # before its worker leaves the group
    keeps_over_a_kill = False
    test_nothing_comes_more_often_than_asked_for = None
    test_a_message_that_is_sent_twice_does_no_harm = None
    test_many_messages_come_each_once = None
    test_queues_and_labels_are_kept_apart = None
    test_a_worker_that_waits_gets_what_comes = None
    test_a_lane_opens_while_its_broker_is_away = None
    test_a_poison_message_does_not_come_for_ever = None
    test_what_a_worker_rejects_is_a_dead_letter_too = None
    test_important_work_comes_first = None
    if not LONG:  # its brokers keep time by themselves, and a busy machine is too late for them
        test_an_outage_is_said_and_the_lane_comes_back_by_itself = None

    @pytest.fixture
    def name(self):
        return f"lane{next(NAMES)}"

    @pytest.fixture
    def make(self, kafka_server, name):  # noqa: F811
        return lambda **options: KafkaBroker(kafka_server.url(name), BrokerOptions(**options))

    @pytest.fixture
    def garbage(self, lane):
        async def put(data, queue, labels):
            async with lane._broker() as (producer, _):
                topic = lane._topic(queue, labels, 1)
                lane._topics[topic] = 1
                await producer.send_and_wait(topic, data)

        return put

    @pytest.fixture
    def down(self, kafka_server):  # noqa: F811
        async def down():
            kafka_server.freeze()

        return down

    @pytest.fixture
    def up(self, kafka_server):  # noqa: F811
        async def up():
            kafka_server.thaw()

        return up

    @pytest.mark.skipif(not LONG, reason="its brokers keep time by themselves: make long")
    async def test_a_worker_that_leaves_gives_what_it_did_not_accept_to_the_next(self, lane, other):
        await lane.publish([envelope(1), envelope(2)])
        first, second = await receive_all(lane, 2, accept=False)
        await lane.accept([second])
        await lane.close()

        found = await receive_all(other, 1)
        assert first.envelope.task in numbers(found)
