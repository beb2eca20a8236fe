"""Stores of every earlier schema come up to date, and who only reads changes nothing.

`schemas/` holds the texts that some migrations had before they were edited: stores were made with them.
"""

import os
from contextlib import closing
from pathlib import Path
from zlib import crc32

import apsw
import asyncpg
import pytest

from conformance.store_suite import FAILED, HOUR, J, N, P, run
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.cli.main import main
from tickwork.compose.server import DATABASE
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import Rows, RunFilter, StoreUnusable, TimeRange
from tickwork.stores import checksums
from tickwork.stores.postgres import checksum_migration as signing
from tickwork.stores.postgres.statements import FILES
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite import open as opening
from tickwork.stores.sqlite.statements import migrations
from tickwork.stores.sqlite.store import SqliteStore

EARLIER = Path(__file__).parent / "schemas"
VALUE = b"v" * 2_000
# Migrations as they are recorded: an edit of one is an edit of stores that are in use. Add a line for a new one.
DIGESTS = {
    "sqlite": {
        1: "ef1770fb3943562a86235eebae42cb81",
        2: "1793986fb3bc9fdf3a929590ae53cb1d",
        3: "c4856baa05a9639f5a40bc54c6ca4d4a",
        4: "9da569ee025457e9bdd46ca8cf12e598",
        5: "298f67c18ea3a51ca3aad711312fa799",
        6: "e55ef54c0333a0b54bb628aedff536e8",
        7: "149a492d1e83e557d470fe966fa1263a",
        8: "362aabffaafdefc2c82ce7174caf6206",
        9: "92f941b801dff021c2c55a84b4247c06",
        10: "2cb7a49512b0edf7c2093ff5264c345c",
        11: "872cda32baadb1fc2548bac08301fa22",
        12: "e3b0c44298fc1c149afbf4c8996fb924",
        13: "354b7196c9ba5fb4b21cf615bb6ec4cd",
    },
    "postgres": {
        1: "1f2e0526e58b5ddf945d5057fd744aba",
        2: "48f11137b70901c509b33a66aacb5de1",
        3: "e5024af97c73f96561fff3f6d29a653c",
        4: "7d5c9850f37b041b44618b712ec6ec56",
        5: "7b3eb1fa1b877b30f7b7decd9b85e8c8",
        6: "45eedb662861a085e14aed77b51d3f48",
        7: "322166ae8b545bf9c5c45dc5e99bfa04",
        8: "4279b8df00113fc283c4e39595002838",
        9: "2a8c668dcb8c0e135a54e5ec657574de",
        10: "cee3bf70ab65fb7a22cda1ca5cc600b9",
        11: "3b223f2cc157ea2a3da38b210af4798c",
        12: "c0a0e327db4232beca61bf1373862fb0",
        13: "354b7196c9ba5fb4b21cf615bb6ec4cd",
    },
}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TICKWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def histories(kind, files):
    """Every version with today's texts, and with each earlier text of one of its migrations."""
    for version in range(1, len(files) + 1):
        yield pytest.param(version, None, id=f"{version}")
    for earlier in sorted((EARLIER / kind).glob("*.sql")):
        number = int(earlier.name[:4])
        yield pytest.param(number, earlier, id=earlier.stem)


def texts(files, version, earlier):
    found = [migration.sql for migration in files[:version]]
    if earlier is not None:
        found[version - 1] = earlier.read_text()
    return found


# ---- migrations stay as they are


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_migration_that_landed_is_never_edited(kind):
    files = migrations() if kind == "sqlite" else FILES.migrations

    assert {migration.number: migration.digest for migration in files} == DIGESTS[kind]


def test_both_stores_have_the_same_migrations():
    assert [(one.number, one.name) for one in migrations()] == [(one.number, one.name) for one in FILES.migrations]


# ---- SQLite


def sqlite_of(path, version, earlier=None):
    old = apsw.Connection(str(path))
    for text in texts(migrations(), version, earlier):
        old.execute(text)
    for migration in migrations()[:version] if "migrations" in opening.shape(old) else ():
        old.execute("insert into migrations values (?, ?, ?)", (migration.number, migration.name, migration.digest))
    old.pragma("application_id", opening.APPLICATION_ID)
    old.pragma("user_version", version)
    return old


def fill_sqlite(old):
    """What every schema could hold: a partition with its journal, and a value."""
    summed = old.pragma("user_version") >= 9
    epoch = checksums.of_epoch(P, 1, "n1") if summed else crc32(b"%d 1" % P)
    head = (P, 1, "n1", 2, J[1].tick, J[1].hash, 0, bytes(32), epoch)
    old.execute("insert into partitions values (?, ?, ?, ?, ?, ?, ?, ?, ?)", head)
    settings = checksums.of_bytes(0, b"s")
    old.execute("insert into machines values (?, ?, ?, ?, ?)", (P, b"s", settings, b"", checksums.of_bytes(0, b"")))
    for row in J[:2]:
        old.execute("insert into journal values (?, ?, 1, ?, ?, ?)", (P, row.seq, row.tick, row.hash, row.data))
    old.execute(
        "insert into payloads (digest, data, checksum) values (?, ?, ?)",
        (digest_of(VALUE), VALUE, checksums.of_bytes(0, VALUE)),
    )


