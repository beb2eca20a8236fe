"""Conditions: CEL over one immutable snapshot.

A condition sees the snapshot it is given and nothing else: no clock, no files, no time zones
of the machine. The same snapshot gives the same answer everywhere, or the same error; there
is no third outcome, and an error never counts as false. Work and memory are bounded before an evaluation
begins (`cel_cost`), and by the length and depth of text and snapshot.

Numbers are 64-bit integers, where overflow is an error, or IEEE 754 doubles, which every
machine computes alike; an integer and a double compare by value, NaN equals nothing.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext.ext_optional import ExtOptional
from cel_expr_python.ext.ext_strings import ExtStrings

from tickwork.core.base.errors import Refused
from tickwork.core.definition.cel_cost import KNOWN_FUNCTIONS, TooCostly, check_cost
from tickwork.core.definition.cel_extracts import needs_of
from tickwork.core.definition.cel_tree import (
    ORDERED,
    ORDERED_OVERLOADS,
    SOME,
    SOME_OVERLOADS,
    Message,
    Tree,
    free_names,
    read_keys,
    walk,
)

RULES = "cel-expr-python 0.1"  # named in the journal: under other rules a replay may not decide again
TEXT_LENGTH_MAX = 4_096
SNAPSHOT_DEPTH_MAX = 64  # the library recurses: some thousand levels end the process

_CONTAINERS = (dict, list)
_GROWING = ("_+_", "join", "matches", "replace", "split", "indexOf", "lastIndexOf")
_STRINGS_VERSION = 2  # with `join`
_TEXT_MAP = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_VARIABLES: Mapping[str, Any] = MappingProxyType(
    {
        "body": cel.Type.DYN,
        "clock": cel.Type.Map(cel.Type.STRING, cel.Type.INT),
        "event": cel.Type.DYN,
        "events": cel.Type.List(_TEXT_MAP),
        "inputs": _TEXT_MAP,
        "item": cel.Type.DYN,
        "iteration": cel.Type.INT,
        "key": cel.Type.STRING,
        "last": cel.Type.DYN,
        "outcome": cel.Type.Map(cel.Type.STRING, cel.Type.STRING),
        "results": _TEXT_MAP,
        "run": _TEXT_MAP,
        "status": cel.Type.INT,
    }
)
VARIABLES = tuple(_VARIABLES)
RUN_VARIABLES = ("clock", "events", "inputs", "outcome", "results", "run")  # what every step sees
REPEAT_VARIABLES = (*RUN_VARIABLES, "iteration", "last")
MAP_VARIABLES = (*RUN_VARIABLES, "item")
HTTP_VARIABLES = ("body", "status")
KEY_VARIABLES = ("inputs",)
EVENT_VARIABLES = ("event", "key")  # what the filter of a trigger sees


class ConditionFailed(Refused):
    """A condition that could not be answered for this snapshot."""

    def __init__(self, message: str, *, path: str = "", code: str = "condition_failed") -> None:
        super().__init__(code, message, path=path)


class Condition:
    """One compiled expression.

    `gives` is the type of its answer, DYN where only an evaluation can tell. `names` are the variables it reads,
    `needs` says which parts of them. `nodes` are the ids of the nodes whose result or outcome it reads; None where only
    an evaluation can tell.
    """

    __slots__ = ("_evaluate", "_overloads", "_path", "_reads", "_root", "gives", "names", "needs", "nodes", "text")

    def __init__(self, text: str, tree: Tree, *, path: str, gives: str) -> None:
        self.text = text
        self.gives = gives
        self._path = path
        self._reads = _reads(tree.root)
        self.names: tuple[str, ...] = tuple(sorted(self._reads))
        self.nodes: tuple[str, ...] | None = _nodes(self._reads)
        self.needs = needs_of(tree.root, self.names)
        self._overloads = tree.overloads() if _may_grow(tree.root) else None  # None: its cost needs no look
        self._root = tree.root
        self._evaluate: Callable[..., Any] = _ENV.deserialize(tree.prepared()).eval

    @staticmethod
    def compile(text: str, *, path: str = "", allowed: tuple[str, ...] = VARIABLES) -> "Condition":
        """Raises `Refused` with code `bad_condition`, which says where and why."""
        return _compile(text, path, allowed)

    def holds(self, snapshot: Mapping[str, Any]) -> bool:
        answer = self._answer(snapshot)
        if answer is True or answer is False:
            return answer
        raise ConditionFailed(f"gives {type(answer).__name__}, not true or false", path=self._path)

    def value(self, snapshot: Mapping[str, Any]) -> str | int:
        """For keys: a text or an integer, nothing else."""
        answer = self._answer(snapshot)
        if isinstance(answer, str | int) and not isinstance(answer, bool):
            return answer
        raise ConditionFailed(f"gives {type(answer).__name__}, not a text or an integer", path=self._path)

    def _answer(self, snapshot: Mapping[str, Any]) -> Any:
        data = {name: _part(snapshot[name], keys) for name, keys in self._reads.items() if name in snapshot}
        if not _depth_within(data, SNAPSHOT_DEPTH_MAX):
            raise ConditionFailed(f"the values are nested deeper than {SNAPSHOT_DEPTH_MAX}", path=self._path)
        if self._overloads is not None:
            self._check_cost(data, self._overloads)
        try:
            answer = self._evaluate(data=data)
            value = answer.value()
        except TypeError as error:  # of an answer that has no form in Python
            raise ConditionFailed("gives an optional or a type, not true or false", path=self._path) from error
        except (RuntimeError, ValueError, OverflowError) as error:
            raise ConditionFailed(_reason(str(error)), path=self._path) from error
        if value is not True and value is not False and answer.type() == cel.Type.ERROR:
            raise ConditionFailed(_reason(value), path=self._path)
        return value

    def _check_cost(self, data: dict[str, Any] | None, overloads: dict[int, tuple[str, ...]]) -> None:
        try:
            check_cost(self._root, overloads, data)
        except TooCostly as reason:
            raise ConditionFailed(str(reason), path=self._path, code="condition_too_costly") from None

    def check_least_cost(self) -> None:
        """Refuse what is too costly with the smallest values already. Raises `ConditionFailed`."""
        if self._overloads is not None:
            self._check_cost(None, self._overloads)


@lru_cache(maxsize=4_096)
def _compile(text: str, path: str, allowed: tuple[str, ...]) -> Condition:
    if not text.strip():
        raise Refused("bad_condition", "is empty; leave it out instead", path=path)
    if len(text) > TEXT_LENGTH_MAX:
        raise Refused("bad_condition", f"has {len(text)} characters, at most {TEXT_LENGTH_MAX}", path=path)
    try:
        compiled = _ENV.compile(text)
        tree = Tree(compiled.serialize())
    except (RuntimeError, TypeError) as error:  # TypeError: text that is not valid Unicode
        raise Refused("bad_condition", _reason(str(error)), path=path) from error
    condition = Condition(text, tree, path=path, gives=str(compiled.return_type()))
    for problem in (_unknown_here(condition.names, allowed), *map(_problem, walk(tree.root))):
        if problem:
            raise Refused("bad_condition", problem, path=path)
    try:
        condition.check_least_cost()
    except ConditionFailed as failed:
        raise Refused("bad_condition", f"{failed.message}, whatever it is given", path=path) from None
    return condition


def _unknown_here(names: tuple[str, ...], allowed: tuple[str, ...]) -> str:
    foreign = ", ".join(f"`{name}`" for name in names if name not in allowed)
    return f"{foreign} cannot be read here; known are {', '.join(sorted(allowed))}" if foreign else ""


def _problem(message: Message) -> str:
    """What the grammar of CEL allows and a condition does not."""
    if message.shape == "struct" and message.text(1):
        return f"cannot make a `{message.text(1)}`; use plain values"
    if message.shape != "call":
        return ""
    name, arguments = message.text(2), message.messages(3)
    if name.startswith("get") and arguments:
        return f"`{name}` takes no time zone: the zones of one machine are not those of the next"
    if name not in KNOWN_FUNCTIONS and not name.startswith("get"):
        return f"`{name}` is not available in conditions"
    if name == "matches":
        constant = arguments[-1].message(3)
        return _pattern_problem(constant.text(6)) if constant else ""
    return ""


def _pattern_problem(pattern: str) -> str:
    answer = _PATTERN_PROBE.eval(data={"last": pattern})
    return _reason(answer.value()) if answer.type() == cel.Type.ERROR else ""


def _reads(root: Message) -> dict[str, tuple[str, ...] | None]:
    """For each variable the keys that are read; None for all of it."""
    keyed = list(read_keys(root))
    reads: dict[str, tuple[str, ...] | None] = {}
    for mention, name in free_names(root):
        if name not in _VARIABLES:
            continue  # the name of a type
        key = next((key for candidate, key in keyed if candidate is mention), None)
        before = reads.get(name, ())
        reads[name] = None if key is None or before is None else (*before, key)
    return {name: None if keys is None else tuple(sorted(set(keys))) for name, keys in sorted(reads.items())}


def _nodes(reads: Mapping[str, tuple[str, ...] | None]) -> tuple[str, ...] | None:
    results, outcome = reads.get("results", ()), reads.get("outcome", ())
    return None if results is None or outcome is None else tuple(sorted({*results, *outcome}))


def _part(value: Any, keys: tuple[str, ...] | None) -> Any:
    """Only what is read: the library copies all it is given, read or not."""
    if keys is None or not isinstance(value, dict):
        return value
    return {key: value[key] for key in keys if key in value}


def _depth_within(value: Any, depth: int) -> bool:
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, _CONTAINERS) and not (depth and _depth_within(item, depth - 1)):
            return False
    return True


def _may_grow(root: Message) -> bool:
    """Whether more than its values and its text together is made or read on the way."""
    return any(inner.shape == "loop" or (inner.shape == "call" and inner.text(2) in _GROWING) for inner in walk(root))


def _reason(text: str) -> str:
    """The library's first complaint, without its decoration and without addresses, which differ by process."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text).replace(f"{SOME}(", "optional access(")
    first = text.removesuffix("]").rpartition(" [")[0] if text.endswith("]") else text
    match = re.search(r"ERROR: <input>:(-?\d+):(-?\d+): ([^\n]*)", first)
    if match:
        line, column, reason = match.groups()
        where = f"line {line}, column {column}: " if line != "-1" else ""
        return where + reason.replace(" (in container '')", "")
    return first.partition(": ")[2] or first


def _ordered(value: Any) -> list[Any]:
    """What a loop goes over: a list as it is, a map by its keys in order."""
    if isinstance(value, list):
        return value
    return sorted(value, key=lambda key: (type(key).__name__, key))


def _some(value: Any) -> Any:
    return {} if value is None else value


def _new_env() -> Any:
    kinds = (cel.Type.LIST, cel.Type.MAP)
    overloads = [
        cel.Overload(overload, return_type=cel.Type.LIST, parameters=[kind], impl=_ordered)
        for overload, kind in zip(ORDERED_OVERLOADS, kinds, strict=True)
    ]
    some = [
        cel.Overload(overload, return_type=cel.Type.DYN, parameters=[kind], impl=_some)
        for overload, kind in zip(SOME_OVERLOADS, (*kinds, cel.Type.NULL), strict=True)
    ]
    functions = [cel.FunctionDecl(ORDERED, overloads), cel.FunctionDecl(SOME, some)]
    return cel.NewEnv(
        variables=dict(_VARIABLES), functions=functions, extensions=[ExtOptional(), ExtStrings(_STRINGS_VERSION)]
    )


_ENV = _new_env()
_PATTERN_PROBE = _ENV.compile("''.matches(last)")
