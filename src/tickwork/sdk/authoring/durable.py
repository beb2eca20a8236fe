"""`@durable`: an asynchronous function whose steps and awaits are recorded; and tasks as workflows of one node.

Both are workflows for the server, the client and other workflows. A durable function may call any task of its
application, so an application with one publishes a workflow for each of its tasks.
"""

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from types import CodeType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from tickwork.core.base.errors import Refused
from tickwork.core.base.names import check_name
from tickwork.sdk.authoring.follow_ups import Handler
from tickwork.sdk.authoring.graph_builder import Builder, id_base
from tickwork.sdk.authoring.placeholders import Node, Value
from tickwork.sdk.authoring.schedules import Schedule
from tickwork.sdk.authoring.source_location import SourceLocation, at_place, here, placed
from tickwork.sdk.authoring.tasks import BoundTask, Task
from tickwork.sdk.authoring.useless_code import check_durable
from tickwork.sdk.authoring.workflows import Workflow, settings_of, written
from tickwork.sdk.values.signature_codec import Codec

if TYPE_CHECKING:
    from tickwork.sdk.durable.function import Durable

P = ParamSpec("P")
R = TypeVar("R")

Duration = str | timedelta
TASK_PREFIX = "task."  # of the workflow that runs one task


class DurableFunction(Workflow[P, R]):
    """A durable function. Workers know it by the name of its workflow."""

    @property
    def codec(self) -> Codec:
        if self._codec is None:
            codec = Codec.of(self.function, name=self.name, bound=self.kind != "plain")
            if not codec.is_durable:
                message = f"{self.name} takes no tw.Durable, and calls its steps on it"
                if codec.context_name:
                    message = f"{self.name} takes a tw.Context, and a durable function calls its steps on a tw.Durable"
                raise placed("bad_durable", f"{message}; write async def f(ctx: tw.Durable, ...)", self.where)
            self._codec = codec
        return self._codec

    @property
    def handler_function(self) -> Callable[..., Any]:
        """What workers run."""
        bound: Callable[..., Any] = self.function if self.owner is None else self.function.__get__(self.owner)
        return bound

    def tasks(self) -> list[tuple[Any, Any]]:
        """The tasks that its code names: it may call them."""
        named = [thing for thing in _named_by(self.function) if isinstance(thing, Task | BoundTask)]
        pairs = [(thing.task, thing.owner) if isinstance(thing, BoundTask) else (thing, None) for thing in named]
        return [(task, owner) for task, owner in pairs if owner is not None or not task.looks_like_method()]

    def children(self) -> list[Workflow[..., Any]]:
        """The workflows that its code names, and those that follow its end."""
        named = [thing for thing in _named_by(self.function) if isinstance(thing, Workflow) and thing is not self]
        return [*super().children(), *named]

    def _check(self, function: Any, location: SourceLocation) -> None:
        if not inspect.iscoroutinefunction(inspect.unwrap(function)):
            name = getattr(function, "__qualname__", repr(function))
            message = f"{name} is not asynchronous, and a durable function awaits its steps"
            raise placed("bad_durable", f"{message}; write async def {name}(ctx: tw.Durable, ...)", location)

    def _describe(self, builder: Builder) -> None:
        check_durable(self.function, self.codec.context_name)
        args = {name: Value(f"inputs.{name}") for name in self.codec.parameters}
        fields = {"handler": self.name, "handler_version": "", "durable": True}
        if "budget" in self.settings:
            fields["budget"] = self.settings["budget"]
        record = builder.add("task", id_base(self.function, self.name), location=self.where, fields=fields, args=args)
        builder.output = Node(record)

    def __repr__(self) -> str:
        return f"<durable function {self.name}>"


class TaskWorkflow(Workflow[P, R]):
    """A workflow that runs one task and returns its result."""

    def __init__(self, task: Task[P, R], owner: Any = None) -> None:
        code = getattr(inspect.unwrap(task.function), "__code__", None)
        location = SourceLocation(code.co_filename, code.co_firstlineno) if code else here()
        name = at_place(task_workflow_name, task.handler_name(owner), location=location)
        self.task, self.task_owner = task, owner
        self.kind = "plain"  # its task may be a method, but the workflow stands for itself
        self._set_up(task.function, name=name, settings=settings_of({}, where=name), location=location)

    @property
    def codec(self) -> Codec:
        return self.task.codec

    def _describe(self, builder: Builder) -> None:
        given = {name: Value(f"inputs.{name}") for name in self.codec.parameters}
        builder.output = builder.task(self.task, self.task_owner, (), given)

    def __repr__(self) -> str:
        return f"<workflow of {self.task!r}>"


