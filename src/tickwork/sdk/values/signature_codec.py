"""Typed arguments and results: the signature of a function, read once.

Arguments arrive as plain data and become what the parameters say; results leave as plain data (`plain.py`).
An error about a wrong argument names the function, the parameter and the value.
"""

import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace, UnionType
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.sdk.values.decode import Converter, Mismatch, converter_for
from tickwork.sdk.values.encode import EMPTY_MAP, NULL, Unsendable, encode, plain

__all__ = [
    "EMPTY_MAP",
    "NULL",
    "BadArguments",
    "Codec",
    "Parameter",
    "Unsendable",
    "encode",
    "place_of",
    "plain",
    "result_of",
]

_decode = msgspec.msgpack.Decoder().decode
_EMPTY = inspect.Parameter.empty
_CONTEXT = re.compile(r"(Context|Durable) *(\| *None)?$")


class BadArguments(Refused):
    """A call that does not fit the function's signature."""

    def __init__(self, message: str, *, path: str = "") -> None:
        super().__init__("bad_arguments", message, path=path)


@dataclass(slots=True)
class Parameter:
    """One parameter. Its annotation is resolved when it is first needed, so it may name what is defined later."""

    name: str
    annotation: Any
    required: bool
    default: Any
    positional_only: bool
    keyword_only: bool
    function: Callable[..., Any]
    _convert: Converter | None = None

    @property
    def type(self) -> Any:
        """The annotation as a type; Any where there is none."""
        return resolved(self.annotation, self.function, where=f"parameter {self.name}")

    def convert(self, value: Any) -> Any:
        if self._convert is None:
            self._convert = converter_for(self.type, optional=self.default is None)
        return self._convert(value)


