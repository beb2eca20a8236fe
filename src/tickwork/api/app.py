"""The application: the route table behind the guard, on Starlette's router and nothing else of it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import starlette.routing
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import Message, Receive, Scope, Send

from tickwork.api.forwarding import ClusterRouter
from tickwork.api.http.auth import DEFAULTS, Authenticator, guarded, not_a_node
from tickwork.api.http.browser_sessions import BrowserSessions
from tickwork.api.http.errors import answer_to, log, problem
from tickwork.api.http.etags import with_etag
from tickwork.api.http.request import KNOWN, NO_WEBHOOKS, ClientDisconnected, Request, ShutdownSignal
from tickwork.api.http.response import Response, StreamingResponse, json_encoder
from tickwork.api.http.route import ResponseSpec, Route
from tickwork.api.http.webhooks import Webhooks
from tickwork.api.openapi import document
from tickwork.api.routes import (
    artifacts,
    assets,
    backfills,
    bulk,
    cluster,
    dags,
    dead_letters,
    endpoints,
    holidays,
    inbox,
    journal,
    limits,
    logs,
    mailboxes,
    occurrences,
    page,
    partitions,
    policies,
    queues,
    runs,
    schedules,
    server,
    settings,
    submissions,
    tasks,
    versions,
    webhooks,
    workers,
    workflows,
)
from tickwork.api.routes import run_watch as watching
from tickwork.api.routes import signals as events
from tickwork.cluster.node import Node
from tickwork.core.base.shortened import shortened
from tickwork.ports.ids import Ids
from tickwork.protocol.http_models import STORE_HEADER

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


async def _describe(request: Request) -> Response:  # noqa: ARG001 - the document is the same for every request
    return Response(200, _openapi())


_DESCRIPTION = Route(
    method="GET",
    path="/openapi.json",
    handler=_describe,
    summary="This document.",
    tag="server",
    responses={200: ResponseSpec(None)},
    routed_to="here",
)


# Routes are matched in this order, so the most frequent ones come first.
TABLE: tuple[Route, ...] = (
    *workers.ROUTES,
    *submissions.ROUTES,
    *logs.ROUTES,
    *runs.ROUTES,
    *watching.ROUTES,
    *artifacts.ROUTES,
    *workflows.ROUTES,
    *dags.ROUTES,
    *inbox.ROUTES,
    *versions.ROUTES,
    *schedules.ROUTES,
    *endpoints.ROUTES,
    *occurrences.ROUTES,
    *backfills.ROUTES,
    *holidays.ROUTES,
    *queues.ROUTES,
    *limits.ROUTES,
    *policies.ROUTES,
    *settings.ROUTES,
    *dead_letters.ROUTES,
    *tasks.ROUTES,
    *events.ROUTES,
    *webhooks.ROUTES,
    *mailboxes.ROUTES,
    *assets.ROUTES,
    *bulk.ROUTES,
    *journal.ROUTES,
    *partitions.ROUTES,
    *server.ROUTES,
    *cluster.ROUTES,
    *page.ROUTES,
    _DESCRIPTION,
)


@cache
def _openapi() -> bytes:
    """Build the document at the first request for it, so that a server starts without it."""
    return json_encoder.encode(document(TABLE))


class PathHandler:
    """One path with its methods, as an ASGI application of its own."""

    def __init__(
        self,
        routes: Sequence[Route],
        engine: "Engine | None",
        ids: Ids,
        shutdown: ShutdownSignal,
        router: ClusterRouter | None = None,
        *,
        store: Callable[[], str],
        webhooks: Webhooks = NO_WEBHOOKS,
    ) -> None:
        """In a cluster, `router` finds the engine of each request. `store` returns the store's identity, once open."""
        self._routes = {route.method: route for route in routes}
        if "GET" in self._routes:
            self._routes["HEAD"] = self._routes["GET"]
        self._engine = engine
        self._ids = ids
        self._closing = shutdown
        self._store = store
        self._webhooks = webhooks
        self._ways = router  # of a cluster
        self._allow = ", ".join(sorted(self._routes)).encode()
        self._about_runs = any(
            "{run}" in route.path or "{task}" in route.path or route.path == "/v1/events" for route in routes
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self.answer(scope, receive)
        if answer is None:
            return
        try:
            await answer.send(send, body=scope["method"] != "HEAD")
        # The status was sent already. The server cuts the connection, so the reader sees that the body is incomplete.
        except (ConnectionError, TimeoutError) as error:  # the owner died or hangs: not an error of this node
            log.warning("a response to %s broke off: %s", scope["path"], str(error) or "its owner stopped responding")
        except Exception as error:
            log.error("a response to %s broke off", scope["path"], exc_info=error)

    async def answer(
        self, scope: Scope, receive: Receive, whole: bytes | None = None
    ) -> Response | StreamingResponse | None:
        """Handle a request. `whole` is the body if it was read already. Return None if the client has hung up."""
        route = self._routes.get(scope["method"])
        if route is None:
            detail = f"this path supports {self._allow.decode()}"
            return problem(405, "method_not_allowed", detail, (b"allow", self._allow))
        if route.internal and self._ways is None:
            return not_a_node(f"{route.path} is for nodes of a cluster, and this server is not part of one")
        if self._about_runs and (refused := self._other_store(scope)) is not None:
            return refused
        if self._ways is not None:
            return await self.guarded(self._ways.answer(self, route, scope, receive, whole))
        return await self.local(route, scope, receive, whole, self._engine)

    def _other_store(self, scope: Scope) -> Response | None:
        """Refuse a request about a run of another store before any of it is executed."""
        here = self._store().encode()
        for name, value in scope["headers"]:
            if name == STORE_HEADER.encode() and here and value not in (b"", here):  # empty: it knows none yet
                detail = (
                    f"the request is about a run of store {shortened(value.decode('latin-1'), 128)}, and this server "
                    f"has store {here.decode()}: look for the run in the store that accepted it"
                )
                return problem(409, "other_store", detail)
        return None

    async def local(
        self, route: Route, scope: Scope, receive: Receive, whole: bytes | None, engine: "Engine | None"
    ) -> Response | StreamingResponse | None:
        try:
            request = Request(scope, receive, route, engine, self._closing, whole)
            request.ways = self._ways
            request.webhooks = self._webhooks
            handling = route.handler(request) if route.edited is None else with_etag(request, route)
            answer: Response | StreamingResponse = await handling
        except ClientDisconnected:
            return None
        except Exception as error:
            return answer_to(error, self._ids.new())
        return answer

    async def guarded(
        self, answering: Awaitable[Response | StreamingResponse | None]
    ) -> Response | StreamingResponse | None:
        try:
            return await answering
        except ClientDisconnected:
            return None
        except Exception as error:
            return answer_to(error, self._ids.new())


_WORKERS, _EXCHANGE = "/v1/workers/", "/exchange"
_PLACE = "tickwork.place"
_DEFAULTS = frozenset(name for name, _ in DEFAULTS)  # a response may override these headers


class FastRouter:
    """The entry of a server: paths without parameters, and the exchange, take one look-up and the authentication;
    everything else takes the router. The handlers and responses are the same; a hop takes a third of a millisecond
    less. `answers` and `answer` are for a protocol that has the whole body and needs no ASGI between."""

    def __init__(self, app: Starlette, places: Mapping[str, PathHandler], **guard: Any) -> None:
        self._app = app
        self._places = {path: index for path, index in places.items() if "{" not in path}
        self._exchange = places[_WORKERS + "{worker}" + _EXCHANGE]
        self._guard = Authenticator(_to_place, **guard)
        self._more: list[tuple[bytes, bytes]] = []  # headers that uvicorn adds
        self._every = _lines(guarded([]))  # in each response, with those

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler_of(scope) if scope["type"] == "http" else None
        if handler is None:
            await self._app(scope, receive, send)
            return
        scope[_PLACE] = handler
        await self._guard(scope, receive, send)

    def answers(self, scope: Scope) -> bool:
        handler = scope[_PLACE] = self._handler_of(scope)
        return handler is not None

    def knows(self, scope: Scope) -> bool:
        """Return whether a request with this head passes the guard, now and when the head is repeated."""
        if scope.get(_PLACE) is None or self._guard.refusal(scope) is not None:
            return False
        scope[KNOWN] = (scope["headers"], dict(scope["headers"]))
        return True

    async def answer(self, scope: Scope, body: bytes) -> Response:
        refused = self._guard.refusal(scope) if KNOWN not in scope else None
        if refused is not None:
            return refused
        handler: PathHandler = scope[_PLACE]
        answer = await handler.answer(scope, _nothing_more, body)
        assert isinstance(answer, Response), "what is posted is answered whole"
        return answer

    def refusal(self, scope: Scope) -> Response | None:
        """Return why the guard refuses the request."""
        return self._guard.refusal(scope)

    def is_open(self, scope: Scope) -> bool:
        """Return whether the route needs no token."""
        return self._guard.is_open(scope)

    def head_of(self, answer: Response, more: list[tuple[bytes, bytes]]) -> bytes:
        """Return the encoded headers, with those that every response carries."""
        if not _DEFAULTS.isdisjoint([name for name, _ in answer.headers]):
            return _lines((*more, *guarded(answer.headers)))
        if more != self._more:
            self._more, self._every = list(more), _lines((*more, *guarded([])))
        return self._every + _lines(answer.headers)

    def _handler_of(self, scope: Scope) -> PathHandler | None:
        path: str = scope["path"]
        index = self._places.get(path)
        if index is not None:
            scope["path_params"] = {}
            return index
        if path.startswith(_WORKERS) and path.endswith(_EXCHANGE):
            worker = path[len(_WORKERS) : -len(_EXCHANGE)]
            if worker and "/" not in worker:
                scope["path_params"] = {"worker": worker}
                return self._exchange
        return None


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])


