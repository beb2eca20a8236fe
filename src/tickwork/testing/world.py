"""A whole installation inside one test: the real engine and agent, the functions of the application, virtual time.

Time passes only when the test says so, or when a task or a retry needs it. While nothing runs, time jumps to the next
moment at which something is due, so waiting for days costs nothing.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import TENANT
from tickwork.core.calendar.durations import duration_text, instant_text
from tickwork.core.definition.model import WorkNode
from tickwork.core.evolve.follow_ups import SOURCE as FOLLOW_UP
from tickwork.core.evolve.schedules import updates_ready
from tickwork.core.explain.blockers import BlockKind
from tickwork.core.explain.run_history_text import entry_text
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.state import Run as CoreRun
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import WorkerProfile
from tickwork.runtime.engine import Engine
from tickwork.runtime.local_link import LocalLink
from tickwork.sdk.assets import Asset, Partition, partition_text
from tickwork.sdk.authoring.app_loader import app_with
from tickwork.sdk.authoring.mailboxes import declared_in
from tickwork.sdk.authoring.options import duration, resource
from tickwork.sdk.authoring.tasks import BoundTask, Task
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client.calls import reply_of, update_request
from tickwork.sdk.client.reading import Direct
from tickwork.sdk.client.submission_options import Options
from tickwork.sdk.context import Startable
from tickwork.sdk.durable.steps import step_name
from tickwork.sdk.values.encode import plain
from tickwork.stores.memory.artifacts import MemoryArtifacts
from tickwork.stores.memory.store import MemoryDisk, MemoryStore
from tickwork.system.zone_data import load_zones
from tickwork.testing.local_executor import HandlerPlan, HandlerPlans, LocalExecutor, TestLoop
from tickwork.testing.runs import Run
from tickwork.testing.virtual_loop import OutOfTime
from tickwork.testing.world_api import WorldApi
from tickwork.worker.agent import Agent

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BY = "test"
NEVER_MS = 10**15
PLENTY = 10**9  # of whatever a task may ask of its worker
RUNNING_S_MAX = 86_400.0  # a task that runs for longer than a day is taken for one that never ends
STEPS_MAX = 100_000
T = TypeVar("T")
Replaceable = Task[..., Any] | BoundTask[..., Any] | Callable[..., Any] | str  # a task, the function of a step, a node
BUSY = (Phase.RUNNING, Phase.CHECKING)


class WorldClock:
    """The loop's time, plus the time that was skipped."""

    def __init__(self, loop: TestLoop, origin_ms: int) -> None:
        self._loop = loop
        self._offset_ms = origin_ms

    def wall_ms(self) -> int:
        return self._offset_ms + self._loop.now_ns // 1_000_000

    def mono_ms(self) -> int:
        return self.wall_ms()

    def jump(self, ms: int) -> None:
        self._offset_ms += ms


class CountedIds:
    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"run-{self._count}"

    def token(self) -> str:
        return self.new()


