"""The text of a run's history: a sentence for each event, and what caused the event.

One table maps events to a short code and a detail. It is read before the event is applied, while the task that the
event ends still exists; for the event that creates a run it is read afterwards. `entry_text` turns an entry into the
sentence that the API, the command line and the testing kit show.
"""

from typing import TYPE_CHECKING, Any

from tickwork.core.calendar.durations import duration_text, instant_text
from tickwork.core.explain.function_text import commands_words, function_words
from tickwork.core.explain.run_labels import tags_of
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.evaluation_context import source_words
from tickwork.core.state.governor import HINTED, Decision, SignalSource, source_label
from tickwork.core.state.lifecycle import TOOK_TOO_LONG, Phase, RunTrigger
from tickwork.core.state.ready_queues import BROKER_WORKER_PREFIX, is_broker_worker, run_version
from tickwork.core.state.retry import SCHEDULE_JITTER_MS_MAX
from tickwork.core.state.run_ids import SUBMITTED, child_id, follow_up_id
from tickwork.core.state.run_rates import rate_words
from tickwork.core.state.schedule import HintOrigin, SchedulePolicy
from tickwork.core.state.state import Run, State, Task
from tickwork.core.state.updates import UPDATE

if TYPE_CHECKING:
    from tickwork.core.explain.run_history import HistoryEntry

HELD_WORDS = {
    "limit": "the limit of {by} is reached",
    "rate": "the rate of {by} is used up",
    "paused": "{by} is paused",
    "load": "load is shed: important work lags",
    "credit": "no worker of {by} has credit left",
    "resources": "no free worker of {by} has the resources",
}
MOVED = {
    RunTrigger.START: "started",
    RunTrigger.WAIT: "waiting",
    RunTrigger.WAKE: "woken",
    RunTrigger.PAUSE: "paused",
    RunTrigger.RESUME: "resumed",
    RunTrigger.COMPLETE: "completed",
    RunTrigger.FAIL: "failed",
    RunTrigger.TIME_OUT: "timed_out",
    RunTrigger.CANCEL: "cancelled",
    RunTrigger.RESOLVE: "resolved",
}
_MOVED_WORDS = {
    RunTrigger.WAIT: "all that is left of it waits",
    RunTrigger.WAKE: "something it waited for came",
    RunTrigger.COMPLETE: "all of its nodes have ended well",
}
_WORDS = {"failed_step": "failed", "attempt_started": "started"}  # a run has the same words for itself
_ENDED = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed_step",
    Phase.SKIPPED: "skipped",
    Phase.NOT_TAKEN: "not_taken",
    Phase.BLOCKED: "blocked",
}


