"""tickwork: a deterministic scheduler whose every decision is recorded and can be replayed."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.sdk.surface import Context, StepsChanged, Task, Unsendable, context, instance, task

__all__ = ["Context", "StepsChanged", "Task", "Unsendable", "context", "instance", "task"]


def __getattr__(name: str) -> Any:
    """Loaded when first asked for: a server that never touches the SDK does not pay for it."""
    if name not in __all__:
        raise AttributeError(f"module 'tickwork' has no attribute {name!r}")
    from tickwork.sdk import surface

    return getattr(surface, name)
