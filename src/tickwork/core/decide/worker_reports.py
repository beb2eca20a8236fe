"""What workers and the shell have seen: results, losses, credit, looked-up values.

A report about an attempt counts only while that attempt is the task's current one. Everything
else is recorded as stale and changes nothing, so a worker that comes back from the dead does no harm.
"""

from collections.abc import Callable
from typing import Any

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.core.base.shortened import shortened
from tickwork.core.base.values import INLINE_BYTES_MAX, Value, too_large
from tickwork.core.decide.commands.task_commands import FOR_NOW, OUTBOX_REPORTS, apply_commands, check_commands
from tickwork.core.decide.runs.attempts import fail_or_retry
from tickwork.core.decide.runs.functions import (
    check_awaited,
    check_awaits,
    check_said,
    check_steps,
    decide_retries,
    over_budget,
    withdrawn_children,
)
from tickwork.core.decide.runs.run_end import alert, alert_dead_letter, called_runs, end_calls, end_run, pause_run
from tickwork.core.decide.tick_context import TickContext
from tickwork.core.definition.input_fields import require_inputs
from tickwork.core.definition.node_validation import QUANTITY_MAX
from tickwork.core.evolve.runs import completed
from tickwork.core.evolve.tasks.attempts import succeeded
from tickwork.core.state import inputs
from tickwork.core.state.effects import CancelAttempt, CommandResult, ReleaseAttempt, StoreCached
from tickwork.core.state.events import (
    AttemptCheckpointed,
    AttemptStarted,
    CacheMissed,
    ExtractKept,
    FunctionContinued,
    FunctionSuspended,
    RunMoved,
    StaleReport,
    StepsAppended,
    TaskFailed,
    TaskRequeued,
    TaskSkipped,
    TaskSucceeded,
    TaskTaken,
    WorkerGone,
    WorkerOffered,
)
from tickwork.core.state.history import FUNCTION_CANCELLED
from tickwork.core.state.lifecycle import Phase, RunTrigger, may_move
from tickwork.core.state.ready_queues import BROKER_WORKER_PREFIX, ReadyQueue, announced, is_broker_worker
from tickwork.core.state.state import Task, Worker
from tickwork.core.state.tables import BLOCK_BITS

RUNNING, COMPLETE = int(Phase.RUNNING), int(RunTrigger.COMPLETE)
WORKER_CREDIT_MAX = 100_000
WORKER_LABELS_MAX = 1_000
WORKER_QUEUES_MAX = 1_000
UNDECIDABLE = "undecidable"  # the error of a task whose report broke a rule of ours
MESSAGE_CHARACTERS_MAX = 4_000


def _current(turn: TickContext, position: int, number: int, attempt: int, sender: str = "") -> Task | None:
    task = turn.state.tasks.get(number)
    if task is None or task.phase != RUNNING or task.attempt != attempt or (sender and not _holds(task, sender)):
        _fence(turn, position)
        return None
    return task


def _holds(task: Task, worker: str) -> bool:
    """Only the worker that an attempt was given to has seen how it ended."""
    return task.worker is not None and task.worker.id == worker


def _fence(turn: TickContext, position: int) -> None:
    turn.emit(StaleReport(position))
    turn.effects.append(CommandResult(position, "", "fenced", "this attempt is no longer yours"))


def _succeeded(turn: TickContext, position: int, report: inputs.Succeeded) -> None:
    number = report.task
    block = turn.state.tasks.blocks.get(number >> BLOCK_BITS)
    task = block.get(number) if block is not None else None
    if task is None or task.phase != RUNNING or task.attempt != report.attempt:
        _fence(turn, position)
        return
    if report.sender and (task.worker is None or task.worker.id != report.sender):
        _fence(turn, position)
        return
    if report.value is not None and too_large(report.value):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="value")
    if report.commands:
        if not _carry_out(turn, task, position, report.commands):
            return
    elif task.cache_key:  # a task that reused the result of one that starts runs would not start them
        turn.effects.append(StoreCached(task.number, task.cache_key, position))
    _succeed(turn, task, position, report.value)


