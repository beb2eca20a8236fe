"""From plain data to a type: what an annotation makes of a value.

msgspec does the work wherever it can. Beside it stand the types that it leaves to others (paths, pydantic
models) and unions that it cannot tell apart by form: there the first member that fits is taken, the ones
that take any text last.
"""

import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from pathlib import PurePath
from typing import Annotated, Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.sdk.values.encode import plain

Converter = Callable[[Any], Any]


class Mismatch(Exception):
    """Why a value is not of a type, as the end of a sentence."""


def converter_for(annotation: Any, *, optional: bool = False) -> Converter:
    """`optional`: None is accepted too. Raises `Refused` for a type that values cannot be made for."""
    kind = _zoned(annotation)
    if kind is Any:
        return _same
    if optional:
        kind = typing.Optional[kind]  # noqa: UP045 - the value is a type made here
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    try:
        msgspec.json.Decoder(kind)  # says whether msgspec can tell its parts apart
    except TypeError as error:
        return _apart(kind, error)
    return _by_msgspec(kind)


def _same(value: Any) -> Any:
    return value


def _exactly(kind: type) -> Converter:
    name = "None" if kind is type(None) else _with_article(kind)

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return value
        raise Mismatch(f"{_a(value)} is not {name}")

    return convert


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise Mismatch(f"{_a(value)} is not a float")


def _by_msgspec(kind: Any) -> Converter:
    def convert(value: Any) -> Any:
        try:
            return msgspec.convert(value, kind, dec_hook=_hook)
        except msgspec.ValidationError as error:
            raise Mismatch(_words(str(error))) from error.__cause__

    return convert


def _hook(kind: Any, value: Any) -> Any:
    """Types that msgspec does not know."""
    origin = typing.get_origin(kind) or kind
    if not isinstance(origin, type) or isinstance(value, origin):
        return value
    if issubclass(origin, PurePath):
        if type(value) is str:
            return origin(value)
        raise ValueError(f"{_a(value)} is no path")
    if hasattr(origin, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(" ".join(str(error).split())) from None
    raise ValueError(f"values of type {origin.__name__} cannot travel; use plain data, a dataclass or a model")


def _apart(kind: Any, reason: TypeError) -> Converter:
    """Convert part by part a type that msgspec refuses as a whole."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return converter_for(args[0])
    if origin in (typing.Union, types.UnionType):
        return _first_of(args)
    if origin in (list, set, frozenset) and len(args) == 1:
        return _items(origin, converter_for(args[0]))
    if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
        return _items(tuple, converter_for(args[0]))
    if origin is dict and len(args) == 2:
        return _entries(converter_for(args[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return _by_fields(kind)
    raise Refused("bad_signature", f"values of type {kind} cannot travel: {reason}")


def _first_of(members: tuple[Any, ...]) -> Converter:
    pairs = [(converter_for(member), member) for member in sorted(members, key=_takes_any_text)]

    def convert(value: Any) -> Any:
        why = []
        for member, _ in pairs:
            try:
                return member(value)
            except Mismatch as mismatch:
                why.append(str(mismatch))
        raise Mismatch("; ".join(dict.fromkeys(why)))

    return convert


def _takes_any_text(member: Any) -> bool:
    return member is str or (isinstance(member, type) and issubclass(member, PurePath))


def _items(kind: Any, item: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise Mismatch(f"{_a(value)} is not a list")
        return kind(map(item, value))

    return convert


def _entries(item: Converter) -> Converter:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch(f"{_a(value)} is not a dict")
        return {key: item(entry) for key, entry in value.items()}

    return convert


def _member(kind: type[Enum]) -> Converter:
    """For enums whose values are of several types, or not scalars."""

    def convert(value: Any) -> Any:
        for member in kind:
            if type(value) is type(held := plain(member.value, what=kind.__name__)) and value == held:
                return member
        raise Mismatch(f"{value!a:.60} is no value of {kind.__name__}")

    return convert


def _by_fields(kind: Any) -> Converter:
    hints = typing.get_type_hints(kind, include_extras=True)
    known = {field.name: converter_for(hints[field.name]) for field in fields(kind) if field.init}

    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise Mismatch(f"{_a(value)} is no {kind.__name__}")
        try:
            return kind(**{name: known[name](item) for name, item in value.items() if name in known})
        except TypeError as error:
            raise Mismatch(f"{kind.__name__}: {error}") from None

    return convert


def _zoned(annotation: Any) -> Any:
    """The same type, where each datetime has a zone: an instant without one means nothing to another machine."""
    if annotation is datetime:
        return Annotated[datetime, msgspec.Meta(tz=True)]
    if annotation is None:
        return type(None)
    if annotation is object or isinstance(annotation, typing.TypeVar):
        return Any
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_zoned(arg) for arg in args)]  # noqa: UP007 - made of values
    if origin in (list, set, frozenset, dict, tuple):
        return origin[tuple(arg if arg is Ellipsis else _zoned(arg) for arg in args)]
    return annotation


def _words(message: str) -> str:
    """msgspec's complaint as the end of a sentence: `Expected `int`, got `str` - at `$[1]``."""
    text, _, inside = message.partition(" - at `")
    location = inside.rstrip("`").removeprefix("$")
    if text.startswith("Expected `datetime` with a timezone"):
        text = "Expected a datetime with a zone, such as 2026-01-02T03:04:05Z"
    text = text.replace("`", "")
    text = text[:1].lower() + text[1:]
    return f"{text} at {location}" if location else text


def _a(value: Any) -> str:
    return "None" if value is None else _with_article(type(value))


def _with_article(kind: type) -> str:
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"


_SIMPLE: dict[Any, Converter] = {
    int: _exactly(int),
    str: _exactly(str),
    bool: _exactly(bool),
    float: _float,
    type(None): _exactly(type(None)),
    list: _exactly(list),
    dict: _exactly(dict),
}
