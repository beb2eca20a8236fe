"""`@task`: a function that workers run.

The decorated object is still the function: called outside of a workflow it just runs. While a workflow is
being built, the same call adds a node instead, and what it returns stands for the result to come.
"""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast, overload

from tickwork.core.base.errors import Refused
from tickwork.sdk.assets import Asset, producing
from tickwork.sdk.authoring.declared import declare, instance_name
from tickwork.sdk.authoring.maps import Entries, parameters_for, plain_loop
from tickwork.sdk.authoring.options import Options, task_options
from tickwork.sdk.authoring.placeholders import as_condition
from tickwork.sdk.authoring.required_approvals import check_message
from tickwork.sdk.authoring.source_location import at_place
from tickwork.sdk.context import Context, current, running
from tickwork.sdk.values.signature_codec import Codec, place_of

if TYPE_CHECKING:
    from tickwork.sdk.authoring.graph_builder import NodeRecord

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Duration = str | int | timedelta
Errors = type[BaseException] | str | Sequence[type[BaseException] | str]
Executor = Literal["process", "thread"]


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What one call says of its node."""

    id: str = ""
    after: Any = ()
    when: Any = None
    on: str = ""

    def apply(self, record: "NodeRecord") -> None:
        if self.id:
            record.rename(self.id)
        if self.after is not None:
            record.start_after(self.after)
        if self.when is not None:
            record.only_when(as_condition(self.when))
        if self.on:
            record.trigger_on(self.on)


class Task(Generic[P, R]):
    """A function under the name by which workers know it."""

    __wrapped__: Callable[..., Any]
    name: str
    location: str

    def __init__(self, function: Any, options: Options, *, name: str = "", executor: Executor = "process") -> None:
        self.kind = "plain"  # or "instance", "class"
        self._static = isinstance(function, staticmethod)
        if isinstance(function, classmethod | staticmethod):
            self.kind = "class" if isinstance(function, classmethod) else "plain"
            function = function.__func__
        if isinstance(function, Task):
            raise Refused("bad_task", f"{function.name} is a task already; remove one @task ({function.location})")
        if not callable(function) or isinstance(function, type):
            raise Refused("bad_task", f"@task is for functions, not for {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            message = f"{function.__qualname__} yields, and a task gives one result at its end"
            raise Refused("bad_task", f"{message}; return a list ({place_of(function)})")
        self.function: Callable[..., Any] = producing(function, options.produces) if options.produces else function
        self.location = place_of(function)
        self.options = options
        self.extras = CallOptions()
        self.executor: Executor = executor
        self.owner: type | None = None  # the class it is written in
        self._name = name
        self._codec: Codec | None = None
        self.name = name or self._own_name(function)
        update_wrapper(self, function)
        if not self.looks_like_method():
            self.codec  # noqa: B018 - a signature that cannot work is an error where it is written
            check_message(self)
        declare(self)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(inspect.unwrap(self.function))

    @property
    def codec(self) -> Codec:
        if self._codec is None:
            codec = Codec.of(self.function, name=self.name, bound=self.kind != "plain")
            if codec.is_durable:
                message = f"{self.name} takes a tw.Durable, which only a durable function has"
                raise Refused(
                    "bad_task", f"{message}; decorate it with @tw.durable, or take a tw.Context ({self.location})"
                )
            self._codec = codec
        return self._codec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self._call(None, args, kwargs))

    @overload
    def map(
        self, over: Entries, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> dict[str, R]: ...
    @overload
    def map(
        self, over: Iterable[Any], /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> list[R]: ...
    def map(self, over: Any, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any) -> Any:
        """One call per item of a list, side by side; gives the list of results in the order of the items.

        The items go to the first parameter that `constants` does not name. `tw.zip(a, b)` and `tw.product(a, b)` go
        over several lists, `tw.entries(d)` over a dict, which gives a dict. Outside of a workflow it is a plain loop.
        `tolerate` failed children still let it succeed. `max_parallel` is a number, or a value to come.
        """
        return self._map(None, over, max_parallel, tolerate, constants)

    def using(
        self,
        *,
        id: str = "",  # noqa: A002 - the word of the document
        after: Any = (),
        when: Any = None,
        on: str = "",
        **options: Any,
    ) -> "Task[P, R]":
        """The same task with other options for one call, and a place in the workflow:

        fetch.using(retries=9, id="first", after=[setup], when=total > 100)(day)
        """
        changed = Task.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed.options = self.options.replaced(at_place(task_options, options, where=self.name))
        changed.extras = CallOptions(id, after, when, on)
        check_message(changed)
        return changed

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner = owner
        if self.kind == "plain" and not self._static and self.looks_like_method():
            self.kind = "instance"
        self._codec = None

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if isinstance(instance, type) and self._is_unbound_method():  # @classmethod above @task, before 3.13
            self.kind, self._codec = "class", None
        if self.kind == "class":
            bound_to = instance if isinstance(instance, type) else owner or type(instance)
            return BoundTask(self, bound_to)
        if self.kind == "plain" or instance is None:
            return self
        return BoundTask(self, instance)

    def become_class_method(self, owner: type) -> None:
        """@classmethod stands above @task in this class."""
        self.kind, self.owner, self._codec = "class", owner, None

    def _is_unbound_method(self) -> bool:
        """Whether it is written like a method in a class that has not named it: another decorator is above it."""
        return self.kind == "plain" and self.owner is None and self.looks_like_method()

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    def handler_name(self, owner: Any) -> str:
        """The name for workers. Of a method it also says which class or which registered instance."""
        if owner is None:
            return self.name
        if isinstance(owner, type):
            return self._name or f"{stem_of(owner.__module__)}.{owner.__qualname__}.{self.function.__name__}"
        name = instance_name(owner)
        if not name:
            message = f"{self.name} is a method, and workers cannot know this {type(owner).__name__} object"
            raise Refused("unknown_instance", f'{message}; register it once: tw.instance("a name", the_object)')
        return f"{self.name}@{name}"

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any], Callable[[Any], Any]]:
        """For a durable function that calls it: its workflow, its inputs, and what makes the result of the plain
        value."""
        from tickwork.sdk.authoring.durable import TaskWorkflow

        return TaskWorkflow(self).called(args, kwargs)

    def looks_like_method(self) -> bool:
        """Whether it is written in a class, with a first parameter that gets no value."""
        if self.kind == "class":
            return True
        parent = self.function.__qualname__.rpartition(".")[0] if hasattr(self.function, "__qualname__") else ""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        first = code.co_varnames[0] if code and code.co_argcount else ""
        return bool(parent) and not parent.endswith("<locals>") and first in ("self", "cls")

    def _own_name(self, function: Callable[..., Any]) -> str:
        inner = inspect.unwrap(function)
        name = getattr(inner, "__qualname__", "")
        if not name or "<lambda>" in name:
            what = "a lambda" if name else f"{function!r}"
            message = f"{what} has no name that workers could know it by; give one: tw.task(..., name='double')"
            raise Refused("bad_task", f"{message} ({self.location})" if self.location else message)
        return f"{stem_of(inner.__module__)}.{name}"

    def _call(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        from tickwork.sdk.authoring.graph_builder import active

        if owner is None and args and isinstance(args[0], type) and self._is_unbound_method():
            owner, args = args[0], args[1:]  # @classmethod above @task, from 3.13 on
            self.kind, self._codec = "class", None
        builder = active()
        if builder is not None:
            return builder.task(self, owner, args, kwargs)
        if owner is None and self.kind != "plain" and args:  # Loader.fetch(loader, day)
            owner, args = args[0], args[1:]
        return self._run(owner, args, kwargs)

    def _run(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the task as an ordinary function, with a context of its own if there is none."""
        function = self.function if owner is None else self.function.__get__(owner)
        here = current()
        local = here or Context(node=self.name)
        context_name = self.codec.context_name
        if context_name and context_name not in kwargs and not any(isinstance(arg, Context) for arg in args):
            parameters = inspect.signature(function).parameters
            index = list(parameters).index(context_name)
            if index < len(args) and parameters[context_name].kind is not inspect.Parameter.KEYWORD_ONLY:
                args = (*args[:index], local, *args[index:])
            else:
                kwargs = {**kwargs, context_name: local}
        if here is not None:
            return function(*args, **kwargs)
        if self.is_async:
            return _awaited(function, args, kwargs, local)
        with running(local):
            return function(*args, **kwargs)

    def _map(self, owner: Any, over: Any, max_parallel: Any, tolerate: int, constants: dict[str, Any]) -> Any:
        from tickwork.sdk.authoring.graph_builder import active

        if owner is None and self._is_unbound_method():
            message = f"{self.name} is a method of a class that has not been loaded as part of an application"
            raise Refused("bad_task", f"{message}; write @tw.task above @classmethod ({self.location})")
        builder = active()
        if builder is not None:
            return builder.map_task(self, owner, over, constants, max_parallel=max_parallel, tolerate=tolerate)
        names = parameters_for(over, constants, self.codec.item_name)
        return plain_loop(over, names, lambda parts: self._run(owner, (), {**parts, **constants}))


