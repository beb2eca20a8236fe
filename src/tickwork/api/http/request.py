"""One request, read strictly: unknown or malformed input is refused with its location.

Small bodies that people write go through the strict JSON reader, which knows duplicate keys and numbers that nobody
can carry; batches are decoded by msgspec into their models at once.
"""

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from tickwork.api.http.errors import HttpRefused
from tickwork.api.http.response import JSON, MSGPACK, Header
from tickwork.api.http.route import MANY_MAX, QueryParam, Route
from tickwork.api.http.webhooks import Webhooks
from tickwork.cluster.node_credentials import HEADER
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import RUN_ID_CHARACTERS_MAX, check_line, check_name, is_run_id
from tickwork.core.base.shortened import shortened

BY_CHARACTERS_MAX = 128
KEY_CHARACTERS_MAX = 250  # of the header; in a batch each run's key has its index appended
BODY_S = 60.0  # time limit for a body; a large one may take longer
BYTES_PER_S_MIN = 1024 * 1024
# Unread body bytes would be taken for the next request, so the connection closes after the response.
_CLOSE: tuple[Header, ...] = ((b"connection", b"close"),)

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.cluster.node import Node
    from tickwork.runtime.context import EngineContext
    from tickwork.runtime.engine import Engine

T = TypeVar("T")
NO_WEBHOOKS = Webhooks()
NODE = HEADER.encode()  # the header by which a node proves that it is one
PARTITION = b"x-tickwork-partition"  # the header in which a node names the partition
INNER = "tickwork.inner"  # in the scope of a part of a request, which this node handles
KNOWN = "tickwork.known"  # in the scope of a request whose head came before: its headers, and the same by name


