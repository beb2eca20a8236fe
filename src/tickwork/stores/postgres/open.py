"""From an address to a schema that may be used, or to a message that says why not.

One migration runner: the first node to start brings the schema up to date, the others wait for it. A schema that is
newer than this program, or of another program, is left alone.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.ports.store import StoreUnusable
from tickwork.stores.postgres import checksum_migration as signing
from tickwork.stores.postgres import terms_migration
from tickwork.stores.postgres.connections import CONNECT_S, SCHEMA, Address, address, client
from tickwork.stores.postgres.errors import explained, unreachable
from tickwork.stores.postgres.statements import FILES

if TYPE_CHECKING:
    import asyncpg

VERSION_MIN = 140_000
MIGRATE_S = 600.0  # building an index over what was kept takes as long as it takes
_LOCK = 0x7469636B
# Migration 5 made these under other names before its release; migration 8 makes the function again that names them.
MENDING = """
do $body$
begin
    if to_regclass('run_hints') is not null and to_regclass('run_clues') is null then
        alter table run_hints rename to run_clues;
        alter table run_clues rename column hint to clue;
        alter index run_hints_pkey rename to run_clues_pkey;
    end if;
end
$body$;
"""
_SETTINGS = ["server_version_num", "server_encoding", "data_sync_retry", "fsync", "full_page_writes"]


async def bring_up(address: Address, *, make: bool = True, upgrade: bool = True) -> list[str]:
    """Bring the schema to the version that this program knows. Return notes about this server for a person.

    Without `make`, a missing schema is refused: a command that reads was given a wrong address. Without `upgrade`, an
    older schema is refused, because a reader changes nothing."""
    connection = await _connect(address)
    try:
        notes = await _check_server(connection)
        version = await _version(connection, address.schema)
        if not version and not make:
            raise Refused("unknown_store", f"{address.where} has no store in the schema {address.schema}")
        known = len(FILES.migrations)
        if 0 < version < known and not upgrade:
            raise StoreUnusable(
                f"the schema {address.schema} at {address.where} has version {version}, this program needs {known}. A "
                "command that only reads does not change it: run `tickwork db upgrade` first, or start a node on it"
            )
        if version < known:
            await _migrate(connection, address.schema)
        else:
            FILES.unrecorded(await _recorded(connection, address.schema), version, f"the schema {address.schema}")
        return notes
    except TickworkError:
        raise
    except Exception as error:
        raise explained(error, "opening the store", changes=False) from error
    finally:
        connection.terminate()


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server as it is found."""

    where: str
    server: str  # its version
    schema: int  # how many migrations made it; 0: none did
    known: int
    notes: list[str]


async def look(dsn: str) -> ServerInfo:
    """Nothing is changed. Raises as `bring_up` does."""
    at = address(dsn, schema=SCHEMA)
    connection = await _connect(at)
    try:
        notes = await _check_server(connection)
        server = str(await connection.fetchval("show server_version", timeout=CONNECT_S))
        version = await _version(connection, at.schema)
        return ServerInfo(at.where, server.split()[0], version, len(FILES.migrations), notes)
    except TickworkError:
        raise
    except Exception as error:
        raise explained(error, "looking at the store", changes=False) from error
    finally:
        connection.terminate()


async def _connect(address: Address) -> "asyncpg.Connection[Any]":
    library = client()
    try:
        connection: asyncpg.Connection[Any] = await library.connect(
            address.dsn, timeout=CONNECT_S, statement_cache_size=0
        )
    except Exception as error:
        raise unreachable(error, address.where) from error
    return connection


async def _check_server(connection: "asyncpg.Connection[Any]") -> list[str]:
    rows = await connection.fetch(
        "select name, current_setting(name) as value from unnest($1::text[]) as name", _SETTINGS, timeout=CONNECT_S
    )
    server = {row["name"]: row["value"] for row in rows}
    if int(server["server_version_num"]) < VERSION_MIN:
        raise StoreUnusable("this PostgreSQL is older than 14: use a newer one")
    if server["server_encoding"] != "UTF8":
        raise StoreUnusable(f"the database has the encoding {server['server_encoding']}: create one with UTF8")
    if server["data_sync_retry"] == "on":
        raise StoreUnusable(
            "data_sync_retry is on: after an error of the disk this PostgreSQL would treat lost data as stored. "
            "Switch it off, and restart PostgreSQL"
        )
    if await connection.fetchval("select pg_is_in_recovery()", timeout=CONNECT_S):
        raise StoreUnusable("this PostgreSQL server is a standby: give the address of the primary")
    return [
        f"{name} is off: a crash of the machine can lose or damage acknowledged data"
        for name in ("fsync", "full_page_writes")
        if server[name] == "off"
    ]


async def _version(connection: "asyncpg.Connection[Any]", schema: str) -> int:
    """Return how many migrations made the schema; 0 if there is nothing yet."""
    known = len(FILES.migrations)
    # In one snapshot: between two, another node may have made everything.
    tables = "select array_agg(tablename::text) from pg_tables where schemaname = $1"
    present = await connection.fetchval(tables, schema, timeout=CONNECT_S) or []
    if "migrations" not in present:
        if present:
            raise StoreUnusable(f"the schema {schema} holds tables of another program: name another schema")
        return 0
    version = await connection.fetchval(
        f"select coalesce(max(number), 0) from {schema}.migrations",  # noqa: S608 - a checked name
        timeout=CONNECT_S,
    )
    if version > known:
        raise StoreUnusable(
            f"the schema {schema} has version {version}, this program knows {known}: "
            "run the newer program that wrote it"
        )
    return int(version)


async def _migrate(connection: "asyncpg.Connection[Any]", schema: str) -> None:
    await connection.execute("begin", timeout=CONNECT_S)
    await connection.execute("set local lock_timeout = 0; set local statement_timeout = 0")
    # One at a time: a node that waited finds the work done. It ends with the transaction, so PgBouncer may be between.
    await connection.execute(f"select pg_advisory_xact_lock({_LOCK}, hashtext('{schema}'))", timeout=MIGRATE_S)
    version = await _version(connection, schema)
    await connection.execute(f"create schema if not exists {schema}; set local search_path = {schema}")
    if version == 0:
        await connection.execute(FILES.schema, timeout=MIGRATE_S)
    if 0 < version < len(FILES.migrations):
        await connection.execute(MENDING, timeout=MIGRATE_S)
        for migration in FILES.migrations[version:]:
            await connection.execute(migration.sql, timeout=MIGRATE_S)
            if migration.name == signing.NAME:
                await signing.sign(connection)
            if migration.name == terms_migration.NAME:
                await terms_migration.add_terms(connection)
    where = f"the schema {schema}"
    for migration in FILES.unrecorded(await _recorded(connection, schema), version, where):
        await connection.execute(
            "insert into migrations (number, name, digest) values ($1, $2, $3) on conflict (number) do update set "
            "name = excluded.name, digest = excluded.digest",
            migration.number,
            migration.name,
            migration.digest,
            timeout=CONNECT_S,
        )
    await connection.execute("commit", timeout=CONNECT_S)


async def _recorded(connection: "asyncpg.Connection[Any]", schema: str) -> list[tuple[int, str, str]]:
    rows = await connection.fetch(
        f"select number, name, digest from {schema}.migrations order by number",  # noqa: S608 - a checked name
        timeout=CONNECT_S,
    )
    return [(row["number"], row["name"], row["digest"]) for row in rows]
