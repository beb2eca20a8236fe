"""Annotations as the types that a document has for them."""

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

from tickwork.sdk.values.encode import plain

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


def declared_type(annotation: Any) -> tuple[str, tuple[Any, ...]]:
    """Its name in the document, and the choices where there are only so many."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return declared_type(args[0])
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
