"""A live run and a live task as one row each, and back into memory.

A row is a MessagePack array in a fixed order of fields: equal runs are equal bytes. Add fields at the end
only. What most runs and tasks never have is a row of its own inside (`more`), so that the many
plain ones stay short. A row holds nothing that can be found again from other rows: timers, lines, names
and the children of a map are put back while rows are read, in whatever order they come.
"""

from collections.abc import Iterable

import msgspec

from tickwork.core.base.values import Value
from tickwork.core.definition.plan import Kind, Plan
from tickwork.core.evolve.indexes import DUE_KIND, wait_for
from tickwork.core.state.history import History, HistoryRecord, history_of_record, record_of_history
from tickwork.core.state.inputs import RunTerms
from tickwork.core.state.lifecycle import IDLE, Phase
from tickwork.core.state.messages import ReceivedEvent, RunMessages
from tickwork.core.state.state import Extract, FanOut, Run, State, Task, Timer
from tickwork.core.state.tables import BLOCK_BITS, with_entry
from tickwork.core.state.timing_wheel import mark_of


class RunExtras(msgspec.Struct, array_like=True, gc=False):
    priority: int
    key: str
    keyed: bool  # it is the one that its key leads to
    body: str
    debounce: str
    gate: str | None
    gated: bool
    parent: int
    child: int
    signals: list[ReceivedEvent] | None
    deadline: int
    resume_at: int
    pause_reason: str
    scheduled_ms: int
    schedule: str
    sla_at: int
    sla_next: int
    parent_run: int
    queue: str
    backfill: int
    decided: str
    pin: str = ""
    tried: int = 0
    before: int = 0
    extracts: list[tuple[int, str, Extract | None]] | None = None
    overdue: int = 0
    chosen: list[tuple[int, str, tuple[tuple[str, str], ...]]] | None = None
    history: HistoryRecord | None = None
    errors: list[tuple[int, str, str]] | None = None
    messages: RunMessages | None = None
    ending: tuple[int, str] | None = None
    own: RunTerms | None = None
    rate_key: str | None = None


class LiveRun(msgspec.Struct, array_like=True, gc=False):
    number: int
    id: str
    tenant: str
    plan: str
    inputs: Value
    by: str
    source: str
    submitted: int
    phases: bytearray
    counts: bytearray | list[int] | None
    unfinished: int
    wanted: int
    state: int
    started: int
    busy: int
    waiting: int
    failures: int
    start_at: int
    results: list[tuple[int, Value]] | None
    more: RunExtras | None


class LiveFanOut(msgspec.Struct, array_like=True, gc=False):
    total: int
    begun: int
    running: int
    succeeded: int
    failed: int
    rested: int
    last: Value
    max_parallel: int = 0
    failed_in_a_row: int = 0
    deadline: int = 0


class TaskExtras(msgspec.Struct, array_like=True, gc=False):
    losses: int
    returns: int
    checkpoint: Value
    parent: int
    child: int
    cache_key: str
    wait_key: tuple[str, str] | None
    fan: LiveFanOut | None
    history: HistoryRecord | None = None


class LiveTask(msgspec.Struct, array_like=True, gc=False):
    number: int
    run: int
    step: int
    phase: int
    attempt: int
    order: int
    ready_ms: int
    lane: int  # 0: none yet
    queued: bool
    started: bool
    worker: int  # -1: none
    due: int
    silent_at: int
    heard: int
    dispatched: int
    more: TaskExtras | None


RUN_START, SILENT, WAITING = int(Timer.RUN_START), int(Timer.SILENT), int(Phase.WAITING)

_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_decode_run = msgspec.msgpack.Decoder(LiveRun).decode
_decode_task = msgspec.msgpack.Decoder(LiveTask).decode


# ---- to rows


def encode_run(run: Run) -> bytes:
    results = run.results
    return _encode(
        LiveRun(
            run.number, run.id, run.tenant.id, run.plan.hash, run.inputs, run.by, run.source, run.submitted, run.phases,
            run.counts, run.unfinished, run.wanted, run.state, run.started, run.busy, run.waiting, run.failures,
            run.start_at, sorted(results.items(), key=_first) if results else None, _more_of_run(run),
        )
    )  # fmt: skip


def _first(pair: tuple[int, Value]) -> int:
    return pair[0]


