"""From the records of a built workflow to its definition, and from problems back to the user's lines."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import InvalidDefinition, Problem
from tickwork.core.base.names import RESERVED_NODE_IDS
from tickwork.core.definition.model import (
    NO_OUTPUT,
    AnyNode,
    ApprovalNode,
    Argument,
    BranchCase,
    BranchNode,
    Definition,
    EventNode,
    Exit,
    FirstNode,
    HttpNode,
    MapNode,
    RepeatNode,
    ShellNode,
    TaskNode,
    Teardown,
    Trigger,
    WaitNode,
    WorkflowNode,
)
from tickwork.sdk.authoring.graph_builder import Builder, Message, NodeRecord
from tickwork.sdk.authoring.placeholders import Condition, Value
from tickwork.sdk.authoring.required_approvals import add_required_approvals, when_text
from tickwork.sdk.authoring.source_location import placed

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow

_POSITION = re.compile(r"nodes\[([0-9]+)\]")
_TYPES: dict[str, Any] = {
    "approval": ApprovalNode,
    "event": EventNode,
    "http": HttpNode,
    "map": MapNode,
    "repeat": RepeatNode,
    "shell": ShellNode,
    "task": TaskNode,
    "wait": WaitNode,
    "workflow": WorkflowNode,
}


def note_output(builder: Builder, result: Any) -> None:
    """What the function returned. A function that returns nothing makes a run without output."""
    builder.location = builder.workflow.where  # the function is over: no line of it is running
    builder.output = None if result is None else builder.whole(result)


def definition(workflow: "Workflow[..., Any]", builder: Builder) -> Definition:
    """Checked as the server will check it. Raises `InvalidDefinition`."""
    from tickwork.core.definition.document import accept, canonical

    add_required_approvals(builder)
    _settle_ids(builder.records)
    made = Definition(
        **workflow.head(),
        nodes=tuple(_node(record) for record in builder.records),
        exits=tuple(Exit(when=way.text(), outcome=way.outcome, reason=way.reason) for way in builder.exits),
        publish={name: tuple(value._tw_reference() for value in values) for name, values in builder.published.items()},
        output=NO_OUTPUT if builder.output is None else builder.output._tw_reference(),
    )
    try:
        accept(canonical(made), check_condition=_check_condition)
    except InvalidDefinition as invalid:
        raise InvalidDefinition([_placed(problem, workflow, builder) for problem in invalid.problems]) from None
    return made


def _node(record: NodeRecord) -> AnyNode:
    common: dict[str, Any] = {
        "id": record.id,
        "needs": tuple(parent.id for parent in record.parents()),
        "trigger": Trigger(record.trigger) if record.trigger else Trigger.ALL_SUCCEEDED,
        "when": when_text(record),
        "teardown": None if record.torn_down is None else Teardown(of=record.torn_down.id, fail=record.fails),
    }
    if record.kind == "branch":
        *sides, default = (tuple(node.id for node in side) for side in record.fields["sides"])
        whens = [condition.text() for condition in record.fields["conditions"]]
        cases = tuple(BranchCase(when=when, to=to) for when, to in zip(whens, sides, strict=True))
        return BranchNode(**common, cases=cases, default=default)
    if record.kind == "first":
        return FirstNode(**common, of=tuple(value._tw_root.id for value in record.fields["of"]))
    made: AnyNode = _typed(record, common)
    return made


def _typed(record: NodeRecord, common: dict[str, Any]) -> Any:
    parts = {name: _plain(value) for name, value in record.fields.items()}
    if record.kind in ("task", "http", "shell"):
        parts |= _work(record)
    elif record.kind == "workflow":
        parts["args"] = _rendered_args(record.args)
    if record.body is not None:
        parts["body"] = _typed(record.body, {})
    return _TYPES[record.kind](**common, **parts)


def _work(record: NodeRecord) -> dict[str, Any]:
    options = record.options
    labels = options.labels or {}
    return {
        "args": _rendered_args(record.args),
        "retry": options.retry,
        "timeout": options.timeout,
        "queue": None if isinstance(options.queue, Value) else options.queue,
        "queue_from": options.queue._tw_reference() if isinstance(options.queue, Value) else None,
        "labels": {name: value for name, value in labels.items() if isinstance(value, str)},
        "labels_from": {name: value._tw_reference() for name, value in labels.items() if isinstance(value, Value)},
        "resources": options.resources,
        "priority": options.priority,
        "cache": options.cache,
        "dependency": options.dependency,
        "on_worker_loss": options.on_worker_loss or "retry",
        "produces": options.produces,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Value):
        return value._tw_reference()
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.text() if isinstance(value, Condition | Message) else value


def _check_condition(text: str) -> str | None:
    from tickwork.core.base.errors import Refused
    from tickwork.core.definition.cel import Condition as Compiled

    try:
        Compiled.compile(text)
    except Refused as refused:
        return f"the condition {text[:200]!r} {refused.message}"
    return None


def _placed(problem: Problem, workflow: "Workflow[..., Any]", builder: Builder) -> Problem:
    match = _POSITION.match(problem.path)
    location = builder.records[int(match[1])].location if match else workflow.where
    return Problem(problem.path, problem.code, f"{problem.message}\n    {location}")


def _settle_ids(records: list[NodeRecord]) -> None:
    """What was named keeps its name; the others get the next free one: fetch, fetch_2."""
    taken: dict[str, NodeRecord] = {}
    for record in (record for record in records if record.named):
        twin = taken.setdefault(record.base.casefold(), record)
        if twin is not record:
            message = (
                f"two nodes are named {record.base!r}; the other one is at {twin.location.file}:{twin.location.line}"
            )
            raise placed("duplicate_id", message, record.location)
        record.id = record.base
    counts: dict[str, int] = {}
    for record in (record for record in records if not record.named):
        base = record.base
        number = counts.get(base.casefold(), 0) + 1
        record.id = base if number == 1 else f"{base}_{number}"
        while record.id.casefold() in taken or record.id.casefold() in RESERVED_NODE_IDS:
            number += 1
            record.id = f"{base}_{number}"
        counts[base.casefold()] = number
        taken[record.id.casefold()] = record


def _rendered_args(args: Mapping[str, Any]) -> dict[str, Argument]:
    return {
        name: Argument(source=arg._tw_reference()) if isinstance(arg, Value) else Argument(value=arg.value)
        for name, arg in args.items()
    }
