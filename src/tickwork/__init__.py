"""tickwork: a deterministic scheduler whose every decision is recorded and can be replayed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.compose.embedded import embedded
    from tickwork.sdk.client.async_client import AsyncClient
    from tickwork.sdk.client.calls import BatchRefused, Handle, NoReply, RunFailed, StillRunning, UpdateRefused
    from tickwork.sdk.client.client import Client
    from tickwork.sdk.client.connection import OtherStore
    from tickwork.sdk.client.enqueue import enqueue, enqueue_async
    from tickwork.sdk.client.submission_options import Options
    from tickwork.sdk.surface import (
        CallFailed,
        Cancelled,
        Conflict,
        Context,
        Decision,
        Durable,
        DurableFunction,
        FailedNode,
        Failure,
        First,
        FormResult,
        InvalidDefinition,
        Mailbox,
        Message,
        Node,
        OutcomeUnknown,
        Permanent,
        Refused,
        Schedule,
        Skip,
        StepFailed,
        StepsChanged,
        Success,
        Task,
        TickworkError,
        Unavailable,
        Unsendable,
        Workflow,
        approval,
        at,
        branch,
        cel,
        context,
        cron,
        durable,
        entries,
        event,
        every,
        exit_when,
        first,
        form,
        http,
        index,
        instance,
        item,
        iteration,
        mailbox,
        node,
        previous,
        product,
        repeat,
        rrule,
        shell,
        switch,
        task,
        teardown,
        text,
        wait,
        workflow,
        zip,  # noqa: A004 - it is `tw.zip`
    )

__all__ = [
    "AsyncClient",
    "BatchRefused",
    "CallFailed",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "Decision",
    "Durable",
    "DurableFunction",
    "FailedNode",
    "Failure",
    "First",
    "FormResult",
    "Handle",
    "InvalidDefinition",
    "Mailbox",
    "Message",
    "NoReply",
    "Node",
    "Options",
    "OtherStore",
    "OutcomeUnknown",
    "Permanent",
    "Refused",
    "RunFailed",
    "Schedule",
    "Skip",
    "StepFailed",
    "StepsChanged",
    "StillRunning",
    "Success",
    "Task",
    "TickworkError",
    "Unavailable",
    "Unsendable",
    "UpdateRefused",
    "Workflow",
    "approval",
    "at",
    "branch",
    "cel",
    "context",
    "cron",
    "durable",
    "embedded",
    "enqueue",
    "enqueue_async",
    "entries",
    "event",
    "every",
    "exit_when",
    "first",
    "form",
    "http",
    "index",
    "instance",
    "item",
    "iteration",
    "mailbox",
    "node",
    "previous",
    "product",
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


_MODULES = {
    "AsyncClient": "tickwork.sdk.client.async_client",
    "BatchRefused": "tickwork.sdk.client.calls",
    "Client": "tickwork.sdk.client.client",
    "Handle": "tickwork.sdk.client.calls",
    "NoReply": "tickwork.sdk.client.calls",
    "Options": "tickwork.sdk.client.submission_options",
    "OtherStore": "tickwork.sdk.client.connection",
    "RunFailed": "tickwork.sdk.client.calls",
    "StillRunning": "tickwork.sdk.client.calls",
    "UpdateRefused": "tickwork.sdk.client.calls",
    "embedded": "tickwork.compose.embedded",
    "enqueue": "tickwork.sdk.client.enqueue",
    "enqueue_async": "tickwork.sdk.client.enqueue",
}  # of the names that are not in `tickwork.sdk.surface`


if not TYPE_CHECKING:  # a type checker reads the names above, and finds a misspelt one

    def __getattr__(name: str) -> Any:
        """Load the module of a public name at its first use: a server that never uses the SDK does not pay for it."""
        if name not in __all__:
            raise AttributeError(f"module 'tickwork' has no attribute {name!r}")
        return getattr(import_module(_MODULES.get(name, "tickwork.sdk.surface")), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