def _carry_out(turn: TickContext, task: Task, position: int, commands: tuple[inputs.TaskCommand, ...]) -> bool:
    """Apply the commands of a result. Return `False` if one is refused: then none is applied, and the task fails."""
    try:
        check_commands(turn.state, commands)
    except Refused as refused:
        if refused.code in FOR_NOW:
            fail_or_retry(turn, task, refused.code, str(refused), position=position)
        else:
            turn.emit(TaskFailed(task.number, refused.code, str(refused), position, True))
            alert_dead_letter(turn, task, refused.code)
        return False
    apply_commands(turn, position, commands)
    return True


def _succeed(turn: TickContext, task: Task, position: int, value: Value) -> None:
    """Accept a result. The run completes if this was the last result that it waited for."""
    calls = called_runs(turn.state, task) if task.history is not None else None
    turn.events.append(TaskSucceeded(task.number, position))
    succeeded(turn.state, task, value)
    run = task.run
    if calls:
        end_calls(turn, calls, "the function that called it has ended")
    if not run.unfinished and not run.wanted:  # it needs no other visit
        event = RunMoved(run.number, COMPLETE)
        turn.events.append(event)
        completed(turn.state, run, event)


def _failed(turn: TickContext, position: int, failed: inputs.Failed) -> None:
    task = _current(turn, position, failed.task, failed.attempt, failed.sender)
    if task is None:
        return
    if failed.error == FUNCTION_CANCELLED and task.history is not None and task.history.cancelled:
        end_run(turn, task.run, RunTrigger.CANCEL, task.history.cancelled, position=position)
    elif failed.skip:
        calls = called_runs(turn.state, task)
        turn.emit(TaskSkipped(task.number, position))
        end_calls(turn, calls, "the function that called it has ended")
    else:
        error, message = failed.error, failed.message
        permanent = failed.permanent or (
            task.step.durable and failed.position >= 0
        )  # recorded: a replay fails likewise
        fail_or_retry(turn, task, error, message, position=position, permanent=permanent, bases=failed.bases)


def _started(turn: TickContext, position: int, started: inputs.Started) -> None:
    if _current(turn, position, started.task, started.attempt, started.sender) is not None:
        turn.emit(AttemptStarted(started.task))


def _checkpointed(turn: TickContext, position: int, checkpointed: inputs.Checkpointed) -> None:
    if _current(turn, position, checkpointed.task, checkpointed.attempt, checkpointed.sender) is None:
        return
    if too_large(checkpointed.value):
        raise Refused("value_too_large", f"inline values have at most {INLINE_BYTES_MAX} bytes", path="value")
    turn.emit(AttemptCheckpointed(checkpointed.task, position))


def _steps_recorded(turn: TickContext, position: int, report: inputs.StepsRecorded) -> None:
    task = _current(turn, position, report.task, report.attempt, report.sender)
    if task is None:
        return
    if task.history is not None and report.steps and all(s.position in task.history.reported for s in report.steps):
        turn.emit(StaleReport(position))  # the worker repeats it, because it did not get the reply
        return
    try:
        if any(step.retry is not None for step in report.steps):
            raise Refused("bad_retry", "a step that may be tried again is reported with a suspension", path="steps")
        if report.refused is not None:
            raise Refused(*report.refused, path="commands")
        check_steps(task, report.steps, report.versions)
        check_said(task, report)
        if report.commands:
            check_commands(turn.state, report.commands)
    except Refused as refused:
        _fail_report(turn, task, refused)
        return
    before = task.history.cost if task.history is not None else 0
    turn.emit(StepsAppended(report.task, position))
    if report.commands:
        apply_commands(turn, position, report.commands)
    reason = over_budget(task, before)
    if reason:
        _pause_for_budget(turn, task, reason)


def _pause_for_budget(turn: TickContext, task: Task, reason: str) -> None:
    """The attempt begins no further step and waits for its end. What a cancelled function undoes has no limit."""
    run, worker, history = task.run, task.worker, task.history
    assert worker is not None and history is not None
    if not history.cancelled and may_move(run.state, RunTrigger.PAUSE):
        pause_run(turn, run, reason)
        alert(turn, "budget", run, reason)
    turn.effects.append(CancelAttempt(worker.number, task.number, task.attempt))
    turn.emit(TaskRequeued(task.number, "handed_back"))


def _fail_report(turn: TickContext, task: Task, refused: Refused) -> None:
    """The attempt cannot go on without an answer to its report, so the task fails, and says why."""
    worker = task.worker
    assert worker is not None
    turn.effects.append(CancelAttempt(worker.number, task.number, task.attempt))
    fail_or_retry(turn, task, refused.code, str(refused), permanent=refused.code not in FOR_NOW)


