"""Runs that are enqueued in a transaction of the application: by SQL, and through the usual drivers."""

# ruff: noqa: F811 - fixtures have the names of the imports

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime, timedelta

import asyncpg
import httpx2
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import tickwork as tw
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.cluster.placement import partition_of_run
from tickwork.cluster.tenant_routes import TenantRoutes
from tickwork.compose.cluster import serving_node
from tickwork.compose.settings import Settings
from tickwork.core.base.errors import Refused, Unavailable
from tickwork.ports.store import Route
from tickwork.stores.postgres.store import PostgresStore
from tickwork.system.clock import SystemClock

TOKEN = "for-this-test-only"
TAGS = ["vip"]
DOCUMENT = {
    "name": "mail",
    "inputs": {"to": {"type": "string", "default": "nobody"}},
    "nodes": [{"kind": "wait", "id": "later", "duration_ms": 3_600_000}],
}


@contextlib.asynccontextmanager
async def store_of(postgres, schema, partitions=8):
    store = PostgresStore(postgres, schema=schema)
    await store.open()
    try:
        await store.establish_identity(cluster="c", partitions=partitions)
        yield store
    finally:
        await store.close()


async def rows_of(store, partitions=8):
    rows = [row for number in range(partitions) for row in await store.read_inbox(number, limit=1_000)]
    return {row.id: json.loads(row.data) for row in rows}


@contextlib.contextmanager
def sync_connection(kind, dsn):
    if kind == "psycopg":
        with contextlib.closing(psycopg.connect(dsn)) as connection:
            yield connection
        return
    engine = sqlalchemy.create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() if kind == "sqlalchemy" else Session(engine) as connection:
        yield connection
    engine.dispose()


@pytest.mark.parametrize("kind", ["psycopg", "sqlalchemy", "session"])
async def test_a_run_is_enqueued_with_the_transaction_of_a_driver_or_not_at_all(postgres, schema, kind):
    def enqueue():
        with sync_connection(kind, postgres) as connection:
            tw.enqueue(connection, "mail", to="rolled back", schema=schema)
            connection.rollback()
            run = tw.enqueue(connection, "mail", {"to": "a@b"}, key="k", priority=7, delay="2m", schema=schema)
            connection.commit()
            return run

    async with store_of(postgres, schema) as store:
        run = await asyncio.to_thread(enqueue)
        rows = await rows_of(store)

    starts = datetime.fromisoformat(rows[run].pop("start_at"))
    assert abs(starts - datetime.now(UTC) - timedelta(minutes=2)) < timedelta(minutes=1)
    assert rows == {run: {"workflow": "mail", "inputs": {"to": "a@b"}, "key": "k", "priority": 7, "id": run}}


@contextlib.asynccontextmanager
async def async_connection(kind, dsn):
    """The connection, and its ways to roll back and to commit."""
    if kind == "asyncpg":
        connection = await asyncpg.connect(dsn)

        async def run(word):
            await connection.execute(word)

        await run("begin")
        yield connection, lambda: run("rollback; begin"), lambda: run("commit")
        await connection.close()
        return
    if kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(dsn) as opened:
            yield opened, opened.rollback, opened.commit
        return
    engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
    async with AsyncConnection(engine) if kind == "sqlalchemy" else AsyncSession(engine) as opened:
        yield opened, opened.rollback, opened.commit
    await engine.dispose()


@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "sqlalchemy", "session"])
async def test_a_run_is_enqueued_with_the_transaction_of_an_asynchronous_driver(postgres, schema, kind):
    start = datetime(2030, 1, 2, 3, 4, 5, 678_000, UTC)
    options = tw.Options(timeout="1h", queue="mails", retries=2)
    async with store_of(postgres, schema) as store, async_connection(kind, postgres) as (connection, undo, commit):
        await tw.enqueue_async(connection, "mail", to="rolled back", schema=schema)
        await undo()
        run = await tw.enqueue_async(
            connection, "mail", to="c@d", start_at=start, options=options, tags=["vip"], schema=schema
        )
        await commit()
        rows = await rows_of(store)

    retry = rows[run].pop("retry")
    assert retry["attempts"] == 3
    assert rows == {
        run: {"workflow": "mail", "inputs": {"to": "c@d"}, "start_at": "2030-01-02T03:04:05.678Z", "id": run,
              "timeout_ms": 3_600_000, "queue": "mails", "tags": ["vip"]}
    }  # fmt: skip


async def test_what_holds_no_transaction_of_the_caller_is_refused(postgres, schema):
    engine = sqlalchemy.create_engine(postgres.replace("postgresql://", "postgresql+psycopg://"))
    for connection in (engine, object(), "postgresql://"):
        with pytest.raises(Refused, match="holds no transaction of yours"):
            tw.enqueue(connection, "mail", schema=schema)
    async with asyncpg.create_pool(postgres, min_size=1, max_size=1) as pool:
        with pytest.raises(Refused, match="holds no transaction of yours"):
            await tw.enqueue_async(pool, "mail", schema=schema)
    with sync_connection("psycopg", postgres) as connection, pytest.raises(Refused, match="no name of a schema"):
        tw.enqueue(connection, "mail", schema="public; drop table x")