async def _nothing_more() -> Message:
    raise ClientDisconnected


async def _to_place(scope: Scope, receive: Receive, send: Send) -> None:
    handler: PathHandler = scope[_PLACE]
    await handler(scope, receive, send)


def make_app(
    engine: "Engine | Node",
    *,
    token: str | None = None,
    hosts: Iterable[str] = (),
    closing: ShutdownSignal | None = None,
    ways: ClusterRouter | None = None,
    webhooks: Webhooks = NO_WEBHOOKS,
) -> Starlette:
    """`hosts` are further names, beside those of loopback, to which a server without a token answers. `ways` may be
    given for a node, where the other nodes are reached in another way than over HTTP."""
    closing = closing if closing is not None else ShutdownSignal()
    if isinstance(engine, Node):
        ways = ways or ClusterRouter(engine, closing)
        ways.authorization = f"Bearer {token}" if token else ""
        alone, ids = None, engine.ids
    else:
        alone, ids = engine, engine.context.ids

    def store() -> str:
        return engine.store_id if isinstance(engine, Node) else engine.context.store_id

    places: dict[str, list[Route]] = {}
    for route in TABLE:
        places.setdefault(route.path, []).append(route)
    open_paths = frozenset(route.path for route in TABLE if route.open)
    made = {
        path: PathHandler(routes, alone, ids, closing, ways, store=store, webhooks=webhooks)
        for path, routes in places.items()
    }
    sessions = BrowserSessions(token) if token is not None else None
    guard: dict[str, Any] = {"token": token, "open_paths": open_paths, "hosts": tuple(hosts), "sessions": sessions}
    app = Starlette(
        routes=[starlette.routing.Route(path, handler) for path, handler in made.items()],
        middleware=[Middleware(Authenticator, **guard)],
    )
    app.state.front = FastRouter(app, made, **guard)
    app.router.redirect_slashes = False
    app.router.default = _nowhere
    app.state.closing = closing
    app.state.ways = ways
    app.state.token = token
    app.state.sessions = sessions
    return app


async def _nowhere(scope: Scope, _receive: Receive, send: Send) -> None:
    answer = problem(404, "unknown_path", f"there is nothing at {shortened(scope['path'], 200)!a}")
    await answer.send(send, body=scope["method"] != "HEAD")