def _named_by(function: Callable[..., Any]) -> list[Any]:
    """Tasks and workflows that the code of a function names, or that of functions of its module which it names."""
    named: dict[int, Any] = {}
    todo, seen = [inspect.unwrap(function)], set()
    for inner in todo:  # grows while we walk it
        seen.add(inner)
        for thing in _values_of(inner):
            if isinstance(thing, Task | BoundTask | Workflow):
                named[id(thing)] = thing
            elif inspect.isfunction(thing) and thing.__module__ == function.__module__ and thing not in seen:
                todo.append(thing)
    return list(named.values())


def _values_of(function: Any) -> list[Any]:
    names = _names_of(function.__code__)
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    values = [known[name] for name in names if name in known]
    for value in list(values):  # a table of tools
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    holders = [value for value in values if inspect.ismodule(value) or isinstance(value, type)]
    return values + [getattr(holder, name, None) for holder in holders for name in names if name in vars(holder)]


def _names_of(code: CodeType) -> dict[str, None]:
    """In order, without repetition; also of the functions written inside."""
    names = dict.fromkeys((*code.co_names, *code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_of(constant)
    return names


def task_workflow_name(handler: str) -> str:
    """The name of the workflow that runs this task. Raises `Refused` where the task's name cannot be part of it."""
    name = handler.replace("<locals>.", "").replace("@", ".")
    try:
        return check_name(TASK_PREFIX + name, path="name", kind="workflow")
    except Refused as refused:
        message = f"the task {handler!r} cannot run by itself: {refused.message}; give it another: @tw.task(name=...)"
        raise Refused(refused.code, message) from None


def as_workflow(thing: Any) -> Workflow[..., Any]:
    """A workflow as it is; a task as a workflow of its own."""
    if isinstance(thing, Workflow):
        return thing
    if isinstance(thing, BoundTask):
        return TaskWorkflow(thing.task, thing.owner)
    if isinstance(thing, Task):
        return TaskWorkflow(thing)
    what = getattr(thing, "__qualname__", "") or repr(thing)
    raise Refused("wrong_type", f"{what} is not a workflow, durable function or task; decorate it, or give its name")


@overload
def durable(function: Callable[Concatenate["Durable", P], Coroutine[Any, Any, R]], /) -> DurableFunction[P, R]: ...
@overload
def durable(function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableFunction[P, R]: ...
@overload
def durable(
    *,
    schedule: Schedule | Sequence[Schedule] | None = None,
    name: str = "",
    retries: int | None = None,
    retry_delay: Duration | None = None,
    timeout: Duration | None = None,
    task_timeout: Duration | None = None,
    queue: str | None = None,
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    concurrency: int | tuple[int, str] | None = None,
    singleton: bool | str = False,
    second: str | None = None,
    rate: tuple[int, Duration] | tuple[int, Duration, str] | None = None,
    over: str | None = None,
    sla: Duration | tuple[Duration, Duration] | None = None,
    overlap: str = "allow",
    description: str = "",
    tags: Sequence[str] = (),
    search: Sequence[str] = (),
    on_failure: Handler = None,
    on_success: Handler = None,
    budget: int | None = None,
) -> "_Decorator": ...
def durable(function: Any = None, /, *, name: str = "", **options: Any) -> Any:
    """Makes an asynchronous function durable: `@durable`, or `@durable(schedule=tw.every("5m"))`.

    Its calls on `tw.Durable` are recorded, so that it goes on after a crash, on any worker, and holds nothing while it
    waits. The options are those of `@workflow`, without policies; `task_timeout` limits one attempt, that is the time
    from one wait to the next, and `retries` is for errors that leave the function. `budget` is what its steps may cost
    (`ctx.step(..., cost="tokens")`): then the run is paused before its next step, and each time that a person resumes
    it, it may spend as much again.
    """
    location = here()
    where = name or getattr(function, "__name__", "durable")
    if "policy" in options:
        raise placed("bad_option", f"{where}: a durable function has no policy; check in a step", location)
    budget = options.pop("budget", None)
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int) or budget < 1):
        message = (
            f"{where}: a budget is what the steps may cost until the run is paused, a whole number, not {budget!r}"
        )
        raise placed("bad_option", message, location)
    settings = at_place(settings_of, options, where=where, location=location) | ({"budget": budget} if budget else {})

    def decorate(target: Any) -> Any:
        return DurableFunction(target, name=name, settings=settings, location=written(target) or location)

    return decorate if function is None else decorate(function)


class _Decorator:
    """The type of `durable(...)` for type checkers."""

    @overload
    def __call__(
        self, function: Callable[Concatenate["Durable", P], Coroutine[Any, Any, R]], /
    ) -> DurableFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DurableFunction[P, R]: ...
    def __call__(self, function: Any, /) -> Any:  # noqa: ARG002 - the name is part of the type
        raise AssertionError("only its type is used")
