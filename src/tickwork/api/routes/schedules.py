"""Schedules: what starts by itself, and when next."""

from tickwork.api.asked import Asked
from tickwork.api.messages import Answer, as_json, nothing
from tickwork.api.routes.pausing import pausing
from tickwork.api.routes.runs import DONE
from tickwork.api.table import Body, Gives, Route
from tickwork.ports import wire

_PATH = "/v1/schedules/{schedule}"


async def list_schedules(asked: Asked) -> Answer:
    return as_json(asked.engine.schedules())


async def put(asked: Asked) -> Answer:
    name = asked.name("schedule")
    await asked.engine.put_schedule(name, await asked.body(wire.ScheduleRequest), by=asked.by)
    return nothing()


async def remove(asked: Asked) -> Answer:
    await asked.engine.remove_schedule(asked.name("schedule"), by=asked.by)
    return nothing()


ROUTES = (
    Route(
        method="GET",
        path="/v1/schedules",
        does=list_schedules,
        says="All schedules, with the time at which each fires next.",
        tag="schedules",
        gives={200: Gives(wire.Schedules)},
    ),
    Route(
        method="PUT",
        path=_PATH,
        does=put,
        says="Create a schedule, or replace it.",
        tag="schedules",
        body=Body(wire.ScheduleRequest, bytes_max=1024 * 1024),
        gives=DONE,
        refusals=(404,),
    ),
    Route(
        method="DELETE",
        path=_PATH,
        does=remove,
        says="Remove a schedule. Runs that it began go on.",
        tag="schedules",
        gives=DONE,
        refusals=(404,),
    ),
    *pausing("schedule", pause="Let a schedule begin nothing.", resume="Let a paused schedule go on, from now."),
)
