"""Why a run does not go on: what holds each of its nodes now, and what would let it go.

Answered from the state alone, by the same rules that admission uses, and never by guessing: what the
state does not hold (who paused a run, since when an event without time-out is awaited) is left
out; the journal has it (`run_history`). All obstacles of a node are named, in the order in which the
machine asks for them, so that removing all of them lets it start.

Nothing here changes the state, and no tick ever asks: the price of an answer is that of looking
at one run, its lanes and its workers, and, for a concurrency key, at the runs that may have it.
"""

from itertools import chain

import msgspec

from tickwork.core.definition.approval_text import message_of
from tickwork.core.definition.forms import field_words
from tickwork.core.definition.model import ApprovalNode, EventNode, InputField, MapNode, RepeatNode, WaitNode
from tickwork.core.definition.plan import Kind, Step
from tickwork.core.evolve import has_children_to_give
from tickwork.core.explain.blockers import BlockKind, BlockReason, Remedy, in_line, obstacle
from tickwork.core.explain.function_text import await_words
from tickwork.core.state.history import History, PendingAwait
from tickwork.core.state.lifecycle import Phase, RunState
from tickwork.core.state.ready_queues import BROKER_WORKER_PREFIX, is_broker_worker
from tickwork.core.state.run_rates import rate_words
from tickwork.core.state.state import ConcurrencyGate, Run, State, Task, retry_of, tries_of

CHILDREN_SHOWN = 20  # of one map; all of them are counted
AWAITS_SHOWN = 20  # of one function
RUNS_SHOWN = 20  # that hold a concurrency key


