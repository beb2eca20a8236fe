"""HTTP client for users' requests: every request on behalf of users leaves through `EgressClient`.

The connection goes to an address that the egress policy has checked, while the request and TLS keep the name. Proxy
variables are not read and redirects are not followed: a response that points elsewhere is a response. Size, time,
headers and compression of a response are bounded. A test forbids other HTTP clients.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import httpcore2
import httpx2
import msgspec

from tickwork.executors.egress_policy import AddressRefused, EgressPolicy, check_url

BODY_BYTES_MAX = 1_000_000
HEADER_BYTES_MAX = 64 * 1024
CONNECT_S = 10.0
CONNECTIONS_MAX = 100
IDLE_CONNECTIONS_MAX = 20
IDLE_S = 5.0
CODINGS = "gzip, deflate"

Sign = Callable[[str, bytes, bytes], Mapping[str, str]]  # method, path with query, body


class HttpResult(msgspec.Struct, frozen=True):
    status: int
    content_type: str
    body: bytes
    cut: bool  # there was more
    duration_ms: int  # from the first step to the last byte that was read


class NoHttpResult(Exception):
    """Nothing, or nothing usable, came back. `error` is its type in one word."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


class EgressClient:
    def __init__(
        self,
        guard: EgressPolicy,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        network: httpcore2.AsyncNetworkBackend | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`transport` answers in place of the network, `network` connects in place of the system, in tests."""
        self._guard, self._transport, self._network, self._tls = guard, transport, network, tls
        self._client: httpx2.AsyncClient | None = None

    async def ask(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        total_s: float,
        body_bytes_max: int,
        content: bytes = b"",
        params: Mapping[str, str] | None = None,
        sign: Sign | None = None,
    ) -> HttpResult:
        """One request and its answer. Raises `AddressRefused`, or `NoHttpResult`."""
        assert 0 < body_bytes_max <= BODY_BYTES_MAX
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            request = self._request(method, url, headers, content, params, sign, total_s)
            async with asyncio.timeout(total_s):
                answer, body, cut = await self._exchange(request, body_bytes_max)
        except (httpx2.TimeoutException, httpcore2.TimeoutException, TimeoutError) as error:
            raise NoHttpResult("TimeoutError", f"no answer within {total_s:g} s") from error
        except (
            *(httpx2.HTTPError, OSError),
            *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol),
        ) as error:
            raise NoHttpResult(type(error).__name__, str(error) or type(error).__name__) from error
        spent_ms = round((loop.time() - began) * 1000)
        return HttpResult(answer.status_code, answer.headers.get("content-type", ""), body, cut, spent_ms)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes,
        params: Mapping[str, str] | None,
        sign: Sign | None,
        total_s: float,
    ) -> httpx2.Request:
        try:
            target = httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise AddressRefused("url", str(error)) from error
        check_url(target.scheme, target.raw_host.decode("ascii"), target.userinfo)
        if params:
            target = target.copy_merge_params(params)
        given = httpx2.Headers({"user-agent": "tickwork", "accept": "*/*", "accept-encoding": CODINGS})
        given.update(headers)
        if sign is not None:
            given.update(sign(method, target.raw_path, content))
        wait = httpx2.Timeout(total_s, connect=min(CONNECT_S, total_s))
        return httpx2.Request(
            method, target, headers=given, content=content or None, extensions={"timeout": wait.as_dict()}
        )

    async def _exchange(self, request: httpx2.Request, body_bytes_max: int) -> tuple[httpx2.Response, bytes, bool]:
        answer = await self._opened().send(request, stream=True)
        try:
            _check_headers(answer.headers)
            body, cut = await _bounded(answer, body_bytes_max)
        finally:
            await answer.aclose()
        return answer, body, cut

    def _opened(self) -> httpx2.AsyncClient:
        if self._client is None:
            transport = self._transport or _Transport(self._guard, network=self._network, tls=self._tls)
            self._client = httpx2.AsyncClient(transport=transport, trust_env=False, follow_redirects=False)
        self._client.cookies.clear()  # none is ever sent; kept, they would only grow
        return self._client


class _Backend(httpcore2.AsyncNetworkBackend):
    """Connects to checked addresses only. What is above it knows the name alone, for Host and TLS."""

    def __init__(self, guard: EgressPolicy, inner: httpcore2.AsyncNetworkBackend) -> None:
        self._guard, self._inner = guard, inner

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._guard.addresses(host, port)
                return await self._first(addresses, port, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host}:{port} was not reached in time") from error
        except OSError as error:
            raise httpcore2.ConnectError(f"{host}: {error.strerror or error}") from error

    async def _first(
        self, addresses: tuple[str, ...], port: int, local: str | None, options: Iterable[Any] | None
    ) -> httpcore2.AsyncNetworkStream:
        for last, address in enumerate(addresses, 1 - len(addresses)):
            try:
                return await self._inner.connect_tcp(address, port, local_address=local, socket_options=options)
            except httpcore2.ConnectError:
                if last == 0:
                    raise
        raise AssertionError("a name has at least one address")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Transport(httpx2.AsyncBaseTransport):
    def __init__(
        self, guard: EgressPolicy, *, network: httpcore2.AsyncNetworkBackend | None, tls: ssl.SSLContext | None
    ) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls or httpx2.create_ssl_context(),  # the system's, or SSL_CERT_FILE and SSL_CERT_DIR
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_S,
            network_backend=_Backend(guard, network or httpcore2.AnyIOBackend()),
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        where = httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        answer = await self._pool.handle_async_request(
            httpcore2.Request(
                request.method, where, headers=request.headers.raw, content=request.stream,
                extensions=request.extensions,
            )
        )  # fmt: skip
        return httpx2.Response(answer.status, headers=answer.headers, stream=_Stream(answer))

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Stream(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_stream():
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


def _check_headers(headers: httpx2.Headers) -> None:
    size = sum(len(name) + len(value) for name, value in headers.raw)
    if size > HEADER_BYTES_MAX:
        raise NoHttpResult(
            "HeadersTooLarge", f"the answer has {size} bytes of headers; at most {HEADER_BYTES_MAX} are read"
        )
    if "," in headers.get("content-encoding", ""):
        raise NoHttpResult("ContentEncoding", "the answer is compressed more than once; compress it once or not at all")


async def _bounded(answer: httpx2.Response, bytes_max: int) -> tuple[bytes, bool]:
    """Decompressed, in pieces; what lies beyond the limit is neither read nor unpacked."""
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > bytes_max:
            return bytes(data[:bytes_max]), True
    return bytes(data), False
