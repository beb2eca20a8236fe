"""HTTP requests: the node's document says which, the answer is the result.

Success is any 2xx, or what the node's own condition over `status` and `body` says. Arguments travel as the JSON
body, or as the query of a request that has none, unless the node has a body of its own. Every request leaves
through `_request`.
"""

import time
from typing import Any

import httpx2
import msgspec

from tickwork.core.conditions import HTTP_VARIABLES, Condition, ConditionFailed
from tickwork.core.definition import HttpNode
from tickwork.executors.turns import Failure, Turns
from tickwork.ports.exchange import Spec, Work

BODY_BYTES_MAX = 100_000  # of an answer; the rest is not read
BODYLESS = ("GET", "HEAD", "DELETE", "OPTIONS")
TIMEOUT_S = 60.0  # for a node without a limit of its own


class HttpExecutor(Turns):
    kinds = frozenset({"http"})
    isolation = "none is needed: the agent makes the requests and no code of users runs; its network is their reach"

    def __init__(self, *, at_once: int = 64, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        super().__init__(at_once=at_once)
        self._transport = transport
        self._client: httpx2.AsyncClient | None = None

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def attempt(self, work: Work, spec: Spec) -> bytes:
        node = msgspec.json.decode(spec.document, type=HttpNode)
        status, body, cut = await self._request(node, work, spec)
        if not _succeeded(node, status, body):
            said = body if isinstance(body, str) else msgspec.json.encode(body).decode()
            raise Failure("HttpStatus", f"{node.method} {node.url} answered {status}: {said[:500]}", exit_code=status)
        return msgspec.msgpack.encode({"status": status, "body": body, "cut": cut})

    async def close(self, *, grace_s: float) -> None:
        await super().close(grace_s=grace_s)
        if self._client is not None:
            await self._client.aclose()

    async def _request(self, node: HttpNode, work: Work, spec: Spec) -> tuple[int, Any, bool]:
        """The only way out: whoever must forbid an address does it here."""
        if self._client is None:
            self._client = httpx2.AsyncClient(transport=self._transport, trust_env=False, follow_redirects=False)
        timeout_s = spec.running_ms / 1000 if spec.running_ms else TIMEOUT_S
        try:
            async with self._client.stream(
                node.method, node.url, timeout=timeout_s, **_content(node, work, spec)
            ) as answer:
                data, cut = await _bounded(answer)
        except httpx2.TimeoutException as error:
            raise Failure("TimeoutError", f"{node.method} {node.url} gave no answer in time") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Failure(type(error).__name__, f"{node.method} {node.url}: {error}") from error
        return answer.status_code, _body(answer.headers.get("content-type", ""), data, cut), cut


def _content(node: HttpNode, work: Work, spec: Spec) -> dict[str, Any]:
    headers = {"user-agent": "tickwork", **node.headers}
    args = msgspec.msgpack.decode(work.args) if work.args else {}
    content: dict[str, Any] = {"headers": headers}
    if node.method in BODYLESS:
        if args:
            content["params"] = {name: _plain(value) for name, value in args.items()}
        return content
    if not any(name.lower() == "idempotency-key" for name in headers):
        headers["idempotency-key"] = f"{work.tenant}/{work.run_id}/{spec.node}/{work.child}"
    body = node.body if node.body is not None else args
    if isinstance(body, str):
        content["content"] = body.encode()
    else:
        content["content"] = msgspec.json.encode(body)
        headers.setdefault("content-type", "application/json")
    return content


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def _bounded(answer: httpx2.Response) -> tuple[bytes, bool]:
    data = bytearray()
    async for piece in answer.aiter_bytes():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            return bytes(data[:BODY_BYTES_MAX]), True
    return bytes(data), False


def _body(content_type: str, data: bytes, cut: bool) -> Any:
    if "json" in content_type and not cut:
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError:
            pass  # it says so, but it is none
    return data.decode(errors="replace")


def _succeeded(node: HttpNode, status: int, body: Any) -> bool:
    if node.success is None:
        return 200 <= status < 300
    try:
        condition = Condition.compile(node.success, path="success", allowed=HTTP_VARIABLES)
        return condition.holds({"status": status, "body": body})
    except ConditionFailed as error:
        message = f"the success condition has no answer for status {status}: {error}"
        raise Failure("ConditionFailed", message) from error
