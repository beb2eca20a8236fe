"""The real server on a loopback port: what only sockets show."""

import asyncio
import json

import httpx2
import pytest
import uvloop

from api.scripted_worker import Worker, flow, publish, submit
from executors.executor_fixture import playing
from tickwork.api import http_protocol as protocol
from tickwork.api.app import make_app
from tickwork.api.http import request as asked
from tickwork.api.server import CannotServe, HttpServer
from tickwork.runtime.engine import Engine
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.clock import FolderArtifacts, SystemClock, SystemIds


@pytest.fixture
async def server(engine):
    server = HttpServer(make_app(engine), engine, port=0)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def real(server):
    async with httpx2.AsyncClient(base_url=server.address, timeout=30) as client:
        yield client


async def until(condition, seconds=20.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def raw(server, data: bytes) -> bytes:
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    async with asyncio.timeout(20):
        answer = await reader.read(100_000)
    writer.close()
    return answer


async def test_a_run_through_real_sockets(real):
    await publish(real, flow())
    run_id = await submit(real)
    worker = Worker(real)
    await worker.finish(*await worker.work())

    assert (await real.get(f"/v1/runs/{run_id}")).json()["state"] == "completed"


@pytest.mark.proves("F14")
async def test_a_closed_connection_tells_of_a_worker_s_death(engine, server):
    async with httpx2.AsyncClient(base_url=server.address) as client:
        worker = Worker(client)
        await worker.call()
        session = engine.workers.registered["w1"].session
        waiting = asyncio.create_task(worker.call(wait_ms=20_000))
        await until(lambda: session.waits_for_work)
        assert not session.closed_ms
        waiting.cancel()

    await until(lambda: session.closed_ms)


async def test_stopping_ends_long_polls_at_once(engine):
    server = HttpServer(make_app(engine), engine, port=0)
    await server.start()
    async with httpx2.AsyncClient(base_url=server.address) as client:
        worker = Worker(client)
        await worker.call()
        waiting = asyncio.create_task(worker.call(wait_ms=20_000))
        await until(lambda: engine.workers.registered["w1"].session.waits_for_work)
        async with asyncio.timeout(10):
            await server.stop()

            with pytest.raises(AssertionError, match="shutting down"):
                await waiting


@pytest.mark.proves("B26")
async def test_a_port_in_use_is_a_clear_error(engine, server):
    port = int(server.address.rpartition(":")[2])
    with pytest.raises(CannotServe, match=f"127.0.0.1:{port}.*choose another"):
        await HttpServer(make_app(engine), engine, port=port).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
async def test_only_loopback_goes_without_a_token(engine, host):
    with pytest.raises(CannotServe, match="TICKWORK_TOKEN"):
        await HttpServer(make_app(engine), engine, host=host, port=0).start()


@pytest.mark.proves("S70", "S71")
async def test_code_of_a_task_is_not_let_in_by_what_its_worker_knows(engine, monkeypatch):
    monkeypatch.setenv("TICKWORK_TOKEN", "secret-of-16-signs")  # of the agent, which is this process
    server = HttpServer(make_app(engine, token="secret-of-16-signs"), engine, port=0)
    await server.start()
    try:
        async with playing(processes=1) as stage:
            assert await stage.value("calls_the_server", url=server.address) == 401
    finally:
        await server.stop()


async def test_an_empty_token_is_no_token(engine):
    with pytest.raises(CannotServe, match="empty"):
        await HttpServer(make_app(engine, token=" "), engine, port=0).start()


@pytest.mark.proves("B21")
async def test_a_head_that_never_ends_is_cut_off(server):
    answer = await raw(server, b"GET /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 70_000 + b"\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 431") and b'"head_too_large"' in answer


@pytest.mark.proves("B21")
@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 2\r\ncontent-length: 3\r\n",
        b"content-length: 2\r\ntransfer-encoding: chunked\r\n",
        b"content-length: -1\r\n",
        b"x: a\x00b\r\n",
        b"x y: a\r\n",
    ],
)
async def test_a_head_with_two_readings_is_refused(server, head):
    start = b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    answer = await raw(server, start + head + b"\r\n{}")

    assert answer.startswith(b"HTTP/1.1 400"), answer


@pytest.mark.proves("B3")
async def test_a_body_in_chunks_without_end_is_cut_off(server):
    start = b"POST /v1/runs/x/cancel HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    answer = await raw(server, start + b"transfer-encoding: chunked\r\n\r\n" + chunk * 3)

    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("data", [b"\x16\x03\x01garbage\r\n\r\n", b"FETCH / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"])
