"""Queries: read and follow runs, tasks and workflows. Nothing here changes anything.

A view is built from the machine and the write-behind buffer without a pause, then waits until its tick is durable: no
caller sees anything that a crash could undo.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tickwork.core.base.errors import Corrupt, Refused
from tickwork.core.base.names import TENANT
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import Value, pack
from tickwork.core.definition.cel import Condition
from tickwork.core.explain.excerpt import Excerpt, RunFacts
from tickwork.core.explain.policy_test import PolicyTrial
from tickwork.core.explain.run_history import HistoryBuilder, RunHistory
from tickwork.core.explain.why_not import WhyNot, why_not
from tickwork.core.state.evaluation_context import follow
from tickwork.core.state.state import NUMBER_BITS, Run, first_state
from tickwork.journal.record import GENESIS, unseal
from tickwork.ports.store import RunFilter
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import RecordedFunction
from tickwork.runtime.context import EngineContext
from tickwork.runtime.partition.write_behind import AttemptRecord, attempts_decoder
from tickwork.runtime.storage.payloads import decode_value
from tickwork.runtime.storage.request_checks import shown
from tickwork.runtime.storage.run_records import rest_of
from tickwork.runtime.views import run_filters
from tickwork.runtime.views import runs as reads
from tickwork.runtime.views.functions import STEPS_SHOWN, step_view
from tickwork.runtime.views.published import Published, PublishedPart, published_before_end, published_by
from tickwork.runtime.views.run_history import HistoryReader, facts_of_ended, facts_of_live, ticks_of
from tickwork.runtime.views.text import instant_or_none

if TYPE_CHECKING:
    from tickwork.runtime.partition.partition import DecidedTick

ROWS_PER_READ = 256
PREFIX_PAGE, PREFIX_PAGES_MAX = 500, 20  # runs among which an id is looked for by its beginning
CANDIDATES_MAX = 20
ATTEMPT_BYTES_AT_ONCE = 64 * 1024  # of stored attempts: about a millisecond


class _RecordedRun(NamedTuple):
    """How the journal rows about a run are found."""

    reader: HistoryReader
    facts: RunFacts | None  # None: its definition is no longer known
    inputs: Value
    ticks: set[int]
    tasks: list[int]


class QueryService:
    """Views of runs and workflows. Nothing here changes anything."""

    def __init__(self, context: EngineContext, lease_end_ms: Callable[[str], int]) -> None:
        """`lease_end_ms` says when a silent worker will count as lost; 0: not known."""
        self._context, self._lease_end_ms = context, lease_end_ms
        self.watchers: dict[tuple[str, str], list[asyncio.Event]] = {}

    async def run(
        self, run_id: str, *, tenant: str = TENANT, page: reads.AttemptPage = reads.ALL_ATTEMPTS
    ) -> wire.RunDetail:
        draft = await self.draft(tenant, run_id, page)
        if draft is None:
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        await self._context.until_durable()
        tasks = tuple([await self._task(view, value) for view, value in draft.tasks])
        return wire.RunDetail(
            **draft.head,
            inputs=await self.plain(draft.inputs),
            output=await self.plain(draft.output),
            output_size=reads.shown(draft.output),
            tasks=tasks,
            steps=await self._steps(draft, latest=STEPS_SHOWN),
            steps_total=len(draft.function[1].entries) if draft.function is not None else 0,
            awaits=draft.awaits,
            published=await self._published(draft.published),
        )

    async def _published(self, published: Published | None) -> dict[str, Any]:
        if published is None:
            return {}
        return {name: await self._shown_part(published.part(name)) for name in published.names()}

    async def _shown_part(self, part: PublishedPart | None) -> Any:
        """Nothing where it is not there yet, or too large to be shown."""
        whole = await self.plain(part.value) if part is not None else None
        if part is None or whole is None:
            return None
        try:
            return follow(whole, part.walk, "publish")
        except Refused:
            return None

    async def published_bytes(self, run_id: str, name: str, *, tenant: str = TENANT) -> bytes:
        """The value that a run has published last under this name, as MessagePack."""
        owner = self._context.tenant(tenant)
        live = owner.runs.get(run_id)
        if live is not None:
            published = published_by(live)
        else:
            row = await self._context.ended_row(tenant, run_id)
            if row is None:
                raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
            published = published_before_end(row, owner.versions.get(row.definition))
        part = published.part(name)
        await self._context.until_durable()
        if part is None:
            there = [known for known in published.names() if published.part(known) is not None]
            known = f"it has published {', '.join(there)}" if there else "it has published none"
            more = ", and this one is not there yet" if name in published.names() else ""
            message = f"run {shortened(run_id, 128)!r} has no value {shortened(name, 128)!r}: {known}{more}"
            raise Refused("unknown_value", message, path="name")
        data = await self._context.payloads.bytes_of(part.value)
        if not part.walk:
            return data
        try:
            return pack(follow(msgspec.msgpack.decode(data), part.walk, "publish"))
        except Refused as refused:
            raise Refused("unknown_value", f"the published value {name} is not there: {refused}", path="name") from None

    async def history(self, run_id: str, *, tenant: str = TENANT) -> wire.FunctionHistory:
        """Everything that the durable function of a run has recorded, and what it awaits."""
        draft = await self._function_draft(run_id, tenant)
        assert draft.function is not None
        return wire.FunctionHistory(
            run=run_id,
            workflow=draft.head["workflow"],
            base=draft.function[1].base,
            steps=await self._steps(draft),
            awaits=draft.awaits,
            versions=dict(draft.function[1].versions),
            cost=draft.function[1].cost,
        )

    async def history_bytes(self, run_id: str, *, tenant: str = TENANT) -> bytes:
        """The same as a worker gets it, in MessagePack, to be replayed by another version of the code."""
        draft = await self._function_draft(run_id, tenant)
        assert draft.function is not None
        number = int(draft.tasks[0][0]["id"])
        inputs = await self._context.payloads.bytes_of(draft.inputs)
        history = await self._context.live.assigner.history_bytes(draft.function[1])
        return msgspec.msgpack.encode(RecordedFunction(tenant, run_id, number, inputs, history))

    async def _function_draft(self, run_id: str, tenant: str) -> reads.RunDraft:
        draft = await self.draft(tenant, run_id)
        if draft is None:
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        if draft.function is None:
            message = f"run {shortened(run_id, 128)!r} has no durable function, or nothing is recorded of it yet"
            raise Refused("unknown_history", message, path="run_id")
        await self._context.until_durable()
        return draft

    async def _steps(self, draft: reads.RunDraft, *, latest: int = 0) -> tuple[wire.RecordedStep, ...]:
        if draft.function is None:
            return ()
        node, history = draft.function
        entries = history.entries[-latest:] if latest else list(history.entries)
        return tuple(
            [step_view(node, entry, await self.plain(entry.value), reads.shown(entry.value)) for entry in entries]
        )

    async def draft(
        self, tenant: str, run_id: str, page: reads.AttemptPage = reads.ALL_ATTEMPTS
    ) -> reads.RunDraft | None:
        owner = self._context.tenant(tenant)
        live = owner.runs.get(run_id)
        if live is not None:
            # Attempts that are written meanwhile would be in neither, so memory is read before and after the store.
            unwritten = self._context.live.write_behind.attempts_of(live.number)
            stored = await self._stored_attempts(live.number)
            if owner.runs.get(run_id) is live:
                return reads.live_draft(
                    self._context.state, self._context.live.write_behind, live, [*stored, *unwritten], page
                )
        row = await self._context.ended_row(tenant, run_id)
        if row is None:
            return None
        stored = await self._stored_attempts(row.number)
        if (archived := self._context.archives.opened(row.number)) is not None:
            stored = [*(attempt for data in archived.attempts for attempt in attempts_decoder.decode(data)), *stored]
        known = {(attempt.task, attempt.attempt, attempt.ended_ms) for attempt in stored}
        own = attempts_decoder.decode(row.attempts) if row.attempts else []
        stored += [attempt for attempt in own if (attempt.task, attempt.attempt, attempt.ended_ms) not in known]
        plan = owner.versions.get(row.definition)
        return reads.ended_draft(row, plan, decode_value(row.output), stored, page)

    async def attempts(self, task: int, run_id: str = "", *, tenant: str = TENANT) -> list[AttemptRecord]:
        """Return the attempts of one task from its run's record; an ended map child is found only by its run's id."""
        run_id = run_id or await self._run_id_of(task, tenant) or ""
        live, write_behind = self._context.tenant(tenant).runs.get(run_id), self._context.live.write_behind
        if live is not None:
            unwritten = write_behind.attempts_of(
                live.number
            )  # read before the store, because they may be written meanwhile
            attempts = [*unwritten, *await self._stored_attempts(live.number), *write_behind.attempts_of(live.number)]
        elif (row := await self._context.ended_row(tenant, run_id) if run_id else None) is not None:
            attempts = [*await self._stored_attempts(row.number), *attempts_decoder.decode(row.attempts or b"\x90")]
        else:
            attempts = []
        return [attempt for attempt in attempts if attempt.task == task]

    async def _stored_attempts(self, number: int) -> list[AttemptRecord]:
        """Of a run with many, decoded in portions: other requests have their turn between them."""
        attempts: list[AttemptRecord] = []
        waiting = 0
        for data in await self._context.store.read_attempts(number):
            if data:
                attempts += attempts_decoder.decode(data)
                waiting += len(data)
            if waiting > ATTEMPT_BYTES_AT_ONCE:
                waiting = 0
                await asyncio.sleep(0)
        return attempts

    async def _task(self, view: dict[str, Any], value: Value) -> wire.Task:
        task = self._context.state.tasks.get(int(view["id"]))
        if task is not None and task.worker is not None:
            view["lease_ends_at"] = instant_or_none(self._lease_end_ms(task.worker.id))
        return wire.Task(**view, result=await self.plain(value), result_size=reads.shown(value))

    async def plain(self, value: Value) -> Any:
        """A value for people; nothing where it is too large to be shown."""
        if value is None or reads.shown(value) > reads.SHOWN_BYTES_MAX:
            return None
        try:
            data = await self._context.payloads.bytes_of(value)
        except Corrupt as error:  # the rest of the run can be shown; reading the value alone raises the error
            return f"[this value is damaged: {error}]"
        return shown(data) if len(data) <= reads.SHOWN_BYTES_MAX else None

    async def value_bytes(self, run_id: str, node: str = "", *, tenant: str = TENANT) -> bytes:
        """The whole output of a run, or the result of one of its nodes, as MessagePack."""
        draft = await self.draft(tenant, run_id)
        if draft is None:
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        await self._context.until_durable()
        if not node:
            return await self._context.payloads.bytes_of(draft.output)
        for view, value in draft.tasks:
            if view["node"] == node:
                return await self._context.payloads.bytes_of(value)
        raise Refused(
            "unknown_node", f"run {shortened(run_id, 128)!r} has no node {shortened(node, 128)!r}", path="node"
        )

    async def runs(self, query: RunFilter) -> tuple[list[wire.Run], int]:
        """Return one page, newest first, and the number before which the next page begins (0: none)."""
        self._context.tenant(query.tenant)
        if self._context.shared:
            first, end = self._context.number << NUMBER_BITS, self._context.number + 1 << NUMBER_BITS
            query = msgspec.structs.replace(query, before=min(query.before or end, end), after=max(query.after, first))
        # Read before the store: rows that are written meanwhile would be in neither.
        left = self._context.live.write_behind.recently_left()
        stored = await self._context.store.list_runs(query)
        page = reads.page(self._context.state, self._context.live.write_behind, query, stored, left)
        await self._context.until_durable()
        return page

    def filter(
        self, *, workflow: str = "", states: Sequence[str] = (), schedule: str = "", before: int = 0, limit: int = 50,
        tenant: str = TENANT, search: wire.RunSearch | None = None,
    ) -> RunFilter:  # fmt: skip
        """A whole `search` counts instead of its parts. Raises `Refused` with the field."""
        search = search or wire.RunSearch(workflow=workflow, state=tuple(states), schedule=schedule)
        state = self._context.state
        return run_filters.filter_of(
            search, origin_ms=state.settings.clock.origin_ms, now_ms=state.now_ms, before=before, limit=limit,
            tenant=tenant,
        )  # fmt: skip

    def why_not(self, run_id: str, *, tenant: str = TENANT) -> WhyNot | None:
        return why_not(self._context.state, tenant, run_id)

    async def why(self, run_id: str, *, tenant: str = TENANT) -> RunHistory | None:
        """The chain of decisions about a run, from the journal rows that concern it. None: there is no such run."""
        recorded = await self._recorded(run_id, tenant)
        if recorded is None:
            return None
        if recorded.facts is not None:
            history = await recorded.reader.read(recorded.facts, recorded.ticks, recorded.tasks)
            if history is not None:
                return history
        return await self._folded_history(tenant, run_id)

    async def hold_policy(
        self, run_id: str, name: str, condition: Condition, reason: str, *, tenant: str = TENANT
    ) -> PolicyTrial | None:
        """Hold a policy against the recorded steps of a run. None: its rows are not indexed, or it is not known."""
        recorded = await self._recorded(run_id, tenant)
        if recorded is None or recorded.facts is None:
            return None
        trials: list[PolicyTrial] = []

        def begin(excerpt: Excerpt) -> None:
            trials.append(PolicyTrial(name, condition, reason, recorded.inputs))
            excerpt.before = trials[-1].before

        history = await recorded.reader.read(recorded.facts, recorded.ticks, recorded.tasks, begin=begin)
        return trials[-1] if history is not None else None

    async def _recorded(self, run_id: str, tenant: str) -> "_RecordedRun | None":
        """Where to look for what the journal says of a run."""
        context = self._context
        owner = context.tenant(tenant)
        await context.until_durable()
        live, row = owner.runs.get(run_id), None
        if live is None:
            row = await context.ended_row(tenant, run_id)
            if row is None:
                return None
            await context.until_durable()
        # From here to the attempts without a pause: a run that ends meanwhile is shown as it was.
        partition, write_behind, clock = context.live, context.live.write_behind, context.state.settings.clock
        reader = HistoryReader(
            context.state, write_behind, context.store, context.archives,
            partition=context.number, through=partition.durable_seq, tick=partition.durable_tick,
        )  # fmt: skip
        of_run: tuple[int, ...]
        if live is not None:
            facts: RunFacts | None = facts_of_live(live)
            number, inputs, of_run, attempts = (
                live.number,
                live.inputs,
                (live.submitted, live.started),
                write_behind.attempts_of(live.number),
            )
        else:
            assert row is not None
            rest = rest_of(row)
            facts = facts_of_ended(row, context.state)
            number, inputs = row.number, rest.inputs
            of_run = (rest.submitted, rest.started, clock.tick_at(row.ended_ms))
            attempts = attempts_decoder.decode(row.attempts) if row.attempts else []
        attempts += await self._stored_attempts(number)
        if (archived := await context.archives.earlier(tenant, run_id)) is not None:
            attempts += [attempt for data in archived.attempts for attempt in attempts_decoder.decode(data)]
        ticks = ticks_of(clock, run=of_run, attempts=attempts)
        return _RecordedRun(reader, facts, inputs, ticks, [attempt.task for attempt in attempts])

    async def _folded_history(self, tenant: str, run_id: str) -> RunHistory | None:
        """Of a run with rows from before there was an index: the whole journal is folded, in small portions so that
        ticks go on."""
        state = first_state(self._context.state.first_settings, self._context.zones)
        builder = HistoryBuilder(state, tenant, run_id)
        head, seq, last = GENESIS, 0, self._context.live.durable_seq
        while seq < last:
            limit = min(ROWS_PER_READ, last - seq)
            for sealed in await self._context.archives.journal(self._context.number, after=seq, limit=limit):
                builder.add_row(unseal(sealed, head))
                head, seq = sealed.hash, sealed.seq
                await asyncio.sleep(0)
        return builder.story()

    async def ids_with_prefix(self, prefix: str, *, tenant: str = TENANT) -> wire.RunIds:
        """Ids of unfinished runs and of the latest ended ones that begin so, newest first."""
        owner = self._context.tenant(tenant)
        if owner.runs.get(prefix) is not None or await self._context.ended_row(tenant, prefix) is not None:
            return wire.RunIds(ids=(prefix,))
        ids: list[str] = []
        before = 0
        for _ in range(PREFIX_PAGES_MAX):
            page, before = await self.runs(self.filter(before=before, limit=PREFIX_PAGE, tenant=tenant))
            ids += [run.id for run in page if run.id.startswith(prefix)]
            if not before or len(ids) > CANDIDATES_MAX:
                break
        return wire.RunIds(ids=tuple(ids[:CANDIDATES_MAX]), more=len(ids) > CANDIDATES_MAX)

    def workflows(self, *, tenant: str = TENANT) -> list[wire.Workflow]:
        return reads.workflows(self._context.state, tenant)

    def workflow(self, name: str, *, tenant: str = TENANT) -> wire.WorkflowDetail:
        """The latest version, with the document that was put."""
        plan = self._context.plan(tenant, name)
        head = next(workflow for workflow in reads.workflows(self._context.state, tenant) if workflow.name == name)
        document = msgspec.json.decode(self._context.state.documents[plan.hash])
        return wire.WorkflowDetail(**msgspec.structs.asdict(head), document=document)

    async def known(self, ids: Sequence[str], *, tenant: str = TENANT) -> list[str]:
        """Return those of the ids whose runs live here, or ended here and are not in the store yet; durable."""
        runs, left = self._context.tenant(tenant).runs, self._context.live.write_behind.find_left
        known = [run_id for run_id in ids if runs.get(run_id) is not None or left(tenant, run_id) is not None]
        await self._context.until_durable()
        return known

    async def run_of_task(self, task: int, *, tenant: str = TENANT) -> wire.RunDetail:
        """The run that a task belongs to. A child of a map is found by its number only while it lives."""
        run_id = await self._run_id_of(task, tenant)
        if run_id is not None:
            detail = await self.run(run_id, tenant=tenant)
            if any(entry.id == str(task) for entry in detail.tasks):
                return detail
        raise Refused("unknown_task", f"there is no task {task}; look at the tasks of its run", path="task")

    def check_number(self, task: int) -> None:
        """Refuse a number that no run and no task has had yet."""
        if not self._context.state.settings.first_number <= task < self._context.state.next_number:
            raise Refused("unknown_task", f"there is no task {task}", path="task")

    async def _run_id_of(self, task: int, tenant: str) -> str | None:
        live = self._context.state.tasks.get(task)
        if live is not None:
            return live.run.id if live.run.tenant.id == tenant else None
        runs, _ = await self.runs(RunFilter(tenant, before=task + 1, limit=1))
        return runs[0].id if runs else None

    # ---- following

    async def changes(
        self, run_id: str, *, tenant: str = TENANT, idle_s: float = 15.0
    ) -> AsyncIterator[wire.Run | None]:
        """The run whenever something of it changed, until it has ended; None after `idle_s` without a change."""
        with self.watching(run_id, tenant=tenant) as woken:
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

    @contextmanager
    def watching(self, run_id: str, *, tenant: str = TENANT) -> Iterator[asyncio.Event]:
        """An event that is set after each durable tick that changed the run, or in which it ended."""
        woken = asyncio.Event()
        watchers = self.watchers.setdefault((tenant, run_id), [])
        watchers.append(woken)
        self._context.live.watched = True
        try:
            yield woken
        finally:
            watchers.remove(woken)
            if not watchers:
                self.watchers.pop((tenant, run_id), None)
            self._context.live.watched = bool(self.watchers)

    async def _summary(self, tenant: str, run_id: str) -> wire.Run:
        live = self._context.tenant(tenant).runs.get(run_id)
        if live is not None:
            view = reads.summary(live, self._context.state.settings.clock)
            await self._context.until_durable()
            return view
        row = await self._context.ended_row(tenant, run_id)
        if row is None:
            raise Refused("unknown_run", f"there is no run {shortened(run_id, 128)!r}", path="run_id")
        await self._context.until_durable()
        return reads.row_summary(row)

    def wake_watchers(self, decided: "DecidedTick") -> None:
        """Wake the watchers of runs that these events changed. Events name closed runs, too."""
        for (tenant, run_id), watchers in self.watchers.items():
            owner = self._context.state.tenants.get(tenant)
            run: Run | None = owner.runs.get(run_id) if owner is not None else None
            if run is None or run.number in decided.changed:
                for woken in watchers:
                    woken.set()
