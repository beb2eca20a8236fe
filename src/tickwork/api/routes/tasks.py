"""Tasks by their number: one of them is cancelled or tried again, and the rest of its run is left alone."""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, nothing
from tickwork.api.http.route import Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire


async def retry(request: Request) -> Response:
    number, reason = request.number("task"), checked_text((await request.body(wire.Reason)).reason)
    runs = request.engine.runs
    if runs.is_live(number):
        await runs.retry_task(number, by=request.by, reason=reason)
        return nothing()
    run, task = await _ended(request, number)
    if task.state != "failed":
        raise Refused("illegal_move", f"task {number} ({task.node}) is {task.state}: it has not failed", path="task")
    await runs.resolve(run.id, by=request.by, reason=reason, decisions={task.node: "retry"}, others_stay=True)
    return nothing()


async def cancel(request: Request) -> Response:
    number, reason = request.number("task"), checked_text((await request.body(wire.Reason)).reason)
    runs = request.engine.runs
    if runs.is_live(number):
        await runs.cancel_task(number, by=request.by, reason=reason)
        return nothing()
    _, task = await _ended(request, number)
    raise Refused("illegal_move", f"task {number} ({task.node}) is {task.state}: it does not go on", path="task")


async def _ended(request: Request, number: int) -> tuple[wire.RunDetail, wire.Task]:
    """A task that has not begun, or that has ended, with its run."""
    run = await request.engine.queries.run_of_task(number)
    return run, next(task for task in run.tasks if task.id == str(number))


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks/{task}/retry",
        routed_to="task",
        handler=retry,
        summary="Retry a failed task of a failed run; what else failed stays so. Or start a waiting retry now.",
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
        summary="Cancel one task: it fails, and its run goes on by its rules. A durable function is its run.",
        tag="tasks",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
)
