"""An application: what one file or module declares, ready to be run.

The name of the module comes from the start of the worker, never from stored data. Loading it runs it once,
as `python app.py` would; whatever it decorates meanwhile, or holds under a name, belongs to it.
"""

import contextlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from tickwork.core.base.errors import Refused, TickworkError
from tickwork.core.base.stable_hash import stable_digest
from tickwork.core.definition.model import VALUE_HANDLER
from tickwork.sdk.authoring.declared import DECLARED, INSTANCES
from tickwork.sdk.authoring.durable import DurableFunction, TaskWorkflow
from tickwork.sdk.authoring.source_location import about_environment, placed, raised_at
from tickwork.sdk.authoring.tasks import BoundTask, Executor, Task
from tickwork.sdk.context import Context
from tickwork.sdk.durable.function import Durable
from tickwork.sdk.values.signature_codec import EMPTY_MAP, Codec

if TYPE_CHECKING:
    from tickwork.protocol.worker_messages import Catalog
    from tickwork.sdk.authoring.workflows import Workflow


@dataclass(frozen=True, slots=True)
class Handler:
    """A function as workers run it."""

    name: str
    function: Any
    is_async: bool
    executor: Executor
    codec: Codec
    location: str = ""
    durable: bool = False  # its context is a `Durable`, and it may suspend

    @property
    def wants_context(self) -> bool:
        return bool(self.codec.context_name)

    def call(self, args: bytes, context: Context | Durable) -> Any:
        """The function's answer, or a coroutine where it is asynchronous. `args` is MessagePack.

        The caller makes `context` the current one (`tickwork.sdk.context.running`) around the call and,
        for a coroutine, around its awaiting.
        """
        codec = self.codec
        if args == EMPTY_MAP and not codec.parameters and not codec.context_name:
            return self.function()
        named = codec.unpack(args)
        if codec.context_name:
            named[codec.context_name] = context
        if not codec.positional:
            return self.function(**named)
        return self.function(*self._positional(named), **named)

    def _positional(self, named: dict[str, Any]) -> list[Any]:
        """Taken out of `named`. After one that is left to its default, the next must be too."""
        return [named.pop(name) for name in self.codec.positional if name in named]


@dataclass(slots=True)
class App:
    """What was loaded: `handlers` by the name that definitions use, `workflows` by theirs."""

    module: ModuleType
    handlers: dict[str, Handler] = field(default_factory=dict)
    workflows: "dict[str, Workflow[..., Any]]" = field(default_factory=dict)
    chosen: Any = None  # what `app.py:name` names
    tasks: dict[str, TaskWorkflow[..., Any]] = field(default_factory=dict)  # by the name of their handler

    @property
    def name(self) -> str:
        """The module's, or the file's without its ending: it owns the schedules that stand in its code."""
        if self.module.__name__ != "__main__":
            return self.module.__name__
        return Path(getattr(self.module, "__file__", None) or "main").stem

    def catalog(self) -> "Catalog":
        """Documents, schedules and handlers, for the server. Raises `Refused` for a definition with problems."""
        from tickwork.protocol.worker_messages import Catalog
        from tickwork.sdk.authoring.mailboxes import declared_in

        workflows = self.published()
        return Catalog(
            documents=tuple(workflow.document() for workflow in workflows),
            schedules=tuple(table for workflow in workflows for table in workflow.timetables()),
            handlers=tuple(sorted(self.handlers)),
            application=self.name,
            version=self.version,
            mailboxes=declared_in(*workflows, module=self.module.__name__),
        )

    def published(self) -> "list[Workflow[..., Any]]":
        """What the server hears of: its workflows, and its tasks where a durable function may call them."""
        workflows = list(self.workflows.values())
        if any(handler.durable for handler in self.handlers.values()):
            workflows += [task for task in self.tasks.values() if task.name not in self.workflows]
        return workflows

    @property
    def version(self) -> str:
        """Return the given version, or a hash of all code: the same code has the same version in every process."""
        version = os.environ.get("TICKWORK_APP_VERSION", "").strip()
        if version:
            return version
        documents = sorted(workflow.document() for workflow in self.workflows.values())
        sources = [f"{name}\n{source_of(handler.function)}" for name, handler in sorted(self.handlers.items())]
        return stable_digest(*documents, *sources)[:12]


def source_of(function: Any) -> str:
    """The text of a function; its compiled form where there is no text."""
    while True:
        inner = getattr(function, "__wrapped__", None) or getattr(function, "func", None)
        if inner is None:
            break
        function = inner
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr(getattr(function, "__qualname__", "")) if code is None else code.co_code.hex()


def load_app(target: str) -> App:
    """`app.py`, `package.module`, or either with `:name`. Raises `Refused` that shows the user's line."""
    where, _, name = target.rpartition(":") if _names_part(target) else (target, "", "")
    before = len(DECLARED)
    module = _from_file(where) if where.endswith(".py") or "/" in where or "\\" in where else _from_name(where)
    app = app_of(module, DECLARED[before:])
    if name:
        app.chosen = _part(module, name)
    return app


