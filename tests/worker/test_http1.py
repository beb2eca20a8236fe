"""The lean way to POST, against a server that misbehaves."""

import asyncio
import contextlib

import pytest

from tickwork.worker.http1 import PostClient


@contextlib.asynccontextmanager
async def server(answer):
    """`answer(reader, writer, number)` serves one connection."""
    served = []

    async def serve(reader, writer):
        served.append(asyncio.current_task())
        count = len(served)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await answer(reader, writer, count)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    poster = PostClient(f"http://127.0.0.1:{port}/base", headers={"content-type": "x/y"})
    try:
        yield poster
    finally:
        poster.close()
        listening.close()
        await listening.wait_closed()
        await asyncio.gather(*served, return_exceptions=True)


async def request(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
    return head, await reader.readexactly(length)


def reply(body, status=b"200 OK"):
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


async def test_connections_are_kept_and_each_answer_finds_its_question():
    async def echo(reader, writer, number):
        while True:
            head, body = await request(reader)
            assert head.startswith(b"POST /base/p HTTP/1.1\r\nhost: 127.0.0.1:") and b"content-type: x/y" in head
            await asyncio.sleep(0.001 * (len(body) % 3))
            writer.write(reply(b"%d:" % number + body))

    async with server(echo) as poster:
        answers = await asyncio.gather(*(poster.post("/p", b"x" * size, timeout_s=5) for size in range(8)))
        again = await poster.post("/p", b"more", timeout_s=5)

    assert [len(body.split(b":")[1]) for _, body in answers] == list(range(8))
    assert again[0] == 200 and int(again[1].split(b":")[0]) <= 8


async def test_an_error_status_is_an_answer_like_any_other():
    async def refuse(reader, writer, _):
        await request(reader)
        writer.write(reply(b"no", b"409 Conflict"))

    async with server(refuse) as poster:
        assert await poster.post("/p", b"", timeout_s=5) == (409, b"no")


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf", b"SSH-2.0-nonsense\r\n"])
async def test_no_whole_answer_is_a_connection_error(sent):
    async def cut(reader, writer, _):
        await request(reader)
        writer.write(sent)

    async with server(cut) as poster:
        with pytest.raises(ConnectionError):
            await poster.post("/p", b"x", timeout_s=5)


async def test_a_late_answer_is_never_taken_for_another():
    async def slow(reader, writer, number):
        while True:
            _, body = await request(reader)
            await asyncio.sleep(0.1 if number == 1 else 0)
            writer.write(reply(body))

    async with server(slow) as poster:
        with pytest.raises(TimeoutError):
            await poster.post("/p", b"first", timeout_s=0.02)

        assert await poster.post("/p", b"second", timeout_s=5) == (200, b"second")
