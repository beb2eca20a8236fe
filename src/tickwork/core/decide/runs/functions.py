"""Durable functions: what follows from a step, a suspension and an outcome.

A suspended function is visited like any other run: awaits whose time has come are met, calls begin as child runs, and
the function is ready again as soon as one outcome lets it go on.
"""

from collections.abc import Iterable

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import KEY_CHARACTERS_MAX, check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, too_large
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.model import Retry, TaskNode
from tickwork.core.definition.node_validation import COST_MAX
from tickwork.core.state.events import AwaitMet, FunctionWoken, RunSpawned, StepRetrying
from tickwork.core.state.history import (
    TIMED_OUT,
    Await,
    History,
    HistoryEntry,
    PendingAwait,
    StepEntry,
    entry_bytes,
    unseen_events,
)
from tickwork.core.state.inputs import StepsRecorded, Suspended
from tickwork.core.state.lifecycle import Phase
from tickwork.core.state.retry import backoff_ms
from tickwork.core.state.run_ids import child_id
from tickwork.core.state.state import Run, State, Task

WAITING = int(Phase.WAITING)
AWAIT_KINDS = ("sleep", "event", "call", "approval", "receive")
TIMED_KINDS = ("event", "approval", "receive")
AWAITS_MAX = 10_000  # outstanding in one function
ENTRIES_MAX = 50_000  # of one history
HISTORY_BYTES_MAX = 16 * 1024 * 1024
STEPS_PER_REPORT_MAX = 1_000
TEXT_CHARACTERS_MAX = 4_000
VERSIONS_MAX = 1_000
NAMES_MAX = 100  # of messages that one call receives
REPLIES_MAX = 1_000  # in one report
PUBLISHED_MAX = 100  # values of one run
APPROVERS_MAX = 1_000
POSITION_MAX = 1 << 53
DELAY_MS_MAX = 100 * 366 * 86_400_000
STEP_RETRIES_MAX = 1_000
NESTING_MAX = 32  # workflows inside workflows


# ---- reports


def check_steps(task: Task, steps: Iterable[StepEntry], versions: Iterable[tuple[str, int]]) -> None:
    """Raises `Refused` if these steps cannot be recorded."""
    history, size, count = task.history, 0, 0
    awaits = history.awaits if history is not None else {}
    for step in steps:
        _check_position(step.position)
        pending = awaits.get(step.position)
        if pending is not None and pending.request.kind != "retry":
            message = f"the function awaits something at position {step.position}, so no step can be there"
            raise Refused("bad_position", message, path="steps")
        if too_large(step.value):
            raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="steps")
        _check_text(step.name, step.message)
        if not 0 <= step.cost <= COST_MAX:
            raise Refused("bad_cost", f"the cost of a step is 0 to {COST_MAX}", path="steps")
        if step.retry is not None:
            _check_retry(step.retry, step.tries)
        size += entry_bytes(HistoryEntry(step.position, "step", step.name, step.digest, step.value, "", step.message))
        count += 1
    if count > STEPS_PER_REPORT_MAX:
        raise Refused("too_many_steps", f"one report has at most {STEPS_PER_REPORT_MAX} steps", path="steps")
    if history is not None:
        size, count = size + history.size, count + len(history.entries)
    if count > ENTRIES_MAX or size > HISTORY_BYTES_MAX:
        message = (
            f"a history has at most {ENTRIES_MAX} entries and {HISTORY_BYTES_MAX >> 20} MiB; "
            "let the function continue as new from time to time, and keep large values elsewhere"
        )
        raise Refused("history_too_long", message, path="steps")
    _check_text(*(name for name, _ in versions))
    known = len(history.versions) if history is not None else 0
    if known + len(tuple(versions)) > VERSIONS_MAX:
        raise Refused("too_many_versions", f"a function has at most {VERSIONS_MAX} versions", path="versions")


def _check_position(position: int) -> None:
    if not 0 <= position <= POSITION_MAX:
        raise Refused("bad_position", f"positions are 0 to {POSITION_MAX}", path="position")


def _check_text(*texts: str) -> None:
    if any(len(text) > TEXT_CHARACTERS_MAX for text in texts):
        raise Refused(
            "text_too_long", f"names and messages have at most {TEXT_CHARACTERS_MAX} characters", path="steps"
        )


def _check_retry(retry: tuple[int, int, int, int], tries: int) -> None:
    retries, delay_ms, delay_ms_max, factor = retry
    if tries < 1:
        raise Refused("bad_retry", "tries are counted from 1", path="steps")
    if not (0 <= retries <= STEP_RETRIES_MAX and 0 <= delay_ms <= delay_ms_max <= DELAY_MS_MAX):
        raise Refused("bad_retry", f"a step has 0 to {STEP_RETRIES_MAX} retries, with delays that rise", path="steps")
    if not 100 <= factor <= 10_000:
        raise Refused("bad_retry", "the factor of a delay is 1 to 100", path="steps")