async def test_what_is_not_http_gets_a_problem_like_everything_else(server, data):
    head, _, body = (await raw(server, data)).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 400") and b"content-type: application/problem+json" in head
    assert b"x-content-type-options: nosniff" in head and b"connection: close" in head
    assert json.loads(body)["code"] == "malformed_request"


@pytest.mark.proves("B21")
@pytest.mark.parametrize("name", [b"host", b"authorization", b"idempotency-key", b"content-type"])
async def test_a_header_that_has_one_value_comes_once(server, name):
    twice = b"host: 127.0.0.1\r\n" + 2 * (name + b": 127.0.0.1\r\n")
    answer = await raw(server, b"GET /v1/runs HTTP/1.1\r\n" + twice + b"connection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 400") and b'"repeated_header"' in answer and b'"header.%b"' % name in answer


@pytest.mark.proves("B3")
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(server):
    head = b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    answer = await raw(server, head + b"content-length: 99999999999\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 413") and b"body_too_large" in answer


@pytest.mark.proves("B3")
async def test_a_body_that_does_not_come_is_given_up(server, monkeypatch):
    monkeypatch.setattr(asked, "BODY_S", 0.05)
    monkeypatch.setattr(asked, "BYTES_PER_S_MIN", 1e12)
    head = b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    answer = await raw(server, head + b"content-length: 10\r\n\r\n{")

    assert answer.startswith(b"HTTP/1.1 408") and b"body_too_slow" in answer


async def test_a_head_that_does_not_come_is_given_up(engine, monkeypatch):
    monkeypatch.setattr(protocol, "HEADERS_S", 0.05)
    server = HttpServer(make_app(engine), engine, port=0)
    await server.start()

    assert await raw(server, b"GET /v1/runs HT") == b""
    await server.stop()


async def test_the_server_runs_on_uvloop_too(tmp_path):
    """As the command line starts it: on a loop of its own, in a thread of its own."""

    async def main():
        engine = Engine(
            store=MemoryStore(MemoryDisk()),
            artifacts=FolderArtifacts(tmp_path),
            clock=SystemClock(),
            ids=SystemIds(),
            owner="test",
        )
        await engine.start()
        server = HttpServer(make_app(engine), engine, port=0)
        await server.start()
        async with httpx2.AsyncClient(base_url=server.address) as client:
            worker = Worker(client)
            await publish(client, flow())
            run_id = await submit(client)
            await worker.finish(*await worker.work())
            state = (await client.get(f"/v1/runs/{run_id}")).json()["state"]
            session = engine.workers.registered["w1"].session
        await until(lambda: session.closed_ms)
        await server.stop()
        await engine.stop()
        return state

    assert await asyncio.to_thread(uvloop.run, main()) == "completed"


# ---- the short way


POST = b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"


def posted(body: bytes) -> bytes:
    return POST % (len(body), body)


async def answers(server, pieces: list[bytes], count: int) -> list[bytes]:
    """What comes back on one connection, cut where an answer begins."""
    host, _, port = server.address.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = b""
    async with asyncio.timeout(20):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.01)
        while data.count(b"HTTP/1.1 ") < count or not data.endswith(b"}"):
            data += await reader.read(100_000)
    writer.close()
    return [b"HTTP/1.1 " + one for one in data.split(b"HTTP/1.1 ")[1:]]


async def test_requests_sent_at_once_are_answered_in_their_order(server):
    get = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    found = await answers(server, [posted(b"[") + get + posted(b'{"workflow":"no"}')], 3)

    assert [one[9:12] for one in found] == [b"400", b"200", b"404"]


@pytest.mark.parametrize("at", [40, 110, -5])
async def test_a_request_in_two_pieces_is_answered_like_one(server, at):
    request = posted(b'{"workflow":"no"}')

    [whole] = await answers(server, [request], 1)
    [pieces] = await answers(server, [request[:at], request[at:]], 1)
    assert whole.startswith(b"HTTP/1.1 404") and sorted(whole.splitlines()) == sorted(pieces.splitlines())


async def test_who_wants_no_more_is_not_kept_waiting(server):
    request = posted(b'{"workflow":"no"}').replace(b"host:", b"connection: close\r\nhost:")

    assert b"connection: close" in await raw(server, request)


async def test_the_guard_stands_before_the_short_way_too(server):
    request = posted(b'{"workflow":"no"}').replace(b"host: 127.0.0.1", b"host: evil.example")

    assert (await raw(server, request)).startswith(b"HTTP/1.1 403")
