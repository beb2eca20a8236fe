"""Clients for the code of tasks. They read over the connection of the worker, without an address or a token of their
own, and change nothing: what a task starts and signals shares the fate of its result."""

from collections.abc import Awaitable, Callable

import httpx2

from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import Reading, ReadRequest
from tickwork.sdk.client.async_client import AsyncClient
from tickwork.sdk.client.client import Client

URL = "http://tickwork"  # this name is never resolved
DEADLINE_S = 30.0


class ReadOnly(httpx2.BaseTransport):
    """Lets requests through that change nothing. There are no event streams, so the client asks again instead."""

    def __init__(self, inner: httpx2.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return _no_stream() if _is_stream(request) else self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class AsyncReadOnly(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return _no_stream() if _is_stream(request) else await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Direct(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """For tasks in the process of the worker: `read` and `read_async` ask its server."""

    def __init__(
        self, read: Callable[[ReadRequest], Reading], read_async: Callable[[ReadRequest], Awaitable[Reading]]
    ) -> None:
        self._read, self._read_async = read, read_async

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return _response(self._read(_read_request(request)))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return _response(await self._read_async(_read_request(request)))


def _is_stream(request: httpx2.Request) -> bool:
    """Raises `Refused` for a request that would change something."""
    if request.method not in ("GET", "HEAD"):
        message = "the client of a task reads only: use ctx.start(...) and ctx.signal(...), which share the fate of the"
        raise Refused("read_only", f"{message} task's result; for anything else, give the task a tw.Client of its own")
    return request.headers.get("accept", "").startswith("text/event-stream")


def _no_stream() -> httpx2.Response:
    return httpx2.Response(406)


def reading_client(transport: httpx2.BaseTransport) -> Client:
    return Client(URL, token="-", deadline=DEADLINE_S, transport=ReadOnly(transport))  # noqa: S106 - the worker has one


def async_reading_client(transport: httpx2.AsyncBaseTransport) -> AsyncClient:
    return AsyncClient(URL, token="-", deadline=DEADLINE_S, transport=AsyncReadOnly(transport))  # noqa: S106 - as above


def _read_request(request: httpx2.Request) -> ReadRequest:
    headers = [(name, value) for name, value in request.headers.items() if _passes(name)]
    return ReadRequest(request.url.raw_path.decode(), tuple(headers))


def _passes(name: str) -> bool:
    """Whether a header belongs to the question, not to the connection."""
    return name == "accept" or name.startswith(("x-tickwork-", "last-event-"))


def _response(reading: Reading) -> httpx2.Response:
    return httpx2.Response(reading.status, headers=list(reading.headers), content=reading.body)
