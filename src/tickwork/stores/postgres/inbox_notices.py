"""Notices of `enqueue` that a transaction has put runs into the inbox.

They only make it sooner that the inbox is read: a notice may be lost with the connection, and behind PgBouncer nobody
listens at all.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tickwork.stores.postgres.connections import CONNECT_S, Address, client

if TYPE_CHECKING:
    import asyncpg

CHANNEL = "tickwork_inbox"  # as `enqueue` in schema.sql names it; the payload is the schema
AGAIN_S = 5.0


async def await_notices(address: Address, wake: Callable[[], None]) -> None:
    """Listen until cancelled, over a connection of its own that is opened again when it is lost."""
    if address.pgbouncer:
        return
    library = client()
    errors = (OSError, TimeoutError, library.PostgresError, library.InterfaceError)
    while True:
        with contextlib.suppress(*errors):  # the store itself tells that the server is away
            await _listen(await library.connect(address.dsn, timeout=CONNECT_S), address.schema, wake)
        await asyncio.sleep(AGAIN_S)


async def _listen(connection: "asyncpg.Connection[Any]", schema: str, wake: Callable[[], None]) -> None:
    lost = asyncio.Event()

    def heard(_connection: object, _pid: int, _channel: str, payload: object) -> None:
        if payload == schema:
            wake()

    connection.add_termination_listener(lambda _: lost.set())
    try:
        await connection.add_listener(CHANNEL, heard)
        wake()  # what came while no connection listened
        await lost.wait()
    finally:
        connection.terminate()
