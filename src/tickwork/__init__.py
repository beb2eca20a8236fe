"""tickwork: a deterministic scheduler whose every decision is recorded and can be replayed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.compose.embedded import embedded
    from tickwork.sdk.client.client import (
        AsyncClient,
        BatchRefused,
        Client,
        Handle,
        OtherStore,
        RunFailed,
        StillRunning,
    )
    from tickwork.sdk.surface import (
        Conflict,
        Context,
        InvalidDefinition,
        Node,
        OutcomeUnknown,
        Refused,
        Schedule,
        StepsChanged,
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
        event,
        every,
        http,
        index,
        instance,
        item,
        iteration,
        node,
        previous,
        repeat,
        rrule,
        shell,
        task,
        wait,
        workflow,
    )

__all__ = [
    "AsyncClient",
    "BatchRefused",
    "Client",
    "Conflict",
    "Context",
    "Handle",
    "InvalidDefinition",
    "Node",
    "OtherStore",
    "OutcomeUnknown",
    "Refused",
    "RunFailed",
    "Schedule",
    "StepsChanged",
    "StillRunning",
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
    "embedded",
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


_OF_CLIENT = frozenset(("AsyncClient", "BatchRefused", "Client", "Handle", "OtherStore", "RunFailed", "StillRunning"))


if not TYPE_CHECKING:  # a type checker reads the names above, and finds a misspelt one

    def __getattr__(name: str) -> Any:
        """Loaded when first asked for: a server that never touches the SDK does not pay for it."""
        if name not in __all__:
            raise AttributeError(f"module 'tickwork' has no attribute {name!r}")
        if name == "embedded":
            from tickwork.compose.embedded import embedded

            return embedded
        if name in _OF_CLIENT:
            from tickwork.sdk.client import client

            return getattr(client, name)
        from tickwork.sdk import surface

        return getattr(surface, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
