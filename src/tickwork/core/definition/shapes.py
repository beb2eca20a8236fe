"""The shape of the document, derived from the types in `model.py`.

One table for the parser, the canonical form and the published schema: a field added to a type is
known to all three. The types nest to a fixed depth, so walking a shape never follows user data.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_origin

import msgspec

KIND = "kind"


@dataclass(frozen=True, slots=True)
class Field:
    attribute: str
    annotation: Any
    required: bool
    default: Any
    parts: tuple["Shape", ...] = ()  # the structs it holds; none for a plain value
    container: type | None = None  # list or dict where it holds many
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    struct: type[msgspec.Struct]
    kind: str | None
    fields: dict[str, Field]
    short: dict[str, str]  # the same name without its unit: `timeout` for `timeout_ms`


@cache
def shape_of(struct: type[msgspec.Struct]) -> Shape:
    fields = {info.encode_name: _field(info) for info in msgspec.structs.fields(struct)}
    short = {_without_unit(name): name for name in fields if _without_unit(name) != name}
    tag = struct.__struct_config__.tag
    return Shape(struct, None if tag is None else str(tag), fields, short)


def _field(info: msgspec.structs.FieldInfo) -> Field:
    container, types = _unwrapped(info.type)
    parts = tuple(shape_of(kind) for kind in types if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    return Field(
        attribute=info.name,
        annotation=info.type,
        required=info.required,
        default=default,
        parts=parts,
        container=container if parts else None,
        optional=type(None) in get_args(info.type),
    )


def _unwrapped(annotation: Any) -> tuple[type | None, tuple[Any, ...]]:
    """The container, and the types inside it: `tuple[X | Y, ...]` is a list of X and Y."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return list, get_args(args[0]) or (args[0],)
    if origin is dict:
        return dict, (args[1],)
    return None, args or (annotation,)


def _without_unit(name: str) -> str:
    return name.removesuffix("_ms").replace("_ms_", "_")
