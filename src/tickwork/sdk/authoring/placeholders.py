"""What stands for values that do not exist yet, while a workflow is being built.

A placeholder can be passed on, whole or in part, and compared: comparing it makes a condition that the
server asks later. Everything that would need the value itself now is an error that says what to do.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from tickwork.sdk.authoring.source_location import placed
from tickwork.sdk.values.encode import plain

if TYPE_CHECKING:
    from tickwork.sdk.authoring.graph_builder import NodeRecord

T = TypeVar("T")
Root = Any  # a Record, or one of the words: inputs.NAME, item, index, iteration, previous, last

_TOKEN = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\.\s*[A-Za-z_]\w*|\b[A-Za-z_]\w*\b)""")
_KEY = re.compile(r"[^.\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Optional:
    """A part that may be missing, and what stands for it then."""

    key: str | int
    default: Any

    def __str__(self) -> str:
        message = "get(...) with a default is for conditions, and a value is passed on as it is"
        raise placed("bad_value", f"{message}; pass the whole and take the part in the task")


class Condition:
    """A question about values to come; `&`, `|` and `~` combine them."""

    __slots__ = ("parts",)
    _tw_question = True  # what cannot travel says so of itself

    def __init__(self, *parts: "str | Value") -> None:
        self.parts = parts

    def text(self) -> str:
        """As CEL. Ids must be settled by now."""
        return "".join(part if isinstance(part, str) else part._tw_cel() for part in self.parts)

    def values(self) -> "list[Value]":
        return [part for part in self.parts if isinstance(part, Value)]

    def __and__(self, other: Any) -> "Condition":
        return Condition("(", *self.parts, ") && (", *as_condition(other).parts, ")")

    def __or__(self, other: Any) -> "Condition":
        return Condition("(", *self.parts, ") || (", *as_condition(other).parts, ")")

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> "Condition":
        return Condition("!(", *self.parts, ")")

    def __bool__(self) -> NoReturn:
        message = "this condition is evaluated when the workflow runs, not while it is built: use tw.branch(...) for if"
        raise placed("built_not_run", f"{message}, & for and, | for or, ~ for not, and no chains like 1 < x < 3")

    def __repr__(self) -> str:
        return f"<condition {self.parts!r}>"


class Value:
    """The value of an input or node, or a part of one."""

    __slots__ = ("_tw_own_root", "_tw_walk")

    def __init__(self, root: Root, walk: tuple[str | int | Optional, ...] = ()) -> None:
        self._tw_own_root = root
        self._tw_walk = walk

    @property
    def _tw_root(self) -> Root:
        return self._tw_own_root

    def _tw_part(self, key: str | int | Optional) -> "Value":
        return Value(self._tw_root, (*self._tw_walk, key))

    def _tw_reference(self) -> str:
        return ".".join([_root_reference(self._tw_root), *map(str, self._tw_walk)])

    def _tw_cel(self) -> str:
        return _root_cel(self._tw_root) + "".join(map(_step_cel, self._tw_walk))

    def get(self, key: str | int, default: Any = None) -> Any:
        """A part in a condition, or the default where it is missing or the whole is None: `order.get("tax", 0) > 9`."""
        part = self[key]
        return self._tw_part(Optional(part._tw_walk[-1], default))

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise placed("bad_part", f"a part is named by a text or a position, not by {key!r}; cut it in a task")
        if isinstance(key, int) and key < 0:
            raise placed("bad_part", "a position counts from the start; take the last ones in a task")
        if isinstance(key, str) and not _KEY.fullmatch(key):
            raise placed("bad_part", f"the key {key!r} cannot be part of a reference; take it out in a task")
        return self._tw_part(key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._tw_part(name)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, "<", other)

    def __le__(self, other: Any) -> Any:
        return _compared(self, "<=", other)

    def __gt__(self, other: Any) -> Any:
        return _compared(self, ">", other)

    def __ge__(self, other: Any) -> Any:
        return _compared(self, ">=", other)

    def __eq__(self, other: object) -> Any:
        return _compared(self, "==", other)

    def __ne__(self, other: object) -> Any:
        return _compared(self, "!=", other)

    def __and__(self, other: Any) -> Condition:
        return as_condition(self).__and__(other)

    def __or__(self, other: Any) -> Condition:
        return as_condition(self).__or__(other)

    def __invert__(self) -> Condition:
        return ~as_condition(self)

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        advice = "use tw.branch(condition, then, otherwise) for if, & for and, | for or, ~ for not"
        raise _unknown(self, "cannot be tested here", advice)

    def __iter__(self) -> Iterator[Any]:
        advice = "use some_task.map(values), take its parts one by one (values[0]), or loop in a task"
        raise _unknown(self, "cannot be looped over here", advice)

    def __len__(self) -> NoReturn:
        raise _unknown(self, "has no length yet", 'ask it in a condition: tw.cel("size(xs) > 3", xs=...)')

    def __contains__(self, _item: object) -> NoReturn:
        raise _unknown(self, "cannot be searched here", 'ask it in a condition: tw.cel("x in xs", x=..., xs=...)')

    def __str__(self) -> str:
        raise _unknown(self, "has no text yet", "pass it to a task that makes the text (repr() shows what it is)")

    def __format__(self, _spec: str) -> NoReturn:
        raise _unknown(self, "has no text yet", "pass it to a task that makes the text")

    def __call__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise _unknown(self, "cannot be called", "call its methods in a task")

    def __setitem__(self, _key: Any, _value: Any) -> NoReturn:
        raise _unknown(self, "cannot be changed here", "make the changed value in a task")

    def __delitem__(self, _key: Any) -> NoReturn:
        raise _unknown(self, "cannot be changed here", "make the changed value in a task")

    def _tw_no_arithmetic(self, _other: Any = None) -> NoReturn:
        raise _unknown(self, "cannot be computed with here", "compute in a task, or in a condition by tw.cel(...)")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _tw_no_arithmetic
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = (
        _tw_no_arithmetic
    )
    __neg__ = __pos__ = __abs__ = __round__ = __int__ = __float__ = __index__ = _tw_no_arithmetic

    def __repr__(self) -> str:
        what = self._tw_own_root if isinstance(self._tw_own_root, str) else f"result of {self._tw_own_root!r}"
        return f"<{what}{''.join(f'[{key!r}]' for key in self._tw_walk)}>"


class Node(Value):
    """The result of a node, and the node itself: its place in the order, its name, its conditions."""

    __slots__ = ()

    def _tw_record(self) -> "NodeRecord":
        return cast("NodeRecord", self._tw_own_root)

    def after(self, *others: Any) -> "Node":
        """Starts only when these have ended well, although it takes nothing from them."""
        self._tw_record().start_after(*others)
        return self

    def named(self, name: str) -> "Node":
        """Its id in the definition, on the page and in `why`."""
        self._tw_record().rename(name)
        return self

    def when(self, condition: Any) -> "Node":
        """Runs only where this holds; otherwise it counts as not taken."""
        self._tw_record().only_when(as_condition(condition))
        return self

    def on(self, trigger: str) -> "Node":
        """Which outcomes before it let it start: all_succeeded, all_done, any_failed, all_failed or none_failed; or
        any_succeeded or one_done, which do not wait for the rest."""
        self._tw_record().trigger_on(trigger)
        return self


def refuse_future(what: str, value: Any) -> None:
    """For what must be written in the workflow. Raises `Refused` where a value to come stands there."""
    if isinstance(value, Value | Condition):
        which = _in_words(value) if isinstance(value, Value) else "a condition"
        message = f"{what} is fixed when the workflow is built, and {which} comes later"
        raise placed("future_value", f"{message}; write a constant, or choose between two calls with tw.branch(...)")


def node(value: Any) -> Node:
    """The node behind a result, for type checkers: `tw.node(fetch(day)).named("first")`."""
    if isinstance(value, Node):
        return value
    raise placed("no_node", f"{value!r} is not the whole result of a node")


def cel(text: str, /, **values: Any) -> Any:
    """A condition in CEL; the names in it stand for the values given: `tw.cel("size(rows) > 9", rows=found)`."""
    parts: list[str | Value] = []
    used: set[str] = set()
    for piece in _TOKEN.split(text):
        if piece in values:
            used.add(piece)
            value = values[piece]
            parts.append(value if isinstance(value, Value) else _literal(value))
        else:
            parts.append(piece)
    if unused := sorted(set(values) - used):
        raise placed("bad_condition", f"the condition {text!r} does not mention {', '.join(unused)}")
    return Condition(*parts)


def as_condition(given: Any) -> Condition:
    """A condition, CEL as text, or a value that is true or false."""
    if isinstance(given, Condition):
        return given
    if isinstance(given, str):
        return Condition(given)
    if isinstance(given, bool):
        return Condition("true" if given else "false")
    if isinstance(given, Value):
        return Condition(given, " == true")
    kind = type(given).__name__
    raise placed("bad_condition", f"a condition is a comparison like total > 100 or CEL as text, not a {kind}")


def condition_of(question: Callable[..., Any] | Any, *values: Value) -> Condition:
    """A condition that is given as such, or as a function of values."""
    return as_condition(question(*values) if callable(question) and not isinstance(question, Value) else question)


def _compared(left: Value, sign: str, right: Any) -> Condition:
    for side in (left, right):
        if isinstance(side, Value):
            side._tw_root  # noqa: B018 - the result of a branch gets its node here
    if isinstance(right, datetime):
        return Condition("timestamp(", left, f") {sign} timestamp({_literal(right)})")
    return Condition(left, f" {sign} ", right if isinstance(right, Value) else _literal(right))


def _step_cel(step: str | int | Optional) -> str:
    if isinstance(step, Optional):
        return f"[?{_literal(step.key)}].orValue({_literal(step.default)})"
    return f"[{_literal(step)}]"


def _literal(value: Any) -> str:
    return json.dumps(plain(value, what="condition"))


def _root_reference(root: Root) -> str:
    return root if isinstance(root, str) else f"nodes.{root.id}"


def _root_cel(root: Root) -> str:
    if not isinstance(root, str):
        return f"results[{json.dumps(root.id)}]"
    head, _, name = root.partition(".")
    return f"{head}[{json.dumps(name)}]" if name else head


def _unknown(value: Value, what: str, advice: str) -> Exception:
    message = f"{_in_words(value)} {what}: the workflow is only being described, and the value comes later"
    return placed("built_not_run", f"{message}; {advice}")


def _in_words(value: Value) -> str:
    parts = "".join(f"[{key!r}]" for key in value._tw_walk)
    root = value._tw_own_root
    if not isinstance(root, str):
        return f"the result of {root!r}{parts}"
    head, _, name = root.partition(".")
    if name:
        return f"the input {name}{parts}"
    return f"the last result{parts}" if head == "last" else f"tw.{head}{parts}"


item: Any = Value("item")
index: Any = Value("index")
iteration: Any = Value("iteration")
previous: Any = Value("previous")
