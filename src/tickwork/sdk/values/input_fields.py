"""The parameters of a workflow's function as the declared inputs of its definition."""

import typing
from typing import Any

from tickwork.core.definition.model import InputField
from tickwork.sdk.values.declared_types import declared_type
from tickwork.sdk.values.encode import plain
from tickwork.sdk.values.signature_codec import Codec, Parameter


def input_fields(codec: Codec) -> dict[str, InputField]:
    return {name: _field(parameter) for name, parameter in codec.parameters.items()}


def field_of(annotation: Any) -> InputField:
    """A required field of this type; one that may be None may also be left out."""
    name, choices = declared_type(annotation)
    optional = type(None) in typing.get_args(annotation)
    return InputField(type=name, enum=choices, required=not optional)


def _field(parameter: Parameter) -> InputField:
    name, choices = declared_type(parameter.type)
    if parameter.required:
        return InputField(type=name, enum=choices)
    default = plain(parameter.default, what=f"default of {parameter.name}")
    if default is None:
        name, choices = "any", ()
    return InputField(type=name, enum=choices, required=False, default=default)
