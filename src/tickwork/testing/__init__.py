"""For tests of users: a world in which workflows run immediately, in virtual time."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tickwork.testing.runs import Run, TaskView
    from tickwork.testing.world import World

__all__ = ["Run", "TaskView", "World"]


def __getattr__(name: str) -> Any:
    """Load names at first use: pytest loads the plugin in every project that has tickwork installed."""
    if name not in __all__:
        raise AttributeError(f"module 'tickwork.testing' has no attribute {name!r}")
    from tickwork.testing import runs, world

    return getattr(world if name == "World" else runs, name)
