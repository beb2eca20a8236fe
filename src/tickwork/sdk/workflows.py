"""`@workflow`: a function whose call describes a graph of tasks."""

from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """A workflow and the function that builds it."""

    name: str
    place: str
    function: Callable[..., Any]
    schedule: Any = None

    def tasks(self) -> list[tuple[Any, Any]]:
        return []

    def children(self) -> "list[Workflow[..., Any]]":
        return []

    def document(self) -> bytes:
        raise NotImplementedError

    def timetable(self) -> Any:
        raise NotImplementedError
