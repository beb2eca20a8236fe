"""The engine: one partition with its workers, as everything above it sees it.

API, embedded client and simulator talk to this and to nothing below. Commands return when their tick is durable, so
whoever asked reads its own writes. Views wait until the tick that they show is durable.
"""

import asyncio
import contextlib
import gc
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

import msgspec

from tickwork.core import inputs as ask
from tickwork.core.definition import TaskNode
from tickwork.core.effects import Alert, Answer, Keep, LookUp, Stop
from tickwork.core.errors import Refused, TickworkError, Unavailable
from tickwork.core.events import RunSpawned
from tickwork.core.evolve.setup import time_of
from tickwork.core.explain import WhyNot, why_not
from tickwork.core.inputfields import SCHEDULED_TIME, check_inputs, require_inputs
from tickwork.core.lifecycle import Phase
from tickwork.core.machine import Machine
from tickwork.core.model import Clock as LogicalClock
from tickwork.core.model import Run, Settings, State, Tenant
from tickwork.core.names import NAME_CHARACTERS_MAX, check_name
from tickwork.core.plan import Plan, plan_of
from tickwork.core.stablehash import stable_digest
from tickwork.core.story import Story, Teller
from tickwork.core.strictjson import check as check_plain
from tickwork.core.timetext import duration_ms, instant_ms
from tickwork.core.values import INLINE_BYTES_MAX, Ref, Value, pack
from tickwork.journal.record import GENESIS, Sealed, unseal
from tickwork.ports import wire
from tickwork.ports.artifacts import Artifacts
from tickwork.ports.clock import Clock
from tickwork.ports.exchange import Call, Reply
from tickwork.ports.ids import Ids
from tickwork.ports.store import Payload, RunFilter, RunRow, Store, StoreFull
from tickwork.runtime import reads
from tickwork.runtime.assign import Assigner
from tickwork.runtime.books import Attempt, attempts_decoder
from tickwork.runtime.checks import check_terms, check_writable, packed, shown, small
from tickwork.runtime.facts import Facts, record_of
from tickwork.runtime.floor import LOST_AFTER_MS, Floor
from tickwork.runtime.inbox import Letter
from tickwork.runtime.logs import Logs
from tickwork.runtime.partition import Decided, Partition
from tickwork.runtime.patience import patiently
from tickwork.runtime.recovery import recover, settings_of
from tickwork.runtime.timekeeper import Timekeeper
from tickwork.runtime.vault import ARGUMENTS_STEP, Vault, decode_value
from tickwork.runtime.words import STATE_NUMBERS, instant, instant_or_none
from tickwork.version import VERSION

PARTITION = 0
TENANT = "default"
BACKLOG_MAX = 200_000  # inputs that wait for their tick; more are refused before they are accepted
ALERTS_KEPT = 100
TIDY_S = 5.0
ROWS_PER_READ = 256
INPUT_BYTES_MAX = 16 * 1024 * 1024


