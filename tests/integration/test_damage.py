"""One flipped bit anywhere in a store is found by `tickwork db check`, or cannot do harm.

Each table gets random flips, one at a time, each in a column of a row. What is not found must be in
`HARMLESS`, with the reason.
"""

import asyncio
import random
import shutil

import apsw
import asyncpg
import msgspec
import pytest

from campaign import LONG
from cli.test_db import FolderHouse, lived_in
from runtime.engine_fixture import Hand, House, task
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.cli.commands.db import _beside
from tickwork.cli.main import main
from tickwork.compose.server import ARTIFACTS, DATABASE
from tickwork.core.state.schedule import FateRange
from tickwork.ports.artifacts import digest_of
from tickwork.ports.store import BackfillRow, CacheRow, ChildRow, InboxRow, IndexEntry, Route, Rows, StoreUnusable
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.runtime.maintenance.integrity_check import check
from tickwork.runtime.maintenance.retention import DAY_MS
from tickwork.runtime.partition.write_behind import AttemptRecord
from tickwork.stores import checksums
from tickwork.stores.postgres.artifacts import PostgresArtifacts
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import FolderArtifacts
from tickwork.system.zone_data import load_zones

FLIPS = 200 if LONG else 3  # of each table
PARTS = 8 if LONG else 1  # so that no test takes long
SEED = 14
HARMLESS = {
    ("watermarks", "writes"): "it only tells a repeated write from a new one; a claim reads it anew",
    ("journal", "epoch"): "nothing decides by it; found where it is out of order",
    ("attempts", "place"): "only the order of a run's rows counts; found where that changes",
    ("migrations", "made_at"): "for people",
}
SHORT_LIVED = {"members", "leases"}  # written again every few seconds; the epoch decides in any case


async def filled(folder):
    """Something in every table."""
    task = await lived_in(folder)
    house = FolderHouse(folder)
    house.clock.pass_ms(5 * DAY_MS)
    engine = await house.open()
    await engine.schedules.put("noon", wire.ScheduleRequest(workflow="flow", cron="0 12 * * *"), by="test")
    await house.submit("flow", id="keyed", key="key-1")
    await engine.runs.cancel("keyed", by="test")
    await house.until("keyed", "cancelled")
    await engine.stop()
    store = SqliteStore(folder / DATABASE, synchronous="OFF")
    await store.open()
    try:
        await store.establish_identity(cluster="c" * 24, partitions=4)
        assert await store.put_route(Route("acme", 0, 2), over=None)
        await store.add_inbox([InboxRow("in-1", 0, "acme", b'{"workflow": "flow"}', "ann")])
        head = await store.claim(0, owner="n1", settings=b"")
        await store.note_renewal(0, epoch=head.epoch)
        run = task & ~0xFF | 0x70
        attempts = [AttemptRecord(run, 0, -1, number, "w1", 1, ended_ms=number * 1_000) for number in (1, 2, 3)]
        encode = msgspec.msgpack.encode
        rows = Rows(
            attempts=[(run, encode([one])) for one in attempts],
            children=[ChildRow(run, 1, child, encode(encode(child))) for child in range(3)],
            cache=[CacheRow("acme/key", b"\x01", 7), CacheRow("acme/other", b"\x02", 8)],
            fates=[FateRange("acme", "noon", 5, 1, at, at + 60_000, 2, 1, "") for at in (1_000, 100_000)],
            backfills=[BackfillRow(9, "acme", "noon", b"backfill"), BackfillRow(10, "acme", "night", b"other")],
            index=[IndexEntry(4, run, 3, b"entry"), IndexEntry(4, run, 5, b"other"), IndexEntry(2, 7, 4, b"held")],
        )
        loaded = await store.load(0)
        await store.write_rows(0, rows, epoch=head.epoch, through=loaded.head.watermark, head=loaded.watermark_hash)
    finally:
        await store.close()
    connection = apsw.Connection(str(folder / DATABASE))
    for value in (b"v" * 2_000, b"w" * 3_000):
        row = (digest_of(value), value, checksums.of_bytes(0, value))
        connection.execute("insert into payloads (digest, data, checksum, day, day_again) values (?, ?, ?, 9, 9)", row)
    connection.close()


