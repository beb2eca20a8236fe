"""The promises of the leases port, on every backend."""

import asyncio

import pytest
import pytest_asyncio

from conformance.lease_suite import LeaseSuite
from servers import etcd, postgres, postgres_server, schema, valkey  # noqa: F401 - fixtures
from tickwork.core.base.errors import Unavailable
from tickwork.stores.leases.etcd import EtcdLeases
from tickwork.stores.leases.memory import MemoryLeases
from tickwork.stores.leases.redis import RedisLeases
from tickwork.stores.postgres.leases import PostgresLeases


class _TwoWaysIn:
    @pytest.fixture
    def ttl_ms(self):
        return 300

    @pytest_asyncio.fixture
    async def both(self, make):
        made = [make(), make()]
        for one in made:
            await one.open()
        yield made
        for one in made:
            await one.close()

    @pytest.fixture
    def leases(self, both):
        return both[0]

    @pytest.fixture
    def others(self, both):
        return both[1]


class TestMemory(_TwoWaysIn, LeaseSuite):
    never_closed = True

    @pytest.fixture
    def make(self):
        shared = MemoryLeases(lambda: round(asyncio.get_running_loop().time() * 1000))
        return lambda: shared


class TestPostgres(_TwoWaysIn, LeaseSuite):
    @pytest.fixture
    def make(self, postgres, schema):  # noqa: F811
        return lambda: PostgresLeases(postgres, schema=schema)


@pytest.mark.proves("S000-19", "S001-72")
class TestValkey(_TwoWaysIn, LeaseSuite):
    @pytest.fixture
    def make(self, valkey, schema):  # noqa: F811
        return lambda: RedisLeases(valkey, prefix=schema)


@pytest.mark.proves("S001-72")
class TestEtcd(_TwoWaysIn, LeaseSuite):
    @pytest.fixture
    def ttl_ms(self):
        return 1000  # its shortest

    @pytest.fixture
    def make(self, etcd, schema):  # noqa: F811
        return lambda: EtcdLeases(etcd, prefix=schema)


@pytest.mark.proves("F21")
@pytest.mark.parametrize(
    "leases",
    [
        RedisLeases("redis://127.0.0.1:1/0"),
        EtcdLeases("http://127.0.0.1:1,http://127.0.0.1:2"),
        PostgresLeases("postgresql://127.0.0.1:1/none"),
    ],
    ids=["redis", "etcd", "postgres"],
)
async def test_a_backend_that_is_away_is_told_as_such(leases):
    with pytest.raises(Unavailable):
        await leases.open()
    await leases.close()


async def test_any_member_of_etcd_that_answers_will_do(etcd, schema):  # noqa: F811
    leases = EtcdLeases(f"http://127.0.0.1:1, {etcd}", prefix=schema)
    await leases.open()

    assert await leases.members() == []
    await leases.close()
