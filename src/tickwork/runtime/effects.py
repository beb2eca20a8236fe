"""The effects of durable ticks: reads that the machine waits for, and what follows from events.

Each effect runs as a job beside the ticks and ends in an input. After a crash, `resume` finds the unfinished ones again
in the state.
"""

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Corrupt, Refused, TickworkError
from tickwork.core.base.values import INLINE_BYTES_MAX, Ref, Value
from tickwork.core.definition.cel_extracts import Need, extract
from tickwork.core.definition.input_fields import require_accepted
from tickwork.core.state import inputs as inp
from tickwork.core.state.effects import Alert, FindRuns, LookUpCache, ReadExtract, StoreCached
from tickwork.core.state.evaluation_context import OF_CHECK, need_of, source_words, value_at
from tickwork.core.state.events import RunSpawned, TaskFailed, TaskRequeued, TaskRetrying, WorkerGone
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import Run
from tickwork.runtime.context import EngineContext
from tickwork.runtime.storage.payloads import ARGUMENTS_STEP, NIL, decode_value
from tickwork.runtime.storage.store_retry import retry_until_available
from tickwork.runtime.views.versions import stranded_words

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import DecidedTick
    from tickwork.runtime.services.schedules import ScheduleService


class EffectRunner:
    """Performs effects by their type, and reacts to events by theirs. Most types need nothing."""

    def __init__(self, context: EngineContext, schedules: "ScheduleService") -> None:
        self._context, self._schedules = context, schedules
        self._stranded: frozenset[str] = frozenset()
        self.performers: dict[type[Any], Any] = {
            LookUpCache: lambda effect, _: context.spawn(self._look_up(effect)),
            ReadExtract: lambda effect, _: context.spawn(self._read_extract(effect)),
            FindRuns: lambda effect, _: context.spawn(self._find_runs(effect)),
            StoreCached: self._store_cached,
            Alert: self._alert,
        }
        self.followers: dict[type[Any], Any] = {
            WorkerGone: self._on_worker_gone,
            RunSpawned: self._on_spawned,
            TaskRetrying: self._on_retrying,
            TaskRequeued: self._on_requeued,
            TaskFailed: self._on_failed,
        }

    def resume(self) -> None:
        """Begin again what a crash interrupted between a commit and its effects."""
        state, spawn = self._context.state, self._context.spawn
        for task in state.tasks.values():
            if task.phase == Phase.CHECKING:
                cache = getattr(task.step.node, "cache", None)
                spawn(self._look_up(LookUpCache(task.number, task.cache_key, cache.ttl_ms if cache else None)))
        for walk in state.backfills.values():
            if walk.lookups:
                schedule = walk.schedule
                spawn(self._find_runs(FindRuns(walk.number, schedule.tenant.id, schedule.name, walk.lookups)))
        for run in state.runs.values():
            if isinstance(run.inputs, Ref) and run.inputs.place == "arguments":
                self._keep_arguments(run.parent, run.child)
            for (source, key), kept in (run.extracts or {}).items():
                if kept is None:
                    spawn(self._read_extract(ReadExtract(run.number, source, key)))

    # ---- effects

    def _store_cached(self, effect: StoreCached, tick: "DecidedTick") -> None:
        report: Any = tick.inputs[effect.input]
        self._context.live.write_behind.keep_cached(effect.key, report.value, self._context.now_ms())

    def _alert(self, effect: Alert, _: "DecidedTick") -> None:
        subject = f"{effect.tenant}/{effect.subject}" if effect.tenant else effect.subject
        self._context.alarms.add(effect.kind, f"{subject}: {effect.detail}")
        if effect.kind == "sla_breach":
            self._context.metrics.breaches[self._workflow_of(effect.tenant, effect.subject)] += 1

    def _workflow_of(self, tenant: str, subject: str) -> str:
        """`subject` is a run, or a node of it behind a slash."""
        for run_id in (subject, subject.rpartition("/")[0]):
            run = self._context.state.tenants[tenant].runs.get(run_id)
            if run is not None:
                return run.plan.name
            left = self._context.live.write_behind.find_left(tenant, run_id)  # it ended while this tick became durable
            if left is not None:
                return left.workflow
        return ""

    async def _look_up(self, effect: LookUpCache) -> None:
        try:
            fresh, value = await self._cached(effect)
        except Exception as error:  # a value that cannot be read counts as none: the task runs
            self._context.alarms.add("lookup_failed", f"a cached value cannot be read: {type(error).__name__}: {error}")
            fresh, value = False, None
        answer = inp.CacheAnswered(effect.task, fresh, value)
        with contextlib.suppress(TickworkError):
            await self._context.live.submit_inputs([answer]).done

    async def _cached(self, effect: LookUpCache) -> tuple[bool, Value]:
        row = self._context.live.write_behind.find_cached(effect.key)
        if row is None:
            row = (await retry_until_available(lambda: self._context.store.read_cache([effect.key]))).get(effect.key)
        fresh = row is not None and (effect.ttl_ms is None or row.kept_ms + effect.ttl_ms > self._context.now_ms())
        value = decode_value(row.value) if row is not None and fresh else None
        if not await retry_until_available(lambda: self._context.payloads.renewed(value)):
            return False, None  # unused for so long that it was deleted
        return fresh, value

    async def _read_extract(self, effect: ReadExtract) -> None:
        """What rules of the core read of a value that is not inline, taken out of it."""
        run = self._context.state.runs.get(effect.run)
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
                data = await retry_until_available(lambda: self._context.payloads.bytes_of(value))
            packed = extract(data, need, what=source_words(run, effect.source))
        except Exception as error:  # what reads it fails with this, and nothing else does
            code = error.code if isinstance(error, TickworkError) else "bad_value"
            message = str(error) or type(error).__name__
        answer = inp.Extracted(effect.run, effect.source, effect.key, packed, code, message)
        with contextlib.suppress(TickworkError):
            await self._context.live.submit_inputs([answer]).done

    async def _given_inputs(self, run: Run) -> bytes:
        """The inputs that a parent gives to a child run. Raises `Refused` where they cannot be made."""
        try:
            return await retry_until_available(lambda: self._context.payloads.bytes_of(run.inputs))
        except Corrupt:
            parent = self._context.state.tasks.get(run.parent)
            if parent is None:
                raise
            assigner = self._context.live.assigner
            sources = assigner.child_inputs(parent, run.child)  # computing it again shows the cause
            return await retry_until_available(lambda: assigner.inputs(sources))

    async def _find_runs(self, effect: FindRuns) -> None:
        try:
            known = await retry_until_available(lambda: self._schedules.find_known(effect))
        except Exception as error:
            text = f"the backfill of {effect.schedule} waits for runs it cannot read: {type(error).__name__}: {error}"
            self._context.alarms.add("lookup_failed", text)
            return
        with contextlib.suppress(TickworkError):
            await self._context.live.submit_inputs([known]).done

    # ---- events

    def _on_worker_gone(self, _: WorkerGone) -> None:
        """Report each version that no worker has once, until a worker of it has come and gone again."""
        lines = stranded_words(self._context.state)
        for line in lines:
            if line not in self._stranded:
                self._context.alarms.add("stranded", line.removeprefix("stranded: "))
        self._stranded = frozenset(lines)

    def _on_spawned(self, event: RunSpawned) -> None:
        if isinstance(event.inputs, Ref):
            self._keep_arguments(event.task, event.child)

    def _on_retrying(self, event: TaskRetrying) -> None:
        self._context.metrics.again["failed" if event.input >= 0 else "timed_out"] += 1

    def _on_requeued(self, event: TaskRequeued) -> None:
        self._context.metrics.again[event.cause] += 1

    def _on_failed(self, _: TaskFailed) -> None:
        self._context.metrics.failed += 1

    def _keep_arguments(self, task: int, child: int) -> None:
        """Start a child run whose inputs are large: they are stored separately, for its tasks and readers."""
        parent = self._context.state.tasks.get(task)
        if parent is not None and not parent.step.durable:  # a durable function gives all inputs as one value
            sources = self._context.live.assigner.child_inputs(parent, child)
            name, keeping = (task, child), self._context.payloads.keeping
            keeping[name] = self._context.spawn(self._keep_inputs(task, child, sources))
            keeping[name].add_done_callback(lambda _: keeping.pop(name, None))

    async def _keep_inputs(self, task: int, child: int, sources: list[Any]) -> None:
        try:
            data = await retry_until_available(lambda: self._context.live.assigner.inputs(sources))
        except Refused:  # the check of the child run meets the same error and fails the run with it
            self._context.live.write_behind.keep_child(task, ARGUMENTS_STEP, child, None)
            return
        value: Value = data
        if len(data) > INLINE_BYTES_MAX:
            digest = await retry_until_available(lambda: self._context.artifacts.put(data))
            value = Ref(digest, len(data), None, "artifact")
        self._context.live.write_behind.keep_child(task, ARGUMENTS_STEP, child, value)
