"""`@workflow`: a function whose call describes a graph of tasks.

The function runs once, with placeholders for its parameters, and what it returns is the output. The same
call inside another workflow is a child run.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from msgspec.structs import replace

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.core.base.names import check_name
from tickwork.core.definition.model import Defaults, Definition, FollowUp, Overlap, Retry, Sla, Timeout
from tickwork.sdk.authoring import document_builder as render
from tickwork.sdk.authoring import useless_code
from tickwork.sdk.authoring.declared import declare, instance_name
from tickwork.sdk.authoring.follow_ups import Handler, follow_up
from tickwork.sdk.authoring.graph_builder import Builder, active, refuse_async
from tickwork.sdk.authoring.maps import Entries
from tickwork.sdk.authoring.options import (
    RETRY_OPTIONS,
    START_OPTIONS,
    duration,
    key_text,
    listed_tags,
    sla,
    start_limits,
    task_options,
)
from tickwork.sdk.authoring.placeholders import Value, refuse_future
from tickwork.sdk.authoring.schedules import Schedule
from tickwork.sdk.authoring.source_location import SourceLocation, at_place, here, placed, raised_at
from tickwork.sdk.authoring.tasks import BoundTask, CallOptions, Task
from tickwork.sdk.values.encode import plain
from tickwork.sdk.values.input_fields import input_fields
from tickwork.sdk.values.signature_codec import Codec

if TYPE_CHECKING:
    from tickwork.protocol.worker_messages import DeclaredSchedule

P = ParamSpec("P")
R = TypeVar("R")

Duration = str | timedelta
OnCancel = Literal["abandon", "cancel"]
SCHEDULED_TIME = "scheduled_time"  # the input that the engine fills for a scheduled run


class Workflow(Generic[P, R]):
    """A workflow by its name, with the function that describes it."""

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Any, *, name: str, settings: Mapping[str, Any], location: SourceLocation) -> None:
        self.kind = "plain"
        if isinstance(function, classmethod | staticmethod):
            self.kind = "class" if isinstance(function, classmethod) else "plain"
            function = function.__func__
        if isinstance(function, Workflow | Task | BoundTask) or not callable(function) or isinstance(function, type):
            raise placed("bad_workflow", f"this decorator is for functions, not for {function!r}", location)
        self._check(function, location)
        self._set_up(function, name=name, settings=settings, location=location)
        update_wrapper(self, function)
        if not self.looks_like_method():
            self.codec  # noqa: B018 - a signature that cannot work is an error where it is written
        declare(self)

    def _check(self, function: Any, location: SourceLocation) -> None:
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise refuse_async(function, "a workflow function")
        if inspect.isgeneratorfunction(function):
            message = f"{function.__qualname__} yields, and a workflow function describes its nodes by calling tasks"
            raise placed("bad_workflow", f"{message}; return the result instead", location)

    def _set_up(self, function: Any, *, name: str, settings: Mapping[str, Any], location: SourceLocation) -> None:
        self.function: Callable[..., Any] = function
        self.owner: Any = None  # of a method: its class or its object
        self.written_in: type | None = None
        self.follows = ""  # made of a task, for the end of the workflow of this name
        self.where = location
        self.settings = settings
        self.schedules = _schedules(settings.get("schedule"))
        self._given_name = name
        self._codec: Codec | None = None
        self._built: Builder | None = None
        self._definition: Definition | None = None
        self._bound: dict[int, Workflow[..., Any]] = {}
        self._follow_ups: dict[str, tuple[FollowUp, Workflow[..., Any]]] | None = None
        self.name = at_place(check_name, name or _own_name(function), path="name", kind="workflow", location=location)

    @property
    def location(self) -> str:
        """`file:line`."""
        return f"{self.where.file}:{self.where.line}"

    @property
    def schedule(self) -> Schedule | None:
        """The first of its schedules."""
        return self.schedules[0] if self.schedules else None

    @property
    def codec(self) -> Codec:
        if self._codec is None:
            self._codec = Codec.of(self.function, name=self.name, bound=self.kind != "plain")
            if self._codec.context_name:
                message = f"{self.name} takes a Context, but a workflow function only describes; take it in a task"
                raise placed("bad_workflow", message, self.where)
        return self._codec

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside another workflow a child run. Elsewhere, without arguments, the definition."""
        builder = active()
        if builder is not None:
            return cast("R", builder.child(self, args, kwargs))
        if args or kwargs:
            message = f"{self.name} is a workflow: it gets its inputs when it is submitted"
            raise placed(
                "built_not_run", f"{message}, client.submit({self.name}, ...); {self.name}.build() describes it"
            )
        return cast("R", self.build())

    def checked_inputs(
        self, given: Mapping[str, Any], args: tuple[Any, ...] = (), *, now: datetime | None = None
    ) -> dict[str, Any]:
        """The inputs of a run as plain data, compared with the signature. Raises `Refused`."""
        first = self.codec.parameters.get(SCHEDULED_TIME)
        named = dict(given)
        if first is not None and first.required and SCHEDULED_TIME not in named and not args:
            named = {SCHEDULED_TIME: now or datetime.now(UTC), **named}  # what a schedule would fill in
        sent: dict[str, Any] = {}
        for name, value in self.codec.bind(args, named).items():
            sent[name] = plain(value, what=name)
            self.codec.check_constant(name, sent[name])
        return sent

    @overload
    def map(
        self, over: Entries, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> dict[str, R]: ...
    @overload
    def map(
        self, over: Iterable[Any], /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> list[R]: ...
    def map(self, over: Any, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any) -> Any:
        """One child run per item, as `Task.map`."""
        builder = active()
        if builder is None:
            raise placed("not_building", f"{self.name}.map(...) is only for the function of another workflow")
        return builder.map_child(self, over, constants, max_parallel=max_parallel, tolerate=tolerate)

    def using(
        self,
        *,
        id: str = "",  # noqa: A002 - the word of the document
        after: Any = (),
        when: Any = None,
        on: str = "",
        on_cancel: OnCancel = "cancel",
        **options: Any,
    ) -> "WorkflowCall[P, R]":
        """The same workflow with options for one call inside another workflow, and a place in it:

        imports.using(retries=3, retry_delay="1m", id="first", after=[setup])(day)

        A retry is a new child run. `on_cancel` is what becomes of the child run if the run around it ends before it:
        "cancel", or "abandon": it goes on by itself.
        """
        for option in options:
            if option not in RETRY_OPTIONS:
                known = ", ".join(["after", "id", "on", "on_cancel", *RETRY_OPTIONS, "when"])
                raise placed("bad_option", f"{self.name}: there is no option {option!r} of a call; known are {known}")
        if on_cancel not in ("abandon", "cancel"):
            raise placed("bad_option", f"{self.name}: on_cancel is 'abandon' or 'cancel', not {on_cancel!r}")
        retry = at_place(task_options, options, where=self.name).retry
        return WorkflowCall(self, ChildOptions(CallOptions(id, after, when, on), retry, on_cancel))

    def build(self) -> Definition:
        """Its definition. Raises `InvalidDefinition`, whose problems show the user's lines."""
        if self._definition is None:
            self._definition = render.definition(self, self.builder())
        return self._definition

    def document(self) -> bytes:
        """The definition as JSON, in its canonical form."""
        from tickwork.core.definition.document import canonical

        return canonical(self.build())

    def tasks(self) -> list[tuple[Any, Any]]:
        """The tasks it uses, each with its class or object where it is a method."""
        return list(self.builder().tasks.values())

    def children(self) -> "list[Workflow[..., Any]]":
        """The workflows it calls, and those that follow its end."""
        return [*self.builder().children.values(), *(handler for _, handler in self.follow_ups().values())]

    def follow_ups(self) -> "dict[str, tuple[FollowUp, Workflow[..., Any]]]":
        """What `on_failure` and `on_success` say, each with its workflow."""
        if self._follow_ups is None:
            handlers = {option: self.settings[option] for option in ("on_failure", "on_success")}
            self._follow_ups = {
                option: follow_up(option, handler, name=self.name, location=self.where, make=self._described_by)
                for option, handler in handlers.items()
                if handler is not None
            }
        return self._follow_ups

    def _described_by(self, function: Any, *, name: str) -> "Workflow[..., Any]":
        made: Workflow[..., Any] = Workflow(
            function, name=name, settings=settings_of({}, where=name), location=self.where
        )
        made.follows = self.name
        return made

    def timetables(self) -> "list[DeclaredSchedule]":
        """Its schedules, for the server."""
        names = [self.name, *(f"{self.name}-{number}" for number in range(2, len(self.schedules) + 1))]
        return [
            schedule.timetable(name=name, workflow=self) for name, schedule in zip(names, self.schedules, strict=False)
        ]

    @property
    def returns(self) -> bool:
        """Whether its function returns something."""
        return self.builder().output is not None

    def builder(self) -> Builder:
        """What calling the function recorded."""
        if self._built is None:
            if self.kind != "plain" and self.owner is None:
                message = f"{self.name} is a method; name it by its class or by a registered object"
                raise placed("bad_workflow", message, self.where)
            builder = Builder(self)
            with builder.active():
                self._describe(builder)
            self._built = builder
        return self._built

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, dict[str, Any], Callable[[Any], Any]]:
        """For a durable function that calls it: its name, its inputs, and what makes the result of the plain value."""
        return self.name, self.checked_inputs(kwargs, args), self.codec.result

    def _describe(self, builder: Builder) -> None:
        """Record the nodes and the output."""
        useless_code.check(self.function)
        function = self.function if self.owner is None else self.function.__get__(self.owner)
        given = {name: Value(f"inputs.{name}") for name in self.codec.parameters}
        positional = [given.pop(name) for name in self.codec.positional]
        render.note_output(builder, self._described(function, positional, given))

    def _described(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return function(*args, **kwargs)
        except TickworkError:
            raise
        except Exception as error:
            message = f"{self.name} could not be built: {type(error).__name__}: {error}"
            raise placed("workflow_failed", message, raised_at(error) or self.where) from error

    def bound(self, owner: Any) -> "Workflow[P, R]":
        """The same method for one class or one registered object."""
        known = self._bound.get(id(owner))
        if known is None:
            known = Workflow.__new__(type(self))
            known.__dict__.update(self.__dict__)
            known.owner = owner
            known.name = self._bound_name(owner)
            known._codec, known._built, known._definition = None, None, None
            known._follow_ups = None
            self._bound[id(owner)] = known
        return cast("Workflow[P, R]", known)

    def bound_to_class(self, owner: type) -> "Workflow[P, R]":
        if self.kind != "class":
            self.kind, self._codec = "class", None
        return self.bound(owner)

    def become_class_method(self, owner: type) -> None:
        """@classmethod stands above @workflow in this class."""
        self.kind, self.written_in, self._codec = "class", owner, None

    def __set_name__(self, owner: type, name: str) -> None:
        self.written_in = owner
        if self.kind == "plain" and self.looks_like_method():
            self.kind, self._codec = "instance", None

    def __get__(self, instance: Any, owner: type | None = None) -> "Workflow[P, R]":
        if isinstance(instance, type) and self.kind == "plain":
            return self.bound_to_class(instance)  # @classmethod above @workflow, before 3.13
        if self.kind == "class":
            return self.bound(instance if isinstance(instance, type) else owner or type(instance))
        return self if self.kind == "plain" or instance is None else self.bound(instance)

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def _bound_name(self, owner: Any) -> str:
        if isinstance(owner, type):
            return self._given_name or f"{owner.__qualname__}.{self.function.__name__}".replace("<locals>.", "")
        name = instance_name(owner)
        if not name:
            message = f"{self.name} is a method, and workers cannot know this {type(owner).__name__} object"
            raise Refused("unknown_instance", f'{message}; register it once: tw.instance("a name", the_object)')
        return f"{self.name}.{name}"

    def looks_like_method(self) -> bool:
        if self.kind == "class":
            return True
        parent = getattr(self.function, "__qualname__", "").rpartition(".")[0]
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        first = code.co_varnames[0] if code and code.co_argcount else ""
        return bool(parent) and not parent.endswith("<locals>") and first in ("self", "cls")

    def head(self) -> dict[str, Any]:
        """Everything of the definition but its nodes."""
        settings = self.settings
        return {
            "name": self.name,
            "description": settings.get("description") or inspect.cleandoc(self.function.__doc__ or ""),
            "inputs": at_place(input_fields, self.codec, location=self.where),
            "defaults": settings["defaults"],
            "overlap": settings["overlap"],
            **self._start_limits(),
            "timeout_ms": settings["timeout_ms"],
            "sla": settings["sla"],
            "policy": settings["policy"],
            "tags": settings["tags"],
            "search": settings["search"],
            **{option: follow for option, (follow, _) in self.follow_ups().items()},
        }

    def _start_limits(self) -> dict[str, Any]:
        limits = {name: self.settings[name] for name in ("concurrency", "rate")}
        return {
            name: limit and replace(limit, key=key_text(limit.key, self.codec.parameters))
            for name, limit in limits.items()
        }


@dataclass(frozen=True, slots=True)
class ChildOptions:
    """What one call of a workflow inside another says of its node."""

    call: CallOptions
    retry: Retry | None = None
    on_cancel: OnCancel = "cancel"


class WorkflowCall(Generic[P, R]):
    """A workflow with the options of one call."""

    def __init__(self, workflow: Workflow[P, R], options: ChildOptions) -> None:
        self._workflow = workflow
        self._options = options

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """A child run."""
        return cast("R", self._builder().child(self._workflow, args, kwargs, self._options))

    @overload
    def map(
        self, over: Entries, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> dict[str, R]: ...
    @overload
    def map(
        self, over: Iterable[Any], /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any
    ) -> list[R]: ...
    def map(self, over: Any, /, *, max_parallel: Any = None, tolerate: int = 0, **constants: Any) -> Any:
        """One child run per item, as `Task.map`."""
        return self._builder().map_child(
            self._workflow, over, constants, max_parallel=max_parallel, tolerate=tolerate, options=self._options
        )

    def _builder(self) -> Builder:
        builder = active()
        if builder is None:
            message = f"{self._workflow.name}.using(...) is only for the function of another workflow"
            raise placed("not_building", message)
        return builder


@overload
def workflow(function: Callable[P, R], /) -> Workflow[P, R]: ...
@overload
def workflow(
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
    policy: Sequence[str] = (),
    on_failure: Handler = None,
    on_success: Handler = None,
    description: str = "",
    tags: Sequence[str] = (),
    search: Sequence[str] = (),
) -> Callable[[Callable[P, R]], Workflow[P, R]]: ...
def workflow(function: Any = None, /, *, name: str = "", **options: Any) -> Any:
    """Makes a function a workflow: `@workflow`, or `@workflow(schedule=tw.every("5m"))`.

    schedule      tw.cron(...), tw.every(...), tw.at(...), tw.rrule(...), or several; a first parameter that is a
                  datetime gets the time at which the run was due, the second the schedule's context
    retries, retry_delay, task_timeout, queue, priority, labels    for every task that does not say otherwise
    timeout       of a whole run; `sla`: when a run is late, or (warning, late)
    concurrency   how many runs at a time; (5, "customer"): five for each value of that input
    singleton     one run at a time, True or "customer". `second`, of a run that comes meanwhile: skip, replace,
                  buffer_one or wait
    rate          (10, "1m", "customer"): ten runs a minute for each value. `over`, of a run beyond it: wait, drop, last
    overlap       what becomes of an occurrence while a run of its schedule is going: allow, forbid, replace
    policy        names of policies evaluated before each step
    on_failure    a task or workflow that runs when a run has failed, whatever the reason; it takes a tw.Failure, or
                  nothing. `on_success`: when a run has completed; it takes a tw.Success, or nothing
    description   for people; the docstring unless given
    tags          words by which its runs are found; a child run has those of its own workflow only
    search        names of inputs by whose values its runs are found: texts, numbers, booleans and times
    """
    location = here()
    settings = at_place(
        settings_of, options, where=name or getattr(function, "__name__", "workflow"), location=location
    )

    def decorate(target: Any) -> Any:
        return Workflow(target, name=name, settings=settings, location=written(target) or location)

    return decorate if function is None else decorate(function)


_OPTIONS = frozenset(
    (
        *START_OPTIONS,
        "description",
        "labels",
        "on_failure",
        "on_success",
        "overlap",
        "policy",
        "priority",
        "queue",
        "retries",
        "retry_delay",
        "schedule",
        "search",
        "sla",
        "tags",
        "task_timeout",
        "timeout",
    )
)


def settings_of(options: dict[str, Any], *, where: str) -> dict[str, Any]:
    for option in options:
        if option not in _OPTIONS:
            known = ", ".join(sorted([*_OPTIONS, "name"]))
            raise Refused("bad_option", f"{where}: there is no option {option!r}; known are {known}")
    overlap = str(options.get("overlap", "allow")).capitalize()
    if overlap not in [choice.value for choice in Overlap]:
        raise Refused("bad_option", f"{where}: overlap is allow, forbid or replace, not {options['overlap']!r}")
    policy = options.get("policy", ())
    timeout = options.get("timeout")
    return {
        "schedule": options.get("schedule"),
        "description": options.get("description", ""),
        "defaults": _defaults(options, where),
        "overlap": Overlap(overlap),
        **start_limits(options, where),
        "timeout_ms": None if timeout is None else duration(timeout, path=f"{where}.timeout"),
        "sla": _sla(options.get("sla"), where),
        "policy": (policy,) if isinstance(policy, str) else tuple(policy),
        "on_failure": options.get("on_failure"),
        "on_success": options.get("on_success"),
        "tags": listed_tags(options.get("tags", ())),
        "search": _names(options.get("search", ())),
    }


def _names(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _defaults(options: dict[str, Any], where: str) -> Defaults:
    names = {"retries": "retries", "retry_delay": "retry_delay", "task_timeout": "timeout", "queue": "queue"}
    names |= {"priority": "priority", "labels": "labels"}
    given = task_options({names[name]: options[name] for name in names if name in options}, where=where)
    for name, value in {"queue": given.queue, **(given.labels or {})}.items():
        refuse_future(f"{where}: {name}", value)
    bare = Defaults()
    return Defaults(
        queue=str(given.queue or bare.queue),
        priority=bare.priority if given.priority is None else given.priority,
        retry=given.retry or Retry(),
        timeout=given.timeout or Timeout(),
        labels={name: str(value) for name, value in (given.labels or {}).items()},
    )


def _sla(value: Any, where: str) -> Sla | None:
    return sla(value, path=f"{where}.sla")


def _schedules(given: Any) -> tuple[Schedule, ...]:
    listed = () if given is None else tuple(given) if isinstance(given, list | tuple) else (given,)
    for schedule in listed:
        if not isinstance(schedule, Schedule):
            advice = f"; write tw.cron({schedule!r})" if isinstance(schedule, str) and " " in schedule else ""
            made = "a schedule is made by tw.cron(...), tw.every(...), tw.at(...) or tw.rrule(...)"
            raise placed("bad_schedule", f"{made}, not {schedule!r}{advice}")
    return listed


def _own_name(function: Any) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<lambda>" in name:
        raise placed("bad_workflow", "this workflow has no name of its own; give it one: name='...'")
    return str(name).rpartition("<locals>.")[2]


def written(function: Any) -> SourceLocation | None:
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return SourceLocation(code.co_filename, code.co_firstlineno) if code else None
