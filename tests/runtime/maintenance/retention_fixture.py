"""A house in which days pass, and what is old is put away."""

import asyncio
import contextlib

from runtime.engine_fixture import Hand, House
from tickwork.runtime.engine import Engine
from tickwork.runtime.maintenance.retention import DAY_MS, RetentionPolicy

KEEP = RetentionPolicy(runs_ms=3 * DAY_MS, journal_ms=3 * DAY_MS, archive_ms=365 * DAY_MS, logs_ms=30 * DAY_MS)


class Keeping(House):
    """A house that keeps things for a while; its passes are made by hand."""

    keep = KEEP

    async def open(self):
        self.disk.day = self.artifacts.day = self.clock.wall_ms() // DAY_MS
        self.store = self.make_store(self.disk)
        self.engine = Engine(
            store=self.store, artifacts=self.artifacts, clock=self.clock, ids=self.ids, owner="n1", keep=self.keep
        )
        await self.engine.start()
        self.engine.maintenance._jobs.pop().cancel()
        return self.engine

    @contextlib.asynccontextmanager
    async def serving(self, **functions):
        hand = Hand(self)
        hand.functions |= functions
        await hand.sit_down()
        job = asyncio.create_task(hand.serve())
        try:
            yield hand
        finally:
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)

    async def days(self, days):
        """They pass; then everything is looked through once."""
        self.clock.pass_ms(days * DAY_MS)
        self.disk.day = self.artifacts.day = self.clock.wall_ms() // DAY_MS
        await self.written()
        await self.engine.maintenance.retention.look_through()

    async def written(self):
        """Rows follow the journal, and something small has happened after them."""
        await self.engine.admin.pause("queue", "default", by="test")
        await self.engine.admin.resume("queue", "default", by="test")
        async with asyncio.timeout(5):
            while self.engine.context.live.writer.watermark < self.engine.context.live.durable_seq:
                await asyncio.sleep(0.01)
