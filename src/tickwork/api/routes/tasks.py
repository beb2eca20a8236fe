"""Tasks by their number. A task moves with its run, so these are decisions about the run it belongs to."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, nothing
from tickwork.api.http.route import Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire


async def retry(request: Request) -> Response:
    """Retry everything that failed in the run: one failed task without the others would fail the run again."""
    number, reason = request.number("task"), await request.body(wire.Reason)
    run = await request.engine.queries.run_of_task(number)
    task = next(task for task in run.tasks if task.id == str(number))
    if task.state != "failed":
        raise Refused("illegal_move", f"task {number} ({task.node}) is {task.state}: it has not failed", path="task")
    await request.engine.runs.resolve(run.id, by=request.by, reason=checked_text(reason.reason))
    return nothing()


async def cancel(request: Request) -> Response:
    number, reason = request.number("task"), await request.body(wire.Reason)
    run = await request.engine.queries.run_of_task(number)
    await request.engine.runs.cancel(
        run.id, by=request.by, reason=checked_text(reason.reason) or f"task {number} was cancelled"
    )
    return nothing()


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks/{task}/retry",
        routed_to="task",
        handler=retry,
        summary="Retry a failed task, and everything else that failed in its run.",
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
