"""Routes to pause and resume resources by name: the same two for each kind."""

from collections.abc import Awaitable, Callable
from typing import Literal

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, nothing
from tickwork.api.http.route import BodySpec, Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.protocol import http_models as wire

_LIVES: dict[str, Literal["home", "partition"]] = {
    "schedule": "home", "group": "home", "endpoint": "home", "partition": "partition",
}  # fmt: skip
UNTIL = BodySpec(wire.PauseRequest, optional=True, bytes_max=64 * 1024)


def pausing(scope: str, *, pause: str, resume: str, until: bool = False) -> tuple[Route, Route]:
    """Return the two routes of a scope, with their summaries. `until`: whether a pause may end at a given time."""

    async def do_pause(request: Request) -> Response:
        given = await request.body(wire.PauseRequest) if until else await request.body(wire.Reason)
        ends = given.until if isinstance(given, wire.PauseRequest) else ""
        await request.engine.admin.pause(
            scope, request.name(scope), by=request.by, reason=checked_text(given.reason), until=ends
        )
        return nothing()

    async def do_resume(request: Request) -> Response:
        await request.body(wire.Reason)
        await request.engine.admin.resume(scope, request.name(scope), by=request.by)
        return nothing()

    body = UNTIL if until else REASON
    return _route(scope, "pause", do_pause, pause, body), _route(scope, "resume", do_resume, resume, REASON)


def _route(
    scope: str, action: str, handler: Callable[[Request], Awaitable[Response]], summary: str, body: BodySpec
) -> Route:
    return Route(
        method="POST",
        path=f"/v1/{scope}s/{{{scope}}}/{action}",
        routed_to=_LIVES.get(scope, "all"),
        handler=handler,
        summary=summary,
        tag=f"{scope}s",
        body=body,
        responses=DONE,
        refusals=(404, 409),
    )