class Alarm(msgspec.Struct, frozen=True):
    at_ms: int
    kind: str
    text: str


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        artifacts: Artifacts,
        clock: Clock,
        ids: Ids,
        owner: str,
        settings: Settings | None = None,
        own_process: bool = False,
        lost_after_ms: int = LOST_AFTER_MS,  # how long a worker may be silent
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._owner = owner
        self._settings = settings
        self._own_process = own_process
        self._lost_after_ms = lost_after_ms
        self._jobs: set[asyncio.Task[None]] = set()
        self._watchers: dict[tuple[str, str], list[asyncio.Event]] = {}
        self._draining = False
        self.partition: Partition | None = None
        self.artifacts = artifacts
        self.vault = Vault(store, artifacts)
        self.logs = Logs(store, artifacts, clock)
        self.alarms: deque[Alarm] = deque(maxlen=ALERTS_KEPT)
        self.alarm_counts: dict[str, int] = {}
        self.on_alarm: Callable[[Alarm], None] = lambda _: None

    # ---- life

    async def start(self) -> None:
        """Own the partition, rebuild its machine, and begin to tick."""
        await self._store.open()
        fresh = Settings(clock=LogicalClock(origin_ms=self._clock.wall_ms()))
        settings = msgspec.msgpack.encode(self._settings or fresh)
        head = await self._store.claim(PARTITION, owner=self._owner, settings=settings)
        machine, books, watermark_head = await recover(self._store, PARTITION)
        logical = machine.state.settings.clock
        self._assigner = Assigner(self.vault, logical)
        self.partition = Partition(
            number=PARTITION,
            store=self._store,
            machine=machine,
            head=head,
            watermark_head=watermark_head,
            keeper=Timekeeper(self._clock, logical, last_tick=machine.state.tick),
            books=books,
            assigner=self._assigner,
            facts=Facts(self._store, books),
            on_durable=self._on_durable,
            on_alarm=self._alarm,
            rebuild=lambda: recover(self._store, PARTITION),
            own_process=self._own_process,
        )
        self.vault.unwritten_children = lambda run, step: self._live.books.children_of(run, step)
        self.floor = Floor(
            partition=lambda: self._live,
            clock=self._clock,
            vault=self.vault,
            assigner=self._assigner,
            on_alarm=self._alarm,
            lost_after_ms=self._lost_after_ms,
        )
        self.partition.start()
        self.floor.start()
        if self._own_process:
            self._spawn(self._tidy())
        self._take_up()
        if TENANT not in self.state.tenants:
            await self._command(ask.PutTenant("engine", TENANT))
        if "default" not in self.state.queues:
            await self._command(ask.PutQueue("engine", "default"))

    async def _tidy(self) -> None:
        """Where the process is ours, garbage is collected when we say so: what allocates is short-lived or stays."""
        gc.disable()
        while not self._draining:
            self._live.collect()
            await asyncio.sleep(TIDY_S)

    def _take_up(self) -> None:
        """What a crash interrupted between a commit and its effects, found again in the state."""
        for task in self.state.tasks.values():
            if task.phase == Phase.CHECKING:
                cache = getattr(task.step.node, "cache", None)
                self._spawn(self._look_up(LookUp(task.number, task.cache_key, cache.ttl_ms if cache else None)))
        for run in self.state.runs.values():
            if isinstance(run.inputs, Ref) and run.inputs.place == "arguments":
                self._keep_arguments(run.parent, run.child)

    async def stop(self) -> None:
        """Refuse what is new, finish what was accepted, write the rows, let the store go."""
        self._draining = True
        if self.partition is not None:
            await self.floor.close()
            await self.partition.stop()
        for job in list(self._jobs):
            job.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)
        await self._store.close()

    @property
    def _live(self) -> Partition:
        assert self.partition is not None, "the engine is started"
        return self.partition

    @property
    def state(self) -> State:
        return self._live.machine.state

    @property
    def accepting(self) -> bool:
        live = self.partition
        return live is not None and not self._draining and live.failed is None and not live.full

    @property
    def idle(self) -> bool:
        """Nothing is under way here: only an input, a worker or the next timer brings something to do."""
        return not self._jobs and self._live.idle

    @property
    def why_not_accepting(self) -> str:
        """What a person is told while nothing new is accepted; "": it is."""
        live = self.partition
        if live is None:
            return "the engine has not started yet"
        if self._draining:
            return "the engine is shutting down"
        if live.failed is not None:
            return f"the partition has stopped: {live.failed}"
        return "the store has no space left" if live.full else ""

    def now_ms(self) -> int:
        return self._clock.wall_ms()

    def new_id(self) -> str:
        """An id that nobody has had: of a run, or of a request in the log."""
        return self._ids.new()

    def _spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    def _alarm(self, kind: str, text: str) -> None:
        alarm = Alarm(self._clock.wall_ms(), kind, text)
        self.alarms.append(alarm)
        self.alarm_counts[kind] = self.alarm_counts.get(kind, 0) + 1
        self.on_alarm(alarm)

    # ---- after each commit

    def _on_durable(self, decided: Decided) -> None:
        for order in decided.orders:
            self.floor.deliver(order)
        for effect in decided.effects:
            match effect:
                case Stop():
                    self.floor.stop(effect)
                case LookUp():
                    self._spawn(self._look_up(effect))
                case Keep():
                    asked: Any = decided.inputs[effect.input]
                    self._live.books.keep_cached(effect.key, asked.value, self._clock.wall_ms())
                case Alert():
                    self._alarm(effect.kind, f"{effect.tenant}/{effect.subject}: {effect.detail}")
                case _:
                    pass
        for event in decided.events:
            if type(event) is RunSpawned and isinstance(event.inputs, Ref):
                self._keep_arguments(event.task, event.child)
        if self._watchers:
            self._wake_watchers(decided)

    async def _look_up(self, effect: LookUp) -> None:
        row = self._live.books.find_cached(effect.key)
        if row is None:
            row = (await patiently(lambda: self._store.read_cache([effect.key]))).get(effect.key)
        fresh = row is not None and (effect.ttl_ms is None or row.kept_ms + effect.ttl_ms > self._clock.wall_ms())
        answer = ask.CacheAnswered(effect.task, fresh, decode_value(row.value) if row is not None and fresh else None)
        with contextlib.suppress(TickworkError):
            await self._live.ask([answer]).done

    def _keep_arguments(self, task: int, child: int) -> None:
        """A child run whose inputs are its parent's large arguments: they are kept apart, for its tasks and readers."""
        parent = self.state.tasks.get(task)
        if parent is not None:
            name, keeping = (task, child), self.vault.keeping
            keeping[name] = self._spawn(self._keep_inputs(task, child, self._assigner.child_inputs(parent, child)))
            keeping[name].add_done_callback(lambda _: keeping.pop(name, None))

    async def _keep_inputs(self, task: int, child: int, sources: list[Any]) -> None:
        data, _ = await patiently(lambda: self._assigner.assemble(sources, bytes_max=INPUT_BYTES_MAX))
        value = Ref(await patiently(lambda: self.artifacts.put(data)), len(data), None, "artifact")
        self._live.books.keep_child(task, ARGUMENTS_STEP, child, value)

    # ---- commands

    async def _command(self, asked: ask.Input, payloads: list[Payload] | None = None, *, facts: bool = False) -> Answer:
        check_writable(asked)
        letter = self._post([asked], payloads or [], facts=facts)
        await letter.done
        answer = letter.answers.get(0) or Answer(0)
        if answer.code:
            raise Refused(answer.code, answer.message)
        return answer

    def _post(self, asked: list[ask.Input], payloads: list[Payload], *, facts: bool) -> Letter:
        live = self._live
        if self._draining:
            raise Unavailable(
                "the server is shutting down; ask another node, or again in a moment", retry_after_ms=1_000
            )
        if live.full:
            raise StoreFull("the store has no space left; free some and try again", retry_after_ms=5_000)
        if live.backlog > BACKLOG_MAX:
            raise Unavailable("too many requests wait already; try again in a moment", retry_after_ms=1_000)
        return live.ask(asked, payloads, facts=facts)

    async def submit(
        self, submissions: Sequence[wire.Submission], *, by: str, tenant: str = TENANT
    ) -> list[wire.Submitted | wire.Rejected]:
        """All of them in one call; each is accepted or refused on its own."""
        asked: list[ask.Input] = []
        payloads: list[Payload] = []
        refused: dict[int, wire.Rejected] = {}
        facts = False
        for place, submission in enumerate(submissions):
            try:
                one = await self._submission(submission, by, tenant, payloads)
            except Refused as error:
                refused[place] = wire.Rejected(code=error.code, detail=error.message, path=error.path)
                continue
            facts = facts or bool(submission.key or submission.id)
            asked.append(one)
        answers: dict[int, Answer] = {}
        if asked:
            letter = self._post(asked, payloads, facts=facts)
            await letter.done
            answers = letter.answers
        if not refused and not answers:
            return [wire.Submitted(id=one.run_id) for one in asked]  # type: ignore[union-attr]
        return _in_order(len(submissions), asked, answers, refused)

    async def _submission(
        self, submission: wire.Submission, by: str, tenant: str, payloads: list[Payload]
    ) -> ask.Submit:
        submission = self._timed(submission, tenant)
        inputs: Value = None
        if submission.inputs:
            data = packed(submission.inputs, "inputs")
            inputs = data if len(data) <= INLINE_BYTES_MAX else await self._large_inputs(submission, tenant, payloads)
        workflow = submission.workflow
        if len(workflow) > NAME_CHARACTERS_MAX or not workflow.isascii():
            raise Refused("unknown_workflow", f"there is no workflow {workflow[:128]!a}", path="workflow")
        run_id = submission.id or self._ids.new()
        if not _has_terms(submission):
            return ask.Submit(by, tenant, run_id, submission.workflow, inputs)
        check_terms(submission)
        terms = ask.Terms(
            key=submission.key,
            body=_body(submission) if submission.key or submission.id else "",
            start_at_ms=instant_ms(submission.start_at, path="start_at") if submission.start_at else None,
            delay_ms=submission.delay_ms,
            debounce=submission.debounce,
            priority=submission.priority,
            definition=submission.definition,
        )
        return ask.Submit(by, tenant, run_id, submission.workflow, inputs, terms)

    def _timed(self, submission: wire.Submission, tenant: str) -> wire.Submission:
        """A workflow that asks for its scheduled time gets the present where nobody gave one."""
        owner = self.state.tenants.get(tenant)
        plan = owner.plans.get(submission.workflow) if owner is not None else None
        if plan is None or SCHEDULED_TIME not in plan.definition.inputs or SCHEDULED_TIME in submission.inputs:
            return submission
        given = submission.inputs | {SCHEDULED_TIME: instant(self._clock.wall_ms())}
        return msgspec.structs.replace(submission, inputs=given)

    async def _large_inputs(self, submission: wire.Submission, tenant: str, payloads: list[Payload]) -> Value:
        """Inputs that the machine will not look into are checked here."""
        data = pack(submission.inputs)
        if len(data) > INPUT_BYTES_MAX:
            raise Refused(
                "inputs_too_large", f"inputs have at most {INPUT_BYTES_MAX} bytes; pass a reference", path="inputs"
            )
        plan = self._plan(tenant, submission.workflow, submission.definition)
        problems = check_inputs(plan.definition, submission.inputs)
        if problems:
            raise Refused(problems[0].code, problems[0].message, path=problems[0].path)
        return await self.vault.take_any(data, payloads)

    def _tenant(self, tenant: str) -> Tenant:
        found = self.state.tenants.get(tenant)
        if found is None:
            raise Refused("unknown_tenant", f"there is no tenant {tenant[:128]!r}", path="tenant")
        return found

    def _plan(self, tenant: str, workflow: str, definition: str = "") -> Plan:
        owner = self._tenant(tenant)
        plan = owner.versions.get(definition) if definition else owner.plans.get(workflow)
        if plan is None or plan.name != workflow:
            raise Refused("unknown_workflow", f"there is no workflow {workflow[:128]!r} {definition}", path="workflow")
        return plan

    async def publish(self, publication: wire.Publication, *, by: str, tenant: str = TENANT) -> list[wire.Workflow]:
        """Definitions and schedules, all or none. Queues that they name and nobody declared are declared with them."""
        documents = [msgspec.json.encode(document) for document in publication.documents]
        plans = [plan_of(document) for document in documents]
        owner = self._tenant(tenant)
        queues = sorted({queue for plan in plans for queue in _queues(plan)} - set(self.state.queues))
        asked: list[ask.Input] = [ask.PutQueue(by, queue) for queue in queues]
        for plan, document in zip(plans, documents, strict=True):
            latest = owner.plans.get(plan.name)
            if latest is None or latest.hash != plan.hash:
                asked.append(ask.PutDefinition(by, tenant, document))
        known = owner.plans | {plan.name: plan for plan in plans}
        for name, wanted in sorted(publication.schedules.items()):
            put = self._schedule(name, wanted, by, tenant)
            self._check_schedule(put, known)
            if not self._same_schedule(owner, put):
                asked.append(put)
        for one in asked:
            check_writable(one)
        if asked:
            letter = self._post(asked, [], facts=False)
            await letter.done
            wrong = next((answer for _, answer in sorted(letter.answers.items()) if answer.code), None)
            if wrong is not None:
                raise Refused(wrong.code, wrong.message)
        await self._durable()  # also where nothing is new: whoever published it first may not have been told yet
        return reads.workflows(self.state, tenant)

    def _schedule(self, name: str, wanted: wire.ScheduleRequest, by: str, tenant: str) -> ask.PutSchedule:
        if wanted.timezone not in ("UTC", "Etc/UTC"):
            raise Refused(
                "timezone", "schedules run in UTC so far; write the time in UTC, or leave the zone out", path="timezone"
            )
        if wanted.cron and wanted.every:
            raise Refused("bad_schedule", "give a cron expression or an interval, one of them", path="cron")
        return ask.PutSchedule(
            by,
            tenant,
            name,
            wanted.workflow,
            wanted.cron or None,
            duration_ms(wanted.every, path="every") if wanted.every else None,
            None,
            packed(wanted.inputs, "inputs") if wanted.inputs else None,
        )

    def _check_schedule(self, put: ask.PutSchedule, plans: dict[str, Plan]) -> None:
        """What the machine will ask, asked before anything is posted: all or none."""
        path = f"schedules.{check_name(put.schedule, path='schedules', kind='schedule')}"
        plan = plans.get(put.workflow)
        if plan is None:
            raise Refused("unknown_workflow", f"there is no workflow {put.workflow[:128]!a}", path=f"{path}.workflow")
        if (put.cron is None) == (put.every_ms is None):
            raise Refused("bad_schedule", "give a cron expression or an interval, one of them", path=f"{path}.cron")
        require_inputs(plan.definition, put.inputs, at_ms=self._clock.wall_ms())
        time_of(put, self.state.now_ms)

    def _same_schedule(self, owner: Tenant, put: ask.PutSchedule) -> bool:
        """Publishing an unchanged application again must not move its schedules."""
        now = owner.schedules.get(put.schedule)
        if now is None or (now.workflow, now.inputs) != (put.workflow, put.inputs):
            return False
        return now.expression == (put.cron if put.cron is not None else now.expression) and (
            put.every_ms is None or getattr(now.every, "every_ms", None) == put.every_ms
        )

    async def put_schedule(self, name: str, wanted: wire.ScheduleRequest, *, by: str, tenant: str = TENANT) -> None:
        await self._command(self._schedule(name, wanted, by, tenant))

    async def remove_schedule(self, name: str, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.RemoveSchedule(by, tenant, name))

    async def put_queue(self, name: str, wanted: wire.QueueRequest, *, by: str) -> None:
        rate_ms = duration_ms(wanted.per, path="per")
        await self._command(ask.PutQueue(by, name, wanted.limit, wanted.rate, rate_ms, wanted.burst))

    async def cancel(self, run_id: str, *, by: str, reason: str = "", tenant: str = TENANT) -> None:
        await self._command(ask.Cancel(by, tenant, run_id, reason), facts=True)

    async def pause(
        self, scope: str, name: str, *, by: str, reason: str = "", until: str = "", tenant: str = TENANT
    ) -> None:
        until_ms = instant_ms(until, path="until") if until else None
        await self._command(ask.Pause(by, scope, tenant, name, reason, until_ms), facts=scope == "run")

    async def resume(self, scope: str, name: str, *, by: str, tenant: str = TENANT) -> None:
        await self._command(ask.Resume(by, scope, tenant, name), facts=scope == "run")

    async def resolve(
        self,
        run_id: str,
        *,
        by: str,
        reason: str = "",
        decisions: dict[str, str] | None = None,
        values: dict[str, Any] | None = None,
        tenant: str = TENANT,
    ) -> None:
        if self._tenant(tenant).runs.get(run_id) is not None:
            raise Refused("illegal_move", f"run {run_id[:128]} goes on: only a failed run is resolved", path="run_id")
        given: dict[str, Value] = {node: small(value, f"values.{node}") for node, value in (values or {}).items()}
        asked = ask.Resolve(by, tenant, run_id, reason or "retry", decisions or {}, given)
        await self._command(asked, facts=True)

    async def rerun(self, run_id: str, wanted: wire.RerunRequest, *, by: str, tenant: str = TENANT) -> str:
        row = await self._ended_row(tenant, run_id)
        if row is None:
            live = self._tenant(tenant).runs.get(run_id)
            why = "it has not ended yet" if live is not None else "there is no such run"
            raise Refused("unknown_run", f"run {run_id[:128]!r} cannot be repeated: {why}", path="run_id")
        payloads: list[Payload] = []
        inputs: Value = None
        if wanted.inputs is not None:
            check_plain(wanted.inputs)
            inputs = await self.vault.take_any(pack(wanted.inputs), payloads)
        new = self._ids.new()
        asked = ask.Rerun(
            by,
            tenant,
            new,
            record_of(row),
            wanted.from_node,
            wanted.definition,
            inputs,
            wanted.inputs is not None,
        )
        await self._command(asked, payloads)
        return new

    async def decide(
        self, run_id: str, node: str, *, approve: bool, by: str, comment: str = "", tenant: str = TENANT
    ) -> None:
        await self._command(ask.Decide(by, tenant, run_id, node, approve, comment))

    async def signal(self, signal: wire.Signal, *, by: str, tenant: str = TENANT) -> str:
        payload = small(signal.payload, "payload") if signal.payload is not None else None
        asked = ask.Ingest(by, tenant, signal.event, signal.key, signal.run, payload)
        return (await self._command(asked)).message

    # ---- workers

    async def exchange(self, call: Call, peer: str = "") -> Reply:
        return await self.floor.exchange(call, peer)

    def release_workers(self) -> None:
        """Calls that wait for work end now."""
        if self.partition is not None:
            self.floor.release()

    def connection_closed(self, peer: str) -> None:
        if self.partition is not None:
            self.floor.connection_closed(peer)

    # ---- questions

    async def _durable(self) -> None:
        """Until everything that a view was built from is durable."""
        live, seq = self._live, self._live.decided_seq
        while live.durable_seq < seq and live.failed is None:
            await live.next_commit()
        if live.durable_seq < seq:
            raise Unavailable(f"this partition has stopped: {live.failed}; ask again", retry_after_ms=1_000)

    async def run(self, run_id: str, *, tenant: str = TENANT) -> wire.RunDetail:
        draft = await self._draft(tenant, run_id)
        if draft is None:
            raise Refused("unknown_run", f"there is no run {run_id[:128]!r}", path="run_id")
        await self._durable()
        tasks = tuple([await self._task(view, value) for view, value in draft.tasks])
        return wire.RunDetail(
            **draft.head,
            inputs=await self._plain(draft.inputs),
            output=await self._plain(draft.output),
            output_size=reads.shown(draft.output),
            tasks=tasks,
        )

    async def _draft(self, tenant: str, run_id: str) -> reads.Draft | None:
        owner = self._tenant(tenant)
        live = owner.runs.get(run_id)
        if live is not None:
            # What is written while the store is asked would be in neither, so the books are asked first and last.
            unwritten = self._live.books.attempts_of(live.number)
            stored = await self._stored_attempts(live.number)
            if owner.runs.get(run_id) is live:
                return reads.live_draft(self.state, self._live.books, live, [*stored, *unwritten])
        row = await self._ended_row(tenant, run_id)
        if row is None:
            return None
        stored = await self._stored_attempts(row.number)
        known = {(one.task, one.attempt, one.ended_ms) for one in stored}
        own = attempts_decoder.decode(row.attempts) if row.attempts else []
        stored += [one for one in own if (one.task, one.attempt, one.ended_ms) not in known]
        plan = owner.versions.get(row.definition)
        return reads.ended_draft(row, plan, decode_value(row.output), stored)

    async def _stored_attempts(self, number: int) -> list[Attempt]:
        return [
            one for data in await self._store.read_attempts(number) if data for one in attempts_decoder.decode(data)
        ]

    async def _ended_row(self, tenant: str, run_id: str) -> RunRow | None:
        left = self._live.books.find_left(tenant, run_id)
        if left is not None:
            return left.row
        rows = await self._store.find_runs(tenant, ids=[run_id])
        return rows[0] if rows else None

    async def _task(self, view: dict[str, Any], value: Value) -> wire.Task:
        return wire.Task(**view, result=await self._plain(value), result_size=reads.shown(value))

    async def _plain(self, value: Value) -> Any:
        """A value for people; nothing where it is too large to be shown."""
        if value is None or reads.shown(value) > reads.SHOWN_BYTES_MAX:
            return None
        data = await self.vault.bytes_of(value)
        return shown(data) if len(data) <= reads.SHOWN_BYTES_MAX else None

    async def value_bytes(self, run_id: str, node: str = "", *, tenant: str = TENANT) -> bytes:
        """The whole output of a run, or the result of one of its nodes, as MessagePack."""
        draft = await self._draft(tenant, run_id)
        if draft is None:
            raise Refused("unknown_run", f"there is no run {run_id[:128]!r}", path="run_id")
        await self._durable()
        if not node:
            return await self.vault.bytes_of(draft.output)
        for view, value in draft.tasks:
            if view["node"] == node:
                return await self.vault.bytes_of(value)
        raise Refused("unknown_node", f"run {run_id[:128]!r} has no node {node[:128]!r}", path="node")

    async def runs(self, wanted: RunFilter) -> tuple[list[wire.Run], int]:
        """One page, newest first, and the number before which the next one begins (0: none)."""
        self._tenant(wanted.tenant)
        left = self._live.books.recently_left()  # before the store is asked: what is written meanwhile is in neither
        stored = await self._store.list_runs(msgspec.structs.replace(wanted, limit=wanted.limit + 1))
        found = reads.page(self.state, self._live.books, wanted, stored, left)
        await self._durable()
        return found

    def filter(
        self, *, workflow: str = "", states: Sequence[str] = (), schedule: str = "", before: int = 0, limit: int = 50,
        tenant: str = TENANT,
    ) -> RunFilter:  # fmt: skip
        unknown = [state for state in states if state not in STATE_NUMBERS]
        if unknown:
            raise Refused("bad_state", f"a state is one of {', '.join(STATE_NUMBERS)}", path="state")
        return RunFilter(tenant, workflow, tuple(STATE_NUMBERS[state] for state in states), schedule, before, limit)

    def why_not(self, run_id: str, *, tenant: str = TENANT) -> WhyNot | None:
        return why_not(self.state, tenant, run_id)

    async def why(self, run_id: str, *, tenant: str = TENANT) -> Story | None:
        """The chain of decisions, folded from the journal in small portions so that ticks go on."""
        await self._durable()
        machine = Machine(settings=self.state.settings)
        teller = Teller(machine.state, tenant, run_id)
        head, seq, last = GENESIS, 0, self._live.durable_seq
        while seq < last:
            for sealed in await self.journal(after=seq, limit=min(ROWS_PER_READ, last - seq)):
                teller.hear(unseal(sealed, head))
                head, seq = sealed.hash, sealed.seq
                await asyncio.sleep(0)
        return teller.story()

    async def journal(self, *, after: int, limit: int) -> list[Sealed]:
        return await self._store.journal(PARTITION, after=after, limit=limit)

    async def settings(self) -> Settings:
        return settings_of(msgspec.msgpack.encode(self.state.settings))

    async def status(self, *, tenant: str = TENANT) -> wire.Status:
        state, live = self.state, self._live
        owner = self._tenant(tenant)
        ended = {"completed": owner.completed, "failed": owner.failed, "cancelled": owner.cancelled}
        return wire.Status(
            version=VERSION,
            tick=state.tick,
            seq=live.durable_seq,
            watermark=live.watermark,
            epoch=live.epoch,
            live_runs=state.live_runs,
            live_tasks=len(state.tasks),
            ready=sum(lane.live for lane in state.lanes.values()),
            running=len(live.books.open),
            workers=len(state.workers),
            runs={state: count for state, count in ended.items() if count},
            alerts=tuple(f"{alarm.kind}: {alarm.text}" for alarm in self.alarms),
            accepting=self.accepting,
        )

    def workflows(self, *, tenant: str = TENANT) -> list[wire.Workflow]:
        return reads.workflows(self.state, tenant)

    def workflow(self, name: str, *, tenant: str = TENANT) -> wire.WorkflowDetail:
        """The latest version, with the document that was put."""
        plan = self._plan(tenant, name)
        head = next(one for one in reads.workflows(self.state, tenant) if one.name == name)
        document = msgspec.json.decode(self.state.documents[plan.hash])
        return wire.WorkflowDetail(**msgspec.structs.asdict(head), document=document)

    def schedules(self, *, tenant: str = TENANT) -> list[wire.Schedule]:
        return reads.schedules(self.state, tenant)

    def queues(self) -> list[wire.Queue]:
        return reads.queues(self.state)

    def workers(self) -> list[wire.Worker]:
        now_ms, mono_ms = self._clock.wall_ms(), self._clock.mono_ms()
        found: list[wire.Worker] = []
        for worker in sorted(self.state.workers.values(), key=lambda one: one.id):
            seat = self.floor.seats.get(worker.id)
            heard_ms = now_ms - (mono_ms - seat.heard_ms) if seat is not None else 0
            profile = seat.profile if seat is not None else None
            found.append(
                wire.Worker(
                    id=worker.id,
                    queues=worker.queues,
                    labels=worker.labels,
                    credit=worker.credit,
                    running=len(worker.tasks),
                    last_heard_at=instant_or_none(heard_ms),
                    host=profile.host if profile is not None else "",
                    pid=profile.pid if profile is not None else 0,
                )
            )
        return found

    async def run_of_task(self, task: int, *, tenant: str = TENANT) -> wire.RunDetail:
        """The run that a task belongs to. A child of a map is found by its number only while it lives."""
        run_id = await self._run_id_of(task, tenant)
        if run_id is not None:
            detail = await self.run(run_id, tenant=tenant)
            if any(one.id == str(task) for one in detail.tasks):
                return detail
        raise Refused("unknown_task", f"there is no task {task}; look at the tasks of its run", path="task")

    async def _run_id_of(self, task: int, tenant: str) -> str | None:
        live = self.state.tasks.get(task)
        if live is not None:
            return live.run.id if live.run.tenant.id == tenant else None
        found, _ = await self.runs(RunFilter(tenant, before=task + 1, limit=1))
        return found[0].id if found else None

    # ---- following

    async def changes(
        self, run_id: str, *, tenant: str = TENANT, idle_s: float = 15.0
    ) -> AsyncIterator[wire.Run | None]:
        """The run whenever something of it changed, until it has ended; None after `idle_s` without a change."""
        woken = asyncio.Event()
        watchers = self._watchers.setdefault((tenant, run_id), [])
        watchers.append(woken)
        self._live.watched = True
        try:
            while True:
                woken.clear()
                view = await self._summary(tenant, run_id)
                yield view
                if view.ended_at is not None:
                    return
                while not woken.is_set():
                    try:
                        async with asyncio.timeout(idle_s):
                            await woken.wait()
                    except TimeoutError:
                        yield None
        finally:
            watchers.remove(woken)
            if not watchers:
                self._watchers.pop((tenant, run_id), None)
            self._live.watched = bool(self._watchers)

    async def _summary(self, tenant: str, run_id: str) -> wire.Run:
        live = self._tenant(tenant).runs.get(run_id)
        if live is not None:
            view = reads.summary(live, self.state.settings.clock)
            await self._durable()
            return view
        row = await self._ended_row(tenant, run_id)
        if row is None:
            raise Refused("unknown_run", f"there is no run {run_id[:128]!r}", path="run_id")
        await self._durable()
        return reads.row_summary(row)

    def _wake_watchers(self, decided: Decided) -> None:
        """Whoever watches a run that these events changed. A run that closed is named by the events, too."""
        for (tenant, run_id), watchers in self._watchers.items():
            owner = self.state.tenants.get(tenant)
            run: Run | None = owner.runs.get(run_id) if owner is not None else None
            if run is None or run.number in decided.changed:
                for woken in watchers:
                    woken.set()


