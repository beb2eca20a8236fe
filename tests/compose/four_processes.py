"""An application for test_embedded_processes.py: `uvicorn four_processes:app --workers 4`."""

import contextlib
import os
import time
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import tickwork as tw


@tw.task(retries=5, retry_delay="10ms")
def work() -> int:
    time.sleep(0.05)
    return os.getpid()


@tw.workflow
def one() -> int:
    return work()


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with tw.embedded(workflows=[one], data=os.environ["FOLDER"], threads=2) as app.state.tickwork:
        yield


async def submit(request: Request) -> JSONResponse:
    run = await request.app.state.tickwork.submit(one, key=request.path_params["key"])
    return JSONResponse({"run": run.id, "process": os.getpid()})


async def result(request: Request) -> JSONResponse:
    client: tw.AsyncClient = request.app.state.tickwork
    worked = await client.result(request.path_params["run"], timeout=90)
    return JSONResponse({"worked": worked, "process": os.getpid(), "url": client.address.url})


app = Starlette(routes=[Route("/submit/{key}", submit), Route("/result/{run}", result)], lifespan=lifespan)
