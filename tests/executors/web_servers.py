"""Web servers on loopback that answer as a test says, byte by byte."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

Answering = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Site:
    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []  # first line, headers, body
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def plain(body: bytes = b"{}", *, status: str = "200 OK", headers: str = "content-type: application/json") -> Answering:
    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        writer.write(head.encode() + body)

    return answer


def raw(*pieces: bytes, pause_s: float = 0.0) -> Answering:
    async def answer(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return answer


@asynccontextmanager
async def site(answer: Answering, *, tls: ssl.SSLContext | None = None):
    found = Site()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *rest = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in rest)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            found.requests.append((line, headers, body))
            await answer(writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has had enough
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()
