"""Connections: one after the other on each, opened when needed and again when lost.

A connection that was left in the middle of anything is thrown away, never mended: the next one starts clean, and the
server ends what was left. Behind PgBouncer in transaction mode nothing may outlive a transaction, so settings are
given in each one and statements have no names.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from tickwork.core.base.errors import TickworkError, Unavailable
from tickwork.ports.store import StoreUnusable
from tickwork.stores.postgres.errors import RETRY_MS, explained, is_bad_data, is_ours, sqlstate, unreachable
from tickwork.stores.postgres.statements import FILES

if TYPE_CHECKING:
    import asyncpg

T = TypeVar("T")
SCHEMA = "tickwork"  # unless another is named
CONNECT_S = 5.0
GOODBYE_S = 2.0
GENERIC = {"plan_cache_mode": "force_generic_plan"}  # for fixed statements: they are not planned again
GRACE_S = 2.0  # the server gives up first, so that most time-outs are clean refusals
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_CLEAN = ("22", "23", "40", "42", "53", "55", "57014")  # errors that leave a connection as good as before
# What is acknowledged is on disk, whatever the server's default; a stronger default (of replicas) stays.
_DURABLE = """select set_config('synchronous_commit', 'on', false)
               where current_setting('synchronous_commit') in ('off', 'local')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the server is, and how it is talked to."""

    dsn: str
    schema: str
    pgbouncer: bool
    lock_ms: int = 4_000
    idle_ms: int = 10_000  # in a transaction: no step of ours takes this long

    @property
    def where(self) -> str:
        """For messages: no user, no password."""
        parts = urlsplit(self.dsn)
        hosts = parts.hostname or dict(parse_qsl(parts.query)).get("host", "")
        return f"{hosts}{f':{parts.port}' if parts.port else ''}{parts.path}"


def address(dsn: str, *, schema: str, pgbouncer: bool | None = None) -> Address:
    """In the address, `?pgbouncer=1` says the same as the argument, and `?schema=NAME` says it before the argument."""
    parts = urlsplit(dsn)
    if parts.scheme not in ("postgresql", "postgres"):
        raise StoreUnusable("the address of PostgreSQL begins with postgresql://")
    words = parse_qsl(parts.query)
    ours = {name: value for name, value in words if name in ("pgbouncer", "schema")}
    named = ours.get("schema", schema)
    if not _SCHEMA.fullmatch(named):
        raise StoreUnusable(f"{named!r} is no name of a schema: use small letters, digits and '_'")
    pooled = ours.get("pgbouncer", "0") not in ("0", "")
    plain = urlunsplit(parts._replace(query=urlencode([(name, value) for name, value in words if name not in ours])))
    return Address(dsn=plain, schema=named, pgbouncer=pooled if pgbouncer is None else pgbouncer)


def client() -> Any:
    """The library, which only those need who use PostgreSQL."""
    try:
        import asyncpg
    except ImportError:
        raise StoreUnusable("PostgreSQL needs a library that is not here: pip install 'tickwork[postgres]'") from None
    return asyncpg


class PostgresConnection:
    """One connection. `changes`: what goes over it changes something, so a lost answer leaves the outcome unknown."""

    def __init__(
        self, address: Address, *, changes: bool, timeout_s: float, settings: dict[str, str] | None = None
    ) -> None:
        self._address = address
        self._changes = changes
        self._timeout_s = timeout_s
        self._own_settings = settings or {}
        self._sql = FILES.queries
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection[Any] | None = None
        self._prepared: dict[str, Any] = {}
        self._closed = False

    # ---- what goes over it

    def is_ready(self, name: str) -> bool:
        """Whether this statement would be sent at once: nothing stands before it, and the server knows it."""
        known = self._connection is not None and not self._connection.is_closed() and name in self._prepared
        return known and not self._turn.locked() and not self._closed

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        """One statement, in a transaction of its own."""
        async with self._turn:
            connection = await self._connected()
            try:
                if self._address.pgbouncer:
                    return await self._alone(connection, name, args)
                statement = self._prepared.get(name)
                if statement is None:
                    statement = self._prepared[name] = await connection.prepare(
                        self._sql[name], timeout=self._timeout_s
                    )
                rows: list[Any] = await statement.fetch(*args, timeout=self._timeout_s)
                return rows
            except BaseException as error:
                raise self._sorted_out(error, name) from error

    async def together(self, work: Callable[["Transaction"], Awaitable[T]], what: str, *, mode: str = "") -> T:
        """Several statements in one transaction."""
        async with self._turn:
            connection = await self._connected()
            try:
                await connection.execute(self._begin(mode), timeout=self._timeout_s)
                result = await work(Transaction(connection, self._sql, self._timeout_s))
                await connection.execute("commit", timeout=self._timeout_s)
                return result
            except BaseException as error:
                await self._roll_back(connection, error)
                raise self._sorted_out(error, what) from error

    async def _roll_back(self, connection: "asyncpg.Connection[Any]", error: BaseException) -> None:
        """Where the error leaves anything to be rolled back."""
        if sqlstate(error).startswith(_CLEAN) or isinstance(error, TickworkError):
            try:
                await connection.execute("rollback", timeout=self._timeout_s)
                return
            except Exception:  # noqa: S110 - it goes anyway, and what went wrong first is on its way up
                pass
        self.drop()

    async def _alone(self, connection: "asyncpg.Connection[Any]", name: str, args: Sequence[Any]) -> list[Any]:
        """Parse and execute are two messages: outside a transaction two servers could get them."""
        try:
            await connection.execute(self._begin(""), timeout=self._timeout_s)
            rows: list[Any] = await connection.fetch(self._sql[name], *args, timeout=self._timeout_s)
            await connection.execute("commit", timeout=self._timeout_s)
            return rows
        except BaseException:
            self.drop()
            raise

    def _begin(self, mode: str) -> str:
        if not self._address.pgbouncer:
            return f"begin {mode}"
        local = [f"set local {name} = {value}" for name, value in self._settings().items()]
        durable = ["set local synchronous_commit = on"] if self._changes else []
        return "; ".join([f"begin {mode}", *local, *durable])

    def _settings(self) -> dict[str, str]:
        return {
            "search_path": self._address.schema,
            "statement_timeout": str(round((self._timeout_s - GRACE_S) * 1000)),
            "lock_timeout": str(min(self._address.lock_ms, round((self._timeout_s - GRACE_S) * 1000))),
            "idle_in_transaction_session_timeout": str(self._address.idle_ms),
            "jit": "off",
            **self._own_settings,
        }

    # ---- the connection

    async def open(self) -> None:
        """Before it is needed."""
        async with self._turn:
            await self._connected()

    async def _connected(self) -> "asyncpg.Connection[Any]":
        if self._closed:
            raise Unavailable("the store is closed", retry_after_ms=RETRY_MS)
        connection = self._connection
        if connection is None or connection.is_closed():
            self.drop()
            connection = self._connection = await self._connect()
        return connection

    async def _connect(self) -> "asyncpg.Connection[Any]":
        library, bouncer = client(), self._address.pgbouncer
        settings = None if bouncer else self._settings() | {"application_name": "tickwork"}
        try:
            connection: asyncpg.Connection[Any] = await library.connect(
                self._address.dsn,
                timeout=CONNECT_S,
                statement_cache_size=0 if bouncer else 100,
                server_settings=settings,
            )
            if self._changes and not bouncer:
                await connection.execute(_DURABLE, timeout=CONNECT_S)
        except Exception as error:
            if isinstance(error, TickworkError):
                raise
            raise unreachable(error, self._address.where) from error
        return connection

    def _sorted_out(self, error: BaseException, what: str) -> BaseException:
        """The error to raise. The connection goes, but where it is certainly as good as before."""
        if not sqlstate(error).startswith(_CLEAN) and not isinstance(error, TickworkError):
            self.drop()
        if isinstance(error, TickworkError) or not isinstance(error, Exception) or is_ours(error):
            return error
        if is_bad_data(error) and not self._changes:
            return ValueError(f"{what}: {error}")
        return explained(error, what, changes=self._changes)

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        self._prepared.clear()
        if connection is not None and not connection.is_closed():
            connection.terminate()

    async def close(self) -> None:
        """When what is under way has ended."""
        self._closed = True
        async with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None and not connection.is_closed():
                try:
                    await connection.close(timeout=GOODBYE_S)
                except Exception:
                    connection.terminate()


class Transaction:
    """Inside a transaction."""

    def __init__(self, connection: "asyncpg.Connection[Any]", sql: dict[str, str], timeout_s: float) -> None:
        self._connection = connection
        self._sql = sql
        self._timeout_s = timeout_s

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(self._sql[name], *args, timeout=self._timeout_s)
        return rows

    async def plain(self, sql: str, *args: Any) -> list[Any]:
        """A statement without a name: for what is done once."""
        rows: list[Any] = await self._connection.fetch(sql, *args, timeout=self._timeout_s)
        return rows

    async def stream(self, sql: str, rows: int) -> AsyncIterator[list[Any]]:
        """So many at a time."""
        cursor = await self._connection.cursor(sql, timeout=self._timeout_s)
        while batch := await cursor.fetch(rows, timeout=self._timeout_s):
            yield batch

    async def copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[Any, ...]]) -> None:
        await self._connection.copy_records_to_table(table, records=records, columns=columns, timeout=self._timeout_s)


class ConnectionPool:
    """A few connections. The one that was used last is used first."""

    def __init__(self, make: Callable[[], PostgresConnection], *, count: int) -> None:
        self._idle = [make() for _ in range(count)]
        self._all = tuple(self._idle)
        self._free = asyncio.Semaphore(count)

    async def fetch(self, name: str, *args: Any) -> list[Any]:
        return await self._with(lambda line: line.fetch(name, *args))

    async def together(self, work: Callable[[Transaction], Awaitable[T]], what: str, *, mode: str = "") -> T:
        return await self._with(lambda line: line.together(work, what, mode=mode))

    async def _with(self, action: Callable[[PostgresConnection], Awaitable[T]]) -> T:
        async with self._free:
            line = self._idle.pop()
            try:
                return await action(line)
            finally:
                self._idle.append(line)

    async def close(self) -> None:
        await asyncio.gather(*(line.close() for line in self._all))