def check_said(task: Task, report: StepsRecorded | Suspended) -> None:
    """Raises `Refused` if the replies or published values of a function cannot be taken."""
    if len(report.replies) > REPLIES_MAX:
        raise Refused("too_many_replies", f"one report has at most {REPLIES_MAX} replies", path="replies")
    for reply in report.replies:
        _check_text(reply.reason)
        if too_large(reply.value):
            raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="replies")
    known = task.run.messages.published if task.run.messages is not None else {}
    names = {**known, **{value.name: value for value in report.published}}
    if len(names) > PUBLISHED_MAX:
        raise Refused("too_many_values", f"a run publishes at most {PUBLISHED_MAX} values", path="published")
    for value in report.published:
        check_name(value.name, path="published", kind="value")
        if too_large(value.value):
            raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="published")


def check_awaits(task: Task, awaits: tuple[Await, ...], steps: tuple[StepEntry, ...]) -> None:
    """Raises `Refused` if the function cannot wait for these."""
    held = len(task.history.awaits) if task.history is not None else 0
    if held + len(awaits) > AWAITS_MAX:
        message = f"a function waits for at most {AWAITS_MAX} outcomes at once; map over large lists in a workflow"
        raise Refused("too_many_awaits", message, path="awaits")
    taken = frozenset(step.position for step in steps)
    for request in awaits:
        _check_await(request)
        if request.position in taken:
            message = f"there is a step at position {request.position}, so nothing can be awaited there"
            raise Refused("bad_position", message, path="awaits")


def check_awaited(task: Task, report: Suspended) -> None:
    """Raises `Refused` if nothing would ever let the function go on."""
    history = task.history
    held = history.awaits if history is not None else {}
    left = [position for position in held if position not in report.withdrawn]
    arrived = history is not None and len(history.arrived) > len(unseen_events(history, report.withdrawn))
    if not (report.awaits or left or arrived or any(step.retry is not None for step in report.steps)):
        raise Refused("nothing_awaited", "the function suspended and awaits nothing, so it would never go on")


def _check_await(request: Await) -> None:
    _check_position(request.position)
    if request.kind not in AWAIT_KINDS:
        raise Refused("bad_await", f"a function awaits one of {', '.join(AWAIT_KINDS)}", path="awaits")
    if request.delay_ms > DELAY_MS_MAX or request.until_ms < 0:
        raise Refused("bad_delay", f"a delay is 0 to {DELAY_MS_MAX} ms", path="awaits")
    if request.kind == "sleep" and request.delay_ms < 0 and not request.until_ms:
        raise Refused("bad_delay", "a sleep has a length or an end", path="awaits")
    if request.kind in ("event", "approval"):
        check_name(request.name, path="awaits", kind=request.kind)
    if request.kind == "receive" and not 0 < len(request.names) <= NAMES_MAX:
        raise Refused("bad_await", f"a function receives 1 to {NAMES_MAX} kinds of messages at once", path="awaits")
    for name in request.names:
        check_name(name, path="awaits", kind="message")
    if too_large(request.value):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="awaits")
    if len(request.key) > KEY_CHARACTERS_MAX:
        raise Refused("key_too_long", f"at most {KEY_CHARACTERS_MAX} characters", path="awaits")
    if len(request.approvers) > APPROVERS_MAX:
        raise Refused("too_many_approvers", f"an approval has at most {APPROVERS_MAX} approvers", path="awaits")
    _check_text(request.name, request.message, *request.approvers)


