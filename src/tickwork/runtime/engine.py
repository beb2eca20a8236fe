"""The engine: one partition with its workers, as everything above it sees it.

API, embedded client and simulator talk to this and to nothing below. Commands return when their tick is durable, so
whoever asked reads its own writes. Views wait until the tick that they show is durable. This module is its life and
what follows each commit; what is asked of it is in `services`.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable
from typing import Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, TickworkError
from tickwork.core.base.values import Ref, Value
from tickwork.core.definition.cel_extracts import Need, extract
from tickwork.core.definition.input_fields import require_accepted
from tickwork.core.machine import MACHINE
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import (
    Alert,
    CancelAttempt,
    FindRuns,
    LookUpCache,
    ReadExtract,
    ReleaseAttempt,
    StoreCached,
)
from tickwork.core.state.evaluation_context import OF_CHECK, need_of, source_words, value_at
from tickwork.core.state.events import RunSpawned, TaskFailed, TaskRequeued, TaskRetrying, WorkerGone
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import LogicalClock as LogicalClock
from tickwork.core.state.state import Run, Settings
from tickwork.ports.store import ALONE, Head
from tickwork.protocol.worker_messages import Call, LogPiece, Reply
from tickwork.runtime.context import TENANT
from tickwork.runtime.maintenance.auditor import Auditor, Leave, at_the_watermark
from tickwork.runtime.maintenance.retention import Retention
from tickwork.runtime.maintenance.retention import RetentionPolicy as HowLong
from tickwork.runtime.partition.clock_monitor import ClockMonitor
from tickwork.runtime.partition.fact_lookup import FactLookup
from tickwork.runtime.partition.logical_clock import CorrectedClock, RealTime, TickClock
from tickwork.runtime.partition.partition import DecidedTick, Partition
from tickwork.runtime.partition.recovery import JournalFollower, RecoveredPartition, check_rules, read_ahead, recover
from tickwork.runtime.partition.task_assignment import AssignmentBuilder
from tickwork.runtime.services.runs import RunService
from tickwork.runtime.services.workflows import stranded_words
from tickwork.runtime.storage.payloads import ARGUMENTS_STEP, NIL, decode_value
from tickwork.runtime.storage.store_retry import retry_until_available

TIDY_S = 5.0
BURST = 16  # timers of one tick: what they began does not wait for anybody


class Engine(RunService):
    rules_known = MACHINE  # a partition that later rules decided is not for this engine
    _stranded: frozenset[str] = frozenset()
    _ahead: JournalFollower | None = None  # what was read before it is owned

    async def read_ahead(self) -> None:
        """Somebody else owns the partition and is about to let go: what can be done before is done."""
        self._ahead = await read_ahead(self.store, self.number, self.zones, known=self.rules_known)

    async def start(self) -> None:
        """Own the partition, rebuild its machine, and begin to tick."""
        if not self.shared:
            await self.store.open()
            self.store_id = (await self.store.found(cluster=self.ids.token(), partitions=ALONE)).cluster
        wanted = self._settings or Settings(clock=LogicalClock(origin_ms=self.clock.wall_ms()))
        settings = msgspec.msgpack.encode(msgspec.structs.replace(wanted, partition=self.number))
        if self._ahead is None:
            await check_rules(self.store, self.number, known=self.rules_known)
        head = await self.store.claim(self.number, owner=self._owner, settings=settings)
        self.partition = self._assemble(head, await self._caught_up(head), await self._reference_ms())
        self.partition.start()
        self._watch_clock(self.partition)
        # Handed over before the first tick, which decides about what is late: inputs come before timers.
        chosen = self._choice and self.partition.submit_inputs([inp.ChooseCatchUp("engine", *self._choice)])
        self.floor.start()
        if self._own_process:
            self.spawn(self._tidy())
        if self._keep is not None:
            self._begin_retention(self._keep)
        self.resume_effects()
        if chosen is not None:
            await chosen.done
        if self.state.schedules.blocks and self.state.zones_version != self.zones.version:
            # Their next times may be by other data. Told anew once too often, they stay as they are.
            self.live.submit_inputs([inp.NewZones(self.zones.version)])
        if TENANT not in self.state.tenants:
            await self.command(inp.PutTenant("engine", TENANT))
        if "default" not in self.state.queues:
            await self.command(inp.PutQueue("engine", "default"))

    async def look(self) -> None:
        """Rebuild the machine as it is stored, to be asked and nothing else: nothing is owned, ticks or is accepted."""
        await self.store.open()
        await check_rules(self.store, self.number, known=self.rules_known)
        self.partition = self._assemble(await self.store.read_head(self.number), await self._recover(), None)
        self.draining = True

    async def _reference_ms(self) -> int | None:
        with contextlib.suppress(TickworkError):
            return None if self._reference is None else await self._reference.read_ms()
        return None

    def _watch_clock(self, partition: Partition) -> None:
        if self._clock_hold_ms is not None:
            monitor = ClockMonitor(partition, self.clock, self._reference, on_alarm=self.alarm)
            monitor.hold_timers()  # before the first tick: inputs come before timers
            self._beside.append(asyncio.get_running_loop().create_task(monitor.run()))
            self.clock_monitor = monitor

    def _assemble(self, head: Head, recovered: RecoveredPartition, reference_ms: int | None) -> Partition:
        machine, books, watermark_head = recovered
        logical, last_tick = machine.state.settings.clock, machine.state.tick
        real = RealTime(
            self.clock,
            hold_ms=self._clock_hold_ms or 0,
            reference_ms=reference_ms,
            independent=self._reference is not None and self._reference.independent,
            closest_to_ms=logical.ms_of(last_tick) if last_tick else 0,
        )
        partition = Partition(
            number=self.number,
            store=self.store,
            machine=machine,
            head=head,
            watermark_head=watermark_head,
            keeper=TickClock(real, logical, last_tick=last_tick),
            books=books,
            assigner=AssignmentBuilder(self.vault, logical),
            facts=FactLookup(self.archives, books, self.number),
            on_durable=self._on_durable,
            on_alarm=self.alarm,
            rebuild=self._recover,
            own_process=self._own_process,
        )
        self.vault.unwritten_children = partition.unwritten_children
        self.floor.attach(partition, store=self.store_id)
        return partition

    def _begin_retention(self, keep: HowLong) -> None:
        self.retention = Retention(
            store=self.store,
            artifacts=self.artifacts,
            archives=self.archives,
            clock=CorrectedClock(self.live.keeper.real, self.clock),  # a wrong wall clock must delete nothing
            partition=self.number,
            epoch=self.live.epoch,
            settings=self.state.settings,
            keep=keep,
            state=lambda: self.state,
            on_alarm=self.alarm,
        )
        self._beside.append(asyncio.get_running_loop().create_task(self.retention.run()))

    async def _caught_up(self, head: Head) -> RecoveredPartition:
        """From what was read ahead, where the rows are still as they were then: its books begin with those."""
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.watermark != head.watermark:
            return await self._recover()
        await ahead.follow(self.store, head.seq)
        return ahead.at(head)

    async def _recover(self) -> RecoveredPartition:
        return await recover(self.store, self.number, self.zones, known=self.rules_known)

    async def _tidy(self) -> None:
        """Where the process is ours, garbage is collected when we say so: what allocates is short-lived or stays."""
        gc.disable()
        while not self.draining:
            self.live.collect()
            await asyncio.sleep(TIDY_S)

    def resume_effects(self) -> None:
        """What a crash interrupted between a commit and its effects, found again in the state."""
        for task in self.state.tasks.values():
            if task.phase == Phase.CHECKING:
                cache = getattr(task.step.node, "cache", None)
                self.spawn(self._look_up(LookUpCache(task.number, task.cache_key, cache.ttl_ms if cache else None)))
        for walk in self.state.backfills.values():
            if walk.asked:
                schedule = walk.schedule
                self.spawn(self._find_runs(FindRuns(walk.number, schedule.tenant.id, schedule.name, walk.asked)))
        for run in self.state.runs.values():
            if isinstance(run.inputs, Ref) and run.inputs.place == "arguments":
                self._keep_arguments(run.parent, run.child)
            for (source, key), kept in (run.extracts or {}).items():
                if kept is None:
                    self.spawn(self._read_extract(ReadExtract(run.number, source, key)))

    async def audit(self, keep: Leave) -> Auditor:
        """Decide every tick a second time, from the rows on, and hold dispatch where something differs."""

        async def hold(partition: int, reason: str) -> None:
            await self.pause("partition", str(partition), by="auditor", reason=reason)

        place = await at_the_watermark(self.store, self.number, self.zones)
        auditor = Auditor(
            self.store, self.number, place, zones=self.zones, clock=self.clock, hold=hold, keep=keep,
            on_alarm=self.alarm,
        )  # fmt: skip
        self.auditors.append(auditor)
        self._auditing.append(asyncio.get_running_loop().create_task(auditor.follow()))
        return auditor

    async def stop(self) -> None:
        """Refuse what is new, finish what was accepted, write the rows, let the store go."""
        self.draining = True
        await self._end_beside()
        if self.partition is not None:
            await self.floor.close()
            await self.partition.stop()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        if not self.shared:
            await self.store.close()

    async def abandon(self, reason: str) -> None:
        """As `stop`, but nothing is finished: the partition is another's, or may be."""
        self.draining = True
        if self.partition is not None:
            await self.partition.abandon(reason)
            await self.floor.close()
        await self._end_beside()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        if not self.shared:
            await self.store.close()

    async def _end_beside(self) -> None:
        for beside in (*self._auditing, *self._beside):
            beside.cancel()
        await asyncio.gather(*self._auditing, *self._beside, return_exceptions=True)

    async def pause_flushing(self) -> None:
        """Rows are written as they stand, and then no more: the next owner reads ahead from here, and writes the rest.
        Until `resume_flushing` is called, should it stay."""
        await self.live.pause_flushing()

    def resume_flushing(self) -> None:
        self.live.resume_flushing()

    # ---- after each commit

    def _on_durable(self, decided: DecidedTick) -> None:
        self.floor.deliver(decided.orders, burst=decided.fired >= BURST)
        if decided.orders:  # counted a turn later, when they are on their way
            loop, now_ms = asyncio.get_running_loop(), self.live.keeper.reading_ms()
            loop.call_soon(loop.call_soon, self.figures.dispatched, self.state, decided.orders, now_ms)
        if self.floor.deals:
            self.floor.look_for_room()
        for effect in decided.effects:
            match effect:
                case CancelAttempt() | ReleaseAttempt():
                    self.floor.stop(effect)
                case LookUpCache():
                    self.spawn(self._look_up(effect))
                case ReadExtract():
                    self.spawn(self._read_extract(effect))
                case FindRuns():
                    self.spawn(self._find_runs(effect))
                case StoreCached():
                    asked: Any = decided.inputs[effect.input]
                    self.live.books.keep_cached(effect.key, asked.value, self.now_ms())
                case Alert():
                    subject = f"{effect.tenant}/{effect.subject}" if effect.tenant else effect.subject
                    self.alarm(effect.kind, f"{subject}: {effect.detail}")
                    if effect.kind == "sla_breach":
                        self.figures.breaches[self._workflow_of(effect.tenant, effect.subject)] += 1
                case _:
                    pass
        for event in decided.events:
            follow = _FOLLOWS.get(type(event))
            if follow is not None:
                follow(self, event)
        if self._watchers:
            self._wake_watchers(decided)

    def _on_worker_gone(self, _: WorkerGone) -> None:
        self._report_stranded()

    def _on_spawned(self, event: RunSpawned) -> None:
        if isinstance(event.inputs, Ref):
            self._keep_arguments(event.task, event.child)

    def _on_retrying(self, event: TaskRetrying) -> None:
        self.figures.again["failed" if event.input >= 0 else "timed_out"] += 1

    def _on_requeued(self, event: TaskRequeued) -> None:
        self.figures.again[event.cause] += 1

    def _on_failed(self, _: TaskFailed) -> None:
        self.figures.failed += 1

    def _workflow_of(self, tenant: str, subject: str) -> str:
        """`subject` is a run, or a node of it behind a slash."""
        for run_id in (subject, subject.rpartition("/")[0]):
            run = self.state.tenants[tenant].runs.get(run_id)
            if run is not None:
                return run.plan.name
            left = self.live.books.find_left(tenant, run_id)  # it ended while this tick became durable
            if left is not None:
                return left.workflow
        return ""

    def _report_stranded(self) -> None:
        """Each version once, until a worker of it has come and gone again."""
        words = stranded_words(self.state)
        for one in words:
            if one not in self._stranded:
                self.alarm("stranded", one.removeprefix("stranded: "))
        self._stranded = frozenset(words)

    async def _look_up(self, effect: LookUpCache) -> None:
        try:
            fresh, value = await self._cached(effect)
        except Exception as error:  # a value that cannot be read counts as none: the task runs
            self.alarm("lookup_failed", f"a cached value cannot be read: {type(error).__name__}: {error}")
            fresh, value = False, None
        answer = inp.CacheAnswered(effect.task, fresh, value)
        with contextlib.suppress(TickworkError):
            await self.live.submit_inputs([answer]).done

    async def _cached(self, effect: LookUpCache) -> tuple[bool, Value]:
        row = self.live.books.find_cached(effect.key)
        if row is None:
            row = (await retry_until_available(lambda: self.store.read_cache([effect.key]))).get(effect.key)
        fresh = row is not None and (effect.ttl_ms is None or row.kept_ms + effect.ttl_ms > self.now_ms())
        value = decode_value(row.value) if row is not None and fresh else None
        if not await retry_until_available(lambda: self.vault.renewed(value)):
            return False, None  # nobody needed it for so long that it is gone
        return fresh, value

    async def _read_extract(self, effect: ReadExtract) -> None:
        """What rules of the core read of a value that is not inline, taken out of it."""
        run = self.state.runs.get(effect.run)
        if run is None:
            return
        value, definition = value_at(run, effect.source, effect.key), run.plan.definition
        need = Need() if effect.key == OF_CHECK else need_of(run, effect.source, effect.key)
        packed, code, message = None, "", ""
        try:
            if effect.key == OF_CHECK:
                require_accepted(definition, msgspec.msgpack.decode(await self._given_inputs(run)))
                data = NIL
            else:
                data = await retry_until_available(lambda: self.vault.bytes_of(value))
            packed = extract(data, need, what=source_words(run, effect.source))
        except Exception as error:  # what reads it fails with this, and nothing else does
            code = error.code if isinstance(error, TickworkError) else "bad_value"
            message = str(error) or type(error).__name__
        answer = inp.Extracted(effect.run, effect.source, effect.key, packed, code, message)
        with contextlib.suppress(TickworkError):
            await self.live.submit_inputs([answer]).done

    async def _given_inputs(self, run: Run) -> bytes:
        """The inputs that a parent gives to a child run. Raises `Refused` where they cannot be made."""
        try:
            return await retry_until_available(lambda: self.vault.bytes_of(run.inputs))
        except Corrupt:
            parent = self.state.tasks.get(run.parent)
            if parent is None:
                raise
            sources = self.live.assigner.child_inputs(parent, run.child)  # making them again tells what is wrong
            return await retry_until_available(lambda: self.live.assigner.inputs(sources))

    async def _find_runs(self, effect: FindRuns) -> None:
        try:
            known = await retry_until_available(lambda: self.find_known(effect))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self.alarm("lookup_failed", f"the backfill of {effect.schedule} waits for runs it cannot read: {reason}")
            return
        with contextlib.suppress(TickworkError):
            await self.live.submit_inputs([known]).done

    def _keep_arguments(self, task: int, child: int) -> None:
        """A child run whose inputs are its parent's large arguments: they are kept apart, for its tasks and readers."""
        parent = self.state.tasks.get(task)
        if parent is not None:
            name, keeping = (task, child), self.vault.keeping
            keeping[name] = self.spawn(self._keep_inputs(task, child, self.live.assigner.child_inputs(parent, child)))
            keeping[name].add_done_callback(lambda _: keeping.pop(name, None))

    async def _keep_inputs(self, task: int, child: int, sources: list[Any]) -> None:
        try:
            data = await retry_until_available(lambda: self.live.assigner.inputs(sources))
        except Refused:
            return  # the check of the child run meets the same error and fails the run with it
        value = Ref(await retry_until_available(lambda: self.artifacts.put(data)), len(data), None, "artifact")
        self.live.books.keep_child(task, ARGUMENTS_STEP, child, value)

    # ---- workers

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        return await self.floor.exchange(call, peer)

    async def append_log(self, piece: LogPiece) -> None:
        """Lines of an attempt, from the session that holds it or held it until it ended."""
        if piece.store and self.store_id and piece.store != self.store_id:
            raise Refused("other_store", "these lines are of a task of another store than the one that answers here")
        self.check_number(piece.task)
        if not piece.worker or not piece.session:
            raise Refused("not_holder", "log lines name the worker that sends them, and its session")
        if not self.floor.holds(piece) and not await self._held_before(piece):
            message = f"worker {piece.worker[:128]!r} does not hold attempt {piece.attempt} of task {piece.task}"
            raise Refused("not_holder", f"{message}; its holder sends the lines")
        self.floor.check_session(piece)
        await self.logs.append(piece.task, piece.attempt, chunk=piece.chunk, first=piece.first, data=piece.lines)

    async def _held_before(self, piece: LogPiece) -> bool:
        """As the record of its run says: the server was restarted since, or much has ended since."""
        since_ms, attempts = self.floor.session_since_ms(piece.worker), await self.attempts(piece.task, piece.run)
        return any(
            one.attempt == piece.attempt and one.worker == piece.worker and one.dispatched_ms >= since_ms
            for one in attempts
        )

    def release_workers(self) -> None:
        """Calls that wait for work end now."""
        if self.partition is not None:
            self.floor.release()

    def connection_closed(self, peer: str) -> None:
        if self.partition is not None:
            self.floor.connection_closed(peer)


# What follows of an event once it is durable; most have nothing.
_FOLLOWS: dict[type[Any], Callable[[Engine, Any], None]] = {
    WorkerGone: Engine._on_worker_gone,
    RunSpawned: Engine._on_spawned,
    TaskRetrying: Engine._on_retrying,
    TaskRequeued: Engine._on_requeued,
    TaskFailed: Engine._on_failed,
}
