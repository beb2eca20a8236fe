"""The names of the SDK in one place, for `tickwork.__getattr__`."""

from tickwork.core.base.errors import Conflict, InvalidDefinition, OutcomeUnknown, Refused, TickworkError, Unavailable
from tickwork.sdk.context import Context, StepsChanged, context
from tickwork.sdk.declared import instance
from tickwork.sdk.nodes import approval, branch, event, http, repeat, shell, wait
from tickwork.sdk.placeholders import Node, cel, index, item, iteration, node, previous
from tickwork.sdk.plain import Unsendable
from tickwork.sdk.schedules import Schedule, at, cron, every, rrule
from tickwork.sdk.tasks import Task, task
from tickwork.sdk.workflows import Workflow, workflow

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
