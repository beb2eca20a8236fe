"""`@workflow(on_failure=..., on_success=...)`: what runs when a run has ended, and what it learns.

The handler is a task or a workflow that takes one argument, or none. A task becomes a workflow of its own, with one
node, because what follows a run is a run: it has retries, logs and a history.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tickwork.core.definition.model import FollowUp
from tickwork.sdk.authoring.source_location import SourceLocation, placed
from tickwork.sdk.authoring.tasks import BoundTask, Task
from tickwork.sdk.values.signature_codec import Codec

if TYPE_CHECKING:
    from tickwork.sdk.authoring.workflows import Workflow


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that failed. `error` is the type of its last error; `message` is how the message begins."""

    node: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class Failure:
    """How a run failed, for the handler that `on_failure` names. `nodes` are the first ten that failed; none where the
    run itself did, as by its `timeout`: `cause` is "failed" or "timed_out", and `reason` says it in words."""

    run: str
    workflow: str
    cause: str
    reason: str
    nodes: list[FailedNode] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{node.node}: {node.error}: {node.message}".rstrip(": ") for node in self.nodes]
        return "\n  ".join([f"{self.workflow} {self.run}: {self.reason}", *lines])


@dataclass(frozen=True, slots=True)
class Success:
    """A run that completed, for the handler that `on_success` names."""

    run: str
    workflow: str


_REPORTS: dict[str, tuple[str, type]] = {"on_failure": ("failure", Failure), "on_success": ("success", Success)}
Handler = Any  # a task or a workflow


def follow_up(
    option: str, handler: Handler, *, name: str, location: SourceLocation, make: Callable[..., "Workflow[..., Any]"]
) -> "tuple[FollowUp, Workflow[..., Any]]":
    """What the document says of a handler, and the workflow that has to be published for it. `make` makes a workflow
    of a function."""
    if isinstance(handler, Task | BoundTask):
        codec = (handler.task if isinstance(handler, BoundTask) else handler).codec
        parameter = _parameter(codec, option, location)
        word, report = _REPORTS[option]
        word = word if parameter else ""
        described = make(_calling(handler, word, report), name=f"{name}.{option}")
        return FollowUp(workflow=described.name, input=word), described
    if not hasattr(handler, "timetables"):
        message = f"{option} names a task or a workflow, not {handler!r}"
        raise placed("bad_option", f"{message}; @tw.task makes one of a function", location)
    return FollowUp(workflow=handler.name, input=_parameter(handler.codec, option, location)), handler


def _parameter(codec: Codec, option: str, location: SourceLocation) -> str:
    """The parameter that gets the report; "" if there is none."""
    required = [parameter.name for parameter in codec.parameters.values() if parameter.required]
    if len(required) > 1:
        message = f"{codec.name} takes {', '.join(required)}, but {option} gives one argument"
        raise placed("bad_option", f"{message}: tw.{_REPORTS[option][1].__name__}", location)
    return (required or [*codec.parameters, ""])[0]


def _calling(handler: Handler, word: str, report: type) -> Callable[..., Any]:
    """The function of a workflow whose only node is this task; without a word, it takes nothing."""

    def describe(**report_by_name: Any) -> None:
        handler(*report_by_name.values())

    parameters = [inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, annotation=report)] if word else []
    describe.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return describe
