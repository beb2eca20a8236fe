"""Asynchronous tasks: one process handles many of them at the same time.

    tickwork run examples/async_http.py:survey

`load` calls a small server that is part of this file; use your own client and address instead. Each response takes a
fifth of a second, and forty of them take little longer than one.
"""

import asyncio
import time

import tickwork as tw


async def slow_server() -> asyncio.Server:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.2)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def get(port: int, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    response = await reader.read()
    writer.close()
    return response.decode().rpartition("\r\n")[2]


@tw.task(timeout="10s")
async def load(page: int) -> float:
    start = time.time()
    async with await slow_server() as server:
        assert await get(server.sockets[0].getsockname()[1], f"/{page}") == "hello"
    return start


@tw.task
def summary(starts: list[float]) -> str:
    return f"{len(starts)} responses of 0.2 s each in {time.time() - min(starts):.1f} s"


@tw.workflow
def survey(pages: list[int] = list(range(40))) -> str:
    return summary(load.map(pages))
