"""Views of runs, tasks, attempts, workers and queues, as models of the API.

Unfinished runs are read from the state; ended runs from the write-behind buffer and the store. A view is built without
a pause, so it never mixes two ticks.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any, NamedTuple

import msgspec

from tickwork.core.base.values import Ref, Value
from tickwork.core.calendar.durations import duration_text
from tickwork.core.definition.approval_text import message_of
from tickwork.core.definition.model import ApprovalNode, WorkNode
from tickwork.core.definition.plan import Kind, Plan, Step
from tickwork.core.explain.blockers import too_large_request
from tickwork.core.explain.run_labels import searchable_of, tags_of
from tickwork.core.state.history import History, history_of_record
from tickwork.core.state.inputs import RunRecord
from tickwork.core.state.lifecycle import TOOK_TOO_LONG, AttemptState, Phase
from tickwork.core.state.ready_queues import UNLIMITED, run_version
from tickwork.core.state.state import LogicalClock, Run, State, Task
from tickwork.core.state.tables import BLOCK_BITS
from tickwork.ports.store import RunFilter, RunPage, RunRow
from tickwork.protocol import http_models as wire
from tickwork.runtime.partition.write_behind import AttemptRecord, WriteBehind
from tickwork.runtime.storage.run_records import record_of
from tickwork.runtime.views.functions import awaits_of, ended_history, fields_view, history_of_run
from tickwork.runtime.views.published import Published, published_before_end, published_by
from tickwork.runtime.views.text import ATTEMPT_STATES, RUN_STATES, TASK_STATES, instant, instant_or_none

SHOWN_BYTES_MAX = 64 * 1024  # of a value inside an answer; more is fetched as an artifact
CHILDREN_SHOWN = 50  # of one map
LIVE_MAX = 20_000  # unfinished runs that one page compares: about 20 ms
FIELDS_COST = 5  # as many comparisons as it takes to read the inputs of one run


def summary(run: Run, clock: LogicalClock) -> wire.Run:
    return wire.Run(**_head(run, clock))


def _head(run: Run, clock: LogicalClock) -> dict[str, Any]:
    return {
        "id": run.id,
        "number": str(run.number),
        "workflow": run.plan.name,
        "definition": run.plan.hash,
        "state": RUN_STATES[run.state],
        "source": run.source,
        "by": run.by,
        "submitted_at": instant(clock.ms_of(run.submitted)),
        "started_at": instant_or_none(clock.ms_of(run.started) if run.started else 0),
        "scheduled_at": instant_or_none(run.scheduled_ms),
        "schedule": run.schedule,
        "decided": run.decided,
        "key": run.key,
        "priority": run.priority if run.priority >= 0 else None,
        "reason": run.pause_reason or _ending_reason(run),
        "tags": tags_of(run),
        "tasks_total": len(run.phases),
        "tasks_ended": sum(phase >= Phase.SUCCEEDED for phase in run.phases),
        **_version(run.pin),
    }


def _version(pin: str) -> dict[str, Any]:
    return {"version": run_version(pin), "pinned": pin == run_version(pin) != ""}


def _ending_reason(run: Run) -> str:
    if run.ending is None and not run.overdue:
        return ""
    why = TOOK_TOO_LONG if run.ending is None else run.ending[1]
    return f"{why}: its clean-up goes on"


def row_summary(row: RunRow) -> wire.Run:
    return wire.Run(**_row_head(row, record_of(row)))


def _row_head(row: RunRow, record: RunRecord) -> dict[str, Any]:
    return {
        "id": row.id,
        "number": str(row.number),
        "workflow": row.workflow,
        "definition": row.definition,
        "state": RUN_STATES[row.state],
        "source": row.source,
        "by": row.by,
        "submitted_at": instant(row.submitted_ms),
        "started_at": instant_or_none(row.started_ms),
        "ended_at": instant_or_none(row.ended_ms),
        "scheduled_at": instant_or_none(record.scheduled_ms),
        "schedule": row.schedule,
        "decided": record.decided,
        "key": row.key,
        "priority": record.priority if record.priority >= 0 else None,
        "error": row.error,
        "tags": row.tags,
        "tasks_total": len(record.phases),
        "tasks_ended": len(record.phases),
        **_version(record.pin),
    }


class RunDraft(msgspec.Struct):
    """A run in detail, before the values in it are loaded."""

    head: dict[str, Any]
    inputs: Value
    output: Value
    tasks: list[tuple[dict[str, Any], Value]]
    function: tuple[str, History] | None = None  # node and history of a durable function
    awaits: tuple[wire.FunctionAwait, ...] = ()
    published: Published | None = None


class AttemptPage(NamedTuple):
    """Which attempts of each task are shown: the latest so many (0: all), of those before a number (0: of all)."""

    latest: int = 0
    before: int = 0

    def views(self, rows: Sequence[AttemptRecord], progress: Any) -> dict[str, Any]:
        if self.before:
            rows = [row for row in rows if row.attempt < self.before]
        earlier = max(0, len(rows) - self.latest) if self.latest else 0
        return {
            "attempts": tuple(attempt_view(row, progress) for row in rows[earlier:]),
            "attempts_earlier": earlier,
        }


ALL_ATTEMPTS = AttemptPage()


def live_draft(
    state: State,
    write_behind: WriteBehind,
    run: Run,
    stored: Iterable[AttemptRecord],
    page: AttemptPage = ALL_ATTEMPTS,
) -> RunDraft:
    clock = state.settings.clock
    attempts = _by_task(
        {
            (attempt.task, attempt.attempt): attempt for attempt in [*stored, *write_behind.attempts_of(run.number)]
        }.values()
    )
    progress = {held.row.task: held for held in write_behind.open_of(run.number)}
    tasks: list[tuple[dict[str, Any], Value]] = []
    for step in run.plan.steps:
        task = state.tasks.get(run.number + step.index)
        view = _task_view(run.number, step, run.phases[step.index], attempts, progress, page)
        view |= _work_fields(step, run.tenant.id, run.id, run.priority)
        if task is not None:
            _add_live(view, state, task)
        if step.kind is Kind.APPROVAL:
            _add_message(view, step, run.plan, run.inputs, run.results or {})
        tasks.append((view, (run.results or {}).get(step.index)))
        for child in _children(run.number, step, attempts, progress, page):
            child |= _work_fields(step, run.tenant.id, run.id, run.priority, child["child"])
            living = state.tasks.get(int(child["id"]))
            if living is not None:  # a task whose last attempt failed may be due again
                child["state"] = TASK_STATES[living.phase]
                _add_live(child, state, living)
            tasks.append((child, None))
    head = _head(run, clock) | _promised(run.plan, run.scheduled_ms or clock.ms_of(run.submitted))
    function = history_of_run(state, run)
    awaits = awaits_of(state, *function) if function else ()
    return RunDraft(head, run.inputs, None, tasks, function, awaits, published_by(run))


def ended_draft(
    row: RunRow, plan: Plan | None, output: Value, stored: Iterable[AttemptRecord], page: AttemptPage = ALL_ATTEMPTS
) -> RunDraft:
    record = record_of(row)
    attempts = _by_task(stored)
    results = dict(record.results)
    tasks: list[tuple[dict[str, Any], Value]] = []
    for step in plan.steps if plan is not None else ():
        view = _task_view(row.number, step, record.phases[step.index], attempts, {}, page)
        view |= _work_fields(step, row.tenant, row.id, record.priority)
        if plan is not None and step.kind is Kind.APPROVAL:
            _add_message(view, step, plan, record.inputs, results)
        tasks.append((view, results.get(step.index)))
        tasks += [
            (child | _work_fields(step, row.tenant, row.id, record.priority, child["child"]), None)
            for child in _children(row.number, step, attempts, {}, page)
        ]
    head = _row_head(row, record) | _promised(plan, record.scheduled_ms or row.submitted_ms)
    function = ended_history(plan, history_of_record(record.history))
    return RunDraft(head, record.inputs, output, tasks, function, published=published_before_end(row, plan))


def _promised(plan: Plan | None, since_ms: int) -> dict[str, Any]:
    sla = plan.definition.sla if plan is not None else None
    return {"sla_deadline": instant(since_ms + sla.breach_ms)} if sla is not None else {}


def _by_task(attempts: Iterable[AttemptRecord]) -> dict[int, list[AttemptRecord]]:
    by_task: dict[int, list[AttemptRecord]] = {}
    for attempt in attempts:
        by_task.setdefault(attempt.task, []).append(attempt)
    return by_task


def _task_view(
    run: int,
    step: Step,
    phase: int,
    attempts: dict[int, list[AttemptRecord]],
    progress: dict[int, Any],
    page: AttemptPage,
) -> dict[str, Any]:
    number = run + step.index
    kind = step.node.__struct_config__.tag
    return {
        "id": str(number),
        "node": step.id,
        "kind": "durable" if step.durable else str(kind),
        "state": TASK_STATES[phase],
        **page.views(attempts.get(number, ()), progress.get(number)),
    }


def _work_fields(step: Step, tenant: str, run_id: str, priority: int, child: int = -1) -> dict[str, Any]:
    """What only work has. The key is that of `Context.idempotency_key`."""
    if not isinstance(step.node, WorkNode) and (child < 0 or step.body is None):
        return {}
    key = f"{tenant}/{run_id}/{step.id}"
    return {
        "dedupe_key": key if child < 0 else f"{key}/{child}",
        "priority": priority if priority >= 0 else step.requirement[1],
    }


def _add_live(view: dict[str, Any], state: State, task: Task) -> None:
    clock = state.settings.clock
    if reason := too_large_request(state, task):
        view["reason"] = reason
    if task.due and task.phase in (Phase.BACKOFF, Phase.WAITING):
        view["due_at"] = instant(clock.ms_of(task.due))
    fan = task.fan
    if fan is not None:
        view["children"] = {
            "total": fan.total,
            "running": fan.running,
            "succeeded": fan.succeeded,
            "failed": fan.failed,
        }


def _add_message(view: dict[str, Any], step: Step, plan: Plan, inputs: Value, results: Mapping[int, Value]) -> None:
    assert isinstance(step.node, ApprovalNode)
    view["message"] = message_of(step.node.message, plan, inputs, results)
    view["fields"] = fields_view(step.node.fields)


def _children(
    run: int, step: Step, attempts: dict[int, list[AttemptRecord]], progress: dict[int, Any], page: AttemptPage
) -> Iterator[dict[str, Any]]:
    """Children of a map or repeat that were given to a worker; the latest of many."""
    body = step.body
    if body is None or not isinstance(body.node, WorkNode):
        return
    mine = [(rows[-1].child, number) for number, rows in attempts.items() if rows[-1].step == step.index]
    for child, number in sorted(pair for pair in mine if pair[0] >= 0)[-CHILDREN_SHOWN:]:
        last = attempts[number][-1]
        view = _task_view(run, step, Phase.RUNNING, {}, {}, page)
        view |= {
            "id": str(number),
            "child": child,
            "state": "running" if not last.ended_ms else ATTEMPT_STATES[last.state],
            **page.views(attempts[number], progress.get(number)),
        }
        yield view


def attempt_view(row: AttemptRecord, held: Any = None) -> wire.Attempt:
    live = held is not None and held.row is row
    state = AttemptState.STARTED if live and (held.begun or row.started_worker_ms) else row.state
    return wire.Attempt(
        attempt=row.attempt,
        worker=row.worker,
        state=ATTEMPT_STATES[int(state)],
        dispatched_at=instant(row.dispatched_ms),
        started_at=instant_or_none(row.started_worker_ms),
        ended_at=instant_or_none(row.ended_worker_ms or row.ended_ms),
        error=row.error,
        message=row.message,
        exit_code=row.exit_code,
        progress=held.progress if live else None,
        progress_message=held.progress_message if live else "",
        log=f"/v1/tasks/{row.task}/logs?attempt={row.attempt}",
    )


# ---- lists


def live_runs(state: State, query: RunFilter) -> Iterator[Run]:
    """Yield unfinished runs, newest first, block by block."""
    for run in _numbered_runs(state, query):
        if query.wants(run.tenant.id, run.plan.name, run.state, run.schedule):
            yield run


def _numbered_runs(state: State, query: RunFilter) -> Iterator[Run]:
    blocks = state.runs.blocks
    for block in sorted(blocks, reverse=True):
        if (query.before and block > query.before >> BLOCK_BITS) or block < query.after >> BLOCK_BITS:
            continue
        for number, run in sorted(blocks[block].items(), key=lambda pair: -pair[0]):
            if query.covers(number):
                yield run


class LivePage(NamedTuple):
    """Unfinished runs, newest first. `through`: all down to this number were compared."""

    runs: list[Run]
    through: int = 0


def live_page(state: State, query: RunFilter) -> LivePage:
    """Compare only so many runs that the ticks go on in between: a filter may fit hardly any of a million."""
    clock, matches, left = state.settings.clock, list[Run](), LIVE_MAX
    for run in _numbered_runs(state, query):
        if len(matches) > query.limit or left <= 0:
            return LivePage(matches, run.number + 1)
        left -= FIELDS_COST if query.fields and run.plan.definition.search else 1
        if _fits_live(run, query, clock):
            matches.append(run)
    return LivePage(matches)


def _fits_live(run: Run, query: RunFilter, clock: LogicalClock) -> bool:
    if not query.wants(run.tenant.id, run.plan.name, run.state, run.schedule):
        return False
    if not query.narrow:
        return True
    started_ms = clock.ms_of(run.started) if run.started else 0
    return (
        not query.error  # an error is known when a run has ended
        and query.in_time(clock.ms_of(run.submitted), started_ms, 0)
        and query.labelled(tags_of(run) if query.tags else (), run.pin)
        and (not query.fields or all(field in searchable_of(run) for field in query.fields))
    )


def page(
    state: State, write_behind: WriteBehind, query: RunFilter, stored: RunPage, left_before: list[RunRow]
) -> tuple[list[wire.Run], int]:
    """Return one page of runs, and the number from which the next page begins (0: none). `left_before` are runs that
    were not stored yet when the store was read. Whatever is below the numbers that were compared is for later pages."""
    clock, living = state.settings.clock, live_page(state, query)
    bottom = max(stored.before, living.through)
    live = ((run.number, summary(run, clock)) for run in living.runs)
    left = sorted(
        ((row.number, row_summary(row)) for row in [*write_behind.recently_left(), *left_before] if query.fits(row)),
        key=lambda pair: -pair[0],
    )
    rows = ((row.number, row_summary(row)) for row in stored.rows)
    views: dict[int, wire.Run] = {}
    for number, view in merge(live, left, rows, key=lambda pair: -pair[0]):
        if number < bottom:
            break
        if number not in views and len(views) == query.limit:
            return list(views.values()), min(views)
        views.setdefault(number, view)  # a run that is live again may still have its old row
    return list(views.values()), bottom


# ---- the rest


def workflows(state: State, tenant: str, *, among: Iterable[str] | None = None) -> list[wire.Workflow]:
    """Return the workflows with the names of their schedules, or only of those that are `among` these."""
    owner = state.tenants.get(tenant)
    if owner is None:
        return []
    versions: dict[str, int] = {}
    for plan in owner.versions.values():
        versions[plan.name] = versions.get(plan.name, 0) + 1
    schedules: dict[str, list[str]] = {}
    every = (entry for shard in owner.schedules.shards for entry in shard.values())
    named = (
        every if among is None else (schedule for name in among if (schedule := owner.schedules.get(name)) is not None)
    )
    for schedule in named:
        schedules.setdefault(schedule.workflow, []).append(schedule.name)
    return [
        wire.Workflow(
            name=name,
            definition=plan.hash,
            description=plan.definition.description,
            versions=versions.get(name, 1),
            paused=(gauge := owner.workflow_gauges.get(name)) is not None and gauge.paused,
            schedules=tuple(sorted(schedules.get(name, ()))),
        )
        for name, plan in sorted(owner.plans.items())
    ]


def queues(state: State) -> list[wire.Queue]:
    ready: dict[str, int] = {}
    for lane in state.lanes.values():
        ready[lane.key[2]] = ready.get(lane.key[2], 0) + lane.live
    return [
        wire.Queue(
            name=name,
            ready=ready.get(name, 0),
            running=queue.gauge.running,
            limit=queue.gauge.limit if queue.gauge.limit < UNLIMITED else None,
            rate=queue.gauge.rate_starts if queue.gauge.rate_ms else None,
            per=duration_text(queue.gauge.rate_ms) if queue.gauge.rate_ms else "",
            burst=queue.gauge.burst if queue.gauge.rate_ms and not queue.gauge.sliding else None,
            paused=queue.gauge.paused,
            window="" if not queue.gauge.rate_ms else "sliding" if queue.gauge.sliding else "bucket",
        )
        for name, queue in sorted(state.queues.items())
        if not queue.removed or ready.get(name) or queue.gauge.running
    ]


def depths(state: State) -> tuple[dict[tuple[str, str, int], int], int]:
    """Ready tasks by tenant, queue and priority, and since when the oldest of them has been ready (0: none is)."""
    depths: dict[tuple[str, str, int], int] = {}
    oldest_ms = 0
    for lane in state.lanes.values():
        if lane.live:
            tenant, _, queue, priority = lane.key[:4]
            depths[tenant, queue, priority] = depths.get((tenant, queue, priority), 0) + lane.live
            ready_ms = lane.head().ready_ms
            oldest_ms = min(oldest_ms or ready_ms, ready_ms)
    return depths, oldest_ms


def shown(value: Value) -> int:
    """How large a value is, as far as it is known without loading it."""
    if isinstance(value, bytes):
        return len(value)
    return value.size if isinstance(value, Ref) else 0
