"""The promises of the store port, on every adapter."""

import pytest
import pytest_asyncio

from conformance.store_suite import StoreSuite
from conformance.upkeep_suite import UpkeepSuite
from servers import pgbouncer, postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.stores.memory import MemoryDisk, MemoryStore
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore


class _Reopening:
    @pytest_asyncio.fixture
    async def opened(self, make):
        stores = []

        async def reopen():
            for store in stores:
                await store.close()
            stores.append(make())
            await stores[-1].open()
            return stores[-1]

        yield reopen
        for store in stores:
            await store.close()

    @pytest_asyncio.fixture
    async def store(self, opened):
        return await opened()

    @pytest.fixture
    def reopen(self, opened):
        return opened


class TestMemory(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self):
        disk = MemoryDisk()
        return lambda: MemoryStore(disk)

    def elsewhere(self, make):
        return MemoryStore(MemoryDisk())


class TestSqlite(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: SqliteStore(tmp_path / "store.db")

    def elsewhere(self, make):
        return SqliteStore(make().path.with_name("other.db"))


@pytest.mark.slow
class TestSqliteApart(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: SqliteStore(tmp_path / "store.db", apart=True)

    def elsewhere(self, make):
        return SqliteStore(make().path.with_name("other.db"), apart=True)


@pytest.mark.proves("S001-71")
class TestPostgres(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, postgres, schema):  # noqa: F811
        return lambda: PostgresStore(postgres, schema=schema)

    def elsewhere(self, make):
        address = make().address
        return PostgresStore(address.dsn, schema=f"{address.schema}_other")


class TestPostgresBehindPgBouncer(_Reopening, StoreSuite, UpkeepSuite):
    """In transaction mode: nothing outlives a transaction, and the next one may be on another connection."""

    @pytest.fixture
    def make(self, pgbouncer, schema):  # noqa: F811
        return lambda: PostgresStore(pgbouncer, schema=schema)

    def elsewhere(self, make):
        address = make().address
        return PostgresStore(address.dsn, schema=f"{address.schema}_other", pgbouncer=True)