class BoundTask(Generic[P, R]):
    """A task that is a method, together with its class or its object."""

    def __init__(self, task: Task[P, R], owner: Any) -> None:
        self.task = task
        self.owner = owner

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.task._call(self.owner, args, kwargs))

    @overload
    def map(
        self, over: Entries, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> dict[str, R]: ...
    @overload
    def map(
        self, over: Iterable[Any], /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> list[R]: ...
    def map(self, over: Any, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any) -> Any:
        """Like `Task.map`."""
        return self.task._map(self.owner, over, max_parallel, tolerate, constants)

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any], Callable[[Any], Any]]:
        """Like `Task.called`."""
        from tickwork.sdk.authoring.durable import TaskWorkflow

        return TaskWorkflow(self.task, self.owner).called(args, kwargs)

    def __repr__(self) -> str:
        return f"<task {self.task.name} of {self.owner!r}>"


class AsyncTask(Task[P, T]):
    """A task whose function is asynchronous: awaited in a test, a plain value in a workflow."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._call(None, args, kwargs)


async def _awaited(
    function: Callable[..., Coroutine[Any, Any, T]], args: tuple[Any, ...], kwargs: dict[str, Any], local: Context
) -> T:
    with running(local):
        return await function(*args, **kwargs)


# A context that comes first is filled in, so callers do not give it. A first parameter that takes any object would take
# a context too, but callers give it: of such a function only the result is checked. The overlap that mypy sees between
# the second overload and the third is what the first one takes.
@overload
def task(function: Callable[Concatenate[object, ...], Coroutine[Any, Any, T]], /) -> AsyncTask[..., T]: ...
@overload
def task(  # type: ignore[overload-overlap]
    function: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
) -> AsyncTask[P, T]: ...
@overload
def task(function: Callable[Concatenate[object, ...], R], /) -> Task[..., R]: ...
@overload
def task(function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
@overload
def task(function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...
@overload
def task(function: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(
    *,
    retries: int = ...,
    timeout: Duration = ...,
    queue: str = ...,
    labels: Mapping[str, str] = ...,
    priority: int = ...,
    name: str = ...,
    executor: Executor = ...,
    retry_delay: Duration = ...,
    retry_factor: int = ...,
    retry_max: Duration = ...,
    retry_on: Errors | Mapping[type[BaseException] | str, Duration] = ...,
    fail_on: Errors = ...,
    cache: bool | Duration = ...,
    slots: int = ...,
    cpu: float = ...,
    memory: int | str = ...,
    gpu: int = ...,
    queued_timeout: Duration = ...,
    silent_timeout: Duration = ...,
    dependency: str = ...,
    version: str = ...,
    on_worker_loss: Literal["fail", "retry"] = ...,
    requires_approval: bool | str = ...,
    approvers: Sequence[str] = ...,
    four_eyes: bool = ...,
    approval_timeout: Duration = ...,
    produces: "Asset | str | Sequence[Asset | str]" = ...,
) -> "_Decorator": ...
def task(function: Any = None, /, *, name: str = "", executor: Executor = "process", **options: Any) -> Any:
    """Makes a function a task: `@task`, or `@task(retries=3, timeout="5m")`.

    retries         how often it is tried again after a failure; none unless said
    retry_delay     before the first retry; `retry_factor` times longer before each next, at most `retry_max`
    retry_on        only these errors are tried again, and errors derived from them: exceptions or their names; with
                    delays of their own, {RateLimited: "1m"}. `fail_on`: these are not; the more special one counts
    timeout         of one attempt; `silent_timeout`: without progress or checkpoint; `queued_timeout`: unstarted
    queue, labels   which workers may run it; `priority` 0 to 9; `slots`, `cpu`, `memory`, `gpu`: what it takes
    cache           True, or for how long a result for the same arguments is used again; `version` makes it new
    dependency      what it calls upon: tasks with the same one share a retry budget
    on_worker_loss  "retry" unless said: a task whose worker is lost runs again, whatever `retries` is. "fail": it may
                    have run, so it fails and waits for a person; its code runs at most once for each retry
    requires_approval  a person approves before it runs, wherever it is called: True, or a message with parameters,
                    "Pay {amount} to {account}?". `approvers`: who may; `four_eyes`: not the submitter of the run;
                    `approval_timeout`: without an answer until then, the run fails
    produces        assets, made by tw.asset, that have new data when the task has succeeded; it may return
                    tw.materialized(...) to say more about it
    executor        "process", or "thread" for code that mostly waits
    name            for workers, instead of module and function name
    """

    def decorate(target: Any) -> Any:
        if executor not in ("process", "thread"):
            raise Refused("bad_task", f"an executor is 'process' or 'thread', not {executor!r}")
        where = name or getattr(target, "__qualname__", "task")
        inner = getattr(target, "__func__", target)
        kind = AsyncTask if inspect.iscoroutinefunction(inspect.unwrap(inner)) else Task
        return kind(target, task_options(options, where=where), name=name, executor=executor)

    return decorate if function is None else decorate(function)


class _Decorator:
    """The type of `task(...)` for type checkers."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[object, ...], Coroutine[Any, Any, T]], /
    ) -> AsyncTask[..., T]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
    ) -> AsyncTask[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[object, ...], R], /) -> Task[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> AsyncTask[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...
    def __call__(self, function: Any, /) -> Any:  # noqa: ARG002 - the name is part of the type
        raise AssertionError("this class exists for type checkers only")


def stem_of(module: str) -> str:
    """`app` of `app`, `b` of `a.b`; the module that Python was started with is known by its file."""
    if module == "__main__":
        import sys
        from pathlib import Path

        return Path(getattr(sys.modules["__main__"], "__file__", None) or "main").stem
    return module.rpartition(".")[2]