def decide_retries(turn: TickContext, task: Task, position: int, steps: tuple[StepEntry, ...]) -> None:
    """For each step that failed and may be tried again: when, or that its retries are used up."""
    for index, step in enumerate(steps):
        if not step.error or step.retry is None:
            continue
        retries, delay_ms, delay_ms_max, factor = step.retry
        for _ in range(min(step.tries - 1, retries)):
            delay_ms = min(delay_ms * factor // 100, delay_ms_max)
        policy = Retry(attempts=retries + 1, delay_ms=delay_ms, factor=1, delay_ms_max=delay_ms_max)
        seed = (task.run.id, task.number, step.position)
        delay = backoff_ms(policy, step.tries, seed=seed, error=step.error)
        due = 0 if delay is None else turn.state.tick + max(1, turn.state.settings.clock.ticks(delay))
        turn.emit(StepRetrying(task.number, position, index, due))


def to_unwind(state: State, run: Run) -> Task | None:
    """The function of a run that is to be cancelled, where it has done something that it may want to undo. Cancelled
    once more, it ends at once."""
    task = state.tasks.get(run.number) if run.plan.steps[0].durable else None
    if task is None or task.history is None or task.history.cancelled or not task.history.entries:
        return None
    return task


def over_budget(task: Task, before: int) -> str:
    """Why the run is paused where its steps cost `before` and now cost more; "" where it goes on. Each time it is
    resumed, it may spend as much again."""
    node, history = task.step.node, task.history
    if not isinstance(node, TaskNode) or not node.budget or history is None:
        return ""
    if before // node.budget == history.cost // node.budget:
        return ""
    return f"its steps have cost {history.cost}, and its budget is {node.budget}; resumed, it may spend as much again"


def withdrawn_children(task: Task, positions: tuple[int, ...]) -> list[int]:
    """Numbers of the runs whose calls the function gives up."""
    awaits = task.history.awaits if task.history is not None else {}
    return [awaits[position].child for position in positions if position in awaits and awaits[position].child]


# ---- visits


def tend_function(turn: TickContext, task: Task) -> None:
    """Meet what is over, begin what was called, and let the function go on if it can."""
    history = task.history
    assert history is not None
    if task.phase != WAITING:
        return
    _take_from_inbox(turn, task, history)
    if task.run.tenant.mailboxes:
        _take_from_mailboxes(turn, task, history)
    meet_due(turn, task)
    for _, pending in _in_order(history):
        if pending.request.kind == "call" and not pending.child:
            if turn.full:
                turn.deferred.append(task.run.number)
                break
            _begin_call(turn, task, pending.request)
    if history.woken:
        turn.emit(FunctionWoken(task.number))


def meet_due(turn: TickContext, task: Task) -> None:
    """Sleeps that are over, steps to be run again, events and approvals that are late: by time, then by position."""
    history, tick = task.history, turn.state.tick
    assert history is not None
    due = [(pending.due, position) for position, pending in history.awaits.items() if 0 < pending.due <= tick]
    for _, position in sorted(due):
        turn.emit(AwaitMet(task.number, position, error=_late(history.awaits[position].request)))


def _in_order(history: History) -> list[tuple[int, PendingAwait]]:
    return sorted(history.awaits.items(), key=lambda pair: pair[0])


def _late(request: Await) -> str:
    return TIMED_OUT if request.kind in TIMED_KINDS else ""


def _take_from_inbox(turn: TickContext, task: Task, history: History) -> None:
    """Events and updates that came for the run before the function waited for them, each for one await."""
    index = 0
    while index < len(task.run.signals or ()):
        assert task.run.signals is not None
        kept = task.run.signals[index]
        position = history.taker_of(kept)
        if position < 0:
            index += 1
        else:
            turn.emit(AwaitMet(task.number, position, kept=index))


def _take_from_mailboxes(turn: TickContext, task: Task, history: History) -> None:
    mailboxes = task.run.tenant.mailboxes
    for position, pending in _in_order(history):
        request = pending.request
        mailbox = mailboxes.get(request.name) if request.kind == "event" else None
        message = mailbox.first(request.key) if mailbox is not None else None
        if message is not None:
            turn.emit(AwaitMet(task.number, position, taken=message.number))


def take_newest(turn: TickContext, run: Run) -> None:
    """What came for a run just now, to the function that waits for it. The visit that follows lets it go on."""
    task = turn.state.tasks.get(run.number)
    if task is None or task.history is None or task.phase != WAITING or not run.signals:
        return
    position = task.history.taker_of(run.signals[-1])
    if position >= 0:
        turn.emit(AwaitMet(task.number, position, kept=len(run.signals) - 1))


def _begin_call(turn: TickContext, task: Task, request: Await) -> None:
    """Start the child run of a call. A call that cannot begin fails, and the function learns why."""
    try:
        _spawn(turn, task, request)
    except Refused as refused:
        message = shortened(str(refused), TEXT_CHARACTERS_MAX)
        turn.emit(AwaitMet(task.number, request.position, error=refused.code, message=message))


def _spawn(turn: TickContext, task: Task, request: Await) -> None:
    run, number = task.run, turn.state.next_number
    plan = run.tenant.plans.get(request.name)
    if plan is None:
        raise Refused("unknown_workflow", f"there is no workflow {shortened(request.name, 128)}")
    check_nesting(turn.state, run)
    require_inputs(plan.definition, request.value)
    if run.tenant.runs.get(child_id(task, request.position, number)) is not None:
        raise Refused("already_submitted", "a run has the id that this child would have")
    turn.emit(RunSpawned(number, task.number, request.position, plan.hash, request.value))


def check_nesting(state: State, run: Run) -> None:
    depth, parent = 1, run.parent
    while parent:
        depth += 1
        parent = state.tasks[parent].run.parent
    if depth >= NESTING_MAX:
        raise Refused("nested_too_deep", f"workflows may call each other {NESTING_MAX} deep")


def approval_of(task: Task, name: str) -> PendingAwait | None:
    """The oldest approval of this name that the function waits for."""
    awaits = task.history.awaits if task.history is not None else {}
    waiting = [p for p in awaits.values() if p.request.kind == "approval" and p.request.name == name]
    return min(waiting, key=lambda pending: pending.request.position, default=None)
