"""A shop whose orders start runs in their own transaction, in as many processes as you like.

    pip install 'tickwork[postgres]'
    DATABASE_URL=postgresql://localhost/shop uvicorn examples.shop_asgi:app --workers 4

`curl -X POST 'localhost:8000/orders?item=lamp'` answers with the order and its run; `/runs/ID` shows the run.
"""

import contextlib
import os
from collections.abc import AsyncIterator

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import tickwork as tw

DATABASE = os.environ.get("DATABASE_URL", "")
TABLE = """
select pg_advisory_xact_lock(7);
create table if not exists orders (id bigint generated always as identity primary key, item text not null)
"""


@tw.task(retries=3)
def confirm(order: int, item: str) -> str:
    return f"order {order}: the {item} is on its way (from process {os.getpid()})"


@tw.workflow
def confirmation(order: int, item: str) -> str:
    return confirm(order, item)


@contextlib.asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with (
        asyncpg.create_pool(DATABASE, min_size=1, max_size=4) as app.state.pool,
        tw.embedded(workflows=[confirmation], store=DATABASE) as app.state.tickwork,
    ):
        await app.state.pool.execute(TABLE)
        yield


async def order(request: Request) -> JSONResponse:
    """The order and its run are both there, or neither is."""
    item = request.query_params.get("item", "lamp")
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        number = await connection.fetchval("insert into orders (item) values ($1) returning id", item)
        run = await tw.enqueue_async(connection, confirmation, order=number, item=item, key=f"order-{number}")
        if item == "nothing":
            raise HTTPException(422, "we do not sell that")  # no order, and no run
    return JSONResponse({"order": number, "run": run, "process": os.getpid()}, 201)


async def show(request: Request) -> JSONResponse:
    client: tw.AsyncClient = request.app.state.tickwork
    try:
        run = await client.get(request.path_params["run"])
    except tw.Refused as refused:
        raise HTTPException(404, refused.message) from None
    return JSONResponse({"state": run.state, "said": run.output, "process": os.getpid()})


app = Starlette(routes=[Route("/orders", order, methods=["POST"]), Route("/runs/{run}", show)], lifespan=lifespan)