class Codec:
    """How the arguments and the result of one function travel."""

    __slots__ = ("_result", "_return", "context_name", "function", "is_durable", "name", "parameters", "positional")

    def __init__(self, function: Callable[..., Any], name: str, parameters: dict[str, Parameter], returns: Any) -> None:
        self.function = function
        self.name = name
        context = next((parameter for parameter in parameters.values() if _is_context(parameter)), None)
        self.context_name = "" if context is None else context.name
        self.is_durable = context is not None and bool(getattr(context.type, "_tw_is_durable", False))
        self.parameters = {key: parameter for key, parameter in parameters.items() if key != self.context_name}
        self.positional = tuple(parameter.name for parameter in parameters.values() if parameter.positional_only)
        self._return = returns
        self._result: Converter | None = None

    @staticmethod
    def of(function: Callable[..., Any], *, name: str = "", bound: bool = False) -> "Codec":
        """`bound`: the first parameter is `self` or `cls` and no argument. Raises `Refused` for a signature
        that has no name for each value."""
        shown = name or getattr(function, "__qualname__", repr(function))
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError) as error:
            raise Refused("bad_signature", f"{shown}: the signature cannot be read: {error}") from None
        declared = list(signature.parameters.values())[1 if bound else 0 :]
        for parameter in declared:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
                kind = "list" if parameter.kind is parameter.VAR_POSITIONAL else "dict"
                message = f"{shown} takes {stars}{parameter.name}, but every argument travels under a declared name"
                raise Refused("bad_signature", f"{message}; take one parameter that is a {kind} instead{_at(function)}")
        inner = _inner(function)
        parameters = {parameter.name: _parameter(parameter, inner) for parameter in declared}
        return Codec(inner, shown, parameters, signature.return_annotation)

    @property
    def return_type(self) -> Any:
        """The result's annotation as a type; Any where there is none or it cannot be resolved."""
        try:
            return resolved(self._return, self.function, where="the result")
        except Refused:
            return Any

    def arguments(self, raw: dict[str, Any]) -> dict[str, Any]:
        """Plain values to what the parameters say. Raises `BadArguments`."""
        parameters = self.parameters
        if not raw and not parameters:
            return raw
        result: dict[str, Any] = {}
        for name, value in raw.items():
            parameter = parameters.get(name)
            if parameter is None:
                if "." in name:  # no parameter has a dot in its name: these are parts of one
                    return self.arguments(joined(raw))
                raise self._unknown(name)
            try:
                result[name] = parameter.convert(value)
            except Mismatch as mismatch:
                raise self._wrong(name, value, mismatch) from mismatch.__cause__
        if len(result) < len(parameters):
            self._check_missing(result)
        return result

    def unpack(self, data: bytes) -> dict[str, Any]:
        """The same from MessagePack."""
        if data == EMPTY_MAP or not data:
            return self.arguments({})
        raw = _decode(data)
        if type(raw) is not dict:
            raise BadArguments(f"{self.name}: arguments are a map from name to value, not {type(raw).__name__}")
        return self.arguments(raw)

    def result(self, value: Any) -> Any:
        """A plain result as the annotated return type."""
        if self._result is None:
            self._result = converter_for(self.return_type)
        try:
            return self._result(value)
        except Mismatch as mismatch:
            message = f"{self.name} is declared to return {_shown_type(self.return_type)}, but {mismatch}"
            raise BadArguments(message) from mismatch.__cause__

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """A call's arguments by parameter name, without defaults. Raises `BadArguments`."""
        if len(args) > len(self.parameters):
            takes = f"{len(self.parameters)} argument{'' if len(self.parameters) == 1 else 's'}"
            raise BadArguments(f"{self.name} takes {takes}, {len(args)} were given")
        result: dict[str, Any] = {}
        for parameter, value in zip(self.parameters.values(), args, strict=False):
            if parameter.keyword_only:
                raise BadArguments(f"{self.name}: {parameter.name} is keyword-only; write {parameter.name}=...")
            result[parameter.name] = value
        for name, value in kwargs.items():
            if name in result:
                raise BadArguments(f"{self.name}: {name} is given twice, by position and by name")
            if name not in self.parameters:
                raise self._unknown(name)
            result[name] = value
        self._check_missing(result)
        return result

    def item_name(self, constants: dict[str, Any]) -> str:
        """The parameter that takes the items of a map: the first that is not given otherwise."""
        for name in constants:
            if name not in self.parameters:
                raise self._unknown(name)
        name = next((name for name in self.parameters if name not in constants), "")
        if not name:
            raise BadArguments(f"{self.name} has no parameter left for the items of the list")
        return name

    def check_constant(self, name: str, sent: Any) -> None:
        """Raises `BadArguments` where a plain value is not what the parameter says."""
        try:
            self.parameters[name].convert(sent)
        except Mismatch as mismatch:
            raise self._wrong(name, sent, mismatch) from None

    def _check_missing(self, given: dict[str, Any]) -> None:
        missing = [name for name, parameter in self.parameters.items() if parameter.required and name not in given]
        if missing:
            names = ", ".join(missing)
            raise BadArguments(f"{self.name}: no value for {names}; give it one, or a default in the signature")

    def _unknown(self, name: str) -> BadArguments:
        known = ", ".join(self.parameters) or "none"
        return BadArguments(f"{self.name} has no parameter {name[:80]!a}; it has: {known}", path=name[:80])

    def _wrong(self, name: str, value: Any, mismatch: Mismatch) -> BadArguments:
        expected = _shown_type(self.parameters[name].type)
        shown = f"{value!a}"
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        return BadArguments(
            f"{self.name}: {name} is declared as {expected}, but {mismatch}; it came as {shown}", path=name
        )


def joined(raw: dict[str, Any]) -> dict[str, Any]:
    """Arguments that travelled in parts, whole again: `rows.0` and `rows.1` are a list, `row.name` a dict, and of
    `row.-0` and `row.-1`, the sides of a branch, the one that was taken counts."""
    tree = _Parts()
    for name, value in raw.items():
        *above, last = name.split(".")
        branch = tree
        for step in above:
            branch = branch.setdefault(step, _Parts())
        branch[last] = value
    return {name: _fold(value) for name, value in tree.items()}


