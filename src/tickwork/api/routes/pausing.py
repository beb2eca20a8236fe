"""What can be paused by its name, and resumed: the same two routes for each kind."""

from collections.abc import Awaitable, Callable

from tickwork.api.asked import Asked
from tickwork.api.messages import Answer, nothing
from tickwork.api.routes.runs import DONE, REASON, said
from tickwork.api.table import Route
from tickwork.ports import wire


def pausing(scope: str, *, pause: str, resume: str) -> tuple[Route, Route]:
    """`scope` as the engine calls it; what each route says of itself."""

    async def do_pause(asked: Asked) -> Answer:
        reason = said((await asked.body(wire.Reason)).reason)
        await asked.engine.pause(scope, asked.name(scope), by=asked.by, reason=reason)
        return nothing()

    async def do_resume(asked: Asked) -> Answer:
        await asked.body(wire.Reason)
        await asked.engine.resume(scope, asked.name(scope), by=asked.by)
        return nothing()

    return _route(scope, "pause", do_pause, pause), _route(scope, "resume", do_resume, resume)


def _route(scope: str, deed: str, does: Callable[[Asked], Awaitable[Answer]], says: str) -> Route:
    return Route(
        method="POST",
        path=f"/v1/{scope}s/{{{scope}}}/{deed}",
        does=does,
        says=says,
        tag=f"{scope}s",
        body=REASON,
        gives=DONE,
        refusals=(404, 409),
    )
