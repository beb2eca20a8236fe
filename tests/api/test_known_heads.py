"""A head that came before on its connection is not parsed again: nobody may notice, but for the time it takes."""

import asyncio
import json

import pytest

from api.scripted_worker import flow, publish
from tickwork.api import http_protocol as protocol
from tickwork.api.app import FastRouter, make_app
from tickwork.api.server import HttpServer

TOKEN = "a-token-of-the-test"
BODY = b'{"workflow":"flow"}'


class Line:
    """One connection, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def answer(self) -> tuple[int, dict[bytes, bytes], dict]:
        async with asyncio.timeout(20):
            head = (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in head[1:] if line)
            body = await self._reader.readexactly(int(headers[b"content-length"]))
        return int(head[0].split()[1]), headers, json.loads(body)

    async def ask(self, data: bytes) -> tuple[int, dict[bytes, bytes], dict]:
        self.send(data)
        return await self.answer()

    async def ended(self) -> bool:
        async with asyncio.timeout(20):
            return await self._reader.read(1) == b""


def request(body: bytes = BODY, *, more: bytes = b"", length: bytes | None = None, token: str = TOKEN) -> bytes:
    said = str(len(body)).encode() if length is None else length
    return (
        b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer " + token.encode() + b"\r\n" + more + b"content-length: " + said + b"\r\n\r\n" + body
    )


@pytest.fixture
async def line(engine, http, monkeypatch):
    """Beside it, `shorts` counts what came the known way."""
    await publish(http, flow("flow"))
    server = HttpServer(make_app(engine, token=TOKEN), engine, port=0)
    await server.start()
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    one = Line(reader, writer)
    one.shorts = 0
    made = protocol.FastRequest.__init__

    def counted(self, scope, body):
        one.shorts += 1
        made(self, scope, body)

    monkeypatch.setattr(protocol.FastRequest, "__init__", counted)
    yield one
    writer.close()
    await server.stop()


async def test_the_second_request_with_the_same_head_is_answered_like_the_first(line):
    first = await line.ask(request())
    second = await line.ask(request(b'{"workflow":"flow", "priority":4}'))

    assert line.shorts == 1
    assert (first[0], second[0]) == (201, 201) and first[2]["id"] != second[2]["id"]
    assert set(first[1]) == set(second[1]) and first[1][b"x-content-type-options"] == b"nosniff"
    assert second[1][b"location"].endswith(second[2]["id"].encode())


@pytest.mark.proves("B21")
async def test_another_token_is_another_head(line):
    await line.ask(request())
    status, _, problem = await line.ask(request(token="wrong"))

    assert (status, problem["code"], line.shorts) == (401, "unauthorized", 0)
    assert (await line.ask(request()))[0] == 201 and line.shorts == 1


async def test_a_refused_head_is_never_known(line):
    for _ in range(3):
        assert (await line.ask(request(token="wrong")))[0] == 401

    assert line.shorts == 0


async def test_errors_are_told_in_the_known_way_too(line):
    await line.ask(request())
    status, _, problem = await line.ask(request(b'{"workflow":"flow","workflow":"flow"}'))

    assert (status, line.shorts) == (400, 1) and problem["code"].startswith("json_")
    assert (await line.ask(request()))[0] == 201


async def test_a_body_in_pieces_takes_the_long_way(line):
    await line.ask(request())
    data = request()
    line.send(data[:-5])
    await asyncio.sleep(0.05)
    line.send(data[-5:])

    assert (await line.answer())[0] == 201 and line.shorts == 0
    assert (await line.ask(request()))[0] == 201 and line.shorts == 1


@pytest.mark.proves("B21")
@pytest.mark.parametrize("length", [b"-1", b"+19", b"1e1", b"", b"19 ", b"0x13", b"99999999999"])
async def test_a_length_that_is_no_number_is_no_known_head(line, length):
    await line.ask(request())
    line.send(request(length=length))
    async with asyncio.timeout(20):
        status = await line._reader.readexactly(12)

    assert status in (b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 201")  # as the parser reads it, not we
    assert line.shorts == 0


@pytest.mark.proves("B21")
@pytest.mark.parametrize(
    "more", [b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"Content-Length: 3\r\n"]
)
async def test_a_head_with_two_readings_is_never_known(line, more):
    for _ in range(2):
        line.send(request(more=more + b"\r\n"))
    status, headers, *_ = await _raw(line)

    assert status == 400 and headers[b"connection"] == b"close" and line.shorts == 0


async def _raw(line):
    async with asyncio.timeout(20):
        head = (await line._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    return int(head[0].split()[1]), dict(part.split(b": ", 1) for part in head[1:] if part)


async def test_requests_in_one_piece_are_answered_in_order(line):
    await line.ask(request())
    bodies = [b'{"workflow":"flow","id":"run-%d"}' % number for number in range(5)]
    line.send(b"".join(request(body) for body in bodies))
    line.send(request(b'{"workflow":"flow","id":"run-5"}'))
    answers = [await line.answer() for _ in range(6)]

    assert [answer[2]["id"] for answer in answers] == [f"run-{number}" for number in range(6)]


async def test_what_comes_while_one_is_answered_waits_for_it(line):
    await line.ask(request())
    for number in range(20):  # each a piece of its own, none waited for
        line.send(request(b'{"workflow":"flow","id":"x-%d"}' % number))
        await asyncio.sleep(0)
    answers = [await line.answer() for _ in range(20)]

    assert [answer[2]["id"] for answer in answers] == [f"x-{number}" for number in range(20)]


async def test_whoever_wants_the_connection_closed_is_not_known(line):
    status, *_ = await line.ask(request(more=b"connection: close\r\n"))

    assert status == 201 and await line.ended() and line.shorts == 0


async def test_only_so_many_heads_are_remembered(line):
    for number in range(10):
        await line.ask(request(more=b"x-number: %d\r\n" % number))
    for number in range(10):
        await line.ask(request(more=b"x-number: %d\r\n" % number))

    assert line.shorts == protocol.KNOWN_MAX


async def test_the_guard_looks_at_a_head_once(line, monkeypatch):
    await line.ask(request())
    looked = []
    true = FastRouter.knows
    monkeypatch.setattr(FastRouter, "knows", lambda self, scope: looked.append(scope) or true(self, scope))
    for _ in range(3):
        await line.ask(request())

    assert not looked and line.shorts == 3