class World:
    """`now` is the time at the start: a datetime or RFC 3339 text. Without a zone, it is in UTC."""

    def __init__(self, *, now: datetime | str = NOW) -> None:
        self._loop = TestLoop()  # type: ignore[abstract]  # what is not simulated is set by name
        begin_ms = round(_moment(now).timestamp() * 1000)
        self._clock = WorldClock(self._loop, begin_ms - 1000)  # setting up takes some milliseconds
        self._ids = CountedIds()
        self._book = HandlerPlans()
        self._published: dict[str, bytes] = {}
        self._served: dict[tuple[str, tuple[tuple[str, str], ...]], None] = {}
        self._agents: list[asyncio.Task[None]] = []
        self._engine = Engine(
            store=MemoryStore(MemoryDisk()),
            artifacts=MemoryArtifacts(),
            clock=self._clock,
            ids=CountedIds(),
            owner="world",
            lost_after_ms=NEVER_MS,
            clock_hold_ms=None,
            zones=load_zones(),
        )
        api = WorldApi(self._engine)
        self._reader = Direct(api.read, api.read_async)
        self._do(self._engine.start())
        self._do(self._start_worker("default", {}))
        self._settle(0.1)
        self._clock.jump(begin_ms - self._clock.wall_ms())

    def close(self) -> None:
        """Stop everything that is still running."""
        if self._loop.is_closed():
            return
        try:
            self._do(self._end())
        finally:
            self._loop.close()

    async def _end(self) -> None:
        for agent in self._agents:
            agent.cancel()
        await asyncio.gather(*self._agents, return_exceptions=True)
        await self._engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- time

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)

    def advance(self, by: timedelta | None = None, **parts: float) -> None:
        """Let time pass: `world.advance(days=3)`. Everything that becomes due happens at its own time."""
        passed = by if by is not None else timedelta(**parts)
        if passed < timedelta(0):
            raise Refused("bad_time", "time cannot go back; create the world with another `now`")
        until_ms = self._clock.wall_ms() + round(passed.total_seconds() * 1000)
        while (left_ms := until_ms - self._clock.wall_ms()) > 0:
            if not self._settle(left_ms / 1000):
                break  # something ran all the time
            self._jump(until_ms)
        self._settle(0.1)

    def advance_to(self, when: datetime | str) -> None:
        """Let time pass until then. Without a zone, the time is in UTC."""
        self.advance(_moment(when) - self.now)

    def _settle(self, budget_s: float = RUNNING_S_MAX) -> bool:
        """Run until nothing is in progress; return False if the time limit ends first."""
        try:
            self._loop.run_until(self._at_rest, budget_s)
        except OutOfTime:
            return False
        return True

    def _at_rest(self) -> bool:
        engine = self._engine
        state = engine.context.state
        due = any(run.wanted and run.number in state.runs for run in state.fresh)  # for a visit in the next tick
        due = due or any(updates_ready(schedule) for schedule in state.schedules.values())
        if not engine.context.idle or due or any(task.phase in BUSY for task in state.tasks.values()):
            if (live := engine.context.partition) is not None and live.failed is not None:
                raise live.failed
            return False
        return True

    def _jump(self, until_ms: int) -> None:
        """Advance to the next due time, at most to the given one."""
        live = self._engine.context.partition
        assert live is not None
        due = live.machine.next_tick()
        due_ms = until_ms if due is None else live.machine.state.settings.clock.ms_of(due)
        self._clock.jump(max(0, min(due_ms, until_ms) - self._clock.wall_ms()))
        live.refresh()

    def _go(self, run_id: str) -> None:
        """Run until this run has ended or only waits. Time jumps to retries."""
        for _ in range(STEPS_MAX):
            if not self._settle():
                raise AssertionError(f"{run_id} has been running for a day of virtual time\n{self._why(run_id)}")
            due_ms = self._tries_again_ms(run_id)
            if due_ms is None:
                return
            self._jump(due_ms)
        raise AssertionError(f"{run_id} does not become idle\n{self._why(run_id)}")

    def _tries_again_ms(self, run_id: str) -> int | None:
        """Return when this run, its child runs or its handlers next continue automatically, after a failure or a
        queue limit."""
        state = self._engine.context.state
        run = state.tenants[TENANT].runs.get(run_id)
        followers = [other for other in state.runs.values() if other.source == f"{FOLLOW_UP} of {run_id}"]
        ticks: list[int] = []
        for member in [relative for root in (run, *followers) if root is not None for relative in self._family(root)]:
            why = self._engine.queries.why_not(member.id)
            if why is not None and any(item.held is BlockKind.VISIT for item in why.obstacles):
                ticks.append(state.tick + 1)
            for node in why.nodes if why is not None else ():
                ticks += [
                    item.until or state.tick + 1000
                    for item in node.obstacles
                    if item.held in (BlockKind.BACKOFF, BlockKind.RATE, BlockKind.TURN, BlockKind.VISIT)
                ]
                if any(item.held is BlockKind.PAUSED for item in node.obstacles):
                    return None
        return state.settings.clock.ms_of(min(ticks)) if ticks else None

    def _family(self, run: CoreRun) -> list[CoreRun]:
        family = {run.number: run}
        for other in self._engine.context.state.runs.values():  # a child's number is above its parent's
            if other.parent_run in family:
                family[other.number] = other
        return list(family.values())

    # ---- workflows

    def publish(self, *workflows: Workflow[..., Any]) -> None:
        """Publish workflows with their schedules, which from now on fire as time passes."""
        self._publish(workflows, schedules=True)

    async def _publish_started(self, workflows: tuple[Startable, ...]) -> None:
        """Publish workflows that a task starts."""
        for workflow in workflows:
            if isinstance(workflow, Workflow) and workflow.name not in self._published:
                await self._make_known((workflow,), schedules=False)

    def _publish(self, workflows: tuple[Workflow[..., Any], ...], *, schedules: bool) -> None:
        self._do(self._make_known(workflows, schedules=schedules))

    async def _make_known(self, workflows: tuple[Workflow[..., Any], ...], *, schedules: bool) -> None:
        for workflow in workflows:
            if not isinstance(workflow, Workflow):
                raise Refused(
                    "wrong_type", f"{_shown(workflow)} is not a workflow; @tw.workflow turns a function into one"
                )
        app = app_with(*workflows)
        self._book.handlers |= app.handlers
        documents = [workflow.document() for workflow in app.published()]
        fresh = [data for data in documents if data not in self._published.values()]
        tables = [table for workflow in app.workflows.values() for table in workflow.timetables()] if schedules else []
        mailboxes = {mailbox.name: mailbox.wanted for mailbox in declared_in(*app.published())}
        if not fresh and not tables:
            return
        requests = {table.name: table.wanted for table in tables}
        publication = wire.Publication(
            documents=tuple(msgspec.json.decode(data) for data in fresh), schedules=requests, mailboxes=mailboxes
        )
        await self._engine.workflows.publish(publication, by=BY)
        self._published |= {workflow.name: workflow.document() for workflow in app.published()}
        for name in [name for name, plan in self._book.plans.items() if plan]:
            self._check_node(name)
        for plan in self._engine.context.state.tenants[TENANT].plans.values():
            for step in plan.steps:
                body = step.body or step
                if isinstance(body.node, WorkNode):
                    labels = {**plan.definition.defaults.labels, **body.node.labels}
                    await self._start_worker(body.requirement[0], labels)

    def serve(
        self, queue: str = "default", *, resources: Mapping[str, float | str] | None = None, **labels: str
    ) -> None:
        """Start a worker for a queue and labels that are known only at run time: `scan.using(queue=host)`.

        Queues that the workflows name have workers automatically, with plenty of everything. With `resources`, such as
        `{"gpu": 2, "memory": "32GB"}`, another worker starts that has no more than these; begin with it.
        """
        has = (PLENTY, PLENTY, PLENTY)
        if resources is not None:
            cpu, memory, gpu = (resource(name, resources.get(name, 0), "serve") for name in ("cpu", "memory", "gpu"))
            has = (cpu, memory, gpu)
        self._do(self._start_worker(queue, labels, has, beside=resources is not None))

    async def _start_worker(
        self,
        queue: str,
        labels: dict[str, str],
        has: tuple[int, int, int] = (PLENTY, PLENTY, PLENTY),
        *,
        beside: bool = False,
    ) -> None:
        """Start a worker for this queue and these labels, unless one exists or it is to stand beside it."""
        what = (queue, tuple(sorted(labels.items())))
        if what in self._served and not beside:
            return
        self._served[what] = None
        agent = Agent(
            LocalLink(self._engine),
            [LocalExecutor(self._book, self._clock, self._publish_started, self._reader)],
            clock=self._clock,
            ids=self._ids,
            name=f"worker-{len(self._agents) + 1}",
            profile=WorkerProfile((queue,), labels, PLENTY, *has),
        )
        self._agents.append(self._loop.create_task(agent.run()))
        await agent.reached.wait()

    def put_queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        rate: int | None = None,
        per: str | timedelta = "1s",
        burst: int | None = None,
        window: str = "bucket",
    ) -> None:
        """Declare a queue, or replace its limits, like `client.put_queue`."""
        per_text = duration_text(duration(per, path="per"))
        request = wire.QueueRequest(limit=limit, rate=rate, per=per_text, burst=burst, window=window)
        self._do(self._engine.admin.put_queue(name, request, by=BY))

    # ---- runs

    def run(self, workflow: Workflow[..., Any], /, **inputs: Any) -> Run:
        """Submit a run, and continue until it has ended or only waits for time, an event or a person."""
        run = self.start(workflow, **inputs)
        self._go(run.id)
        return run

    def start(self, workflow: Workflow[..., Any], /, **inputs: Any) -> Run:
        """Submit a run only. It continues with the next `advance`, `settle` or action."""
        return self.submit(workflow, inputs)

    def submit(
        self,
        workflow: Workflow[..., Any],
        /,
        inputs: dict[str, Any] | None = None,
        *,
        delay: str | timedelta | None = None,
        at_most: str | timedelta | None = None,
        options: Options | None = None,
        **terms: Any,
    ) -> Run:
        """Like `start`, with all options of a submission: `key`, `delay`, `debounce`, `start_at`, `priority` …"""
        self._publish((workflow,), schedules=False)
        for name, length in (("delay", delay), ("at_most", at_most)):
            if length is not None:
                terms[f"{name}_ms"] = duration(length, path=name)
        terms |= {} if options is None else options.terms()
        given = workflow.checked_inputs(inputs or {}, now=self.now)
        submission = wire.Submission(workflow=workflow.name, inputs=given, **terms)
        answer = self._do(self._engine.runs.submit([submission], by=BY))[0]
        if isinstance(answer, wire.Rejected):
            raise Refused(answer.code, answer.detail, path=answer.path)
        return Run(self, answer.id)

    def settle(self) -> None:
        """Let everything happen that takes no time."""
        self._settle()

    def runs(self, workflow: Workflow[..., Any] | None = None, *, state: str = "") -> list[Run]:
        """List all runs, or those of one workflow or in one state; oldest first."""
        runs: list[wire.Run] = []
        before = 0
        while True:
            criteria = self._engine.queries.filter(
                workflow=workflow.name if workflow is not None else "",
                states=(state,) if state else (),
                before=before,
                limit=500,
            )
            page, before = self._do(self._engine.queries.runs(criteria))
            runs += page
            if not before:
                return [Run(self, run.id) for run in reversed(runs)]

    def cancel(self, run: Run, *, node: str = "", reason: str = "") -> None:
        """Cancel a run, or with `node` just this node, which fails."""
        runs = self._engine.runs
        if node:
            number = int(run.tasks[node].view.id)
            self._tell(run, runs.cancel_task(number, by=BY, reason=reason))
        else:
            self._tell(run, runs.cancel(run.id, by=BY, reason=reason))

    def pause(self, run: Run, *, reason: str = "") -> None:
        self._tell(run, self._engine.admin.pause("run", run.id, by=BY, reason=reason))

    def resume(self, run: Run) -> None:
        self._tell(run, self._engine.admin.resume("run", run.id, by=BY))

    def retry(self, run: Run, *, node: str = "") -> None:
        """Retry everything that failed in a failed run, or with `node` just this node; or begin its waiting retry."""
        runs = self._engine.runs
        if not node:
            self._tell(run, runs.resolve(run.id, by=BY))
        elif runs.is_live(number := int(run.tasks[node].view.id)):
            self._tell(run, runs.retry_task(number, by=BY))
        else:
            self._tell(run, runs.resolve(run.id, by=BY, decisions={node: "retry"}, others_stay=True))

    def approve(self, run: Run, node: str, *, by: str = BY, comment: str = "") -> None:
        self._tell(run, self._engine.runs.decide(run.id, node, approve=True, by=by, comment=comment))

    def fill(self, run: Run, node: str, /, *, by: str = BY, comment: str = "", **fields: Any) -> None:
        """Fill in a form: `world.fill(run, "review", how="all")`."""
        values = {name: plain(value, what=name) for name, value in fields.items()}
        self._tell(run, self._engine.runs.decide(run.id, node, approve=True, by=by, comment=comment, values=values))

    def reject(self, run: Run, node: str, *, by: str = BY, comment: str = "") -> None:
        self._tell(run, self._engine.runs.decide(run.id, node, approve=False, by=by, comment=comment))

    def signal(
        self,
        event: str,
        *,
        key: str = "",
        run: Run | None = None,
        payload: Any = None,
        id: str = "",  # noqa: A002 - the field's name
    ) -> None:
        """Send an event to one run, or to the runs that wait for its name and key and the schedules that listen."""
        signal = wire.Signal(
            event=event, key=key, run=run.id if run is not None else "", payload=plain(payload, what="payload"), id=id
        )
        self._do(self._engine.runs.signal(signal, by=BY))
        for other in self.runs():
            if not other.ended:
                self._go(other.id)

    def update_asset(
        self,
        asset: Asset | str,
        *,
        partition: Partition | None = None,
        details: Mapping[str, Any] | None = None,
        id: str = "",  # noqa: A002 - the field's name
    ) -> None:
        """Say that an asset has new data."""
        sent = plain(dict(details or {}), what="details")
        request = wire.AssetUpdateRequest(partition=partition_text(partition), details=sent, id=id)
        self._do(self._engine.assets.update(str(asset), request, by=BY))

    def asset(self, asset: Asset | str) -> wire.Asset:
        """What is known of an asset: its latest updates, what makes it and what listens to it."""
        return self._do(self._engine.assets.asset(str(asset)))

    def mailbox_messages(self, mailbox: str, *, key: str = "", fate: str = "") -> list[wire.MailboxMessage]:
        """The messages of a mailbox: kept ones first, then those that were taken, expired or refused."""
        return list(self._do(self._engine.mailboxes.messages(mailbox, key=key, fate=fate)).messages)

    def read(self, run: Run, name: str) -> Any:
        """The value that the run has published last under this name."""
        return msgspec.msgpack.decode(self._do(self._engine.queries.published_bytes(run.id, name)))

    def ask(self, run: Run, name: str, payload: Any = None, /, *, key: str = "", **values: Any) -> Any:
        """Send an update to the run's durable function and return its reply. Raises `UpdateRefused`, and `NoReply` if
        the function waits for something else first."""
        request = msgspec.structs.replace(update_request(payload, values, key), wait_ms=0)

        async def ask() -> wire.UpdateResult:
            return await self._engine.updates.ask(run.id, name, request, key=request.key, by=BY)

        result = self._do(ask())
        if result.state == "waiting":
            self._go(run.id)
            result = self._do(ask())
        return reply_of(result)

    def _tell(self, run: Run, action: Coroutine[Any, Any, None]) -> None:
        self._do(action)
        self._go(run.id)

    # ---- stand-ins

    def replace(self, what: Replaceable, stand_in: Any) -> None:
        """Call `stand_in` instead from now on, or use it as the result if it is not a function. `what` is a task, the
        function of a step of a durable function, or the id of a node or the name of a step."""
        plan = self._plan(what)
        plan.stand_in, plan.replaced = stand_in, True

    def restore(self, what: Replaceable) -> None:
        """Use the original function again, without failures."""
        plan = self._plan(what)
        plan.replaced = False
        plan.failures.clear()

    def fail(
        self,
        what: Replaceable,
        *,
        times: int | None = None,
        error: BaseException | None = None,
    ) -> None:
        """Let the next `times` attempts fail with this error; without `times`, all attempts."""
        if times is not None and times < 1:
            raise Refused(
                "bad_times", f"times={times} is not valid; give 1 or more, or leave out `times` for all attempts"
            )
        self._plan(what).failures.append((times, error or RuntimeError("failed, as the test said")))

    def calls(self, what: Replaceable) -> list[dict[str, Any]]:
        """Return the arguments of each attempt so far, by name: of a task in all its nodes, of a step, or of one
        node."""
        return self._book.calls(_name(what))

    def _plan(self, what: Replaceable) -> HandlerPlan:
        name = _name(what)
        self._check_node(name)
        return self._book.plan(name)

    def _check_node(self, name: str) -> None:
        """Refuse a node that no worker runs: the engine decides it, so it cannot be replaced."""
        for plan in self._engine.context.state.tenants[TENANT].plans.values() if self._published else ():
            for step in plan.steps:
                if step.id == name and not isinstance((step.body or step).node, WorkNode):
                    message = f"{name!r} is a node of kind {step.kind.name.lower()}, which no worker runs"
                    raise Refused("bad_stand_in", f"{message}; stand-ins are for tasks, http and shell nodes")

    # ---- looking

    def _do(self, action: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(action)

    def _view(self, run_id: str) -> wire.RunDetail:
        return self._do(self._engine.queries.run(run_id))

    def _output(self, run_id: str) -> Any:
        return msgspec.msgpack.decode(self._do(self._engine.queries.value_bytes(run_id)))

    def _why(self, run_id: str) -> str:
        lines = [f"{run_id} is {self._view(run_id).state} at {instant_text(self._clock.wall_ms())}"]
        held = self._engine.queries.why_not(run_id)
        if held is not None:
            lines += [f"  waits: {obstacle.text}" for obstacle in held.obstacles]
            lines += [f"  {node.node} waits: {obstacle.text}" for node in held.nodes for obstacle in node.obstacles]
        story = self._do(self._engine.queries.why(run_id))
        for entry in story.entries if story is not None else ():
            text = entry_text(entry).replace("\n", "\n    ")
            lines.append(f"  {instant_text(entry.at_ms)} {text}")
        return "\n".join(lines)


def _name(what: Replaceable) -> str:
    if isinstance(what, str):
        return what
    if isinstance(what, BoundTask):
        return what.task.handler_name(what.owner)
    if isinstance(what, Task):
        return what.name
    if isinstance(what, Workflow) or not callable(what):
        message = "give a task, the function of a step, or the id of a node"
        raise Refused("wrong_type", f"{_shown(what)} is neither a task nor the function of a step; {message}")
    return step_name(what)


def _shown(what: object) -> str:
    return getattr(what, "__qualname__", "") or repr(what)


def _moment(given: datetime | str) -> datetime:
    try:
        moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    except ValueError:
        raise Refused("bad_time", f"{given!r} is not a time; write it like 2026-03-01T12:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
