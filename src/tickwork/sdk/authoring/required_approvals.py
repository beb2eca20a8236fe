"""Tasks that a person approves before they run: `@tw.task(requires_approval="Pay {amount} to {account}?")`.

Wherever such a task is called, an approval stands before it: in a graph and before a map, in the workflow of a single
task, and so before a call by a durable function. It begins when the task could begin, and the task begins only after
it. A rejection fails the run, as that of any approval does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.sdk.authoring.placeholders import Condition, Value, refuse_future
from tickwork.sdk.authoring.source_location import placed

if TYPE_CHECKING:
    from tickwork.sdk.authoring.graph_builder import Builder, NodeRecord
    from tickwork.sdk.authoring.tasks import Task

OPTIONS = ("requires_approval", "approvers", "four_eyes", "approval_timeout")


@dataclass(frozen=True, slots=True)
class RequiredApproval:
    """The approval that a task requires: its question, its approvers, and its time limit."""

    message: str = ""  # with the names of parameters in braces; "": the task with its arguments
    approvers: tuple[str, ...] = ()
    four_eyes: bool = False
    timeout_ms: int | None = None


def required_approval(given: Mapping[str, Any], where: str, timeout_ms: int | None) -> RequiredApproval | None:
    """From the options of a task. Raises `Refused`."""
    question = given.get("requires_approval")
    for name in OPTIONS:
        refuse_future(f"{where}: {name}", given.get(name))
    if not question:
        for name in OPTIONS[1:]:
            if given.get(name):
                message = f"{where}: {name} is for a task with requires_approval, which is a message or True"
                raise Refused("bad_option", message)
        return None
    if question is not True and not isinstance(question, str):
        raise Refused("bad_option", f"{where}: requires_approval is a message or True, not {question!r}")
    approvers = given.get("approvers") or ()
    if isinstance(approvers, str) or not isinstance(approvers, Sequence):
        raise Refused("bad_option", f"{where}: approvers is a list: approvers=[{approvers!r}]")
    message = "" if question is True else question
    return RequiredApproval(message, tuple(approvers), bool(given.get("four_eyes")), timeout_ms)


def check_message(task: "Task[..., Any]") -> None:
    """The message names parameters of the task. Raises `Refused`."""
    text = "" if task.options.approval is None else task.options.approval.message
    for name in _names_in(text, task.name):
        if name not in task.codec.parameters:
            known = ", ".join(task.codec.parameters) or "none"
            message = f"the message {text!r} has {{{name}}}; the parameters of {task.name} are: {known}"
            raise Refused("bad_option", f"{message} ({task.location})")


# ---- in a graph


def asked_before(builder: "Builder", task: "Task[..., Any]", given: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of the approval that stands before this call."""
    required = task.options.approval
    if required is None:
        return None
    from tickwork.sdk.authoring.graph_builder import Message

    template = required.message or _with_arguments(task, given)
    parts: list[Any] = []
    for before, name, _, _ in Formatter().parse(template):
        parts.append(before)
        if name is not None:
            parts.append(_shown(builder, task, name, given))
    fields: dict[str, Any] = {
        "approvers": required.approvers,
        "four_eyes": required.four_eyes,
        "on_timeout": "fail",
        "message": Message(tuple(parts)),
    }
    return fields if required.timeout_ms is None else fields | {"timeout_ms": required.timeout_ms}


def add_required_approvals(builder: "Builder") -> None:
    """Once all records are there: each approval comes right before its task, or before the map of it."""
    from tickwork.sdk.authoring.graph_builder import NodeRecord

    for record in list(builder.records):
        fields = record.asks if record.body is None else record.body.asks
        if fields is None:
            continue
        if record.trigger not in ("", "all_succeeded") or record.torn_down is not None:
            what = "a teardown" if record.torn_down is not None else f"on={record.trigger!r}"
            message = f"{record.base} requires an approval, and {what} would start it without one"
            raise placed("bad_trigger", f"{message}; put an approval of its own before it", record.location)
        approval = NodeRecord("approval", f"approve_{record.base}", record.location, record.scope, fields=fields)
        approval.needs = [parent for parent in record.parents() if parent not in record.branches]
        approval.branches, approval.condition = list(record.branches), record.condition
        for branch in record.branches:
            for side in branch.fields["sides"]:
                if record in side:
                    side.append(approval)
        record.needs.append(approval)
        record.approval = approval
        builder.records.insert(builder.records.index(record), approval)


def when_text(record: "NodeRecord") -> str | None:
    """The condition of a node. Behind its own approval it holds only if that was given: a skipped one is none."""
    if record.condition is None:
        return None
    text = record.condition.text()
    return text if record.approval is None else f"outcome[{json.dumps(record.approval.id)}] == 'succeeded' && ({text})"


def _names_in(message: str, where: str) -> list[str]:
    try:
        pieces = list(Formatter().parse(message))
    except ValueError as error:
        raise Refused("bad_option", f"{where}: the message {message!r} cannot be read: {error}") from error
    for _, name, spec, conversion in pieces:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise Refused("bad_option", f"{where}: a message names parameters, like {{amount}}, and not {{{name}}}")
    return [name for _, name, _, _ in pieces if name is not None]


def _with_arguments(task: "Task[..., Any]", given: Mapping[str, Any]) -> str:
    arguments = ", ".join(f"{name}={{{name}}}" for name in task.codec.parameters if name in given)
    return f"Run {task.function.__name__}({arguments})?"


def _shown(builder: "Builder", task: "Task[..., Any]", name: str, given: Mapping[str, Any]) -> Any:
    if name not in given:
        return _text(task.codec.parameters[name].default)
    value = given[name]
    if isinstance(value, Value) and isinstance(value._tw_own_root, str):
        return value if value._tw_own_root.startswith("inputs") else f"each {name}"
    return builder.whole(value) if _comes_later(value) else _text(value)


def _comes_later(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_comes_later, value.values()))
    return any(map(_comes_later, value)) if isinstance(value, list | tuple) else isinstance(value, Value | Condition)


def _text(value: Any) -> str:
    from tickwork.sdk.values.encode import plain

    sent = plain(value, what="a message")
    return sent if isinstance(sent, str) else msgspec.json.encode(sent).decode()
