"""The engine inside an ASGI application. It starts and stops with the application.

Run it with any ASGI server, for example `uvicorn examples.embedded_asgi:app`, and open /greet?name=you.
"""

import contextlib
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import tickwork as tw


@tw.task
def greet(name: str) -> str:
    return f"Hello, {name}!"


@tw.workflow
def greeting(name: str) -> str:
    return greet(name)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with tw.embedded(workflows=[greeting], data=".tickwork-asgi") as app.state.tickwork:
        yield


async def greet_user(request: Request) -> JSONResponse:
    client: tw.AsyncClient = request.app.state.tickwork
    run = await client.submit(greeting, name=request.query_params.get("name", "you"))
    return JSONResponse({"run": run.id, "answer": await client.result(run)})


app = Starlette(routes=[Route("/greet", greet_user)], lifespan=lifespan)