class BlockedNode(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    phase: str
    obstacles: tuple[BlockReason, ...]
    child: int = -1  # of a map or repeat
    attempt: int = 0
    ahead: int = 0  # tasks before it in its lane
    queued_since: int = 0  # tick since when it stands there; 0: it does not


class WhyNot(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    run_id: str
    workflow: str
    state: str
    tick: int
    now_ms: int
    obstacles: tuple[BlockReason, ...]  # of the run as a whole
    nodes: tuple[BlockedNode, ...]  # reached and not ended, or next
    times_out: int = 0  # tick at which the whole run fails; 0: never


def why_not(state: State, tenant: str, run_id: str) -> WhyNot | None:
    """What holds an unfinished run. None where there is no such run in memory: it ended, or never was."""
    owner = state.tenants.get(tenant)
    run = owner.runs.get(run_id) if owner is not None else None
    if run is None:
        return None
    own = tuple(_of_run(state, run))
    return WhyNot(
        tenant=tenant,
        run_id=run_id,
        workflow=run.plan.name,
        state=RunState(run.state).name,
        tick=state.tick,
        now_ms=state.now_ms,
        obstacles=own,
        nodes=tuple(_nodes(state, run, own)),
        times_out=run.deadline,
    )


# ---- the run as a whole


def _of_run(state: State, run: Run) -> list[BlockReason]:
    if run.state == RunState.PAUSED:
        return [_paused_run(state, run)]
    if run.start_at:
        return [_delayed(state, run)]
    if run.gated:
        assert run.gate is not None
        return [_behind_key(state, run, run.gate)]
    if run.wanted:
        return [_visit(state, run)]
    return []


def _paused_run(state: State, run: Run) -> BlockReason:
    end = f", until {state.at(run.resume_at)}" if run.resume_at else ", until it is resumed"
    return obstacle(
        state, BlockKind.PAUSED, f"run:{run.id}", f"the run is paused ({run.pause_reason}){end}",
        f"Resume run {run.id}.", Remedy("resume", f"run:{run.id}", run.resume_at), until=run.resume_at,
        reason=run.pause_reason,
    )  # fmt: skip


def _delayed(state: State, run: Run) -> BlockReason:
    if run.rate_key is not None and run.state == RunState.PENDING:
        return _rated(state, run, run.rate_key)
    held = BlockKind.DEBOUNCE if run.debounce and run.state == RunState.PENDING else BlockKind.DELAY
    what = "it is brought back" if run.state == RunState.FAILED else "it starts"
    text = f"{what} at {state.at(run.start_at)}"
    if held is BlockKind.DEBOUNCE:
        text += f", or later if {run.debounce!r} is submitted again before"
    return obstacle(
        state, held, f"run:{run.id}", text, f"Wait until {state.at(run.start_at)}.",
        Remedy("time", f"run:{run.id}", run.start_at), since=run.submitted, until=run.start_at,
    )  # fmt: skip


def _rated(state: State, run: Run, key: str) -> BlockReason:
    rate, at = run.plan.definition.rate, state.at(run.start_at)
    assert rate is not None
    return obstacle(
        state, BlockKind.RATE, f"run:{run.id}", f"{rate_words(rate, key)}: it starts at {at}", f"Wait until {at}.",
        Remedy("time", f"run:{run.id}", run.start_at), since=run.submitted, until=run.start_at, key=key,
        limit=rate.limit, per_ms=rate.per_ms,
    )  # fmt: skip


def _behind_key(state: State, run: Run, gate: ConcurrencyGate) -> BlockReason:
    holders = _holders(state, gate)
    before = 0
    for other in gate.line:
        if other is run:
            break
        before += other.gated
    shown = ", ".join(holders[:RUNS_SHOWN])
    return obstacle(
        state, BlockKind.KEY, f"key:{gate.key}",
        f"{gate.holding} of {gate.limit} runs have its concurrency key {gate.key!r}, {before} are before it in line",
        f"Wait for one of these runs to end, or cancel it: {shown}.", Remedy("runs", ",".join(holders[:RUNS_SHOWN])),
        key=gate.key, holding=gate.holding, limit=gate.limit, ahead=before, runs=holders[:RUNS_SHOWN],
    )  # fmt: skip


def _holders(state: State, gate: ConcurrencyGate) -> list[str]:
    holders: list[str] = []
    for run in chain.from_iterable(block.values() for block in state.runs.blocks.values()):
        if run.gate is gate and not run.gated:
            holders.append(run.id)
            if len(holders) == gate.holding:
                break
    return sorted(holders)


def _visit(state: State, run: Run) -> BlockReason:
    before = 0
    for other in chain(state.line, state.fresh):
        if other is run:
            break
        before += other.wanted > 0
    ticks = 1 + before // state.settings.max_runs_per_tick
    return obstacle(
        state, BlockKind.VISIT, "tick", f"nothing holds it: it is looked at in the next tick, "
        f"after {before} other runs",
        f"Wait for {ticks} tick{'s' if ticks > 1 else ''}.", Remedy("tick", f"run:{run.id}", state.tick + ticks),
        since=run.wanted, ahead=before,
    )  # fmt: skip


# ---- its nodes


def _nodes(state: State, run: Run, own: tuple[BlockReason, ...]) -> list[BlockedNode]:
    nodes: list[BlockedNode] = []
    for step in run.plan.steps:
        phase = run.phases[step.index]
        if phase == Phase.PENDING:
            nodes += _unreached(state, run, step, own)
        elif phase < Phase.SUCCEEDED:
            nodes += _reached(state, state.tasks[run.number + step.index], own)
        elif phase == Phase.FAILED and run.state == RunState.FAILED:
            nodes.append(BlockedNode(node=step.id, phase="FAILED", obstacles=own))
    return nodes


def _unreached(state: State, run: Run, step: Step, own: tuple[BlockReason, ...]) -> list[BlockedNode]:
    """A node that is next: nothing but its run is before it, or a parent of it is under way."""
    steps, phases = run.plan.steps, run.phases
    left = [parent for parent in step.awaited if phases[parent] < Phase.SUCCEEDED]
    if not left:
        return [BlockedNode(node=step.id, phase="PENDING", obstacles=own or _reading(state, run))]
    if not any(phases[parent] for parent in left):
        return []
    names = [steps[parent].id for parent in left]
    how = f"it comes after {', '.join(names)}" + ("; one of them may be enough" if step.race is not None else "")
    behind = obstacle(
        state, BlockKind.PARENTS, f"node:{names[0]}", how,
        f"See what holds {', '.join(names)}.", Remedy("nodes", ",".join(names)), nodes=names,
    )  # fmt: skip
    return [BlockedNode(node=step.id, phase="PENDING", obstacles=(behind,))]


def _reading(state: State, run: Run) -> tuple[BlockReason, ...]:
    if all(extract is not None for extract in (run.extracts or {}).values()):
        return ()
    what = "a part of a value that its conditions read is being fetched"
    remedy, need = "Wait for the answer of the payload store.", Remedy("answer", f"run:{run.id}")
    return (obstacle(state, BlockKind.LOOKUP, f"run:{run.id}", what, remedy, need),)


def _reached(state: State, task: Task, own: tuple[BlockReason, ...]) -> list[BlockedNode]:
    paused = tuple(reason for reason in own if reason.held is BlockKind.PAUSED)
    match task.phase:
        case Phase.READY:
            obstacles = in_line(state, task) if task.queued else paused
        case Phase.RUNNING:
            obstacles = (_running(state, task),)
        case Phase.BACKOFF:
            obstacles = (_backoff(state, task), *paused)
        case Phase.CHECKING:
            obstacles = (_lookup(state, task),)
        case _:
            obstacles = _waiting(state, task, own)
    held = BlockedNode(
        node=_name(task),
        phase=Phase(task.phase).name,
        obstacles=obstacles,
        child=task.child,
        attempt=task.attempt,
        ahead=_ahead(task) if task.queued else 0,
        queued_since=state.settings.clock.tick_at(task.ready_ms) if task.queued else 0,
    )
    return [held, *_children(state, task, own)]


def _name(task: Task) -> str:
    """Of its node; the body of a map or repeat has none of its own."""
    return task.run.plan.steps[task.step.index].id


def _children(state: State, task: Task, own: tuple[BlockReason, ...]) -> list[BlockedNode]:
    if task.fan is None or task.step.body is None or task.step.body.kind is not Kind.WORK:
        return []
    numbers = [number for _, number in sorted(task.fan.live.items())][:CHILDREN_SHOWN]
    return [held for number in numbers for held in _reached(state, state.tasks[number], own)]


def _ahead(task: Task) -> int:
    lane, before = task.lane, 0
    assert lane is not None
    for other, order in zip(lane.tasks, lane.orders, strict=True):
        if order == task.order:
            break
        before += other.queued and other.order == order
    return before


def _running(state: State, task: Task) -> BlockReason:
    worker = task.worker
    assert worker is not None
    if is_broker_worker(worker.id):
        lane = worker.id.removeprefix(BROKER_WORKER_PREFIX)
        return obstacle(
            state, BlockKind.RUNNING, worker.id, f"attempt {task.attempt} is on lane {lane}, "
            "and no worker has taken it",
            f"Start a worker that receives from lane {lane}; messages that no worker takes are sent again.",
            Remedy("worker", worker.id), since=task.dispatched, heard=task.heard,
        )  # fmt: skip
    ends = [tick for tick in (task.due, task.silent_at) if tick]
    word = "runs" if task.started else "was given, and has not said that it started,"
    return obstacle(
        state, BlockKind.RUNNING, f"worker:{worker.id}", f"attempt {task.attempt} {word} on {worker.id}",
        f"Wait for the result from {worker.id}.", Remedy("result", f"worker:{worker.id}"),
        since=task.dispatched, until=min(ends, default=0), heard=task.heard,
    )  # fmt: skip


def _backoff(state: State, task: Task) -> BlockReason:
    tries, most = tries_of(task), retry_of(task).attempts
    text = f"attempt {tries} of {most} failed, the next one is due at {state.at(task.due)}"
    dependency = task.step.requirement[4]
    budget = task.run.tenant.budgets.get(dependency) if dependency else None
    wait_ms = budget.next_ms(state.settings, state.now_ms) - state.now_ms if budget is not None else 0
    if wait_ms:
        text += f"; retries of {dependency} are spaced, and one more would have to wait {wait_ms} ms"
    return obstacle(
        state, BlockKind.BACKOFF, f"node:{_name(task)}", text, f"Wait until {state.at(task.due)}.",
        Remedy("time", f"task:{task.number}", task.due), until=task.due,
        attempt=tries, attempts=most, dependency=dependency, budget_wait_ms=wait_ms,
    )  # fmt: skip


def _lookup(state: State, task: Task) -> BlockReason:
    return obstacle(
        state, BlockKind.LOOKUP, f"cache:{task.cache_key}", "a result that may be used again is being looked up",
        "Wait for the answer of the look-up.", Remedy("answer", f"task:{task.number}"),
    )  # fmt: skip


# ---- waiting for time, events, people and children


def _waiting(state: State, task: Task, own: tuple[BlockReason, ...]) -> tuple[BlockReason, ...]:
    node = task.step.node
    if task.history is not None:
        return _function(state, task, task.history) or own  # what it awaited is here, and the run is visited soon
    match node:
        case WaitNode():
            return (_wait(state, task, "its time has not come", _since(state, task, node.duration_ms)),)
        case EventNode():
            return (_event(state, task, node),)
        case ApprovalNode():
            return (_approval(state, task, node),)
        case RepeatNode() if task.due:
            rest = f"it rests before its next turn{_time_left(state, task)}"
            return (_wait(state, task, rest, _since(state, task, node.delay_ms)),)
        case _:
            return _fan(state, task, own)


def _time_left(state: State, task: Task) -> str:
    deadline = task.fan.deadline if task.fan is not None else 0
    return f", for which there is time until {state.at(deadline)}" if deadline else ""


def _since(state: State, task: Task, duration_ms: int | None) -> int:
    return task.due - state.settings.clock.ticks(duration_ms) if task.due and duration_ms is not None else 0


def _wait(state: State, task: Task, text: str, since: int) -> BlockReason:
    return obstacle(
        state, BlockKind.WAIT, f"node:{task.step.id}", f"{text}: it goes on at {state.at(task.due)}",
        f"Wait until {state.at(task.due)}.", Remedy("time", f"task:{task.number}", task.due), since=since,
        until=task.due,
    )  # fmt: skip


def _event(state: State, task: Task, node: EventNode) -> BlockReason:
    assert task.wait_key is not None
    name, key = task.wait_key
    what = f"event {name}" + (f" with key {key!r}" if key else "")
    return obstacle(
        state, BlockKind.EVENT, f"event:{name}", f"it waits for {what}{_patience(state, task, node.on_timeout)}",
        f"Send {what}.", Remedy("event", name), since=_since(state, task, node.timeout_ms), until=task.due,
        event=name, key=key, on_timeout=node.on_timeout,
    )  # fmt: skip


def _approval(state: State, task: Task, node: ApprovalNode) -> BlockReason:
    who = " or ".join(node.approvers) or "anybody who may approve"
    but = f", but not {task.run.by}, who submitted the run" if node.four_eyes else ""
    run = task.run
    message = message_of(node.message, run.plan, run.inputs, run.results or {})
    asks = f": {message}" if message else ""
    what, verb = ("form to be filled in by", "fill in") if node.fields else ("approval of", "approve")
    return obstacle(
        state, BlockKind.APPROVAL, f"node:{node.id}",
        f"it waits for the {what} {who}{but}{_patience(state, task, node.on_timeout)}{asks}{_to_fill_in(node.fields)}",
        f"Ask {who} to {verb} {node.id}.", Remedy("approval", node.id),
        since=_since(state, task, node.timeout_ms), until=task.due,
        approvers=list(node.approvers), not_by=task.run.by if node.four_eyes else "", on_timeout=node.on_timeout,
        message=message,
    )  # fmt: skip


def _to_fill_in(fields: dict[str, InputField]) -> str:
    words = [f"{name} ({field_words(field)})" for name, field in fields.items()]
    return f"; to fill in: {', '.join(words)}" if words else ""


def _function(state: State, task: Task, history: History) -> tuple[BlockReason, ...]:
    """What a suspended function awaits, oldest first. Each outcome may let it go on."""
    pending = [history.awaits[position] for position in sorted(history.awaits)]
    return tuple(_await(state, task, each) for each in pending[:AWAITS_SHOWN])


def _await(state: State, task: Task, pending: PendingAwait) -> BlockReason:
    request = pending.request
    kind, remedy = _AWAIT_KINDS[request.kind]
    what, until = await_words(request), f", until {state.at(pending.due)}" if pending.due else ""
    child = state.runs[pending.child].id if pending.child else ""
    who = f" from {' or '.join(request.approvers)}" if request.approvers else ""
    asks = f": {request.message}" if request.message and request.kind == "approval" else ""
    asks += _to_fill_in(dict(request.fields))
    return obstacle(
        state, kind, f"node:{task.step.id}", f"it awaits {what}{who}{until}{asks}",
        remedy.format(what=what, name=request.name, child=child, at=state.at(pending.due) if pending.due else ""),
        Remedy(request.kind, child or request.name, pending.due), since=pending.since, until=pending.due,
        event=request.name if request.kind == "event" else "", key=request.key, runs=[child] if child else [],
        approvers=list(request.approvers), message=request.message, line=request.line,
    )  # fmt: skip


_AWAIT_KINDS = {
    "sleep": (BlockKind.WAIT, "Wait until {at}."),
    "retry": (BlockKind.BACKOFF, "Wait until {at}."),
    "event": (BlockKind.EVENT, "Send {what}."),
    "receive": (BlockKind.EVENT, "Send {what} to the run."),
    "call": (BlockKind.CHILDREN, "See what holds {child}."),
    "approval": (BlockKind.APPROVAL, "Approve or reject {name}."),
}


def _patience(state: State, task: Task, on_timeout: str) -> str:
    if not task.due:
        return ""
    return f", and {'goes on without' if on_timeout == 'continue' else 'fails'} at {state.at(task.due)}"


def _fan(state: State, task: Task, own: tuple[BlockReason, ...]) -> tuple[BlockReason, ...]:
    """The children that run, and whatever keeps the next one from starting."""
    reasons = [_running_children(state, task)] if task.fan is not None and task.fan.running else []
    if task.queued:
        reasons += in_line(state, task)
    elif own and own[0].held in (BlockKind.PAUSED, BlockKind.VISIT) and (not reasons or has_children_to_give(task)):
        reasons += own
    return tuple(reasons)


def _running_children(state: State, task: Task) -> BlockReason:
    fan, node = task.fan, task.step.node
    assert fan is not None
    most = fan.max_parallel or (isinstance(node, MapNode) and node.max_parallel) or 0
    body = task.step if task.step.kind is Kind.WORKFLOW else task.step.body
    as_runs = body is not None and body.kind is Kind.WORKFLOW
    runs = [state.runs[number].id for _, number in sorted(fan.live.items())[:CHILDREN_SHOWN]] if as_runs else []
    text = f"{fan.running} of {fan.total} children are under way, {fan.begun} have begun, {fan.failed} have failed"
    if most and fan.running >= most and fan.begun < fan.total:
        text += f"; no more than {most} run at once"
    elif as_runs and fan.begun < fan.total:
        text += "; the next ones begin as these start, wait or end"
    return obstacle(
        state, BlockKind.CHILDREN, f"node:{task.step.id}", text,
        f"See what holds {', '.join(runs) or 'its children'}.", Remedy("children", ",".join(runs) or task.step.id),
        total=fan.total, begun=fan.begun, running=fan.running, succeeded=fan.succeeded, failed=fan.failed,
        max_parallel=most, runs=runs,
    )  # fmt: skip
