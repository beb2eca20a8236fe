"""The engine: one partition with its services.

API, embedded client and simulator use the services of an engine and nothing below. A command returns when its tick is
durable, so a caller reads its own writes. A view waits until the tick that it shows is durable.
"""

import asyncio
import contextlib
from collections.abc import Mapping

import msgspec

from tickwork.core.base.errors import TickworkError
from tickwork.core.base.names import TENANT
from tickwork.core.calendar.zones import UTC_ONLY, Zones
from tickwork.core.explain.catch_up_preview import read_policy
from tickwork.core.rules import MACHINE
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import CancelAttempt, ReleaseAttempt, SendCommand
from tickwork.core.state.events import BulkStarted
from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.core.state.state import Settings
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.ids import Ids
from tickwork.ports.processes import Processes
from tickwork.ports.store import ALONE, Head, Store
from tickwork.ports.system import Clock, TimeReference
from tickwork.runtime.bulk_runner import BulkRunner
from tickwork.runtime.context import PARTITION, EngineContext
from tickwork.runtime.effects import EffectRunner
from tickwork.runtime.maintenance.maintenance import Maintenance
from tickwork.runtime.maintenance.retention import RetentionPolicy
from tickwork.runtime.outbox import Outbox
from tickwork.runtime.partition.clock_monitor import ClockMonitor
from tickwork.runtime.partition.fact_lookup import FactLookup
from tickwork.runtime.partition.interpreter_tuning import InterpreterTuning
from tickwork.runtime.partition.logical_clock import HOLD_MS, RealTime, TickClock
from tickwork.runtime.partition.partition import DecidedTick, Partition
from tickwork.runtime.partition.recovery import JournalFollower, RecoveredPartition, check_rules, read_ahead, recover
from tickwork.runtime.partition.task_assignment import AssignmentBuilder
from tickwork.runtime.services.admin import AdminService
from tickwork.runtime.services.assets import AssetService
from tickwork.runtime.services.bulk import BulkService
from tickwork.runtime.services.dead_letters import DeadLetterService
from tickwork.runtime.services.endpoints import EndpointService
from tickwork.runtime.services.inbox import InboxService
from tickwork.runtime.services.logs import LogService
from tickwork.runtime.services.machine_settings import SettingsService
from tickwork.runtime.services.mailboxes import MailboxService
from tickwork.runtime.services.overview import OverviewService
from tickwork.runtime.services.policies import PolicyService
from tickwork.runtime.services.queries import QueryService
from tickwork.runtime.services.runs import RunService
from tickwork.runtime.services.schedules import ScheduleService
from tickwork.runtime.services.updates import UpdateService
from tickwork.runtime.services.workflows import WorkflowService
from tickwork.runtime.workers.failure_detector import LOST_AFTER_MS, FailureDetector
from tickwork.runtime.workers.sessions import WorkerSessions

BURST = 16  # timers per tick, so that started work does not wait