def _suspended(turn: TickContext, position: int, report: inputs.Suspended) -> None:
    task = _current(turn, position, report.task, report.attempt, report.sender)
    if task is None:
        return
    try:
        if not task.step.durable:
            raise Refused("not_durable", "only a durable function may suspend", path="task")
        check_steps(task, report.steps, report.versions)
        check_awaits(task, report.awaits, report.steps)
        check_awaited(task, report)
        check_said(task, report)
    except Refused as refused:
        _fail_report(turn, task, refused)
        return
    calls = [turn.state.runs[number] for number in withdrawn_children(task, report.withdrawn)]
    turn.emit(FunctionSuspended(report.task, position))
    end_calls(turn, calls, "the function that called it no longer waits for it")
    decide_retries(turn, task, position, report.steps)


def _continued(turn: TickContext, position: int, report: inputs.Continued) -> None:
    task = _current(turn, position, report.task, report.attempt, report.sender)
    if task is None:
        return
    try:
        if not task.step.durable:
            raise Refused("not_durable", "only a durable function may continue as new", path="task")
        require_inputs(task.run.plan.definition, report.value)
    except Refused as refused:
        _fail_report(turn, task, refused)
        return
    calls = called_runs(turn.state, task)
    turn.emit(FunctionContinued(report.task, position))
    end_calls(turn, calls, "the function that called it continued as new")


def _handed_back(turn: TickContext, position: int, back: inputs.HandedBack) -> None:
    task = _current(turn, position, back.task, back.attempt, back.worker)
    if task is None:
        return
    if back.begun and task.step.ends_with_worker:
        _fail_lost(turn, task, "its worker ended it before it was done")
        return
    turn.emit(TaskRequeued(back.task, "handed_back"))


def _taken(turn: TickContext, position: int, taken: inputs.Taken) -> None:
    """The first worker to ask gets the task, and gets the same reply if it repeats the request. An ended task, or
    one that another worker holds, is fenced."""
    task = _current(turn, position, taken.task, taken.attempt)
    if task is None:
        return
    number, carrier = turn.state.worker_numbers.get(taken.worker), task.worker
    assert carrier is not None and task.lane is not None
    if number is not None and carrier.number == number and not is_broker_worker(carrier.id):
        return  # the worker missed the first reply
    if not is_broker_worker(carrier.id) or number is None or not _may_take(turn.state.workers[number], task.lane):
        _fence(turn, position)
        return
    turn.emit(TaskTaken(taken.task, number, position))
    turn.effects.append(ReleaseAttempt(carrier.number, taken.task, taken.attempt))


def _may_take(worker: Worker, lane: ReadyQueue) -> bool:
    """The worker already has the message, so the functions that it offers do not matter."""
    labels = announced(lane.station.labels)
    return not is_broker_worker(worker.id) and all(worker.labels.get(name) == value for name, value in labels)


def _cache_answered(turn: TickContext, position: int, answered: inputs.CacheAnswered) -> None:
    task = turn.state.tasks.get(answered.task)
    if task is None or task.phase != Phase.CHECKING:
        turn.emit(StaleReport(position))
    elif answered.found:
        _succeed(turn, task, position, answered.value)
    else:
        turn.emit(CacheMissed(answered.task))


def _extracted(turn: TickContext, position: int, extracted: inputs.Extracted) -> None:
    run = turn.state.runs.get(extracted.run)
    if run is None or (run.extracts or {}).get((extracted.source, extracted.key), run) is not None:
        turn.emit(StaleReport(position))  # nothing waits for this extract any more
    else:
        turn.emit(ExtractKept(extracted.run, position))


