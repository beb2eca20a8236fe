"""The parameters of a workflow's function as the declared inputs of its definition."""

import dataclasses
import types
import typing
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from tickwork.core.definition.model import InputField
from tickwork.sdk.values.encode import plain
from tickwork.sdk.values.signature_codec import Codec, Parameter

_NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "datetime",
    dict: "object",
    list: "array",
    tuple: "array",
    set: "array",
    frozenset: "array",
}
_TEXTS = (date, time, timedelta, Decimal, UUID, PurePath, bytes)


def input_fields(codec: Codec) -> dict[str, InputField]:
    return {name: _field(parameter) for name, parameter in codec.parameters.items()}


def field_of(annotation: Any) -> InputField:
    """A required field of this type; one that may be None may also be left out."""
    name, choices = _type(annotation)
    optional = type(None) in typing.get_args(annotation)
    return InputField(type=name, enum=choices, required=not optional)


def _field(parameter: Parameter) -> InputField:
    name, choices = _type(parameter.type)
    if parameter.required:
        return InputField(type=name, enum=choices)
    default = plain(parameter.default, what=f"default of {parameter.name}")
    if default is None:
        name, choices = "any", ()
    return InputField(type=name, enum=choices, required=False, default=default)


def _type(annotation: Any) -> tuple[str, tuple[Any, ...]]:
    """Its name in the document, and the choices where there are only so many."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(args[0])
    if origin is typing.Literal:
        return _choices(args)
    if origin in (typing.Union, types.UnionType):
        return "any", ()
    kind = origin or annotation
    if kind in _NAMES:
        return _NAMES[kind], ()
    if not isinstance(kind, type):
        return "any", ()
    if issubclass(kind, Enum):
        return _choices([plain(member.value) for member in kind])
    if issubclass(kind, _TEXTS):
        return "string", ()
    if issubclass(kind, tuple):
        return "array", ()
    if dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate") or hasattr(kind, "__attrs_attrs__"):
        return "object", ()
    if issubclass(kind, dict) or (issubclass(kind, msgspec.Struct) and not kind.__struct_config__.array_like):
        return "object", ()
    return "any", ()


def _choices(values: Any) -> tuple[str, tuple[Any, ...]]:
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int} or "" in values:
        return "any", ()
    return ("string" if kinds == {str} else "integer"), tuple(values)
