"""Submissions to a partition that may lack definitions of its tenant.

What is published is kept at the tenant's home and copied to each partition over which the tenant is spread. The node
that spread the tenant may have died before it had copied all of it, so a partition that does not know a workflow asks
home for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from tickwork.cluster.peers import Peers
from tickwork.cluster.tenant_routes import TenantRoutes
from tickwork.core.base.errors import TickworkError
from tickwork.protocol import http_models as wire

if TYPE_CHECKING:
    from tickwork.runtime.engine import Engine


class HomeDefinitions:
    def __init__(
        self,
        *,
        routes: TenantRoutes,
        peers: Peers,
        owned: "Callable[[int], Engine | None]",
        address_of: Callable[[int], Awaitable[str]],
    ) -> None:
        self._routes = routes
        self._peers = peers
        self._owned = owned
        self._address_of = address_of
        self._copying: dict[int, asyncio.Task[bool]] = {}  # by partition

    async def submit(
        self,
        engine: "Engine",
        submissions: Sequence[wire.Submission],
        *,
        by: str,
        tenant: str,
        new_id: Callable[[], str] | None = None,
    ) -> list[wire.Submitted | wire.Rejected]:
        """Submit to an engine of this node. Where the engine does not know a workflow, it gets the definitions from the
        tenant's home and tries again."""
        outcomes = await engine.runs.submit(submissions, by=by, tenant=tenant, new_id=new_id)
        if engine.context.number == self._routes.home(tenant):
            return outcomes  # the home partition knows all definitions
        lacking = [index for index, outcome in enumerate(outcomes) if _is_lacking(outcome)]
        if not lacking or not await self.copy_to(engine, tenant):
            return outcomes
        again = await engine.runs.submit([submissions[index] for index in lacking], by=by, tenant=tenant, new_id=new_id)
        for index, outcome in zip(lacking, again, strict=True):
            outcomes[index] = outcome
        return outcomes

    async def copy_to(self, engine: "Engine", tenant: str) -> bool:
        """Bring what is published at home to this partition. Concurrent callers share one request. False: nothing was
        missing, or home does not answer."""
        partition = engine.context.number
        if partition == self._routes.home(tenant):
            return False
        job = self._copying.get(partition)
        if job is None:
            job = self._copying[partition] = asyncio.get_running_loop().create_task(self._copy(engine, tenant))
            job.add_done_callback(lambda _: self._copying.pop(partition, None))
        await asyncio.wait([job])
        return not job.cancelled() and job.result()

    async def _copy(self, engine: "Engine", tenant: str) -> bool:
        home = self._routes.home(tenant)
        own = self._owned(home)
        try:
            if own is not None:
                publications = own.workflows.published(tenant=tenant)
            else:
                publications = await self._peers.published(await self._address_of(home), home, tenant)
            known = engine.workflows.published(tenant=tenant)
            missing = [publication for publication in publications if publication not in known]
            for publication in publications if missing else ():  # all of them: the last one is the latest
                await engine.workflows.publish(publication, by="cluster", tenant=tenant)
        except TickworkError:
            return False  # the submission is refused as unknown here, and its sender may try again
        return bool(missing)


def _is_lacking(outcome: wire.Submitted | wire.Rejected) -> bool:
    return isinstance(outcome, wire.Rejected) and outcome.code == "unknown_workflow"