def _offer(turn: TickContext, position: int, offer: inputs.Offer) -> None:
    state = turn.state
    check_name(offer.worker.removeprefix(BROKER_WORKER_PREFIX), path="worker", kind="worker")
    if not 0 <= offer.credit <= WORKER_CREDIT_MAX:
        raise Refused("bad_credit", f"credit is 0 to {WORKER_CREDIT_MAX}", path="credit")
    if len(offer.labels) > WORKER_LABELS_MAX:
        raise Refused("too_many_labels", f"a worker has at most {WORKER_LABELS_MAX} labels", path="labels")
    if len(offer.queues) > WORKER_QUEUES_MAX:
        raise Refused("too_many_queues", f"a worker serves at most {WORKER_QUEUES_MAX} queues", path="queues")
    for field in ("slots", "cpu_milli", "memory_mb", "gpu"):
        if not 0 <= getattr(offer, field) <= QUANTITY_MAX:
            raise Refused("bad_capacity", f"a capacity is 0 to {QUANTITY_MAX}", path=field)
    number = state.worker_numbers.get(offer.worker)
    if number is not None and state.workers[number].start != offer.start and not is_broker_worker(offer.worker):
        # A process that was started after the one that held these attempts cannot go on with them. Offered to it under
        # their old numbers, they would begin a second time, and a task that takes its worker down was never counted.
        _lose(turn, state.workers[number], clean=False)
        number = None
    if number is None:
        number = (~state.worker_bits & (state.worker_bits + 1)).bit_length() - 1  # the lowest one free
    turn.emit(WorkerOffered(number, position))


def _worker_lost(turn: TickContext, position: int, lost: inputs.WorkerLost) -> None:
    state = turn.state
    number = state.worker_numbers.get(lost.worker)
    if number is None:
        turn.emit(StaleReport(position))
        return
    _lose(turn, state.workers[number], clean=lost.clean)


def _lose(turn: TickContext, worker: Worker, *, clean: bool) -> None:
    handed_back = clean or is_broker_worker(worker.id)  # an attempt at a broker had not started
    for _, task in sorted(worker.tasks.items(), key=lambda pair: pair[0]):
        if handed_back:
            turn.emit(TaskRequeued(task.number, "handed_back"))
        elif task.step.ends_with_worker:
            _fail_lost(turn, task, "its worker was lost")
        elif task.losses < turn.state.settings.loss_allowance:
            turn.emit(TaskRequeued(task.number, "lost"))
        else:
            _give_up(turn, task)
    turn.emit(WorkerGone(worker.number, clean))


def _give_up(turn: TickContext, task: Task) -> None:
    """A task that takes one worker after another down with it is poison."""
    _bury(turn, task, f"{task.losses + 1} workers were lost while they ran it")


def _fail_lost(turn: TickContext, task: Task, what: str) -> None:
    _bury(turn, task, f"{what}, and on_worker_loss is 'fail': look whether it ran before you run it again")


def _bury(turn: TickContext, task: Task, message: str) -> None:
    calls = called_runs(turn.state, task)
    turn.emit(TaskFailed(task.number, "worker_lost", message, -1, True))
    end_calls(turn, calls, "the function that called it failed: worker_lost")
    alert_dead_letter(turn, task, message)


def stand_in(report: inputs.Input, reason: str) -> inputs.Input | None:
    """What is journalled instead of a report about an attempt that cannot be decided upon: its task ends, with this
    reason. None: nothing can stand in for it, and it is set aside."""
    match report:
        case (
            inputs.Succeeded()
            | inputs.Checkpointed()
            | inputs.Started()
            | inputs.StepsRecorded()
            | inputs.Suspended()
            | inputs.Continued()
        ):
            return inputs.Failed(
                report.task, report.attempt, UNDECIDABLE, shortened(reason, MESSAGE_CHARACTERS_MAX), True, report.sender
            )
        case inputs.CacheAnswered(found=True):
            return inputs.CacheAnswered(report.task, False)  # the task runs instead
        case inputs.Extracted(code=""):
            return inputs.Extracted(report.run, report.source, report.key, None, UNDECIDABLE, reason)
        case _:
            return None


REPORTS: dict[type[Any], Callable[[TickContext, int, Any], None]] = {
    inputs.Succeeded: _succeeded,
    inputs.Failed: _failed,
    inputs.Started: _started,
    inputs.Checkpointed: _checkpointed,
    inputs.StepsRecorded: _steps_recorded,
    inputs.Suspended: _suspended,
    inputs.Continued: _continued,
    inputs.HandedBack: _handed_back,
    inputs.Taken: _taken,
    inputs.CacheAnswered: _cache_answered,
    inputs.Extracted: _extracted,
    inputs.Offer: _offer,
    inputs.WorkerLost: _worker_lost,
    **OUTBOX_REPORTS,
}
