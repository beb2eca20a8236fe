"""How the server is: for people, for what keeps it running, and for what measures it."""

from tickwork.api.asked import Asked
from tickwork.api.messages import METRICS, Answer, as_json
from tickwork.api.metrics import exposition
from tickwork.api.problems import problem, retry_after
from tickwork.api.table import Gives, Route
from tickwork.ports import wire


async def status(asked: Asked) -> Answer:
    return as_json(await asked.engine.status())


async def alive(asked: Asked) -> Answer:  # noqa: ARG001 - to answer is the answer
    return as_json(wire.Health(status="alive"))


async def ready(asked: Asked) -> Answer:
    host = asked.node or asked.engine
    why_not = "the server is shutting down" if asked.closing else host.why_not_accepting
    if why_not:
        return problem(503, "not_ready", why_not, retry_after(1_000))
    return as_json(wire.Health(status="ready"))


async def metrics(asked: Asked) -> Answer:
    engines = [asked.engine] if asked.node is None else [one for _, one in sorted(asked.node.engines.items())]
    return Answer(200, exposition([(one, await one.status()) for one in engines], asked.node), METRICS)


ROUTES = (
    Route(
        method="GET",
        path="/v1/status",
        does=status,
        says="How the engine is.",
        tag="server",
        gives={200: Gives(wire.Status)},
    ),
    Route(
        method="GET",
        path="/healthz",
        lives="here",
        does=alive,
        says="Whether the process answers.",
        tag="server",
        gives={200: Gives(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/readyz",
        lives="here",
        does=ready,
        says="Whether new work is accepted; if not, why.",
        tag="server",
        gives={200: Gives(wire.Health)},
        open=True,
    ),
    Route(
        method="GET",
        path="/metrics",
        lives="here",
        does=metrics,
        says="Figures for Prometheus.",
        tag="server",
        gives={200: Gives(None, (METRICS,), "Prometheus' text form.")},
    ),
)