def app_of(module: ModuleType, declared: list[Any] | None = None) -> App:
    """The application of a module that is loaded already."""
    from tickwork.sdk.authoring.workflows import Workflow

    app = App(module)
    app.handlers[VALUE_HANDLER] = Handler(VALUE_HANDLER, _value, False, "thread", Codec.of(_value))
    things = [*(declared or ()), *_of_module(module), *_held(module)]
    for thing in things:
        _bind_class_method(thing)
    for thing in things:
        if isinstance(thing, Workflow):
            _add_workflow(app, thing)
        else:
            _add_task(app, thing)
    for target_name, target in INSTANCES.items():
        _add_instance(app, target_name, target)
    return app


def app_with(*workflows: "Workflow[..., Any]", module: ModuleType | None = None) -> App:
    """The application of these workflows alone, with everything that they call."""
    app = App(module or ModuleType("app"))
    app.handlers[VALUE_HANDLER] = Handler(VALUE_HANDLER, _value, False, "thread", Codec.of(_value))
    for thing in DECLARED:
        _bind_class_method(thing)
    for workflow in workflows:
        _add_workflow(app, _bound(workflow))
    return app


def _bind_class_method(thing: Any) -> None:
    """Put a task or workflow in the place of the @classmethod that stands above it. Python tells neither of them the
    class, so it is looked up by the function's name; and since 3.13, a class method no longer asks what it wraps to
    bind itself."""
    if isinstance(thing, BoundTask) or thing.kind != "plain":
        return
    owner, name = _home_of(thing.function)
    held = vars(owner).get(name) if isinstance(owner, type) else None
    below: Any = held.__func__ if isinstance(held, classmethod) else None
    if isinstance(owner, type) and below is thing:
        setattr(owner, name, thing)
        thing.become_class_method(owner)


def _bound(workflow: Any) -> "Workflow[..., Any]":
    """The workflow that a method stands for, which Python made of a @classmethod above @workflow."""
    if isinstance(workflow, MethodType):
        return workflow.__func__.bound_to_class(workflow.__self__)  # type: ignore[attr-defined, no-any-return]
    return workflow  # type: ignore[no-any-return]


def _home_of(function: Any) -> tuple[Any, str]:
    """The class or module in which a function is written, as far as it can be found by name, and its name there."""
    home: Any = sys.modules.get(getattr(function, "__module__", ""))
    *above, last = getattr(function, "__qualname__", "").split(".")
    for part in above:
        home = getattr(home, part, None)
    return home, last


def _value(value: Any) -> Any:
    """What a node of its own makes of several values: the value they are together."""
    return value


def _add_instance(app: App, name: str, target: Any) -> None:
    from tickwork.sdk.authoring.workflows import Workflow

    for kind in type(target).__mro__:
        for attribute, thing in vars(kind).items():
            own = getattr(type(target), attribute, None) is thing  # not replaced by a class nearer to it
            if own and isinstance(thing, Task) and thing.kind == "instance":
                _add_handler(app, thing, target, f"{thing.name}@{name}")
            elif own and isinstance(thing, Workflow) and thing.kind == "instance":
                _add_workflow(app, thing.bound(target))


def _names_part(target: str) -> bool:
    head, colon, tail = target.rpartition(":")
    return bool(colon) and tail.replace(".", "").isidentifier() and len(head) > 1  # C:\app.py is a whole path


def _from_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        raise Refused("no_app", f"there is no file {where}; name a Python file or a module")
    name, folder = path.stem, str(path.parent)
    known = sys.modules.get(name)
    if known is not None:
        if getattr(known, "__file__", None) and Path(str(known.__file__)).resolve() == path:
            return known
        raise Refused("no_app", f"a module named {name!r} is loaded already; rename {path.name}")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise Refused("no_app", f"{where} is not a Python file")
    return _run(spec, where)


def _from_name(where: str) -> ModuleType:
    if where in sys.modules:
        return sys.modules[where]
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        spec = importlib.util.find_spec(where)
    except (ImportError, ValueError, AttributeError) as error:
        raise Refused("no_app", f"the module {where!r} cannot be loaded: {error}") from None
    except Exception as error:
        raise _failed(where, error) from error
    if spec is None:
        raise Refused("no_app", f"there is no module {where!r}; name a Python file (app.py) or a module")
    return _run(spec, where)


def _run(spec: Any, where: str) -> ModuleType:
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(spec.name, None)
        if not isinstance(error, Exception | SystemExit):
            raise
        raise _failed(where, error) from error
    parent, _, name = spec.name.rpartition(".")
    if parent and parent in sys.modules:
        setattr(sys.modules[parent], name, module)
    return module


