"""Code that cannot do in the function of a workflow what it says: it runs once, while the graph is being described.

`check` reads the source when the workflow is built and names file and line. What can only be a mistake is an error: a
sleep, or an `except` around calls whose errors come hours later. What may be meant is a warning: a clock, a random
number or a `print`.
"""

import ast
import builtins
import inspect
import random
import sys
import textwrap
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from datetime import date, datetime
from types import ModuleType
from typing import Any

from tickwork.sdk.authoring.source_location import SourceLocation, placed

_ONCE = "runs once, when the workflow is built, and the definition keeps what it gave"
_ERRORS: dict[Any, str] = {
    time.sleep: 'stops the program that builds the workflow, and no run; write tw.wait("5m")',
    builtins.input: "asks the person who builds the workflow; make it an input of the workflow or use tw.approval(...)",
}
_ASYNC_SLEEP = 'does nothing here; write tw.wait("5m")'
_WARNINGS: dict[Any, str] = {
    builtins.print: "prints when the workflow is built, not when it runs; print in a task",
    builtins.breakpoint: "stops where the workflow is built; to debug a task, call its function in a test",
    time.time: f"{_ONCE}; take the time in a task, or as the first parameter of a scheduled workflow",
    uuid.uuid4: f"{_ONCE}; make it in a task",
}
_CLOCKS = {(datetime, "now"), (datetime, "utcnow"), (datetime, "today"), (date, "today")}


_ANEW = "gives something else in each replay"
_REPLAY_CLOCK = f"{_ANEW}; use ctx.now(), or take the time in a step"
_REPLAY_CHANCE = f"{_ANEW}; use ctx.random() or ctx.randint(...), or draw in a step"
_REPLAY_ADVICE: dict[Any, str] = {
    time.time: _REPLAY_CLOCK,
    time.time_ns: _REPLAY_CLOCK,
    time.monotonic: _REPLAY_CLOCK,
    uuid.uuid4: f"{_ANEW}; use ctx.uuid(), or make it in a step",
    uuid.uuid1: f"{_ANEW}; use ctx.uuid(), or make it in a step",
    time.sleep: "stops everything else in its process; use await ctx.sleep(...)",
}


class ReplayWarning(UserWarning):
    """Code of a durable function that is not the same in each replay."""


class GraphWarning(UserWarning):
    """Code in the function of a workflow that does something else than it seems to."""


def check(function: Callable[..., Any]) -> None:
    """Raises `Refused` for what can only be a mistake, and warns of the rest. Without source nothing is known."""
    inner = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(inner)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    file = inspect.getsourcefile(inner) or "?"
    for node in _own_code(tree):
        line = first + getattr(node, "lineno", 1) - 1
        if isinstance(node, ast.Try) and node.handlers and _calls(node):
            message = "except catches nothing of a run: the tasks in it run later, on workers"
            advice = 'let a node react, cleanup.using(after=[work], on="any_failed")(), or catch the error in the task'
            raise placed("useless_except", f"{message}; {advice}", SourceLocation(file, line))
        if isinstance(node, ast.Call):
            _check_call(inner, node, SourceLocation(file, line))


def check_durable(function: Callable[..., Any], context: str) -> None:
    """Warn of what differs in each replay of a durable function. `context` is the name of its context: a function that
    is written inside and does not name it is a step."""
    inner = inspect.unwrap(function)
    try:
        lines, first = inspect.getsourcelines(inner)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    file = inspect.getsourcefile(inner) or "?"
    for node in _replayed_code(tree, context):
        if not isinstance(node, ast.Call):
            continue
        called, name = _called(inner, node.func), ast.unparse(node.func)
        advice = next((words for function, words in _REPLAY_ADVICE.items() if function is called), None)
        if advice is None and _is_clock_or_chance(called):
            advice = _REPLAY_CLOCK if _is_clock(called) else _REPLAY_CHANCE
        if advice is not None:
            message = f"{name}(...) in a durable function {advice}"
            warnings.warn_explicit(message, ReplayWarning, file, first + node.lineno - 1)


def _replayed_code(tree: ast.Module, context: str) -> Iterator[ast.AST]:
    """The code that a replay runs again."""
    todo = list(ast.iter_child_nodes(tree.body[0])) if tree.body else []
    for node in todo:  # grows while it is walked
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if inside and not any(isinstance(part, ast.Name) and part.id == context for part in ast.walk(node)):
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def _check_call(function: Any, call: ast.Call, location: SourceLocation) -> None:
    called = _called(function, call.func)
    name = ast.unparse(call.func)
    wrong = _ASYNC_SLEEP if _is_async_sleep(called) else _known(_ERRORS, called)
    if wrong is not None:
        raise placed("built_not_run", f"{name}(...) in a workflow function {wrong}", location)
    doubtful = _known(_WARNINGS, called)
    if doubtful is None and _is_clock_or_chance(called):
        doubtful = f"{_ONCE}; do it in a task"
    if doubtful is not None:
        message = f"{name}(...) in a workflow function {doubtful}"
        warnings.warn_explicit(message, GraphWarning, location.file, location.line)


def _is_async_sleep(called: Any) -> bool:
    """Without importing asyncio, which takes longer than building a graph."""
    loaded = sys.modules.get("asyncio")
    return loaded is not None and called is loaded.sleep


def _known(table: dict[Any, str], called: Any) -> str | None:
    return next((words for function, words in table.items() if function is called), None)


def _is_clock(called: Any) -> bool:
    owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
    return any(owner is kind and name == known for kind, known in _CLOCKS)


def _is_clock_or_chance(called: Any) -> bool:
    owner = getattr(called, "__self__", None)
    chance = isinstance(owner, random.Random) or getattr(called, "__module__", "") == "random"
    return chance or _is_clock(called)


def _called(function: Any, named: ast.expr) -> Any:
    """What a call names by a global name, with dots into modules and classes. None: something that is made here."""
    if isinstance(named, ast.Attribute):
        owner = _called(function, named.value)
        return getattr(owner, named.attr, None) if isinstance(owner, ModuleType | type) else None
    if not isinstance(named, ast.Name) or named.id in function.__code__.co_varnames:
        return None
    if named.id in function.__code__.co_freevars:
        return inspect.getclosurevars(function).nonlocals.get(named.id)
    return function.__globals__.get(named.id, getattr(builtins, named.id, None))


def _own_code(tree: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs while the graph is described: not what is a function of its own with a decorator."""
    todo = list(ast.iter_child_nodes(tree.body[0] if isinstance(tree, ast.Module) and tree.body else tree))
    for node in todo:  # grows while it is walked
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.decorator_list:
            continue
        yield node
        todo += ast.iter_child_nodes(node)


def _calls(block: ast.Try) -> bool:
    return any(isinstance(node, ast.Call) for statement in block.body for node in ast.walk(statement))
