"""The promises of the store port, on every adapter."""

import contextlib
import re

import apsw
import asyncpg
import pytest
import pytest_asyncio

from conformance.store_maintenance_suite import UpkeepSuite
from conformance.store_suite import StoreSuite
from servers import pgbouncer, postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore

A_DAY_LATER = "update payloads set day = day - 1, day_again = day - 1; update renewals set day = day - 1"


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


async def in_sqlite(store):
    with contextlib.closing(apsw.Connection(str(store.path))) as raw:
        raw.set_busy_timeout(5_000)
        raw.execute(A_DAY_LATER)


async def in_postgres(store):
    raw = await asyncpg.connect(store.address.dsn, statement_cache_size=0)
    try:
        for one in A_DAY_LATER.split(";"):
            await raw.execute(re.sub(r"update ", f"update {store.address.schema}.", one))
    finally:
        await raw.close()


class TestMemory(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self):
        disk = MemoryDisk()
        return lambda: MemoryStore(disk)

    def elsewhere(self, make):
        return MemoryStore(MemoryDisk())

    async def a_day_later(self, store):
        store._held.day += 1


class TestSqlite(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: SqliteStore(tmp_path / "store.db")

    def elsewhere(self, make):
        return SqliteStore(make().path.with_name("other.db"))

    a_day_later = staticmethod(in_sqlite)


@pytest.mark.slow
class TestSqliteApart(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, tmp_path):
        return lambda: SqliteStore(tmp_path / "store.db", apart=True)

    def elsewhere(self, make):
        return SqliteStore(make().path.with_name("other.db"), apart=True)

    a_day_later = staticmethod(in_sqlite)


@pytest.mark.proves("S001-71")
class TestPostgres(_Reopening, StoreSuite, UpkeepSuite):
    @pytest.fixture
    def make(self, postgres, schema):  # noqa: F811
        return lambda: PostgresStore(postgres, schema=schema)

    def elsewhere(self, make):
        address = make().address
        return PostgresStore(address.dsn, schema=f"{address.schema}_other")

    a_day_later = staticmethod(in_postgres)


class TestPostgresBehindPgBouncer(_Reopening, StoreSuite, UpkeepSuite):
    """In transaction mode: nothing outlives a transaction, and the next one may be on another connection."""

    @pytest.fixture
    def make(self, pgbouncer, schema):  # noqa: F811
        return lambda: PostgresStore(pgbouncer, schema=schema)

    def elsewhere(self, make):
        address = make().address
        return PostgresStore(address.dsn, schema=f"{address.schema}_other", pgbouncer=True)

    a_day_later = staticmethod(in_postgres)
