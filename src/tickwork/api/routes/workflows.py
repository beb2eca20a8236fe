"""Workflows: publish an application, and list what is published."""

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, REASON, checked_text
from tickwork.core.base import strict_json as strictjson
from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire


async def list_workflows(request: Request) -> Response:
    return as_json(wire.Workflows(workflows=tuple(request.engine.queries.workflows())))


async def publish(request: Request) -> Response:
    publication = await request.body(wire.Publication)
    workflows = tuple(await request.engine.workflows.publish(publication, by=request.by))
    return as_json(
        wire.Workflows(
            workflows=workflows, latest_version=request.engine.workflows.latest_version_name(publication.application)
        )
    )


async def show(request: Request) -> Response:
    return as_json(request.engine.queries.workflow(request.name("workflow")))


async def remove(request: Request) -> Response:
    await request.engine.workflows.remove(request.name("workflow"), by=request.by)
    return nothing()


async def pause(request: Request) -> Response:
    reason = checked_text((await request.body(wire.Reason)).reason)
    await request.engine.admin.pause("workflow", request.name("workflow"), by=request.by, reason=reason)
    return nothing()


async def resume(request: Request) -> Response:
    await request.body(wire.Reason)
    await request.engine.admin.resume("workflow", request.name("workflow"), by=request.by)
    return nothing()


def _elsewhere(body: bytes, number: int, _count: int) -> bytes:
    """Return the publication for another partition: definitions everywhere, schedules and mailboxes only at home."""
    if number == 0:
        return body
    try:
        publication = strictjson.loads(body)
    except Refused:
        return body  # the first reader reports the error, before another partition receives it
    if isinstance(publication, dict):
        publication.pop("schedules", None)
        publication.pop("mailboxes", None)
    return msgspec.json.encode(publication)


ROUTES = (
    Route(
        method="GET",
        path="/v1/workflows",
        handler=list_workflows,
        summary="List the latest version of each workflow.",
        tag="workflows",
        responses={200: ResponseSpec(wire.Workflows)},
    ),
    Route(
        method="PUT",
        path="/v1/workflows",
        routed_to="all",
        split_body=_elsewhere,
        handler=publish,
        summary="Publish definitions and schedules, all or none. Identical definitions change nothing.",
        tag="workflows",
        body=BodySpec(wire.Publication),
        responses={200: ResponseSpec(wire.Workflows, summary="All workflows after the publication.")},
        refusals=(404, 409),
    ),
    Route(
        method="GET",
        path="/v1/workflows/{workflow}",
        handler=show,
        summary="Show a workflow with its document.",
        tag="workflows",
        responses={200: ResponseSpec(wire.WorkflowDetail)},
        refusals=(404,),
    ),
    Route(
        method="DELETE",
        path="/v1/workflows/{workflow}",
        routed_to="all",
        handler=remove,
        summary="Delete a workflow that no schedule and no other workflow starts. Unfinished runs go on.",
        tag="workflows",
        responses=DONE,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/workflows/{workflow}/pause",
        routed_to="all",
        handler=pause,
        summary="Pause a workflow: start none of its tasks.",
        tag="workflows",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/workflows/{workflow}/resume",
        routed_to="all",
        handler=resume,
        summary="Resume a paused workflow.",
        tag="workflows",
        body=REASON,
        responses=DONE,
        refusals=(404, 409),
    ),
)
