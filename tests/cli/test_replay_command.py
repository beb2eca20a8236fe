"""`tickwork replay --from`: rows decided again and rows only folded are told apart, and nothing cut is equal."""

import asyncio
import json
import os

import msgspec
import pytest

from cli.test_db import lived_in
from tickwork.cli.main import main
from tickwork.compose.server import DATABASE
from tickwork.core.rules import rules_of
from tickwork.journal import stream
from tickwork.journal.export import ExportHead, write_head
from tickwork.journal.record import GENESIS, seal, unseal
from tickwork.runtime.partition.recovery import settings_of
from tickwork.stores.sqlite.store import SqliteStore
from tickwork.system.zone_data import load_zones


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("TICKWORK_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


async def journal_of(folder):
    await lived_in(folder, archived=False)
    store = SqliteStore(folder / DATABASE)
    await store.open()
    try:
        loaded = await store.load(0)
        return settings_of(loaded.settings), await store.journal(0, after=0, limit=10_000)
    finally:
        await store.close()


def sealed_again(rows, change):
    """The same chain over changed rows: nothing but a replay can tell."""
    before, was, found = GENESIS, GENESIS, []
    for sealed in rows:
        row = change(unseal(sealed, was))
        was = sealed.hash
        found.append(seal(row, before))
        before = found[-1].hash
    return found


def exported(path, settings, rows, *, last=None):
    last = last or rows[-1]
    path.write_bytes(write_head(ExportHead(settings, 0, GENESIS, last.seq, last.hash)) + b"".join(stream.write(rows)))


@pytest.fixture
def journal(tmp_path):
    return asyncio.run(journal_of(tmp_path / "store"))


def test_rows_of_other_rules_are_counted_apart(tmp_path, journal, capsys):
    settings, rows = journal
    middle = rows[len(rows) // 2].seq
    ours = rules_of(load_zones())
    others = sealed_again(
        rows, lambda row: msgspec.structs.replace(row, rules="1/2020a" if row.seq <= middle else ours)
    )
    exported(tmp_path / "j", settings, others)

    assert main(["replay", "--from", "j"]) == 0
    assert f"equal: {len(rows) - middle} rows decided again, {middle} of other rules folded" in capsys.readouterr().out
    assert main(["replay", "--from", "j", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["decided"], told["folded"]) == (len(rows), len(rows) - middle, middle)


def test_an_export_that_was_cut_at_the_end_of_a_row_is_not_equal(tmp_path, journal, capsys):
    settings, rows = journal
    exported(tmp_path / "cut", settings, rows[:-1], last=rows[-1])

    assert main(["replay", "--from", "cut"]) == 65
    assert f"names seq {len(rows)} as its last row" in capsys.readouterr().err
    (tmp_path / "old").write_bytes(write_head(ExportHead(settings)) + b"".join(stream.write(rows)))
    assert main(["replay", "--from", "old"]) == 4
    assert "does not name its last seq" in capsys.readouterr().err


def test_a_tampered_row_of_other_rules_differs_and_is_no_defect_of_ours(tmp_path, journal, capsys):
    settings, rows = journal
    others = sealed_again(
        rows, lambda row: msgspec.structs.replace(row, rules="1/2020a", events=row.events if row.seq != 2 else [])
    )
    exported(tmp_path / "j", settings, others)

    assert main(["replay", "--from", "j"]) == 1
    told = capsys.readouterr().err
    assert "do not fit the state before it" in told
    assert "defect of tickwork" not in told
