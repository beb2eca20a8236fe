"""Tasks by their number. A task moves with its run, so these are decisions about the run it belongs to."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, nothing
from tickwork.api.http.route import Route
from tickwork.api.routes.runs import DONE, REASON, said
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire


async def retry(asked: Request) -> Response:
    """Everything that failed in the run is tried again: one failed task without the others would fail it anew."""
    number, wanted = asked.number("task"), await asked.body(wire.Reason)
    run = await asked.engine.queries.run_of_task(number)
    task = next(one for one in run.tasks if one.id == str(number))
    if task.state != "failed":
        raise Refused("illegal_move", f"task {number} ({task.node}) is {task.state}: it has not failed", path="task")
    await asked.engine.runs.resolve(run.id, by=asked.by, reason=said(wanted.reason))
    return nothing()


async def cancel(asked: Request) -> Response:
    number, wanted = asked.number("task"), await asked.body(wire.Reason)
    run = await asked.engine.queries.run_of_task(number)
    await asked.engine.runs.cancel(run.id, by=asked.by, reason=said(wanted.reason) or f"task {number} was cancelled")
    return nothing()


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks/{task}/retry",
        routed_to="task",
        handler=retry,
        summary="Try a failed task again, and with it everything else that failed in its run.",
        tag="tasks",
        body=REASON,
        responses=DONE,
        refusals=(404, 409, 429),
    ),
    Route(
        method="POST",
        path="/v1/tasks/{task}/cancel",
        routed_to="task",
        handler=cancel,
        summary="Cancel the run that this task belongs to.",
        tag="tasks",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
)