class Engine:
    """One partition with its services. Starts, stops, and runs the effects of each durable tick."""

    rules_known = MACHINE  # a partition that later rules decided is not for this engine

    def __init__(
        self,
        *,
        store: Store,
        artifacts: Artifacts,
        clock: Clock,
        ids: Ids,
        owner: str,
        settings: Settings | None = None,
        configured: Mapping[str, int] | None = None,  # settings of the machine that are put at each start
        own_process: bool = False,
        zones: Zones = UTC_ONLY,
        lost_after_ms: int = LOST_AFTER_MS,  # how long a worker may be silent
        processes: Processes | None = None,  # of this host; None: no process is known to have ended
        catch_up: str = "",  # catch-up policy for occurrences that are late at the start; "": each schedule's own
        keep: RetentionPolicy | None = None,  # retention periods; None: nothing is archived or deleted
        reference: TimeReference | None = None,  # a second opinion on real time
        clock_hold_ms: int | None = HOLD_MS,  # how long a step of the wall clock is not believed; None: virtual time
        number: int = PARTITION,
        shared: bool = False,  # the store is shared: the creator of this engine opens and closes it
    ) -> None:
        context = self.context = EngineContext(
            store=store, artifacts=artifacts, clock=clock, ids=ids, zones=zones, number=number, shared=shared
        )
        self._owner = owner
        self._settings = settings
        self._configured = configured or {}
        self._tuning = InterpreterTuning(own_process=own_process)
        self._choice = read_policy(catch_up, path="catch_up") if catch_up else None
        self._keep = keep
        self._reference = reference
        self._clock_hold_ms = clock_hold_ms
        self._clock_job: asyncio.Task[None] | None = None
        self._ahead: JournalFollower | None = None  # state loaded before the partition is owned
        self.workers = WorkerSessions(
            clock=clock,
            payload_store=context.payloads,
            on_alarm=context.alarms.add,
            detector=FailureDetector(lost_after_ms=lost_after_ms, processes=processes),
            read_commands=lambda *command: self.runs.task_commands(*command),
        )
        self.overview = OverviewService(context, self.workers)
        self.queries = QueryService(context, self.workers.lease_end_ms)
        self.inbox = InboxService(context, self.queries)
        self.schedules = ScheduleService(context)
        self.endpoints = EndpointService(context, self.schedules, self.queries)
        self.assets = AssetService(context)
        self.mailboxes = MailboxService(context, self.queries)
        self.workflows = WorkflowService(context, self.schedules, self.mailboxes)
        self.runs: RunService = RunService(context, self.workflows, self.queries, self.mailboxes)
        self.updates = UpdateService(context, self.runs, self.queries)
        self.bulk = BulkService(context, self.queries)
        self.bulk_runner = BulkRunner(context, self.bulk, self.runs)
        self.admin = AdminService(context)
        self.policies = PolicyService(context, self.queries)
        self.settings = SettingsService(context)
        self.dead_letters = DeadLetterService(context, self.queries, self.runs)
        self.logs = LogService(context, self.workers, self.queries)
        self.maintenance = Maintenance(context)
        self.effects = EffectRunner(context, self.schedules)
        self.outbox = Outbox(context)
        self._perform = self.effects.performers | {
            CancelAttempt: lambda effect, _: self.workers.stop(effect),
            ReleaseAttempt: lambda effect, _: self.workers.stop(effect),
            SendCommand: lambda effect, _: self.outbox.send(effect),
        }
        self._follow = self.effects.followers | {BulkStarted: lambda _: self.bulk_runner.wake()}

    # ---- life

    async def read_ahead(self) -> None:
        """Rebuild the machine while another node still owns the partition, so that the start takes less time."""
        context = self.context
        self._ahead = await read_ahead(context.store, context.number, context.zones, known=self.rules_known)

    async def start(self) -> None:
        """Own the partition, rebuild its machine, and begin to tick."""
        context, store = self.context, self.context.store
        if not context.shared:
            await store.open()
            context.store_id = (await store.establish_identity(cluster=context.ids.token(), partitions=ALONE)).cluster
        given = self._settings or Settings(clock=LogicalClock(origin_ms=context.clock.wall_ms()))
        settings = msgspec.msgpack.encode(msgspec.structs.replace(given, partition=context.number))
        if self._ahead is None:
            await check_rules(store, context.number, known=self.rules_known)
        head = await store.claim(context.number, owner=self._owner, settings=settings)
        live = context.partition = self._assemble(head, await self._caught_up(head), await self._reference_ms())
        live.start()
        self._watch_clock(live)
        # Queued before the first tick, which decides about late occurrences: inputs come before timers.
        chosen = self._choice and live.submit_inputs([inp.ChooseCatchUp("engine", *self._choice)])
        self.workers.start()
        if self._tuning.own_process:
            context.spawn(self._tuning.run())
        if self._keep is not None:
            self.maintenance.retain(self._keep)
        self.effects.resume()
        self.outbox.resume()
        self.bulk_runner.wake()
        if chosen is not None:
            await chosen.done
        await self._declare_defaults()

    async def _declare_defaults(self) -> None:
        state, context = self.context.state, self.context
        if state.schedules.blocks and state.zones_version != context.zones.version:
            # Their next times may come from other zone data. An input too many changes nothing.
            context.live.submit_inputs([inp.NewZones(context.zones.version)])
        if TENANT not in state.tenants:
            await context.command(inp.PutTenant("engine", TENANT))
        if "default" not in state.queues:
            await context.command(inp.PutQueue("engine", "default"))
        if self._configured:
            await self.settings.put(self._configured, by="settings")

    async def open_read_only(self) -> None:
        """Rebuild the machine as it is stored, for queries alone: nothing is owned, ticks or is accepted."""
        context = self.context
        await context.store.open()
        await check_rules(context.store, context.number, known=self.rules_known)
        head = await context.store.read_head(context.number)
        context.partition = self._assemble(head, await self._recover(), None)
        context.draining = True

    async def _reference_ms(self) -> int | None:
        with contextlib.suppress(TickworkError):
            return None if self._reference is None else await self._reference.read_ms()
        return None

    def _watch_clock(self, partition: Partition) -> None:
        if self._clock_hold_ms is not None:
            context = self.context
            monitor = ClockMonitor(partition, context.clock, self._reference, on_alarm=context.alarms.add)
            monitor.hold_timers()  # before the first tick: inputs come before timers
            self._clock_job = asyncio.get_running_loop().create_task(monitor.run())
            context.clock_monitor = monitor

    def _assemble(self, head: Head, recovered: RecoveredPartition, reference_ms: int | None) -> Partition:
        machine, write_behind, watermark_head = recovered
        context, logical, last_tick = self.context, machine.state.settings.clock, machine.state.tick
        real = RealTime(
            context.clock,
            hold_ms=self._clock_hold_ms or 0,
            reference_ms=reference_ms,
            independent=self._reference is not None and self._reference.independent,
            closest_to_ms=logical.ms_of(last_tick) if last_tick else 0,
        )
        partition = Partition(
            number=context.number,
            store=context.store,
            machine=machine,
            head=head,
            watermark_head=watermark_head,
            keeper=TickClock(real, logical, last_tick=last_tick),
            write_behind=write_behind,
            assigner=AssignmentBuilder(context.payloads, logical),
            facts=FactLookup(context.archives, write_behind, context.number),
            on_durable=self.on_durable,
            on_alarm=context.alarms.add,
            rebuild=self._recover,
            tuning=self._tuning,
        )
        context.payloads.unwritten_children = partition.unwritten_children
        self.workers.attach(partition, store=context.store_id)
        return partition

    async def _caught_up(self, head: Head) -> RecoveredPartition:
        """Start from the state loaded in advance, if the rows have not changed since."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.watermark != head.watermark:
            return await self._recover()
        await ahead.follow(self.context.store, head.seq)
        return ahead.at(head)

    async def _recover(self) -> RecoveredPartition:
        context = self.context
        return await recover(context.store, context.number, context.zones, known=self.rules_known)

    async def stop(self) -> None:
        """Refuse new work, finish accepted work, write the rows, release the store."""
        self.context.draining = True
        await self._end_jobs()
        if self.context.partition is not None:
            await self.workers.close()
            await self.context.partition.stop()
        await self._close()

    async def abandon(self, reason: str) -> None:
        """As `stop`, but nothing is finished: the partition is another's, or may be."""
        self.context.draining = True
        if self.context.partition is not None:
            await self.context.partition.abandon(reason)
            await self.workers.close()
        await self._end_jobs()
        await self._close()

    async def _end_jobs(self) -> None:
        if self._clock_job is not None:
            self._clock_job.cancel()
            await asyncio.gather(self._clock_job, return_exceptions=True)
        await self.maintenance.stop()

    async def _close(self) -> None:
        await self.context.end_jobs()
        if not self.context.shared:
            await self.context.store.close()

    # ---- after each commit

    def on_durable(self, tick: DecidedTick) -> None:
        """Send the assignments of a tick that became durable, then run its effects."""
        workers, orders = self.workers, tick.orders
        workers.deliver(orders, burst=tick.fired >= BURST)
        if orders:  # counted a turn later, when they are on their way
            context, loop = self.context, asyncio.get_running_loop()
            now_ms = context.live.keeper.reading_ms()
            loop.call_soon(loop.call_soon, context.metrics.dispatched, context.state, orders, now_ms)
        if workers.deals:
            workers.look_for_room()
        for effect in tick.effects:
            perform = self._perform.get(type(effect))
            if perform is not None:
                perform(effect, tick)
        for event in tick.events:
            follow = self._follow.get(type(event))
            if follow is not None:
                follow(event)
        if self.queries.watchers:
            self.queries.wake_watchers(tick)