@pytest.mark.parametrize(("version", "earlier"), list(histories("sqlite", migrations())))
async def test_a_file_of_every_earlier_schema_is_brought_up_to_date(tmp_path, version, earlier):
    with closing(sqlite_of(tmp_path / "s.db", version, earlier)) as old:
        fill_sqlite(old)
    store = SqliteStore(tmp_path / "s.db", synchronous="OFF")
    await store.open()
    try:
        assert (await store.load(P)).tail == J[:2]
        assert await store.read_payloads([digest_of(VALUE)]) == {digest_of(VALUE): VALUE}
        await store.claim(P, owner="n2", settings=b"")
        await store.write_rows(
            P, Rows(header=b"h", runs=[run(N + 1, id="named-7")]), epoch=2, through=2, head=J[1].hash
        )
        assert [row.id for row in (await store.list_runs(RunFilter("acme"))).rows] == ["named-7"]
        assert await store.find_runs("acme", ids=["named-7"])
    finally:
        await store.close()


TERMS = next(one.number for one in FILES.migrations if one.name == "terms")
OLD_RUNS = [
    run(N + 1, error="charge: TimeoutError", state=FAILED, ended_ms=9 * HOUR),
    run(N + 2, ended_ms=9 * HOUR),
    run(N + 700, error="load: disk full", state=FAILED, ended_ms=99 * HOUR),
]


async def require_found(store):
    """Runs that ended under an older schema are found, and the index is as the check expects it."""

    async def numbers(**wanted):
        return [row.number - N for row in (await store.list_runs(RunFilter("acme", **wanted))).rows]

    assert await numbers(error="timeout") == [1]
    assert await numbers(error="disk") == [700]
    assert await numbers(ended=TimeRange(8 * HOUR, 10 * HOUR)) == [2, 1]
    batches = []

    async def take(batch):
        batches.append(batch)

    await store.export(take)
    assert sum(len(batch.rows) for batch in batches if batch.table == "runs") == len(OLD_RUNS)


async def with_old_runs(store):
    await store.claim(P, owner="n1", settings=b"")
    await store.write_rows(P, Rows(header=b"h", runs=OLD_RUNS), epoch=1, through=0, head=bytes(32))


async def test_runs_that_ended_in_a_file_without_terms_are_found(tmp_path):
    store = SqliteStore(tmp_path / "s.db", synchronous="OFF")
    await store.open()
    await with_old_runs(store)
    await store.close()
    with closing(apsw.Connection(str(tmp_path / "s.db"))) as old:
        old.execute("delete from run_clues where clue >= 1 << 61")
        old.execute("delete from migrations where number >= ?", (TERMS,))
        old.pragma("user_version", TERMS - 1)

    store = SqliteStore(tmp_path / "s.db", synchronous="OFF")
    await store.open()
    try:
        await require_found(store)
    finally:
        await store.close()


async def test_clues_that_had_another_name_are_kept(tmp_path):
    with closing(sqlite_of(tmp_path / "s.db", 5, EARLIER / "sqlite" / "0005-7b53fce.sql")) as old:
        old.execute("insert into run_hints values (7, 0)")
    store = SqliteStore(tmp_path / "s.db", synchronous="OFF")
    await store.open()
    await store.close()

    with closing(apsw.Connection(str(tmp_path / "s.db"))) as now:
        assert now.execute("select * from run_clues").fetchall() == [(7, 0)]


async def test_rows_in_a_form_that_no_migration_knows_are_refused_and_left(tmp_path):
    with closing(sqlite_of(tmp_path / "s.db", 5, EARLIER / "sqlite" / "0005-5c9822c.sql")) as old:
        old.execute("insert into run_blocks values (1, 1, x'00', 0)")
    with pytest.raises(StoreUnusable, match=r"schema 5 .* rows in run_blocks: make a backup with the program"):
        await SqliteStore(tmp_path / "s.db").open()

    with closing(apsw.Connection(str(tmp_path / "s.db"))) as still:
        assert still.pragma("user_version") == 5
        assert still.execute("select first from run_blocks").fetchall() == [(1,)]


async def test_a_file_made_by_an_edited_migration_is_refused_by_name(tmp_path):
    store = SqliteStore(tmp_path / "s.db", synchronous="OFF")
    await store.open()
    await store.close()
    with closing(apsw.Connection(str(tmp_path / "s.db"))) as edited:
        edited.execute("update migrations set digest = 'another' where number = 5")

    with pytest.raises(StoreUnusable, match=r"migration 5 \(blocks\) that made this store is not migration 5"):
        await SqliteStore(tmp_path / "s.db").open()


