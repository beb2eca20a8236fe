"""The socket at which processes of tasks read of the API."""

import asyncio
import os
import stat

import pytest

from tickwork.core.base.errors import Refused, Unavailable
from tickwork.executors.read_socket import ReadSocket
from tickwork.protocol.worker_messages import Reading, ReadRequest

GET = b"GET /v1/runs?state=failed HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\nAuthorization: no\r\n\r\n"


async def asked(socket: ReadSocket, *requests: bytes) -> list[bytes]:
    """Status lines of the answers, over one connection."""
    reader, writer = await asyncio.open_unix_connection(socket.path)
    found = []
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found.append(head.partition(b"\r\n")[0] + b" " + await reader.readexactly(size))
    writer.close()
    return found


async def test_it_passes_questions_on_without_what_belongs_to_the_connection():
    seen: list[ReadRequest] = []

    async def read(request: ReadRequest) -> Reading:
        seen.append(request)
        return Reading(200, (("content-type", "text/plain"), ("content-length", "99")), b"answer")

    socket = ReadSocket(read)
    await socket.start()
    try:
        assert await asked(socket, GET, GET) == [b"HTTP/1.1 200 OK answer"] * 2
        assert seen == [ReadRequest("/v1/runs?state=failed", (("accept", "application/json"),))] * 2
        assert stat.S_IMODE(os.stat(os.path.dirname(socket.path)).st_mode) == 0o700
    finally:
        await socket.close()
    assert not os.path.exists(socket.path)


async def test_it_opens_where_the_path_of_the_temporary_folder_is_long(tmp_path, monkeypatch):
    async def read(_request: ReadRequest) -> Reading:
        return Reading(200, (), b"answer")

    deep = tmp_path / ("long" * 30)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))

    socket = ReadSocket(read)
    await socket.start()
    try:
        assert await asked(socket, GET) == [b"HTTP/1.1 200 OK answer"]
    finally:
        await socket.close()
    assert not os.path.exists(os.path.dirname(socket.path))


@pytest.mark.parametrize(
    ("request_", "error", "status"),
    [
        (GET.replace(b"GET", b"POST"), None, b"405"),
        (GET, Unavailable("away", retry_after_ms=1), b"503"),
        (GET, Refused("no_api", "no"), b"400"),
    ],
)
async def test_what_would_change_something_or_cannot_be_answered_is_a_problem(request_, error, status):
    async def read(_: ReadRequest) -> Reading:
        assert error is not None, "it does not pass"
        raise error

    socket = ReadSocket(read)
    await socket.start()
    try:
        (answer,) = await asked(socket, request_)
    finally:
        await socket.close()
    assert answer.split()[1] == status
    assert b'"code"' in answer


async def test_a_request_without_an_end_is_dropped():
    socket = ReadSocket(lambda _: asyncio.sleep(0, Reading(200)))
    await socket.start()
    try:
        reader, writer = await asyncio.open_unix_connection(socket.path)
        writer.write(b"GET / HTTP/1.1\r\n" + b"x" * 100_000)
        assert await reader.read() == b""
        writer.close()
    finally:
        await socket.close()
