"""A journal as bytes: chunks of any size, a torn tail is cut, damage is damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journals import journal
from tickwork.core.base.errors import Corrupt
from tickwork.journal.stream import RowReader, write

STREAM = b"".join(write(journal(5, 12)))
FRAMES = [len(frame) for frame in write(journal(5, 12))]
HEAD = 28


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=50))
def test_chunks_of_any_size_give_the_same_rows(sizes):
    reader, rows, at, turn = RowReader(), [], 0, 0
    while at < len(STREAM):
        size = sizes[turn % len(sizes)]
        rows += reader.feed(STREAM[at : at + size])
        at, turn = at + size, turn + 1

    assert tuple(rows) == journal(5, 12)
    assert reader.torn == 0


def test_one_byte_at_a_time():
    reader = RowReader()

    assert tuple(row for byte in STREAM for row in reader.feed(bytes([byte]))) == journal(5, 12)


@pytest.mark.proves("I12")
@given(st.integers(0, len(STREAM)))
def test_a_torn_tail_is_cut_and_reported(length):
    reader = RowReader()
    rows = reader.feed(STREAM[:length])
    whole = sum(FRAMES[: len(rows)])

    assert tuple(rows) == journal(5, 12)[: len(rows)]
    assert reader.torn == length - whole
    assert reader.torn < FRAMES[len(rows)] if len(rows) < len(FRAMES) else reader.torn == 0


@pytest.mark.proves("I13")
@given(st.integers(0, len(STREAM) * 8 - 1))
def test_a_flipped_bit_is_found_and_never_taken_for_a_torn_tail(bit):
    raw = bytearray(STREAM)
    raw[bit // 8] ^= 1 << bit % 8
    reader = RowReader()

    with pytest.raises(Corrupt, match="damaged"):
        reader.feed(bytes(raw))


@pytest.mark.proves("I13")
@pytest.mark.parametrize("bit", range(HEAD * 8))
def test_no_bit_of_a_head_may_change(bit):
    raw = bytearray(STREAM)
    raw[FRAMES[0] + bit // 8] ^= 1 << bit % 8
    reader = RowReader()
    reader.feed(bytes(raw[: FRAMES[0]]))

    with pytest.raises(Corrupt, match="seq 1 is not a row"):
        reader.feed(bytes(raw[FRAMES[0] : FRAMES[0] + HEAD]))


@given(st.binary(min_size=HEAD, max_size=500))
def test_garbage_is_refused_with_its_first_bytes(garbage):
    reader = RowReader()

    with pytest.raises(Corrupt):
        reader.feed(garbage)
    assert reader.torn <= len(garbage)


def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept(monkeypatch):
    monkeypatch.setattr("tickwork.journal.stream._FRAME_BYTES_MAX", 10)

    with pytest.raises(Corrupt, match="seq \\? is not a row"):
        RowReader().feed(STREAM[:HEAD])


def test_an_empty_stream_is_an_empty_journal():
    reader = RowReader()

    assert (reader.feed(b""), reader.torn, list(write([]))) == ([], 0, [])
