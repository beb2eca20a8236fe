"""The promises of the lane port, on every adapter."""

import itertools

import pytest

from conformance.lane_suite import LaneSuite
from servers import postgres_server  # noqa: F401
from servers_brokers import Cable, nats_server, rabbit_server  # noqa: F401
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
