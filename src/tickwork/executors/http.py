"""HTTP requests: the node's document says which, the answer is the result.

Success is any 2xx, or what the node's own condition over `status` and `body` says. Arguments travel as the JSON
body, or as the query of a request that has none, unless the node has a body of its own. Every request leaves
through `EgressClient`, and so past its guard.
"""

import hashlib
import hmac
import os
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.core.base.strict_json import check as check_plain
from tickwork.core.definition.cel import HTTP_VARIABLES, Condition, ConditionFailed
from tickwork.core.definition.model import HTTP_TIMEOUT_MS, HttpNode
from tickwork.core.definition.node_validation import header_reason
from tickwork.executors.concurrency import AttemptFailure, ConcurrentExecutor, wall_ms
from tickwork.executors.egress_client import EgressClient, HttpResult, NoHttpResult, Sign
from tickwork.executors.egress_policy import AddressRefused, EgressPolicy
from tickwork.executors.secrets import SecretMissing, Secrets
from tickwork.ports.executor import ReportSink
from tickwork.protocol.worker_messages import AttemptJob, NodeSpec

# ---- Signed requests: the receiver can verify the sender, the content and the time.


TIMESTAMP = "x-tickwork-timestamp"
SIGNATURE = "x-tickwork-signature"


def signed(key: bytes, *, at_s: int, method: str, path: bytes, body: bytes) -> dict[str, str]:
    """The two headers."""
    message = b"%d\n%s\n%s\n%s" % (at_s, method.encode(), path, body)
    return {TIMESTAMP: str(at_s), SIGNATURE: f"v1={hmac.new(key, message, hashlib.sha256).hexdigest()}"}


BODYLESS = ("GET", "HEAD", "DELETE", "OPTIONS")
MESSAGE_CHARACTERS_MAX = 2_000  # of a failure, the answer's body included


class HttpAttempts:
    kinds = frozenset({"http"})
    isolation = "none is needed: the agent makes the requests and no code of users runs; its guard bounds their reach"

    def __init__(self, *, outbound: EgressClient | None = None, secrets: Secrets | None = None) -> None:
        self._outbound = outbound or EgressClient(EgressPolicy())
        self._secrets = secrets or Secrets(os.environ)

    async def attempt(self, work: AttemptJob, spec: NodeSpec, _sink: ReportSink) -> bytes:
        node = msgspec.json.decode(spec.document, type=HttpNode)
        answer = await self._answer(node, work, spec)
        body = _body(answer)
        if not _succeeded(node, answer.status, body):
            message = f"{node.method} {node.url} answered {answer.status}: {_body_text(body)}"
            raise AttemptFailure("HttpStatus", shortened(message, MESSAGE_CHARACTERS_MAX), exit_code=answer.status)
        return msgspec.msgpack.encode(
            {"status": answer.status, "body": body, "cut": answer.cut, "duration_ms": answer.duration_ms}
        )

    async def close(self) -> None:
        await self._outbound.close()

    async def _answer(self, node: HttpNode, work: AttemptJob, spec: NodeSpec) -> HttpResult:
        try:
            return await self._outbound.ask(
                node.method,
                node.url,
                total_s=(spec.running_ms or HTTP_TIMEOUT_MS) / 1000,
                body_bytes_max=node.body_limit,
                sign=self._sign(node.sign),
                **_content(node, work, spec),
            )
        except SecretMissing as error:
            raise AttemptFailure("SecretMissing", f"{node.method} {node.url}: {error}", permanent=True) from error
        except AddressRefused as error:
            raise AttemptFailure("AddressRefused", f"{node.method} {node.url}: {error}", permanent=True) from error
        except NoHttpResult as error:
            raise AttemptFailure(error.error, f"{node.method} {node.url}: {error}") from error

    def _sign(self, name: str | None) -> Sign | None:
        if name is None:
            return None
        key = self._secrets.get(name)
        return lambda method, path, body: signed(key, at_s=wall_ms() // 1000, method=method, path=path, body=body)


def http_executor(
    *, at_once: int = 64, outbound: EgressClient | None = None, secrets: Secrets | None = None
) -> ConcurrentExecutor:
    return ConcurrentExecutor(HttpAttempts(outbound=outbound, secrets=secrets), at_once=at_once)


def _content(node: HttpNode, work: AttemptJob, spec: NodeSpec) -> dict[str, Any]:
    headers = dict(node.headers)
    for name, value in headers.items():
        if reason := header_reason(name, value):
            raise AttemptFailure("HeaderRefused", f"{node.method} {node.url}: {name}: {reason}", permanent=True)
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
        if not any(name.lower() == "content-type" for name in headers):
            headers["content-type"] = "application/json"
    return content


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _body(answer: HttpResult) -> Any:
    """JSON as a value where it is whole and plain data, anything else as text; nothing is ever read as a page."""
    if "json" in answer.content_type and not answer.cut:
        try:
            value = msgspec.json.decode(answer.body)
            check_plain({"body": value})  # as deep as the result will be
            return value
        except (ValueError, RecursionError, Refused):
            pass  # it is not JSON, or cannot be stored: nested too deeply, or a number too large
    return answer.body.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _body_text(body: Any) -> str:
    return body if isinstance(body, str) else msgspec.json.encode(body).decode()


def _succeeded(node: HttpNode, status: int, body: Any) -> bool:
    if node.success is None:
        return 200 <= status < 300
    try:
        condition = Condition.compile(node.success, path="success", allowed=HTTP_VARIABLES)
        return condition.holds({"status": status, "body": body})
    except ConditionFailed as error:
        message = f"the success condition cannot be evaluated for status {status}: {error}"
        raise AttemptFailure("ConditionFailed", message, exit_code=status) from error
