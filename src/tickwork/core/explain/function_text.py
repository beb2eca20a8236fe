"""The text of what happens to a durable function: its steps, its awaits and their outcomes."""

from collections.abc import Iterable
from typing import Any

from tickwork.core.base.values import Ref, Value
from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.history import Await, StepEntry
from tickwork.core.state.state import State, Task

SHOWN_MAX = 10  # steps or awaits named in one sentence
COMMANDS_SHOWN = 20

FunctionEvent = (
    ev.StepsAppended
    | ev.FunctionSuspended
    | ev.StepRetrying
    | ev.AwaitMet
    | ev.FunctionWoken
    | ev.FunctionContinued
    | ev.FunctionCancelled
)


def function_words(state: State, task: Task, event: FunctionEvent) -> tuple[str, str]:
    """A short code and a sentence. Ask before the event is applied."""
    position: int = getattr(event, "input", -1)
    report: Any = inp.request_in(state.inputs[position], getattr(event, "command", -1)) if position >= 0 else None
    match event:
        case ev.StepsAppended():
            return "step", "; ".join((_steps(report.steps), *_sent(report))) + commands_words(report)
        case ev.FunctionSuspended():
            return "suspended", _suspension(report)
        case ev.StepRetrying():
            step: StepEntry = report.steps[event.index]
            failure = f"step {step.name} failed in try {step.tries}: {step.error}: {step.message}"
            return "step_retrying", f"{failure}; " + (
                f"again at {state.at(event.due)}" if event.due else "no retry is left"
            )
        case ev.AwaitMet():
            return "outcome", _outcome(task, event, report)
        case ev.FunctionWoken():
            return "ready", "the function can go on"
        case ev.FunctionCancelled():
            limit = f"it may undo what it did until {state.at(event.until)}"
            return "cancelling", f"by {report.by}: {report.reason or 'cancelled'}; {limit}"
        case ev.FunctionContinued():
            return "continued", "it starts again with other inputs and an empty history"


def _steps(steps: Iterable[StepEntry]) -> str:
    words = [_step(step) for step in steps]
    return f"recorded {_joined(words)}" if words else "recorded"


def _step(step: StepEntry) -> str:
    size = _size(step.value)
    figures = [
        f"{step.took_ms} ms" if step.took_ms else "",
        f"try {step.tries}" if step.tries > 1 else "",
        f"{size} bytes" if size else "",
        f"cost {step.cost}" if step.cost else "",
    ]
    shown = ", ".join(figure for figure in figures if figure)
    outcome = f"{step.name} failed: {step.error}" if step.error else step.name
    return f"{outcome} ({shown})" if shown else outcome


def _size(value: Value) -> int:
    """As far as it is known without reading the value."""
    if isinstance(value, bytes):
        return len(value)
    return value.size if isinstance(value, Ref) else 0


def _suspension(report: inp.Suspended) -> str:
    parts = _sent(report)
    if report.steps:
        parts.append(_steps(report.steps))
    if report.awaits:
        parts.append(f"waits for {_joined(await_words(request) for request in report.awaits)}")
    return "; ".join(parts) or "it waits for what it awaited before"


def _sent(report: inp.StepsRecorded | inp.Suspended) -> list[str]:
    """Replies and published values."""
    words = [
        f"refused {reply.update!r}: {reply.reason}" if reply.refused else f"replied to {reply.update!r}"
        for reply in report.replies
    ]
    return words + [f"published {value.name}" for value in report.published]


def _joined(words: Iterable[str]) -> str:
    every = list(words)
    more = f" and {len(every) - SHOWN_MAX} more" if len(every) > SHOWN_MAX else ""
    return ", ".join(every[:SHOWN_MAX]) + more


def await_words(request: Await) -> str:
    match request.kind:
        case "event":
            return f"event {request.name}" + (f" with key {request.key!r}" if request.key else "")
        case "receive":
            return f"a message {' or '.join(request.names)}"
        case "call":
            return f"the call of {request.name}"
        case "approval":
            return f"the approval {request.name}"
        case "retry":
            return f"the next try of step {request.name}"
    return "its sleep"


def _outcome(task: Task, event: ev.AwaitMet, report: object) -> str:
    assert task.history is not None
    what = await_words(task.history.awaits[event.position].request)
    if event.error == "timeout":
        return f"{what} did not come in time"
    if event.error:
        return f"{what} failed: {event.error}: {event.message}"
    if event.taken:
        return f"{what} is taken from the mailbox"
    if event.kept >= 0:
        assert task.run.signals is not None
        kept = task.run.signals[event.kept]
        if task.history.awaits[event.position].request.kind == "receive":
            return f"it received {kept.name}" + (f" {kept.update!r}" if kept.update else "")
        return f"{what} had come before"
    match report:
        case inp.Decide():
            done = "rejected" if not report.approve else "approved" if report.values is None else "filled in"
            return f"{what}: {done} by {report.by}"
        case inp.Ingest():
            return f"{what} came"
    return f"{what} is over"


def commands_words(report: Any) -> str:
    """What a result, or the record of steps, brought about."""
    commands = getattr(report, "commands", ())
    words = [_command_words(command.request) for command in commands[:COMMANDS_SHOWN]]
    more = f"; and {len(commands) - COMMANDS_SHOWN} more" if len(commands) > COMMANDS_SHOWN else ""
    return "".join(f"; {text}" for text in words) + more


def _command_words(request: inp.Submit | inp.Ingest | inp.UpdateAsset) -> str:
    if isinstance(request, inp.UpdateAsset):
        return f"asset {request.asset} has new data" + (f" in {request.partition}" if request.partition else "")
    if isinstance(request, inp.Ingest):
        return f"event {request.event} is given" + (f" to key {request.key!r}" if request.key else "")
    key = request.terms.key if request.terms is not None else ""
    return f"run {request.run_id} of {request.workflow} begins" + (f", unless key {key!r} has one" if key else "")