def words_of(state: State, run: Run, task: Task | None, event: ev.Event) -> tuple[str, str]:
    """A short code and a sentence."""
    match event:
        case ev.RunSubmitted() | ev.RunScheduled() | ev.RunRestored() | ev.RunRerun() | ev.RunDebounced() | ev.RunDue():
            return _arrival(state, run, event)
        case ev.RunSpawned():
            if task is None:
                return "spawned", "begun by its parent"
            return "child_run", f"run {child_id(task, event.child, event.run)} begins"
        case ev.RunGated() | ev.GateTaken():
            taken = isinstance(event, ev.GateTaken)
            return ("key_taken", f"it has the concurrency key {event.key!r}") if taken else (
                "in_line", f"the concurrency key {event.key!r} is taken: it stands in line"
            )  # fmt: skip
        case ev.RunRated():
            rate = run.plan.definition.rate
            words = rate_words(rate, event.key) if rate is not None else ""
            if not event.start_at:
                return "rated", words
            return "rate_waits", f"{words}: it starts at {state.at(event.start_at)}"
        case ev.RunMoved():
            trigger = RunTrigger(event.trigger)
            until = f", until {state.at(event.until)}" if event.until else ""
            return MOVED[trigger], (event.reason or _MOVED_WORDS.get(trigger, "")) + until
        case ev.InputRefused() | ev.StaleReport() | ev.Duplicate():
            return _without_effect(state, event)
        case ev.PolicyDecided():
            answer = "allowed" if event.allowed else f"denied ({event.action}): {event.reason}"
            return "policy", f"policy {event.policy} {answer}"
        case ev.FirstEnded():
            return "first", f"{run.plan.steps[event.winner].id} ended first; what else led only here is cancelled"
        case ev.StepEnded() | ev.StepReset() | ev.StepAccepted():
            return _step(state, event)
        case ev.EventStored():
            return "event_kept", f"event {_request_of(state, event).event} came before a node waited for it"
        case ev.UpdateReceived():
            update: Any = _request_of(state, event)
            return "update", f"update {update.name} {update.key!r} came from {update.by}"
        case ev.ExtractRequested(key="check"):
            return "checks", "the inputs are not inline, so the types are checked where they are kept"
        case ev.ExtractRequested():
            return "reads", f"conditions read into a value that is not inline: {source_words(run, event.source)}"
        case ev.ExtractKept():
            report = _request_of(state, event)
            return "read", f"{report.code}: {report.message}" if report.code else source_words(run, report.source)
        case ev.SlaReached():
            return "sla", f"point {event.point} of its service level, {'late' if event.late else 'in time'}"
        case ev.RunOverdue():
            return "overdue", f"{TOOK_TOO_LONG}: only its clean-up goes on, until {state.at(event.until)} at most"
        case ev.RunEnding():
            reason = f"{event.reason}: only what tears down goes on, until {state.at(event.until)} at most"
            return "ending", reason
        case ev.StepCancelled():
            return "cancelled_step", "its child runs have ended"
        case ev.QueueChosen():
            labels = [f"{name}={value}" for name, value in event.labels]
            where = [*([f"the queue {event.queue}"] if event.queue else []), *labels]
            return "chosen", f"its values choose {', '.join(where) or 'nothing: the definition says where it goes'}"
        case ev.RunDetached():
            return "detached", "its parent ended, and it goes on by itself"
        case ev.FollowUpStarted() if event.run == run.number:
            return "follows", f"run {run.source.partition(' of ')[2]} has {event.cause.replace('_', ' ')}"
        case ev.FollowUpStarted():
            return "follow_up", f"run {follow_up_id(run.id, event.cause, event.run)} begins"
        case ev.TaskReady() | ev.TaskChecking() | ev.TaskWaiting() | ev.CacheMissed():
            return _reached(state, event)
        case _:
            assert task is not None
            return _task(state, task, event)


def _request_of(state: State, event: Any) -> Any:
    return inp.request_in(state.inputs[event.input], getattr(event, "command", -1))


def _later_words(state: State, event: ev.RunScheduled, terms: SchedulePolicy) -> str:
    """Why a scheduled run does not begin at its nominal time, where it does not."""
    if event.way in ("trigger", "test", "backfill", UPDATE):
        return ""
    lag_ms = state.now_ms - event.due_ms
    if event.start_at:
        return f"; it is late, and starts at {state.at(event.start_at)}: late ones are spread"
    if event.way == "buffered":
        return f"; it begins {duration_text(lag_ms)} later: another run of it had to end first"
    if terms.jitter and 0 < lag_ms <= SCHEDULE_JITTER_MS_MAX:
        return f"; it begins {duration_text(lag_ms)} later, by its jitter"
    return f"; it begins {duration_text(lag_ms)} later, to catch up" if lag_ms > terms.grace_ms else ""


def _tags(run: Run) -> str:
    tags = tags_of(run)
    return f", with the tags {', '.join(tags)}" if tags else ""


