"""Policies: gates that are asked before each step that names them."""

from typing import TYPE_CHECKING

import msgspec

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, StreamingResponse, as_json, nothing
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import DONE, checked_text
from tickwork.core.base.names import TENANT
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.api.forwarding import ClusterRouter
    from tickwork.api.http.route import LocalHandler

_PATH = "/v1/policies/{policy}"
VERDICTS_SHOWN = 500


async def list_policies(request: Request) -> Response:
    return as_json(await request.engine.policies.policies())


async def put(request: Request) -> Response:
    body = await request.body(wire.PolicyRequest)
    checked_text(body.reason)
    await request.engine.policies.put(request.name("policy"), body, by=request.by)
    return nothing()


async def remove(request: Request) -> Response:
    await request.engine.policies.remove(request.name("policy"), by=request.by)
    return nothing()


async def test(request: Request) -> Response:
    body = await request.body(wire.PolicyTestRequest)
    return as_json(await request.engine.policies.test(request.name("policy"), body))


async def spread_test(
    router: "ClusterRouter", handler: "LocalHandler", request: Request
) -> Response | StreamingResponse | None:
    """Add up what the partitions of the tenant found."""
    data, parts = await request.data(), list[wire.PolicyTest]()
    for partition in router.node.routes.partitions_of(TENANT):
        answer = await router.at(partition, handler, request.route, request.scope, data)
        if not isinstance(answer, Response) or answer.status != 200:
            return answer
        parts.append(msgspec.json.decode(answer.body, type=wire.PolicyTest))
    verdicts = sorted((verdict for part in parts for verdict in part.verdicts), key=lambda one: one.at, reverse=True)
    return as_json(
        wire.PolicyTest(
            runs=sum(part.runs for part in parts),
            steps=sum(part.steps for part in parts),
            denied=sum(part.denied for part in parts),
            changed=sum(part.changed for part in parts),
            unread=sum(part.unread for part in parts),
            verdicts=tuple(verdicts[:VERDICTS_SHOWN]),
        )
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/policies",
        handler=list_policies,
        summary="List policies, with the workflows that name each.",
        tag="policies",
        responses={200: ResponseSpec(wire.Policies)},
    ),
    Route(
        method="PUT",
        path=_PATH,
        routed_to="all",
        handler=put,
        summary="Create or replace a policy. It is asked from the next step on, also in unfinished runs.",
        tag="policies",
        body=BodySpec(wire.PolicyRequest, bytes_max=64 * 1024),
        responses=DONE,
    ),
    Route(
        method="DELETE",
        path=_PATH,
        routed_to="all",
        handler=remove,
        summary="Delete a policy that no workflow and no unfinished run names.",
        tag="policies",
        responses=DONE,
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path=_PATH + "/test",
        routed_to="runs",
        gather=spread_test,
        handler=test,
        summary="Hold a policy, or another expression, against the steps of recorded runs. Nothing is changed.",
        tag="policies",
        body=BodySpec(wire.PolicyTestRequest, optional=True, bytes_max=64 * 1024),
        responses={200: ResponseSpec(wire.PolicyTest)},
        refusals=(404,),
    ),
)