def _failed(where: str, error: BaseException) -> Refused:
    """Say what went wrong and at which line of the user's code, without our frames."""
    if isinstance(error, SyntaxError):
        line = (error.text or "").strip()
        return Refused(
            "app_failed", f"{where} is not valid Python: {error.msg}, {error.filename}:{error.lineno}\n    {line}"
        )
    location = raised_at(error)
    located = location is None or "\n    " in str(error) or f"{location.file}:{location.line}" in str(error)
    shown = "" if located else f"\n    {location}"
    if isinstance(error, SystemExit):
        what = f"it ended the program (exit {error.code}); put that under if __name__ == '__main__'"
    elif isinstance(error, TickworkError):
        what = str(error)
    else:
        what = f"{type(error).__name__}: {error}{about_environment(error)}"
    if isinstance(error, ImportError) and "relative import" in str(error):
        what += "; name it as a module instead: package.module"
    return Refused("app_failed", f"{where} could not be loaded: {what}{shown}")


def _of_module(module: ModuleType) -> Iterator[Any]:
    """Decorated when the module was loaded earlier, in it or in a package of which it is the head."""
    inside = f"{module.__name__}."
    for thing in DECLARED:
        function = thing.function
        its = getattr(function, "__module__", "")
        home = sys.modules.get(its)
        current = home is not None and getattr(function, "__globals__", None) is home.__dict__
        if current and (its == module.__name__ or its.startswith(inside)):
            yield thing


def _held(module: ModuleType) -> Iterator[Any]:
    from tickwork.sdk.authoring.workflows import Workflow

    for thing in list(vars(module).values()):
        if isinstance(thing, Task | BoundTask | Workflow):
            yield thing


def _part(module: ModuleType, name: str) -> Any:
    held: Any = module
    for part in name.split("."):
        if not hasattr(held, part):
            names = ", ".join(
                key for key, value in vars(module).items() if type(value).__module__.startswith("tickwork")
            )
            raise Refused("no_app", f"{module.__name__} has no {name!r}; it has: {names or 'no workflow or task'}")
        held = getattr(held, part)
    return held


def _add_workflow(app: App, workflow: "Workflow[..., Any]") -> None:
    if workflow.kind == "plain":
        _check_class_found(workflow)
    if workflow.kind == "class" and workflow.owner is None and workflow.written_in is not None:
        workflow = workflow.bound(workflow.written_in)
    if workflow.kind != "plain" and workflow.owner is None:
        return  # a method: there is one for each registered object
    known = app.workflows.get(workflow.name)
    if known is workflow:
        return
    if known is not None:
        message = f"two workflows are named {workflow.name!r}: {known.location} and {workflow.location}"
        raise Refused("name_twice", f"{message}; give one of them another name=")
    app.workflows[workflow.name] = workflow
    if isinstance(workflow, DurableFunction):
        _add_function(app, workflow)
    for task, owner in workflow.tasks():
        _add_handler(app, task, owner, task.handler_name(owner))
    for child in workflow.children():
        _add_workflow(app, child)


def _check_class_found(workflow: "Workflow[..., Any]") -> None:
    if workflow.looks_like_method() and not isinstance(_home_of(workflow.function)[0], type):
        message = f"{workflow.name} is a method, and its class cannot be looked up by name"
        advice = "write @tw.workflow above @classmethod, or put the class at the top of the module"
        raise placed("bad_workflow", f"{message}; {advice}", workflow.where)


def _add_task(app: App, thing: Any) -> None:
    task, owner = (thing.task, thing.owner) if isinstance(thing, BoundTask) else (thing, None)
    if owner is None and task.kind == "class":
        owner = task.owner
    if owner is not None or not task.looks_like_method():
        _add_handler(app, task, owner, task.handler_name(owner))


def _add_function(app: App, workflow: DurableFunction[..., Any]) -> None:
    known = app.handlers.get(workflow.name)
    if known is not None:
        message = f"two functions are known to workers as {workflow.name!r}: {known.location} and {workflow.location}"
        raise Refused("name_twice", f"{message}; give one of them another name=")
    function, codec = workflow.handler_function, workflow.codec
    app.handlers[workflow.name] = Handler(workflow.name, function, True, "process", codec, workflow.location, True)


def _add_handler(app: App, task: Task[..., Any], owner: Any, name: str) -> None:
    function = task.function if owner is None else task.function.__get__(owner)
    known = app.handlers.get(name)
    if known is None:
        app.handlers[name] = Handler(name, function, task.is_async, task.executor, task.codec, task.location)
        with contextlib.suppress(Refused):  # its name is not one of a workflow
            app.tasks[name] = TaskWorkflow(task, owner)
    elif known.function != function:
        message = f"two functions are known to workers as {name!r}: {known.location} and {task.location}"
        raise Refused("name_twice", f"{message}; give one of them another name=")
