"""Sends the requests of bulk operations: in order, at the rate of the job, one job at a time.

The place of a job is in the state of the machine, so whoever owns the partition continues where the last owner stopped.
A request that is sent twice counts once.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, TickworkError, Unavailable
from tickwork.core.state import inputs as inp
from tickwork.core.state.bulk import BulkOperation
from tickwork.ports.store import Payload
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.bulk import BulkService, SelectedRun, Selection
from tickwork.runtime.services.runs import RunService, rerun_id

SLICES_PER_S = 4  # of a job: so many times a second it sends its share
SLICE_MAX = 250
PAUSE_S = 1.0  # after an error that passes
WHO = "bulk"


class BulkRunner:
    def __init__(self, context: EngineContext, bulk: BulkService, runs: RunService) -> None:
        self._context, self._bulk, self._runs = context, bulk, runs
        self._running = False
        self._selections: dict[str, Selection] = {}  # of the job that goes on

    def wake(self) -> None:
        """A job has begun, or the partition has a new owner."""
        if not self._running and next(self._active(), None) is not None:
            self._running = True
            self._context.spawn(self._run())

    def _active(self) -> Iterator[tuple[str, BulkOperation]]:
        for tenant in self._context.state.tenants.values():
            yield from ((tenant.id, job) for job in tenant.bulks.values() if not job.ended)

    async def _run(self) -> None:
        try:
            while (active := next(self._active(), None)) is not None:
                loop = asyncio.get_running_loop()
                began_s = loop.time()
                try:
                    sent = await self._send_some(*active)
                except Unavailable:
                    await asyncio.sleep(PAUSE_S)
                else:
                    await asyncio.sleep(max(0.0, began_s + sent / active[1].per_second - loop.time()))
        finally:
            self._running = False

    async def _send_some(self, tenant: str, job: BulkOperation) -> int:
        """How many requests were sent and decided."""
        selection = await self._selection(job)
        if selection is None:
            with suppress(Refused):
                await self._bulk.cancel(job.id, by=WHO, reason="its selection is no longer stored", tenant=tenant)
            return 1
        first, size = job.position, max(1, min(SLICE_MAX, job.per_second // SLICES_PER_S))
        payloads: list[Payload] = []
        requests = [
            await self._request(tenant, job, inp.BulkPlace(job.id, place, run.state), run, payloads)
            for place, run in enumerate(selection.runs[first : first + size], first)
        ]
        batch = self._context.post(requests, payloads, facts=True)
        await batch.done
        return len(requests)

    async def _selection(self, job: BulkOperation) -> Selection | None:
        if job.selection not in self._selections:
            with suppress(Corrupt):
                selection = await self._bulk.selection(job.selection)
                self._selections = {job.selection: selection} if selection is not None else {}
        return self._selections.get(job.selection)

    async def _request(
        self, tenant: str, job: BulkOperation, place: inp.BulkPlace, run: SelectedRun, payloads: list[Payload]
    ) -> inp.Input:
        by, reason = job.by, f"{job.reason or job.action} (bulk operation {job.id})"
        try:
            match job.action:
                case "cancel":
                    return inp.Cancel(by, tenant, run.id, reason, bulk=place)
                case "pause":
                    return inp.Pause(by, "run", tenant, run.id, reason, bulk=place)
                case "resume":
                    return inp.Resume(by, "run", tenant, run.id, bulk=place)
                case "retry":
                    if (row := await self._context.ended_row(tenant, run.id)) is not None:
                        await self._runs.bring_back(row)
                    return inp.Resolve(by, tenant, run.id, reason, bulk=place)
                case _:
                    new_id = rerun_id(run.id, f"bulk {job.id}")
                    request = wire.RerunRequest()
                    rerun = await self._runs.rerun_command(
                        run.id, request, payloads, by=by, new_id=new_id, tenant=tenant
                    )
                    return msgspec.structs.replace(rerun, bulk=place)
        except Unavailable:
            raise
        except TickworkError as error:
            return inp.SkipInBulk(tenant, run.id, error.code, str(error)[:500], place)