def flipped(value, rng):
    """The value with one other bit; None where it has none to flip."""
    if isinstance(value, bool) or value is None or value in ("", b""):
        return None
    if isinstance(value, int):
        return value ^ 1 << rng.randrange(40)
    if isinstance(value, bytes):
        place = rng.randrange(len(value))
        return value[:place] + bytes([value[place] ^ 1 << rng.randrange(8)]) + value[place + 1 :]
    if isinstance(value, str):
        place = rng.randrange(len(value))
        other = chr(ord(value[place]) ^ 1 << rng.randrange(6))
        return value[:place] + other + value[place + 1 :] if other.isprintable() else None
    return None


async def damage_of(store, artifacts, beside=()):
    """What a check finds; a store that cannot be opened is found too."""
    try:
        await store.open()
    except StoreUnusable as error:
        return str(error)
    try:
        return await damage_in(store, artifacts, beside)
    finally:
        await store.close()


async def damage_in(store, artifacts, beside=()):
    """The same of one that is open."""
    found = await check(store, artifacts, load_zones(), lambda _table, _count: None, beside)
    return found.damage or "".join(one.damage for one in found.partitions)


def judge(table, column, was, now, damage, missed):
    if not damage and (table, column) not in HARMLESS:
        missed.append(f"{table}.{column}: {was!r} became {now!r}")


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_flipped_bit_in_a_file_is_found_or_harmless(tmp_path, part):
    await filled(tmp_path / "store")
    database, rng, missed, tables = tmp_path / "store" / DATABASE, random.Random(SEED), [], {}
    artifacts = FolderArtifacts(tmp_path / "store" / ARTIFACTS)
    store = lambda: SqliteStore(database, synchronous="OFF", upgrade=False)  # noqa: E731
    assert await damage_of(store(), artifacts, _beside(str(tmp_path / "store"))) == ""
    shutil.copy(database, tmp_path / "sound.db")
    with apsw.Connection(str(database)) as found:
        for (name,) in found.execute(
            "select name from pragma_table_list where schema = 'main' and name not like 'sqlite%'"
        ):
            tables[name] = [row[1] for row in found.execute(f"pragma table_info({name})")]
    for table, columns in sorted(tables.items())[part::PARTS]:
        for _ in range(FLIPS):
            shutil.copy(tmp_path / "sound.db", database)
            connection = apsw.Connection(str(database))
            column, was, now = flip_in_file(connection, table, columns, rng)
            connection.close()
            judge(table, column, was, now, await damage_of(store(), artifacts), missed)
    shutil.copy(tmp_path / "sound.db", database)
    for file in sorted((tmp_path / "store" / ARTIFACTS).glob("??/*")):
        sound = file.read_bytes()
        file.write_bytes(flipped(sound, rng))
        assert "damaged" in await damage_of(store(), artifacts, _beside(str(tmp_path / "store"))), file
        file.write_bytes(sound)

    assert not missed
    assert len(tables) > 20


def flip_in_file(connection, table, columns, rng):
    keys = [row[1] for row in connection.execute(f"pragma table_info({table})") if row[5]] or ["rowid"]
    rows = connection.execute(f"select {', '.join([*columns, *keys])} from {table}").fetchall()
    assert rows, f"{table} is empty: nothing can be flipped in it"
    while True:
        row, place = rng.choice(rows), rng.randrange(len(columns))
        now = flipped(row[place], rng)
        if now is None:
            continue
        where = " and ".join(f"{key} = ?" for key in keys)
        try:
            connection.execute(f"update {table} set {columns[place]} = ? where {where}", (now, *row[len(columns) :]))
        except apsw.ConstraintError:
            continue
        return columns[place], row[place], now


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_flipped_bit_in_a_database_is_found_or_harmless(tmp_path, postgres, schema, part):  # noqa: F811
    await filled(tmp_path / "store")
    dsn, rng, missed, tables = f"{postgres}?schema={schema}", random.Random(SEED), [], {}
    await copied(tmp_path / "store", dsn)
    artifacts = PostgresArtifacts(dsn)
    store = PostgresStore(dsn)
    await store.open()
    head = await store.claim(0, owner="n1", settings=b"")
    await store.note_renewal(0, epoch=head.epoch)
    await store.establish_identity(cluster="shop", partitions=8)
    await store.close()
    assert await damage_of(PostgresStore(dsn, upgrade=False), artifacts) == ""
    connection = await asyncpg.connect(postgres, server_settings={"search_path": schema})
    columns_of = """select table_name, column_name from information_schema.columns
                     where table_schema = $1 and is_identity = 'NO' or table_schema = $1 and column_name = 'place'"""
    for table, column in await connection.fetch(columns_of, schema):
        tables.setdefault(table, []).append(column)
    await connection.execute("alter table attempts alter column place drop identity if exists")
    reader = PostgresStore(dsn, upgrade=False)
    await reader.open()
    for table, columns in sorted(tables.items())[part::PARTS]:
        if table in SHORT_LIVED:
            continue
        for _ in range(FLIPS):
            column, was, now, undo = await flip_in_database(connection, table, columns, rng)
            found = await damage_in(reader, artifacts)
            if not found:  # some is found when a store is opened
                found = await damage_of(PostgresStore(dsn, upgrade=False), artifacts)
            judge(table, column, was, now, found, missed)
            await undo()
    assert await damage_in(reader, artifacts) == ""
    await reader.close()
    await connection.close()
    await artifacts.close()

    assert not missed
    assert len(tables) > 20


