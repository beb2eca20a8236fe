"""Which functions may be steps, and how their steps are named."""

from typing import Any

from tickwork.core.base.errors import Refused

NAME_CHARACTERS_MAX = 500


def step_name(fn: Any, name: str | None = None) -> str:
    """The name of a step: the given one, or that of its function."""
    if name is None:
        inner = getattr(fn, "func", fn)  # of a functools.partial
        name = getattr(inner, "__name__", "") or type(inner).__name__
    if not isinstance(name, str) or not name:
        raise Refused("bad_step", f"the name of a step is a text, not {name!r}")
    return name[:NAME_CHARACTERS_MAX]


def refuse_step(fn: Any) -> None:
    """A step runs at once, so it cannot be a task that a person approves first. Raises `Refused`."""
    task = getattr(fn, "task", fn)  # of a method
    if getattr(getattr(task, "options", None), "approval", None) is not None:
        message = f"{task.name} requires an approval, which a step does not ask for"
        raise Refused("bad_step", f"{message}; write ctx.call({task.function.__name__}, ...)")
