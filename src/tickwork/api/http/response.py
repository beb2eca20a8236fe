"""Responses: a status, headers, and bytes encoded by msgspec; or a stream of chunks."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.types import Send

JSON = "application/json"
MSGPACK = "application/msgpack"
PROBLEM = "application/problem+json"
OCTETS = "application/octet-stream"
EVENTS = "text/event-stream"
HTML = "text/html; charset=utf-8"
METRICS = "text/plain; version=0.0.4; charset=utf-8"
JOURNAL = "application/vnd.tickwork.journal"

Header = tuple[bytes, bytes]

json_encoder = msgspec.json.Encoder()
msgpack_encoder = msgspec.msgpack.Encoder()


class Response:
    """A response with one complete body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, kind: str = JSON, *headers: Header) -> None:
        self.status = status
        self.body = body
        self.headers: list[Header] = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]

    async def send(self, send: Send, *, body: bool = True) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body if body else b""})


class StreamingResponse:
    """A stream of chunks. If it ends early, its source is closed at once, so that no watcher leaks."""

    __slots__ = ("headers", "pieces", "status")

    def __init__(self, pieces: AsyncIterator[bytes], kind: str, *headers: Header) -> None:
        self.status = 200
        self.pieces = pieces
        self.headers: list[Header] = [(b"content-type", kind.encode()), *headers]

    async def send(self, send: Send, *, body: bool = True) -> None:
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
            if body:
                async for piece in self.pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            close = getattr(self.pieces, "aclose", None)
            if close is not None:
                await close()


def as_json(value: Any, status: int = 200, *headers: Header) -> Response:
    return Response(status, json_encoder.encode(value), JSON, *headers)


def as_msgpack(value: Any, status: int = 200, *headers: Header) -> Response:
    return Response(status, msgpack_encoder.encode(value), MSGPACK, *headers)


def nothing() -> Response:
    """Return 204 without a body."""
    answer = Response(204, b"")
    answer.headers = []
    return answer
