"""What has been decorated in this process, in order, and the objects whose methods are tasks."""

from typing import Any, TypeVar

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name

T = TypeVar("T")

DECLARED: list[Any] = []  # tasks and workflows; an application is what was added while it was loaded
INSTANCES: dict[str, Any] = {}


def declare(thing: Any) -> None:
    DECLARED.append(thing)


def instance(name: str, target: T, /) -> T:
    """Makes the methods of one object usable as tasks: a worker finds the object again by `name`.

    Call it at the top of the module, so that every worker that loads the module makes the same object.
    """
    check_name(name, path="instance", kind="instance")
    known = INSTANCES.get(name)
    if known is not None and known is not target and _same_origin(known, target):
        raise Refused("instance_twice", f"two objects are registered as {name!r}; give each a name of its own")
    INSTANCES[name] = target
    return target


def instance_name(target: Any) -> str:
    """Empty where it was never registered."""
    return next((name for name, known in INSTANCES.items() if known is target), "")


def _same_origin(known: Any, target: Any) -> bool:
    """A module that is loaded again has new classes: they replace the previous ones."""
    return type(known) is type(target) or type(known).__module__ != type(target).__module__
