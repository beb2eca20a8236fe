"""The promises of the lane port, on every adapter."""

import itertools

import pytest

from campaign import LONG
from conformance.lane_suite import LaneSuite, envelope, numbers, receive_all
from servers import postgres_server  # noqa: F401
from servers_brokers import Cable, kafka_server, nats_server, rabbit_server  # noqa: F401
from tickwork.lanes.kafka import KafkaLane
from tickwork.lanes.memory import MemoryBroker, MemoryLane
from tickwork.lanes.nats import NatsLane
from tickwork.lanes.postgres import PostgresLane
from tickwork.lanes.rabbitmq import RabbitLane

NAMES = itertools.count(1)


class TestMemory(LaneSuite):
    exact_priority = True

    @pytest.fixture
    def broker(self):
        return MemoryBroker()

    @pytest.fixture
    def make(self, broker):
        return lambda **options: MemoryLane(broker, **options)

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
        return lambda **options: NatsLane(nats_server.url(name), **options)

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


class TestPostgres(LaneSuite):
    exact_priority = True

    @pytest.fixture
    def url(self, postgres_server):  # noqa: F811
        return f"{postgres_server.dsn}?lane_schema=lane{next(NAMES)}"

    @pytest.fixture
    def make(self, url):
        return lambda **options: PostgresLane(url, **options)

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
@pytest.mark.proves("P15")
class TestRabbit(LaneSuite):
    """Debian's RabbitMQ, where it is installed. It is cut off rather than killed: it takes many seconds to start."""

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
        return lambda **options: RabbitLane(rabbit_server.url(name, cable.port), **options)

    @pytest.fixture
    def garbage(self, lane):
        from aio_pika import Message

        async def put(data, queue, labels):
            async with lane._broker():
                await lane._queue((queue, labels, 1))
                await lane._exchange.publish(Message(data), f"mallory.{queue}.{labels}.1")

        return put

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
        return lambda **options: KafkaLane(kafka_server.url(name), **options)

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
