"""`tickwork auditor`, on a folder and on a server."""

import asyncio
import json

import msgspec
import pytest

from journals import journal, read, resealed, settings_of
from tickwork.cli.main import main
from tickwork.compose.server import DATABASE, serving
from tickwork.compose.settings import Settings
from tickwork.core.rules import rules_of
from tickwork.protocol import http_models as wire
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.zone_data import load_zones


async def filled(folder, rows):
    store = SqliteStore(folder / DATABASE, synchronous="OFF")
    await store.open()
    head = await store.claim(0, owner="n1", settings=msgspec.msgpack.encode(settings_of()))
    for row in rows:
        await store.commit(0, row, [], epoch=head.epoch)
    await store.close()
    return folder


def honest():
    """As a program with these zones would have written it."""
    return [msgspec.structs.replace(row, rules=rules_of(load_zones())) for row in read(journal())]


def lying():
    rows = honest()
    at = next(row.seq for row in rows if row.seq > 10 and row.events)
    rows[at - 1] = msgspec.structs.replace(rows[at - 1], events=rows[at - 1].events[:-1])
    return resealed(rows), at


def said(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def test_a_folder_that_is_equal(tmp_path, capsys):
    rows = resealed(honest())
    asyncio.run(filled(tmp_path, rows))

    assert main(["auditor", "--data", str(tmp_path), "--json"]) == 0
    found = said(capsys)
    assert (found["rows"], found["hash"], found["difference"]) == (len(rows), rows[-1].hash.hex(), None)


@pytest.mark.proves("I8")
def test_a_difference_leaves_a_file_that_replay_decides_again(tmp_path, capsys):
    rows, at = lying()
    asyncio.run(filled(tmp_path, rows))
    (tmp_path / "left").mkdir()

    assert main(["auditor", "--data", str(tmp_path), "--into", str(tmp_path / "left")]) == 1
    assert f"differs at seq {at}" in capsys.readouterr().err
    [left] = (tmp_path / "left").iterdir()
    assert left.name == f"audit-p0-seq{at}.twr" and left.stat().st_mode & 0o077 == 0
    assert main(["replay", "--from", str(left), "--json"]) == 1
    found = said(capsys)
    assert found["seq"] == at and not found["equal"] and "inputs that are enough" in found["detail"]
    left.write_bytes(left.read_bytes()[:-3])
    assert main(["replay", "--from", str(left)]) == 65


async def test_a_server_is_audited_held_and_released(tmp_path, capsys):
    settings = Settings(data=str(tmp_path), port=0, audit=True)
    async with serving(settings, own_process=False) as (engine, server):
        document = {"name": "flow", "nodes": [{"kind": "task", "id": "a", "handler": "a"}]}
        await engine.workflows.publish(wire.Publication(documents=(document,)), by="test")
        await engine.runs.submit([wire.Submission(workflow="flow")], by="test")
        url = ["--url", server.address, "--json"]

        assert await asyncio.to_thread(main, ["auditor", "--once", *url]) == 0
        assert said(capsys)["seq"] == (await engine.overview.status()).seq
        async with asyncio.timeout(5):
            while (
                engine.maintenance.auditors[0].lag_rows
                or engine.maintenance.auditors[0].seq < (await engine.overview.status()).seq
            ):
                await asyncio.sleep(0.02)
        assert engine.maintenance.auditors[0].difference is None
        await engine.admin.pause("partition", "0", by="auditor", reason="a difference")
        assert await asyncio.to_thread(main, ["status", *url]) == 0
        assert said(capsys)["dispatch_held"] == "a difference"
        assert await asyncio.to_thread(main, ["release", *url]) == 0
        assert (await engine.overview.status()).dispatch_held == ""
        assert await asyncio.to_thread(main, ["release", *url]) == 4
