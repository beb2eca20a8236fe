"""Workflows under the name DAG, by the routes of the requirements: publish one, schedule it, start it.

They do what `/v1/workflows`, `/v1/schedules` and `/v1/runs` do. The id of a DAG is the name of its workflow.
"""

from tickwork.api.http.request import Request
from tickwork.api.http.response import Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.api.routes.action_specs import KEY
from tickwork.cluster.placement import ids_in
from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.protocol import http_models as wire


async def create(request: Request) -> Response:
    body = await request.body(wire.DagRequest)
    name = check_name(body.name, path="name", kind="workflow")
    if body.definition.get("name", name) != name:
        raise Refused("two_names", "it differs from `name`; leave it out", path="definition.name")
    publication = wire.Publication(documents=({**body.definition, "name": name},))
    workflows = await request.engine.workflows.publish(publication, by=request.by)
    made = next(workflow for workflow in workflows if workflow.name == name)
    return as_json(made, 201, (b"location", f"/v1/workflows/{name}".encode()))


async def schedule(request: Request) -> Response:
    dag, body = request.name("dag", "workflow"), await request.body(wire.DagScheduleRequest)
    if body.workflow not in ("", dag):
        raise Refused("two_names", f"the path says {dag}; leave it out", path="workflow")
    name = check_name(body.name or dag, path="name", kind="schedule")
    fields = {field: getattr(body, field) for field in wire.ScheduleRequest.__struct_fields__}
    request_of = wire.ScheduleRequest(**(fields | {"workflow": dag}))
    await request.engine.schedules.put(name, request_of, by=request.by, new=True)
    location = (b"location", f"/v1/schedules/{name}".encode())
    return as_json(request.engine.schedules.get(name), 201, location)


async def trigger(request: Request) -> Response:
    """The run starts in the tenant's home, under an id that belongs there."""
    body = await request.body(wire.DagTriggerRequest)
    dag = request.name("dag", "workflow")
    submission = wire.Submission(workflow=dag, inputs=body.inputs, start_at=body.time, key=request.key)
    node = request.node
    if node is None:
        [outcome] = await request.engine.runs.submit([submission], by=request.by)
    else:
        home = request.engine.context.number
        new_id = ids_in(node.ids.new, node.routes.of(TENANT), home, node.partitions)
        [outcome] = await node.definitions.submit(
            request.engine, [submission], by=request.by, tenant=TENANT, new_id=new_id
        )
    if isinstance(outcome, wire.Rejected):
        raise Refused(outcome.code, outcome.detail, path="time" if outcome.path == "start_at" else outcome.path)
    status, location = 200 if outcome.duplicate else 201, (b"location", f"/v1/runs/{outcome.id}".encode())
    return as_json(wire.Triggered(run_id=outcome.id), status, location)


ROUTES = (
    Route(
        method="POST",
        path="/v1/dags",
        routed_to="all",
        handler=create,
        summary="Publish one workflow. An identical definition changes nothing; another one is its next version.",
        tag="workflows",
        body=BodySpec(wire.DagRequest),
        responses={201: ResponseSpec(wire.Workflow, summary="The workflow.", headers=("Location",))},
        refusals=(409,),
    ),
    Route(
        method="POST",
        path="/v1/dags/{dag}/schedules",
        handler=schedule,
        summary="Create a schedule of a workflow, under `name` or the name of the workflow.",
        tag="schedules",
        body=BodySpec(wire.DagScheduleRequest, bytes_max=1024 * 1024),
        responses={201: ResponseSpec(wire.Schedule, summary="The schedule.", headers=("Location",))},
        refusals=(404, 409),
    ),
    Route(
        method="POST",
        path="/v1/dags/{dag}/triggers",
        handler=trigger,
        summary="Start a run of a workflow, now or at `time`.",
        tag="runs",
        body=BodySpec(wire.DagTriggerRequest, optional=True),
        headers=(KEY,),
        responses={
            201: ResponseSpec(wire.Triggered, summary="The id of the run.", headers=("Location",)),
            200: ResponseSpec(
                wire.Triggered, summary="The run that was started under this key before.", headers=("Location",)
            ),
        },
        refusals=(404, 409, 429),
    ),
)
