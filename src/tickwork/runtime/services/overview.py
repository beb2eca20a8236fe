"""Overview: the status, head, journal, queues and workers of a partition as a whole. Nothing here changes anything."""

import msgspec

from tickwork.core.base.names import TENANT
from tickwork.core.state.ready_queues import PIN_LABEL
from tickwork.core.state.state import Settings
from tickwork.journal.record import SealedRow
from tickwork.protocol import http_models as wire
from tickwork.runtime.context import EngineContext
from tickwork.runtime.partition.clock_monitor import describe_clock
from tickwork.runtime.partition.recovery import settings_of
from tickwork.runtime.views import runs as reads
from tickwork.runtime.views.alarms import alarm_views
from tickwork.runtime.views.text import instant, instant_or_none
from tickwork.runtime.views.ticks import tick_trace
from tickwork.runtime.views.versions import latest_name, stranded_words
from tickwork.runtime.workers.sessions import WorkerSessions
from tickwork.version import VERSION


class OverviewService:
    """Views of the partition as a whole."""

    def __init__(self, context: EngineContext, workers: WorkerSessions) -> None:
        self._context, self._workers = context, workers

    async def journal(self, *, after: int, limit: int) -> list[SealedRow]:
        return await self._context.archives.journal(self._context.number, after=after, limit=limit)

    async def tick(self, tick: int) -> wire.TickTrace:
        return await tick_trace(self._context, tick)

    def alarms(self) -> list[wire.Alarm]:
        """The latest alarms of this partition, newest first."""
        return alarm_views(self._context.alarms, self._context.number)

    async def head(self) -> wire.PartitionHead:
        """Read the head from the store, because callers want to know what is durable."""
        head, gauge = await self._context.store.read_head(self._context.number), self._context.state.gauge
        return wire.PartitionHead(
            partition=self._context.number,
            epoch=head.epoch,
            seq=head.seq,
            tick=head.tick,
            hash=head.hash.hex(),
            watermark=head.watermark,
            dispatch_held=(gauge.pause_reason or "paused") if gauge.paused else "",
        )

    async def settings(self) -> Settings:
        """Those that a replay from the first row begins with."""
        return settings_of(msgspec.msgpack.encode(self._context.state.first_settings))

    async def status(self, *, tenant: str = TENANT) -> wire.Status:
        state, live = self._context.state, self._context.live
        owner = self._context.tenant(tenant)
        ended = {"completed": owner.completed, "failed": owner.failed, "cancelled": owner.cancelled}
        ledger = live.write_behind.ledger
        balance = ledger.balances.get(tenant)
        alarms = [alarm.line() for alarm in self._context.alarms.recent]
        return wire.Status(
            version=VERSION,
            tick=state.tick,
            seq=live.durable_seq,
            watermark=live.writer.watermark,
            epoch=live.epoch,
            live_runs=state.live_runs,
            live_tasks=len(state.tasks),
            ready=sum(lane.live for lane in state.lanes.values()),
            running=len(live.write_behind.open),
            workers=len(state.workers),
            runs={state: count for state, count in ended.items() if count},
            alarms=(*alarms, *stranded_words(state)),
            accepting=self._context.accepting,
            schedules=len(ledger),
            schedules_late=len(ledger.late),
            occurrences=balance.words() if balance is not None else {},
            ledger_differences=ledger.differences,
            dispatch_held=(state.gauge.pause_reason or "paused") if state.gauge.paused else "",
            clock=self._clock_status(),
        )

    def _clock_status(self) -> wire.ClockStatus | None:
        if self._context.clock_monitor is None:
            return None
        reading = self._context.clock_monitor.reading()
        return wire.ClockStatus(
            state=reading.state,
            wall_time=instant(reading.wall_ms),
            real_time=instant(reading.real_ms),
            logical_time=instant(reading.logical_ms),
            step_ms=reading.step_ms,
            contradicted=reading.contradicted,
            adopted_in_ms=reading.adopted_in_ms,
            description=describe_clock(reading),
        )

    @property
    def warnings(self) -> list[str]:
        """What a person should know although work is accepted."""
        clock = self._clock_status()
        return [clock.description] if clock is not None and clock.description else []

    def queues(self) -> list[wire.Queue]:
        return reads.queues(self._context.state)

    def workers(self) -> list[wire.Worker]:
        now_ms, mono_ms = self._context.clock.wall_ms(), self._context.clock.mono_ms()
        workers: list[wire.Worker] = []
        for worker in sorted(self._context.state.workers.values(), key=lambda entry: entry.id):
            registered = self._workers.registered.get(worker.id)
            heard_ms = now_ms - (mono_ms - registered.session.heard_ms) if registered is not None else 0
            profile = registered.profile if registered is not None else None
            application, _, version = worker.labels.get(PIN_LABEL, "").rpartition("@")
            latest = latest_name(self._context.state.tenants.get(TENANT), application)
            workers.append(
                wire.Worker(
                    id=worker.id,
                    queues=worker.queues,
                    labels=worker.labels,
                    credit=worker.credit,
                    running=len(worker.tasks),
                    last_heard_at=instant_or_none(heard_ms),
                    host=profile.host if profile is not None else "",
                    pid=profile.pid if profile is not None else 0,
                    application=application,
                    version=version,
                    latest=version == latest if latest else None,
                    resources=_resources(worker.capacity),
                    in_use=_resources((worker.slots, *worker.more)),
                )
            )
        return workers


def _resources(amounts: tuple[int, int, int, int]) -> wire.WorkerResources:
    slots, cpu_milli, memory_mb, gpu = amounts
    return wire.WorkerResources(slots=slots, cpu_milli=cpu_milli, memory_mb=memory_mb, gpu=gpu)