def _arrival(state: State, run: Run, event: Any) -> tuple[str, str]:
    match event:
        case ev.RunSubmitted():
            later = f", to start at {state.at(event.start_at)}" if event.start_at else ""
            by = f"submitted by {run.by}" if run.source == SUBMITTED else f"started by {run.source}"
            return "submitted", f"{by}{later}{_tags(run)}"
        case ev.RunScheduled() if event.way in ("trigger", "test"):
            return "triggered", f"schedule {run.schedule}, requested by {run.by}" + (
                ": a test, which leaves the schedule alone" if event.way == "test" else ""
            )
        case ev.RunScheduled() if event.way == "backfill":
            when = instant_text(event.due_ms)
            return "scheduled", f"backfill {event.backfill} of schedule {run.schedule}, for {when}, by {run.by}"
        case ev.RunScheduled() if event.way == UPDATE:
            return "scheduled", f"schedule {run.schedule} heard an update at {instant_text(event.due_ms)}"
        case ev.RunScheduled():
            version = f", with version {event.version}" if event.version else ""
            return "scheduled", f"schedule {run.schedule} was due at {instant_text(event.due_ms)}{version}{_tags(run)}"
        case ev.RunRerun():
            return "rerun", f"{run.source}, requested by {run.by}"
        case ev.RunDebounced():
            return "debounced", f"submitted again: it starts at {state.at(event.start_at)}, with the new inputs"
        case ev.RunDue():
            return "due", "the time has come at which it starts"
        case _:
            request = _request_of(state, event)
            if event.start_at:
                return (
                    "redriven",
                    f"redriven by {request.by} ({request.reason}), to go on at {state.at(event.start_at)}",
                )
            return "brought_back", f"resolved by {request.by}: {request.reason}"


def describe_start(later: str, governed: str) -> str:
    """What follows the sentence about the schedule of a run."""
    return f"{later}; {governed}" if governed else later


def fired_words(state: State, event: ev.RunScheduled) -> tuple[str, str]:
    """Why a scheduled run begins later than its nominal time, and why an endpoint was due then. Ask in the tick in
    which it begins."""
    for fired in state.fired:
        if fired.run == event.run:
            governed = _governed_words(fired.decision, fired.advice, fired.failures) if fired.decision else ""
            return _later_words(state, event, fired.terms), governed
    return "", ""


def _governed_words(decision: Decision, advice: HintOrigin | None, failures: int) -> str:
    """Why an endpoint was due at that time: the source that won, the baseline, and what moved the time."""
    at_ms = {candidate.source: candidate.at_ms for candidate in decision.candidates}
    chosen = source_label(decision.chosen, advice.by if advice is not None else "")
    text = f"{chosen} was chosen at {instant_text(decision.decided_ms)}"
    if decision.chosen in HINTED:
        if advice is not None and advice.reason:
            text += f": {advice.reason}"
        baseline_ms = at_ms.get(SignalSource.BASELINE_INTERVAL) or at_ms.get(SignalSource.BASELINE_CRON)
        if baseline_ms is not None:
            text += f"; the baseline would have been {instant_text(baseline_ms)}"
    elif failures and decision.chosen == SignalSource.BASELINE_INTERVAL:
        text += f", its interval longer after {failures} failed runs"
    if decision.source != decision.chosen and decision.chosen in at_ms:
        text += f"; {decision.source} moved it from {instant_text(at_ms[decision.chosen])}"
    return text


def _without_effect(state: State, event: ev.InputRefused | ev.StaleReport | ev.Duplicate) -> tuple[str, str]:
    name = type(_request_of(state, event)).__name__
    match event:
        case ev.InputRefused():
            return "refused", f"{name} was refused, {event.code}: {event.message}"
        case ev.StaleReport():
            request = _request_of(state, event)
            sender = getattr(request, "sender", "") or getattr(request, "worker", "")
            of = f" of {sender}" if sender else ""
            return "stale", f"{name}{of} about an attempt that is not its sender's, or no longer: ignored"
        case _ if event.command >= 0:
            return "duplicate", f"it starts no other: run {event.run_id} has begun under this key before"
        case _:
            return "duplicate", f"{name} was accepted before"


def _step(state: State, event: ev.StepEnded | ev.StepReset | ev.StepAccepted) -> tuple[str, str]:
    match event:
        case ev.StepEnded():
            return _ENDED[Phase(event.phase)], event.reason
        case ev.StepReset():
            return "reset", "it is decided again"
        case _:
            action = "skipped" if event.phase == Phase.SKIPPED else "accepted"
            return action, f"{action} by {_request_of(state, event).by}"


def _reached(state: State, event: ev.TaskReady | ev.TaskChecking | ev.TaskWaiting | ev.CacheMissed) -> tuple[str, str]:
    match event:
        case ev.TaskReady():
            return "ready", "its parents, conditions and policies let it start"
        case ev.CacheMissed():
            return "ready", "no earlier result was found"
        case ev.TaskChecking():
            return "checking", f"an earlier result is looked up under {event.key}"
        case _:
            parts = [
                f"until {state.at(event.until)}" if event.until else "",
                f"key {event.key!r}" if event.key else "",
                f"{event.total} children" if event.total else "",
                f"{event.max_parallel} at once" if event.max_parallel else "",
            ]
            return "waits", ", ".join(part for part in parts if part)


