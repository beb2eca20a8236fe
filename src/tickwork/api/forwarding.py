"""Where a request of a cluster is answered: here, at the owner of what it is about, or at several owners.

The owner's answer goes back as it came, streams included. An internal request says which partition it means, and is
answered here or nowhere, so that no request travels in a circle.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from starlette.types import Message, Receive, Scope

from tickwork.api.http.auth import not_a_node
from tickwork.api.http.errors import OUTCOME_UNKNOWN, problem, retry_after
from tickwork.api.http.request import (
    BODY_S,
    BYTES_PER_S_MIN,
    NODE,
    PARTITION,
    ClientDisconnected,
    Request,
    ShutdownSignal,
    too_slow,
)
from tickwork.api.http.response import JSON, Response, StreamingResponse, as_json, json_encoder
from tickwork.api.http.route import Route
from tickwork.cluster.node_credentials import CODE
from tickwork.cluster.placement import partition_of_number
from tickwork.cluster.request_forwarder import Header, HttpForwarder, RequestForwarder
from tickwork.core.base.errors import OutcomeUnknown, Refused, Unavailable
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.http.route import LocalHandler
    from tickwork.cluster.node import Node
    from tickwork.runtime.engine import Engine

NOT_A_NODE = b'"%b"' % CODE.encode()
EVERY = b"all"  # marks a request that the home's owner sends to all partitions of the tenant
BODY_BYTES_MAX = 256 * 1024 * 1024
RETRY_MS = 200
_PASSED = frozenset((b"location", b"retry-after", b"etag", b"content-disposition", b"allow"))
# Hop-by-hop headers, not forwarded.
_HOP = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"host", b"content-length", NODE, PARTITION)
)
# How this node's guard let the client in. The owner's guard would compare them with its own address, and refuse a page
# that it did not serve; a node shows its own token, and a session stays with the node that the browser speaks to.
_LET_IN = frozenset((b"authorization", b"cookie", b"origin", b"referer"))
_FETCH = b"sec-fetch-"


class ClusterRouter:
    def __init__(self, node: "Node", shutdown: ShutdownSignal, carrier: RequestForwarder | None = None) -> None:
        self.node = node
        self._closing = shutdown
        self._carrier: RequestForwarder = carrier or HttpForwarder()
        self.authorization = ""  # for this node's own requests to other nodes

    async def answer(
        self, handler: "LocalHandler", route: Route, scope: Scope, receive: Receive, whole: bytes | None
    ) -> Response | StreamingResponse | None:
        if route.internal and not await self._from_node(scope):
            return not_a_node(f"{route.path} is for nodes of the cluster only")
        if route.routed_to == "here":
            return await handler.local(route, scope, receive, whole, None)
        target = next((value for name, value in scope["headers"] if name == PARTITION), None)
        if target is not None and not await self._from_node(scope):
            return not_a_node(f"the header {PARTITION.decode()} is for nodes of the cluster only; leave it out")
        if route.routed_to == "all" and self.node.partitions > 1:
            return await self._in_order(handler, route, scope, receive, whole)
        if target is not None:
            return await self._here_or_nowhere(handler, route, scope, receive, whole, target)
        if route.routed_to == "every":
            return await self._runs(handler, route, scope, await _body(receive, whole, route))
        if route.routed_to == "run":
            return await self._run(handler, route, scope, await _body(receive, whole, route))
        if route.routed_to == "any":
            # Runs in a partition that was just added must receive it, too.
            await self.node.routes.refresh()
            return await self._any(
                handler, route, scope, await _body(receive, whole, route), self._partitions(route, scope)
            )
        if route.routed_to == "runs":
            return await self._runs(handler, route, scope, await _body(receive, whole, route))
        partition = self._partitions(route, scope)[0]
        engine = self.node.owned(partition)
        if engine is not None:
            return await self._local(handler, route, scope, receive, whole, engine)
        return await self.at(partition, handler, route, scope, await _body(receive, whole, route))

    async def _run(
        self, handler: "LocalHandler", route: Route, scope: Scope, body: bytes
    ) -> Response | StreamingResponse | None:
        """At the partition that knows the run. Another node may have spread the tenant a moment ago: "unknown" is an
        answer only where the routes of the store name no further partition."""
        tried: dict[int, None] = {}
        answer: Response | StreamingResponse | None = None
        while rest := [partition for partition in self._partitions(route, scope) if partition not in tried]:
            for partition in rest:
                answer = await self.at(partition, handler, route, scope, body)
                if not _unknown_run(answer):
                    return answer
                tried[partition] = None
            await self.node.routes.refresh()
        return answer

    async def _from_node(self, scope: Scope) -> bool:
        proof = next((value for name, value in scope["headers"] if name == NODE), b"")
        return await self.node.authentication.is_node(proof.decode("latin-1"))

    def _identity(self) -> list[Header]:
        """Return the headers that authenticate this node at another node."""
        identity = [(NODE, self.node.authentication.credentials.sent.encode())]
        if self.authorization:
            identity.append((b"authorization", self.authorization.encode()))
        return identity

    def _partitions(self, route: Route, scope: Scope) -> tuple[int, ...]:
        """Return the partitions that may have the run, the likeliest first."""
        node = self.node
        every = node.routes.partitions_of(TENANT)
        match route.routed_to:
            case "home":
                return every[:1]
            case "task":
                text = scope["path_params"]["task"]
                known = text.isascii() and text.isdigit() and len(text) <= 18
                return (partition_of_number(int(text), node.partitions),) if known else every[:1]
            case "partition":
                text = scope["path_params"]["partition"]
                known = text.isascii() and text.isdigit() and len(text) < 6 and int(text) < node.partitions
                return (int(text),) if known else every[:1]
            case "run" if len(every) > 1:
                first = node.routes.partition_of_run(TENANT, scope["path_params"]["run"])
                return tuple(dict.fromkeys((first, *every)))
        return every

    async def _here_or_nowhere(
        self, handler: "LocalHandler", route: Route, scope: Scope, receive: Receive, whole: bytes | None, target: bytes
    ) -> Response | StreamingResponse | None:
        engine = self.node.owned(int(target)) if target.isdigit() and len(target) < 6 else None
        if engine is None:
            return problem(503, "not_owner", "this node does not own that partition", retry_after(RETRY_MS))
        return await self._local(handler, route, scope, receive, whole, engine)

    async def _local(
        self,
        handler: "LocalHandler",
        route: Route,
        scope: Scope,
        receive: Receive,
        whole: bytes | None,
        engine: "Engine",
    ) -> Response | StreamingResponse | None:
        """Include runs that were accepted and cannot start yet."""
        answer = await handler.local(route, scope, receive, whole, engine)
        if (
            (held := self.node.inbox.held.get(engine.context.number))
            and route.routed_to == "run"
            and _unknown_run(answer)
        ):
            kept = held.get(scope["path_params"]["run"])
            if kept is not None:
                where = f"{kept.refusal.path}: " if kept.refusal.path else ""
                detail = f"it waits in the inbox, because its partition refuses it: {where}{kept.refusal.detail}"
                return problem(409, "held_in_inbox", f"{detail}; correct the cause, or remove it from the inbox")
        return answer

    # ---- at one owner

    async def at(
        self, partition: int, handler: "LocalHandler", route: Route, scope: Scope, body: bytes
    ) -> Response | StreamingResponse | None:
        engine = self.node.owned(partition)
        if engine is not None:
            return await self._local(handler, route, scope, _nothing_more, body, engine)
        return await self._to_owner(partition, str(partition).encode(), scope, body)

    async def _to_owner(self, partition: int, target: bytes, scope: Scope, body: bytes) -> Response | StreamingResponse:
        try:
            return await self._forward(await self.node.owners.address_of(partition), target, scope, body)
        except OutcomeUnknown as error:
            await self.node.owners.refresh()
            return problem(OUTCOME_UNKNOWN, error.code, str(error))
        except Unavailable as error:
            await self.node.owners.refresh()
            return problem(503, "no_owner", str(error), retry_after(RETRY_MS))

    async def _forward(self, address: str, named: bytes, scope: Scope, body: bytes) -> Response | StreamingResponse:
        headers = [(PARTITION, named), *self._identity()]
        headers += [pair for pair in scope["headers"] if _is_forwarded(pair[0])]
        query = scope["query_string"].decode("latin-1")
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        target = f"{path}?{query}" if query else path
        method = (
            "GET" if scope["method"] == "HEAD" else scope["method"]
        )  # HEAD must compute the same headers; the body is dropped here
        carried = await self._carrier.carry(method, address, target, headers, body)
        if carried.status == 403 and NOT_A_NODE in carried.body:  # the owner does not know this node yet
            raise Unavailable(f"the owner at {address} does not know this node yet", retry_after_ms=RETRY_MS)
        kind = next((value.decode("latin-1") for name, value in carried.headers if name == b"content-type"), JSON)
        passed = [(name, value) for name, value in carried.headers if name in _PASSED]
        if carried.pieces is not None:
            stream = StreamingResponse(carried.pieces, kind, *passed)
            stream.status = carried.status
            return stream
        answer = Response(carried.status, carried.body, kind, *passed)
        if carried.status in (204, 304):
            answer.headers = passed
        return answer

    async def known(self, partition: int, ids: Sequence[str]) -> frozenset[str]:
        """Return those of the ids whose runs live in that partition."""
        engine = self.node.owned(partition)
        if engine is not None:
            return frozenset(await engine.queries.known(ids))
        try:
            body = await self.ask(partition, "POST", f"/v1/partitions/{partition}/known", {"ids": list(ids)})
        except OutcomeUnknown as error:  # a read, so nothing has changed
            raise Unavailable(str(error), retry_after_ms=RETRY_MS) from error
        except Refused as refused:
            if refused.code != "unknown_path":
                raise
            return frozenset([run_id for run_id in ids if await self._is_known(partition, run_id)])
        return frozenset(msgspec.json.decode(body, type=wire.Ids).ids)

    async def _is_known(self, partition: int, run_id: str) -> bool:
        """Query one id at a time: an owner of an older version has no route for several."""
        try:
            await self.ask(partition, "GET", f"/v1/runs/{quote(run_id, safe='')}")
        except Refused:  # unknown, or not a valid id
            return False
        return True

    async def ask(self, partition: int, method: str, path: str, value: object = None) -> bytes:
        """Send a request of this node to the owner of a remote partition. Raises `Refused` where the owner refuses."""
        headers = [(PARTITION, str(partition).encode()), (b"content-type", JSON.encode()), *self._identity()]
        address = await self.node.owners.address_of(partition)
        body = b"" if value is None else json_encoder.encode(value)
        carried = await self._carrier.carry(method, address, path, headers, body)
        if carried.status >= 400:
            text = shortened(carried.body[:1_500].decode("utf-8", "replace"), 300)
            known = carried.status != 403 or NOT_A_NODE not in carried.body
            if known and carried.status < 500 and carried.status not in (408, 425, 429):
                with suppress(msgspec.DecodeError):
                    problem = msgspec.json.decode(carried.body, type=wire.Problem)
                    raise Refused(problem.code, problem.detail, path=problem.path)
            raise Unavailable(f"the owner at {address} answered {text}", retry_after_ms=RETRY_MS)
        return carried.body

    async def close(self) -> None:
        await self._carrier.close()

    # ---- at several

    async def collect(
        self, handler: "LocalHandler", request: Request, partitions: Sequence[int]
    ) -> list[bytes] | Response | StreamingResponse | None:
        """Return the responses of all owners, in this order, or the first response that is not a success."""
        answers = await asyncio.gather(
            *(self.at(partition, handler, request.route, request.scope, b"") for partition in partitions)
        )
        bad = [answer for answer in answers if not isinstance(answer, Response) or answer.status != 200]
        return bad[0] if bad else [answer.body for answer in answers if isinstance(answer, Response)]

    async def _in_order(
        self, handler: "LocalHandler", route: Route, scope: Scope, receive: Receive, whole: bytes | None
    ) -> Response | StreamingResponse | None:
        """The owner of the tenant's home handles requests that concern all partitions, one at a time and never during a
        spread: otherwise a partition that is being added would miss them."""
        target = next((value for name, value in scope["headers"] if name == PARTITION), None)
        if target is not None and target != EVERY:
            return await self._here_or_nowhere(handler, route, scope, receive, whole, target)
        body, home = await _body(receive, whole, route), self.node.routes.home(TENANT)
        if self.node.owned(home) is None:
            if target == EVERY:
                return problem(503, "not_owner", "this node does not own that partition", retry_after(RETRY_MS))
            return await self._to_owner(home, EVERY, scope, body)
        scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != PARTITION]}
        async with self.node.order:
            await self.node.routes.refresh()
            partitions = self.node.routes.partitions_of(TENANT)
            answer = await self._all(handler, route, scope, body, partitions)
            while answer is not None and answer.status < 400:
                # Meanwhile the home may have had another owner that spread the tenant. Either it read this publication,
                # or the route read here contains the partitions that it added: one of the two happened later.
                await self.node.routes.refresh()
                before, partitions = partitions, self.node.routes.partitions_of(TENANT)
                if len(partitions) <= len(before):
                    break
                if route.split_body is not None:
                    answer = await self._all(handler, route, scope, body, partitions)
                    continue
                for partition in partitions[len(before) :]:
                    added = await self.at(partition, handler, route, scope, body)
                    if added is None or (added.status >= 400 and added.status != 409):  # 409: already done
                        return added
        return answer

    async def _all(
        self, handler: "LocalHandler", route: Route, scope: Scope, body: bytes, partitions: tuple[int, ...]
    ) -> Response | StreamingResponse | None:
        """Send to all partitions, home last, and return its response. A repeat changes nothing twice."""
        for number, partition in enumerate(partitions[1:], 1):
            part = route.split_body(body, number, len(partitions)) if route.split_body is not None else body
            answer = await self.at(partition, handler, route, scope, part)
            if answer is None or answer.status >= 400:
                return answer
        part = route.split_body(body, 0, len(partitions)) if route.split_body is not None else body
        return await self.at(partitions[0], handler, route, scope, part)

    async def _any(
        self, handler: "LocalHandler", route: Route, scope: Scope, body: bytes, partitions: tuple[int, ...]
    ) -> Response | StreamingResponse | None:
        """Send to all partitions and return the response of one that knows the subject. Retry unreachable ones."""
        best: Response | StreamingResponse | None = None
        heard: list[wire.Heard] = []
        for partition in reversed(partitions):
            answer = await self.at(partition, handler, route, scope, body)
            if answer is not None and answer.status >= 500 and any(reply.waiting for reply in heard):
                message = (
                    "some runs received it, but one partition did not respond; read the state before you repeat it"
                )
                return problem(OUTCOME_UNKNOWN, OutcomeUnknown.code, message)
            if answer is None or answer.status in (503, OUTCOME_UNKNOWN):
                return answer
            if route.open and answer.status >= 400:  # its sender repeats it until every partition has it
                return answer
            if isinstance(answer, Response) and answer.status == 200:
                heard.append(msgspec.json.decode(answer.body, type=wire.Heard))
            if best is None or best.status >= 400 or (partition == partitions[0] and answer.status < 400):
                best = answer
        if len(heard) > 1:
            waiting, schedules = (sum(getattr(reply, name) for reply in heard) for name in ("waiting", "schedules"))
            duplicate = all(reply.duplicate for reply in heard)
            detail = "duplicate" if duplicate else f"{waiting} waiting"
            return as_json(wire.Heard(detail=detail, waiting=waiting, schedules=schedules, duplicate=duplicate))
        return best

    async def _runs(
        self, handler: "LocalHandler", route: Route, scope: Scope, body: bytes
    ) -> Response | StreamingResponse | None:
        assert route.gather is not None, "a route over runs says how"
        request = Request(scope, _nothing_more, route, None, self._closing, body)
        return await handler.guarded(route.gather(self, handler, request))


def _is_forwarded(name: bytes) -> bool:
    return name not in _HOP and name not in _LET_IN and not name.startswith(_FETCH)


def _unknown_run(answer: Response | StreamingResponse | None) -> bool:
    return isinstance(answer, Response) and answer.status == 404 and b'"unknown_run"' in answer.body


async def _body(receive: Receive, whole: bytes | None, route: Route) -> bytes:
    """Return the body. Of one beyond the route's limit only so much that the handler refuses it."""
    if whole is not None:
        return whole
    bytes_max = min(route.body.bytes_max, BODY_BYTES_MAX) if route.body is not None else BODY_BYTES_MAX
    try:
        async with asyncio.timeout(BODY_S + bytes_max / BYTES_PER_S_MIN):
            return await _read(receive, bytes_max)
    except TimeoutError:
        raise too_slow() from None


async def _read(receive: Receive, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > bytes_max or not message.get("more_body", False):
            return b"".join(pieces)


async def _nothing_more() -> Message:
    raise ClientDisconnected