def _more_of_run(run: Run) -> RunExtras | None:
    gate = run.gate
    if not (
        run.key or run.body or run.priority >= 0 or run.debounce or gate is not None or run.parent or run.signals
        or run.deadline or run.resume_at or run.pause_reason or run.scheduled_ms or run.schedule or run.sla_at
        or run.sla_next or run.pin or run.tried or run.extracts or run.chosen or run.history is not None
        or run.errors or run.own is not None or run.queue or run.messages is not None or run.rate_key is not None
    ):  # fmt: skip
        return None
    return RunExtras(
        run.priority, run.key, bool(run.key) and run.tenant.keys.get(run.key) is run, run.body, run.debounce,
        None if gate is None else gate.key, run.gated, run.parent, run.child, run.signals, run.deadline,
        run.resume_at, run.pause_reason, run.scheduled_ms, run.schedule, run.sla_at, run.sla_next, run.parent_run,
        run.queue, run.backfill, run.decided, run.pin, run.tried, run.before,
        None if run.extracts is None else [(*extract, run.extracts[extract]) for extract in sorted(run.extracts)],
        run.overdue,
        None if run.chosen is None else [(step, *run.chosen[step]) for step in sorted(run.chosen)],
        record_of_history(run.history),
        None if run.errors is None else [(node, *run.errors[node]) for node in sorted(run.errors)],
        run.messages,
        run.ending, run.own, run.rate_key,
    )  # fmt: skip


def encode_task(task: Task) -> bytes:
    lane, worker = task.lane, task.worker
    return _encode(
        LiveTask(
            task.number, task.run.number, task.step.index, task.phase, task.attempt, task.order, task.ready_ms,
            0 if lane is None else lane.number, task.queued, task.started, -1 if worker is None else worker.number,
            task.due, task.silent_at, task.heard, task.dispatched, _more_of_task(task),
        )
    )  # fmt: skip


def _more_of_task(task: Task) -> TaskExtras | None:
    fan, checkpoint = task.fan, task.checkpoint
    if not (
        task.parent or fan is not None or task.losses or task.returns or checkpoint is not None or task.cache_key
        or task.wait_key is not None or task.history is not None
    ):  # fmt: skip
        return None
    return TaskExtras(
        task.losses, task.returns, checkpoint, task.parent, task.child, task.cache_key, task.wait_key,
        None if fan is None
        else LiveFanOut(
            fan.total, fan.begun, fan.running, fan.succeeded, fan.failed, fan.rested, fan.last, fan.max_parallel,
            fan.failed_in_a_row, fan.deadline,
        ),
        record_of_history(task.history),
    )  # fmt: skip


# ---- from rows


class DeferredLinks(msgspec.Struct):
    """What comes to light while rows are read, and finds its place once all of them are."""

    queued: list[Task] = []  # these stand in the line of their lane
    children: list[Run | Task] = []
    timers: list[int] = []  # marks
    words: dict[str, str] = {}  # senders and sources are the same few texts in most rows: one object for each


def add_runs(state: State, rows: Iterable[bytes], links: DeferredLinks) -> None:
    """Tenants, plans and gates are there already."""
    for data in rows:
        _add_run(state, _decode_run(data), links)


def add_tasks(state: State, rows: Iterable[bytes], links: DeferredLinks) -> None:
    """Runs, lanes and workers are there already."""
    for data in rows:
        _add_task(state, _decode_task(data), links)


def settle(state: State, links: DeferredLinks) -> None:
    """All rows are read: children to their parents, timers into the wheel."""
    for child in links.children:
        parent = state.tasks[child.parent]
        if parent.history is not None:  # it names its children itself
            continue
        fan = parent.fan
        assert fan is not None, "only what fans out has children"
        fan.live[child.child] = child.number
        fan.idle += isinstance(child, Run) and child.state in IDLE
    state.wheel.fill(links.timers)


def _add_run(state: State, row: LiveRun, links: DeferredLinks) -> None:
    number, run_id, tenant, plan = row.number, row.id, state.tenants[row.tenant], state.plans[row.plan]
    phases, counts = row.phases, row.counts
    word = links.words.setdefault
    by, source = word(row.by, row.by), word(row.source, row.source)
    shelf = tenant.runs.of(run_id)
    run = Run(
        number, run_id, tenant, plan, row.inputs, by, source, row.submitted, phases, counts, row.unfinished, row.wanted,
        0, _todo(plan, phases, counts), shelf, row.state, row.started, -1, row.busy, row.waiting, row.failures,
    )  # fmt: skip
    shelf[run_id] = run
    state.runs.blocks[number >> BLOCK_BITS][number] = run
    if row.results is not None:
        run.results = dict(row.results)
    if row.start_at:
        run.start_at = row.start_at
        links.timers.append(mark_of(row.start_at, RUN_START, number))
    if run.wanted:
        state.fresh.append(run)
    if row.more is not None:
        _add_more_to_run(run, row.more, links)


