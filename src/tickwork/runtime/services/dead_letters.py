"""Dead letters: failed runs that nobody has brought back or dropped. Many of them in one call, at a bounded rate."""

from collections.abc import Sequence

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.state import NUMBER_BITS
from tickwork.ports.store import RunRow
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.queries import QueryService
from tickwork.runtime.services.runs import RunService
from tickwork.runtime.storage.run_records import record_of, rest_of

AT_ONCE = 100  # runs that one input brings back, so that no tick grows large
FAILED = "failed"


class DeadLetterService:
    def __init__(self, context: EngineContext, queries: QueryService, runs: RunService) -> None:
        self._context, self._queries, self._runs = context, queries, runs

    async def page(
        self, *, workflow: str, before: int, limit: int, tenant: str = TENANT
    ) -> tuple[list[wire.DeadLetter], int]:
        """Return one page, newest first, and the number before which the next page begins (0: none)."""
        runs, last = await self._queries.runs(
            self._queries.filter(workflow=workflow, states=[FAILED], before=before, limit=limit)
        )
        rows = {row.id: row for row in await self._rows([run.id for run in runs], tenant)}
        return [self._view(run, rows[run.id]) for run in runs if run.id in rows], last

    async def redrive(self, request: wire.RedriveRequest, *, by: str, tenant: str = TENANT) -> wire.DeadLetterResult:
        """Bring failed runs back, spaced by the rate. Those that cannot come back are named."""
        if not 1 <= request.per_second <= 1_000:
            raise Refused("bad_rate", "a redrive starts 1 to 1,000 runs a second", path="per_second")
        rows, refused, more = await self._chosen(request, tenant)
        done: list[str] = []
        for part in _parts(rows):
            for row in part:
                await self._runs.bring_back(row)
            records = [record_of(row) for row in part]
            command = inp.Redrive(by, tenant, request.reason or "redriven", request.per_second, records)
            done += await self._command(command, records, refused)
        return wire.DeadLetterResult(done=tuple(done), refused=tuple(refused), more=more)

    async def drop(self, request: wire.DeadLetterRequest, *, by: str, tenant: str = TENANT) -> wire.DeadLetterResult:
        """End failed runs as cancelled, for a reason."""
        if not request.reason.strip():
            raise Refused("reason_missing", "say why these are dropped: the reason is recorded", path="reason")
        rows, refused, more = await self._chosen(request, tenant)
        done: list[str] = []
        for part in _parts(rows):
            records = [record_of(row) for row in part]
            done += await self._command(inp.DropDeadLetters(by, tenant, request.reason, records), records, refused)
        return wire.DeadLetterResult(done=tuple(done), refused=tuple(refused), more=more)

    async def _command(
        self,
        command: inp.Redrive | inp.DropDeadLetters,
        records: Sequence[inp.RunRecord],
        refused: list[wire.DeadLetterProblem],
    ) -> list[str]:
        """All of them or none: where one run spoils it, each is tried alone."""
        ids = [record.run_id for record in records]
        try:
            await self._context.command(command, facts=True)
        except Refused as error:
            if len(records) == 1:
                refused.append(wire.DeadLetterProblem(run=ids[0], code=error.code, detail=error.message))
                return []
            singles = [msgspec.structs.replace(command, records=[record]) for record in records]
            return [
                name
                for single, record in zip(singles, records, strict=True)
                for name in await self._command(single, [record], refused)
            ]
        return ids

    async def _chosen(
        self, request: wire.DeadLetterRequest, tenant: str
    ) -> tuple[list[RunRow], list[wire.DeadLetterProblem], bool]:
        """The rows of the runs in the request that are in this partition, and why some of them are no dead letters."""
        if bool(request.runs) is bool(request.workflow):
            raise Refused("which_runs", "name the runs, or a workflow", path="runs")
        if not 1 <= request.limit <= 1_000 or len(request.runs) > 1_000:
            raise Refused("too_many", "at most 1,000 runs in one call", path="limit")
        if request.workflow:
            return await self._of_workflow(request, tenant)
        found = {row.id: row for row in await self._rows(request.runs, tenant)}
        rows: list[RunRow] = []
        refused: list[wire.DeadLetterProblem] = []
        for run_id in dict.fromkeys(request.runs):
            row, live = found.get(run_id), self._context.tenant(tenant).runs.get(run_id)
            if live is not None:
                detail = f"run {shortened(run_id, 128)} is on its way again, or has not ended"
                refused.append(wire.DeadLetterProblem(run=run_id, code="illegal_move", detail=detail))
            elif row is None:
                detail = f"there is no run {shortened(run_id, 128)!r}"
                refused.append(wire.DeadLetterProblem(run=run_id, code="unknown_run", detail=detail))
            elif row.state != RunState.FAILED:
                detail = f"run {row.id} is {RunState(row.state).name}: it is not a dead letter"
                refused.append(wire.DeadLetterProblem(run=run_id, code="illegal_move", detail=detail))
            else:
                rows.append(row)
        return rows, refused, False

    async def _of_workflow(
        self, request: wire.DeadLetterRequest, tenant: str
    ) -> tuple[list[RunRow], list[wire.DeadLetterProblem], bool]:
        """Those that are on their way again show as failed until their time comes; they are left out."""
        owner, ids, before = self._context.tenant(tenant), list[str](), 0
        while True:
            runs, before = await self._queries.runs(
                self._queries.filter(workflow=request.workflow, states=[FAILED], before=before, limit=500)
            )
            ids += [run.id for run in runs if owner.runs.get(run.id) is None]
            if not before or len(ids) > request.limit:
                break
        rows = await self._rows(ids[: request.limit], tenant)
        return [row for row in rows if row.state == RunState.FAILED], [], len(ids) > request.limit

    async def _rows(self, ids: Sequence[str], tenant: str) -> list[RunRow]:
        """The rows of ended runs of this partition, in the order of the ids."""
        left = self._context.live.write_behind
        found: dict[str, RunRow] = {}
        missing = []
        for run_id in ids:
            row = left.find_left(tenant, run_id)
            if row is not None:
                found[run_id] = row
            else:
                missing.append(run_id)
        if missing:
            found |= {row.id: row for row in await self._context.archives.find_runs(tenant, ids=missing)}
        own = self._context.number
        return [found[name] for name in ids if name in found and found[name].number >> NUMBER_BITS == own]

    def _view(self, run: wire.Run, row: RunRow) -> wire.DeadLetter:
        plan, rest = self._context.state.plans.get(row.definition), rest_of(row)
        steps = plan.steps if plan is not None and len(plan.steps) == len(rest.phases) else ()
        failed = tuple(step.id for step in steps if rest.phases[step.index] == Phase.FAILED)
        return wire.DeadLetter(
            **{name: getattr(run, name) for name in wire.Run.__struct_fields__}, nodes=failed, attempts=rest.tried
        )


def _parts(rows: Sequence[RunRow]) -> list[Sequence[RunRow]]:
    return [rows[index : index + AT_ONCE] for index in range(0, len(rows), AT_ONCE)]