@pytest.mark.parametrize("partitions", [1, 3, 8])
async def test_enqueued_runs_go_where_the_nodes_look_for_them(postgres, schema, partitions):
    clock = SystemClock()
    async with store_of(postgres, schema, partitions) as store, connected(postgres, schema) as connection:
        for spread in sorted({1, 2, partitions} & set(range(partitions + 1))):
            routes = TenantRoutes(store, clock, partitions=partitions)
            await routes.load()
            if spread > 1:
                await routes.put(Route("default", routes.home("default"), spread))
            keyed = [await connection.fetchval("select enqueue('mail', key => $1)", f"{spread}-{n}") for n in range(5)]
            plain = [await connection.fetchval("select enqueue('mail')") for _ in range(20)]
            where = {row.id: number for number in range(partitions) for row in await store.read_inbox(number, limit=99)}

            assert {where[run] for run in keyed} == {routes.home("default")}
            route = routes.of("default")
            assert {run: where[run] for run in plain} == {
                run: partition_of_run(route, run, partitions) for run in plain
            }
            assert plain == sorted(plain), "ids rise with time"
            await asyncio.gather(*(store.drop_inbox(number, list(where)) for number in range(partitions)))


@contextlib.asynccontextmanager
async def connected(postgres, schema, **more):
    connection = await asyncpg.connect(postgres, server_settings={"search_path": schema}, **more)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("enqueue(null)", "workflow is a name"),
        ("enqueue('')", "workflow is a name"),
        (f"enqueue('{'w' * 129}')", "workflow is a name"),
        ("enqueue('mail', '[]')", "inputs are an object"),
        ("enqueue('mail', null)", "inputs are an object"),
        ("enqueue('mail', options => '[]')", "options are an object"),
        ("enqueue('mail', options => '{\"id\": \"mine\"}')", "id is not given in options"),
        ("enqueue('mail', options => '{\"debounce\": \"k\"}')", "debounce needs the answer"),
        (f"enqueue('mail', key => '{'k' * 256}')", "key has at most"),
        ("enqueue('mail', delay => '-1 s')", "a time to come"),
        ("enqueue('mail', start_at => 'infinity')", "a time to come"),
        ("enqueue('mail', delay => '1 s', start_at => now())", "not both"),
        ("enqueue('mail', priority => 10)", "priority is 0 to 9"),
        ("enqueue('mail', jsonb_build_object('to', repeat('x', 1048576)))", "at most 1 MiB"),
    ],
)
async def test_what_cannot_be_a_run_fails_in_the_transaction(postgres, schema, call, words):
    async with store_of(postgres, schema) as store, connected(postgres, schema) as connection:
        with pytest.raises(asyncpg.PostgresError, match=words):
            await connection.fetchval(f"select {call}")

        assert await rows_of(store) == {}


async def test_before_the_first_node_there_is_nothing_to_enqueue_into(postgres, schema):
    store = PostgresStore(postgres, schema=schema)
    await store.open()
    await store.close()
    async with connected(postgres, schema) as connection:
        with pytest.raises(asyncpg.PostgresError, match="no node has used this store yet"):
            await connection.fetchval("select enqueue('mail')")


async def test_a_role_needs_no_right_but_the_function_and_no_name_leads_it_astray(postgres, schema):
    role = f"app_{schema}"
    call = f"select {schema}.enqueue('mail')"
    async with store_of(postgres, schema) as store, connected(postgres, schema) as owner:
        await owner.execute(f"create role {role} login")
        try:
            async with connected(postgres, "public", user=role) as connection:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetchval(call)
                await owner.execute(f"grant usage on schema {schema} to {role}")
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetchval(call)
                await owner.execute(f"grant execute on function {schema}.enqueue to {role}")
                await connection.execute("create temporary table inbox (like pg_class)")  # would come first in a path
                run = await connection.fetchval(call)
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetchval(f"select count(*) from {schema}.inbox")
        finally:
            await owner.execute(f"drop owned by {role}; drop role {role}")

        [row] = [row for number in range(8) for row in await store.read_inbox(number, limit=9)]
        assert (row.id, row.by) == (run, f"sql:{role}")


# ---- with nodes


@contextlib.asynccontextmanager
async def node_of(postgres, schema, tmp_path, **more):
    settings = Settings(
        store=f"{postgres}?schema={schema}", port=0, token=TOKEN, lease_ttl="3s", data=str(tmp_path), partitions=4,
        **more,
    )  # fmt: skip
    async with (
        serving_node(settings) as (node, server),
        httpx2.AsyncClient(base_url=server.address, headers={"authorization": f"Bearer {TOKEN}"}, timeout=20) as client,
    ):
        yield node, client