class _Parts(dict[str, Any]):
    pass


def _fold(value: Any) -> Any:
    if type(value) is not _Parts:
        return value
    if all(key.startswith("-") for key in value):
        return next((folded for part in value.values() if (folded := _fold(part)) is not None), None)
    if all(key.isdecimal() for key in value):
        return [_fold(value[key]) for key in sorted(value, key=int)]
    return {key: _fold(part) for key, part in value.items()}


def result_of(function: Callable[..., Any], value: Any) -> Any:
    """A plain result of any callable as its annotated return type; as it is where nothing is said."""
    inner = _inner(function)
    annotation = getattr(inner, "__annotations__", {}).get("return", _EMPTY)
    if annotation is _EMPTY:
        return value
    return Codec(inner, getattr(inner, "__qualname__", repr(inner)), {}, annotation).result(value)


def resolved(annotation: Any, function: Callable[..., Any], *, where: str) -> Any:
    """An annotation as a type, written as text or not. Raises `Refused` where a name in it is not known."""
    if annotation is _EMPTY or annotation is Any:
        return Any
    holder = SimpleNamespace(__annotations__={"it": annotation})
    spaces = (getattr(function, "__globals__", {}), _closure(function))
    try:
        return typing.get_type_hints(holder, *spaces, include_extras=True)["it"]
    except NameError as error:
        shown = getattr(function, "__qualname__", repr(function))
        message = f"{shown}: the type of {where} cannot be found: {error}; define or import it at the top of the module"
        raise Refused("bad_signature", f"{message}, not only for type checkers{_at(function)}") from None
    except Exception as error:
        shown = getattr(function, "__qualname__", repr(function))
        raise Refused("bad_signature", f"{shown}: the type of {where} is not valid: {error}{_at(function)}") from None


def place_of(function: Callable[..., Any]) -> str:
    """`file:line` where a function is written; empty for what was not written in Python."""
    code = getattr(_inner(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that was written: below decorators, a functools.partial, or an object that can be called."""
    inner: Callable[..., Any] = inspect.unwrap(function)
    inner = inspect.unwrap(getattr(inner, "func", inner))
    if hasattr(inner, "__code__") or isinstance(inner, type):
        return inner
    method: Callable[..., Any] = type(inner).__call__
    return method


def _at(function: Callable[..., Any]) -> str:
    location = place_of(function)
    return f" ({location})" if location else ""


def _parameter(parameter: inspect.Parameter, function: Callable[..., Any]) -> Parameter:
    required = parameter.default is _EMPTY
    default = msgspec.UNSET if required else parameter.default
    first, last = parameter.kind is parameter.POSITIONAL_ONLY, parameter.kind is parameter.KEYWORD_ONLY
    return Parameter(parameter.name, parameter.annotation, required, default, first, last, function)


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    """What a function inside a function sees of the outer one: where its annotations may come from."""
    code = getattr(function, "__code__", None)
    cells: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars if code else (), getattr(function, "__closure__", None) or (), strict=False):
        try:
            cells[name] = cell.cell_contents
        except ValueError:
            continue  # not bound yet
    return cells


def _is_context(parameter: Parameter) -> bool:
    """Only what looks like it is resolved: other annotations may not be resolvable yet."""
    annotation = parameter.annotation
    if isinstance(annotation, str) and not _CONTEXT.search(annotation):
        return False
    if isinstance(annotation, str):
        try:
            annotation = parameter.type
        except Refused:
            return False
    if typing.get_origin(annotation) in (typing.Union, UnionType):
        return any(getattr(part, "_tw_is_context", False) for part in typing.get_args(annotation))
    return bool(getattr(annotation, "_tw_is_context", False))


def _shown_type(annotation: Any) -> str:
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
