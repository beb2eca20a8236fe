"""Lines reach the server in order, in chunks, within bounds."""

import asyncio
import json

import pytest

from tickwork.core.base.errors import Refused
from tickwork.worker.log_shipper import SPOOL_BYTES_MAX, LogShipper


class Taker:
    def __init__(self) -> None:
        self.chunks: list[tuple] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def send(self, piece) -> None:
        await self.open.wait()
        if self.error is not None:
            raise self.error
        self.chunks.append((piece.task, piece.attempt, piece.chunk, piece.first, piece.lines))

    def texts(self, *key: int) -> list[str]:
        data = b"".join(one[4] for one in self.chunks if one[:2] == key)
        return [json.loads(line)["text"] for line in data.splitlines()]


async def test_lines_leave_together_and_soon():
    taker = Taker()
    logs = LogShipper(taker.send)
    for number in range(10):
        logs.add(1, 1, "stdout", f"line {number}", 5)
    async with asyncio.timeout(20):
        while not taker.chunks:
            await asyncio.sleep(0.01)

    assert len(taker.chunks) == 1 and taker.texts(1, 1) == [f"line {number}" for number in range(10)]
    assert json.loads(taker.chunks[0][4].splitlines()[0]) == {"at": 5, "stream": "stdout", "text": "line 0"}
    await logs.close()


async def test_chunks_are_numbered_and_say_which_line_is_their_first():
    taker = Taker()
    logs = LogShipper(taker.send)
    for number in range(5_000):
        logs.add(1, 1, "stdout", f"line {number} " + "x" * 60, 5)
    await logs.flush()

    assert [chunk for _, _, chunk, _, _ in taker.chunks] == list(range(len(taker.chunks)))
    counted = 0
    for _, _, _, first, lines in taker.chunks:
        assert first == counted and len(lines) < 70_000
        counted += lines.count(b"\n")
    assert counted == 5_000
    await logs.close()


@pytest.mark.proves("F12", "F30")
async def test_while_the_server_is_away_the_spool_is_bounded_and_the_oldest_lines_are_dropped():
    taker = Taker()
    taker.open.clear()
    logs = LogShipper(taker.send)
    logs.add(2, 1, "stdout", "of a quiet one", 5)
    await asyncio.sleep(0.3)  # it is on its way
    count = 2 * SPOOL_BYTES_MAX // 10_000
    for number in range(count):
        logs.add(1, 1, "stdout", f"{number} " + "x" * 10_000, 5)
    logs.ended((1, 1))
    taker.open.set()
    await logs.flush()

    assert sum(len(one[4]) for one in taker.chunks) < SPOOL_BYTES_MAX + 200_000
    assert taker.texts(2, 1) == ["of a quiet one"]
    (told, *texts) = taker.texts(1, 1)
    assert [int(text.split()[0]) for text in texts] == list(range(count - len(texts), count))
    assert told == f"[{count - len(texts)} lines dropped: the server did not accept them in time]"
    numbers = [(chunk, first) for task, _, chunk, first, _ in taker.chunks if task == 1]
    assert numbers == sorted(numbers) and numbers[0] == (0, 0)
    await logs.close()


async def test_lines_that_come_long_after_the_end_are_numbered_behind_those_before():
    taker = Taker()
    logs = LogShipper(taker.send)
    logs.add(1, 1, "stdout", "in time", 5)
    logs.ended((1, 1))
    await asyncio.sleep(0.5)  # more than one turn of the timer
    assert not logs.open
    logs.add(1, 1, "stdout", "by a daemon", 6)
    await logs.flush()

    assert [(chunk, first) for _, _, chunk, first, _ in taker.chunks] == [(0, 0), (1, 1)]
    await asyncio.sleep(0.5)
    assert not logs.open
    await logs.close()


@pytest.mark.proves("I5")
async def test_a_chunk_that_the_server_does_not_want_is_let_go():
    taker = Taker()
    taker.error = Refused("stale", "this attempt is no longer yours")
    logs = LogShipper(taker.send)
    logs.add(1, 1, "stdout", "late", 5)
    await logs.flush()

    assert logs.refused == 1
    await logs.close()


async def test_a_piece_of_a_stream_leaves_at_once_and_the_next_ones_together():
    taker = Taker()
    logs = LogShipper(taker.send)
    began = asyncio.get_running_loop().time()
    logs.add(1, 1, "piece", "a", 5, number=0)
    await asyncio.sleep(0.02)
    assert taker.texts(1, 1) == ["a"], "nothing was sent lately, so nothing is waited for"
    for number in range(1, 10):
        logs.add(1, 1, "piece", f"b{number}", 5, number=number)
    async with asyncio.timeout(5):
        while len(taker.chunks) < 2:
            await asyncio.sleep(0.005)

    assert asyncio.get_running_loop().time() - began >= 0.045
    assert taker.texts(1, 1) == ["a", *(f"b{number}" for number in range(1, 10))]
    assert [json.loads(line)["number"] for line in taker.chunks[1][4].splitlines()] == list(range(1, 10))
    await logs.close()


async def test_pieces_leave_when_there_are_four_kilobytes_of_them():
    taker = Taker()
    logs = LogShipper(taker.send)
    logs.add(1, 1, "piece", "a", 5, number=0)
    await asyncio.sleep(0.02)
    for number in range(1, 10):
        logs.add(1, 1, "piece", "x" * 1_000, 5, number=number)
    await asyncio.sleep(0.005)

    assert len(taker.chunks) >= 2 and len(taker.chunks[1][4]) < 6_000
    await logs.close()


async def test_an_attempt_does_not_wait_for_the_chunks_of_others_and_keeps_its_own_order():
    taker = Taker()
    logs = LogShipper(taker.send)
    taker.open.clear()
    under_way: list[tuple] = []

    async def send(chunk, send=taker.send):
        under_way.append((chunk.task, chunk.chunk))
        await send(chunk)

    logs._send = send
    for task in (1, 2, 3):
        for number in range(2):
            logs.add(task, 1, "piece", "x" * 5_000, 5, number=number)
    await asyncio.sleep(0.02)
    assert under_way == [(1, 0), (2, 0), (3, 0)]
    taker.open.set()
    await logs.flush()

    assert under_way[3:] == [(1, 1), (2, 1), (3, 1)]
    await logs.close()