async def until(true, *, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not (answer := await true()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)
    return answer


async def runs_of(client):
    return {run["id"]: run for run in (await client.get("/v1/runs?limit=500")).json()["runs"]}


async def test_an_enqueued_run_begins_once_with_its_terms_and_one_key_is_one_run(postgres, schema, tmp_path):
    async with node_of(postgres, schema, tmp_path) as (node, client), connected(postgres, schema) as connection:
        await client.put("/v1/workflows", json={"documents": [DOCUMENT]})
        async with connection.transaction():
            terms = "'{\"to\": \"x\"}', key => 'order-7', priority => 8, delay => '1 hour'"
            first = await connection.fetchval(f"select enqueue('mail', {terms})")
            plain = [await connection.fetchval("select enqueue('mail')") for _ in range(3)]
            assert await runs_of(client) == {}
        second = await connection.fetchval("select enqueue('mail', '{\"to\": \"x\"}', key => 'order-7', priority => 8)")

        async def are_there():
            return {first, *plain} <= set(await runs_of(client)) and not await rows_of(node.store, 4)

        with contextlib.suppress(AssertionError):  # the second under the key differs in its start, and so is refused
            await until(are_there, seconds=5)
        runs = await runs_of(client)
        held = (await client.get("/v1/cluster/inbox")).json()["runs"]

    assert set(runs) == {first, *plain}
    assert runs[first]["state"] == "pending" and runs[first]["priority"] == 8 and runs[first]["key"] == "order-7"
    assert runs[first]["by"] == "sql:postgres"
    assert [(run["id"], run["code"]) for run in held] == [(second, "key_reused")]


async def test_a_run_that_is_refused_after_its_commit_is_listed_until_it_can_begin(
    postgres,
    schema,
    tmp_path,
    monkeypatch,
):
    monkeypatch.setattr("tickwork.cluster.shared_inbox.RETRY_S", 0.2)
    monkeypatch.setattr("tickwork.cluster.shared_inbox.RETRY_S_MAX", 0.4)
    async with node_of(postgres, schema, tmp_path) as (_, client), connected(postgres, schema) as connection:
        unknown = await connection.fetchval("select enqueue('mail')")
        wrong = await connection.fetchval("select enqueue('mail', '{\"nobody\": 1}')")
        strange = await connection.fetchval("select enqueue('mail', options => '{\"no_such_option\": 1}')")

        async def held():
            runs = (await client.get("/v1/cluster/inbox")).json()["runs"]
            return {run["id"]: (run["code"], run["detail"]) for run in runs}

        async def all_held():
            return set(await held()) == {unknown, wrong, strange}

        await until(all_held)
        assert (await held())[unknown][0] == "unknown_workflow"
        assert (await held())[strange][0] == "unreadable" and "no_such_option" in (await held())[strange][1]
        await client.put("/v1/workflows", json={"documents": [DOCUMENT]})

        async def has_begun():
            return unknown in await runs_of(client)

        await until(has_begun)

        async def inputs_are_refused():
            codes = await held()
            return set(codes) == {wrong, strange} and codes[wrong][0] not in ("unknown_workflow", "unreadable")

        await until(inputs_are_refused)
        for run in (wrong, strange):
            assert (await client.delete(f"/v1/cluster/inbox/{run}")).status_code == 204
        assert await held() == {}


async def test_a_node_that_dies_between_accepting_and_deleting_starts_no_run_twice(
    postgres,
    schema,
    tmp_path,
    monkeypatch,
):
    drop, lost = PostgresStore.drop_inbox, []

    async def dies(self, partition, ids):
        if len(ids) and len(lost) < 2:
            lost.append(ids)
            raise Unavailable("it died before it could delete them", retry_after_ms=1)
        await drop(self, partition, ids)

    monkeypatch.setattr(PostgresStore, "drop_inbox", dies)
    async with node_of(postgres, schema, tmp_path) as (node, client), connected(postgres, schema) as connection:
        await client.put("/v1/workflows", json={"documents": [DOCUMENT]})
        async with connection.transaction():
            ids = [await connection.fetchval("select enqueue('mail', key => $1)", f"k{n}") for n in range(3)]
            ids += [await connection.fetchval("select enqueue('mail')") for n in range(3)]

        async def is_empty():
            return len(lost) == 2 and not await rows_of(node.store, 4)

        await until(is_empty)

        assert sorted(await runs_of(client)) == sorted(ids)


@pytest.mark.parametrize(("seconds", "address"), [(600, ""), (0.2, "&pgbouncer=1")], ids=["notice", "reading"])
async def test_a_notice_makes_it_soon_and_without_one_the_inbox_is_read_anyway(
    postgres, schema, tmp_path, monkeypatch, seconds, address
):
    monkeypatch.setattr("tickwork.cluster.node.INBOX_S", seconds)
    async with (
        node_of(postgres, schema + address, tmp_path) as (_, client),
        connected(postgres, schema) as connection,
    ):
        await client.put("/v1/workflows", json={"documents": [DOCUMENT]})
        for _ in range(2):  # the second finds a node that has read what there was
            run = await connection.fetchval("select enqueue('mail')")

            async def has_begun():
                return run in await runs_of(client)  # noqa: B023

            await until(has_begun)