class ShutdownSignal:
    """Whether the server is stopping; long waits and streams end then."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    async def wait(self) -> None:
        await self._event.wait()


class ClientDisconnected(Exception):
    """The client hung up, so no response is needed."""


class Request:
    __slots__ = ("_engine", "_headers", "_receive", "_whole", "closing", "query", "route", "scope", "ways", "webhooks")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        route: Route,
        engine: "Engine | None",
        shutdown: ShutdownSignal,
        whole: bytes | None = None,
    ) -> None:
        self.scope = scope
        self.route = route
        self._engine = engine  # None: the request needs no partition
        self.ways: ClusterRouter | None = None  # None: not a node of a cluster
        self.webhooks = NO_WEBHOOKS
        self.closing = shutdown
        self._receive = receive
        self._whole = whole
        headers, known = scope["headers"], scope.get(KNOWN)
        self._headers: dict[bytes, bytes] = known[1] if known is not None and known[0] is headers else dict(headers)
        self.query: dict[str, Any] = _read_query(route.query, scope["query_string"]) if self._asks() else _EMPTY

    def _asks(self) -> bool:
        return bool(self.scope["query_string"] or self.route.query)

    @property
    def node(self) -> "Node | None":
        return self.ways.node if self.ways is not None else None

    @property
    def engine(self) -> "Engine":
        assert self._engine is not None, "what a node answers by itself reads no partition"
        return self._engine

    @property
    def host(self) -> "EngineContext | Node":
        """Return what serves requests without a partition: artifacts, ids, zones."""
        return self.ways.node if self.ways is not None else self.engine.context

    # ---- who and where

    def header(self, name: bytes) -> str:
        value = self._headers.get(name, b"")
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise HttpRefused(
                400, "bad_header", "a header value must be UTF-8", path=f"header.{name.decode()}"
            ) from None

    @property
    def by(self) -> str:
        """Author of the request, as recorded in the journal."""
        if b"x-tickwork-by" not in self._headers:
            return "api"
        name = self.header(b"x-tickwork-by")
        return check_line(
            name, path="header.x-tickwork-by", kind="name of the author", characters_max=BY_CHARACTERS_MAX
        )

    @property
    def key(self) -> str:
        """Idempotency key: a client repeats it when it retries a request."""
        key = self.header(b"idempotency-key")
        if len(key) > KEY_CHARACTERS_MAX:
            message = f"the header has at most {KEY_CHARACTERS_MAX} characters"
            raise Refused("key_too_long", message, path="header.idempotency-key")
        return key

    @property
    def inner(self) -> bool:
        """Whether the request was forwarded by a node, possibly by this one."""
        return INNER in self.scope or (PARTITION in self._headers and self.ways is not None)

    @property
    def peer(self) -> str:
        client = self.scope.get("client")
        return f"{client[0]}:{client[1]}" if client else ""

    @property
    def run_id(self) -> str:
        text = self.text("run")
        if not is_run_id(text):
            message = (
                f"there is no such run: an id has letters, digits and _.:+~@=- only, and at most "
                f"{RUN_ID_CHARACTERS_MAX} characters"
            )
            raise Refused("unknown_run", message, path="run")
        return text

    def name(self, part: str, kind: str = "") -> str:
        return check_name(self.text(part), path=part, kind=kind or part)

    def number(self, part: str) -> int:
        text = self.text(part)
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise Refused(f"unknown_{part}", f"a {part} is a number of at most 18 digits", path=part)
        return int(text)

    def text(self, part: str) -> str:
        text: str = self.scope["path_params"][part]
        return text

    def wants(self, kind: str) -> bool:
        """Return whether the client accepts this media type explicitly."""
        return kind.encode() in self._headers.get(b"accept", b"").lower()

    # ---- bodies

    async def data(self) -> bytes:
        """Return the raw body, within its size limit."""
        body = self.route.body
        assert body is not None, "a route that reads a body says so in the table"
        if self._headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise HttpRefused(
                415, "content_encoding", "send the body uncompressed, without Content-Encoding", headers=_CLOSE
            )
        header = self._headers.get(b"content-length", b"")
        if header.isdigit() and (len(header) > 18 or int(header) > body.bytes_max):
            raise _too_large(body.bytes_max)
        if self._whole is not None:
            if len(self._whole) > body.bytes_max:
                raise _too_large(body.bytes_max)
            return self._whole
        try:
            async with asyncio.timeout(BODY_S + body.bytes_max / BYTES_PER_S_MIN):
                return await self._read(body.bytes_max)
        except TimeoutError:
            raise too_slow() from None

    async def _read(self, bytes_max: int) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def kind(self) -> str:
        """Return the body's content type, which must be one of the route's."""
        body = self.route.body
        assert body is not None
        content_type = self._headers.get(b"content-type", b"").decode("latin-1").lower()
        kind, _, rest = content_type.partition(";")
        kind = kind.strip()
        if kind not in body.kinds:
            allowed = " or ".join(body.kinds)
            raise HttpRefused(415, "content_type", f"send the body as {allowed}, with this Content-Type")
        if kind == JSON and "charset" in rest and "utf-8" not in rest and "utf8" not in rest:
            raise HttpRefused(415, "content_type", "JSON must be encoded in UTF-8")
        return kind

    async def body(self, model: type[T]) -> T:
        """Decode a small body strictly. If the route allows it, a missing body has all defaults."""
        body = self.route.body
        assert body is not None and body.model is model, "the table names the model that is read"
        if body.optional and b"content-type" not in self._headers:
            data = await self.data()
            if not data:
                return model()
        kind = self.kind()
        data = await self.data()
        if body.optional and not data:
            return model()
        if kind == MSGPACK:
            unpacked: T = decoded(data, kind, msgspec.msgpack.Decoder(model))
            return unpacked
        value = strictjson.loads(data, bytes_max=body.bytes_max)
        try:
            return msgspec.convert(value, model)
        except msgspec.ValidationError as error:
            raise invalid(error) from None

    # ---- waiting

    async def hung_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


_EMPTY: dict[str, Any] = {}


def decoded(data: bytes, kind: str, decoder: Any) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpRefused(400, "malformed", f"the body is not {kind}: {error}") from None
    except RecursionError:
        raise HttpRefused(400, "malformed", "the body is nested too deeply; make it flatter") from None


def invalid(error: msgspec.ValidationError) -> Refused:
    """Move the location out of a message such as `Expected ... - at `$.runs[0].key`` into the field of the problem."""
    message, _, location = str(error).partition(" - at `")
    return Refused("invalid_body", message, path=location.rstrip("`").removeprefix("$").removeprefix("."))


def too_slow() -> HttpRefused:
    return HttpRefused(408, "body_too_slow", "the body arrived too slowly", headers=_CLOSE)


def _too_large(bytes_max: int) -> HttpRefused:
    return HttpRefused(
        413,
        "body_too_large",
        f"the body of this request has at most {bytes_max} bytes; send less, or store large values as artifacts",
        headers=_CLOSE,
    )


# ---- query


def _read_query(params: tuple[QueryParam, ...], raw: bytes) -> dict[str, Any]:
    if not raw and not any(param.required for param in params):
        return {param.name: () if param.many else param.default for param in params}
    known = {param.name: param for param in params}
    texts: dict[str, list[str]] = {}
    for pair in raw.split(b"&") if raw else ():
        left, _, right = pair.partition(b"=")
        if pair:
            texts.setdefault(_text(left), []).append(_text(right))
    for name, values in texts.items():
        if name not in known:
            allowed = ", ".join(known) or "none"
            raise Refused(
                "unknown_parameter",
                f"{shortened(name, 100)!a} is not a parameter of this route; known: {allowed}",
                path="query",
            )
        if len(values) > 1:
            raise Refused("repeated_parameter", "give this parameter once", path=f"query.{name}")
    return {name: _value(param, texts.get(name)) for name, param in known.items()}


def _text(raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode("utf-8")
    except UnicodeDecodeError:
        raise Refused("bad_parameter", "a query must be percent-encoded UTF-8", path="query") from None


def _value(param: QueryParam, texts: list[str] | None) -> Any:
    path = f"query.{param.name}"
    if texts is None:
        if param.required:
            raise Refused("missing_parameter", "this parameter is required", path=path)
        return () if param.many else param.default
    if param.many:
        parts = texts[0].split(",")
        if len(parts) > MANY_MAX:
            raise Refused("bad_parameter", f"at most {MANY_MAX} values", path=path)
        return tuple(_single_value(param, text, path) for text in parts)
    return _single_value(param, texts[0], path)


def _single_value(param: QueryParam, text: str, path: str) -> Any:
    if param.kind is int:
        digits = text.removeprefix("-") if param.low < 0 else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and param.low <= int(text) <= param.high):
            raise Refused("bad_parameter", f"a whole number from {param.low} to {param.high}", path=path)
        return int(text)
    if param.kind is bool:
        if text not in ("true", "false"):
            raise Refused("bad_parameter", "true or false", path=path)
        return text == "true"
    if len(text) > param.characters_max or "\x00" in text:
        raise Refused("bad_parameter", f"text of at most {param.characters_max} characters", path=path)
    if param.choices and text not in param.choices:
        raise Refused("bad_parameter", f"one of {', '.join(param.choices)}", path=path)
    return text