async def copied(folder, dsn):
    assert await asyncio.to_thread(main, ["db", "copy", str(folder), dsn]) == 0


async def flip_in_database(connection, table, columns, rng):
    rows = await connection.fetch(f"select ctid::text as at, {', '.join(columns)} from {table}")
    assert rows, f"{table} is empty: nothing can be flipped in it"
    while True:
        row, column = rng.choice(rows), rng.choice(columns)
        was, now = row[column], flipped(row[column], rng)
        if now is None:
            continue
        change = f"update {table} set {column} = $1 where ctid = $2::text::tid returning ctid::text"
        try:
            place = await connection.fetchval(change, now, row["at"])
        except (asyncpg.PostgresError, asyncpg.DataError):
            continue

        async def undo(change=change, was=was, place=place):
            assert await connection.fetchval(change, was, place)

        return column, was, now, undo


class DatabaseHouse(House):
    def __init__(self, dsn):
        super().__init__()
        self.dsn = dsn

    async def open(self):
        self.store, self.artifacts = PostgresStore(self.dsn), PostgresArtifacts(self.dsn)
        self.engine = Engine(store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1")
        await self.engine.start()
        return self.engine


async def flip_in_payloads(kind, folder, dsn, schema):  # noqa: F811
    if kind == "file":
        connection = apsw.Connection(str(folder / DATABASE))
        [(digest, data)] = connection.execute("select digest, data from payloads").fetchall()
        connection.execute("update payloads set data = ?", (data[:99] + bytes([data[99] ^ 1]) + data[100:],))
        connection.close()
        return digest
    connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
    [(digest, data)] = await connection.fetch("select digest, data from payloads")
    await connection.execute("update payloads set data = $1", data[:99] + bytes([data[99] ^ 1]) + data[100:])
    await connection.close()
    return digest


@pytest.mark.parametrize("kind", ["file", "database"])
async def test_a_task_never_computes_on_a_damaged_argument(tmp_path, postgres, schema, kind):  # noqa: F811
    house = FolderHouse(tmp_path) if kind == "file" else DatabaseHouse(f"{postgres}?schema={schema}")
    await house.open()
    await house.define("add", task("a", args={"items": {"from": "inputs.items"}}), inputs={"items": {"type": "array"}})
    await house.submit("add", id="sum", inputs={"items": [1] * 3_000})
    await house.engine.stop()
    digest = await flip_in_payloads(kind, tmp_path, postgres, schema)
    engine = await house.open()
    hand, seen = Hand(house), []
    hand.functions["a"] = lambda items: seen.append(items) or sum(items)
    await hand.sit_down()
    job = asyncio.create_task(hand.serve())
    try:
        detail = await house.until("sum", "failed")
    finally:
        job.cancel()
        await asyncio.gather(job, return_exceptions=True)
    alarms = [alarm.kind for alarm in engine.context.alarms.recent]
    await engine.stop()

    assert not seen
    assert detail.tasks[0].attempts[-1].error == "DamagedArgument"
    assert digest in detail.tasks[0].attempts[-1].message
    assert "argument_damaged" in alarms
