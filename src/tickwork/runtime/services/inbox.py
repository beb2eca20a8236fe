"""What waits for a person: read from the state, and of failed runs from where ended runs are."""

from collections.abc import Sequence

from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.services.queries import QueryService
from tickwork.runtime.views.inbox import KINDS, failed_entry, live_entries


class InboxService:
    def __init__(self, context: EngineContext, queries: QueryService) -> None:
        self._context, self._queries = context, queries

    async def entries(
        self, *, kinds: Sequence[str] = KINDS, workflow: str = "", person: str = "", limit: int = 100
    ) -> tuple[list[wire.InboxEntry], bool]:
        """What waits, and whether there may be more. `person` leaves out what this one may not decide."""
        query = self._queries.filter(workflow=workflow, limit=limit)
        entries, more = live_entries(self._context.state, query, kinds, person)
        await self._context.until_durable()
        if "failed" not in kinds:
            return entries, more
        failed, last = await self._queries.runs(
            self._queries.filter(workflow=workflow, states=("failed",), limit=limit)
        )
        entries += [failed_entry(run) for run in failed if run.source != "child"]  # that of its parent stands for it
        return entries[:limit], more or last > 0 or len(entries) > limit