def _task(state: State, task: Task, event: ev.Event) -> tuple[str, str]:
    match event:
        case ev.TaskDispatched() | ev.ChildDispatched():
            return "dispatched", _given_to(state.workers[event.worker].id)
        case ev.VersionAbsent():
            version = run_version(task.run.pin)
            return "elsewhere", f"no worker of {version} was there, so it went to a worker of another version"
        case ev.TaskTaken():
            carrier = task.worker.id.removeprefix(BROKER_WORKER_PREFIX) if task.worker is not None else ""
            return "taken", f"from lane {carrier} by worker {state.workers[event.worker].id}"
        case ev.AttemptStarted():
            return "attempt_started", "its worker said so"
        case ev.TaskSucceeded():
            if task.phase == Phase.CHECKING:
                return "succeeded", "an earlier result is used"
            return "succeeded", f"result accepted{commands_words(_request_of(state, event))}"
        case ev.TaskRetrying():
            ms = (event.due - state.tick) * state.settings.clock.resolution_ms
            held = ", later than its backoff: the retries of its dependency are spent" if event.held else ""
            again = f"; again in {ms} ms at {state.at(event.due)}{held}"
            return "retrying", on_first_line(f"{event.cause}{_message(state, event.input)}", again)
        case ev.TaskDue():
            return "ready", "its backoff is over" if event.input < 0 else f"it is tried again now{_why(state, event)}"
        case ev.TaskRequeued():
            lost = event.cause == "lost"
            return ("lost", "its worker was lost") if lost else ("handed_back", "its worker handed it back")
        case ev.TaskFailed():
            dead = ", no attempt is left" if event.dead else ""
            message = f": {event.message}" if event.message else _message(state, event.input)
            return "failed_step", on_first_line(f"{event.code}{message}", dead)
        case ev.TaskSkipped():
            return "skipped", f"it says itself that there is nothing to do{_message(state, event.input)}"
        case ev.WaitElapsed():
            return "elapsed", "its time has come"
        case ev.TaskAnswered():
            return "answered", _answer(state, task, event)
        case ev.IterationStarted():
            return "ready", "its next turn begins"
        case ev.IterationDelayed():
            return "rests", f"until {state.at(event.due)}"
        case ev.RepeatTimedOut():
            return "timed_out", "its time is over: the turn that goes on is cancelled"
        case ev.TaskStopped():
            return "stopped", "its children are cancelled"
        case ev.FanOutEnded():
            assert task.fan is not None
            return "succeeded", f"{task.fan.succeeded} children succeeded, {task.fan.failed} failed"
        case ev.AttemptCheckpointed():
            return "checkpoint", "it kept how far it got"
        case (
            ev.StepsAppended()
            | ev.FunctionSuspended()
            | ev.StepRetrying()
            | ev.AwaitMet()
            | ev.FunctionWoken()
            | ev.FunctionContinued()
            | ev.FunctionCancelled()
        ):
            return function_words(state, task, event)
        case _:
            raise AssertionError(f"no words for {type(event).__name__}")


def entry_text(entry: "HistoryEntry") -> str:
    """One entry of a history as a sentence: node and attempt, what happened, and who caused it."""
    node = f"{entry.node}[{entry.child}]" if entry.child >= 0 else entry.node
    attempt = f" #{entry.attempt}" if entry.attempt else ""
    subject = f"{node}{attempt}: " if node else ""
    by = f" (by {entry.by})" if entry.by and entry.by not in entry.detail else ""
    return on_first_line(f"{subject}{sentence(entry.what, entry.detail)}", by)


def sentence(what: str, detail: str) -> str:
    """The code as a word, and the detail, without saying the word twice."""
    word = _WORDS.get(what, what.replace("_", " "))
    if not detail:
        return word
    return detail if detail.startswith(word) else f"{word}: {detail}"


