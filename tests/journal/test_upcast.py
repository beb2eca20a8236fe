"""Old formats are brought to today's one step at a time; newer ones are refused."""

import zlib

import msgspec
import pytest

from tickwork.core.base.errors import Corrupt
from tickwork.journal import record
from tickwork.journal.record import FORMAT, GENESIS, Row, SealedRow, chain, seal, unseal

STEPS = {1: lambda row: [*row, "two"], 2: lambda row: [*row, "three"], 3: lambda row: [*row, "four"]}


def sealed_as(version: int, raw: object) -> SealedRow:
    body, mark = msgspec.msgpack.encode(raw), bytes([version])
    return SealedRow(1, 7, chain(GENESIS, mark, body), mark + zlib.compress(body))


@pytest.mark.parametrize(
    ("version", "to", "row"),
    [(1, 4, ["two", "three", "four"]), (2, 4, ["three", "four"]), (3, 4, ["four"]), (4, 4, []), (1, 2, ["two"])],
)
def test_steps_follow_each_other(version, to, row):
    assert record.upcast(version, [], steps=STEPS, to=to) == row


def test_a_gap_in_the_steps_is_named():
    with pytest.raises(Corrupt, match="format 2 of the journal is not supported"):
        record.upcast(1, [], steps={1: STEPS[1], 3: STEPS[3]}, to=4)


@pytest.mark.proves("I9")
def test_a_row_of_an_older_format_is_read_under_its_own_hash(monkeypatch):
    """Format 0 in this test had no rules in its rows."""
    monkeypatch.setitem(record.STEPS, 0, lambda row: [*row[:2], "older", *row[2:]])
    old = sealed_as(0, [1, 7, [], [[28, [4, 5]]]])

    row = unseal(old, GENESIS)
    assert (row.rules, row.events[0].runs) == ("older", [4, 5])


def test_the_next_format_reads_rows_of_this_one(monkeypatch):
    sealed = seal(Row(1, 7, "rules", [], []), GENESIS)
    monkeypatch.setattr(record, "FORMAT", FORMAT + 1)
    monkeypatch.setattr(record.upcast, "__kwdefaults__", {"steps": {FORMAT: lambda row: row}, "to": FORMAT + 1})

    assert unseal(sealed, GENESIS).rules == "rules"


@pytest.mark.proves("I13")
def test_a_newer_format_is_refused_and_says_what_to_do():
    with pytest.raises(
        Corrupt, match=f"of format {FORMAT + 1}, this version of tickwork reads up to {FORMAT}: upgrade"
    ):
        unseal(sealed_as(FORMAT + 1, [1, 7, "rules", [], [], "more"]), GENESIS)


def test_an_older_row_that_is_no_list_is_refused(monkeypatch):
    monkeypatch.setitem(record.STEPS, 0, lambda row: row)

    with pytest.raises(Corrupt, match="cannot be read"):
        unseal(sealed_as(0, {"seq": 1}), GENESIS)