def _has_terms(submission: wire.Submission) -> bool:
    return bool(
        submission.key
        or submission.id
        or submission.start_at
        or submission.delay_ms is not None
        or submission.debounce
        or submission.priority is not None
        or submission.definition
    )


def _body(submission: wire.Submission) -> str:
    """What a key stands for: the request without id and key."""
    return stable_digest(pack(msgspec.to_builtins(msgspec.structs.replace(submission, id="", key=""))))


def _queues(plan: Plan) -> set[str]:
    steps = [step.body or step for step in plan.steps]
    return {step.requirement[0] for step in steps if isinstance(step.node, TaskNode) or step.kind == 0}


def _in_order(
    count: int, asked: list[ask.Input], answers: dict[int, Answer], refused: dict[int, wire.Rejected]
) -> list[wire.Submitted | wire.Rejected]:
    found: list[wire.Submitted | wire.Rejected] = []
    posted = 0
    for place in range(count):
        if place in refused:
            found.append(refused[place])
            continue
        one: Any = asked[posted]
        answer = answers.get(posted)
        posted += 1
        if answer is None:
            found.append(wire.Submitted(id=one.run_id))
        elif answer.code:
            found.append(wire.Rejected(code=answer.code, detail=answer.message))
        else:
            found.append(wire.Submitted(id=answer.run_id, duplicate=True))
    return found
