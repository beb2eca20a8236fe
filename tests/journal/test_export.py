"""An exported journal: read in pieces of any size, and never read as something that it is not."""

import pytest

from tickwork.core.base.errors import Corrupt
from tickwork.core.state.state import LogicalClock, Settings
from tickwork.journal import stream
from tickwork.journal.export import ExportHead, read, write_head
from tickwork.journal.replay import Recorder

HEAD = ExportHead(Settings(clock=LogicalClock(origin_ms=1234), max_live_runs=7))


def exported(rows=3) -> bytes:
    recorder = Recorder()
    return write_head(HEAD) + b"".join(stream.write([recorder.row(tick + 1, [], []) for tick in range(rows)]))


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_head_and_rows_come_back_whatever_the_pieces(size):
    data = exported()
    head, rows = read(data[at : at + size] for at in range(0, len(data), size))

    assert head == HEAD
    assert [row.seq for row in rows] == [1, 2, 3]


@pytest.mark.parametrize("data", [b"", b"TW", b"PK\x03\x04", b"TWJ1" + bytes(4), exported()[:20]])
def test_what_is_not_an_export_is_refused(data):
    with pytest.raises(Corrupt):
        read([data])


def test_a_damaged_head_is_refused():
    data = bytearray(exported())
    data[14] ^= 1

    with pytest.raises(Corrupt, match="checksum"):
        read([bytes(data)])


def test_a_length_that_cannot_be_is_refused_before_anything_is_read():
    with pytest.raises(Corrupt, match="that long"):
        read([b"TWJ1" + b"\xff" * 8])


def test_a_torn_end_is_told_after_the_whole_rows():
    _, rows = read([exported()[:-1]])

    assert [next(rows).seq, next(rows).seq] == [1, 2]
    with pytest.raises(Corrupt, match="middle of a row"):
        next(rows)


def whole(rows=3) -> tuple[list, bytes]:
    recorder = Recorder()
    sealed = [recorder.row(tick + 1, [], []) for tick in range(rows)]
    head = ExportHead(HEAD.settings, last=rows, last_hash=sealed[-1].hash)
    return sealed, write_head(head) + b"".join(stream.write(sealed))


def test_an_export_that_was_cut_between_two_rows_is_refused():
    sealed, data = whole()
    _, rows = read([data])
    assert list(rows) == sealed

    _, rows = read([data[: -len(b"".join(stream.write(sealed[-1:])))]])
    with pytest.raises(Corrupt, match="names seq 3 as its last row, and ends with seq 2"):
        list(rows)
    _, rows = read([data, *stream.write([Recorder(seq=3, head=sealed[-1].hash).row(9, [], [])])])
    with pytest.raises(Corrupt, match="incomplete"):
        list(rows)
