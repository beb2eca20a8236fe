"""The fields of a form: each is a type, or a default value that says the type.

fields={"approve": bool, "how": Literal["all", "failed only"], "note": str | None, "limit": 10}
"""

import types
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from tickwork.core.base.errors import Refused
from tickwork.core.definition.model import InputField
from tickwork.sdk.values.declared_types import declared_type
from tickwork.sdk.values.decode import Converter, converter_for
from tickwork.sdk.values.encode import plain


def declared_fields(fields: Mapping[str, Any]) -> dict[str, InputField]:
    """Raises `Refused`."""
    if not isinstance(fields, Mapping) or not fields:
        raise Refused("bad_form", "a form has fields: fields={'approve': bool, 'note': ''}")
    return {name: _declared(name, given) for name, given in fields.items()}


def field_converters(fields: Mapping[str, Any]) -> dict[str, Converter]:
    return {name: converter_for(_annotation(given), optional=True) for name, given in fields.items()}


def default_values(default: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: plain(value, what=f"default.{name}") for name, value in (default or {}).items()}


def _declared(name: str, given: Any) -> InputField:
    if not isinstance(name, str):
        raise Refused("bad_form", f"the name of a field is a text, not {name!r}")
    kind, optional = _without_none(_annotation(given))
    type_name, choices = declared_type(kind)
    if not _is_annotation(given):
        return InputField(type=type_name, enum=choices, required=False, default=plain(given, what=f"fields.{name}"))
    return InputField(type=type_name, enum=choices, required=not optional)


def _annotation(given: Any) -> Any:
    return given if _is_annotation(given) else type(given)


def _is_annotation(given: Any) -> bool:
    return isinstance(given, type | types.UnionType) or given is Any or typing.get_origin(given) is not None


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """`str | None` is a text that may be left out."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation, False
    members = [member for member in typing.get_args(annotation) if member is not type(None)]
    optional = len(members) < len(typing.get_args(annotation))
    return (members[0] if len(members) == 1 else annotation), optional


def form_terms(fields: Mapping[str, InputField]) -> list[Any]:
    """As they travel, in their order."""
    return [[name, msgspec.to_builtins(field)] for name, field in fields.items()]
