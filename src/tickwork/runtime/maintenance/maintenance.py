"""Maintenance of one engine: retention with the collection of values, and auditors."""

import asyncio

from tickwork.core.base.names import TENANT
from tickwork.core.state import inputs as inp
from tickwork.runtime.context import EngineContext
from tickwork.runtime.maintenance.auditor import Auditor, Difference, Leave, at_the_watermark
from tickwork.runtime.maintenance.retention import Retention, RetentionPolicy
from tickwork.runtime.partition.logical_clock import CorrectedClock


class Maintenance:
    """Starts and stops the maintenance jobs of an engine, which run concurrently with its ticks."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self.retention: Retention | None = None
        self.auditors: list[Auditor] = []
        self._jobs: list[asyncio.Task[None] | asyncio.Task[Difference]] = []

    def retain(self, policy: RetentionPolicy) -> None:
        """Archive and delete by this policy from now on."""
        context, live = self._context, self._context.live
        self.retention = Retention(
            store=context.store,
            artifacts=context.artifacts,
            archives=context.archives,
            clock=CorrectedClock(live.keeper.real, context.clock),  # a wrong wall clock must delete nothing
            partition=context.number,
            epoch=live.epoch,
            settings=context.state.settings,
            keep=policy,
            state=lambda: context.state,
            on_alarm=context.alarms.add,
        )
        self._jobs.append(asyncio.get_running_loop().create_task(self.retention.run()))

    async def audit(self, keep: Leave) -> Auditor:
        """Decide every tick a second time, from the rows on, and hold dispatch where something differs."""
        context = self._context

        async def hold(partition: int, reason: str) -> None:
            await context.command(inp.Pause("auditor", "partition", TENANT, str(partition), reason, None))

        start = await at_the_watermark(context.store, context.number, context.zones)
        auditor = Auditor(
            context.store, context.number, start, zones=context.zones, clock=context.clock, hold=hold, keep=keep,
            on_alarm=context.alarms.add,
        )  # fmt: skip
        self.auditors.append(auditor)
        self._jobs.append(asyncio.get_running_loop().create_task(auditor.follow()))
        return auditor

    async def stop(self) -> None:
        for job in self._jobs:
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
