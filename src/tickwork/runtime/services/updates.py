"""Updates and published values: what callers say to durable functions, and what these say to callers.

An update is an input of the machine; its reply comes with a report of the function. A call waits for it here. A
call that is repeated with the same key waits for the same reply, on the node that owns the partition then.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT, check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.base.values import pack
from tickwork.core.state.inputs import SendUpdate
from tickwork.core.state.messages import UpdateOutcome
from tickwork.ports.store import Payload, RunRow
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.storage.run_records import rest_of
from tickwork.runtime.views.text import RUN_STATES

if TYPE_CHECKING:
    from tickwork.runtime.services.queries import QueryService
    from tickwork.runtime.services.runs import RunService

WAIT_MS_MAX = 20_000  # of one call; a caller with more patience calls again
_decode = msgspec.msgpack.Decoder().decode


class UpdateService:
    def __init__(self, context: EngineContext, runs: "RunService", queries: "QueryService") -> None:
        self._context, self._runs, self._queries = context, runs, queries

    async def ask(
        self, run_id: str, name: str, request: wire.UpdateRequest, *, key: str, by: str, tenant: str = TENANT
    ) -> wire.UpdateResult:
        """Send an update, which is durable then, and wait for the reply. Raises `Refused` where none can come."""
        check_name(name, path="name", kind="message")
        if not 0 <= request.wait_ms <= WAIT_MS_MAX:
            raise Refused("bad_wait", f"a call waits 0 to {WAIT_MS_MAX} ms", path="wait_ms")
        payloads: list[Payload] = []
        payload = None
        if request.payload is not None:
            payload = await self._runs.stored_value(request.payload, "payload", payloads)
        update = SendUpdate(by, tenant, run_id, name, key, stable_digest(pack([name, request.payload])), payload)
        if self._context.tenant(tenant).runs.get(run_id) is None:
            return await self._of_ended(update)
        try:
            await self._context.command(update, payloads)
        except Refused as refused:
            if refused.code != "unknown_run":
                raise
            return await self._of_ended(update)  # it has ended meanwhile
        return await self._reply(update, request.wait_ms)

    async def _reply(self, update: SendUpdate, wait_ms: int) -> wire.UpdateResult:
        runs, deadline_s = self._context.tenant(update.tenant).runs, asyncio.get_running_loop().time() + wait_ms / 1_000
        with self._queries.watching(update.run_id, tenant=update.tenant) as woken:
            while (run := runs.get(update.run_id)) is not None:
                woken.clear()
                outcome = run.messages.outcome_of(update.key) if run.messages is not None else None
                if outcome is not None:
                    return await self._result(update, outcome)
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await woken.wait()
                except TimeoutError:
                    return wire.UpdateResult(run=update.run_id, key=update.key, state="waiting")
        return await self._of_ended(update)

    async def _of_ended(self, update: SendUpdate) -> wire.UpdateResult:
        """The reply of a run that has ended since, where it gave one."""
        row = await self._ended_row(update.run_id, update.tenant)
        messages = rest_of(row).messages
        outcome = messages.outcome_of(update.key) if messages is not None else None
        if outcome is not None:
            return await self._result(update, outcome)
        message = f"run {row.id} is {RUN_STATES[row.state]}, so nothing replies to {update.name}"
        raise Refused("run_ended", message, path="run_id")

    async def _result(self, update: SendUpdate, outcome: UpdateOutcome) -> wire.UpdateResult:
        await self._context.until_durable()
        if outcome.body != update.body:
            raise Refused("key_reused", f"key {update.key} was used for a different request", path="key")
        if outcome.refused:
            return wire.UpdateResult(run=update.run_id, key=update.key, state="refused", reason=outcome.reason)
        value = await self._context.payloads.bytes_of(outcome.value) if outcome.value is not None else None
        plain: Any = None if value is None else _decode(value)
        return wire.UpdateResult(run=update.run_id, key=update.key, state="replied", value=plain)

    async def _ended_row(self, run_id: str, tenant: str) -> RunRow:
        row = await self._context.ended_row(tenant, run_id)
        if row is None:
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        return row