def on_first_line(text: str, more: str) -> str:
    """Append `more` to the first line: the lines after it are the code that an error brought along."""
    head, newline, rest = text.partition("\n")
    return f"{head}{more}{newline}{rest}"


def _given_to(worker: str) -> str:
    return f"on lane {worker.removeprefix(BROKER_WORKER_PREFIX)}" if is_broker_worker(worker) else f"to worker {worker}"


def _why(state: State, event: Any) -> str:
    request = _request_of(state, event)
    return f", by {request.by}" + (f": {request.reason}" if request.reason else "")


def _message(state: State, position: int) -> str:
    message = getattr(state.inputs[position], "message", "") if position >= 0 else ""
    return f": {message}" if message else ""


def _answer(state: State, task: Task, event: ev.TaskAnswered) -> str:
    if event.taken:
        assert task.wait_key is not None
        return f"event {task.wait_key[0]} is taken from the mailbox"
    if event.kept >= 0:
        assert task.wait_key is not None
        return f"event {task.wait_key[0]} had come before"
    request, item = _request_of(state, event), state.inputs[event.input]
    if not isinstance(request, inp.Ingest):
        return f"{'approved' if request.values is None else 'filled in'} by {request.by}"
    sent = isinstance(item, inp.Succeeded | inp.Delivered)
    return f"event {request.event} came" + (" with the result of a task" if sent else "")


# ---- what set it off

_BY_TIMER = (ev.RunScheduled, ev.RunDue, ev.TaskDue, ev.WaitElapsed, ev.SlaReached, ev.RunOverdue)
_TIMED_MOVES = (RunTrigger.RESUME, RunTrigger.TIME_OUT, RunTrigger.RESOLVE)
_TIMED_ENDS = ("timeout", "queued_timeout", "Timeout", "Silent")


def cause_of(requests: list[inp.Input], event: ev.Event, task: Task | None) -> tuple[str, int, str]:
    """The kind of cause (input, timer, visit or admission), the index of the input in its tick, and its sender."""
    position = getattr(event, "input", -1)
    if position < 0:
        position = _report_of(requests, event, task)
    if position >= 0:
        return "input", position, _sender(requests[position], task)
    if isinstance(event, ev.TaskDispatched | ev.ChildDispatched):
        return "admission", -1, ""
    if isinstance(event, _BY_TIMER) or _ended_by_time(event):
        return "timer", -1, ""
    return "visit", -1, ""


def _ended_by_time(event: ev.Event) -> bool:
    match event:
        case ev.RunMoved():
            return event.trigger in _TIMED_MOVES
        case ev.TaskFailed():
            return event.code in _TIMED_ENDS
        case ev.TaskRetrying():
            return event.cause in _TIMED_ENDS
        case _:
            return False


def _report_of(requests: list[inp.Input], event: ev.Event, task: Task | None) -> int:
    """The report behind an event that does not point to it; -1 where no report is."""
    lost = isinstance(event, ev.TaskFailed) and event.code == "worker_lost"
    if task is None or not (lost or isinstance(event, ev.TaskRequeued | ev.AttemptStarted | ev.CacheMissed)):
        return -1
    words = isinstance(event, ev.AttemptStarted | ev.CacheMissed)
    worker = task.worker.id if task.worker is not None else None
    for index, request in enumerate(requests):
        match request:
            case inp.Started() | inp.CacheAnswered() if words and request.task == task.number:
                return index
            case inp.HandedBack() if not words and (request.task, request.attempt) == (task.number, task.attempt):
                return index
            case inp.WorkerLost() if not words and request.worker == worker:
                return index
            case inp.Offer() if not words and request.worker == worker and _is_another_start(request, task):
                return index
    return -1


def _is_another_start(offer: inp.Offer, task: Task) -> bool:
    """Whether this offer says that the process which held the attempt is gone."""
    return task.worker is not None and offer.start != task.worker.start


def _sender(request: inp.Input, task: Task | None) -> str:
    by: str = getattr(request, "by", "")
    if by:
        return by
    if isinstance(request, inp.WorkerLost | inp.Offer | inp.Taken):
        return f"worker:{request.worker}"
    return f"worker:{task.worker.id}" if task is not None and task.worker is not None else ""
