"""Start runs in the caller's own PostgreSQL transaction: the run is accepted when it commits, and never was otherwise.

The connection is the caller's: psycopg, asyncpg, SQLAlchemy, or any other that has cursors. The function `enqueue` in
the store's schema does the work, so these helpers only check the inputs and speak to the driver.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.protocol import http_models as wire
from tickwork.sdk.authoring.durable import as_workflow
from tickwork.sdk.client import calls
from tickwork.sdk.client.submission_options import Options

if TYPE_CHECKING:
    from tickwork.sdk.authoring.tasks import Task
    from tickwork.sdk.authoring.workflows import Workflow

SCHEMA = "tickwork"
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# Arguments come as text and numbers, so that every driver binds them alike.
_CALL = """select {schema}.enqueue(cast({} as text), cast(cast({} as text) as jsonb), cast({} as text),
 make_interval(secs => cast({} as double precision)), cast(cast({} as text) as timestamptz), cast({} as integer),
 cast(cast({} as text) as jsonb))"""
_ARGUMENTS = 7


def enqueue(
    connection: Any,
    workflow: "Workflow[..., Any] | Task[..., Any] | str",
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    key: str = "",
    delay: str | timedelta | None = None,
    start_at: datetime | str | None = None,
    priority: int | None = None,
    app_version: str = "",
    tags: Sequence[str] = (),
    options: Options | None = None,
    schema: str = SCHEMA,
    **values: Any,
) -> str:
    """Start a run in the transaction of this connection, and return its id.

    `connection` is a connection of psycopg, psycopg2 or another driver with cursors, or a `Connection` or `Session` of
    SQLAlchemy. It leads to the database of the nodes; `schema` is that of their store. Inputs are checked first, as by
    `client.submit`. The same `key` starts one run in 24 hours, and then the id is that of the first. What the server
    refuses later is kept, with the reason: `tickwork cluster inbox`.
    """
    submission = _submission(workflow, inputs, values, key, delay, start_at, priority, app_version, tags, options)
    if _is_of(connection, "sqlalchemy"):
        from sqlalchemy import text

        names = [f"enqueue_{index}" for index in range(_ARGUMENTS)]
        bound = dict(zip(names, _arguments(submission), strict=True))
        statement = text(_statement(schema, [f":{name}" for name in names]))
        return str(_execute_of(connection)(statement, bound).scalar_one())
    if not hasattr(connection, "cursor"):
        raise _not_usable(connection, "a connection of psycopg, or a Connection or Session of SQLAlchemy")
    cursor = connection.cursor()
    try:
        cursor.execute(_statement(schema, ["%s"] * _ARGUMENTS), _arguments(submission))
        return _only(cursor.fetchone())
    finally:
        cursor.close()


async def enqueue_async(
    connection: Any,
    workflow: "Workflow[..., Any] | Task[..., Any] | str",
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    key: str = "",
    delay: str | timedelta | None = None,
    start_at: datetime | str | None = None,
    priority: int | None = None,
    app_version: str = "",
    tags: Sequence[str] = (),
    options: Options | None = None,
    schema: str = SCHEMA,
    **values: Any,
) -> str:
    """Start a run in the transaction of this connection, and return its id; see `enqueue`.

    `connection` is a connection of asyncpg, an `AsyncConnection` of psycopg, or an `AsyncConnection` or `AsyncSession`
    of SQLAlchemy.
    """
    submission = _submission(workflow, inputs, values, key, delay, start_at, priority, app_version, tags, options)
    if _is_of(connection, "sqlalchemy"):
        from sqlalchemy import text

        names = [f"enqueue_{index}" for index in range(_ARGUMENTS)]
        bound = dict(zip(names, _arguments(submission), strict=True))
        statement = text(_statement(schema, [f":{name}" for name in names]))
        return str((await _execute_of(connection)(statement, bound)).scalar_one())
    if _is_of(connection, "asyncpg") and hasattr(connection, "is_in_transaction"):
        numbered = _statement(schema, [f"${index}" for index in range(1, _ARGUMENTS + 1)])
        return str(await connection.fetchval(numbered, *_arguments(submission)))
    if not _is_of(connection, "psycopg"):
        raise _not_usable(connection, "a connection of asyncpg, or an AsyncConnection of psycopg or SQLAlchemy")
    async with connection.cursor() as cursor:
        await cursor.execute(_statement(schema, ["%s"] * _ARGUMENTS), _arguments(submission))
        return _only(await cursor.fetchone())


def _submission(
    workflow: "Workflow[..., Any] | Task[..., Any] | str",
    inputs: Mapping[str, Any] | None,
    values: Mapping[str, Any],
    key: str,
    delay: str | timedelta | None,
    start_at: datetime | str | None,
    priority: int | None,
    app_version: str,
    tags: Sequence[str],
    options: Options | None,
) -> wire.Submission:
    return calls.submission(
        workflow if isinstance(workflow, str) else as_workflow(workflow), inputs, values, key=key, delay=delay,
        start_at=start_at, priority=priority, app_version=app_version, tags=tags, options=options,
    )  # fmt: skip


def _arguments(submission: wire.Submission) -> tuple[Any, ...]:
    """As the function of the schema takes them. What has no argument of its own is one of the options."""
    own = ("workflow", "inputs", "id", "key", "delay_ms", "start_at", "priority")
    others = {name: value for name, value in msgspec.to_builtins(submission).items() if name not in own}
    delay_s = None if submission.delay_ms is None else submission.delay_ms / 1000
    return (
        submission.workflow, msgspec.json.encode(submission.inputs).decode(), submission.key, delay_s,
        submission.start_at or None, submission.priority, msgspec.json.encode(others).decode(),
    )  # fmt: skip


def _statement(schema: str, places: list[str]) -> str:
    if not _SCHEMA.fullmatch(schema):
        raise Refused("bad_schema", f"{schema!r} is no name of a schema", path="schema")
    return _CALL.format(*places, schema=schema)


def _is_of(connection: object, library: str) -> bool:
    """Whether the connection, or what its class was made from, is of this library."""
    return any(kind.__module__.partition(".")[0] == library for kind in type(connection).__mro__)


def _execute_of(connection: Any) -> Any:
    if not hasattr(connection, "execute"):  # an engine: a transaction of its own would be no transaction of the caller
        raise _not_usable(connection, "the Connection or Session that holds your transaction")
    return connection.execute


def _only(row: Any) -> str:
    """The one value of a row, also where rows are mappings."""
    return str(next(iter(row.values())) if isinstance(row, Mapping) else row[0])


def _not_usable(connection: object, wanted: str) -> Refused:
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return Refused("bad_connection", f"{kind} holds no transaction of yours: give {wanted}", path="connection")
