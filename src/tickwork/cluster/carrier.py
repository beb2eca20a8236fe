"""How a request travels to another node, and its answer back: whole where its length is known, else as a stream."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import httpx2
import msgspec

from tickwork.core.errors import Unavailable

ANSWER_S = 60.0  # between two pieces of an answer
CONNECT_S = 2.0
RETRY_MS = 200
Header = tuple[bytes, bytes]


class Carried(msgspec.Struct):
    status: int
    headers: list[Header]
    body: bytes = b""
    pieces: AsyncIterator[bytes] | None = None  # in place of a body


class Carrier(Protocol):
    """Raises `Unavailable` where there is no answer; then nobody knows what became of the request."""

    async def carry(
        self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes
    ) -> Carried: ...

    async def close(self) -> None: ...


class HttpCarrier:
    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def carry(self, method: str, address: str, target: str, headers: Sequence[Header], body: bytes) -> Carried:
        client = self._http()
        request = client.build_request(method, address + target, headers=list(headers), content=body or None)
        try:
            answer = await client.send(request, stream=True)
            found = [(name.lower(), value) for name, value in answer.headers.raw]
            if "content-length" not in answer.headers and answer.status_code not in (204, 304):
                return Carried(answer.status_code, found, pieces=_pieces(answer))
            try:
                return Carried(answer.status_code, found, await answer.aread())
            finally:
                await answer.aclose()
        except (httpx2.TransportError, OSError) as error:
            message = f"the owner at {address} cannot be reached: {error or type(error).__name__}"
            raise Unavailable(message, retry_after_ms=RETRY_MS) from error

    def _http(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=256, max_keepalive_connections=32, keepalive_expiry=30.0),
                trust_env=False,
            )
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


async def _pieces(answer: httpx2.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
    finally:
        await answer.aclose()