def _todo(plan: Plan, phases: bytearray, counts: bytearray | list[int] | None) -> tuple[int, ...] | list[int]:
    if not any(phases):
        return plan.roots
    if counts is None:
        return ()
    return [index for index, phase in enumerate(phases) if not phase and not counts[index]]


def _add_more_to_run(run: Run, more: RunExtras, links: DeferredLinks) -> None:
    tenant = run.tenant
    run.priority, run.body, run.schedule, run.scheduled_ms = more.priority, more.body, more.schedule, more.scheduled_ms
    run.parent, run.child, run.signals = more.parent, more.child, more.signals
    if run.parent:
        links.children.append(run)
    run.gated, run.pause_reason, run.sla_next = more.gated, more.pause_reason, more.sla_next
    run.parent_run, run.queue, run.backfill, run.pin = more.parent_run, more.queue, more.backfill, more.pin
    run.decided, run.tried, run.before, run.overdue = more.decided, more.tried, more.before, more.overdue
    run.ending, run.own, run.rate_key = more.ending, more.own, more.rate_key
    if more.chosen is not None:
        run.chosen = {step: (queue, labels) for step, queue, labels in more.chosen}
    run.history, run.messages = history_of_record(more.history), more.messages
    if more.extracts is not None:
        run.extracts = {(source, key): extract for source, key, extract in more.extracts}
    if more.errors is not None:
        run.errors = {node: (error, message) for node, error, message in more.errors}
    run.key, run.debounce = more.key, more.debounce
    if more.keyed:
        tenant.keys.add(run.key, run)
    if run.debounce and run.start_at:
        tenant.debounced[run.plan.name, run.debounce] = run
    if more.gate is not None:
        run.gate = tenant.gates[run.plan.name, more.gate]
    run.deadline, run.resume_at, run.sla_at = more.deadline, more.resume_at, more.sla_at
    timers = ((Timer.RUN_TIMEOUT, run.deadline), (Timer.RUN_RESUME, run.resume_at), (Timer.SLA, run.sla_at))
    links.timers += [mark_of(tick, kind, run.number) for kind, tick in timers if tick]


def _add_task(state: State, row: LiveTask, links: DeferredLinks) -> None:
    number, more = row.number, row.more
    run = state.runs.blocks[row.run >> BLOCK_BITS][row.run]
    step = run.plan.steps[row.step]
    if more is not None and more.parent:
        assert step.body is not None
        step = step.body
    lane = state.lane_numbers[row.lane] if row.lane else None
    worker = state.workers[row.worker] if row.worker >= 0 else None
    task = Task(
        number, run, step, row.phase, row.attempt, row.order, row.ready_ms, lane, row.queued, row.started, worker,
        row.due, row.silent_at, row.heard,
    )  # fmt: skip
    task.dispatched = row.dispatched
    state.tasks.blocks[number >> BLOCK_BITS][number] = task
    if worker is not None:
        worker.tasks[number] = task
    if row.due:
        links.timers.append(mark_of(row.due, DUE_KIND[Phase(row.phase)], number))
    if row.silent_at:
        links.timers.append(mark_of(row.silent_at, SILENT, number))
    if row.queued:
        links.queued.append(task)
    if more is not None:
        _add_more_to_task(task, more, links)


def _add_more_to_task(task: Task, more: TaskExtras, links: DeferredLinks) -> None:
    run, row = task.run, more.fan
    task.losses, task.returns, task.checkpoint = more.losses, more.returns, more.checkpoint
    task.parent, task.child, task.cache_key = more.parent, more.child, more.cache_key
    if task.parent:
        links.children.append(task)
    if more.wait_key is not None:
        task.wait_key = more.wait_key
        wait_for(run.tenant, task.wait_key, task)
    history = history_of_record(more.history)
    if history is not None:
        _add_history(task, history)
    if row is not None:
        task.fan = FanOut(
            row.total, row.begun, row.running, row.succeeded, row.failed, row.rested, row.last, row.max_parallel,
            row.failed_in_a_row, row.deadline,
        )  # fmt: skip
        if row.deadline:
            links.timers.append(mark_of(row.deadline, Timer.REPEAT, task.number))
        if task.step.kind >= Kind.WORKFLOW and task.phase == WAITING:
            run.fanning = with_entry(run.fanning, task.step.index, task)


def _add_history(task: Task, history: History) -> None:
    run = task.run
    task.history = history
    for pending in history.awaits.values():
        request = pending.request
        if request.kind == "event":
            wait_for(run.tenant, (request.name, request.key), task)
    if task.step.durable and history.past:
        run.fanning = with_entry(run.fanning, task.step.index, task)
