"""`tickwork db`: a store is checked, backed up, restored and copied, and a copy can never be taken for the original."""

import asyncio
import json
import os

import apsw
import httpx2
import msgspec
import pytest

from runtime.engine_fixture import Hand, House, task
from servers import postgres, postgres_server, schema  # noqa: F401 - fixtures
from tickwork.cli.main import main
from tickwork.compose.cluster import serving_node
from tickwork.compose.server import ARTIFACTS, DATABASE, serving
from tickwork.compose.settings import Settings
from tickwork.core.base.errors import Corrupt
from tickwork.ports.store import Fenced
from tickwork.protocol import http_models as wire
from tickwork.runtime.engine import Engine
from tickwork.runtime.maintenance import backup as moving
from tickwork.runtime.maintenance.retention import DAY_MS, RetentionPolicy
from tickwork.stores.postgres.store import PostgresStore
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.clock import FolderArtifacts


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TICKWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


class FolderHouse(House):
    """On a real folder, whose journal and runs are partly in the archive."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.artifacts = folder, FolderArtifacts(folder / ARTIFACTS)

    async def open(self):
        self.store = SqliteStore(self.folder / DATABASE, synchronous="OFF")
        keep = RetentionPolicy(runs_ms=3 * DAY_MS, journal_ms=3 * DAY_MS)
        self.engine = Engine(
            store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1", keep=keep
        )
        await self.engine.start()
        self.engine.maintenance._jobs.pop().cancel()
        return self.engine


async def lived_in(folder, *, archived=True):
    house = FolderHouse(folder)
    engine = await house.open()
    await house.define("flow", task("a"))
    hand = Hand(house)
    hand.functions["a"] = lambda: "x" * 100_000
    await hand.sit_down()
    job = asyncio.create_task(hand.serve())
    for run_id in ("old", "newer"):
        await house.submit("flow", id=run_id)
        await house.until(run_id, "completed")
        if archived and run_id == "old":
            house.clock.pass_ms(4 * DAY_MS)
            await engine.admin.pause("queue", "default", by="test")
            await engine.admin.resume("queue", "default", by="test")
            async with asyncio.timeout(5):
                while engine.context.live.writer.watermark < engine.context.live.durable_seq:
                    await asyncio.sleep(0.01)
            await engine.maintenance.retention.look_through()
    task_id = int((await engine.queries.run("newer")).tasks[0].id)
    line = b'{"at": 1, "stream": "stdout", "text": "hello"}\n'
    await engine.context.logs.append(task_id, 1, chunk=0, first=0, data=line)
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    await house.submit("flow", id="waits")
    await engine.stop()
    return task_id


def told(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def hash_of(folder):
    return asyncio.run(_head(SqliteStore(folder / DATABASE))).hash.hex()


async def _head(store):
    await store.open()
    try:
        return await store.read_head(0)
    finally:
        await store.close()


async def opens(folder):
    """A server on what was restored: old, new and waiting runs are there, with values and logs."""
    async with serving(Settings(data=str(folder), port=0), own_process=False) as (engine, _):
        states = [(await engine.queries.run(run_id)).state for run_id in ("old", "newer", "waits")]
        detail = await engine.queries.run("newer")
        values = [len(await engine.queries.value_bytes(run_id, "a")) for run_id in ("old", "newer")]
        logs = [lines async for _, lines in engine.context.logs.read(int(detail.tasks[0].id), 1)]
        epoch = (await engine.overview.status()).epoch
    return states, values, logs, epoch


@pytest.mark.proves("P12", "F24", "I3")
def test_a_backup_comes_back_as_another_cluster(tmp_path, capsys):
    first, second = tmp_path / "first", tmp_path / "second"
    asyncio.run(lived_in(first))

    assert main(["db", "backup", "all.twb", "--store", str(first), "--json"]) == 0
    backed = told(capsys)
    assert main(["db", "restore", "all.twb", "--store", str(second), "--json"]) == 0
    restored = told(capsys)
    assert restored["partitions"] == backed["partitions"] == {"0": hash_of(first)}
    assert restored["rows"] == backed["rows"] and sorted(os.listdir(tmp_path)) == ["all.twb", "first", "second"]
    assert (tmp_path / "all.twb").stat().st_mode & 0o077 == 0
    assert main(["db", "check", "--store", str(second), "--json"]) == 0
    checked = told(capsys)["partitions"][0]
    assert checked["folded"] and checked["archived"] > 0 and checked["verified"] == checked["seq"]
    states, values, logs, epoch = asyncio.run(opens(second))
    assert states == ["completed", "completed", "active"] and values == [100_005, 100_005]
    assert logs == [[(1, "stdout", "hello")]] and epoch > moving.EPOCH_STEP
    assert main(["db", "restore", "all.twb", "--store", str(second)]) == 4


@pytest.mark.proves("F24", "I2")
async def test_owners_of_the_original_cannot_write_into_a_copy_nor_the_other_way(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    await lived_in(first, archived=False)
    assert await asyncio.to_thread(main, ["db", "copy", str(first), str(second)]) == 0
    stores = [SqliteStore(folder / DATABASE) for folder in (first, second)]
    for store in stores:
        await store.open()
    heads = [await store.claim(0, owner="n", settings=b"") for store in stores]
    row = msgspec.structs.replace((await stores[0].journal(0, after=0, limit=1))[0], seq=heads[0].seq + 1)

    assert heads[0].hash == heads[1].hash and heads[1].epoch - heads[0].epoch == moving.EPOCH_STEP
    for store, head in zip(stores, reversed(heads), strict=True):
        with pytest.raises(Fenced):
            await store.commit(0, row, [], epoch=head.epoch)
    for store in stores:
        await store.close()


@pytest.mark.proves("P12")
async def test_a_backup_is_made_while_the_server_writes(tmp_path):
    folder = tmp_path / "live"
    async with serving(Settings(data=str(folder), port=0), own_process=True) as (engine, _):
        document = {"name": "flow", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}
        await engine.workflows.publish(wire.Publication(documents=(document,)), by="test")
        busy = True

        async def submit():
            while busy:
                await engine.runs.submit([wire.Submission(workflow="flow") for _ in range(20)], by="test")

        writing = asyncio.create_task(submit())
        assert await asyncio.to_thread(main, ["db", "backup", "live.twb", "--store", str(folder)]) == 0
        assert await asyncio.to_thread(main, ["db", "check", "--store", str(folder)]) == 4, "it is in use"
        busy = False
        await writing

    assert await asyncio.to_thread(main, ["db", "restore", "live.twb", "--store", "back"]) == 0
    assert await asyncio.to_thread(main, ["db", "check", "--store", "back"]) == 0


@pytest.mark.proves("I13")
@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("update run_blocks set data = x'00'", "a row of runs"),
        ("update run_clues set stretch = stretch + 1", "index entry of run"),
        ("insert into run_clues values (1, 1)", "index of runs"),
        ("update machines set header = x'00', header_checksum = 0", "header"),
        ("update journal set data = substr(data, 1, length(data) - 4) where seq = 3", "seq 3"),
        ("delete from journal where seq = 4", "gap"),
        ("update partitions set hash = zeroblob(32)", "head"),
    ],
)
def test_damage_is_found(tmp_path, capsys, sql, words):
    asyncio.run(lived_in(tmp_path / "store", archived=False))
    connection = apsw.Connection(str(tmp_path / "store" / DATABASE))
    connection.execute(sql)
    connection.close()

    assert main(["db", "check", "--store", "store"]) == 65
    assert words in capsys.readouterr().err


def test_rows_that_the_journal_does_not_make_are_found(tmp_path, capsys):
    """Each of them has the checksum it should have; only a fold of the journal tells."""
    asyncio.run(lived_in(tmp_path / "store", archived=False))
    connection = apsw.Connection(str(tmp_path / "store" / DATABASE))
    [(number, data)] = connection.execute("select number, data from live_runs limit 1").fetchall()
    from tickwork.stores import checksums

    other = data.replace(b"waits", b"walks")
    assert other != data
    connection.execute("update live_runs set data = ?, checksum = ?", (other, checksums.of_bytes(number, other)))
    connection.close()

    assert main(["db", "check", "--store", "store"]) == 65
    assert "not what the journal makes" in capsys.readouterr().err


def test_a_backup_that_is_cut_off_or_changed_is_refused_and_nothing_comes_in(tmp_path, capsys):
    asyncio.run(lived_in(tmp_path / "store", archived=False))
    assert main(["db", "backup", "whole.twb", "--store", "store"]) == 0
    data = (tmp_path / "whole.twb").read_bytes()
    flipped = data[:500] + bytes([data[500] ^ 1]) + data[501:]
    for place, changed in enumerate((data[:-9], data[:100], flipped, b"other", data + b"x")):
        (tmp_path / f"{place}.twb").write_bytes(changed)
        assert main(["db", "restore", f"{place}.twb", "--store", "target"]) == 65

    assert main(["db", "restore", "whole.twb", "--store", "target"]) == 0
    assert main(["db", "backup", "whole.twb", "--store", "store"]) == 4, "a backup never replaces another"
    assert main(["db", "restore", "nowhere.twb", "--store", "elsewhere"]) == 3
    assert main(["db", "check", "--store", "nothing"]) == 3
    assert main(["db", "upgrade", "--store", "target", "--json"]) == 0
    assert main(["db"]) == 2
    capsys.readouterr()
    with (tmp_path / "0.twb").open("rb") as file, pytest.raises(Corrupt):
        list(moving.read(file))


def test_a_newer_schema_is_refused(tmp_path, capsys):
    asyncio.run(lived_in(tmp_path / "store", archived=False))
    connection = apsw.Connection(str(tmp_path / "store" / DATABASE))
    connection.pragma("user_version", 99)
    connection.close()

    assert main(["db", "upgrade", "--store", "store"]) == 78
    assert "newer" in capsys.readouterr().err


@pytest.mark.proves("P12")
def test_from_a_folder_to_postgresql_and_back(tmp_path, capsys, postgres, schema):  # noqa: F811
    asyncio.run(lived_in(tmp_path / "first"))
    address = f"{postgres}?schema={schema}"

    assert main(["db", "copy", str(tmp_path / "first"), address, "--json"]) == 0
    there = told(capsys)
    assert there["partitions"] == {"0": hash_of(tmp_path / "first")} and postgres.split("@")[0] not in there["target"]
    assert main(["db", "check", "--store", address, "--json"]) == 0
    assert told(capsys)["partitions"][0]["folded"]
    assert main(["db", "copy", str(tmp_path / "first"), address]) == 4
    assert main(["db", "backup", "pg.twb", "--store", address]) == 0
    assert main(["db", "copy", address, str(tmp_path / "second")]) == 0
    assert main(["db", "restore", "pg.twb", "--store", str(tmp_path / "third")]) == 0
    capsys.readouterr()
    for folder in ("second", "third"):
        assert hash_of(tmp_path / folder) == there["partitions"]["0"]
        assert main(["db", "check", "--store", folder]) == 0
        states, values, logs, _ = asyncio.run(opens(tmp_path / folder))
        assert states == ["completed", "completed", "active"] and values == [100_005, 100_005]
        assert logs == [[(1, "stdout", "hello")]]
    assert asyncio.run(_head(PostgresStore(postgres, schema=schema))).epoch > moving.EPOCH_STEP
    epoch, runs = asyncio.run(served_by_a_node(address))
    assert epoch > moving.EPOCH_STEP + 1
    assert runs == {"old": "completed", "newer": "completed", "waits": "active"}


async def served_by_a_node(address):
    """What a cluster of eight partitions makes of it, asked as anybody would."""
    async with (
        serving_node(Settings(store=address, port=0, lease_ttl="3s")) as (node, server),
        httpx2.AsyncClient(base_url=server.address) as client,
    ):
        found = {one: (await client.get(f"/v1/runs/{one}")).json().get("state") for one in ("old", "newer", "waits")}
        listed = {run["id"] for run in (await client.get("/v1/runs")).json()["runs"]}
        assert node.partitions == 8 and listed == {"newer", "waits"}  # lists leave out what is archived
        return (await node.store.read_head(0)).epoch, found


async def spread_out(address):
    async with (
        serving_node(Settings(store=address, port=0, lease_ttl="3s")) as (_, server),
        httpx2.AsyncClient(base_url=server.address) as client,
    ):
        document = {"name": "flow", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}
        assert (await client.put("/v1/workflows", json={"documents": [document]})).status_code < 300
        assert (await client.post("/v1/runs", json={"workflow": "flow", "id": "waits"})).status_code < 300


def test_work_of_a_cluster_is_not_put_where_no_server_would_find_it(tmp_path, capsys, postgres, schema):  # noqa: F811
    address = f"{postgres}?schema={schema}"
    asyncio.run(spread_out(address))

    assert main(["db", "copy", address, "folder"]) == 4
    assert "partition 3" in capsys.readouterr().err
    assert main(["db", "copy", address, f"{postgres}?schema={schema}_too"]) == 0
    assert main(["db", "check", "--store", f"{postgres}?schema={schema}_too"]) == 0


@pytest.mark.parametrize("words", [["check"], ["backup", "all.twb"]], ids=["check", "backup"])
def test_a_database_without_a_store_is_no_empty_store(tmp_path, capsys, postgres, schema, words):  # noqa: F811
    assert main(["db", *words, "--store", f"{postgres}?schema={schema}"]) == 3
    assert f"no store in the schema {schema}" in capsys.readouterr().err
    assert main(["db", "copy", f"{postgres}?schema={schema}", "folder"]) == 3
    assert os.listdir(tmp_path) == []
    assert main(["db", "upgrade", "--store", f"{postgres}?schema={schema}"]) == 0


def test_a_database_that_nodes_use_is_not_copied_but_can_be_backed_up(tmp_path, capsys, postgres, schema):  # noqa: F811
    address = f"{postgres}?schema={schema}"

    async def beside():
        async with serving_node(Settings(store=address, port=0, node_name="ann", lease_ttl="3s")):
            copied = await asyncio.to_thread(main, ["db", "copy", address, f"{postgres}?schema={schema}_too"])
            return copied, await asyncio.to_thread(main, ["db", "backup", "all.twb", "--store", address])

    assert asyncio.run(beside()) == (4, 0)
    assert "in use by ann" in capsys.readouterr().err
    assert main(["db", "copy", address, f"{postgres}?schema={schema}_too"]) == 0


def test_the_doctor_looks_at_the_shared_store_and_changes_nothing(capsys, monkeypatch, postgres, schema):  # noqa: F811
    def looked():
        main(["doctor", "--json"])
        found = [one for one in told(capsys)["checks"] if one["name"] in ("store", "folder", "schema")]
        assert {one["name"] for one in found} == {"store"}
        return [(one["result"], one["detail"]) for one in found]

    monkeypatch.setenv("TICKWORK_STORE", f"{postgres}?schema={schema}")
    assert looked()[0][1].endswith("no store yet; the first start creates it")
    assert main(["db", "check"]) == 3  # it made none
    assert main(["db", "upgrade"]) == 0
    capsys.readouterr()
    [(result, detail), (risk, _)] = looked()
    assert (result, risk) == ("ok", "warn") and " schema " in detail and "postgres@" not in detail
    monkeypatch.setenv("TICKWORK_STORE", "postgresql://nobody@127.0.0.1:1/x")
    assert [result for result, _ in looked()] == ["fail"]


@pytest.mark.parametrize("there", [False, True])
def test_a_refused_restore_leaves_nothing_behind(tmp_path, capsys, there):
    asyncio.run(lived_in(tmp_path / "store"))
    assert main(["db", "backup", "whole.twb", "--store", "store"]) == 0
    (tmp_path / "cut.twb").write_bytes((tmp_path / "whole.twb").read_bytes()[:-9])
    if there:
        (tmp_path / "target").mkdir()
        (tmp_path / "target" / "notes.txt").write_text("of somebody")
    before = sorted(tmp_path.rglob("*"))

    assert main(["db", "restore", "cut.twb", "--store", "target"]) == 65
    assert sorted(tmp_path.rglob("*")) == before
    assert main(["db", "restore", "whole.twb", "--store", "target"]) == 0
    assert main(["db", "check", "--store", "target"]) == 0
    after = sorted(tmp_path.rglob("*"))
    assert main(["db", "restore", "whole.twb", "--store", "target"]) == 4, "it holds something already"
    assert sorted(tmp_path.rglob("*")) == after
    capsys.readouterr()
