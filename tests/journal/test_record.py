"""A row that is changed, dropped, repeated or moved is found, whatever the change."""

import tracemalloc
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from journals import journal, read
from tickwork.core.base.errors import Corrupt
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.journal import record
from tickwork.journal.record import FORMAT_BYTE, GENESIS, Row, SealedRow, chain, seal, unseal

ROW = Row(
    1,
    7,
    "rules",
    [inp.Offer("w", 3, ("default",), {"zone": "a", "gpu": "true", "é": "ü"}), inp.Submit("me", "acme", "r1", "one")],
    [ev.WorkerOffered(0, 0), ev.RunSubmitted(1, 1), ev.Visited([1])],
)

LARGE = Row(1, 7, "rules", [inp.Submit("me", "acme", f"run-{number}", "one") for number in range(40)], ROW.events)


def replaced(sealed: SealedRow, **fields) -> SealedRow:
    return msgspec.structs.replace(sealed, **fields)


def forged(body: bytes, version: bytes = FORMAT_BYTE) -> SealedRow:
    """Bytes that verify: the hash is no protection against whoever can write it."""
    return SealedRow(1, 7, chain(GENESIS, version, body), version + zlib.compress(body))


@pytest.mark.proves("I13", "I55")
@given(st.data())
def test_a_flipped_bit_never_gives_another_row(data):
    rows = journal()
    sealed = rows[data.draw(st.integers(0, len(rows) - 1))]
    before = GENESIS if sealed.seq == 1 else rows[sealed.seq - 2].hash
    field = data.draw(st.sampled_from(["hash", "data"]))
    raw = bytearray(getattr(sealed, field))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    try:
        row = unseal(replaced(sealed, **{field: bytes(raw)}), before)
    except Corrupt:
        return

    # The one way to pass: a bit between the packed data and its checksum that stands for nothing.
    assert field == "data" and row == unseal(sealed, before)


@pytest.mark.proves("I13", "I55")
@pytest.mark.parametrize(("row", "idle_bits"), [(ROW, 0), (LARGE, 7)])  # that fill up the last byte of packed data
def test_each_bit_of_a_whole_row_is_guarded(row, idle_bits):
    sealed = seal(row, GENESIS)
    passed = 0
    for bit in range(len(sealed.data) * 8):
        raw = bytearray(sealed.data)
        raw[bit // 8] ^= 1 << bit % 8
        try:
            assert unseal(replaced(sealed, data=bytes(raw)), GENESIS) == row
            passed += 1
        except Corrupt:
            pass

    assert passed <= idle_bits


@pytest.mark.proves("I13")
@pytest.mark.parametrize("field", ["seq", "tick"])
def test_a_row_under_another_number_is_found(field):
    sealed = seal(ROW, GENESIS)

    with pytest.raises(Corrupt, match="the row holds seq 1, tick 7"):
        unseal(replaced(sealed, **{field: getattr(sealed, field) + 1}), GENESIS)


@pytest.mark.proves("I13")
@pytest.mark.parametrize(("row", "why"), [(ROW, "was changed"), (LARGE, "trailing bytes")])
def test_a_row_cut_anywhere_or_with_something_behind_it_is_found(row, why):
    sealed = seal(row, GENESIS)

    for length in range(len(sealed.data)):
        with pytest.raises(Corrupt):
            unseal(replaced(sealed, data=sealed.data[:length]), GENESIS)
    with pytest.raises(Corrupt, match=why):
        unseal(replaced(sealed, data=sealed.data + b"x"), GENESIS)


def test_few_bytes_are_stored_as_they_are_and_many_packed():
    few, many = seal(ROW, GENESIS).data, seal(LARGE, GENESIS).data

    assert few == FORMAT_BYTE + msgspec.msgpack.encode(ROW, order="deterministic")
    assert len(many) < len(msgspec.msgpack.encode(LARGE)) / 2
    assert unseal(seal(ROW, GENESIS), GENESIS) == ROW and unseal(seal(LARGE, GENESIS), GENESIS) == LARGE


@pytest.mark.proves("I13", "I55")
@given(st.data())
def test_dropped_repeated_and_moved_rows_are_found(data):
    rows = list(journal())
    at = data.draw(st.integers(0, len(rows) - 2))
    match data.draw(st.sampled_from(["drop", "repeat", "swap", "move"])):
        case "drop":
            del rows[at]
        case "repeat":
            rows.insert(at + 1, rows[at])
        case "swap":
            rows[at], rows[at + 1] = rows[at + 1], rows[at]
        case "move":
            row = rows.pop(at)
            rows.insert(data.draw(st.integers(0, len(rows)).filter(lambda to: to != at)), row)

    with pytest.raises(Corrupt):
        read(rows)


@pytest.mark.proves("I13")
def test_the_format_is_part_of_the_hash():
    sealed = seal(ROW, GENESIS)

    with pytest.raises(Corrupt, match="was changed"):
        unseal(replaced(sealed, data=b"\x02" + sealed.data[1:]), GENESIS)


@pytest.mark.proves("I13")
@given(st.binary(max_size=200))
def test_garbage_under_a_good_hash_is_refused(body):
    with pytest.raises(Corrupt):
        unseal(forged(body), GENESIS)


@pytest.mark.parametrize(
    "body",
    [
        b"\x95\x01\x07\xa1\xff\x90\x90",  # a text that is not UTF-8
        b"\x95\x01\x07\xa1r\x91\x93\x63\x01\x01\x90",  # an input that does not exist
        b"\x95\x01\x07\xa1r\x90\x91\x92\x63\x01",  # an event that does not exist
        b"\x91" * 100_000,  # nested too deep
        b"",
    ],
)
@pytest.mark.parametrize("version", [b"\x00", FORMAT_BYTE, b"\xff"])
def test_a_body_that_is_no_row_is_refused(body, version):
    with pytest.raises(Corrupt):
        unseal(forged(body, version), GENESIS)


def test_a_row_that_unpacks_to_more_than_the_limit_is_refused_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(record, "ROW_BYTES_MAX", 1_000_000)
    packed = zlib.compress(bytes(50_000_000))
    bomb = SealedRow(1, 7, bytes(32), FORMAT_BYTE + packed)
    tracemalloc.start()
    with pytest.raises(Corrupt, match="more than 1000000 bytes"):
        unseal(bomb, GENESIS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 4_000_000


def test_a_row_of_exactly_the_limit_is_read_and_a_larger_one_is_never_written(monkeypatch):
    size = len(msgspec.msgpack.Encoder(order="deterministic").encode(ROW))
    monkeypatch.setattr(record, "ROW_BYTES_MAX", size)
    assert unseal(seal(ROW, GENESIS), GENESIS) == ROW

    monkeypatch.setattr(record, "ROW_BYTES_MAX", size - 1)
    with pytest.raises(AssertionError, match="could not be read"):
        seal(ROW, GENESIS)


@pytest.mark.proves("I8")
@given(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=6), st.data())
def test_maps_in_any_order_give_equal_bytes(labels, data):
    pairs = data.draw(st.permutations(list(labels.items())))
    one = seal(Row(1, 1, "", [inp.Offer("w", 1, (), labels)], []), GENESIS)
    other = seal(Row(1, 1, "", [inp.Offer("w", 1, (), dict(pairs))], []), GENESIS)

    assert one == other


def test_what_is_read_back_is_what_was_written_and_seals_to_the_same_bytes():
    before = GENESIS
    for sealed in journal():
        row = unseal(sealed, before)
        assert seal(row, before) == sealed
        before = sealed.hash
