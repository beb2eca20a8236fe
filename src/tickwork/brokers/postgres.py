"""Lanes over PostgreSQL: one small table, claimed with `for update skip locked` and kept small by deleting.

For companies whose broker is their database. Priorities are exact and everything is as durable as the store. A claim
is a lease of some seconds: who does not accept in time loses it to the next. Waiting is a poll, so that no
notification is sent inside a write transaction.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tickwork.core.base.errors import Unavailable
from tickwork.ports.broker import (
    DEFAULTS,
    BrokerOptions,
    DeadLetter,
    Delivery,
    Envelope,
    QueueDepth,
    UnreadableMessage,
    label_sets,
    labels_token,
    missing_extra,
    token,
    too_often,
)

if TYPE_CHECKING:
    import asyncpg

CONNECTIONS = 4
TIMEOUT_S = 5.0
POLL_S, POLL_S_MAX = 0.02, 0.25  # an empty queue is polled less and less often
DEAD_DAYS = 30

# The fill factor leaves room so that a claim rewrites a row in its own page and touches no index; the vacuum settings
# are for a table whose rows live for seconds.
SCHEMA = """
create schema if not exists {schema};
create table if not exists {schema}.lane_born (born timestamptz not null default clock_timestamp());
insert into {schema}.lane_born select clock_timestamp() where not exists (select from {schema}.lane_born);
create table if not exists {schema}.lane_messages (
    id bigint generated always as identity primary key,
    queue text not null,
    labels text not null,
    priority smallint not null,
    data bytea not null,
    times int not null default 0,
    leased_until timestamptz not null default '-infinity'
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index if not exists lane_messages_order on {schema}.lane_messages (queue, labels, priority desc, id);
create table if not exists {schema}.lane_dead (
    id bigint generated always as identity primary key,
    reason text not null,
    data bytea not null,
    died timestamptz not null default clock_timestamp()
);
"""

PUBLISH = """
insert into {schema}.lane_messages (queue, labels, priority, data)
select * from unnest($1::text[], $2::text[], $3::smallint[], $4::bytea[])
"""

CLAIM = """
update {schema}.lane_messages
   set times = times + 1, leased_until = clock_timestamp() + $4 * interval '1 millisecond'
 where id in (
       select id from {schema}.lane_messages
        where queue = any($1) and labels = any($2) and leased_until <= clock_timestamp()
        order by priority desc, id
        limit $3
          for update skip locked)
returning id, priority, times, data
"""

ACCEPT = "delete from {schema}.lane_messages where id = any($1)"

BURY = """
with gone as (delete from {schema}.lane_messages where id = $1 returning data)
insert into {schema}.lane_dead (reason, data) select $2, data from gone
"""

FORGET = "delete from {schema}.lane_dead where died < clock_timestamp() - $1 * interval '1 day'"

DEPTH = """
select (select count(*) from {schema}.lane_messages), (select count(*) from {schema}.lane_dead),
       (select max(born)::text from {schema}.lane_born)
"""

DEAD = "select reason, data from {schema}.lane_dead order by id desc limit $1"


class PostgresBroker:
    def __init__(self, url: str, options: BrokerOptions = DEFAULTS) -> None:
        """`postgresql://…?lane_schema=NAME`; everything else is as PostgreSQL has it."""
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        self._schema = "tickwork_" + token(given.pop("lane_schema", "lanes")).lower().replace("-", "_2d")
        self._dsn = urlunsplit(parts._replace(query=urlencode(given)))
        self._options = options
        self._pool: asyncpg.Pool[Any] | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        try:
            import asyncpg  # noqa: F401
        except ImportError:
            raise missing_extra("postgres", "PostgreSQL") from None

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await pool.close()
            except (TimeoutError, OSError):
                pool.terminate()

    @contextlib.asynccontextmanager
    async def _connection(self) -> "AsyncIterator[Any]":
        import asyncpg

        try:
            async with self._opening:
                if self._pool is None:
                    self._pool = await self._connect()
            async with self._pool.acquire(timeout=TIMEOUT_S) as connection:
                yield connection
        except asyncpg.UndefinedTableError as error:
            await self.close()  # they were dropped: the next call creates them again
            raise _away(error) from None
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            raise _away(error) from None

    async def _connect(self) -> "asyncpg.Pool[Any]":
        import asyncpg

        pool: asyncpg.Pool[Any] = asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=CONNECTIONS,
            timeout=TIMEOUT_S,
            command_timeout=TIMEOUT_S,
            statement_cache_size=0,  # PgBouncer may give each transaction another connection
        )
        try:
            await pool
            async with pool.acquire(timeout=TIMEOUT_S) as connection, connection.transaction():
                await connection.execute("select pg_advisory_xact_lock(5843910, 1)")  # one of all who start makes them
                await connection.execute(self._sql(SCHEMA))
                await connection.execute(self._sql(FORGET), DEAD_DAYS)
        except BaseException:
            pool.terminate()
            raise
        return pool

    def _sql(self, text: str) -> str:
        return text.format(schema=self._schema)  # made of letters, digits and `_` alone

    # ---- out

    async def publish(self, envelopes: Sequence[Envelope]) -> None:
        rows = [
            (envelope.queue, labels_token(envelope.labels), envelope.priority, self._options.codec.wrap(envelope))
            for envelope in envelopes
        ]
        if not rows:
            return
        columns = [list(column) for column in zip(*rows, strict=True)]
        async with self._connection() as connection:
            await connection.execute(self._sql(PUBLISH), *columns)

    # ---- in

    async def receive(
        self, queues: Sequence[str], labels: Mapping[str, str], *, limit: int, wait_ms: int
    ) -> list[Delivery]:
        sets = [labels_token(some) for some in label_sets(labels)]
        loop = asyncio.get_running_loop()
        ends, pause_s = loop.time() + wait_ms / 1000, POLL_S
        while True:
            async with self._connection() as connection:
                rows = await connection.fetch(self._sql(CLAIM), list(queues), sets, limit, self._options.redeliver_ms)
                if rows and (deliveries := await self._deliveries(connection, rows)):
                    return deliveries
            left = ends - loop.time()
            if left <= 0:
                return []
            await asyncio.sleep(min(pause_s, left))
            pause_s = min(pause_s * 1.5, POLL_S_MAX)

    async def _deliveries(self, connection: Any, rows: list[Any]) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for number, _, times, data in sorted(rows, key=lambda row: (-row[1], row[0])):
            try:
                if times > self._options.deliveries_max:
                    raise UnreadableMessage(too_often(times - 1))
                deliveries.append(Delivery(self._options.codec.unwrap(data), number, times))
            except UnreadableMessage as error:
                await connection.execute(self._sql(BURY), number, str(error))
        return deliveries

    # ---- what became of it

    async def accept(self, deliveries: Sequence[Delivery]) -> None:
        async with self._connection() as connection:
            await connection.execute(self._sql(ACCEPT), [delivery.receipt for delivery in deliveries])

    async def reject(self, delivery: Delivery, reason: str) -> None:
        async with self._connection() as connection:
            await connection.execute(self._sql(BURY), delivery.receipt, reason)

    async def depth(self) -> QueueDepth:
        async with self._connection() as connection:
            waiting, dead, born = await connection.fetchrow(self._sql(DEPTH))
            return QueueDepth(waiting, dead, born or "")

    async def dead_letters(self, limit: int) -> list[DeadLetter]:
        async with self._connection() as connection:
            return [DeadLetter(reason, data) for reason, data in await connection.fetch(self._sql(DEAD), limit)]


def _away(error: BaseException) -> Unavailable:
    return Unavailable(f"PostgreSQL cannot be reached: {str(error) or type(error).__name__}", retry_after_ms=1_000)
