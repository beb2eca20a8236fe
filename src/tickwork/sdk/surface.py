"""The names of the SDK in one place, for `tickwork.__getattr__`."""

from tickwork.core.base.errors import Conflict, InvalidDefinition, OutcomeUnknown, Refused, TickworkError, Unavailable
from tickwork.sdk.assets import Asset, Update, asset, materialized
from tickwork.sdk.authoring.declared import instance
from tickwork.sdk.authoring.durable import DurableFunction, durable
from tickwork.sdk.authoring.follow_ups import FailedNode, Failure, Success
from tickwork.sdk.authoring.mailboxes import Mailbox, mailbox
from tickwork.sdk.authoring.maps import entries, product
from tickwork.sdk.authoring.maps import zip_lists as zip  # noqa: A004 - it is `tw.zip`
from tickwork.sdk.authoring.nodes import (
    approval,
    branch,
    event,
    exit_when,
    first,
    form,
    http,
    publish,
    repeat,
    shell,
    switch,
    teardown,
    text,
    wait,
)
from tickwork.sdk.authoring.placeholders import Node, cel, index, item, iteration, node, previous
from tickwork.sdk.authoring.schedules import Schedule, at, cron, ended, every, incoming, on, rrule
from tickwork.sdk.authoring.tasks import Task, task
from tickwork.sdk.authoring.workflows import Workflow, workflow
from tickwork.sdk.context import Context, Permanent, Skip, StepsChanged, context
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.durable.outcomes import CallFailed, Cancelled, Decision, First, FormResult, Message, StepFailed
from tickwork.sdk.values.encode import Unsendable

__all__ = [
    "Asset",
    "CallFailed",
    "Cancelled",
    "Conflict",
    "Context",
    "Decision",
    "Durable",
    "DurableFunction",
    "FailedNode",
    "Failure",
    "First",
    "FormResult",
    "InvalidDefinition",
    "Mailbox",
    "Message",
    "Node",
    "OutcomeUnknown",
    "Permanent",
    "Refused",
    "Schedule",
    "Skip",
    "StepFailed",
    "StepsChanged",
    "Success",
    "Task",
    "TickworkError",
    "Unavailable",
    "Unsendable",
    "Update",
    "Workflow",
    "approval",
    "asset",
    "at",
    "branch",
    "cel",
    "context",
    "cron",
    "durable",
    "ended",
    "entries",
    "event",
    "every",
    "exit_when",
    "first",
    "form",
    "http",
    "incoming",
    "index",
    "instance",
    "item",
    "iteration",
    "mailbox",
    "materialized",
    "node",
    "on",
    "previous",
    "product",
    "publish",
    "repeat",
    "rrule",
    "shell",
    "switch",
    "task",
    "teardown",
    "text",
    "wait",
    "workflow",
    "zip",
]