@pytest.mark.parametrize(
    "command",
    [
        ["runs", "--data", "."],
        ["show", "x", "--data", "."],
        ["why", "x", "--data", "."],
        ["replay", "--data", "."],
        ["auditor", "--data", "."],
        ["db", "check", "--store", "."],
        ["db", "copy", ".", "elsewhere"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_command_that_only_reads_leaves_an_older_schema_alone(tmp_path, capsys, command):
    with closing(sqlite_of(tmp_path / DATABASE, 5)) as old:
        fill_sqlite(old)

    assert main(command) == 78
    assert "tickwork db upgrade --store" in capsys.readouterr().err
    with closing(apsw.Connection(str(tmp_path / DATABASE))) as still:
        assert still.pragma("user_version") == 5
    assert main(["db", "upgrade", "--store", "."]) == 0
    with closing(apsw.Connection(str(tmp_path / DATABASE))) as now:
        assert now.pragma("user_version") == len(migrations())


# ---- PostgreSQL


async def postgres_of(dsn, schema, version, earlier=None):  # noqa: F811
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"create schema {schema}; set search_path = {schema}")
    for text in texts(FILES.migrations, version, earlier):
        await connection.execute(text)
    for migration in FILES.migrations[:version]:
        add = "insert into migrations (number, name) values ($1, $2)"
        await connection.execute(add, migration.number, migration.name)
        if any(one.name == "digests" for one in FILES.migrations[:version]):
            note = "update migrations set digest = $2 where number = $1"
            await connection.execute(note, migration.number, migration.digest)
    return connection


async def fill_postgres(old):
    await old.execute("insert into partitions values ($1, 1, 'n1', 0, 0, $2)", P, bytes(32))
    await old.execute("insert into watermarks values ($1, 1, 0, $2, 0)", P, bytes(32))
    await old.execute("insert into machines (partition_id, settings, header) values ($1, 's', '')", P)
    for row in J[:2]:
        add = "insert into journal values ($1, $2, 1, $3, $4, $5)"
        await old.execute(add, P, row.seq, row.tick, row.hash, row.data)
    await old.execute("insert into payloads (digest, data) values ($1, $2)", digest_of(VALUE), VALUE)
    if await old.fetchval("select count(*) from migrations where name = 'checksums'"):
        async with old.transaction():
            await signing.sign(old)


@pytest.mark.parametrize(("version", "earlier"), list(histories("postgres", FILES.migrations)))
async def test_a_database_of_every_earlier_schema_is_brought_up_to_date(postgres, schema, version, earlier):  # noqa: F811
    old = await postgres_of(postgres, schema, version, earlier)
    await fill_postgres(old)
    store = PostgresStore(postgres, schema=schema)
    await store.open()
    try:
        assert (await store.load(P)).tail == J[:2]
        assert await store.read_payloads([digest_of(VALUE)]) == {digest_of(VALUE): VALUE}
        await store.claim(P, owner="n2", settings=b"")
        await store.write_rows(
            P, Rows(header=b"h", runs=[run(N + 1, id="named-7")]), epoch=2, through=2, head=J[1].hash
        )
        assert [row.id for row in (await store.list_runs(RunFilter("acme"))).rows] == ["named-7"]
        assert await store.find_runs("acme", ids=["named-7"])
        assert await old.fetchval("select count(*) from migrations where digest <> ''") == len(FILES.migrations)
    finally:
        await store.close()
        await old.close()


async def test_runs_that_ended_in_a_database_without_terms_are_found(postgres, schema):  # noqa: F811
    store = PostgresStore(postgres, schema=schema)
    await store.open()
    await with_old_runs(store)
    await store.close()
    old = await asyncpg.connect(postgres)
    await old.execute(f"set search_path = {schema}; delete from run_clues where clue >= 1::bigint << 61")
    await old.execute("delete from migrations where number >= $1", TERMS)
    await old.close()

    store = PostgresStore(postgres, schema=schema)
    await store.open()
    try:
        await require_found(store)
    finally:
        await store.close()


async def test_a_database_made_by_an_edited_migration_is_refused_by_name(postgres, schema):  # noqa: F811
    old = await postgres_of(postgres, schema, len(FILES.migrations))
    await old.execute("update migrations set digest = 'another' where number = 5")
    await old.close()

    with pytest.raises(StoreUnusable, match=r"migration 5 \(blocks\) that made this store is not migration 5"):
        await PostgresStore(postgres, schema=schema).open()


async def test_who_only_reads_leaves_an_older_database_alone(postgres, schema):  # noqa: F811
    old = await postgres_of(postgres, schema, 5)

    with pytest.raises(StoreUnusable, match=r"version 5.*tickwork db upgrade"):
        await PostgresStore(postgres, schema=schema, upgrade=False).open()
    assert await old.fetchval("select max(number) from migrations") == 5
    await old.close()
