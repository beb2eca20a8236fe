"""The names of the SDK in one place, for `tickwork.__getattr__`."""

from tickwork.core.base.errors import Conflict, InvalidDefinition, OutcomeUnknown, Refused, TickworkError, Unavailable
from tickwork.sdk.authoring.declared import instance
from tickwork.sdk.authoring.nodes import approval, branch, event, http, repeat, shell, wait
from tickwork.sdk.authoring.placeholders import Node, cel, index, item, iteration, node, previous
from tickwork.sdk.authoring.schedules import Schedule, at, cron, every, rrule
from tickwork.sdk.authoring.tasks import Task, task
from tickwork.sdk.authoring.workflows import Workflow, workflow
from tickwork.sdk.context import Context, StepsChanged, context
from tickwork.sdk.values.encode import Unsendable

__all__ = [
    "Conflict",
    "Context",
    "InvalidDefinition",
    "Node",
    "OutcomeUnknown",
    "Refused",
    "Schedule",
    "StepsChanged",
    "Task",
    "TickworkError",
    "Unavailable",
    "Unsendable",
    "Workflow",
    "approval",
    "at",
    "branch",
    "cel",
    "context",
    "cron",
    "event",
    "every",
    "http",
    "index",
    "instance",
    "item",
    "iteration",
    "node",
    "previous",
    "repeat",
    "rrule",
    "shell",
    "task",
    "wait",
    "workflow",
]
